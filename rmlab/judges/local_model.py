"""A judge on this machine: a language model that writes its answers through
transformers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any, cast

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

    from rmlab.scorers.checkpoints.checkpoint import Checkpoint

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
        Questions that are answered at once, padded on the left. Drawn answers come one
        by one.
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
        encoded: list[tuple[Question, list[int]]] = []
        for question in questions:
            ids = self.ids(question)
            if len(ids) <= self.longest:
                encoded.append((question, ids))
                continue
            allowed = f"{self.longest} beside answer_tokens="
            allowed += str(self.sampling.answer_tokens)
            yield question, f"the question has {len(ids)} tokens; allowed: {allowed}"

        encoded.sort(key=lambda pair: -len(pair[1]))
        # A drawn answer does not depend on the other questions of a batch.
        size = 1 if self.sampling.temperature else self.batch
        read = self._read_choice if self.sampling.choices else self._read_text
        for start in range(0, len(encoded), size):
            batch = encoded[start : start + size]
            replies = self._generate([ids for _, ids in batch], batch[0][0].seed)
            for (question, ids), reply in zip(batch, replies, strict=True):
                yield question, replace(read(reply), prompt_tokens=len(ids))

    def provenance(self) -> Provenance:
        """Return the model and how it is asked."""
        from rmlab.inference.templates import pinned_date

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
        from rmlab.inference.tokenised import decode

        tokens = {}
        for number in range(len(self.tokenizer)):
            text = decode(self.tokenizer, [number])
            if is_choice(text, self.sampling.choices):
                tokens[number] = text
        return tokens

    def ids(self, question: Question) -> list[int]:
        """Return the question's tokens by the chat template."""
        from rmlab.inference.templates import render
        from rmlab.inference.tokenised import call

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
        from rmlab.inference.templates import choose_template

        return choose_template(self.tokenizer, None)[1]

    @cached_property
    def _ends(self) -> list[int]:
        """Tokens that end an answer."""
        ends = self.model.generation_config.eos_token_id
        numbers = ends if isinstance(ends, list) else [ends]
        return sorted({*numbers, self.tokenizer.eos_token_id} - {None})

    def _generate(self, batch: Sequence[list[int]], seed: int) -> "Tensor":
        """The tokens that transformers' `generate` writes behind the questions; the
        logits of the first one where choices are read.
        """
        import torch
        from torch.nn.utils.rnn import pad_sequence
        from transformers import GenerationConfig

        pad = self.tokenizer.pad_token_id
        if pad is None:
            pad = (self._ends or [0])[0]
        rows = [torch.tensor(ids, device=self.device) for ids in batch]
        masks = [torch.ones_like(row) for row in rows]
        rows_at_left = pad_sequence(rows, True, pad, "left")

        drawing: dict[str, Any] = {"do_sample": False}
        if self.sampling.temperature:
            # All tokens, whatever the checkpoint's settings say.
            drawing = {"do_sample": True, "top_k": 0, "top_p": 1.0}
            drawing["temperature"] = self.sampling.temperature
        config = GenerationConfig(
            max_new_tokens=self.sampling.answer_tokens,
            pad_token_id=int(pad),
            eos_token_id=self._ends or None,
            return_dict_in_generate=True,
            output_logits=bool(self.sampling.choices),
            **drawing,
        )
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.inference_mode(), torch.random.fork_rng(devices):
            torch.manual_seed(seed)
            # `PreTrainedModel` does not announce the method, which causal language
            # models have by a mixin.
            output = cast(Any, self.model).generate(
                input_ids=rows_at_left,
                attention_mask=pad_sequence(masks, True, 0, "left"),
                generation_config=config,
            )
        if self.sampling.choices:
            return cast("Tensor", output.logits[0])
        return cast("Tensor", output.sequences[:, rows_at_left.shape[1] :])

    def _read_choice(self, logits: "Tensor") -> Completion:
        """Log-probabilities of the choices where an answer would begin."""
        tokens = self.choice_tokens
        logs = logits.float().log_softmax(-1)[list(tokens)].double()
        logs = logs.clamp(min=_MIN_LOGPROB)
        top = dict(zip(tokens.values(), logs.tolist(), strict=True))
        likeliest = max(top, key=top.__getitem__)
        return Completion(likeliest, "length", top=top, answer_tokens=1)

    def _read_text(self, tokens: "Tensor") -> Completion:
        """The text up to the token that ends it."""
        from rmlab.inference.tokenised import decode

        row = tokens.tolist()
        ids = list(takewhile(lambda token: token not in self._ends, row))
        has_end = len(ids) < len(row)
        text = decode(self.tokenizer, ids, skip_special_tokens=True)
        finish = "stop" if has_end else "length"
        return Completion(text, finish, answer_tokens=len(ids) + has_end)
