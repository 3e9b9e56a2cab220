"""Implicit rewards of language models: log-probability of the response, policy minus reference (DPO) or alone."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np

from rmlab.scorers.base import Floats, Ints, Prompt, Provenance, Stream, fill
from rmlab.scorers.checkpoints.checkpoint import Checkpoint, find
from rmlab.scorers.checkpoints.tokenizer_file import load_tokenizer
from rmlab.scorers.local import Ids, LocalOptions, LocalScorer, hash_parts, remakable, require_convention
from rmlab.scorers.models import backbone as backbones
from rmlab.scorers.models.vocabulary import Vocabulary
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rmlab.inference.forward import Batch
    from rmlab.inference.template import Encoded

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
    mode = mode or ("mean" if reference is None else "sum")
    if mode not in MODES:
        raise DataError(f"mode={mode!r}; {nearest(mode, MODES)}")
    if reference is not None and mode != "sum":
        raise DataError(f"mode={mode!r} with a reference; allowed: 'sum' (or leave the reference out)")
    require_convention(convention)
    if convention is not None and eos is not None:
        raise DataError(f"eos={eos} with convention='reward-bench', which adds an end token of its own; leave one out")
    find_model = partial(find, allow_pickle=allow_pickle, trust_remote_code=trust_remote_code)
    references = [] if reference is None else [find_model(reference, revision=reference_revision)]
    return ImplicitReward(
        [find_model(policy, revision=revision), *references],
        mode=mode,
        name=name,
        device=device,
        dtype=dtype,
        template=template,
        eos=eos,
        max_length=max_length,
        truncate=truncate,
        convention=None if convention is None else "reward-bench-dpo",
        budget=budget,
        chunk=chunk,
        together=together,
    )


class LanguageModel(LocalScorer):
    """A causal language model as a scorer; its `owner` makes the tokens, and says whether it stays on the device.

    A text's score is the `mode` ("sum", "mean", "norm") of the log-probabilities of its answer's tokens.
    """

    sums_answer = True

    def __init__(self, checkpoint: Checkpoint, owner: "ImplicitReward", **options: Unpack[LocalOptions]) -> None:
        super().__init__([checkpoint], **options)
        self.mode, self.owner = owner.mode, owner
        self._weights: tuple[PreTrainedModel, Vocabulary] | None = None

    def prepare(self, prompts: Sequence[Prompt], responses: Sequence[str], /) -> "Encoded":  # type: ignore[override]
        """Return the texts as token ids, which all models of the owner share."""
        return self.owner.prepare(prompts, responses)

    def places(self, prepared: "Encoded", numbers: Ints) -> tuple[list[Ids], list[Ints]]:
        """Token ids of the texts and the positions whose states predict the response."""
        ids = [prepared.ids[text] for text in numbers]
        starts = [_response_start(prepared, int(text)) for text in numbers]
        return ids, [np.arange(start - 1, len(text) - 1) for start, text in zip(starts, ids, strict=True)]

    def read_states(self, batch: "Batch", prepared: "Encoded", numbers: Ints) -> "torch.Tensor":
        """Log-probabilities of the answers' tokens, one text's after the other's, still on the device.

        Texts with a common beginning share rows, and so the log-probabilities of the tokens that these predict.
        """
        import torch

        from rmlab.inference.memory import upload

        vocabulary = self._load()[1]
        targets = np.concatenate([prepared.ids[text][int(prepared.response_start[text]) :] for text in numbers])
        cells = np.concatenate(batch.where).astype(np.int64) * vocabulary.size + targets
        unique, back = np.unique(cells, return_inverse=True)
        indices = {"rows": unique // vocabulary.size, "tokens": unique % vocabulary.size, "back": back.reshape(-1)}
        sent = upload(indices, batch.rows.device)
        with torch.inference_mode():
            log_probs = vocabulary.log_probs(batch.rows[sent["rows"]], sent["tokens"], chunk=self.run_options["chunk"])
            return log_probs[sent["back"].to(log_probs.device)]

    def finish(self, outputs: Floats, prepared: "Encoded", numbers: Ints) -> Floats:
        """Each text's log-probabilities made one number."""
        counts = np.array([len(prepared.ids[text]) - prepared.response_start[text] for text in numbers])
        starts = np.cumsum(counts) - counts
        if self.mode == "norm":
            return -np.sqrt(np.add.reduceat(outputs**2, starts))
        total = np.add.reduceat(outputs, starts)
        return total / counts if self.mode == "mean" else total

    @property
    def model(self) -> "PreTrainedModel":
        """The transformers model; loads the weights."""
        return self._load()[0]

    @property
    def backbone(self) -> "PreTrainedModel":
        """The transformers base model; loads the weights."""
        return backbones.base_model(self.model)

    @property
    def loaded(self) -> bool:
        """Whether the weights are on the device."""
        return self._weights is not None

    def free_memory(self) -> None:
        """Free the memory, unless there is room for all the models that belong together."""
        if self.loaded and not self.owner.stays:
            import torch

            self._weights = None
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that decides a score: a reference that several policies share is stored once."""
        return self._hash_parts(head=f"implicit {self.mode}")

    @property
    def text_fingerprint(self) -> str:
        """Hash of how the owner makes texts tokens."""
        return self.owner.text_fingerprint

    def provenance(self) -> Provenance:
        """Where the scores come from, as plain values: model, revision, mode, dtype, template, versions, device."""
        return self._describe(head=f"implicit {self.mode}") | self.owner.encoding

    def _load(self) -> "tuple[PreTrainedModel, Vocabulary]":
        if self._weights is None:
            _ = self.owner.stays  # decided now, while the memory is still free
            model = backbones.load(self.checkpoint, "AutoModelForCausalLM", device=self.device, dtype=self.dtype)
            self._weights = model, Vocabulary(model, self.checkpoint.name)
        return self._weights


class ImplicitReward(LocalScorer):
    """A policy, and a reference or none; made by `implicit_reward`. Models are loaded when the first text is scored."""

    sums_answer = True

    def __init__(self, checkpoints: list[Checkpoint], *, mode: str, **options: Unpack[LocalOptions]) -> None:
        super().__init__(checkpoints, **options)
        self.mode = mode

    @cached_property
    def models(self) -> list[LanguageModel]:
        """Policy and reference, each with its own weights and place in a store."""
        return [
            LanguageModel(
                checkpoint,
                self,
                name=self.name if checkpoint is self.checkpoint else None,
                device=self.device,
                dtype=self.dtype,
                **self.encode_options,
                **self.run_options,
            )
            for checkpoint in self.checkpoints
        ]

    @cached_property
    def stays(self) -> bool:
        """Whether all models stay on the device; asked first while its memory is still free."""
        together, n_models = self.run_options["together"], len(self.checkpoints)
        if together is not None or n_models == 1:
            return together or n_models == 1
        fits = partial(backbones.fits, device=self.device, dtype=self.dtype, share=0.85 / n_models)
        return all(map(fits, self.checkpoints))

    @property
    def terms(self) -> list[tuple[float, LanguageModel]]:
        """Policy and reference with their signs: the reward is the sum of sign times score."""
        return list(zip((1.0, -1.0), self.models, strict=True)) if len(self.models) > 1 else []

    def prepare(self, prompts: Sequence[Prompt], responses: Sequence[str], /) -> "Encoded":  # type: ignore[override]
        """Return the texts as token ids; needs the tokenizers, not the weights."""
        encoded = super().prepare(prompts, responses)
        self._require_shared_tokens(encoded.ids)
        return encoded

    def places(self, prepared: "Encoded", numbers: Ints) -> tuple[list[Ids], list[Ints]]:
        """Token ids of the texts and the positions whose states predict the response."""
        return self.models[0].places(prepared, numbers)

    def read_states(self, batch: "Batch", prepared: "Encoded", numbers: Ints) -> "torch.Tensor":
        """Log-probabilities of the answers' tokens under the policy."""
        return self.models[0].read_states(batch, prepared, numbers)

    def forward(self, prepared: "Encoded", numbers: Ints) -> Stream:
        """Yield numbers and rewards of the texts with these `numbers`, as they come."""
        if not self.terms:
            yield from self.models[0].forward(prepared, numbers)
        elif len(numbers):
            n = len(prepared.ids)
            yield numbers, self._sum_models(lambda model: fill(model.forward(prepared, numbers), n)[numbers])

    def alone(self, prepared: "Encoded", numbers: Ints) -> Floats:
        """Return rewards of the texts, each forwarded by itself: the reference for everything faster."""
        return self._sum_models(lambda model: model.alone(prepared, numbers))

    def along(self, prepared: "Encoded", text: int) -> tuple[Ids, Floats]:
        """Token ids of a text's answer, and the reward of the answer up to and including each of them."""
        log_probs = self._sum_models(lambda model: model.outputs_alone(prepared, text))
        ids = prepared.ids[text][prepared.response_start[text] :]
        if self.mode == "norm":
            return ids, -np.sqrt(np.cumsum(log_probs**2))
        total = np.cumsum(log_probs)
        return ids, total / np.arange(1, len(total) + 1) if self.mode == "mean" else total

    def _sum_models(self, values: Callable[[LanguageModel], Floats]) -> Floats:
        """The sum of sign times each model's values; each leaves the device after its turn."""
        total: Floats | float = 0.0
        for sign, model in zip((1.0, -1.0), self.models, strict=False):
            try:
                total = total + sign * values(model)
            finally:
                model.free_memory()
        return np.asarray(total, np.float64)

    @property
    def backbone(self) -> "PreTrainedModel":
        """The policy's transformers base model; loads the weights."""
        return self.models[0].backbone

    @property
    def resident(self) -> list[Checkpoint]:
        """What is on the device at once: policy and reference, or the larger of the two."""
        if self.stays:
            return self.checkpoints
        return [max(self.checkpoints, key=lambda checkpoint: checkpoint.n_weights)]

    @property
    def head_title(self) -> str:
        """What is summed, for people."""
        subject = "policy and reference" if self.terms else "policy alone"
        return f"log-probabilities of the answer, {subject}, {self.mode}"

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that decides a reward; rewards with the same fingerprint and text key are the same."""
        prints = [model.fingerprint for model in self.models]
        return prints[0] if len(prints) == 1 else hash_parts({"policy minus reference": prints})

    def provenance(self) -> Provenance:
        """Where the rewards come from, as plain values: models, revisions, mode, dtype, template, versions, device."""
        reference = {"reference": self.checkpoints[1].name} if self.terms else {}
        lists = {
            "revision": [checkpoint.revision for checkpoint in self.checkpoints],
            "content": [checkpoint.content for checkpoint in self.checkpoints],
        }
        return reference | self.models[0].provenance() | lists | {"fingerprint": self.fingerprint}

    def _require_shared_tokens(self, ids: list[Ids]) -> None:
        """Raise DataError unless the reference reads the same tokens out of the policy's ids."""
        if len(self.checkpoints) == 1 or not ids:
            return
        reference, size = self._reference_tokenizer, self.checkpoints[1].config.get_text_config().vocab_size
        for token in np.unique(np.concatenate(ids)).tolist():
            name = self.tokenizer.convert_ids_to_tokens(token)
            # Models may have more rows of weights than their tokenizer has tokens.
            reference_name = reference.convert_ids_to_tokens(token) if token < len(reference) else name
            if token >= size or name != reference_name:
                raise DataError(
                    f"reference={self.checkpoints[1].name!r} and policy={self.name!r} do not share a vocabulary (token "
                    f"{token} is {name!r} and {reference_name!r}); pass the model that the policy was trained from"
                )

    @cached_property
    def _reference_tokenizer(self) -> "PreTrainedTokenizerBase":
        return load_tokenizer(self.checkpoints[1])


def _response_start(prepared: "Encoded", text: int) -> int:
    """Index of the first token of a text's answer, which a token before it predicts."""
    start = int(prepared.response_start[text])
    if start < 1:
        raise DataError(f"text {text}: its response begins at the first token, so nothing predicts it; add a prompt")
    return start
