"""How large a difference a comparison would find, and how many prompts it takes."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit
from scipy.stats import binom

from rmlab import tables
from rmlab.benchmarks.prepare import prepare
from rmlab.estimation.clustered import MIN_PROMPTS, ROUNDING, ClusterSums
from rmlab.estimation.difference import detectable_differences, paired_differences
from rmlab.estimation.estimate import Estimate, estimate
from rmlab.estimation.weights import Average, overall_weights
from rmlab.stats.comparing import add_hint, find_baselines, select_models
from rmlab.tables import FloatArray, IntArray

# Fewer say too little of how two models differ.
_MIN_CLUSTERS = 30
_MIN_DIFFERING = 6
_FEW_CLUSTERS = f"fewer than {_MIN_CLUSTERS} prompts; use plan"
_FEW_DIFFERING = f"fewer than {_MIN_DIFFERING} prompts differ; use plan"
_BEYOND = "more than models that disagree on so few prompts can differ by; use plan"

_UNLIKELY = 1e-13  # numbers of differing prompts beyond this tail are left out
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
    table, average, ties, common, cluster, **options
        As in `rmlab.compare`.
    a : str
        One model.
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
        One row per pair of models, with the columns

        - model_a, model_b;
        - difference: in this table;
        - agreement: share of prompts on which both earn the same;
        - n_prompts;
        - detectable: the difference that is found with this power between two models
          that disagree on as many prompts as these;
        - alpha: of the test;
        - adjust, average;
        - reason: why `detectable` is missing, with the remedy: there are fewer than 30
          prompts, or 6 on which the models differ, or it is more than such models can
          differ by.

        Where only the agreement is known, use `plan`.
    """
    _check_shares(power=power, alpha=alpha)
    tables.check_option("adjust", adjust, ("none", "holm"))
    select_models(table, a, b)
    prepared = prepare(
        table, average, ties, common, options, cluster=cluster, min_models=2
    )
    items = prepared.items
    weights = overall_weights(items, prepared.parts)
    result = estimate(items, weights, contrasts=[0])
    names = np.array(items.models, object)
    is_other = names != a
    if b is not None:
        is_other = names == b
    second = np.flatnonzero(is_other)
    first = np.full(len(second), items.models.index(a))

    difference = paired_differences(result, first, second)
    differing = _count_differing(result.clusters[0], first, second)
    level = np.full(len(second), alpha)
    if adjust == "holm":
        level = alpha / _count_tests(result, first, second)
    detectable = detectable_differences(result, first, second, level=level, power=power)

    # The first of these that holds is the reason.
    reason = np.select(
        [
            difference.reason != "",
            differing.n_prompts < _MIN_CLUSTERS,
            differing.n_differing < _MIN_DIFFERING,
            detectable > differing.largest,
        ],
        [
            add_hint(difference.reason, difference.se).to_numpy(object),
            _FEW_CLUSTERS,
            _FEW_DIFFERING,
            _BEYOND,
        ],
        default="",
    )
    frame = pd.DataFrame(
        {
            "model_a": a,
            "model_b": names[second],
            "difference": difference.value,
            "agreement": 1 - differing.n_differing / differing.n_prompts,
            "n_prompts": differing.n_prompts,
            "detectable": np.where(reason == "", detectable, np.nan),
            "alpha": level,
            "adjust": adjust,
            "average": result.label,
            "reason": reason,
        }
    )
    texts = ("model_a", "model_b", "adjust", "average", "reason")
    return frame.astype(dict.fromkeys(texts, "str"))


class _Differing(NamedTuple):
    """Prompts of pairs of models, (pairs,) each, and those on which the two differ.

    `largest` is the difference if all of these favoured the same model.
    """

    n_prompts: IntArray
    n_differing: IntArray
    largest: FloatArray


def _count_differing(
    sums: ClusterSums, first: IntArray, second: IntArray
) -> _Differing:
    has_share = sums.share > 0
    gap = np.abs(sums.contribution[first] - sums.contribution[second])
    return _Differing(
        n_prompts=(has_share[first] | has_share[second]).sum(axis=1),
        n_differing=(gap > ROUNDING).sum(axis=1),
        largest=gap.sum(axis=1),
    )


def _count_tests(result: Estimate, first: IntArray, second: IntArray) -> FloatArray:
    """Tests that `compare_all` adjusts over, for each pair of models.

    They are those between all models if one of the pair is a baseline, else those
    between models that are none.
    """
    is_blind = find_baselines(result.models)
    has_error = ~np.isnan(result.se[:, 0])
    n_with_baselines = has_error.sum()
    n_without = (has_error & ~is_blind).sum()
    has_baseline = is_blind[first] | is_blind[second]
    n = np.where(has_baseline, n_with_baselines, n_without)
    return np.asarray(np.maximum(n * (n - 1) / 2, 1.0))


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
        One row per difference and agreement, with the columns

        - difference, agreement;
        - n_prompts: the fewest from which on the test of `compare` has the power;
          missing where the difference is more than 1 - agreement, so that it cannot be;
        - power: with as many prompts;
        - alpha: of each test.

        Several comparisons a prompt are worth less than as many prompts.

    Examples
    --------
    >>> plan(0.02, agreement=[0.9, 0.95])["n_prompts"].tolist()
    [1957, 978]
    """
    _check_shares(power=power, alpha=alpha)
    if not comparisons >= 1:
        raise ValueError(f"comparisons: {comparisons!r}; allowed: 1 or more")
    level = alpha / comparisons
    rows = []
    for delta in np.atleast_1d(difference).astype(float).tolist():
        for share in np.atleast_1d(agreement).astype(float).tolist():
            if not 0 < share < 1 or not 0 < abs(delta) < 1:
                values = f"{delta!r}, {share!r}"
                raise ValueError(
                    f"difference, agreement: {values}; allowed: between 0 and 1"
                )
            row = {"difference": delta, "agreement": share, "alpha": level}
            if abs(delta) <= 1 - share + ROUNDING:
                n = _fewest_prompts(abs(delta), share, power, level)
                row["n_prompts"] = n
                row["power"] = exact_power(n, abs(delta), share, level)
            rows.append(row)
    columns = ["difference", "agreement", "n_prompts", "power", "alpha"]
    return pd.DataFrame(rows, columns=columns).astype(
        {"n_prompts": "Int64", "power": "float64"}
    )


def exact_power(n: int, difference: float, agreement: float, alpha: float) -> float:
    """Probability that the test of `compare` rejects, with n prompts of one comparison.

    Summed over how many prompts differ, and over how many of these each model wins.
    """
    if n < MIN_PROMPTS:
        return 0.0
    disagreement = 1 - agreement
    fewest = binom.ppf(_UNLIKELY, n, disagreement)
    most = binom.isf(_UNLIKELY, n, disagreement)
    m = np.arange(fewest, most + 1)

    # `adjust` for one stratum of n equal clusters, of which m differ, solved for the
    # lead at which |center| = t * se (section "Two models" of docs/statistics.md).
    t = stdtrit(n - 1, 1 - alpha / 2)
    numerator = t**2 * (n * m / (n - 1) + 2)
    denominator = 1 + t**2 * (1 / (n - 1) - 2 / (n + 2) ** 2)
    lead = np.sqrt(numerator / denominator)
    # The most that the worse model may win of m; -1: with so few differing prompts
    # nothing is significant.
    limit = np.maximum(np.ceil((m - lead) / 2) - 1, -1)

    better_wins = min((disagreement + difference) / 2 / disagreement, 1.0)
    rejected = binom.cdf(limit, m, better_wins)
    rejected += binom.cdf(limit, m, 1 - better_wins)  # the wrong way counts too
    probability = binom.pmf(m, n, disagreement)
    return float((probability * rejected).sum())


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
    fewest = n
    for later in range(n, n + _LOOK_AHEAD):
        if power_of(later) < power:
            fewest = later + 1
    return fewest


def _check_shares(*, power: float, alpha: float) -> None:
    for argument, value in (("power", power), ("alpha", alpha)):
        if not 0 < value < 1:
            allowed = "a probability between 0 and 1"
            raise ValueError(f"{argument}: {value!r}; allowed: {allowed}")
    if power <= alpha:
        problem = f"power={power}: equal models are found different in {alpha} of tests"
        raise ValueError(f"{problem}; allowed: more than alpha")
