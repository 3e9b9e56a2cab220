"""The table of reward heads: which weights of a checkpoint make one, where it is read,
and what it computes.

A row is found by its keys in the checkpoint, never by the model's name. Every head runs
in float32 on the few hidden states it reads: in bfloat16 it would merge distinct scores
into ties.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from rmlab.plug_ins import load_plug_ins
from rmlab.scorers.reads import Read
from rmlab.tables import DataError, nearest, response_text

if TYPE_CHECKING:
    from torch import Tensor

    from rmlab.inference.encoding import Response
    from rmlab.scorers.encoder import TextEncoder

Weights = Mapping[str, "Tensor"]
Settings = Mapping[str, Any]
# Hidden states (texts, reads, hidden) in float32 to outputs (texts, labels).
Function = Callable[["Tensor"], "Tensor"]

GROUP = "rmlab.heads"
"""Entry points of this group are heads from other packages: objects of type `Head`."""

# What RewardBench's runner writes for the models of a row (inference/templates.py).
_ONCE = "reward-bench"
_TWICE = "reward-bench-twice"


@dataclass(frozen=True)
class EndToken:
    """Models of a row that read a token of their own, appended where a text does not
    end with it.

    `setting`: holds the token's id, and tells these models from others. `architecture`:
    part of their class's name; they read the tokenizer's class token. `runner`: what
    RewardBench's runner writes for them.
    """

    setting: str = ""
    architecture: str = ""
    runner: str | None = _TWICE

    def applies(self, settings: Settings) -> bool:
        """Whether a model with this configuration is one of these."""
        if self.setting:
            return self.setting in settings
        return self.architecture in str(settings.get("architectures"))

    def find(self, settings: Settings, encoder: "TextEncoder") -> int | None:
        """The token's id."""
        if self.setting:
            return int(settings[self.setting])
        token: int | None = encoder.tokenizer.cls_token_id
        return token


@dataclass(frozen=True)
class Steps:
    """How a process reward model gets the steps of an answer.

    `mark`: stands behind each step; its last token is read. `template`: Jinja text, or
    the name of a format; None is the tokenizer's own template. `is_apart`: whether the
    tokenizer gets the prompt and each step by itself. `verdicts`: two words whose last
    tokens the head compares, the good one first.
    """

    mark: str
    template: str | None = None
    is_apart: bool = False
    verdicts: tuple[str, ...] = ()

    def split(self, response: "Response") -> list[str]:
        """The steps of an answer: a list's own, else what stands between blank lines,
        or between line breaks where a line break is the mark.
        """
        if isinstance(response, list):
            return response
        gap = r"\n" if self.mark == "\n" else r"\n\s*\n"
        steps = re.split(gap, response_text(response))
        return [step for step in steps if step.strip()]


@dataclass(frozen=True)
class Head:
    """One kind of head.

    `parts`: modules or weights that the checkpoint must have. `extra`: what it may have
    besides. `reads`: where the head looks. `make`: from weights and configuration to
    the function; None stands for the class of transformers itself. `setting`: a setting
    that models with this head have. `architecture`: part of their class's name.
    `explicit_only`: used only if `head=` names it.
    `rows`: how many rows of the weights are read. `runner`: what RewardBench's runner
    writes for these models (`convention="reward-bench"`). `end_tokens`: models that
    read a token of their own. `steps`: how process reward models get their steps.
    """

    name: str
    models: str
    parts: tuple[str, ...]
    make: Callable[[Weights, Settings], Function] | None
    reads: tuple[Read, ...] = (Read.LAST,)
    extra: tuple[str, ...] = ()
    setting: str | None = None
    architecture: str = ""
    explicit_only: bool = False
    rows: int | None = None
    runner: str = _ONCE
    end_tokens: tuple[EndToken, ...] = ()
    steps: Steps | None = None

    def keys(self, checkpoint: Iterable[str]) -> list[str]:
        """The weights of this head among the checkpoint's keys; empty where a part is
        missing.
        """
        keys = list(checkpoint)
        stored: list[str] = []
        for part in (*self.parts, *self.extra):
            of_part = [key for key in keys if f"{key}.".startswith(f"{part}.")]
            if not of_part and part in self.parts:
                return []
            stored += of_part
        return sorted(set(stored))

    def fits(self, settings: Settings) -> bool:
        """Whether a model with this configuration may have this head."""
        if self.setting is not None and self.setting not in settings:
            return False
        return self.architecture in str(settings.get("architectures"))

    def end_token(self, settings: Settings) -> EndToken | None:
        """What the model reads at the end, where it is a token of its own."""
        for end_token in self.end_tokens:
            if end_token.applies(settings):
                return end_token
        return None


def choose(keys: Iterable[str], settings: Settings, name: str | None = None) -> Head:
    """The row of HEADS, or of an installed package, for a checkpoint with these keys
    and configuration, or the one called `name`.

    Raises DataError for another name, and for a named head whose weights are not there.

    >>> choose(["model.norm.weight", "v_head.weight"], {}).name
    'value'
    """
    keys = list(keys)
    heads = heads_by_name()
    if name is None:
        # A known model has its own head, whatever is installed.
        for head in heads.values():
            if not head.explicit_only and head.fits(settings) and head.keys(keys):
                return head
        return _LABELS

    if name not in heads:
        raise DataError(f"head={name!r}", nearest(name, list(heads)))
    head = heads[name]
    if head is not _LABELS and not head.keys(keys):
        problem = f"head={name!r} needs the weights {', '.join(head.parts)}"
        raise DataError(problem, "leave head out to find the head by its keys")
    return head


def layers(
    weights: Weights, prefix: str, activation: str
) -> Callable[["Tensor"], "Tensor"]:
    """The stack of layers under `prefix`, in the order of their numbers, or the one
    linear layer of that name.

    `activation` (of torch.nn.functional) follows every linear layer but the last. A
    layer with running statistics is a batch norm in evaluation mode.
    """
    from torch.nn import functional

    numbered = re.compile(rf"{re.escape(prefix)}\.(\d+)\.")
    numbers = set()
    for key in weights:
        match = numbered.match(key)
        if match:
            numbers.add(int(match[1]))
    names = [f"{prefix}.{number}" for number in sorted(numbers)] or [prefix]
    act = getattr(functional, activation)

    def run(x: "Tensor") -> "Tensor":
        for name in names:
            weight = weights[f"{name}.weight"]
            bias = weights.get(f"{name}.bias")
            if f"{name}.running_mean" in weights:
                mean = weights[f"{name}.running_mean"]
                variance = weights[f"{name}.running_var"]
                x = functional.batch_norm(x, mean, variance, weight, bias)
            else:
                x = functional.linear(x, weight, bias)
                if name != names[-1]:
                    x = act(x)
        return x

    return run


def _stack(
    prefix: str, activation: str = "relu"
) -> Callable[[Weights, Settings], Function]:
    """A head that is one stack of layers, read at one token."""

    def make(weights: Weights, _: Settings) -> Function:
        run = layers(weights, prefix, activation)
        return lambda states: run(states[:, 0])

    return make


def _good_share(prefix: str, good: int) -> Callable[[Weights, Settings], Function]:
    """A process reward: the probability of label `good` of two."""

    def make(weights: Weights, _: Settings) -> Function:
        run = layers(weights, prefix, "relu")
        return lambda states: run(states[:, 0]).softmax(1)[:, [good]]

    return make


def _value_share(weights: Weights, _: Settings) -> Function:
    """Skywork-o1-PRM: a value, made a probability."""
    run = layers(weights, "v_head.summary", "relu")
    return lambda states: run(states[:, 0]).sigmoid()


def _normalized(weights: Weights, settings: Settings) -> Function:
    """Beaver: a linear score, normalised where the configuration says so; a cost counts
    against the answer.
    """
    kind = settings.get("score_type", "reward")
    run = layers(weights, "score_head", "relu")

    def moment(name: str, scores: "Tensor") -> "Tensor":
        key = f"normalizer.{name}"
        return weights[key] if key in weights else scores.new_tensor(settings[name])

    def score(states: "Tensor") -> "Tensor":
        scores = run(states[:, 0])
        if settings.get("do_normalize", False):
            if kind == "reward":
                scores = scores - moment("mean", scores)
            if kind in {"reward", "cost"}:
                scores = scores / (moment("var", scores).sqrt() + 1e-8)
        return -scores if kind == "cost" else scores

    return score


def _gated(weights: Weights, settings: Settings) -> Function:
    """ArmoRM: objectives at the answer's end, mixed by a softmax gate on the prompt.
    QRM: each by its mean quantile.
    """
    import torch

    n_quantiles = int(settings.get("num_quantiles", 1))
    gate = layers(weights, "gating.layers", "relu")
    scale = weights.get("gating.logit_scale", torch.ones(1))
    transform = weights.get("reward_transform_matrix")
    # QRM-Gemma-2 has no matrix, and its code divides by 1 where the configuration says
    # nothing.
    usual_temperature = 1 if transform is None else 10
    temperature = float(settings.get("gating_temperature", usual_temperature))

    def score(states: "Tensor") -> "Tensor":
        turn_end = states[:, 0]
        last = states[:, 1]

        objectives = last @ weights["regression_layer.weight"].T
        objectives = objectives.reshape(len(last), -1, n_quantiles).mean(2)
        if transform is not None:
            objectives = objectives @ transform

        mix = torch.softmax(gate(turn_end) / temperature, 1)
        mix = mix * scale.to(last.device)[0]
        return (mix * objectives).sum(1, keepdim=True)

    return score


def _attribute_means(weights: Weights, _: Settings) -> Function:
    """URM: the first half of the outputs are attribute means; they are mixed by a gate,
    or averaged without one.
    """
    run = layers(weights, "score", "relu")
    gate = None
    if any(key.startswith("weights.fc.") for key in weights):
        gate = layers(weights, "weights.fc", "selu")

    def score(states: "Tensor") -> "Tensor":
        outputs = run(states[:, 0])
        means = outputs[:, : outputs.shape[1] // 2]
        if gate is None:
            return means.mean(1, keepdim=True)
        return (gate(states[:, 0]) * means).sum(1, keepdim=True)

    return score


def _linear(
    name: str,
    models: str,
    part: str,
    extra: tuple[str, ...] = (),
    end_tokens: tuple[EndToken, ...] = (),
) -> Head:
    """A head that is the linear layer `part`, with or without a bias."""
    return Head(
        name,
        models,
        (f"{part}.weight",),
        _normalized if extra else _stack(part),
        extra=(f"{part}.bias", *extra),
        runner=_TWICE,
        end_tokens=end_tokens,
    )


_LABELS = Head(
    "labels",
    "Skywork, FsfairX, OffsetBias, RM-Mistral, tulu, OpenAssistant DeBERTa, SteerLM "
    "exports",
    (),
    None,
)
_GATING = ("regression_layer.weight", "gating.layers")
_GATING_EXTRA = ("gating.logit_scale", "reward_transform_matrix")

# Conversations of process reward models: Skywork's, and Math-Shepherd's.
_BEGUN_LINES = (
    "{{ bos_token }}{% for m in messages %}{{ m['content'] + '\n' }}{% endfor %}"
)
_SPACED = (
    "{% for m in messages %}{{ m['content'] }}"
    "{% if add_generation_prompt or not loop.last %}{{ ' ' }}{% endif %}{% endfor %}"
)

# Every head, the more particular first.
HEADS: tuple[Head, ...] = (
    Head(
        "quantiles",
        "QRM",
        _GATING,
        _gated,
        (Read.GATE, Read.LAST),
        _GATING_EXTRA,
        setting="num_quantiles",
    ),
    Head(
        "gating",
        "ArmoRM",
        _GATING,
        _gated,
        (Read.GATE, Read.LAST),
        _GATING_EXTRA,
        runner=_TWICE,
    ),
    Head(
        "token",
        "outcome models saved as token classifiers",
        ("score.weight",),
        _stack("score"),
        extra=("score.bias",),
        architecture="ForTokenClassification",
    ),
    Head(
        "token_classifier",
        "the same with BERT's and GPT-2's name for the layer",
        ("classifier.weight",),
        _stack("classifier"),
        extra=("classifier.bias",),
        architecture="ForTokenClassification",
    ),
    Head(
        "steps",
        "Qwen2.5-Math-PRM",
        ("score.0", "score.2"),
        _good_share("score", 1),
        (Read.STEPS,),
        architecture="ForProcessReward",
        steps=Steps("<extra_0>"),
    ),
    Head(
        "step_values",
        "Skywork-o1-Open-PRM",
        ("v_head.summary",),
        _value_share,
        (Read.STEPS,),
        architecture="ForPrm",
        steps=Steps("\n", _BEGUN_LINES, is_apart=True),
    ),
    Head(
        "step_labels",
        "process models of trl's PRMTrainer",
        ("score.weight",),
        _good_share("score", 1),
        (Read.STEPS,),
        ("score.bias",),
        explicit_only=True,
        steps=Steps("\n", "raw", is_apart=True),
    ),
    Head(
        "step_verdicts",
        "Math-Shepherd",
        ("lm_head.weight",),
        _good_share("lm_head", 0),
        (Read.STEPS,),
        explicit_only=True,
        rows=2,
        steps=Steps(" ки\n", _SPACED, verdicts=("+", "-")),
    ),
    Head("attributes", "URM", ("score", "weights.fc"), _attribute_means),
    Head(
        "attribute_means",
        "URM without its gate",
        ("score",),
        _attribute_means,
        explicit_only=True,
    ),
    Head(
        "value_stack",
        "GRM",
        ("v_head.summary",),
        _stack("v_head.summary"),
        runner=_TWICE,
    ),
    _linear(
        "value",
        "InternLM2-reward, Starling, Athene",
        "v_head",
        end_tokens=(
            # InternLM's runner adds no special tokens, as the model's own code does.
            EndToken(setting="reward_token_id", runner=None),
            EndToken(architecture="Athene"),
        ),
    ),
    _linear("regression", "Eurus-RM, UltraRM", "regression_head"),
    _linear("value_head", "OpenRLHF", "value_head"),
    _linear("reward_head", "OpenRLHF", "reward_head"),
    _linear("score_head", "Beaver", "score_head", extra=("normalizer",)),
    Head("score_stack", "INF-ORM, WorldPM", ("score.0", "score.2"), _stack("score")),
    Head(
        "first_logit",
        "Nemotron-70B-Reward-HF",
        ("lm_head.weight",),
        _stack("lm_head"),
        explicit_only=True,
        rows=1,
    ),
    _LABELS,
)


@cache
def heads_by_name() -> dict[str, Head]:
    """Every head: those of this table, then those of installed packages."""
    heads = {head.name: head for head in HEADS}

    def add(_: str, head: object) -> None:
        if not isinstance(head, Head) or head.name in heads:
            raise TypeError("no Head, or its name is taken")
        heads[head.name] = head

    load_plug_ins(GROUP, add)
    return heads
