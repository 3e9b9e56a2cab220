"""Implicit rewards of language models: log-probability of the response, policy minus reference (DPO) or alone."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import NDArray

from rmlab.scorers.base import Prompt, Provenance, Stream, fill
from rmlab.scorers.checkpoints.checkpoint import Checkpoint, find
from rmlab.scorers.checkpoints.tokenizer_file import load_tokenizer
from rmlab.scorers.local import LocalOptions, LocalScorer, Prepared, hash_parts, remakable, require_convention
from rmlab.scorers.models import backbone as backbones
from rmlab.scorers.models.language_model import LanguageModel, answer
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["ImplicitReward", "implicit_reward"]

MODES = ("sum", "mean", "norm")

Ints = NDArray[np.intp]
Floats = NDArray[np.float64]


@remakable
def implicit_reward(
    policy: str | Path,
    reference: str | Path | None = None,
    *,
    mode: str | None = None,
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
    reference_revision: str | None = None,
    budget: int | None = None,
    chunk: int | None = None,
    together: bool | None = None,
    name: str | None = None,
) -> "ImplicitReward":
    """The implicit reward of a policy trained by preferences, such as DPO.

    With a reference it is the sum of log-probabilities of the response's tokens under the policy minus that under the
    reference [1]_, eq. 5; beta and the part that depends on the prompt alone are left out. The response's tokens are
    those behind the assistant's header, the template's end of turn included. Logits are float32, sums float64. A store
    keeps each model's sums by themselves, so that a reference of several policies is run once.

    Parameters
    ----------
    policy, reference : str or Path
        Ids on the hub or folders; the reference is optional.
    mode : str, optional
        Without a reference "mean" (the default), "sum", or "norm" (minus the Euclidean norm of the log-probabilities),
        the three ways of RewardBench's runner. With a reference "sum".
    convention : str, optional
        "reward-bench" repeats its runner: a second beginning token, the assistant's header counted as part of the
        answer, an end token more. By default each token stands once and the answer is the answer.
    revision, reference_revision : str, optional
        Commits, tags or branches on the hub.
    chunk : int, optional
        Tokens whose logits exist at once.
    together : bool, optional
        Whether both models stay on the device. By default where both fit; otherwise each leaves it after its turn.
    dtype, device, template, eos, max_length, truncate, trust_remote_code, allow_pickle, budget, name
        As in `rmlab.classifier`.

    Returns
    -------
    ImplicitReward
        The weights are loaded when the first text is scored.

    Raises
    ------
    DataError
        As `rmlab.classifier`, and where reference and policy do not share the tokens of the texts.

    References
    ----------
    .. [1] Rafailov et al. (2023), "Direct Preference Optimization", arXiv 2305.18290.
    """
    from rmlab.inference.rendering import read_template

    mode = mode or ("mean" if reference is None else "sum")
    _check_options(mode, reference, convention, eos)
    find_checkpoint = partial(find, allow_pickle=allow_pickle, trust_remote_code=trust_remote_code)
    checkpoints = [find_checkpoint(policy, revision=revision)]
    if reference is not None:
        checkpoints.append(find_checkpoint(reference, revision=reference_revision))
    target = backbones.device(device)
    return ImplicitReward(
        checkpoints,
        name=name or checkpoints[0].title,
        mode=mode,
        device=target,
        dtype=backbones.dtype(dtype, target),
        encode_options={
            "template": read_template(template),
            "eos": eos,
            "max_length": max_length,
            "truncate": truncate,
            "convention": None if convention is None else "reward-bench-dpo",
        },
        run_options={"budget": budget, "chunk": chunk, "together": together},
    )


def _check_options(mode: str, reference: str | Path | None, convention: str | None, eos: bool | None) -> None:
    if mode not in MODES:
        raise DataError(f"mode={mode!r}; {nearest(mode, MODES)}")
    if reference is not None and mode != "sum":
        raise DataError(f"mode={mode!r} with a reference; allowed: 'sum' (or leave the reference out)")
    require_convention(convention)
    if convention is not None and eos is not None:
        raise DataError(f"eos={eos} with convention='reward-bench', which adds an end token of its own; leave one out")


class ImplicitReward(LocalScorer[Prepared]):
    """A policy, and a reference or none; made by `implicit_reward`. Models are loaded when the first text is scored."""

    sums_answer = True

    def __init__(self, checkpoints: list[Checkpoint], *, mode: str, **options: Unpack[LocalOptions]) -> None:
        super().__init__(checkpoints, **options)
        self.mode = mode

    @cached_property
    def models(self) -> list[LanguageModel]:
        """Policy and reference, each with its own weights and place in a store."""
        names = [self.name, *(checkpoint.title for checkpoint in self.checkpoints[1:])]
        return [
            LanguageModel(
                checkpoint,
                mode=self.mode,
                owner=self,
                name=name,
                device=self.device,
                dtype=self.dtype,
                encode_options=self.encode_options,
                run_options=self.run_options,
            )
            for checkpoint, name in zip(self.checkpoints, names, strict=True)
        ]

    @cached_property
    def stays(self) -> bool:
        """Whether all models stay on the device; asked first while its memory is still free."""
        together = self.run_options["together"]
        if together is not None or len(self.checkpoints) == 1:
            return together or len(self.checkpoints) == 1
        share = 0.85 / len(self.checkpoints)
        return all(backbones.fits(checkpoint, self.device, self.dtype, share=share) for checkpoint in self.checkpoints)

    @property
    def terms(self) -> list[tuple[float, LanguageModel]]:
        """Policy and reference with their signs: the reward is the sum of sign times score."""
        return list(zip((1.0, -1.0), self.models, strict=True)) if len(self.models) > 1 else []

    def prepare(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Prepared:  # type: ignore[override]
        """Token ids of the texts; needs the tokenizers, not the weights."""
        encoded = self._encode(prompts, responses)
        self._require_shared_tokens(encoded.ids)
        for model in self.models:
            model.encoding = self.encoding
        return Prepared(encoded, responses)

    def forward(self, prepared: Prepared, numbers: Ints) -> Stream:
        """Rewards of the texts with these `numbers`, as they come: text numbers and their rewards."""
        numbers = np.asarray(numbers, np.intp)
        if len(self.models) == 1:
            yield from self.models[0].forward(prepared, numbers)
        elif len(numbers):
            n_texts = len(prepared.responses)
            yield (
                numbers,
                self._sum_models(lambda model: fill(model.forward(prepared, numbers), n_texts)[numbers]),
            )

    def alone(self, prepared: Prepared, numbers: Ints) -> Floats:
        """Rewards of the texts with these `numbers`, each forwarded by itself: the reference for everything faster."""
        return self._sum_models(lambda model: model.alone(prepared, numbers))

    def along(self, prepared: Prepared, text: int) -> tuple[NDArray[np.int32], Floats]:
        """Token ids of a text's answer, and the reward of the answer up to and including each of them."""
        log_probs = self._sum_models(lambda model: model.log_probs(prepared, text))
        ids = answer(prepared, text)[2]
        if self.mode == "norm":
            return ids, -np.sqrt(np.cumsum(log_probs**2))
        total = np.cumsum(log_probs)
        return ids, total / np.arange(1, len(total) + 1) if self.mode == "mean" else total

    def _sum_models(self, values: Callable[[LanguageModel], Floats]) -> Floats:
        """The sum of sign times what each model gives; each leaves the device after its turn."""
        parts = []
        for sign, model in zip((1.0, -1.0), self.models, strict=False):
            try:
                parts.append(sign * values(model))
            finally:
                model.free_memory()
        return np.asarray(np.sum(parts, axis=0), np.float64)

    def places(self, prepared: Prepared, numbers: Ints) -> tuple[list[NDArray[np.int32]], list[Ints]]:
        """Token ids of the wanted texts and the positions whose states predict the response."""
        parts = [answer(prepared, int(text)) for text in numbers]
        return [part[0] for part in parts], [part[1] for part in parts]

    @property
    def backbone(self) -> "PreTrainedModel":
        """The policy's transformers base model; loads the weights."""
        return self.models[0].backbone

    @property
    def resident(self) -> list[Checkpoint]:
        """What is on the device at once: policy and reference, or the larger of the two."""
        if self.stays:
            return self.checkpoints
        return [max(self.checkpoints, key=lambda checkpoint: sum(checkpoint.sizes.values()))]

    @property
    def head_title(self) -> str:
        """What is summed, for people."""
        subject = "policy and reference" if len(self.checkpoints) > 1 else "policy alone"
        return f"log-probabilities of the answer, {subject}, {self.mode}"

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that decides a reward; rewards with the same fingerprint and text key are the same."""
        prints = [model.fingerprint for model in self.models]
        return prints[0] if len(prints) == 1 else hash_parts({"policy minus reference": prints})

    def provenance(self) -> Provenance:
        """Where the rewards come from, as plain values: models, revisions, mode, dtype, template, versions, device."""
        reference = {"reference": self.checkpoints[1].name} if len(self.checkpoints) > 1 else {}
        lists = {
            "revision": [checkpoint.revision for checkpoint in self.checkpoints],
            "content": [checkpoint.content for checkpoint in self.checkpoints],
        }
        identity = {"fingerprint": self.fingerprint} | self.encoding
        return reference | self.models[0].provenance() | lists | identity

    def _require_shared_tokens(self, ids: list[NDArray[np.int32]]) -> None:
        """Raise DataError unless the reference reads the same tokens out of the policy's ids."""
        if len(self.checkpoints) == 1 or not ids:
            return
        used_tokens = np.unique(np.concatenate(ids)).tolist()
        other, size = self._reference_tokenizer, self.checkpoints[1].config.get_text_config().vocab_size
        beyond = [token for token in used_tokens if token >= size]
        both_know = [token for token in used_tokens if token < len(other)]
        mine, theirs = (words.convert_ids_to_tokens(both_know) for words in (self.tokenizer, other))
        differ = [row for row in zip(both_know, mine, theirs, strict=True) if row[1] != row[2]]
        if differ or beyond:
            example = (
                f"token {differ[0][0]} is {differ[0][1]!r} and {differ[0][2]!r}" if differ else f"token {beyond[0]}"
            )
            raise DataError(
                f"reference={self.checkpoints[1].name!r} and policy={self.name!r} do not share a vocabulary "
                f"({example}); pass the model that the policy was trained from"
            )

    @cached_property
    def _reference_tokenizer(self) -> "PreTrainedTokenizerBase":
        return load_tokenizer(self.checkpoints[1])
