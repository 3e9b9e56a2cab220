"""A judge on this machine: a language model that writes its answers through
transformers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from rmlab.judges.questions import Completion, Completions, Question, Sampling
from rmlab.judges.readers import is_choice
from rmlab.scorers.base import SCORING_VERSION, Provenance, hash_parts
from rmlab.scorers.checkpoints.hashing import digests
from rmlab.scorers.local import versions
from rmlab.tables import DataError

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from transformers.generation.utils import GenerateDecoderOnlyOutput

    from rmlab.scorers.checkpoints.checkpoint import Checkpoint

# Batches that are sorted by length together.
_WINDOW = 8
_MIN_LOGPROB = -1e4


class _TokenisedQuestion(NamedTuple):
    """A question and its tokens."""

    question: Question
    ids: list[int]


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
    template_options : mapping
        Options of the chat template.
    """

    checkpoint: "Checkpoint"
    device: "torch.device"
    dtype: "torch.dtype"
    sampling: Sampling
    batch: int = 8
    template_options: Mapping[str, object] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The checkpoint's name."""
        return self.checkpoint.title

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the weights, the tokenizer, the generation settings, the
        number type and the sampling.
        """
        file = self.checkpoint.generation_file
        settings = digests("generation", [] if file is None else [file])
        return hash_parts(
            {
                "scoring": SCORING_VERSION,
                "content": self.checkpoint.content,
                "tokenizer": self.checkpoint.tokenizer_content,
                "generation": settings,
                "dtype": str(self.dtype),
                "sampling": asdict(self.sampling),
                "template_options": dict(self.template_options),
            }
        )

    def respond(self, questions: Sequence[Question]) -> Completions:
        """Yield answers in batches of questions of about the same length; of one that
        is too long, why it has none.
        """
        size = _WINDOW * self.batch
        for first in range(0, len(questions), size):
            window: list[_TokenisedQuestion] = []
            for question in questions[first : first + size]:
                ids = self.ids(question)
                if len(ids) <= self.longest:
                    window.append(_TokenisedQuestion(question, ids))
                    continue
                allowed = f"{self.longest} beside answer_tokens="
                allowed += str(self.sampling.answer_tokens)
                reason = f"the question has {len(ids)} tokens; allowed: {allowed}"
                yield question, reason
            window.sort(key=lambda encoded: -len(encoded.ids))
            for start in range(0, len(window), self.batch):
                yield from self._answer_batch(window[start : start + self.batch])

    def provenance(self) -> Provenance:
        """Return the model and how it is asked."""
        from rmlab.inference.rendering import pinned_date

        return {
            "model": self.checkpoint.name,
            "revision": self.checkpoint.revision,
            "content": self.checkpoint.content,
            **self.checkpoint.origin,
            "dtype": str(self.dtype).removeprefix("torch."),
            "device": str(self.device),
            "versions": versions(),
            "sampling": asdict(self.sampling),
            "date_string": pinned_date(self._chat_template),
        }

    @cached_property
    def tokenizer(self) -> "PreTrainedTokenizerBase":
        """The checkpoint's tokenizer."""
        from rmlab.scorers.checkpoints.tokenizer_file import load_tokenizer

        return load_tokenizer(self.checkpoint)

    @cached_property
    def model(self) -> "PreTrainedModel":
        """The transformers model; loads the weights."""
        from rmlab.scorers.models import loading

        return loading.load(
            self.checkpoint,
            "AutoModelForCausalLM",
            device=self.device,
            dtype=self.dtype,
        )

    @cached_property
    def choice_tokens(self) -> dict[int, str]:
        """Every token that is one of the choices."""
        from rmlab.inference.tokenizer_calls import decode

        tokens = {}
        for number in range(len(self.tokenizer)):
            text = decode(self.tokenizer, [number])
            if is_choice(text, self.sampling.choices):
                tokens[number] = text
        return tokens

    def ids(self, question: Question) -> list[int]:
        """Return the question's tokens by the chat template."""
        from rmlab.inference.rendering import render
        from rmlab.inference.tokenizer_calls import call

        (text,) = render(
            self.tokenizer,
            self._chat_template,
            [question.messages],
            header=True,
            options=dict(self.template_options) or None,
        )
        system = question.template.system.strip()
        if system not in text:
            problem = f"system={system[:60]!r}: the chat template does not write it"
            raise DataError(problem, "give it in the user's message of a template=")
        # The template writes the special tokens, each once.
        encoded = call(self.tokenizer, [text], add_special_tokens=False)
        ids: list[int] = encoded["input_ids"][0]
        return ids

    @cached_property
    def longest(self) -> float:
        """The longest question, in tokens, that leaves room for an answer."""
        from rmlab.scorers.models.loading import window

        return (window(self.checkpoint.config) or np.inf) - self.sampling.answer_tokens

    @cached_property
    def _chat_template(self) -> str:
        from rmlab.inference.chat_formats import choose_template

        return choose_template(self.tokenizer, None)[1]

    @cached_property
    def _ends(self) -> set[int]:
        """Tokens that end an answer."""
        ends = set()
        end = self.model.generation_config.eos_token_id
        if isinstance(end, list):
            ends.update(end)
        elif end is not None:
            ends.add(end)
        if self.tokenizer.eos_token_id is not None:
            ends.add(self.tokenizer.eos_token_id)
        return ends

    def _answer_batch(self, batch: Sequence[_TokenisedQuestion]) -> Completions:
        width = max(len(encoded.ids) for encoded in batch)
        output = self._generate(batch, width)
        if output.logits is not None:
            yield from self._read_choices(batch, output.logits[0])
            return
        rows = output.sequences[:, width:].tolist()
        for encoded, row in zip(batch, rows, strict=True):
            yield encoded.question, self._read_text(row, len(encoded.ids))

    def _read_choices(
        self, batch: Sequence[_TokenisedQuestion], logits: "Tensor"
    ) -> Completions:
        """Log-probabilities of the choices where an answer would begin."""
        import torch

        tokens = self.choice_tokens
        logs = torch.log_softmax(logits.float(), -1)[:, list(tokens)]
        rows = np.maximum(logs.double().cpu().numpy(), _MIN_LOGPROB).tolist()
        for encoded, row in zip(batch, rows, strict=True):
            top = dict(zip(tokens.values(), row, strict=True))
            answer = Completion(
                max(top, key=top.__getitem__),
                "length",
                top=top,
                prompt_tokens=len(encoded.ids),
                answer_tokens=1,
            )
            yield encoded.question, answer

    def _generate(
        self, batch: Sequence[_TokenisedQuestion], width: int
    ) -> "GenerateDecoderOnlyOutput":
        """The `sequences` of transformers' `generate` behind questions of `width`
        tokens, and the raw `logits` of each step where choices are read.
        """
        import torch
        from transformers import GenerationConfig, LogitsProcessorList

        pad = self.tokenizer.pad_token_id
        if pad is None:
            pad = next(iter(self._ends), 0)
        rows = []
        mask = []
        for encoded in batch:
            n_padded = width - len(encoded.ids)
            rows.append([int(pad)] * n_padded + encoded.ids)
            mask.append([0] * n_padded + [1] * len(encoded.ids))

        config = GenerationConfig(
            max_new_tokens=self.sampling.answer_tokens,
            do_sample=False,
            pad_token_id=int(pad),
            eos_token_id=sorted(self._ends) or None,
            return_dict_in_generate=True,
            output_logits=bool(self.sampling.choices),
        )
        processors = LogitsProcessorList()
        if self.sampling.temperature:
            seeds = [encoded.question.seed for encoded in batch]
            processors.append(_GumbelNoise(seeds, self.sampling.temperature))
        with torch.inference_mode():
            # `PreTrainedModel` does not announce the method, which causal language
            # models have by a mixin.
            return cast(Any, self.model).generate(  # type: ignore[no-any-return]
                input_ids=torch.tensor(rows, device=self.device),
                attention_mask=torch.tensor(mask, device=self.device),
                generation_config=config,
                logits_processor=processors,
            )

    def _read_text(self, row: list[int], prompt_tokens: int) -> Completion:
        """The text up to the token that ends it."""
        from rmlab.inference.tokenizer_calls import decode

        ids = list(takewhile(lambda token: token not in self._ends, row))
        has_end = len(ids) < len(row)
        finish = "stop" if has_end else "length"
        return Completion(
            decode(self.tokenizer, ids, skip_special_tokens=True),
            finish=finish,
            prompt_tokens=prompt_tokens,
            answer_tokens=len(ids) + has_end,
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

        n_tokens = scores.shape[-1]
        draws = [torch.rand(n_tokens, generator=g) for g in self._generators]
        uniform = torch.stack(draws)
        gumbel = -torch.log(-torch.log(uniform.clamp(1e-20, 1 - 1e-7)))
        return scores.float() / self._temperature + gumbel.to(scores.device)
