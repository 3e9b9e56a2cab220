"""A judge on this machine: a language model that writes its answers through transformers."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from rmlab.judges.answers import Answer
from rmlab.judges.questions import Asked, Said
from rmlab.judges.templates import LETTERS
from rmlab.scorers.types import Provenance
from rmlab.tables import DataError

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from transformers.generation.utils import GenerateDecoderOnlyOutput

    from rmlab.scorers.checkpoints.checkpoint import Checkpoint

__all__ = ["Local"]

_WINDOW = 8  # batches that are sorted by length together


class _Writes(Protocol):
    """What causal language models have by a mixin, which `PreTrainedModel` does not announce."""

    def generate(self, **options: object) -> "GenerateDecoderOnlyOutput":
        """What `return_dict_in_generate` asks for."""


@dataclass(frozen=True)
class Local:
    """Generates with a checkpoint; the weights are loaded when the first question is asked.

    `letters`: only the log-probabilities of the first token are read, nothing is written. `batch`: questions that are
    answered at once, padded on the left; a batch of 1 is what each question gets alone.
    """

    checkpoint: "Checkpoint"
    device: "torch.device"
    dtype: "torch.dtype"
    temperature: float
    longest: int
    letters: bool = False
    seed: int = 0
    batch: int = 8

    @property
    def title(self) -> str:
        """The checkpoint's name."""
        return self.checkpoint.title

    @cached_property
    def fingerprint(self) -> str:
        """Of the weights, the chat template, the number type and the sampling."""
        from rmlab.scorers.streaming import fingerprint

        return fingerprint(
            {"answers": 1, "content": self.checkpoint.content, "dtype": str(self.dtype), "letters": self.letters}
            | {"temperature": self.temperature, "longest": self.longest, "seed": self.seed}
            | {"chat_template": self._jinja}
        )

    def check_budget(self, questions: int, tokens: Callable[[], int]) -> None:
        """A model on this machine costs time alone."""

    def speak(self, questions: Iterable[Asked]) -> Iterator[Said]:
        """Answers in batches of questions of about the same length."""
        waiting = iter(questions)
        while window := list(islice(waiting, _WINDOW * self.batch)):
            coded = [(one, self.ids(one)) for one in window]
            coded.sort(key=lambda pair: -len(pair[1]))
            for start in range(0, len(coded), self.batch):
                part = coded[start : start + self.batch]
                yield from self._answered(part)

    def provenance(self) -> Provenance:
        """The model and how it is asked."""
        from rmlab.inference.rendering import pinned_date
        from rmlab.scorers.streaming import versions

        return {
            "model": self.checkpoint.name,
            "revision": self.checkpoint.revision,
            "content": self.checkpoint.content,
            "dtype": str(self.dtype).removeprefix("torch."),
            "device": str(self.device),
            "sampling": {"temperature": self.temperature, "answer_tokens": self.longest, "seed": self.seed},
            "date_string": pinned_date(self._jinja),
            "versions": versions(),
        }

    @cached_property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """The checkpoint's tokenizer."""
        from rmlab.scorers.checkpoints.tokenizer_file import load_tokenizer

        return load_tokenizer(self.checkpoint)

    @cached_property
    def _jinja(self) -> str:
        from rmlab.inference.rendering import choose_template

        return choose_template(self.tokenizer, None)[1]

    @cached_property
    def model(self) -> "PreTrainedModel":
        """The transformers model; loads the weights."""
        from rmlab.scorers.models import backbone

        return backbone.load(self.checkpoint, "AutoModelForCausalLM", device=self.device, dtype=self.dtype)

    @cached_property
    def letter_tokens(self) -> dict[int, str]:
        """Every token that is one capital letter, with or without spaces around it."""
        from rmlab.inference.ends import decode

        found = ((number, decode(self.tokenizer, [number])) for number in range(len(self.tokenizer)))
        return {number: text for number, text in found if text.strip() in {*LETTERS}}

    def ids(self, one: Asked) -> list[int]:
        """The question's tokens, by the chat template."""
        from rmlab.inference.ends import call
        from rmlab.inference.rendering import render
        from rmlab.scorers.models.backbone import window

        (text,) = render(self.tokenizer, self._jinja, [one.messages], header=True)
        # The template writes the special tokens, each once.
        ids: list[int] = call(self.tokenizer, [text], add_special_tokens=False)["input_ids"][0]
        longest = window(self.checkpoint.config)
        if longest is not None and len(ids) + self.longest > longest:
            raise DataError(
                f"model={self.checkpoint.name!r}: question {one.number} has {len(ids)} tokens, which with an answer of "
                f"{self.longest} do not fit into its window of {longest}; lower answer_tokens= or "
                "take a model with a longer window"
            )
        return ids

    def _answered(self, part: list[tuple[Asked, list[int]]]) -> Iterator[Said]:
        import torch

        width = max(len(ids) for _, ids in part)
        pad = self._pad
        tokens = torch.tensor([[pad] * (width - len(ids)) + ids for _, ids in part], device=self.device)
        mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for _, ids in part], device=self.device)
        with torch.inference_mode():
            made = self._generate(tokens, mask, [one for one, _ in part])
        first = None
        if made.logits is not None:
            first = torch.log_softmax(made.logits[0].float(), -1)[:, list(self.letter_tokens)].cpu()
        for i, (one, ids) in enumerate(part):
            found = None if first is None else self._read_letters(first[i], len(ids))
            yield Said(one.number, found or self._read_text(made.sequences[i, width:].tolist(), len(ids)))

    @property
    def _pad(self) -> int:
        own = self.tokenizer.pad_token_id
        return int(own if own is not None else next(iter(self._ends), 0))

    @cached_property
    def _ends(self) -> set[int]:
        """Tokens that end an answer."""
        end = self.model.generation_config.eos_token_id
        ends = set(end if isinstance(end, list) else [] if end is None else [end])
        return ends | ({self.tokenizer.eos_token_id} - {None})

    def _generate(self, tokens: "Tensor", mask: "Tensor", asked: list[Asked]) -> "GenerateDecoderOnlyOutput":
        """What transformers' `generate` gives: `sequences`, and the raw `logits` of each step."""
        from transformers import GenerationConfig, LogitsProcessorList

        config = GenerationConfig(
            max_new_tokens=self.longest, do_sample=False, pad_token_id=self._pad,
            eos_token_id=sorted(self._ends) or None, return_dict_in_generate=True, output_logits=self.letters,
        )  # fmt: skip
        chance = [_Chance([one.seed for one in asked], self.temperature)] if self.temperature else []
        return cast(_Writes, self.model).generate(
            input_ids=tokens,
            attention_mask=mask,
            generation_config=config,
            logits_processor=LogitsProcessorList(chance),
        )

    def _read_letters(self, row: "Tensor", asked: int) -> Answer:
        values = row.double().numpy()
        top = dict(zip(self.letter_tokens.values(), np.maximum(values, -1e4).tolist(), strict=True))
        return Answer(max(top, key=lambda token: top[token]), "length", top=top, asked=asked, answered=1)

    def _read_text(self, row: list[int], asked: int) -> Answer:
        """The text up to the token that ends it."""
        from rmlab.inference.ends import decode

        end = next((i for i, token in enumerate(row) if token in self._ends), None)
        kept = row if end is None else row[:end]
        text = decode(self.tokenizer, kept, skip_special_tokens=True)
        return Answer(text, "length" if end is None else "stop", asked=asked, answered=len(kept) + (end is not None))


class _Chance:
    """Turns the likeliest token into a drawn one: the largest of logits / temperature + Gumbel noise is a sample.

    Each question has noise of its own, so that its answer does not depend on what else is in its batch.
    """

    def __init__(self, seeds: list[int], temperature: float) -> None:
        import torch

        self.temperature = temperature
        self.noise = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __call__(self, ids: "Tensor", scores: "Tensor") -> "Tensor":
        import torch

        drawn = torch.stack([torch.rand(scores.shape[-1], generator=noise) for noise in self.noise])
        gumbel = -torch.log(-torch.log(drawn.clamp(1e-20, 1 - 1e-7)))
        return scores.float() / self.temperature + gumbel.to(scores.device)
