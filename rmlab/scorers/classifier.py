"""Reward models that give one text one score: a backbone, a head, and where the head is read."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rmlab.scorers import backbone as backbones
from rmlab.scorers.checkpoint import Checkpoint, find
from rmlab.scorers.heads import Head, choose
from rmlab.scorers.labels import head_keys, split
from rmlab.scorers.streaming import Prepared, Stream, fingerprint, gather, versions
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    import torch

    from rmlab.inference.forward import Batch

__all__ = ["Classifier", "classifier"]

Prompt = str | list[dict[str, str]]
Ints = NDArray[np.intp]


def classifier(
    model: str | Path,
    *,
    head: str | None = None,
    weights: Mapping[str, float] | Sequence[float] | None = None,
    base: str | Path | None = None,
    dtype: str | None = None,
    device: str | None = None,
    template: str | None = None,
    eos: bool | None = None,
    max_length: int | None = None,
    truncate: str | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    revision: str | None = None,
    budget: int | None = None,
    name: str | None = None,
) -> "Classifier":
    """A reward model that gives each (prompt, response) one raw score; never a sigmoid.

    `model`: an id on the hub or a folder. `head`: a name in `rmlab.scorers.heads.HEADS`; by default the head whose
    weights the checkpoint has. `weights`: for a model with several labels, by label name or one per label; the reward
    is weights . labels. `base`: where configuration and tokenizer are, if not beside the weights. `dtype` ("float32",
    "bfloat16", "float16") and `device` are chosen for the machine: bfloat16 on a GPU that has it, float32 on a CPU; the
    head always runs in float32. `template`, `eos`, `max_length` (default: the model's window) and `truncate`: see
    `rmlab.inference.template.encode`. `budget`: tokens forwarded at once.

    The weights are loaded when the first text is scored, not before. Raises DataError for a model that cannot be had, a
    head that is not in the checkpoint, several labels without weights, and pickles or code that were not allowed.
    """
    checkpoint = find(
        model, base=base, revision=revision, allow_pickle=allow_pickle, trust_remote_code=trust_remote_code
    )
    row = choose(checkpoint.files, checkpoint.settings, head)
    if row.make is None:
        backbones.refuse_new_weights(checkpoint, [key for key in head_keys(checkpoint) if key not in checkpoint.files])
    place = backbones.device(device)
    return Classifier(
        checkpoint,
        row,
        name=name or checkpoint.title,
        mix=_mix(weights, row, checkpoint),
        place=place,
        kind=backbones.dtype(dtype, place),
        reading={"template": template, "eos": eos, "max_length": max_length, "truncate": truncate},
        budget=budget,
    )


class Classifier:
    """A loaded-on-demand reward model; made by `classifier`. Call it, or prepare texts and stream their scores."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        head: Head,
        *,
        name: str,
        mix: NDArray[np.float64] | None,
        place: "torch.device",
        kind: "torch.dtype",
        reading: dict[str, Any],
        budget: int | None,
    ) -> None:
        self.checkpoint, self.head, self.name = checkpoint, head, name
        self.mix, self.place, self.kind, self.reading, self.budget = mix, place, kind, reading, budget
        self._encoding: dict[str, Any] = {}

    def __call__(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> NDArray[np.float64]:
        """Scores of `responses` to `prompts`, one each, shape (n,)."""
        prepared = self.prepare(prompts, responses)
        return gather(self.stream(prepared, np.arange(len(responses))), responses, self.name)

    def prepare(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Prepared:
        """Token ids and content keys of the texts; needs the tokenizer, not the weights."""
        from rmlab.inference.template import encode

        longest = self.reading["max_length"] or backbones.window(self.checkpoint.config)
        room = None if longest is None else longest - (self.end is not None)
        encoded = encode(self.tokenizer, prompts, responses, **(self.reading | {"max_length": room}))
        self._encoding = {
            "template": encoded.source,
            "template_hash": encoded.template_hash,
            "truncated": int(np.sum(encoded.truncated)),
        }
        return Prepared(encoded, responses, by_length=backbones.encodes(self.checkpoint.config))

    def stream(self, prepared: Prepared, wanted: Ints) -> Stream:
        """Scores of the texts numbered `wanted`, as the batches come: text numbers and their scores."""
        from rmlab.inference.forward import hidden
        from rmlab.inference.transfers import read_late

        sequences, reads = self.places(prepared, wanted)
        groups = [int(prepared.encoded.groups[text]) for text in wanted]
        if len(wanted):
            batches = hidden(self.backbone, sequences, reads, groups=groups, budget=self.budget)
            launched = ((np.asarray(wanted)[batch.texts], self._outputs(batch)) for batch in batches)
            for texts, outputs in read_late(launched):
                yield texts, self._mixed(outputs)

    def alone(self, prepared: Prepared, wanted: Ints) -> NDArray[np.float64]:
        """Scores of the texts numbered `wanted`, each forwarded by itself: the reference for everything faster."""
        from rmlab.inference.forward import Batch, alone

        sequences, reads = self.places(prepared, wanted)
        found = []
        for ids, positions in zip(sequences, reads, strict=True):
            rows = alone(self.backbone, ids, positions)
            found.append(self._scores(Batch(np.zeros(1, np.intp), rows, [np.arange(len(positions))])))
        return np.concatenate(found) if found else np.zeros(0)

    def in_float32(self) -> "Classifier":
        """The same model in float32, to see what half precision costs; its weights are loaded anew."""
        import torch

        return Classifier(
            self.checkpoint, self.head, name=self.name, mix=self.mix, place=self.place, kind=torch.float32,
            reading=self.reading, budget=self.budget,
        )  # fmt: skip

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return backbones.tokenizer(self.checkpoint)

    @property
    def backbone(self) -> Any:
        """The transformers base model below the head; loads the weights."""
        return self._model[0]

    @cached_property
    def end(self) -> int | None:
        """The token that the head reads and that is appended where the text does not end with it."""
        settings = self.checkpoint.settings
        if self.head.name == "value" and "reward_token_id" in settings:
            return int(settings["reward_token_id"])
        if any("Athene" in kind for kind in settings.get("architectures") or ()):
            return int(self.tokenizer.cls_token_id)
        return None

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that decides a score; scores with the same fingerprint and text key are the same."""
        return fingerprint(
            {
                "content": self.checkpoint.content,
                "head": self.head.name,
                "mix": None if self.mix is None else self.mix.tolist(),
                "dtype": str(self.kind),
                "chat_template": self.tokenizer.chat_template,
                "vocabulary": len(self.tokenizer),
            }
            | self.reading
        )

    def provenance(self) -> dict[str, Any]:
        """Where the scores come from, as plain values: model, revision, head, dtype, template, versions, device."""
        forwarded = backbones.forwarded(self.backbone if "_model" in self.__dict__ else None)
        return {
            "model": self.checkpoint.name,
            "revision": self.checkpoint.revision,
            "content": self.checkpoint.content,
            "head": self.head.name,
            "weights": None if self.mix is None else self.mix.tolist(),
            "dtype": str(self.kind).removeprefix("torch."),
            "device": str(self.place),
            "versions": versions(),
            "fingerprint": self.fingerprint,
        } | (forwarded | self._encoding)

    @cached_property
    def _model(self) -> tuple[Any, "Callable[[torch.Tensor], torch.Tensor]", tuple[str, ...]]:
        """Backbone, head and where the head is read."""
        from rmlab.inference.template import has_segments

        loader = "AutoModelForSequenceClassification" if self.head.make is None else "AutoModel"
        model = backbones.load(self.checkpoint, loader, place=self.place, kind=self.kind)
        if self.head.make is None:
            backbone, run, read = split(model, self.checkpoint)
            if has_segments(self.tokenizer, self.reading["template"]):
                backbones.mark_segments(backbone, self.tokenizer)
            return backbone, run, (read,)
        # Code that comes with a model may give the whole reward model where the backbone was asked for.
        backbone = getattr(model, model.base_model_prefix, model) if model.base_model_prefix else model
        held = self.checkpoint.read(self.head.keys(self.checkpoint.files), rows=self.head.rows)
        weights = {key: tensor.to(backbone.device) for key, tensor in held.items()}
        return backbone, self.head.make(weights, self.checkpoint.settings), self.head.reads

    def places(self, prepared: Prepared, wanted: Ints) -> tuple[list[NDArray[np.int32]], list[Ints]]:
        """Token ids of the wanted texts and the positions that the head reads in each."""
        encoded = prepared.encoded
        sequences = [self._ended(encoded.ids[text]) for text in wanted]
        looks = self._model[2] if len(wanted) else ()
        header = self._header if "header" in looks else None
        reads = []
        for text, ids in zip(wanted, sequences, strict=True):
            spots = {"last": [len(ids) - 1], "first": [0], "mean": range(len(ids))}
            if header is not None:
                spots["header"] = [_before_header(ids, int(encoded.prompt_end[text]), header, self.name)]
            reads.append(np.concatenate([np.asarray(spots[look], np.intp) for look in looks]))
        return sequences, reads

    def _ended(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        return ids if self.end is None or ids[-1] == self.end else np.append(ids, np.int32(self.end))

    @cached_property
    def _header(self) -> list[int]:
        """The tokens with which the template opens an answer."""
        chat = [{"role": "user", "content": "x"}]
        closed, opened = (
            list(self.tokenizer.apply_chat_template(chat, add_generation_prompt=prompt, return_dict=False))
            for prompt in (False, True)
        )
        return opened[len(closed) :]

    def _scores(self, batch: "Batch") -> NDArray[np.float64]:
        """The head on a batch's rows, in float32; several labels are mixed in float64."""
        return self._mixed(self._outputs(batch).cpu().double().numpy())

    def _outputs(self, batch: "Batch") -> "torch.Tensor":
        """What the head makes of a batch's rows, (texts, labels) float32, still on the device."""
        import torch

        _, run, looks = self._model
        with torch.inference_mode():
            return run(batch.means()[:, None] if looks == ("mean",) else batch.stacked())

    def _mixed(self, outputs: NDArray[np.float64]) -> NDArray[np.float64]:
        return outputs[:, 0] if self.mix is None else outputs @ self.mix


def _before_header(ids: NDArray[np.int32], prompt_end: int, header: list[int], name: str) -> int:
    """Position of the last token before the answer's header."""
    start = prompt_end + 1 - len(header)
    if not header or start < 1 or ids[start : prompt_end + 1].tolist() != header:
        raise DataError(
            f"model={name!r}: its head reads the token before the answer's header, which the template does not write; "
            "leave template out to use the model's own chat template"
        )
    return start - 1


def _mix(weights: Any, head: Head, checkpoint: Checkpoint) -> NDArray[np.float64] | None:
    """The weight of each label, or None for a model with one output."""
    names = list(checkpoint.config.id2label.values()) if head.make is None else ["score"]
    if len(names) == 1:
        if weights is not None:
            raise DataError(f"weights: {checkpoint.name!r} has one output (head {head.name!r}); leave weights out")
        return None
    if weights is None:
        raise DataError(
            f"model={checkpoint.name!r} has {len(names)} labels ({', '.join(map(str, names[:12]))}); pass weights=, "
            f"such as weights={{{names[0]!r}: 1.0}}: the reward is the weighted sum of the labels"
        )
    if not isinstance(weights, Mapping):
        if len(weights) != len(names):
            raise DataError(f"weights: {len(weights)} values for {len(names)} labels {names}; give one for each")
        return np.asarray(weights, np.float64)
    for label in weights:
        if label not in names:
            raise DataError(f"weights: no label {label!r}; {nearest(str(label), list(map(str, names)))}")
    return np.array([float(weights.get(label, 0.0)) for label in names])
