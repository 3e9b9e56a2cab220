"""How large a difference the test would find, and how many prompts it takes: by running it on simulated tables."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.items.columns import allowed
from rmlab.items.weighting import Average
from rmlab.metrics.estimate import Estimate, estimate
from rmlab.metrics.numbers import overall
from rmlab.stats.comparing import WAY_OUT, read_models
from rmlab.stats.resampling import Pair, draw, pair_of, reachable, tilt
from rmlab.stats.simultaneous import chance_of, largest_quantile
from rmlab.tables import DataError

__all__ = ["plan", "power"]

Adjust = Literal["none", "holm", "all pairs"]

# Of five differing prompts McNemar's p is 2 / 2^5 = 0.06 at best: from so few the test rejects nothing.
_MIN_CLUSTERS, _MIN_DIFFERING = 30, 6
_STEPS = 4  # of the search for `detectable`
_SHORT = 0.03  # of the power asked for: about three Monte-Carlo errors at 80 % and 2,000 draws
_COLUMNS = [
    "model_a", "model_b", "difference", "agreement", "n_prompts", "detectable", "detectable_low", "detectable_high",
    "power", "power_error", "alpha", "adjust", "average", "reason",
]  # fmt: skip


def power(
    table: pd.DataFrame,
    a: str,
    b: str | None = None,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    adjust: Adjust = "none",
    draws: int = 2000,
    seed: int = 0,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    **options: str,
) -> pd.DataFrame:
    """The difference that `compare` finds with probability `power`: a row for `a` against `b`, or each of the others.

    Columns: model_a, model_b, difference (the one that was found), agreement (share of prompts on which both earn the
    same), n_prompts, detectable, detectable_low and detectable_high (see below), power and power_error (share of
    `draws` simulated tables in which `detectable` was found, and its Monte-Carlo error; with a t test on few prompts
    a little above the `power` asked for, which is what the average over tables comes to), alpha (that the test was
    run at), adjust, average, reason (why there is no number).

    The prompts of the table are drawn anew; among those on which the two differ, the ones that speak for `a` come more
    often, until the expected difference is `detectable`; the share on which they agree stays. On each table exactly the
    test of `compare` is run, with its exact branch and its degrees of freedom.
    `adjust`: "none" for one comparison that was named beforehand; "holm" plans at alpha over the number of all pairs of
    models (the true power of Holm lies between that at alpha / m and at alpha); "all pairs" at the level of `rank`'s
    letters and of p_adjusted. How far two models differ from prompt to prompt is itself estimated from this table:
    detectable_low and detectable_high are 95 % limits (percentiles of tables drawn anew) of the difference that has the
    power truly; they hold it in 93 to 98 % of tables (benchmarks/README.md). Fewer than 30
    prompts, or 6 on which the two differ, say too little of that, and give a reason. Where only the agreement is known:
    `plan`.
    """
    _check(power=power, alpha=alpha)
    allowed("adjust", adjust, ("none", "holm", "all pairs"))
    reading = read_models(table, average, ties, common, options)
    names = reading.items.models
    for argument, name in (("a", a), ("b", b)):
        if name is not None and name not in names:
            raise DataError(f"{argument}: no model {name!r} in table; {tables.nearest(name, names)}")
    if a == b:
        raise DataError(f"a, b: both are {a!r}; power needs two models")
    one = estimate(reading.items, overall(reading))
    level = _level(one, alpha, adjust)
    rows = []
    for other in [b] if b is not None else [name for name in names if name != a]:
        first, second = names.index(a), names.index(other)
        row = {"model_a": a, "model_b": other, "difference": one.value[first] - one.value[second], "alpha": level}
        found = _detectable(one, first, second, power, level, draws, seed)
        rows.append(row | found | {"adjust": adjust, "average": reading.weighting.label})
    frame = pd.DataFrame(rows)[_COLUMNS]
    return frame.astype(dict.fromkeys(("model_a", "model_b", "adjust", "average", "reason"), "str"))


def plan(
    difference: float | Sequence[float],
    *,
    agreement: float | Sequence[float] = (0.7, 0.8, 0.9),
    power: float = 0.8,
    alpha: float = 0.05,
    comparisons: int = 1,
) -> pd.DataFrame:
    """How many prompts find a difference: one row per difference and planned agreement, one comparison a prompt.

    Columns: difference, agreement (share of prompts that both models win or both lose), n_prompts (the fewest from
    which on McNemar's exact test finds the difference with probability `power`), power (there), alpha (tested at:
    `alpha` over `comparisons`, as Holm's first step). Nothing is simulated: the chances are summed. n_prompts is
    missing where a difference cannot be, as it can be no larger than 1 - agreement. Two good models agree on 85 to 95 %
    of prompts; `compare` prints it. Several comparisons a prompt are worth less than as many prompts.

    >>> plan(0.02, agreement=[0.9, 0.95])[["agreement", "n_prompts"]].to_numpy().tolist()
    [[0.9, 2043], [0.95, 1035]]
    """
    _check(power=power, alpha=alpha)
    level = alpha / comparisons
    rows = []
    for delta in np.atleast_1d(difference):
        for same in np.atleast_1d(agreement):
            if not 0 < same < 1 or not 0 < abs(delta) < 1:
                raise ValueError(f"difference, agreement: {delta!r}, {same!r}; allowed: between 0 and 1")
            n = _fewest(abs(float(delta)), float(same), power, level) if abs(delta) <= 1 - same else pd.NA
            reached = exact_power(n, abs(float(delta)), float(same), level) if isinstance(n, int) else np.nan
            rows.append({"difference": delta, "agreement": same, "n_prompts": n, "power": reached, "alpha": level})
    return pd.DataFrame(rows).astype({"n_prompts": "Int64"})


def exact_power(n: int, difference: float, agreement: float, alpha: float) -> float:
    """Probability that McNemar's exact test rejects, for n prompts: the sum over how many of them differ."""
    from scipy.stats import binom

    apart = 1 - agreement  # share of prompts that one of the two wins alone
    m = np.arange(n + 1)
    chance = binom.pmf(m, n, apart)
    kept = chance > 1e-12  # what this leaves out sums to n * 1e-12 at most
    m, chance = m[kept], chance[kept]
    edge = binom.ppf(alpha / 2, m, 0.5)  # the smaller count must not be above: the largest whose tail is small enough
    # ppf gives the first count whose tail reaches alpha / 2; the test asks for less than alpha, so one less may be
    # right. -1: of so few differing prompts no outcome is significant.
    edge = np.where(2 * binom.cdf(edge, m, 0.5) < alpha, edge, edge - 1)
    share = (apart + difference) / 2 / apart  # of differing prompts, those that the better model wins
    # Two-sided: a significant difference the wrong way is a rejection too.
    found = binom.cdf(edge, m, share) + binom.cdf(edge, m, 1 - share)
    return float((chance * np.where(edge >= 0, found, 0.0)).sum())


def _fewest(difference: float, agreement: float, power: float, alpha: float) -> int:
    """Fewest prompts from which on the power is never below: the test is discrete, so power has saw-teeth in n."""
    high = 8
    while exact_power(high, difference, agreement, alpha) < power:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        enough = exact_power(middle, difference, agreement, alpha) >= power
        low, high = (low, middle) if enough else (middle, high)
    return high


def _detectable(
    one: Estimate, first: int, second: int, power: float, alpha: float, draws: int, seed: int
) -> dict[str, object]:
    """The columns of `power` that depend on the pair."""
    from scipy.special import ndtri

    pair = pair_of(one, first, second)
    differing = int((np.abs(pair.gain) > 1e-12).sum())
    found: dict[str, object] = {"agreement": 1 - differing / max(len(pair.gain), 1), "n_prompts": len(pair.gain)}
    nothing = dict.fromkeys(("detectable", "detectable_low", "detectable_high", "power", "power_error"), np.nan)
    reason = _reason(one, first, second, pair, differing)
    if reason:
        return found | nothing | {"reason": reason}
    # Tables like this one without a difference tell how large the error is, and how much it varies.
    now = draw(pair, tilt(pair, 0.0), draws=draws, seed=seed)
    # First guess: a normal test finds z(1 - alpha / 2) + z(power) errors.
    se, reach = float(np.median(now.se)), float(ndtri(1 - alpha / 2) + ndtri(power))
    aim = power if pair.exact else _on_average(power, reach * float(now.se.std() / now.se.mean()))
    delta, share = reach * se, 0.0
    for _ in range(_STEPS):  # the power curve is nearly normal, so one step in z goes most of the way
        # Short of the largest difference: there draws hold hardly anything but the prompts that gain most.
        delta = min(delta, reachable(pair) * 0.98)
        share = float((draw(pair, tilt(pair, delta), draws=draws, seed=seed).p < alpha).mean())
        # In units of z; a share of 0 or 1 would be infinitely far.
        delta += float(ndtri(aim) - ndtri(np.clip(share, 1 / draws, 1 - 1 / draws))) * se
    delta = min(delta, reachable(pair) * 0.98)
    share = float((draw(pair, tilt(pair, delta), draws=draws, seed=seed).p < alpha).mean())
    if share < power - _SHORT:
        return found | nothing | {"reason": "no difference that these prompts can show reaches that power"}
    # `detectable` goes with the error, so its limits are those of the error.
    low, high = (delta * float(q) / se for q in np.quantile(now.se, (0.025, 0.975)))
    numbers = {"detectable": delta, "detectable_low": low, "detectable_high": high, "power": share}
    return found | numbers | {"power_error": float(np.sqrt(share * (1 - share) / draws)), "reason": ""}


def _on_average(power: float, spread: float) -> float:
    """The power to aim for in one table so that the average over tables is `power`.

    A table knows its error, and so the power at a difference, only up to `spread` on the scale of z. The power curve
    bends down there: a table that takes the error for too small loses more than one that takes it for too large gains.
    """
    from scipy.special import ndtr, ndtri

    return float(ndtr(ndtri(power) * np.sqrt(1 + spread**2)))


def _reason(one: Estimate, first: int, second: int, pair: Pair, differing: int) -> str:
    said = one.reason[first] or one.reason[second]
    if said:
        return f"{said}; {WAY_OUT}"
    if len(pair.gain) < _MIN_CLUSTERS:
        return f"{len(pair.gain)} prompts: fewer than {_MIN_CLUSTERS} say too little of how models differ; use plan"
    if differing < _MIN_DIFFERING:
        return f"{differing} prompts differ: fewer than {_MIN_DIFFERING} say too little of how; use plan"
    return ""


def _level(one: Estimate, alpha: float, adjust: Adjust) -> float:
    """The level at which a single test is run, so that the family holds alpha."""
    from scipy.special import ndtr

    known = np.flatnonzero(~np.isnan(one.se))
    pairs = max(len(known) * (len(known) - 1) // 2, 1)  # models without an error are in no family
    if adjust == "none" or pairs == 1:
        return alpha
    if adjust == "holm":
        return alpha / pairs
    chance = chance_of(one.influence[known])
    return float(min(alpha, 2 * ndtr(-largest_quantile(chance, 1 - alpha))))


def _check(**shares: float) -> None:
    for argument, value in shares.items():
        if not 0 < value < 1:
            raise ValueError(f"{argument}: {value!r}; allowed: a probability between 0 and 1")
