"""Implicit rewards of language models: log-probability of the response, policy minus
reference (DPO) or alone.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rmlab.inference.forward import Batch
from rmlab.inference.memory import upload
from rmlab.inference.template import Encoded
from rmlab.scorers.base import (
    Floats,
    Ints,
    Prompt,
    Provenance,
    Stream,
    fill,
    hash_parts,
)
from rmlab.scorers.checkpoints.checkpoint import Checkpoint, find
from rmlab.scorers.local import (
    EncodeOptions,
    Ids,
    LocalScorer,
    remakable,
    require_convention,
)
from rmlab.scorers.models import backbone as backbones
from rmlab.scorers.models.vocabulary import Vocabulary
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

MODES = ("sum", "mean", "norm")


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

    With a reference it is the sum of log-probabilities of the response's tokens under
    the policy minus that under the reference [1]_, eq. 5; beta and the part that
    depends on the prompt alone are left out. The response's tokens are those behind the
    assistant's header, the template's end of turn included. Logits are float32, sums
    float64. A store keeps each model's sums by themselves, so that a reference of
    several policies is run once.

    Parameters
    ----------
    policy, reference : str or Path
        Ids on the hub or folders; the reference is optional.
    mode : str, optional
        Without a reference "mean" (the default), "sum", or "norm" (minus the Euclidean
        norm of the log-probabilities), the three ways of RewardBench's runner. With a
        reference "sum".
    convention : str, optional
        "reward-bench" repeats its runner: a second beginning token, the assistant's
        header counted as part of the answer, an end token more. By default each token
        stands once and the answer is the answer.
    revision, reference_revision : str, optional
        Commits, tags or branches on the hub.
    chunk : int, optional
        Tokens whose logits exist at once.
    together : bool, optional
        Whether both models stay on the device. By default where both fit; otherwise
        each leaves it after its turn.
    dtype, device, template, eos, max_length, truncate, budget
        As in `rmlab.classifier`.
    trust_remote_code, allow_pickle, name
        As in `rmlab.classifier`.

    Returns
    -------
    ImplicitReward
        The weights are loaded when the first text is scored.

    Raises
    ------
    DataError
        As `rmlab.classifier`, and where reference and policy do not share the tokens of
        the texts.

    References
    ----------
    .. [1] Rafailov et al. (2023), "Direct Preference Optimization", arXiv 2305.18290.
    """
    with_reference, modes = (
        ("", MODES) if reference is None else (" with a reference", ("sum",))
    )
    mode = mode or ("mean" if reference is None else "sum")
    if mode not in modes:
        raise DataError(f"mode={mode!r}{with_reference}; {nearest(mode, modes)}")
    require_convention(convention)
    if convention is not None and eos is not None:
        raise DataError(
            f"eos={eos} with convention='reward-bench', which adds an end token of its own; leave one out"
        )
    find_model = partial(
        find, allow_pickle=allow_pickle, trust_remote_code=trust_remote_code
    )
    checkpoints = [find_model(policy, revision=revision)]
    if reference is not None:
        checkpoints.append(find_model(reference, revision=reference_revision))
    convention = None if convention is None else "reward-bench-dpo"
    options = EncodeOptions(
        template=template,
        eos=eos,
        max_length=max_length,
        truncate=truncate,
        convention=convention,
    )
    scorer = ImplicitReward(
        checkpoints, options, name=name, device=device, dtype=dtype, budget=budget
    )
    scorer.mode, scorer.chunk, scorer.together = mode, chunk, together
    subject = "policy alone" if reference is None else "policy and reference"
    scorer.head_title = f"log-probabilities of the answer, {subject}, {mode}"
    scorer.details = {"head": f"implicit {mode}"}
    scorer.models = [LanguageModel(checkpoint, scorer) for checkpoint in checkpoints]
    if reference is not None:
        scorer.details["reference"] = str(reference)
        scorer.terms = list(zip((1.0, -1.0), scorer.models, strict=True))
    return scorer


class LanguageModel(LocalScorer):
    """A causal language model as a scorer; its `owner` makes the tokens, and says
    whether it stays on the device.

    A text's score is the `mode` ("sum", "mean", "norm") of the log-probabilities of its
    answer's tokens.
    """

    def __init__(self, checkpoint: Checkpoint, owner: "ImplicitReward") -> None:
        name = owner.name if checkpoint is owner.checkpoint else checkpoint.title
        super().__init__(
            [checkpoint],
            owner.encode_options,
            name=name,
            device=owner.device,
            dtype=owner.dtype,
        )
        self.owner, self.encoding, self.budget = owner, owner.encoding, owner.budget
        self.details = {"head": f"implicit {owner.mode}"}

    def prepare(self, prompts: Sequence[Prompt], /, *answers: Sequence[str]) -> Encoded:
        """Return the texts as token ids, which all models of the owner share."""
        return self.owner.prepare(prompts, *answers)

    def places(self, prepared: Encoded, numbers: Ints) -> tuple[list[Ids], list[Ints]]:
        """Token ids of the texts and the positions whose states predict the response."""
        ids, starts = (
            [prepared.ids[text] for text in numbers],
            prepared.response_start[numbers],
        )
        if len(starts) and starts.min() < 1:
            text = int(numbers[starts.argmin()])
            raise DataError(
                f"text {text}: nothing predicts the first token of its response; add a prompt"
            )
        return ids, [
            np.arange(start - 1, len(text) - 1)
            for start, text in zip(starts, ids, strict=True)
        ]

    def read_states(
        self, batch: Batch, prepared: Encoded, numbers: Ints
    ) -> "torch.Tensor":
        """Log-probabilities of the answers' tokens, one text's after the other's, still
        on the device.

        Texts with a common beginning share rows, and so the log-probabilities of the
        tokens that these predict.
        """
        import torch

        vocabulary = self.parts[1]
        targets = np.concatenate(
            [prepared.ids[text][prepared.response_start[text] :] for text in numbers]
        )
        cells = np.concatenate(batch.where).astype(np.int64) * vocabulary.size + targets
        unique, back = np.unique(cells, return_inverse=True)
        indices = {
            "rows": unique // vocabulary.size,
            "tokens": unique % vocabulary.size,
            "back": back.reshape(-1),
        }
        on_device = upload(indices, batch.rows.device)
        with torch.inference_mode():
            rows = batch.rows[on_device["rows"]]
            log_probs = vocabulary.log_probs(
                rows, on_device["tokens"], chunk=self.owner.chunk
            )
            return log_probs[on_device["back"].to(log_probs.device)]

    def finish(self, outputs: Floats, prepared: Encoded, numbers: Ints) -> Floats:
        """Each text's log-probabilities made one number."""
        counts = np.array(
            [
                len(prepared.ids[text]) - prepared.response_start[text]
                for text in numbers
            ]
        )
        sums = np.add.reduceat(
            outputs**2 if self.owner.mode == "norm" else outputs,
            np.cumsum(counts) - counts,
        )
        return summarize(sums, counts, self.owner.mode)

    @cached_property
    def parts(self) -> "tuple[PreTrainedModel, Vocabulary]":
        """The transformers base model and its output layer; loads the weights."""
        _ = self.owner.stays  # decided now, while the memory is still free
        model = backbones.load(
            self.checkpoint,
            "AutoModelForCausalLM",
            device=self.device,
            dtype=self.dtype,
        )
        return backbones.base_model(model), Vocabulary(model, self.checkpoint.name)

    @property
    def loaded(self) -> bool:
        """Whether the weights are on the device."""
        return "parts" in self.__dict__

    def free_memory(self) -> None:
        """Free the memory, unless there is room for all the models that belong
        together.
        """
        if self.loaded and not self.owner.stays:
            super().free_memory()

    @property
    def text_fingerprint(self) -> str:
        """Hash of how the owner makes texts tokens."""
        return self.owner.text_fingerprint


class ImplicitReward(LocalScorer):
    """A policy, and a reference or none; made by `implicit_reward`. Models are loaded
    when the first text is scored.

    `models`: policy and reference, each with its own weights and place in a store;
    `terms`: the two with their signs. `mode`: how log-probabilities become one number.
    `chunk`: tokens whose logits exist at once. `together`: whether both models stay on
    the device.
    """

    models: list[LanguageModel]
    mode: str
    chunk: int | None
    together: bool | None

    @cached_property
    def stays(self) -> bool:
        """Whether all models stay on the device; asked first while its memory is still
        free.
        """
        if len(self.checkpoints) == 2 and self.together is not None:
            return self.together
        fits = partial(
            backbones.fits, device=self.device, dtype=self.dtype, share=0.85 / 2
        )
        return len(self.checkpoints) == 1 or all(map(fits, self.checkpoints))

    def encode(self, prompts: Sequence[Prompt], /, *answers: Sequence[str]) -> Encoded:
        """Return the texts as token ids; refuse a reference that reads them otherwise."""
        encoded = super().encode(prompts, *answers)
        if len(self.checkpoints) > 1:
            self._require_shared_tokens(encoded.ids)
        return encoded

    def places(self, prepared: Encoded, numbers: Ints) -> tuple[list[Ids], list[Ints]]:
        """Token ids of the texts and the positions whose states predict the response."""
        return self.models[0].places(prepared, numbers)

    def read_states(
        self, batch: Batch, prepared: Encoded, numbers: Ints
    ) -> "torch.Tensor":
        """Log-probabilities of the answers' tokens under the policy."""
        return self.models[0].read_states(batch, prepared, numbers)

    def forward(self, prepared: Encoded, numbers: Ints) -> Stream:
        """Yield numbers and rewards of the texts with these `numbers`, as they come."""
        if not self.terms:
            yield from self.models[0].forward(prepared, numbers)
        else:
            n = len(prepared.ids)
            yield (
                numbers,
                self._sum_models(
                    lambda model: fill(model.forward(prepared, numbers), n)[numbers]
                ),
            )

    def forward_alone(self, prepared: Encoded, numbers: Ints) -> Floats:
        """Return rewards of the texts, each forwarded by itself: the reference for
        everything faster.
        """
        return self._sum_models(lambda model: model.forward_alone(prepared, numbers))

    def token_rewards(self, prepared: Encoded, text: int) -> tuple[Ids, Floats]:
        """Token ids of a text's answer, and the reward of the answer up to and
        including each of them.
        """
        log_probs = self._sum_models(
            lambda model: model.read_alone(prepared, np.array([text]))
        )
        sums = np.cumsum(log_probs**2 if self.mode == "norm" else log_probs)
        ids = prepared.ids[text][prepared.response_start[text] :]
        return ids, summarize(sums, np.arange(1, len(sums) + 1), self.mode)

    def _sum_models(self, values: Callable[[LanguageModel], Floats]) -> Floats:
        """The sum of sign times each model's values; each leaves the device after its
        turn.
        """
        total: Floats | float = 0.0
        for sign, model in zip((1.0, -1.0), self.models, strict=False):
            try:
                total = total + sign * values(model)
            finally:
                model.free_memory()
        return np.asarray(total, np.float64)

    def free_memory(self) -> None:
        """Free the memory of all models; the next text loads them again."""
        for model in self.models:
            LocalScorer.free_memory(model)

    @property
    def parts(self) -> "tuple[PreTrainedModel, Vocabulary]":
        """The policy's transformers base model and output layer; loads the weights."""
        return self.models[0].parts

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that decides a reward; rewards with the same fingerprint and text
        key are the same.
        """
        prints = [model.fingerprint for model in self.models]
        return (
            prints[0]
            if len(prints) == 1
            else hash_parts({"policy minus reference": prints})
        )

    def provenance(self) -> Provenance:
        """Where the rewards come from: as of other models, with a list of revisions and
        one of contents.
        """
        lists = {
            name: [getattr(model, name) for model in self.checkpoints]
            for name in ("revision", "content")
        }
        return super().provenance() | self.models[0]._forwarded | lists

    def _require_shared_tokens(self, ids: list[Ids]) -> None:
        """Raise DataError unless the reference reads the same tokens out of the
        policy's ids.
        """
        reference, size = (
            self.models[1].tokenizer,
            self.checkpoints[1].config.get_text_config().vocab_size,
        )
        for token in np.unique(np.concatenate([np.zeros(0, np.int32), *ids])).tolist():
            name = self.tokenizer.convert_ids_to_tokens(token)
            # Models may have more rows of weights than their tokenizer has tokens.
            reference_name = (
                reference.convert_ids_to_tokens(token)
                if token < len(reference)
                else name
            )
            if token >= size or name != reference_name:
                tokens = f"token {token} is {reference_name!r} for it, and {name!r} for the policy"
                raise DataError(
                    f"reference={self.checkpoints[1].name!r}: {tokens}; pass the policy's first model"
                )


def summarize(sums: Floats, counts: Ints, mode: str) -> Floats:
    """Rewards of answers with these sums of log-probabilities (for "norm": of their
    squares) over `counts` tokens.
    """
    return (
        -np.sqrt(sums) if mode == "norm" else sums / counts if mode == "mean" else sums
    )
