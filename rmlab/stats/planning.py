"""How large a difference a comparison would find, and how many prompts it takes."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from scipy.special import ndtri, stdtrit
from scipy.stats import binom

from rmlab import tables
from rmlab.baselines import is_baseline
from rmlab.benchmarks.prepare import prepare
from rmlab.estimation.clustered import MIN_PROMPTS
from rmlab.estimation.difference import differences
from rmlab.estimation.estimate import estimate
from rmlab.estimation.weights import Average, overall_weights
from rmlab.stats.comparing import add_hint, select_models

_MIN_CLUSTERS, _MIN_DIFFERING = 30, 6  # fewer say too little of how two models differ
_ROUNDING = 1e-12
_UNLIKELY = 1e-13  # numbers of differing prompts beyond this tail are left out
_BEYOND = "more than models that disagree on so few prompts can differ by; use plan"
_LOOK_AHEAD = 30  # prompts; the power was seen to fall again within 3


def power(
    table: pd.DataFrame,
    a: str,
    b: str | None = None,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    adjust: Literal["none", "holm"] = "none",
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    cluster: str | None = None,
    **options: str,
) -> pd.DataFrame:
    """The difference that `compare` finds with probability `power`.

    Parameters
    ----------
    table, a, average, ties, common, cluster, **options
        As in `rmlab.compare`.
    b : str, optional
        The other model; default: each of the others.
    power : float
        Probability that the difference is found.
    alpha : float
        Level of the two-sided test.
    adjust : {"none", "holm"}
        "none" for one comparison that was named beforehand; "holm" plans at alpha over
        the number of all pairs of models, the first step of Holm's method.

    Returns
    -------
    DataFrame
        One row per pair of models: model_a, model_b, difference (in this table),
        agreement (share of prompts on which both earn the same), n_prompts, detectable,
        alpha (of the test), adjust, average, reason. `detectable` is (z(1 - alpha / 2)
        + z(power)) times the standard error of the difference; it holds for two models
        that disagree on as many prompts as these. Fewer than 30 prompts, or 6 on which
        they differ, give a reason instead; so does a `detectable` beyond what such
        models can differ by. Where only the agreement is known, use `plan`.
    """
    _check_shares(power=power, alpha=alpha)
    tables.check_option("adjust", adjust, ("none", "holm"))
    select_models(table, a, b)
    prepared = prepare(
        table, average, ties, common, options, cluster=cluster, min_models=2
    )
    names = prepared.items.models
    result = estimate(
        prepared.items, overall_weights(prepared.items, prepared.parts), contrasts=[0]
    )
    second = np.array(
        [place for place, name in enumerate(names) if name != a and b in (None, name)]
    )
    first = np.full(len(second), names.index(a))
    difference, sums = differences(result, first, second), result.clusters[0]
    n_prompts = ((sums.share[first] > 0) | (sums.share[second] > 0)).sum(axis=1)
    n_differing = (
        np.abs(sums.contribution[first] - sums.contribution[second]) > _ROUNDING
    ).sum(axis=1)
    # As in `compare_all`: over all pairs, or over those of models where no baseline is
    # in the pair.
    is_blind, has_error = (
        np.array([is_baseline(name) for name in names]),
        ~np.isnan(result.se[:, 0]),
    )
    n = np.where(
        is_blind[first] | is_blind[second],
        has_error.sum(),
        (has_error & ~is_blind).sum(),
    )
    level = alpha / (
        np.maximum(n * (n - 1) / 2, 1.0) if adjust == "holm" else np.ones(len(second))
    )
    reason = add_hint(
        difference.reason, np.where(difference.reason == "", 0.0, np.nan)
    ).to_numpy(object)
    few_prompts = np.where(
        n_prompts < _MIN_CLUSTERS, f"fewer than {_MIN_CLUSTERS} prompts; use plan", ""
    )
    few_differ = np.where(
        n_differing < _MIN_DIFFERING,
        f"fewer than {_MIN_DIFFERING} prompts differ; use plan",
        "",
    )
    reason = np.where(
        reason != "", reason, np.where(few_prompts != "", few_prompts, few_differ)
    )
    detectable = (ndtri(1 - level / 2) + ndtri(power)) * difference.se
    # All the clusters that differ, were they to favour the same model.
    largest = np.abs(sums.contribution[first] - sums.contribution[second]).sum(axis=1)
    reason = np.where((reason == "") & (detectable > largest), _BEYOND, reason)
    detectable = np.where(reason == "", detectable, np.nan)
    frame = pd.DataFrame(
        {
            "model_a": a,
            "model_b": [names[place] for place in second],
            "difference": difference.value,
        }
    )
    frame = frame.assign(
        agreement=1 - n_differing / n_prompts,
        n_prompts=n_prompts,
        detectable=detectable,
        alpha=level,
    )
    frame = frame.assign(adjust=adjust, average=result.label, reason=reason)
    return frame.astype(
        dict.fromkeys(("model_a", "model_b", "adjust", "average", "reason"), "str")
    )


def plan(
    difference: float | Sequence[float],
    *,
    agreement: float | Sequence[float] = (0.7, 0.8, 0.9),
    power: float = 0.8,
    alpha: float = 0.05,
    comparisons: int = 1,
) -> pd.DataFrame:
    """Number of prompts that find a difference, with one comparison a prompt.

    Parameters
    ----------
    difference : float or sequence of float
        Differences of accuracy to find.
    agreement : float or sequence of float
        Shares of prompts that both models win or both lose. Two good models agree on 85
        to 95 %; `compare` prints it.
    power, alpha : float
        Probability to find the difference, and level of the test.
    comparisons : int
        Number of comparisons planned; each is tested at alpha over it, Holm's first
        step.

    Returns
    -------
    DataFrame
        One row per difference and agreement: difference, agreement, n_prompts (the
        fewest from which on the test of `compare` has the power; missing where a
        difference cannot be, as it is at most 1 - agreement), power (there), alpha.
        Several comparisons a prompt are worth less than as many prompts.

    Examples
    --------
    >>> plan(0.02, agreement=[0.9, 0.95])[["agreement", "n_prompts"]].to_numpy().tolist()
    [[0.9, 1957], [0.95, 978]]
    """
    _check_shares(power=power, alpha=alpha)
    if not comparisons >= 1:
        raise ValueError(f"comparisons: {comparisons!r}; allowed: 1 or more")
    level = alpha / comparisons
    rows = []
    for delta in map(float, np.atleast_1d(difference)):
        for share in map(float, np.atleast_1d(agreement)):
            if not 0 < share < 1 or not 0 < abs(delta) < 1:
                raise ValueError(
                    f"difference, agreement: {delta!r}, {share!r}; allowed: between 0 and 1"
                )
            n = (
                _fewest_prompts(abs(delta), share, power, level)
                if abs(delta) <= 1 - share + _ROUNDING
                else pd.NA
            )
            reached = (
                exact_power(n, abs(delta), share, level)
                if isinstance(n, int)
                else np.nan
            )
            rows.append(
                {
                    "difference": delta,
                    "agreement": share,
                    "n_prompts": n,
                    "power": reached,
                    "alpha": level,
                }
            )
    return pd.DataFrame(rows).astype({"n_prompts": "Int64"})


def exact_power(n: int, difference: float, agreement: float, alpha: float) -> float:
    """Probability that the test of `compare` rejects for n prompts with one comparison
    each.

    Summed over how many prompts differ, and over how many of these each model wins.
    """
    if n < MIN_PROMPTS:
        return 0.0
    disagreement = 1 - agreement
    fewest = binom.ppf(_UNLIKELY, n, disagreement)
    most = binom.isf(_UNLIKELY, n, disagreement)
    m = np.arange(fewest, most + 1)

    # `adjust` for one stratum of n equal clusters, of which m differ, solved for the
    # lead at which |center| = t * se.
    t = stdtrit(n - 1, 1 - alpha / 2)
    squared_lead = (
        t**2 * (n * m / (n - 1) + 2) / (1 + t**2 * (1 / (n - 1) - 2 / (n + 2) ** 2))
    )
    # The most that the worse model may win of m; -1: with so few differing prompts
    # nothing is significant.
    limit = np.maximum(np.ceil((m - np.sqrt(squared_lead)) / 2) - 1, -1)

    won = min((disagreement + difference) / 2 / disagreement, 1.0)
    rejected = binom.cdf(limit, m, won) + binom.cdf(
        limit, m, 1 - won
    )  # the wrong way counts too
    return float((binom.pmf(m, n, disagreement) * rejected).sum())


def _fewest_prompts(
    difference: float, agreement: float, power: float, alpha: float
) -> int:
    """Fewest prompts from which on the power is reached."""

    def power_of(n: int) -> float:
        return exact_power(n, difference, agreement, alpha)

    high = 8
    while power_of(high) < power:
        high *= 2
    n = bisect_left(range(high), power, lo=high // 2 + 1, key=power_of)
    # The test is discrete, so that a prompt more may lower the power.
    too_few = [later for later in range(n, n + _LOOK_AHEAD) if power_of(later) < power]
    return too_few[-1] + 1 if too_few else n


def _check_shares(**shares: float) -> None:
    for argument, value in shares.items():
        if not 0 < value < 1:
            raise ValueError(
                f"{argument}: {value!r}; allowed: a probability between 0 and 1"
            )
