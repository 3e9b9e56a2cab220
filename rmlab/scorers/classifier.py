"""Reward models that give one text one score: a backbone, a head, and where the head is read."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import NDArray

from rmlab.scorers.base import Prompt, Provenance, Stream
from rmlab.scorers.checkpoints.checkpoint import Checkpoint, find
from rmlab.scorers.checkpoints.loading import refuse_new_weights
from rmlab.scorers.local import LocalOptions, LocalScorer, Prepared, remakable, require_convention
from rmlab.scorers.models import backbone as backbones
from rmlab.scorers.models.classification import head_keys, label_weights, split
from rmlab.scorers.models.heads import Head, choose
from rmlab.tables import DataError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from rmlab.inference.forward import Batch

Ints = NDArray[np.intp]


@remakable
def classifier(
    model: str | Path,
    *,
    head: str | None = None,
    weights: Mapping[str, float] | Sequence[float] | None = None,
    base: str | Path | None = None,
    dtype: str | None = None,
    device: str | None = None,
    template: str | Path | None = None,
    eos: bool | None = None,
    max_length: int | None = None,
    truncate: str | None = None,
    convention: str | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    revision: str | None = None,
    budget: int | None = None,
    name: str | None = None,
) -> "Classifier":
    """A reward model that gives each (prompt, response) one raw score; never a sigmoid.

    Parameters
    ----------
    model : str or Path
        An id on the hub or a folder.
    head : str, optional
        A name in `rmlab.scorers.models.heads.HEADS`. By default the one whose weights the checkpoint has.
    weights : mapping or sequence of float, optional
        For a model with several labels, by label name or one for each label: the reward is weights . labels.
    base : str or Path, optional
        Where configuration and tokenizer are, if not beside the weights.
    dtype, device : str, optional
        "float32", "bfloat16" or "float16", and "cpu", "cuda" or "mps". Chosen for the machine: bfloat16 on a GPU that
        has it, float32 on a CPU. The head always runs in float32.
    template : str or Path, optional
        A name, Jinja text or a file; see `rmlab.inference.template.encode`.
    eos : bool, optional
        Whether the text ends with the end token; see `rmlab.inference.template.encode`.
    max_length : int, optional
        The longest text in tokens. By default the model's window.
    truncate : str, optional
        What long texts lose. By default they are refused.
    convention : str, optional
        "reward-bench" makes token ids as its runner does, a doubled beginning token included, to repeat published
        rows. By default each special token stands once.
    trust_remote_code, allow_pickle : bool
        Whether code that comes with the model, and pickled weights, may be read.
    revision : str, optional
        A commit, tag or branch on the hub.
    budget : int, optional
        Tokens forwarded at once.
    name : str, optional
        What the model is called in tables.

    Returns
    -------
    Classifier
        The weights are loaded when the first text is scored.

    Raises
    ------
    DataError
        For a model that cannot be had, a head that is not in the checkpoint, several labels without weights, and
        pickles or code that were not allowed.
    """
    checkpoint = find(
        model, base=base, revision=revision, allow_pickle=allow_pickle, trust_remote_code=trust_remote_code
    )
    from rmlab.inference.rendering import read_template

    row = choose(checkpoint.files, checkpoint.settings, head)
    if row.make is None:
        refuse_new_weights(checkpoint.name, [key for key in head_keys(checkpoint) if key not in checkpoint.files])
    target = backbones.device(device)
    return Classifier(
        checkpoint,
        row,
        name=name or checkpoint.title,
        mix=label_weights(weights, row, checkpoint),
        device=target,
        dtype=backbones.dtype(dtype, target),
        encode_options={
            "template": read_template(template),
            "eos": eos,
            "max_length": max_length,
            "truncate": truncate,
            "convention": _convention(convention, row, checkpoint),
        },
        run_options={"budget": budget},
    )


_SENTINEL = "zebra"
"""A message that no template writes by itself, so that what stands behind it closes the turn."""


class Classifier(LocalScorer[Prepared]):
    """A loaded-on-demand reward model; made by `classifier`."""

    def __init__(
        self, checkpoint: Checkpoint, head: Head, *, mix: NDArray[np.float64] | None, **options: Unpack[LocalOptions]
    ) -> None:
        super().__init__([checkpoint], **options)
        self.head, self.mix = head, mix

    def prepare(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Prepared:  # type: ignore[override]
        """Token ids of the texts; needs the tokenizer, not the weights."""
        encoded = self._encode(prompts, responses)
        return Prepared(encoded, responses, by_length=backbones.encodes(self.checkpoint.config))

    def forward(self, prepared: Prepared, numbers: Ints) -> Stream:
        """Scores of the texts with these `numbers`, as the batches come: text numbers and their scores."""
        from rmlab.inference.forward import hidden
        from rmlab.inference.transfers import read_late

        sequences, reads = self.places(prepared, numbers)
        groups = [int(prepared.encoded.groups[text]) for text in numbers]
        if len(numbers):
            batches = hidden(self.backbone, sequences, reads, groups=groups, budget=self.run_options["budget"])
            launched = ((np.asarray(numbers)[batch.texts], self.outputs(batch)) for batch in batches)
            for texts, outputs in read_late(launched):
                yield texts, self._mixed(outputs)

    def alone(self, prepared: Prepared, numbers: Ints) -> NDArray[np.float64]:
        """Scores of the texts with these `numbers`, each forwarded by itself: the reference for everything faster."""
        from rmlab.inference.forward import Batch
        from rmlab.inference.passes import alone

        sequences, reads = self.places(prepared, numbers)
        scores = []
        for ids, positions in zip(sequences, reads, strict=True):
            rows = alone(self.backbone, ids, positions)
            scores.append(self.read_head(Batch(np.zeros(1, np.intp), rows, [np.arange(len(positions))])))
        return np.concatenate(scores) if scores else np.zeros(0)

    @property
    def longest(self) -> int | None:
        """The longest text, in tokens, that the model takes; None where its positions are only relative."""
        longest = self.encode_options["max_length"] or backbones.window(self.checkpoint.config)
        # One token less where `_ended` may append one, and where the runner masks one before the text.
        return None if longest is None else longest - (self.end is not None) - self._masks_first

    @cached_property
    def _masks_first(self) -> bool:
        """Whether RewardBench's runner masks the first of two beginning tokens and the model counts it all the same."""
        from rmlab.inference.template import encode

        counted = self.checkpoint.config.model_type in backbones.COUNTED_POSITIONS
        if self.encode_options["convention"] != "reward-bench" or not counted:
            return False
        options = self.encode_options | {"max_length": None, "truncate": None, "convention": "reward-bench-twice"}
        first, second = encode(self.tokenizer, ["a"], ["b"], **options).ids[0][:2].tolist()
        return bool(first == second == self.tokenizer.bos_token_id)

    @property
    def looks(self) -> tuple[str, ...]:
        """Where the head reads: "last", "first", "mean", "header"; loads the weights."""
        return self.parts[2]

    @property
    def head_title(self) -> str:
        """The head and its weights, for people."""
        keys = head_keys(self.checkpoint) if self.head.make is None else self.head.keys(self.checkpoint.files)
        return f"{self.head.name}: {', '.join(keys[:3])}{' ...' if len(keys) > 3 else ''} in the checkpoint"

    @property
    def backbone(self) -> "PreTrainedModel":
        """The transformers base model below the head; loads the weights."""
        return self.parts[0]

    @cached_property
    def end(self) -> int | None:
        """The token that the head reads and that is appended where the text does not end with it."""
        settings = self.checkpoint.settings
        if self.head.name == "value" and "reward_token_id" in settings:
            return int(settings["reward_token_id"])
        return int(self.tokenizer.cls_token_id) if "Athene" in str(settings.get("architectures")) else None

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that decides a score; scores with the same fingerprint and text key are the same."""
        mix = None if self.mix is None else self.mix.tolist()
        return self._hash_parts(head=self.head.name, mix=mix, end=self.end)

    def provenance(self) -> Provenance:
        """Where the scores come from, as plain values: model, revision, head, dtype, template, versions, device."""
        mix = None if self.mix is None else self.mix.tolist()
        forwarded = backbones.forwarded(self.backbone if "parts" in self.__dict__ else None)
        return self._describe(forwarded, head=self.head.name, weights=mix, fingerprint=self.fingerprint)

    @cached_property
    def parts(self) -> "tuple[PreTrainedModel, Callable[[torch.Tensor], torch.Tensor], tuple[str, ...]]":
        """Backbone, head and where the head is read."""
        from rmlab.inference.template import has_segments

        loader = "AutoModelForSequenceClassification" if self.head.make is None else "AutoModel"
        keys = [] if self.head.make is None else self.head.keys(self.checkpoint.files)
        model = backbones.load(self.checkpoint, loader, device=self.device, dtype=self.dtype, head=keys)
        if self._masks_first:
            backbones.shift_positions(backbones.base_model(model))
        if self.head.make is None:
            backbone, run, read = split(model, self.checkpoint)
            if has_segments(self.tokenizer, self.encode_options["template"]):
                backbones.mark_segments(backbone, self.tokenizer)
            return backbone, run, (read,)
        # Code that comes with a model may give the whole reward model where the backbone was asked for.
        backbone = getattr(model, model.base_model_prefix, model) if model.base_model_prefix else model
        stored = self.checkpoint.read(keys, rows=self.head.rows)
        weights = {key: tensor.to(backbone.device) for key, tensor in stored.items()}
        return backbone, self.head.make(weights, self.checkpoint.settings), self.head.reads

    def places(self, prepared: Prepared, numbers: Ints) -> tuple[list[NDArray[np.int32]], list[Ints]]:
        """Token ids of the wanted texts and the positions that the head reads in each."""
        encoded = prepared.encoded
        sequences = [self._ended(encoded.ids[text]) for text in numbers]
        looks = self.looks if len(numbers) else ()
        header = self._header if "header" in looks else None
        reads = []
        for text, ids in zip(numbers, sequences, strict=True):
            spots = {"last": [len(ids) - 1], "first": [0], "mean": range(len(ids))}
            if header is not None:
                spots["header"] = [_gate_position(ids, int(encoded.prompt_end[text]), *header, self.name)]
            reads.append(np.concatenate([np.asarray(spots[look], np.intp) for look in looks]))
        return sequences, reads

    def _ended(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        return ids if self.end is None or ids[-1] == self.end else np.append(ids, np.int32(self.end))

    @cached_property
    def _header(self) -> tuple[list[int], list[int]]:
        """The tokens with which the template closes the user's turn, and those with which it opens an answer."""
        from rmlab.inference.rendering import choose_template, render
        from rmlab.inference.template import call

        jinja = choose_template(self.tokenizer, None)[1]
        chat = [[{"role": "user", "content": _SENTINEL}]]
        texts = [render(self.tokenizer, jinja, chat, header=header)[0] for header in (False, True)]
        closing = texts[0].rpartition(_SENTINEL)[2]
        closed, opened, end = call(self.tokenizer, [*texts, closing], add_special_tokens=False)["input_ids"]
        # Tokens that merge with the text before them are no end of a turn.
        return (list(end) if end and closed[-len(end) :] == end else []), list(opened[len(closed) :])

    def read_head(self, batch: "Batch") -> NDArray[np.float64]:
        """The head on a batch's rows, in float32; several labels are mixed in float64."""
        return self._mixed(self.outputs(batch).cpu().double().numpy())

    def outputs(self, batch: "Batch") -> "torch.Tensor":
        """What the head makes of a batch's rows, (texts, labels) float32, still on the device."""
        import torch

        _, run, looks = self.parts
        with torch.inference_mode():
            return run(batch.means()[:, None] if looks == ("mean",) else batch.stacked())

    def _mixed(self, outputs: NDArray[np.float64]) -> NDArray[np.float64]:
        return outputs[:, 0] if self.mix is None else outputs @ self.mix


def _convention(requested: str | None, head: Head, checkpoint: Checkpoint) -> str | None:
    """The convention of `encode` that repeats what RewardBench does with a model of this head."""
    require_convention(requested)
    # InternLM's runner adds no special tokens, as the model's own code does.
    if requested is None or "reward_token_id" in checkpoint.settings:
        return None
    return "reward-bench-twice" if head.bos_twice else "reward-bench"


def _gate_position(ids: NDArray[np.int32], prompt_end: int, closing: list[int], header: list[int], name: str) -> int:
    """Position of the first token that closes the user's turn; of the last one before the header if none does.

    The published code of gated heads looks for the whole pattern, closing and header, and reads its first token.
    """
    pattern = closing + header
    start = prompt_end + 1 - len(pattern)
    if not header or start < 1 or ids[start : prompt_end + 1].tolist() != pattern:
        raise DataError(
            f"model={name!r}: its head reads the token before the answer's header, which the template does not write; "
            "leave template out to use the model's own chat template"
        )
    return start if closing else start - 1
