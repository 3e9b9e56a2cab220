"""The table of reward heads: which weights of a checkpoint make one, where it is read,
and what it computes.

A row is found by its keys in the checkpoint, never by the model's name. Every head runs
in float32 on the few hidden states it reads: in bfloat16 it would merge distinct scores
into ties.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from torch import Tensor

Weights = Mapping[str, "Tensor"]
Settings = Mapping[str, Any]
# Hidden states (texts, reads, hidden) in float32 to outputs (texts, labels).
Function = Callable[["Tensor"], "Tensor"]


@dataclass(frozen=True)
class Head:
    """One kind of head.

    `parts`: modules or weights that the checkpoint must have. `extra`: what it may have
    besides. `reads`: where the head looks, "last" (token of the text) or "header" (the
    token that closes the user's turn before the answer's header, such as `<|eot_id|>`
    or Gemma's `<end_of_turn>`, which a line break follows). `make`: from weights and
    configuration to the function; None stands for the class of transformers itself.
    `explicit_only`: used only if `head=` names it. `bos_twice`: RewardBench's runner of
    these models writes a second beginning token where the template writes one
    (`convention="reward-bench"`).
    """

    name: str
    models: str
    parts: tuple[str, ...]
    make: Callable[[Weights, Settings], Function] | None
    reads: tuple[str, ...] = ("last",)
    extra: tuple[str, ...] = ()
    setting: str | None = None
    explicit_only: bool = False
    bos_twice: bool = False
    rows: int | None = None

    def keys(self, checkpoint: Iterable[str]) -> list[str]:
        """The weights of this head among the checkpoint's keys; empty where a part is
        missing.
        """
        parts = (*self.parts, *self.extra)
        stored = {
            part: [key for key in checkpoint if f"{key}.".startswith(f"{part}.")]
            for part in parts
        }
        return (
            []
            if not all(stored[part] for part in self.parts)
            else sorted(set().union(*stored.values()))
        )


def choose(keys: Iterable[str], settings: Settings, name: str | None = None) -> Head:
    """The row of HEADS for a checkpoint with these keys and configuration, or the one
    called `name`.

    Raises DataError for another name, and for a named head whose weights are not there.

    >>> choose(["model.norm.weight", "v_head.weight"], {}).name
    'value'
    """
    keys = list(keys)
    if name is None:
        candidates = (
            head
            for head in HEADS
            if not head.explicit_only and (head.setting or "") in {"", *settings}
        )
        return next((head for head in candidates if head.keys(keys)), _LABELS)
    heads = {head.name: head for head in HEADS}
    if name not in heads:
        raise DataError(f"head={name!r}; {nearest(name, list(heads))}")
    if not heads[name].keys(keys) and heads[name] is not _LABELS:
        parts = ", ".join(heads[name].parts)
        raise DataError(
            f"head={name!r} needs the weights {parts}; leave head out to find the head by its keys"
        )
    return heads[name]


def layers(
    weights: Weights, prefix: str, activation: str
) -> Callable[["Tensor"], "Tensor"]:
    """The stack of layers under `prefix`, in the order of their numbers, or the one
    linear layer of that name.

    `activation` (of torch.nn.functional) follows every linear layer but the last. A
    layer with running statistics is a batch norm in evaluation mode.
    """
    from torch.nn import functional

    numbers = sorted(
        {
            int(n)
            for key in weights
            for n in re.findall(rf"^{re.escape(prefix)}\.(\d+)\.", key)
        }
    )
    names = [f"{prefix}.{n}" for n in numbers] or [prefix]
    act = getattr(functional, activation)

    def run(x: "Tensor") -> "Tensor":
        for name in names:
            if f"{name}.running_mean" in weights:
                mean, variance = (
                    weights[f"{name}.running_mean"],
                    weights[f"{name}.running_var"],
                )
                x = functional.batch_norm(
                    x,
                    mean,
                    variance,
                    weights[f"{name}.weight"],
                    weights[f"{name}.bias"],
                )
            else:
                x = functional.linear(
                    x, weights[f"{name}.weight"], weights.get(f"{name}.bias")
                )
                x = x if name == names[-1] else act(x)
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


def _normalized(weights: Weights, settings: Settings) -> Function:
    """Beaver: a linear score, normalised where the configuration says so; a cost counts
    against the answer.
    """
    kind = settings.get("score_type", "reward")
    run = layers(weights, "score_head", "relu")

    def score(states: "Tensor") -> "Tensor":
        scores = run(states[:, 0])
        if settings.get("do_normalize", False):
            mean, variance = (
                weights[key]
                if (key := f"normalizer.{moment}") in weights
                else scores.new_tensor(settings[moment])
                for moment in ("mean", "var")
            )
            scores = scores - mean if kind == "reward" else scores
            scores = (
                scores / (variance.sqrt() + 1e-8)
                if kind in {"reward", "cost"}
                else scores
            )
        return -scores if kind == "cost" else scores

    return score


def _gated(weights: Weights, settings: Settings) -> Function:
    """ArmoRM: objectives at the answer's end, mixed by a softmax gate on the prompt.
    QRM: each by its mean quantile.
    """
    import torch

    quantiles = int(settings.get("num_quantiles", 1))
    gate = layers(weights, "gating.layers", "relu")
    scale = weights.get("gating.logit_scale", torch.ones(1))
    transform = weights.get("reward_transform_matrix")
    # QRM-Gemma-2 has no matrix, and its code divides by 1 where the configuration says
    # nothing.
    temperature = float(
        settings.get("gating_temperature", 1 if transform is None else 10)
    )

    def score(states: "Tensor") -> "Tensor":
        header, last = states[:, 0], states[:, 1]
        objectives = last @ weights["regression_layer.weight"].T
        objectives = objectives.reshape(len(last), -1, quantiles).mean(2)
        objectives = objectives if transform is None else objectives @ transform
        mix = torch.softmax(gate(header) / temperature, 1) * scale.to(last.device)[0]
        return (mix * objectives).sum(1, keepdim=True)

    return score


def _distribution(weights: Weights, settings: Settings) -> Function:
    """LDL: ten-step distributions mixed by a gate; the score is the expectation of the
    mixture over 0 to 1.
    """
    import torch

    regression = layers(weights, "regression_layer.network", "leaky_relu")
    gate = layers(weights, "gating_layer.network", "leaky_relu")

    def score(states: "Tensor") -> "Tensor":
        last = states[:, 0]
        shares = torch.softmax(regression(last).reshape(len(last), -1, 10), 2)
        mix = gate(last)
        if settings.get("softmax", False):
            mix = torch.softmax(mix / float(settings.get("temperature", 1.0)), 1)
        total = (mix[:, None] @ shares)[:, 0]
        return (total * torch.linspace(0, 1, 10, device=total.device)).sum(
            1, keepdim=True
        )

    return score


def _attribute_means(weights: Weights, _: Settings) -> Function:
    """URM: the first half of the outputs are attribute means; they are mixed by a gate,
    or averaged without one.
    """
    name = next(
        key.removesuffix(".weight")
        for key in weights
        if key.startswith("score.") and key.endswith(".weight")
    )
    run = layers(weights, name, "relu")
    gate = (
        layers(weights, "weights.fc", "selu")
        if any(key.startswith("weights.fc.") for key in weights)
        else None
    )

    def score(states: "Tensor") -> "Tensor":
        outputs = run(states[:, 0])
        means = outputs[:, : outputs.shape[1] // 2]
        mixed = means.mean(1) if gate is None else (gate(states[:, 0]) * means).sum(1)
        return mixed[:, None]

    return score


def _projected(weights: Weights, settings: Settings) -> Function:
    """OASST: one linear layer on the last token."""
    if settings["pooling"] != "last":
        raise DataError(
            f"the configuration's pooling={settings['pooling']!r} is not known; allowed: 'last'"
        )
    return _stack("out_proj")(weights, settings)


def _linear(name: str, models: str, part: str, extra: tuple[str, ...] = ()) -> Head:
    """A head that is the linear layer `part`, with or without a bias."""
    make = _normalized if extra else _stack(part)
    return Head(
        name,
        models,
        (f"{part}.weight",),
        make,
        extra=(f"{part}.bias", *extra),
        bos_twice=True,
    )


_LABELS = Head(
    "labels",
    "Skywork, FsfairX, OffsetBias, RM-Mistral, tulu, OpenAssistant DeBERTa, SteerLM exports",
    (),
    None,
)
_GATING = ("regression_layer.weight", "gating.layers")
_GATING_EXTRA = ("gating.logit_scale", "reward_transform_matrix")

# Every head, the more particular first.
HEADS: tuple[Head, ...] = (
    Head(
        "quantiles",
        "QRM",
        _GATING,
        _gated,
        ("header", "last"),
        _GATING_EXTRA,
        setting="num_quantiles",
    ),
    Head(
        "gating",
        "ArmoRM",
        _GATING,
        _gated,
        ("header", "last"),
        _GATING_EXTRA,
        bos_twice=True,
    ),
    Head(
        "distribution",
        "LDL-Reward",
        ("regression_layer.network", "gating_layer.network"),
        _distribution,
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
        bos_twice=True,
    ),
    _linear("value", "InternLM2-reward, Starling, Athene", "v_head"),
    _linear("regression", "Eurus-RM, UltraRM", "regression_head"),
    _linear("score_head", "Beaver", "score_head", extra=("normalizer",)),
    Head(
        "projection",
        "OASST Pythia",
        ("out_proj.weight",),
        _projected,
        extra=("out_proj.bias",),
        setting="pooling",
    ),
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
