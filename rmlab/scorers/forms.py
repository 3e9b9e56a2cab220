"""How pairwise models are asked: the text that they read for a prompt and two answers,
and where it is read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.chat_formats import choose_template
from rmlab.inference.encoding import Encoded, Response, require_unicode
from rmlab.inference.rendering import pinned_date, render
from rmlab.inference.tokenizer_calls import call
from rmlab.scorers.base import Prompt, require_one_of_each
from rmlab.scorers.checkpoints.checkpoint import Checkpoint
from rmlab.scorers.encoder import EncodeOptions, TextEncoder
from rmlab.scorers.reads import MARKERS, Read
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Ids = NDArray[np.int32]
Reads = NDArray[np.intp]
# Prompts, the answers written first, and those written second.
Columns = tuple[Sequence[Prompt], Sequence[str], Sequence[str]]

_PUBLISHED = {
    "maywell/Better-PairRM": "better-pairrm",
    "mightbe/Better-PairRM": "better-pairrm",
}


class Marker(NamedTuple):
    """A token of PairRM's texts, and the setting that holds its id."""

    text: str
    setting: str


_SOURCE = Marker("<|source|>", "source_prefix_id")
_CANDIDATES = (
    Marker("<|candidate1|>", "cand1_prefix_id"),
    Marker("<|candidate2|>", "cand2_prefix_id"),
)


@dataclass(frozen=True)
class Form:
    """One way to ask. `task`: the transformers class that loads the model. `encode`:
    from texts to tokens. `reads`: where the head looks.

    `longest`: the tokens that the model was trained on, where its configuration does
    not say so.
    """

    name: str
    models: str
    task: str
    encode: Callable[["PreTrainedTokenizerBase", Checkpoint, Unpack[Columns]], Encoded]
    reads: tuple[Read, ...]
    longest: int | None = None

    @property
    def markers(self) -> bool:
        """Whether the head reads marker tokens inside the text."""
        return self.reads == MARKERS

    @property
    def generates(self) -> bool:
        """Whether an encoder and a decoder answer with the first generated token."""
        return self.task == "AutoModelForSeq2SeqLM"


class PairEncoder(TextEncoder):
    """Writes a prompt with two answers as a form asks for it; one text is one
    comparison in one order.
    """

    n_answers = 2
    checkpoint: Checkpoint

    def __init__(
        self, checkpoint: Checkpoint, options: EncodeOptions, form: Form
    ) -> None:
        super().__init__(checkpoint, options, window=form.longest)
        self.form = form

    def encode(
        self, prompts: Sequence[Prompt], /, *answers: Sequence[Response]
    ) -> Encoded:
        """Return the comparisons in the order given; refuse those that are too long."""
        encoded = self.encode_uncut(prompts, *answers)
        first, second = answers
        if self.options["truncate"] is None:
            problem = f"are longer than {self.form.name} reads"
            remedy = "pass truncate='right' to cut as its authors do"
            _refuse(encoded.truncated, first, second, problem, remedy)
        lengths = np.array([len(ids) for ids in encoded.ids])
        problem = f"are longer than {self.longest} tokens"
        remedy = "raise max_length where the model can read more"
        _refuse(lengths > (self.longest or np.inf), first, second, problem, remedy)
        return encoded

    def encode_uncut(
        self, prompts: Sequence[Prompt], /, *answers: Sequence[Response]
    ) -> Encoded:
        """Return the comparisons in the order given, however long."""
        first, second = cast("tuple[Sequence[str], Sequence[str]]", answers)
        require_one_of_each(prompts, first, second)
        require_unicode(prompts, first, second)
        has_no_text = np.array([_has_no_text(answer) for answer in first], bool)
        has_no_text |= np.array([_has_no_text(answer) for answer in second], bool)
        problem = "have an answer that is no text, or an empty one"
        _refuse(has_no_text, first, second, problem, "fill them in")
        return self.form.encode(self.tokenizer, self.checkpoint, prompts, first, second)


def _has_no_text(answer: Response) -> bool:
    return not isinstance(answer, str) or not answer.strip()


def _refuse(
    flags: Sequence[bool] | NDArray[np.bool_],
    first: Sequence[Response],
    second: Sequence[Response],
    problem: str,
    remedy: str,
) -> None:
    """Raise DataError where a text is flagged, with their number and the first."""
    if not np.any(flags):
        return
    i = int(np.argmax(flags))
    answers = f"{str(first[i])[:25]} before {str(second[i])[:25]}"
    where = (
        f"{sum(flags)} of {len(flags)} texts (a comparison in one order each, first "
        f"number {i}, {answers!r})"
    )
    raise DataError(f"{where} {problem}", remedy)


def choose_form(
    checkpoint: Checkpoint, name: str | None, convention: str | None = None
) -> Form:
    """The form called `name`, or the one that the checkpoint's keys and configuration
    ask for, under a convention.

    PairRM and Better-PairRM have the same keys: a copy of the latter must be named.
    Raises DataError for another name and for a model that is not pairwise.
    """
    name = name or _detect_form(checkpoint)
    if name not in FORMS:
        raise DataError(f"form={name!r}", nearest(name, list(FORMS)))
    form = FORMS[name]
    if convention == "reward-bench" and name == "better-pairrm":
        # The turns of RewardBench's template are separated by the indentation of its
        # source.
        source = partial(_better_source, between="\n    \n    ")
        encode_as_runner = partial(_BETTER, write_source=source, source_apart=True)
        return replace(form, encode=encode_as_runner)
    return form


def _detect_form(checkpoint: Checkpoint) -> str:
    """The name of the form that the checkpoint's keys and configuration ask for."""
    if any(key.startswith("head_layer.") for key in checkpoint.weights):
        return _PUBLISHED.get(checkpoint.name, "pairrm")
    if getattr(checkpoint.config, "is_encoder_decoder", False):
        return "steamshp"
    is_tied = getattr(checkpoint.config, "tie_word_embeddings", False)
    if "lm_head.weight" in checkpoint.weights or is_tied:
        return "letters"
    problem = f"model={checkpoint.name!r}: it is not a pairwise model"
    raise DataError(
        problem, "a model that scores single answers goes to rmlab.classifier"
    )


def letters(tokenizer: "PreTrainedTokenizerBase", name: str) -> list[int]:
    """The tokens that stand for the first and the second answer, "A" and "B"."""
    coded = [tokenizer.encode(letter, add_special_tokens=False) for letter in "AB"]
    if any(len(ids) != 1 for ids in coded):
        problem = f"model={name!r}: its tokenizer splits 'A' or 'B' into {coded}"
        raise DataError(problem, "one token each is needed")
    return [ids[0] for ids in coded]


def _turns(prompt: Prompt) -> list[dict[str, str]]:
    """The messages of a prompt; DataError for a role that no form has."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    for turn in prompt:
        if turn["role"] not in ("system", "user", "assistant"):
            problem = f"a pairwise model reads no message of role {turn['role']!r}"
            raise DataError(problem, "leave these prompts out")
    return prompt


def _pairrm_source(prompt: Prompt) -> str:
    """The conversation with the assistant's turns left open, which the candidates fill
    in.
    """
    users = [turn["content"] for turn in _turns(prompt) if turn["role"] != "assistant"]
    questions = [
        f"USER: {text}\nAssistant: <Response {number}>"
        for number, text in enumerate(users, 1)
    ]
    # The misspelt word is LLM-Blender's: the model was trained with it.
    task = (
        "Finish the following coversation in each i-th turn by filling in "
        "<Response i> with your response."
    )
    return task + "\n".join(questions)


def _pairrm_candidate(prompt: Prompt, response: str) -> str:
    answers = [
        turn["content"] for turn in _turns(prompt) if turn["role"] == "assistant"
    ]
    answers.append(response)
    lines = [f"<Response {number}>: {text}" for number, text in enumerate(answers, 1)]
    return "\n".join(lines)


def _better_source(prompt: Prompt, between: str) -> str:
    names = {"system": "SYSTEM MESSAGE", "assistant": "ASSISTANT"}
    turns = [
        f"{names.get(turn['role'], 'USER')}: {turn['content'].strip()}"
        for turn in _turns(prompt)
    ]
    return between.join([*turns, "ASSISTANT: "])


def _encode_marked(
    tokenizer: "PreTrainedTokenizerBase",
    checkpoint: Checkpoint,
    *texts: *Columns,
    write_source: Callable[[Prompt], str],
    write_candidate: Callable[[Prompt, str], str],
    source_longest: int,
    longest: int,
    keep_end: bool = False,
    source_apart: bool = False,
) -> Encoded:
    """Source and two candidates, each with marker and special tokens, read at the
    markers (LLM-Blender's layout).

    `keep_end`: the source loses its beginning where it is too long. `source_apart`:
    marker and source are encoded one by one, each between special tokens, as
    RewardBench's runner does.
    """
    # Before what of a source that loses its beginning stays: its special and marker
    # tokens.
    n_opening = 2
    if source_apart:
        n_opening = len(tokenizer.encode(_SOURCE.text)) + 1

    all_ids = []
    all_reads = []
    is_cut = []
    for prompt, *answers in zip(*texts, strict=True):
        source = write_source(prompt)
        if source_apart:
            whole = [[*tokenizer.encode(_SOURCE.text), *tokenizer.encode(source)]]
        else:
            whole = [tokenizer.encode(_SOURCE.text + source)]
        for marker, answer in zip(_CANDIDATES, answers, strict=True):
            candidate = write_candidate(prompt, answer)
            whole.append(tokenizer.encode(marker.text + candidate))

        n_kept = n_opening if keep_end else source_longest - 1
        clipped = [_clip(whole[0], source_longest, n_kept)]
        room = (longest - len(clipped[0])) // 2
        clipped += [_clip(candidate, room, room - 1) for candidate in whole[1:]]

        lengths = np.array([len(segment) for segment in clipped])
        starts = np.cumsum(lengths) - lengths
        all_ids.append(np.array([*chain.from_iterable(clipped)], np.int32))
        all_reads.append(starts + _find_markers(clipped, checkpoint))
        is_cut.append(clipped != whole)
    return _comparisons(texts[0], all_ids, all_reads, is_cut=is_cut)


def _find_markers(segments: Sequence[list[int]], checkpoint: Checkpoint) -> list[int]:
    """Where in each segment its marker stands."""
    positions = []
    markers = (_SOURCE, *_CANDIDATES)
    for marker, segment in zip(markers, segments, strict=True):
        token = checkpoint.settings.get(marker.setting)
        if token not in segment[:3]:
            problem = (
                f"model={checkpoint.name!r}: its tokenizer does not write "
                f"{marker.text} as the token {marker.setting}={token} of its "
                "configuration"
            )
            raise DataError(problem, "use the files that were published together")
        positions.append(segment.index(token))
    return positions


def _clip(ids: list[int], longest: int, n_opening: int) -> list[int]:
    """At most `longest` tokens: a longer text loses those behind its first
    `n_opening`.
    """
    n_cut = len(ids) - longest
    if n_cut <= 0:
        return ids
    return ids[:n_opening] + ids[n_opening + n_cut :]


def _encode_letters(
    tokenizer: "PreTrainedTokenizerBase", checkpoint: Checkpoint, *texts: *Columns
) -> Encoded:
    """RLHFlow's pair preference model: one user turn that holds the conversation and
    both answers; no BOS.
    """
    if not tokenizer.chat_template:
        problem = f"model={checkpoint.name!r}: it has no chat template"
        raise DataError(problem, "set tokenizer.chat_template and save it")
    _, jinja = choose_template(tokenizer, None)
    write = partial(render, tokenizer, jinja, header=False)
    chats = []
    for prompt, first, second in zip(*texts, strict=True):
        question = _letters_question(prompt, first, second)
        chats.append([{"role": "user", "content": question}])
    # The beginning token is taken out, as RLHFlow does.
    opening = tokenizer.bos_token or ""
    written = [text.replace(opening, "", 1) for text in write(chats)]
    coded = []
    if written:
        coded = call(tokenizer, written, add_special_tokens=False)["input_ids"]
    ids = [np.array(sequence, np.int32) for sequence in coded]
    reads = [np.array([len(sequence) - 1]) for sequence in ids]
    return _comparisons(texts[0], ids, reads, date=pinned_date(jinja))


def _letters_question(prompt: Prompt, first: str, second: str) -> str:
    conversation = ""
    for turn in _turns(prompt):
        role = "assistant" if turn["role"] == "assistant" else "user"
        conversation += f"\n<turn> {role}\n {turn['content']}"
    return f"[CONTEXT] \n{conversation}\n [RESPONSE A] {first} [RESPONSE B] {second} \n"


def _encode_steamshp(
    tokenizer: "PreTrainedTokenizerBase", checkpoint: Checkpoint, *texts: *Columns
) -> Encoded:
    """SteamSHP: post and answers without line breaks, then the question."""
    ids = []
    for prompt, first, second in zip(*texts, strict=True):
        post = " ".join(turn["content"] for turn in _turns(prompt))
        question = (
            f"POST: {_join_lines(post)} \n\n RESPONSE A: {_join_lines(first)}"
            f"\n\n RESPONSE B: {_join_lines(second)}"
            "\n\n Which response is better? RESPONSE"
        )
        ids.append(np.array(tokenizer.encode(question), np.int32))
    # The decoder's first position is read.
    reads = [np.zeros(1, np.intp) for _ in ids]
    return _comparisons(texts[0], ids, reads)


def _join_lines(text: str) -> str:
    return " ".join(text.splitlines())


# The limits are those of the authors' own code.
_PAIRRM = partial(
    _encode_marked,
    write_source=_pairrm_source,
    write_candidate=_pairrm_candidate,
    source_longest=1224,
    longest=2048,
)
_BETTER = partial(
    _encode_marked,
    write_source=partial(_better_source, between="\n\n\n"),
    write_candidate=lambda _, response: response,
    source_longest=2030,
    longest=3370,
    keep_end=True,
)
_ALL_FORMS = (
    Form("pairrm", "PairRM-hf", "AutoModel", _PAIRRM, MARKERS),
    Form("better-pairrm", "Better-PairRM", "AutoModel", _BETTER, MARKERS),
    Form(
        "steamshp",
        "SteamSHP on Flan-T5",
        "AutoModelForSeq2SeqLM",
        _encode_steamshp,
        (Read.FIRST,),
        longest=512,
    ),
    Form(
        "letters",
        "RLHFlow pair-preference models",
        "AutoModelForCausalLM",
        _encode_letters,
        (Read.LAST,),
    ),
)
FORMS = {form.name: form for form in _ALL_FORMS}


def _comparisons(
    prompts: Sequence[Prompt],
    ids: list[Ids],
    reads: list[Reads],
    is_cut: Sequence[bool] = (),
    date: str | None = None,
) -> Encoded:
    """Comparisons in one order as tokens."""
    written_prompts = [repr(prompt) for prompt in prompts]
    _, groups = np.unique(written_prompts, return_inverse=True)
    return Encoded(
        ids=ids,
        response_start=np.zeros(len(ids), np.intp),
        groups=groups,
        truncated=np.array(is_cut or [False] * len(ids), bool),
        date=date,
        reads=reads,
    )
