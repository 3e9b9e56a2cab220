"""Implicit rewards of language models: log-probability of the response, policy minus
reference (DPO) or alone.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np

from rmlab.inference.encoding import Encoded
from rmlab.scorers.base import Floats, Ints, Provenance, Stream, fill, hash_parts
from rmlab.scorers.checkpoints.adapters import Adapted
from rmlab.scorers.encoder import EncodeOptions, Ids, TextEncoder, complete_options
from rmlab.scorers.in_memory import ModelInMemory, Source, open_model
from rmlab.scorers.local import LocalScorer, Placement, remakeable
from rmlab.scorers.models import loading
from rmlab.scorers.models.arguments import with_arguments
from rmlab.scorers.models.vocabulary import Vocabulary
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

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
) -> "LanguageModel | ImplicitReward":
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
        repeats its runner: a second BOS token, the assistant's header counted as
        part of the answer, an EOS token more.

    Returns
    -------
    LanguageModel or ImplicitReward
        Without and with a reference. The weights are loaded when the first text is
        scored.

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
    trained = find(policy, tokenizer, fingerprint, revision=revision, base=base)
    first: Source | None = None
    if reference is not None:
        is_in_memory = not isinstance(reference, str | Path)
        if fingerprint is not None:
            fingerprint = f"reference of {fingerprint}"
        first = find(reference, tokenizer, fingerprint if is_in_memory else None)
        _refuse_same(trained, first)
    elif isinstance(trained, Adapted) and mode in (None, "sum"):
        first = trained.base_model
    mode = _choose_mode(mode, has_reference=first is not None)
    placement = Placement(device, dtype, max_batch_tokens)
    if first is None:
        encoder = TextEncoder(trained, options)
        return LanguageModel(trained, encoder, placement, mode=mode, name=name)

    shares_base = _shares_base(trained, first)
    # With its adapter disabled, a policy reads its own tokens.
    encoder = TextEncoder(trained, options, readers=[] if shares_base else [first])
    if not shares_base:
        _require_same_tokens(encoder, first)
    policy_model = LanguageModel(trained, encoder, placement, mode=mode, name=name)
    reference_model = LanguageModel(
        first,
        encoder,
        placement,
        mode=mode,
        adapted=policy_model if shares_base else None,
    )
    return ImplicitReward(policy_model, reference_model)


def _shares_base(policy: Source, reference: Source) -> bool:
    """Whether the reference is the policy without its adapter.

    An adapter that has trained biases too leaves those in its base, and one with more
    tokens its rows of embeddings, unless it has those of the base beside them.
    """
    if not isinstance(policy, Adapted) or reference != policy.base_model:
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
    is_same = isinstance(policy, Adapted) and reference == policy
    if isinstance(policy, ModelInMemory) and isinstance(reference, ModelInMemory):
        is_same = reference.model is policy.model
    if is_same:
        problem = "reference: it is the policy itself, with its adapter"
        raise DataError(problem, "load the base anew, or pass the adapter's folder")


def _require_same_tokens(encoder: TextEncoder, reference: Source) -> None:
    """Raise DataError where a token of both models has two numbers."""
    numbers = encoder.tokenizer.get_vocab()
    tokenizer = TextEncoder(reference, encoder.options).tokenizer
    for token, number in tokenizer.get_vocab().items():
        own_number = numbers.get(token, number)
        if own_number != number:
            problem = (
                f"reference={reference.name!r}: token {token!r} is {number} for it, "
                f"and {own_number} for the policy"
            )
            raise DataError(problem, "pass the policy's first model")


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


class LanguageModel(LocalScorer["AnswerReadout"]):
    """A causal language model as a scorer; made by `implicit_reward`.

    A text's score is the `mode` ("sum", "mean", "norm") of the log-probabilities of its
    answer's tokens. `adapted`: the policy whose base this is, which shares its weights
    with the adapter disabled.
    """

    read_at = "answer"

    def __init__(
        self,
        checkpoint: Source,
        encoder: TextEncoder,
        placement: Placement,
        *,
        mode: str,
        name: str | None = None,
        adapted: "LanguageModel | None" = None,
    ) -> None:
        details: Provenance = {"head": f"implicit {mode}"}
        policy = adapted.checkpoint if adapted else None
        if isinstance(policy, Adapted) and policy.own_keys:
            # Of the weights that an adapter has whole, some stay when it is disabled.
            details["without adapter"] = policy.content
        super().__init__(checkpoint, encoder, placement, details=details, name=name)
        self.mode = mode
        self.adapted = adapted
        # Whether the weights stay on the device for the next texts.
        self.stays = False
        self._peft_model: PeftModel | None = None

    @property
    def head_title(self) -> str:
        """What is read, for people."""
        return f"log-probabilities of the answer, {self.mode}"

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Around a pass: a reference that is the policy's base has no adapter."""
        with super().evaluating(), ExitStack() as stack:
            if self.adapted is not None:
                peft_model = self.adapted.load_adapted()
                stack.enter_context(peft_model.disable_adapter())
            yield

    def load(self) -> "LoadedModel[AnswerReadout]":
        """Return the base model and the output layer; loads the weights."""
        from rmlab.scorers.readout import AnswerReadout, LoadedModel

        policy = self.adapted or self
        if isinstance(policy.checkpoint, Adapted):
            model = cast("PreTrainedModel", policy.load_adapted().get_base_model())
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
        if self._peft_model is None:
            self._peft_model = loading.load_adapted(
                self.checkpoint, _LOADER, device=self.device, dtype=self.dtype
            )
        return self._peft_model

    def free_memory(self) -> None:
        """Free the memory, unless the weights stay for the next texts."""
        if not self.stays:
            self.unload()

    def unload(self) -> None:
        """Free the memory."""
        self._peft_model = None
        super().free_memory()

    def token_rewards(self, encoded: Encoded, text: int) -> tuple[Ids, Floats]:
        """Token ids of a text's answer, and the reward of the answer up to and
        including each of them.
        """
        from rmlab.scorers.readout import summarize

        log_probs, _ = self.read_alone(encoded, text)
        values = log_probs**2 if self.mode == "norm" else log_probs
        sums = np.cumsum(values)
        ids = encoded.ids[text][encoded.response_start[text] :]
        return ids, summarize(sums, np.arange(1, len(sums) + 1), self.mode)


class ImplicitReward(LocalScorer["AnswerReadout"]):
    """A policy minus its reference, both of which read the policy's tokens; made by
    `implicit_reward`. A store keeps the scores of each.
    """

    read_at = "answer"

    def __init__(self, policy: LanguageModel, reference: LanguageModel) -> None:
        super().__init__(
            policy.checkpoint,
            policy.encoder,
            policy.placement,
            details=policy.details,
            name=policy.name,
        )
        self.policy = policy
        self.reference = reference
        self.models = [policy, reference]
        self.terms = [(1.0, policy), (-1.0, reference)]
        # The policy notes how its texts went through it.
        self.progress = policy.progress
        for number, model in enumerate(self.models):
            # A GPU may have no room for two sets of weights.
            model.stays = reference.adapted is not None or model.device.type != "cuda"
            model.remake = partial(_remake_term, self, number)

    @property
    def head_title(self) -> str:
        """What is read, for people."""
        return self.policy.head_title

    @property
    def parts(self) -> "LoadedModel[AnswerReadout]":
        """The policy's backbone and readout; loads its weights."""
        return self.policy.parts

    def load(self) -> "LoadedModel[AnswerReadout]":
        """Return the policy's backbone and readout."""
        return self.policy.load()

    def forward(self, encoded: Encoded, texts: Ints, /) -> Stream:
        """Yield numbers and rewards of the texts with these numbers, all at once."""
        n = len(encoded.ids)
        rewards = self._subtract(lambda model: fill(model.forward(encoded, texts), n))
        yield texts, rewards[texts]

    def forward_alone(self, encoded: Encoded, texts: Ints, /) -> Floats:
        """Return rewards of the texts, each forwarded by itself."""
        return self._subtract(lambda model: model.forward_alone(encoded, texts))

    def token_rewards(self, encoded: Encoded, text: int) -> tuple[Ids, Floats]:
        """Token ids of an answer, and the reward of the answer up to and including
        each of them.
        """
        ids = encoded.ids[text][encoded.response_start[text] :]
        return ids, self._subtract(lambda model: model.token_rewards(encoded, text)[1])

    def _subtract(self, values: Callable[[LanguageModel], Floats]) -> Floats:
        """The policy's values minus the reference's; each leaves the device after its
        turn.
        """
        by_model = []
        for model in self.models:
            try:
                by_model.append(values(model))
            finally:
                model.free_memory()
        return by_model[0] - by_model[1]

    def free_memory(self) -> None:
        """Free the memory of both models; the next text loads them again."""
        for model in self.models:
            model.unload()

    @cached_property
    def fingerprint(self) -> str | None:
        """Hash of all that decides a reward; None for models in memory that nobody has
        named.
        """
        fingerprints = [model.fingerprint for model in self.models]
        if None in fingerprints:
            return None
        return hash_parts({"policy minus reference": fingerprints})

    def provenance(self) -> Provenance:
        """Where the rewards come from: as of the policy, with a list of revisions and
        one of contents.
        """
        checkpoints = [model.checkpoint for model in self.models]
        return {
            **super().provenance(),
            "reference": self.reference.checkpoint.name,
            "revision": [checkpoint.revision for checkpoint in checkpoints],
            "content": [checkpoint.content for checkpoint in checkpoints],
        }


def _remake_term(owner: ImplicitReward, number: int) -> LanguageModel:
    return owner.models[number]
