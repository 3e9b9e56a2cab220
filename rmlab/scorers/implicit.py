"""Implicit rewards of language models: log-probability of the response, policy minus
reference (DPO) or alone.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np

from rmlab.inference.encoding import Encoded, Response
from rmlab.scorers.base import (
    Floats,
    Ints,
    Prompt,
    Provenance,
    Stream,
    fill,
    hash_parts,
)
from rmlab.scorers.checkpoints.adapters import Adapted
from rmlab.scorers.encoder import EncodeOptions, Ids, TextEncoder, complete_options
from rmlab.scorers.in_memory import ModelInMemory, Source, open_model
from rmlab.scorers.local import LocalScorer, Placement, ReadoutScorer, place, remakeable
from rmlab.scorers.models import loading
from rmlab.scorers.models.arguments import with_arguments
from rmlab.scorers.models.vocabulary import Vocabulary
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rmlab.inference.backbone import Backbone
    from rmlab.scorers.readout import AnswerReadout, LoadedModel

MODES = ("sum", "mean", "norm")

_LOADER = "AutoModelForCausalLM"


@remakeable
def implicit_reward(
    policy: "str | Path | PreTrainedModel",
    reference: "str | Path | PreTrainedModel | None" = None,
    *,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    fingerprint: str | None = None,
    mode: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    base: str | Path | None = None,
    revision: str | None = None,
    max_batch_tokens: int | None = None,
    name: str | None = None,
    **writing: Unpack[EncodeOptions],
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
    policy, reference : str or Path or PreTrainedModel
        Ids on the hub, folders, or models in memory, which are left as they are; the
        reference is optional. That of an adapter is by default its own base: the same
        weights with the adapter disabled. With mode "mean" or "norm" it has none, nor
        has a policy in memory, whatever adapter is in it.
    tokenizer : PreTrainedTokenizerBase, optional
        Of models in memory.
    fingerprint : str, optional
        Names the weights of models in memory, such as "run-7-step-300". Without one the
        scores cannot be stored.
    mode : str, optional
        Without a reference "mean" (the default), "sum", or "norm" (minus the Euclidean
        norm of the log-probabilities), the three ways of RewardBench's runner. With a
        reference "sum".
    base : str or Path, optional
        The model that an adapter changes, by default the one that it names.
    revision : str, optional
        A commit, tag or branch of the policy on the hub; that of the reference stands
        in its id, as "owner/name@revision".
    dtype, device, trust_remote_code, allow_pickle, max_batch_tokens, name
        As in `rmlab.classifier`.
    **writing
        How texts become tokens, as in `rmlab.classifier`. `convention="reward-bench"`
        repeats its runner: a second beginning token, the assistant's header counted as
        part of the answer, an end token more.

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
    options = complete_options(writing, runner="reward-bench-dpo", fixed=("bos", "eos"))
    find = partial(
        _open, allow_pickle=allow_pickle, trust_remote_code=trust_remote_code
    )
    checkpoints = [find(policy, tokenizer, fingerprint, revision=revision, base=base)]
    trained = checkpoints[0]
    if reference is not None:
        reference_fingerprint = None
        if fingerprint is not None:
            reference_fingerprint = f"reference of {fingerprint}"
        checkpoints.append(find(reference, tokenizer, reference_fingerprint))
        _refuse_same(*checkpoints)
    elif isinstance(trained, Adapted) and mode in (None, "sum"):
        checkpoints.append(trained.base_model)
    has_reference = len(checkpoints) == 2
    reference_name = checkpoints[1].name if has_reference else None
    # With its adapter disabled, a policy reads its own tokens.
    readers = [] if _shares_base(checkpoints) else checkpoints[1:]
    return ImplicitReward(
        checkpoints,
        AnswerEncoder(trained, options, readers=readers),
        [place(model, device, dtype, max_batch_tokens) for model in checkpoints],
        mode=_choose_mode(mode, has_reference=has_reference),
        reference=reference_name,
        name=name,
    )


def _shares_base(checkpoints: Sequence[Source]) -> bool:
    """Whether the reference is the policy without its adapter.

    An adapter that has trained biases too leaves those in its base, and one with more
    tokens its rows of embeddings, unless it has those of the base beside them.
    """
    policy, *references = checkpoints
    if not isinstance(policy, Adapted) or references != [policy.base_model]:
        return False
    if policy.adapter.get("bias", "none") != "none":
        return False
    if policy.has_base_weights:
        return True
    base_weights = policy.base_model.weights
    return all(
        policy.weights[key].shape == base_weights[key].shape for key in base_weights
    )


def _refuse_same(policy: Source, reference: Source) -> None:
    """Raise DataError where the two are one model, whose rewards would all be 0."""
    if isinstance(policy, ModelInMemory):
        is_same = isinstance(reference, ModelInMemory) and (
            reference.model is policy.model
        )
    else:
        is_same = isinstance(policy, Adapted) and reference == policy
    if is_same:
        problem = "reference: it is the policy itself, with its adapter"
        raise DataError(problem, "load the base anew, or pass the adapter's folder")


def _choose_mode(mode: str | None, *, has_reference: bool) -> str:
    modes = ("sum",) if has_reference else MODES
    if mode is None:
        return "sum" if has_reference else "mean"
    if mode not in modes:
        where = " with a reference" if has_reference else ""
        raise DataError(f"mode={mode!r}{where}", nearest(mode, modes))
    return mode


def _open(
    model: "str | Path | PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase | None",
    fingerprint: str | None,
    **options: Any,
) -> Source:
    """One of the two models; the tokenizer belongs to those in memory."""
    if isinstance(model, str | Path):
        tokenizer = None
    source = open_model(model, tokenizer, fingerprint, **options)
    if isinstance(source, Adapted):
        source.refuse_task("CAUSAL_LM")
    if isinstance(source, ModelInMemory):
        source.require_language()
    return source


class AnswerEncoder(TextEncoder):
    """An encoder whose texts a policy and its reference read alike."""

    def encode(
        self, prompts: Sequence[Prompt], /, *answers: Sequence[Response]
    ) -> Encoded:
        """Return the texts as token ids; refuse a reference that reads them
        otherwise.
        """
        encoded = super().encode(prompts, *answers)
        if self._reference is not None:
            self._require_shared_tokens(encoded.ids, self._reference)
        return encoded

    @cached_property
    def _reference(self) -> TextEncoder | None:
        """The reference's own encoder."""
        if len(self.readers) == 1:
            return None
        return TextEncoder(self.readers[1], self.options)

    def _require_shared_tokens(self, ids: list[Ids], reference: TextEncoder) -> None:
        """Raise DataError unless the reference reads the same tokens out of the
        policy's ids.
        """
        size = reference.checkpoint.config.get_text_config().vocab_size
        n_named = len(reference.tokenizer)
        for token in np.unique(np.concatenate([np.zeros(0, np.int32), *ids])).tolist():
            name = self.tokenizer.convert_ids_to_tokens(token)
            reference_name = name
            # Models may have more rows of weights than their tokenizer has tokens.
            if token < n_named:
                reference_name = reference.tokenizer.convert_ids_to_tokens(token)
            if token >= size or name != reference_name:
                problem = (
                    f"reference={reference.checkpoint.name!r}: token {token} is "
                    f"{reference_name!r} for it, and {name!r} for the policy"
                )
                raise DataError(problem, "pass the policy's first model")


class LanguageModel(ReadoutScorer["AnswerReadout"]):
    """A causal language model as a scorer.

    A text's score is the `mode` ("sum", "mean", "norm") of the log-probabilities of its
    answer's tokens. `number`: which one it is of the models of its `owner`.
    """

    def __init__(
        self,
        checkpoint: Source,
        encoder: TextEncoder,
        placement: Placement,
        *,
        owner: "ImplicitReward",
        number: int,
        name: str | None,
    ) -> None:
        details: Provenance = {"head": f"implicit {owner.mode}"}
        policy = owner.checkpoint
        is_disabled = bool(number) and owner.shares_base
        if is_disabled and isinstance(policy, Adapted) and policy.own_keys:
            # Of the weights that an adapter has whole, some stay when it is disabled.
            details["without adapter"] = policy.content
        super().__init__(
            checkpoint,
            encoder,
            placement,
            details=details,
            name=name,
        )
        self.mode = owner.mode
        self.owner = owner
        self.number = number
        # With its adapter, where that can be disabled.
        self.adapted: PeftModel | None = None

    @property
    def head_title(self) -> str:
        """What is read, for people."""
        return f"log-probabilities of the answer, {self.mode}"

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Around a pass: a reference that is the policy's base has no adapter."""
        with super().evaluating(), ExitStack() as stack:
            if self._is_shared:
                adapted = self.owner.policy.load_adapted()
                stack.enter_context(adapted.disable_adapter())
            yield

    @property
    def _is_shared(self) -> bool:
        return self.owner.shares_base and self is not self.owner.policy

    def load(self) -> "LoadedModel[AnswerReadout]":
        """Return the base model and the output layer; loads the weights."""
        from rmlab.scorers.readout import AnswerReadout, LoadedModel

        _ = self.owner.models_stay  # decided now, while the memory is still free
        if self.owner.shares_base:
            adapted = self.owner.policy.load_adapted()
            model = cast("PreTrainedModel", adapted.get_base_model())
        else:
            model = loading.load(
                self.checkpoint, _LOADER, device=self.device, dtype=self.dtype
            )
        vocabulary = Vocabulary(model, self.checkpoint.name)
        base = loading.base_model(model)
        backbone = with_arguments(base, self.encoder, _LOADER)
        return LoadedModel(backbone, AnswerReadout(vocabulary, self.mode))

    def load_adapted(self) -> "PeftModel":
        """Return the base with the adapter in it, loaded once."""
        assert isinstance(self.checkpoint, Adapted)
        if self.adapted is None:
            self.adapted = loading.load_adapted(
                self.checkpoint, _LOADER, device=self.device, dtype=self.dtype
            )
        return self.adapted

    def __reduce__(self) -> tuple[Callable[..., "LanguageModel"], tuple[object, ...]]:
        return _remake_model, (self.owner.remake, self.number)

    def free_memory(self) -> None:
        """Free the memory, unless there is room for all the models that belong
        together.
        """
        if self.loaded and not self.owner.models_stay:
            self.unload()

    def unload(self) -> None:
        """Free the memory."""
        self.adapted = None
        super().free_memory()


class ImplicitReward(LocalScorer):
    """A policy, and a reference or none; made by `implicit_reward`.

    `models`: policy and reference, each with its own weights and place in a store;
    `terms`: the two with their signs, where there is a reference. `mode`: how
    log-probabilities become one number.
    """

    read_at = "answer"

    def __init__(
        self,
        checkpoints: list[Source],
        encoder: AnswerEncoder,
        placements: list[Placement],
        *,
        mode: str,
        reference: str | None,
        name: str | None,
    ) -> None:
        details: Provenance = {"head": f"implicit {mode}"}
        if reference is not None:
            details["reference"] = reference
        super().__init__(
            checkpoints[0],
            encoder,
            placements[0],
            details=details,
            name=name,
        )
        self.mode = mode
        self.checkpoints = checkpoints
        self.shares_base = _shares_base(checkpoints)
        self.models: list[LanguageModel] = []
        for number, checkpoint in enumerate(checkpoints):
            model = LanguageModel(
                checkpoint,
                encoder,
                placements[number],
                owner=self,
                number=number,
                # A reference has its own name.
                name=self.name if number == 0 else None,
            )
            self.models.append(model)
        if reference is not None:
            self.terms = list(zip((1.0, -1.0), self.models, strict=True))

    @property
    def head_title(self) -> str:
        """What is read, for people."""
        subject = "policy and reference" if self.terms else "policy alone"
        return f"log-probabilities of the answer, {subject}, {self.mode}"

    @cached_property
    def models_stay(self) -> bool:
        """Whether all models stay on the device; asked first while its memory is
        free.
        """
        if self.shares_base or len(self.models) == 1:
            return True
        for model in self.models:
            checkpoint = model.checkpoint
            if isinstance(checkpoint, ModelInMemory):
                continue
            if not loading.fits(checkpoint, model.device, model.dtype, share=0.85 / 2):
                return False
        return True

    @property
    def policy(self) -> LanguageModel:
        """The model that is scored."""
        return self.models[0]

    @property
    def backbone(self) -> "Backbone":
        """The policy's base model; loads the weights."""
        return self.policy.backbone

    def prepare(self, prompts: Sequence[Prompt], /, *answers: Sequence[str]) -> Encoded:
        """Return the texts as tokens, which the models share."""
        return self.policy.prepare(prompts, *answers)

    def places(self, encoded: Encoded, texts: Ints) -> tuple[list[Ids], list[Ints]]:
        """Token ids of the texts, and the positions whose states predict the answer."""
        from rmlab.scorers.readout import locate_answers

        ids = [encoded.ids[text] for text in texts]
        return ids, locate_answers(encoded, texts).positions

    def forward(self, encoded: Encoded, texts: Ints) -> Stream:
        """Yield numbers and rewards of the texts with these numbers, as they come."""
        if not self.terms:
            yield from self.policy.forward(encoded, texts)
            return
        n_texts = len(encoded.ids)
        yield (
            texts,
            self._sum_models(
                lambda model: fill(model.forward(encoded, texts), n_texts)[texts]
            ),
        )

    def forward_alone(self, encoded: Encoded, texts: Ints) -> Floats:
        """Return rewards of the texts, each forwarded by itself: the reference for
        everything faster.
        """
        return self._sum_models(lambda model: model.forward_alone(encoded, texts))

    def token_rewards(self, encoded: Encoded, text: int) -> tuple[Ids, Floats]:
        """Token ids of a text's answer, and the reward of the answer up to and
        including each of them.
        """
        from rmlab.scorers.readout import summarize

        log_probs = self._sum_models(lambda model: model.read_alone(encoded, text))
        values = log_probs**2 if self.mode == "norm" else log_probs
        sums = np.cumsum(values)
        ids = encoded.ids[text][encoded.response_start[text] :]
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
            model.unload()

    @cached_property
    def fingerprint(self) -> str | None:
        """Hash of all that decides a reward; rewards with the same fingerprint and text
        key are the same.
        """
        fingerprints = [model.fingerprint for model in self.models]
        if None in fingerprints:
            return None
        if len(fingerprints) == 1:
            return fingerprints[0]
        return hash_parts({"policy minus reference": fingerprints})

    def provenance(self) -> Provenance:
        """Where the rewards come from: as of other models, with a list of revisions and
        one of contents.
        """
        return {
            **super().provenance(),
            **self.policy.progress,
            "revision": [model.revision for model in self.checkpoints],
            "content": [model.content for model in self.checkpoints],
        }


def _remake_model(remake: Callable[[], ImplicitReward], number: int) -> LanguageModel:
    return remake().models[number]
