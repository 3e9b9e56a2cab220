"""A judge on this machine: a language model that writes its answers through
transformers.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rmlab.judges.questions import LETTERS, Answer, Answers, Question, Sampling
from rmlab.scorers.base import SCORING_VERSION, Provenance, hash_parts
from rmlab.scorers.checkpoints.hashing import digests
from rmlab.scorers.local import versions

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from transformers.generation.utils import GenerateDecoderOnlyOutput

    from rmlab.scorers.checkpoints.checkpoint import Checkpoint

# Batches that are sorted by length together.
_WINDOW = 8
_MIN_LOGPROB = -1e4


@dataclass(frozen=True)
class Local:
    """A checkpoint that generates; its weights are loaded when the first question is
    asked.

    Parameters
    ----------
    checkpoint : Checkpoint
        The model.
    device, dtype
        Where the weights are, and their number type.
    sampling : Sampling
        How answers are drawn.
    batch : int
        Questions that are answered at once, padded on the left. With a batch of 1 no
        question is padded.
    """

    checkpoint: "Checkpoint"
    device: "torch.device"
    dtype: "torch.dtype"
    sampling: Sampling
    batch: int = 8

    @property
    def title(self) -> str:
        """The checkpoint's name."""
        return self.checkpoint.title

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the weights, the tokenizer, the generation settings beside them, the
        number type and the sampling.
        """
        settings = digests(
            "generation", self.checkpoint.folder.glob("generation_config.json")
        )
        return hash_parts(
            {
                "scoring": SCORING_VERSION,
                "content": self.checkpoint.content,
                "tokenizer": self.checkpoint.tokenizer_content,
                "generation": settings,
                "dtype": str(self.dtype),
                "sampling": asdict(self.sampling),
            }
        )

    def respond(self, questions: Sequence[Question]) -> Answers:
        """Yield answers in batches of questions of about the same length; of one that
        is too long, why it has none.
        """
        for first in range(0, len(questions), _WINDOW * self.batch):
            window: list[tuple[Question, list[int]]] = []
            for question in questions[first : first + _WINDOW * self.batch]:
                ids = self.ids(question)
                if len(ids) > self.longest:
                    size = f"the question has {len(ids)} tokens; allowed: {self.longest} beside answer_tokens="
                    yield question, f"{size}{self.sampling.answer_tokens}"
                else:
                    window.append((question, ids))
            window.sort(key=lambda item: -len(item[1]))
            for start in range(0, len(window), self.batch):
                yield from self._answer_batch(
                    *zip(*window[start : start + self.batch], strict=True)
                )

    def provenance(self) -> Provenance:
        """Return the model and how it is asked."""
        from rmlab.inference.template import pinned_date

        model, device = self.checkpoint, str(self.device)
        identity: Provenance = {
            "model": model.name,
            "revision": model.revision,
            "content": model.content,
        }
        numbers = {
            "dtype": str(self.dtype).removeprefix("torch."),
            "device": device,
            "versions": versions(),
        }
        date = pinned_date(self._chat_template)
        return (
            identity
            | numbers
            | {"sampling": asdict(self.sampling), "date_string": date}
        )

    @cached_property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """The checkpoint's tokenizer."""
        from rmlab.scorers.checkpoints.tokenizer_file import load_tokenizer

        return load_tokenizer(self.checkpoint)

    @cached_property
    def model(self) -> "PreTrainedModel":
        """The transformers model; loads the weights."""
        from rmlab.scorers.models import backbone

        return backbone.load(
            self.checkpoint,
            "AutoModelForCausalLM",
            device=self.device,
            dtype=self.dtype,
        )

    @cached_property
    def letter_tokens(self) -> dict[int, str]:
        """Every token that is one capital letter, with or without spaces around it."""
        from rmlab.inference.template import decode

        tokens = (
            (number, decode(self.tokenizer, [number]))
            for number in range(len(self.tokenizer))
        )
        return {number: text for number, text in tokens if text.strip() in {*LETTERS}}

    def ids(self, question: Question) -> list[int]:
        """Return the question's tokens by the chat template."""
        from rmlab.inference.template import call, render

        (text,) = render(
            self.tokenizer, self._chat_template, [question.messages], header=True
        )
        # The template writes the special tokens, each once.
        ids: list[int] = call(self.tokenizer, [text], add_special_tokens=False)[
            "input_ids"
        ][0]
        return ids

    @cached_property
    def longest(self) -> float:
        """The longest question, in tokens, that leaves room for an answer."""
        from rmlab.scorers.models.backbone import window

        return (window(self.checkpoint.config) or np.inf) - self.sampling.answer_tokens

    @cached_property
    def _chat_template(self) -> str:
        from rmlab.inference.template import choose_template

        return choose_template(self.tokenizer, None)[1]

    @cached_property
    def _ends(self) -> set[int]:
        """Tokens that end an answer."""
        end = self.model.generation_config.eos_token_id
        ends = set(end if isinstance(end, list) else [] if end is None else [end])
        return ends | ({self.tokenizer.eos_token_id} - {None})

    def _answer_batch(
        self, questions: Sequence[Question], ids: Sequence[list[int]]
    ) -> Answers:
        import torch

        output = self._generate(questions, ids)
        if output.logits is not None:
            logs = (
                torch.log_softmax(output.logits[0].float(), -1)[
                    :, list(self.letter_tokens)
                ]
                .double()
                .cpu()
                .numpy()
            )
            for question, row, question_ids in zip(questions, logs, ids, strict=True):
                logprobs = np.maximum(row, _MIN_LOGPROB).tolist()
                top = dict(zip(self.letter_tokens.values(), logprobs, strict=True))
                text = max(top, key=lambda token: top[token])
                yield (
                    question,
                    Answer(
                        text,
                        "length",
                        top=top,
                        prompt_tokens=len(question_ids),
                        answer_tokens=1,
                    ),
                )
            return
        width = max(map(len, ids))
        for question, row, question_ids in zip(
            questions, output.sequences[:, width:].tolist(), ids, strict=True
        ):
            yield question, self._read_text(row, len(question_ids))

    def _generate(
        self, questions: Sequence[Question], ids: Sequence[list[int]]
    ) -> "GenerateDecoderOnlyOutput":
        """The `sequences` of transformers' `generate`, and the raw `logits` of each
        step where letters are read.
        """
        import torch
        from transformers import GenerationConfig, LogitsProcessorList

        pad, width = self.tokenizer.pad_token_id, max(map(len, ids))
        pad = int(pad if pad is not None else next(iter(self._ends), 0))
        tokens = torch.tensor(
            [[pad] * (width - len(row)) + row for row in ids], device=self.device
        )
        mask = torch.tensor(
            [[0] * (width - len(row)) + [1] * len(row) for row in ids],
            device=self.device,
        )
        config = GenerationConfig(
            max_new_tokens=self.sampling.answer_tokens,
            do_sample=False,
            pad_token_id=pad,
            eos_token_id=sorted(self._ends) or None,
            return_dict_in_generate=True,
            output_logits=self.sampling.letters,
        )
        temperature = self.sampling.temperature
        noise = (
            [_GumbelNoise([question.seed for question in questions], temperature)]
            if temperature
            else []
        )
        with torch.inference_mode():
            # `PreTrainedModel` does not announce the method, which causal language
            # models have by a mixin.
            return cast(Any, self.model).generate(  # type: ignore[no-any-return]
                input_ids=tokens,
                attention_mask=mask,
                generation_config=config,
                logits_processor=LogitsProcessorList(noise),
            )

    def _read_text(self, row: list[int], prompt_tokens: int) -> Answer:
        """The text up to the token that ends it."""
        from rmlab.inference.template import decode

        end = next((i for i, token in enumerate(row) if token in self._ends), None)
        ids, finish = row[:end], "length" if end is None else "stop"
        text = decode(self.tokenizer, ids, skip_special_tokens=True)
        return Answer(
            text,
            finish,
            prompt_tokens=prompt_tokens,
            answer_tokens=len(ids) + (end is not None),
        )


class _GumbelNoise:
    """Draws a token: the largest of logits / temperature + Gumbel noise is a sample of
    the softmax.

    Each question has noise of its own, so that its answer does not depend on the other
    questions of its batch.
    """

    def __init__(self, seeds: list[int], temperature: float) -> None:
        import torch

        self._temperature = temperature
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __call__(self, ids: "Tensor", scores: "Tensor") -> "Tensor":
        import torch

        uniform = torch.stack(
            [
                torch.rand(scores.shape[-1], generator=generator)
                for generator in self._generators
            ]
        )
        gumbel = -torch.log(-torch.log(uniform.clamp(1e-20, 1 - 1e-7)))
        return scores.float() / self._temperature + gumbel.to(scores.device)
