"""LLM judges: `rmlab.judge` makes one, `cost` counts what it will ask."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, Unpack, get_type_hints

import numpy as np

from rmlab.estimation.ties import TIES
from rmlab.judges.chat import Chat, is_openai
from rmlab.judges.examination import cost
from rmlab.judges.kinds import AnswerJudge, Judge, ListJudge, PairJudge
from rmlab.judges.local_model import Local
from rmlab.judges.questions import Sampling, load_template
from rmlab.judges.readers import (
    PUBLISHED_LETTER,
    PUBLISHED_RATING,
    YES_NO,
    Reader,
    Scale,
    Verdict,
    choose_reader,
)
from rmlab.servers import Client, ClientOptions
from rmlab.tables import DataError, check_option, nearest

__all__ = ["Judge", "cost", "judge", "load_template"]

T = TypeVar("T")


_MODES: dict[str, tuple[type[Judge], str]] = {
    "pairwise": (PairJudge, "five"),
    "logprob": (PairJudge, "letter"),
    "ranking": (ListJudge, "ranking"),
    "rating": (AnswerJudge, "rating"),
}
"""The kind of a mode, and its template."""


class _Asking(NamedTuple):
    """The words of a question, how its replies are read, and what one that cannot be
    read counts.
    """

    template: str | Path
    reader: Reader
    unread: float = np.nan
    scale: Scale = (1, 10)


# How the runners of RewardBench 1 and 2 ask generative models and read them:
# scripts/run_generative.py and run_generative_v2.py of
# https://github.com/allenai/reward-bench.
_CONVENTIONS = {
    "reward-bench": ("pairwise", _Asking("two", PUBLISHED_LETTER, 0.0)),
    "reward-bench-2": ("ranking", _Asking("ranking", PUBLISHED_LETTER, 0.0)),
    "reward-bench-2-ratings": (
        "rating",
        _Asking("rating-number", PUBLISHED_RATING, -1.0),
    ),
}
_PUBLISHED_TIES = _Asking("rating-ties-number", PUBLISHED_RATING, -1.0)


class RespondentOptions(ClientOptions, total=False):
    """Options of the model that answers; `judge` describes them."""

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
        How the verdict is found in a reply. The name of a reader: "letter" (the
        default: [[A]], A, "Answer: A", "Output (a)"), "strength" ([[A>>B]]), "boxed"
        (\boxed{A}, \boxed{4, 7}), "tag" (in <answer>), "result" ("**Result:** A",
        "[RESULT] 4"), "json:KEY" (the value of a key), "scores" (two scores, or "8 out
        of 10"),
        "yes-no" (log-probabilities of Yes and No). Or a regular expression with one
        group, or with two for scores. Or a function of the reply's text that returns a
        verdict's text, a number, two scores, or None. Reasoning is removed before, and
        the last verdict counts. Where a reader reads letters and scores,
        what most replies of a run hold decides between votes and margins.
    scale : tuple of float
        The lowest and the highest score that counts as one.
    system : str
        A system message before every question, such as the criterion to judge by. It
        stands before the template's own system message, or fills its {system}.
    convention : {"reward-bench", "reward-bench-2", "reward-bench-2-ratings"}, optional
        Ask and read as the runners of RewardBench 1 and 2 do, which fixes mode,
        samples, temperature and how replies are read.
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
        Behind a server: `key` (the *name* of the environment variable that holds the
        key; at OpenAI itself OPENAI_API_KEY, elsewhere none unless named), `version`
        (tells answers in the store apart where the model behind the name changed),
        `extra` (further fields of each request; None takes one out, as
        `{"temperature": None}` does for models that refuse it), `concurrency`,
        `retries`, `backoff`, `timeout` and `outage` (seconds for
        which a server that is away is waited for), `max_requests` (a run that needs
        more is refused before its first question, and no run exceeds it). On this
        machine: `base` (the model that an adapter changes), `dtype`, `device`, `batch`
        (questions at once), `revision`, `trust_remote_code`.

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
    published = None
    if convention is not None:
        published_mode, published = _choose("convention", convention, _CONVENTIONS)
        is_asked = mode in (None, published_mode) and temperature in (None, 0)
        is_read = reader is None and scale == (1, 10)
        if samples != 1 or not (is_asked and is_read):
            fixed = f"mode={published_mode!r} with samples=1, temperature=0"
            problem = f"convention={convention!r} is {fixed}, a reader and a scale"
            raise DataError(problem, "leave these out")
        mode = published_mode
    mode = mode or "pairwise"
    kind, words = _choose("mode", mode, _MODES)
    choices = _choose_choices(mode, reader, template)
    if choices and samples != 1:
        problem = f"samples={samples!r}: log-probabilities are read once"
        raise DataError(problem, "leave it out")
    if samples < 1:
        raise DataError(f"samples={samples!r}", "allowed: 1 or more")

    if answer_tokens is None:
        answer_tokens = 1 if choices else 1024
    if temperature is None:
        temperature = 0.0 if samples == 1 else 0.7
    sampling = Sampling(temperature, answer_tokens, choices)
    respondent = _open_respondent(model, url, sampling, template_options or {}, options)

    def make(kind: type[Judge], asking: _Asking, **further: Any) -> Judge:
        question = replace(load_template(asking.template, kind.shows), system=system)
        return kind(
            name or respondent.title,
            respondent,
            question,
            samples,
            seed,
            asking.reader,
            asking.scale,
            asking.unread,
            **further,
        )

    asking = published or _Asking(words, choose_reader(reader), scale=scale)
    asking = asking._replace(template=template or asking.template)
    if kind.shows == "pair":
        is_published = published is not None
        return make(kind, asking, letters=bool(choices), one_order=is_published)

    ties = _Asking("rating-ties", choose_reader(None))
    if published is not None:
        ties = _PUBLISHED_TIES
    elif mode == "rating":
        # A caller's own rating is one of Ties as well.
        ties = asking._replace(template=template or "rating-ties")
    elif ties_template is not None:
        ties = asking
    ties = ties._replace(template=ties_template or ties.template)
    return make(kind, asking, by_subset={TIES: make(AnswerJudge, ties)})


def _choose(option: str, value: str, allowed: Mapping[str, T]) -> T:
    if value not in allowed:
        raise DataError(f"{option}={value!r}", nearest(value, list(allowed)))
    return allowed[value]


def _choose_choices(
    mode: str, reader: object, template: str | Path | None
) -> tuple[str, ...]:
    """The words whose log-probabilities are read; none where the text is read."""
    if mode == "logprob" and reader not in (None, YES_NO):
        problem = f"reader={reader!r} with mode='logprob', which reads no text"
        raise DataError(problem, f"leave it out, or use {YES_NO!r}")
    if reader != YES_NO:
        return ("A", "B") if mode == "logprob" else ()
    if template is None:
        problem = f"reader={reader!r} needs a question of Yes or No"
        raise DataError(problem, "give template= its words")
    return ("Yes", "No")


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
        if client.key is None and is_openai(client.url):
            client = replace(client, key="OPENAI_API_KEY")
        return Chat(str(model), client, sampling, extra, version, template_options)

    from rmlab.scorers.checkpoints.adapters import Adapted
    from rmlab.scorers.checkpoints.checkpoint import find
    from rmlab.scorers.models import loading

    if not isinstance(model, Path) and "/" not in model and not Path(model).exists():
        problem = f"model={model!r} is neither a folder nor a hub id ('owner/name')"
        remedy = "for a model behind a server give url=, such as"
        raise DataError(problem, f"{remedy} 'https://api.openai.com/v1'")
    device = loading.device(settings.pop("device", None))
    dtype = loading.dtype(settings.pop("dtype", None), device)
    batch = settings.pop("batch", 8)
    checkpoint = find(model, **settings)
    if isinstance(checkpoint, Adapted):
        checkpoint.refuse_task("CAUSAL_LM")
    return Local(checkpoint, device, dtype, sampling, batch, template_options)
