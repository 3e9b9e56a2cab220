"""How pairwise models are asked: the text that they read for a prompt and two answers,
and where it is read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.template import Encoded, call, choose_template, pinned_date, render
from rmlab.scorers.base import Prompt
from rmlab.scorers.checkpoints.checkpoint import Checkpoint
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Ids = NDArray[np.int32]
Reads = NDArray[np.intp]
# Prompts, the answers written first, and those written second.
Columns = tuple[Sequence[Prompt], Sequence[str], Sequence[str]]

# Markers of PairRM's texts, and the setting that names each one's token.
_MARKS = {
    "<|source|>": "source_prefix_id",
    "<|candidate1|>": "cand1_prefix_id",
    "<|candidate2|>": "cand2_prefix_id",
}
_PUBLISHED = {
    "maywell/Better-PairRM": "better-pairrm",
    "mightbe/Better-PairRM": "better-pairrm",
}


@dataclass(frozen=True)
class Form:
    """One way to ask. `task`: the transformers class that loads the model. `encode`:
    from texts to tokens.

    `longest`: the tokens that the model was trained on, where its configuration does
    not say so.
    """

    name: str
    models: str
    task: str
    encode: Callable[["PreTrainedTokenizerBase", Checkpoint, Unpack[Columns]], Encoded]
    longest: int | None = None

    @property
    def markers(self) -> bool:
        """Whether the head reads marker tokens inside the text."""
        return self.task == "AutoModel"


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
        raise DataError(f"form={name!r}; {nearest(name, list(FORMS))}")
    form = FORMS[name]
    if convention == "reward-bench" and name == "better-pairrm":
        # The turns of RewardBench's template are separated by the indentation of its
        # source.
        source = partial(_better_source, between="\n    \n    ")
        return replace(
            form, encode=partial(_BETTER, write_source=source, source_apart=True)
        )
    return form


def _detect_form(checkpoint: Checkpoint) -> str:
    """The name of the form that the checkpoint's keys and configuration ask for."""
    if any(key.startswith("head_layer.") for key in checkpoint.files):
        return _PUBLISHED.get(checkpoint.name, "pairrm")
    if getattr(checkpoint.config, "is_encoder_decoder", False):
        return "steamshp"
    if "lm_head.weight" in checkpoint.files or getattr(
        checkpoint.config, "tie_word_embeddings", False
    ):
        return "letters"
    raise checkpoint.error(
        "it is not a pairwise model; a model that scores single answers goes to rmlab.classifier"
    )


def letters(tokenizer: "PreTrainedTokenizerBase", name: str) -> list[int]:
    """The tokens that stand for the first and the second answer, "A" and "B"."""
    coded = [tokenizer.encode(letter, add_special_tokens=False) for letter in "AB"]
    if any(len(ids) != 1 for ids in coded):
        raise DataError(
            f"model={name!r}: its tokenizer splits 'A' or 'B' into {coded}; one token each is needed"
        )
    return [ids[0] for ids in coded]


def _turns(prompt: Prompt) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt


def _pairrm_source(prompt: Prompt) -> str:
    """The conversation with the assistant's turns left open, which the candidates fill
    in.
    """
    users = [turn["content"] for turn in _turns(prompt) if turn["role"] != "assistant"]
    questions = "\n".join(
        f"USER: {text}\nAssistant: <Response {i}>" for i, text in enumerate(users, 1)
    )
    # The misspelt word is LLM-Blender's: the model was trained with it.
    task = "Finish the following coversation in each i-th turn by filling in <Response i> with your response."
    return task + questions


def _pairrm_candidate(prompt: Prompt, response: str) -> str:
    earlier = [
        turn["content"] for turn in _turns(prompt) if turn["role"] == "assistant"
    ]
    return "\n".join(
        f"<Response {i}>: {text}" for i, text in enumerate([*earlier, response], 1)
    )


def _better_source(prompt: Prompt, between: str) -> str:
    names = {"system": "SYSTEM MESSAGE", "assistant": "ASSISTANT"}
    conversation = [
        f"{names.get(turn['role'], 'USER')}: {turn['content'].strip()}"
        for turn in _turns(prompt)
    ]
    return between.join([*conversation, "ASSISTANT: "])


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
    marker = tokenizer.encode("<|source|>") if source_apart else []
    n_opening = len(marker) + 1 if source_apart else 2
    ids, reads, cut = [], [], []
    for prompt, *answers in zip(*texts, strict=True):
        source = write_source(prompt)
        coded = [
            [
                *marker,
                *tokenizer.encode(source if source_apart else f"<|source|>{source}"),
            ]
        ]
        for mark, answer in zip([*_MARKS][1:], answers, strict=True):
            coded.append(tokenizer.encode(mark + write_candidate(prompt, answer)))
        clipped = [
            _clip(
                coded[0], source_longest, n_opening if keep_end else source_longest - 1
            )
        ]
        room = (longest - len(clipped[0])) // 2
        clipped += [_clip(candidate, room, room - 1) for candidate in coded[1:]]
        starts = np.cumsum([0, *map(len, clipped[:2])])
        ids.append(np.concatenate([np.array(part, np.int32) for part in clipped]))
        reads.append(np.asarray(starts + _find_marks(clipped, checkpoint), np.intp))
        cut.append(sum(map(len, clipped)) < sum(map(len, coded)))
    return _comparisons(texts[0], ids, reads, is_cut=cut)


def _find_marks(parts: Sequence[list[int]], checkpoint: Checkpoint) -> list[int]:
    """Where in each part its marker stands."""
    places = []
    for (mark, setting), part in zip(_MARKS.items(), parts, strict=True):
        token = checkpoint.settings.get(setting)
        if token not in part[:3]:
            detail = f"its tokenizer does not write {mark} as the token {setting}={token} of its configuration"
            raise checkpoint.error(
                f"{detail}; use the files that were published together"
            )
        places.append(part.index(token))
    return places


def _clip(ids: list[int], longest: int, n_opening: int) -> list[int]:
    """At most `longest` tokens: a longer text loses what follows its first `n_opening`."""
    return (
        ids
        if len(ids) <= longest
        else ids[:n_opening] + ids[len(ids) - longest + n_opening :]
    )


def _encode_letters(
    tokenizer: "PreTrainedTokenizerBase", checkpoint: Checkpoint, *texts: *Columns
) -> Encoded:
    """RLHFlow's pair preference model: one user turn that holds the conversation and
    both answers; no BOS.
    """
    if not tokenizer.chat_template:
        raise checkpoint.error(
            "it has no chat template; set tokenizer.chat_template and save it"
        )
    jinja, bos = choose_template(tokenizer, None)[1], tokenizer.bos_token
    write = partial(render, tokenizer, jinja, header=False)
    # The beginning token is taken out, as RLHFlow does; where it opens every turn, the
    # turns would go with it.
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
    ]
    if bos and write([turns])[0].count(bos) > 1:
        detail = f"form='letters' leaves out {bos!r}, with which this chat template opens every turn"
        raise checkpoint.error(
            f"{detail}; save a copy with tokenizer.bos_token = None, or use rmlab.judge"
        )
    questions = [
        [{"role": "user", "content": _letters_question(*row)}]
        for row in zip(*texts, strict=True)
    ]
    chats = [chat.replace(bos, "") if bos else chat for chat in write(questions)]
    coded = (
        call(tokenizer, chats, add_special_tokens=False)["input_ids"] if chats else []
    )
    ids = [np.array(sequence, np.int32) for sequence in coded]
    reads = [np.array([len(sequence) - 1]) for sequence in ids]
    return _comparisons(texts[0], ids, reads, date=pinned_date(jinja))


def _letters_question(prompt: Prompt, first: str, second: str) -> str:
    conversation = "".join(
        f"\n<turn> {'assistant' if turn['role'] == 'assistant' else 'user'}\n {turn['content']}"
        for turn in _turns(prompt)
    )
    return f"[CONTEXT] \n{conversation}\n [RESPONSE A] {first} [RESPONSE B] {second} \n"


def _encode_steamshp(
    tokenizer: "PreTrainedTokenizerBase", checkpoint: Checkpoint, *texts: *Columns
) -> Encoded:
    """SteamSHP: post and answers without line breaks, then the question."""
    question = "POST: {} \n\n RESPONSE A: {}\n\n RESPONSE B: {}\n\n Which response is better? RESPONSE"
    ids = []
    for prompt, *answers in zip(*texts, strict=True):
        post = " ".join(turn["content"] for turn in _turns(prompt))
        lines = [" ".join(text.splitlines()) for text in (post, *answers)]
        ids.append(np.array(tokenizer.encode(question.format(*lines)), np.int32))
    return _comparisons(texts[0], ids, [np.zeros(1, np.intp) for _ in ids])


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
FORMS = {
    form.name: form
    for form in (
        Form("pairrm", "PairRM-hf", "AutoModel", _PAIRRM),
        Form("better-pairrm", "Better-PairRM", "AutoModel", _BETTER),
        Form(
            "steamshp",
            "SteamSHP on Flan-T5",
            "AutoModelForSeq2SeqLM",
            _encode_steamshp,
            512,
        ),
        Form(
            "letters",
            "RLHFlow pair-preference models",
            "AutoModelForCausalLM",
            _encode_letters,
        ),
    )
}


def _comparisons(
    prompts: Sequence[Prompt],
    ids: list[Ids],
    reads: list[Reads],
    is_cut: Sequence[bool] = (),
    date: str | None = None,
) -> Encoded:
    """Comparisons in one order as tokens."""
    return Encoded(
        ids=ids,
        response_start=np.zeros(len(ids), np.intp),
        groups=np.unique(list(map(repr, prompts)), return_inverse=True)[1],
        truncated=np.array(is_cut or [False] * len(ids), bool),
        date=date,
        reads=reads,
    )
