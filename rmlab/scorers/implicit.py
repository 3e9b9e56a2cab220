"""Implicit rewards of language models: log-probability of the response, policy minus reference (DPO) or alone."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rmlab.scorers import backbone as backbones
from rmlab.scorers.checkpoint import Checkpoint, find
from rmlab.scorers.streaming import Prepared, Stream, fingerprint, gather, versions
from rmlab.scorers.vocabulary import Vocabulary
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    import torch

    from rmlab.inference.forward import Batch

__all__ = ["ImplicitReward", "implicit_reward"]

MODES = ("sum", "mean", "norm")

Prompt = str | list[dict[str, str]]
Ints = NDArray[np.intp]
Floats = NDArray[np.float64]


def implicit_reward(
    policy: str | Path,
    reference: str | Path | None = None,
    *,
    mode: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    template: str | None = None,
    eos: bool | None = None,
    max_length: int | None = None,
    truncate: str | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    revision: str | None = None,
    reference_revision: str | None = None,
    budget: int | None = None,
    chunk: int | None = None,
    together: bool | None = None,
    name: str | None = None,
) -> "ImplicitReward":
    """The implicit reward of a policy trained by preferences, such as DPO.

    With `reference`: sum of log-probabilities of the response's tokens under the policy minus that under the reference
    (Rafailov et al. 2023, arXiv 2305.18290, eq. 5; beta and the part that depends on the prompt alone are left out).
    Without: `mode` is "mean" (the default), "sum", or "norm", minus the Euclidean norm of the log-probabilities, the
    three ways of RewardBench's runner. The response's tokens are those behind the assistant's header, the template's
    end of turn included.

    Logits exist for `chunk` tokens at a time and in float32; sums are float64. `together`: keep both models on the
    device; by default where both fit, otherwise they run one after the other over all texts asked for. Other options as
    for `rmlab.classifier`. Raises DataError also where reference and policy do not share the tokens of the texts.
    """
    mode = mode or ("mean" if reference is None else "sum")
    if mode not in MODES:
        raise DataError(f"mode={mode!r}; {nearest(mode, MODES)}")
    if reference is not None and mode != "sum":
        raise DataError(f"mode={mode!r} with a reference; allowed: 'sum' (or leave the reference out)")
    trust: dict[str, Any] = {"allow_pickle": allow_pickle, "trust_remote_code": trust_remote_code}
    checkpoints = [find(policy, revision=revision, **trust)]
    if reference is not None:
        checkpoints.append(find(reference, revision=reference_revision, **trust))
    place = backbones.device(device)
    return ImplicitReward(
        checkpoints,
        name=name or (Path(policy).name if Path(policy).is_dir() else str(policy)),
        mode=mode,
        place=place,
        kind=backbones.dtype(dtype, place),
        reading={"template": template, "eos": eos, "max_length": max_length, "truncate": truncate},
        running={"budget": budget, "chunk": chunk, "together": together},
    )


class ImplicitReward:
    """A policy, and a reference or none; made by `implicit_reward`. Models are loaded when the first text is scored."""

    def __init__(
        self,
        checkpoints: list[Checkpoint],
        *,
        name: str,
        mode: str,
        place: "torch.device",
        kind: "torch.dtype",
        reading: dict[str, Any],
        running: dict[str, Any],
    ) -> None:
        self.checkpoints, self.name, self.mode = checkpoints, name, mode
        self.place, self.kind, self.reading, self.running = place, kind, reading, running
        self._loaded: dict[int, tuple[Any, Vocabulary]] = {}
        self._encoding: dict[str, Any] = {}

    def __call__(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Floats:
        """Rewards of `responses` to `prompts`, one each, shape (n,)."""
        prepared = self.prepare(prompts, responses)
        return gather(self.stream(prepared, np.arange(len(responses))), responses, self.name)

    def prepare(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Prepared:
        """Token ids and content keys of the texts; needs the tokenizers, not the weights."""
        from rmlab.inference.template import encode

        windows = [backbones.window(checkpoint.config) for checkpoint in self.checkpoints]
        longest = self.reading["max_length"] or min((w for w in windows if w is not None), default=None)
        encoded = encode(self.tokenizer, prompts, responses, **(self.reading | {"max_length": longest}))
        self._require_shared_tokens(encoded.ids)
        self._encoding = {
            "template": encoded.source,
            "template_hash": encoded.template_hash,
            "truncated": int(np.sum(encoded.truncated)),
        }
        return Prepared(encoded, responses)

    def stream(self, prepared: Prepared, wanted: Ints) -> Stream:
        """Rewards of the texts numbered `wanted`, as they come: text numbers and their rewards."""
        wanted = np.asarray(wanted, np.intp)
        if not len(wanted):
            return
        if len(self.checkpoints) == 1:
            yield from self._one(0, prepared, wanted)
            return
        for block in self._blocks(prepared, wanted):
            values = self._all(0, prepared, block)
            self._leave(0)
            values = values - self._all(1, prepared, block)
            self._leave(1)
            yield block, values

    def alone(self, prepared: Prepared, wanted: Ints) -> Floats:
        """Rewards of the texts numbered `wanted`, each forwarded by itself: the reference for everything faster."""
        from rmlab.inference.forward import Batch, alone

        parts = []
        for number in range(len(self.checkpoints)):
            model, vocabulary = self._model(number)
            found = []
            for text in wanted:
                ids, reads, targets = _response(prepared, int(text))
                rows = alone(model.base_model, ids, reads)
                batch = Batch(np.zeros(1, np.intp), rows, [np.arange(len(reads))])
                found.append(self._rewards(batch, [targets], vocabulary))
            parts.append(np.concatenate(found) if found else np.zeros(0))
            self._leave(number)
        return parts[0] if len(parts) == 1 else parts[0] - parts[1]

    def places(self, prepared: Prepared, wanted: Ints) -> tuple[list[NDArray[np.int32]], list[Ints]]:
        """Token ids of the wanted texts and the positions whose states predict the response."""
        parts = [_response(prepared, int(text)) for text in wanted]
        return [part[0] for part in parts], [part[1] for part in parts]

    def in_float32(self) -> "ImplicitReward":
        """The same models in float32, to see what half precision costs; their weights are loaded anew."""
        import torch

        return ImplicitReward(
            self.checkpoints, name=self.name, mode=self.mode, place=self.place, kind=torch.float32,
            reading=self.reading, running=self.running,
        )  # fmt: skip

    @cached_property
    def tokenizer(self) -> Any:
        """The policy's tokenizer."""
        return backbones.tokenizer(self.checkpoints[0])

    @property
    def backbone(self) -> Any:
        """The policy's transformers base model; loads the weights."""
        return self._model(0)[0].base_model

    @cached_property
    def together(self) -> bool:
        """Whether policy and reference stay on the device at once."""
        if self.running["together"] is not None:
            return bool(self.running["together"])
        room = 0.85 / len(self.checkpoints)
        return all(backbones.fits(checkpoint, self.place, self.kind, share=room) for checkpoint in self.checkpoints)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that decides a reward; rewards with the same fingerprint and text key are the same."""
        return fingerprint(
            {
                "content": [checkpoint.content for checkpoint in self.checkpoints],
                "head": f"implicit {self.mode}",
                "dtype": str(self.kind),
                "chat_template": self.tokenizer.chat_template,
                "vocabulary": len(self.tokenizer),
            }
            | self.reading
        )

    def provenance(self) -> dict[str, Any]:
        """Where the rewards come from, as plain values: models, revisions, mode, dtype, template, versions, device."""
        names = ["model", "reference"]
        who = {name: c.name for name, c in zip(names, self.checkpoints, strict=False)}
        return (
            who
            | {
                "revision": [checkpoint.revision for checkpoint in self.checkpoints],
                "content": [checkpoint.content for checkpoint in self.checkpoints],
                "head": f"implicit {self.mode}",
                "dtype": str(self.kind).removeprefix("torch."),
                "device": str(self.place),
                "attention": self._loaded[0][0].config._attn_implementation if 0 in self._loaded else None,
                "versions": versions(),
                "fingerprint": self.fingerprint,
            }
            | self._encoding
        )

    def _model(self, number: int) -> tuple[Any, Vocabulary]:
        if number not in self._loaded:
            checkpoint = self.checkpoints[number]
            model = backbones.load(checkpoint, "AutoModelForCausalLM", place=self.place, kind=self.kind)
            self._loaded[number] = model, Vocabulary(model, checkpoint.name)
        return self._loaded[number]

    def _leave(self, number: int) -> None:
        """Free a model's memory where the other one needs it."""
        import torch

        if not self.together:
            self._loaded.pop(number, None)
            if self.place.type == "cuda":
                torch.cuda.empty_cache()

    def _blocks(self, prepared: Prepared, wanted: Ints) -> list[Ints]:
        """What policy and reference do in turn: some prompts' texts where both stay, otherwise all texts."""
        from rmlab.inference.forward import BUDGETS

        if not self.together:
            return [wanted]
        wanted = wanted[np.argsort(prepared.encoded.groups[wanted], kind="stable")]
        _, firsts, group = np.unique(prepared.encoded.groups[wanted], return_index=True, return_inverse=True)
        length = np.cumsum([len(prepared.encoded.ids[text]) for text in wanted])
        # About eight budgets: long enough to fill packs, short enough to lose little in a crash.
        size = 8 * (self.running["budget"] or BUDGETS.get(self.place.type, BUDGETS["cuda"]))
        cuts = np.flatnonzero(np.diff((length // size)[firsts][group])) + 1
        return np.split(wanted, cuts)

    def _all(self, number: int, prepared: Prepared, wanted: Ints) -> Floats:
        place = {int(text): i for i, text in enumerate(wanted)}
        found = np.full(len(wanted), np.nan)
        for texts, values in self._one(number, prepared, wanted):
            found[[place[int(text)] for text in texts]] = values
        return found

    def _one(self, number: int, prepared: Prepared, wanted: Ints) -> Stream:
        """One model's part of the rewards."""
        from rmlab.inference.forward import hidden

        model, vocabulary = self._model(number)
        parts = [_response(prepared, int(text)) for text in wanted]
        sequences, reads = [part[0] for part in parts], [part[1] for part in parts]
        groups = [int(prepared.encoded.groups[text]) for text in wanted]
        for batch in hidden(model.base_model, sequences, reads, groups=groups, budget=self.running["budget"]):
            targets = [parts[text][2] for text in batch.texts]
            yield wanted[batch.texts], self._rewards(batch, targets, vocabulary)

    def _rewards(self, batch: "Batch", targets: list[NDArray[np.int32]], vocabulary: Vocabulary) -> Floats:
        """Each text's log-probabilities made one number, from rows that texts with a common beginning share."""
        import torch

        cells = np.stack([np.concatenate(batch.where), np.concatenate(targets)])
        unique, back = np.unique(cells, axis=1, return_inverse=True)
        rows, tokens = (torch.from_numpy(part.astype(np.int64)) for part in unique)
        with torch.inference_mode():
            states = batch.rows[rows.to(batch.rows.device)]
            found = vocabulary.log_probs(states, tokens, chunk=self.running["chunk"])
        each: Floats = found.double().cpu().numpy()[back.reshape(-1)]
        counts = np.array([len(part) for part in targets])
        owner = np.repeat(np.arange(len(counts)), counts)
        if self.mode == "norm":
            return -np.sqrt(np.bincount(owner, each**2, len(counts)))
        total = np.bincount(owner, each, len(counts)).astype(np.float64)
        return total / counts if self.mode == "mean" else total

    def _require_shared_tokens(self, ids: list[NDArray[np.int32]]) -> None:
        """Raise DataError unless the reference reads the same tokens out of the policy's ids."""
        if len(self.checkpoints) == 1 or not ids:
            return
        used = np.unique(np.concatenate(ids)).tolist()
        other, size = self._reference_tokenizer, self.checkpoints[1].config.get_text_config().vocab_size
        beyond = [token for token in used if token >= size]
        known = [token for token in used if token < len(other)]
        mine, theirs = (words.convert_ids_to_tokens(known) for words in (self.tokenizer, other))
        differ = [found for found in zip(known, mine, theirs, strict=True) if found[1] != found[2]]
        if differ or beyond:
            shown = f"token {differ[0][0]} is {differ[0][1]!r} and {differ[0][2]!r}" if differ else f"token {beyond[0]}"
            raise DataError(
                f"reference={self.checkpoints[1].name!r} and policy={self.name!r} do not share a vocabulary ({shown}); "
                "pass the model that the policy was trained from"
            )

    @cached_property
    def _reference_tokenizer(self) -> Any:
        return backbones.tokenizer(self.checkpoints[1])


def _response(prepared: Prepared, text: int) -> tuple[NDArray[np.int32], Ints, NDArray[np.int32]]:
    """Token ids of a text, the positions that predict its response, and the tokens they predict."""
    ids, start = prepared.encoded.ids[text], int(prepared.encoded.response_start[text])
    if start < 1:
        raise DataError(f"text {text}: its response begins at the first token, so nothing predicts it; add a prompt")
    return ids, np.arange(start - 1, len(ids) - 1), ids[start:]
