"""From texts to token ids: a tokenizer, a template and the options of both."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.encoding import Encoded, Response, encode
from rmlab.inference.templates import (
    TemplateOptions,
    choose_template,
    read_template,
    render,
)
from rmlab.inference.tokenised import call
from rmlab.scorers.base import Prompt, Provenance, hash_parts
from rmlab.scorers.checkpoints.checkpoint import Checkpoint
from rmlab.scorers.checkpoints.tokenizer_file import load_tokenizer
from rmlab.scorers.models import loading
from rmlab.tables import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rmlab.scorers.in_memory import Source
    from rmlab.scorers.models.heads import Steps

Ids = NDArray[np.int32]


class EncodeOptions(TypedDict, total=False):
    """How texts become tokens: keywords of whatever makes a model for texts.

    Attributes
    ----------
    template : str or Path, optional
        The name of a format, Jinja text, or a file that holds it. By default the
        tokenizer's own; see `rmlab.inference.encoding.encode`.
    template_options : mapping, optional
        Variables of the template, such as {"enable_thinking": False} or "tools".
    system : str, optional
        A system message before every conversation.
    bos, eos : bool, optional
        Whether the text begins with the BOS token and ends with the EOS token, if
        not as template and tokenizer write it.
    max_length : int, optional
        The longest text in tokens. By default the model's window.
    truncate : str, optional
        What long texts lose: "left" (the beginning) or "right". By default they are
        refused.
    convention : str, optional
        "reward-bench" makes token ids as its runner does, a doubled BOS token
        included, to repeat published rows. By default each special token stands once.
    """

    template: str | Path | None
    template_options: TemplateOptions | None
    system: str | None
    bos: bool | None
    eos: bool | None
    max_length: int | None
    truncate: str | None
    convention: str | None


def complete_options(
    options: EncodeOptions,
    *,
    runner: str = "reward-bench",
    fixed: Sequence[Literal["bos", "eos"]] = ("bos",),
) -> EncodeOptions:
    """Return all options, None where one is not given.

    `runner`: what a convention is called in `rmlab.inference.encoding`. `fixed`: the
    special tokens that it decides. Raises TypeError for another option, and DataError
    for a convention that does not exist, or beside tokens that it decides.
    """
    unknown = options.keys() - EncodeOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
    complete = cast("EncodeOptions", dict.fromkeys(EncodeOptions.__annotations__))
    complete.update(options)
    convention = complete["convention"]
    if convention not in (None, "reward-bench"):
        problem = f"convention={convention!r}"
        remedy = "allowed: None (special tokens once), 'reward-bench' (as its runner)"
        raise DataError(problem, remedy)
    if convention is not None:
        complete["convention"] = runner
        for name in fixed:
            if complete[name] is not None:
                problem = f"{name}={complete[name]} with convention={convention!r}"
                remedy = f"leave {name} out: it has special tokens of its own"
                raise DataError(problem, remedy)
    return complete


class TextEncoder:
    """Writes prompts with their answers as token ids, as a model reads them.

    Parameters
    ----------
    checkpoint : Checkpoint or ModelInMemory
        The model whose tokenizer and template are used.
    options : EncodeOptions
        How texts become tokens.
    readers : sequence of Checkpoint or ModelInMemory
        Further models that read the same texts.
    end : int, optional
        A token that is appended where a text does not end with it.
    n_reserved : int
        Tokens of the window that a convention fills.
    pooling : str, optional
        Where the head reads, if not as the model's class.
    steps : Steps, optional
        How a process reward model gets the steps of an answer; each has a mark behind
        it, whose positions are `reads` of the texts.
    """

    # Of each text.
    n_answers = 1

    def __init__(
        self,
        checkpoint: "Source",
        options: EncodeOptions,
        *,
        readers: "Sequence[Source]" = (),
        end: int | None = None,
        n_reserved: int = 0,
        pooling: str | None = None,
        steps: "Steps | None" = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.readers = [checkpoint, *readers]
        self.options: EncodeOptions = {
            **options,
            "template": read_template(options["template"]),
        }
        self.end = end
        self.n_added = n_reserved + int(end is not None)
        self.pooling = pooling
        self.steps = steps

    @cached_property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """The transformers tokenizer."""
        if isinstance(self.checkpoint, Checkpoint):
            return load_tokenizer(self.checkpoint)
        return self.checkpoint.tokenizer

    @property
    def padding(self) -> int | None:
        """The token that the model's class takes for padding.

        RewardBench's runner sets it where tokenizer or model have none.
        """
        token: int | None
        token = getattr(self.checkpoint.config.get_text_config(), "pad_token_id", None)
        is_runner = self.options.get("convention") is not None
        if is_runner and self.tokenizer.pad_token_id is None:
            token = self.tokenizer.eos_token_id
        elif token is None and (is_runner or self.pooling == "before_pad"):
            token = self.tokenizer.pad_token_id
        return token

    def encode(
        self, prompts: Sequence[Prompt], /, *answers: Sequence[Response]
    ) -> Encoded:
        """Return the texts as token ids; refuse or cut those that are too long."""
        longest = self.longest or sys.maxsize
        return self.write_texts(
            prompts, answers, self.options | {"max_length": longest}
        )

    def encode_uncut(
        self, prompts: Sequence[Prompt], /, *answers: Sequence[Response]
    ) -> Encoded:
        """Return the texts as token ids, however long."""
        options = self.options | {"max_length": None, "truncate": None}
        return self.write_texts(prompts, answers, options)

    def write_texts(
        self,
        prompts: Sequence[Prompt],
        answers: Sequence[Sequence[Response]],
        options: EncodeOptions,
    ) -> Encoded:
        """Return the texts as token ids, written with these options, up to the token
        that the head reads.
        """
        if self.steps is None:
            encoded = encode(self.tokenizer, prompts, *answers, **options)
            return replace(encoded, ids=self._append_end(encoded.ids))
        (responses,) = answers
        steps = [self.steps.split(response) for response in responses]
        mark = self.steps.mark
        if self.steps.is_apart:
            encoded = encode(self.tokenizer, prompts, steps, **options, separator=mark)
        else:
            marked = ["".join(step + mark for step in row) for row in steps]
            encoded = encode(self.tokenizer, prompts, marked, **options)
        return replace(encoded, reads=self._find_marks(encoded, mark, steps))

    def _find_marks(
        self, encoded: Encoded, mark: str, steps: list[list[str]]
    ) -> list[NDArray[np.intp]]:
        """The position of the mark behind each step of each text; DataError where there
        are more or fewer.
        """
        mark_id = self.last_token(mark.strip() or mark)
        positions = []
        for text, ids in enumerate(encoded.ids):
            start = encoded.response_start[text]
            of_text = start + np.flatnonzero(ids[start:] == mark_id)
            n_steps = len(steps[text])
            if len(of_text) != n_steps:
                problem = f"text {text}: {n_steps} steps, {len(of_text)} marks {mark!r}"
                remedy = "keep the mark out of answers, and do not cut them"
                raise DataError(problem, remedy)
            positions.append(of_text)
        return positions

    def last_token(self, text: str) -> int:
        """Return the last token of a text by itself."""
        (ids,) = call(self.tokenizer, [text], add_special_tokens=False)["input_ids"]
        return int(ids[-1])

    def _append_end(self, ids: Sequence[Ids]) -> list[Ids]:
        """Token ids that end with the token that the head reads, if there is one."""
        closed = []
        for text_ids in ids:
            if self.end is not None and text_ids[-1] != self.end:
                text_ids = np.append(text_ids, np.int32(self.end))
            closed.append(text_ids)
        return closed

    @property
    def longest(self) -> int | None:
        """The longest text, in tokens, that the model takes; None where its positions
        are only relative.
        """
        longest = self.options["max_length"]
        if longest is None:
            for reader in self.readers:
                window = loading.window(reader.config)
                if window is not None:
                    longest = min(window, longest or window)
        return None if longest is None else longest - self.n_added

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the tokenizer's files and the options.

        The scorer's fingerprint adds the version of the code.
        """
        parts = {"tokenizer": self.checkpoint.tokenizer_content} | self.options
        if not isinstance(self.checkpoint, Checkpoint):
            # No file of its own says so; training scripts set it.
            parts["padding"] = self.padding
        return hash_parts(parts)

    def provenance(self) -> Provenance:
        """Return how texts become tokens; empty for a tokenizer without a template."""
        with suppress(DataError):
            encoded = self.encode([], *[[]] * self.n_answers)
            return {
                "template": encoded.source,
                "template_hash": encoded.template_hash,
                "date_string": encoded.date,
                "convention": self.options["convention"],
                "bos": self.options.get("bos"),
                "eos": self.options.get("eos"),
                "truncate": self.options["truncate"],
                "max_length": self.longest,
            }
        return {}

    def find_gate(self, ids: Ids, prompt_end: int) -> int:
        """Position of the first token behind the user's turn, where the published code
        of gated heads reads.

        `prompt_end`: the last token before the answer.
        """
        turn_change = self._turn_change
        start = prompt_end + 1 - len(turn_change)
        tail = ids[start : prompt_end + 1].tolist()
        if turn_change and tail == turn_change:
            return start
        problem = "its head reads where its own template ends a turn"
        remedy = "leave template out, or use the published one"
        raise self.checkpoint.error(problem, remedy)

    @cached_property
    def _turn_change(self) -> list[int]:
        """The tokens with which the template closes the user's turn and opens an
        answer.
        """
        _, jinja = choose_template(self.tokenizer, None)
        # No template writes it by itself.
        sentinel = "zebra"
        question = [{"role": "user", "content": sentinel}]
        (text,) = render(self.tokenizer, jinja, [question], header=True)
        _, _, behind = text.rpartition(sentinel)
        (ids,) = call(self.tokenizer, [behind], add_special_tokens=False)["input_ids"]
        return list(ids)
