"""LLM judges: `rmlab.judge` makes one, `cost` counts what it will ask."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack, get_type_hints
from urllib.parse import urlsplit

from rmlab.estimation.ties import TIES
from rmlab.judges.chat import OPENAI, Chat
from rmlab.judges.costs import cost
from rmlab.judges.kinds import AnswerJudge, Judge, ListJudge, PairJudge
from rmlab.judges.local_model import Local
from rmlab.judges.questions import Sampling, Template, load_template
from rmlab.judges.readers import (
    PUBLISHED_LETTER,
    PUBLISHED_RATING,
    YES_NO,
    Reader,
    Verdict,
    choose_reader,
)
from rmlab.servers import Client, ClientOptions
from rmlab.tables import DataError, check_option, nearest

__all__ = [
    "CONVENTIONS",
    "Judge",
    "RespondentOptions",
    "cost",
    "judge",
    "load_template",
]


@dataclass(frozen=True)
class _Setup:
    """Mode, what a question shows, and its words; `one_order`: a comparison in one
    order only.
    """

    mode: str
    shows: str
    template: str
    ties_template: str = "rating-ties"
    one_order: bool = False
    # How a convention reads replies, and counts what it cannot read.
    reader: Reader | None = None
    unread: float = math.nan


_MODES = {
    "pairwise": _Setup("pairwise", "pair", "five"),
    "logprob": _Setup("logprob", "pair", "letter"),
    "ranking": _Setup("ranking", "list", "ranking"),
    "rating": _Setup("rating", "answer", "rating"),
}

CONVENTIONS = {
    "reward-bench": _Setup(
        "pairwise", "pair", "two", one_order=True, reader=PUBLISHED_LETTER, unread=0.0
    ),
    "reward-bench-2": _Setup(
        "ranking",
        "list",
        "ranking",
        "rating-ties-number",
        reader=PUBLISHED_LETTER,
        unread=0.0,
    ),
    "reward-bench-2-ratings": _Setup(
        "rating",
        "answer",
        "rating-number",
        "rating-ties-number",
        reader=PUBLISHED_RATING,
        unread=-1.0,
    ),
}
"""How the runners of RewardBench 1 and 2 ask generative models and read them, by name.

Temperature 0, one answer to each question. "reward-bench": two letters without a draw,
one order drawn by a coin; "reward-bench-2": the best of four, shuffled;
"reward-bench-2-ratings": every answer rated. Ties are rated in both, by words that
leave depth and detail out. Replies are read by the runners' own expressions: the first
of [[A]], [[B]] ... that stands anywhere in the reply, and the integer from 1 to 10 at
its end. Where nothing matches they count half a win (with `ties="half"`), a quarter
among four answers, and a rating of -1.

Two things are not the runners': the words of the questions are rmlab's (pass the
published ones as `template=` and `ties_template=`), and the order of four answers is
shuffled whole, where the runner swaps the right one with one other.
scripts/run_generative.py and run_generative_v2.py of
https://github.com/allenai/reward-bench.
"""


class RespondentOptions(ClientOptions, total=False):
    """Options of the model that answers, for `rmlab.judge`.

    Behind a server: `key` (the *name* of the environment variable that holds the key;
    at OpenAI itself OPENAI_API_KEY, elsewhere none unless named), `version` (tells
    answers in the store apart where the model behind the name changed), `extra`
    (further fields of each request; None takes one out, as `{"temperature": None}` does
    for models that refuse it), `concurrency`, `rate` (requests per second), `retries`,
    `backoff`, `timeout` and `outage` (seconds for which a server that is away is waited
    for), `max_requests` and `max_tokens` (the budget: a run that needs more is refused
    before its first question, and no run exceeds it).

    On this machine: `base` (the model that an adapter changes), `dtype`, `device`,
    `batch` (questions at once), `revision`, `trust_remote_code`.
    """

    version: str
    extra: Mapping[str, object]
    base: str | Path | None
    dtype: str | None
    device: str | None
    batch: int
    revision: str | None
    trust_remote_code: bool


_LOCAL_OPTIONS = ("base", "dtype", "device", "batch", "revision", "trust_remote_code")


def judge(
    model: str | Path,
    url: str | None = None,
    *,
    mode: str | None = None,
    template: str | Path | None = None,
    ties_template: str | Path | None = None,
    reader: str | Callable[[str], Verdict | None] | None = None,
    scale: tuple[float, float] = (1, 10),
    system: str = "",
    convention: str | None = None,
    samples: int = 1,
    seed: int = 0,
    temperature: float | None = None,
    answer_tokens: int | None = None,
    name: str | None = None,
    template_options: Mapping[str, object] | None = None,
    **options: Unpack[RespondentOptions],
) -> Judge:
    r"""Make a language model a judge, for `rmlab.prefer` ("pairwise", "logprob") or
    `rmlab.score` ("ranking", "rating").

    Parameters
    ----------
    model : str or Path
        The model's name at the server; without `url` a folder or a hub id, and the
        model runs here.
    url : str, optional
        An OpenAI-compatible server (OpenAI, vLLM, SGLang, llama.cpp, `transformers
        serve`), up to and with its `/v1`.
    mode : {"pairwise", "logprob", "ranking", "rating"}, optional
        "pairwise" asks for the better of two answers, in both orders, with five
        verdicts from A>>B to B>>A, whose strength is the margin (`template="three"`: A,
        B or a draw; "two": no draw).
        "logprob" reads the probability of the letter A or B, where the server gives it.
        "ranking" asks for the best of all answers to a prompt. "rating" asks for a
        score of each answer.
    template, ties_template : str or Path, optional
        Words of the question: a template that comes with rmlab, or a text file, as
        `rmlab.judges.load_template` describes it, with {prompt} and {answer_a},
        {answer_b} (or {answers}, or {answer}). Without `reader`, a comparison has as
        many verdicts as the question names, such as [[A>>B]]. In the modes "ranking"
        and "rating" RewardBench 2's Ties are rated by `ties_template`, which leaves
        depth and detail out; without it, by a rating `template` of one's own, and
        after "ranking" by the default reader and scale.
    reader : str or callable, optional
        How the verdict is found in a reply. The name of a reader: "letter" ([[A]], A,
        "Answer: A", "Output (a)"), "strength" ([[A>>B]]), "boxed" (\boxed{A},
        \boxed{4, 7}), "tag" (in <answer>), "result" ("**Result:** A", "[RESULT] 4"),
        "json:KEY" (the value of a key), "scores" (two scores, or "8 out of 10"),
        "yes-no" (log-probabilities of Yes and No). Or a regular expression with one
        group, or with two for scores. Or a function of the reply's text that returns a
        verdict's text, a number, two scores, or None. By default verdicts stand in
        double brackets or boxes, or alone on the last line. Reasoning is removed
        before, and the last verdict counts. Where a reader reads letters and scores,
        what most replies of a run hold decides between votes and margins.
    scale : tuple of float
        The lowest and the highest score that counts as one.
    system : str
        A system message before every question, such as the criterion to judge by. It
        stands before the template's own system message, or fills its {system}.
    convention : str, optional
        One of `rmlab.judges.CONVENTIONS`, which fixes mode, samples, temperature and
        how replies are read.
    samples : int
        Answers to each question, of which the majority (ratings: the mean) counts.
    seed : int
        Seed of the order of answers and of the samples.
    temperature : float, optional
        Default 0, or 0.7 with several samples.
    answer_tokens : int, optional
        The most tokens of an answer. Default 1024; 1 where log-probabilities are read.
    name : str, optional
        Name in every table. Default the model's.
    template_options : mapping, optional
        Options of the model's chat template, such as {"enable_thinking": False}.
    **options
        Options of the server or of the model: `rmlab.judges.RespondentOptions`.

    Returns
    -------
    Judge
        A scorer for `rmlab.prefer` or `rmlab.score`.

    Raises
    ------
    DataError
        For values that are not allowed, and a question whose verdicts cannot be read.
    ValueError
        For an option of the other kind of judge: `revision` with `url`, `key` without.
    ImportError
        Where httpx and tenacity, or transformers, are not installed.
    """
    setup = _choose_setup(mode, convention)
    choices = _choose_words(setup, reader, template)
    if (convention or choices) and samples != 1:
        problem = f"samples={samples!r}: {convention or mode} asks each question once"
        raise DataError(problem, "leave it out")
    is_changed = mode not in (None, setup.mode) or temperature not in (None, 0)
    if convention and (is_changed or reader is not None or scale != (1, 10)):
        fixed = f"mode={setup.mode!r} with temperature=0, a reader and a scale"
        raise DataError(f"convention={convention!r} is {fixed}", "leave these out")
    if not scale[0] < scale[1]:
        raise DataError(f"scale={scale!r}", "give the lowest and the highest score")

    if answer_tokens is None:
        answer_tokens = 1 if choices else 1024
    if temperature is None:
        temperature = 0.0 if samples == 1 else 0.7
    if samples < 1:
        raise DataError(f"samples={samples!r}", "allowed: 1 or more")
    sampling = Sampling(temperature, answer_tokens, choices, seed)
    respondent = _open_respondent(model, url, sampling, template_options or {}, options)
    common: dict[str, Any] = {
        "name": name or respondent.title,
        "respondent": respondent,
        "samples": samples,
        "seed": seed,
    }
    reading: dict[str, Any] = {
        "reader": setup.reader or choose_reader(reader),
        "scale": scale,
        "unread": setup.unread,
    }

    def load(template: str | Path, shows: str) -> Template:
        return replace(load_template(template, shows), system=system)

    question = load(template or setup.template, setup.shows)
    if setup.shows == "pair":
        return PairJudge(
            **common,
            **reading,
            template=question,
            letters=bool(choices),
            one_order=setup.one_order,
        )

    # A caller's own rating is one of Ties as well; a list's reader and scale are not.
    is_rating = setup.shows == "answer"
    ties_words: str | Path = ties_template or setup.ties_template
    ties_reading = reading
    if convention is not None:
        ties_reading = {"reader": PUBLISHED_RATING, "unread": -1.0}
    elif ties_template is None and is_rating:
        ties_words = template or ties_words
    elif ties_template is None:
        ties_reading = {}
    ties_question = load(ties_words, "answer")
    ties_judge = AnswerJudge(**common, **ties_reading, template=ties_question)
    kind = AnswerJudge if is_rating else ListJudge
    return kind(**common, **reading, template=question, by_subset={TIES: ties_judge})


def _choose_words(
    setup: _Setup, reader: object, template: str | Path | None
) -> tuple[str, ...]:
    """The words whose log-probabilities are read; none where the text is read."""
    if setup.mode == "logprob" and reader not in (None, YES_NO):
        problem = f"reader={reader!r} with mode='logprob', which reads no text"
        raise DataError(problem, f"leave it out, or use {YES_NO!r}")
    if reader == YES_NO:
        if template is None:
            problem = f"reader={reader!r} needs a question of Yes or No"
            raise DataError(problem, "give template= its words")
        if setup.shows == "list":
            raise DataError(f"reader={reader!r} with mode='ranking'", "use 'rating'")
        return ("Yes", "No")
    return ("A", "B") if setup.mode == "logprob" else ()


def _choose_setup(mode: str | None, convention: str | None) -> _Setup:
    """The setup of a convention, or of a mode; raise DataError for unknown names."""
    if mode is not None and mode not in _MODES:
        raise DataError(f"mode={mode!r}", nearest(mode, list(_MODES)))
    if convention is None:
        return _MODES[mode or "pairwise"]
    if convention not in CONVENTIONS:
        allowed = nearest(convention, list(CONVENTIONS))
        raise DataError(f"convention={convention!r}", allowed)
    return CONVENTIONS[convention]


def _open_respondent(
    model: str | Path,
    url: str | None,
    sampling: Sampling,
    template_options: Mapping[str, object],
    options: RespondentOptions,
) -> Chat | Local:
    """The model, here or behind a server; ValueError for options of the other kind.

    Nothing of a model on this machine is loaded yet.
    """
    allowed = {*_LOCAL_OPTIONS}
    if url is not None:
        allowed = {*get_type_hints(RespondentOptions)} - allowed
    for option in options:
        check_option("options", option, sorted(allowed))
    settings: dict[str, Any] = dict(options)
    if url is not None:
        extra = settings.pop("extra", {})
        version = settings.pop("version", "")
        client = Client(url, **settings)
        if client.key is None and urlsplit(client.url).hostname == OPENAI:
            client = replace(client, key="OPENAI_API_KEY")
        return Chat(str(model), client, sampling, extra, version, template_options)

    from rmlab.scorers.checkpoints.adapters import Adapted
    from rmlab.scorers.checkpoints.checkpoint import find
    from rmlab.scorers.models import loading

    if not isinstance(model, Path) and "/" not in model and not Path(model).exists():
        problem = f"model={model!r} is neither a folder nor a hub id ('owner/name')"
        example = f"'https://{OPENAI}/v1'"
        remedy = f"for a model behind a server give url=, such as {example}"
        raise DataError(problem, remedy)
    device = loading.device(settings.pop("device", None))
    dtype = loading.dtype(settings.pop("dtype", None), device)
    batch = settings.pop("batch", 8)
    checkpoint = find(model, **settings)
    if isinstance(checkpoint, Adapted):
        checkpoint.refuse_task("CAUSAL_LM")
    return Local(checkpoint, device, dtype, sampling, batch, template_options)
