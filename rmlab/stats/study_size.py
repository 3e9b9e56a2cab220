"""How large a difference a comparison would find, and how many prompts it takes."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd
import scipy

from rmlab.estimation.clustered import MIN_PROMPTS, ROUNDING
from rmlab.estimation.difference import detectable_differences
from rmlab.estimation.estimate import estimate, sum_number
from rmlab.estimation.items import Items
from rmlab.estimation.weights import Average
from rmlab.metrics.prepare import overall_number, prepare
from rmlab.stats.comparing import add_hint, select_models

# Fewer say too little of how two models differ.
_MIN_CLUSTERS = 30
_MIN_DIFFERING = 6
_FEW_CLUSTERS = f"fewer than {_MIN_CLUSTERS} prompts; use sample_size"
_FEW_DIFFERING = f"fewer than {_MIN_DIFFERING} prompts differ; use sample_size"
_BEYOND = (
    "more than models that disagree on so few prompts can differ by; use sample_size"
)

_UNLIKELY = 1e-13  # numbers of differing prompts beyond this tail are left out
_LOOK_AHEAD = 30  # prompts; the power was seen to fall again within 3


def power(
    table: pd.DataFrame,
    a: str,
    b: str | None = None,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
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
        Level of the two-sided test; of several comparisons, alpha over their number is
        the first step of Holm's method.

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
        - alpha, average;
        - reason: why `detectable` is missing, with the remedy: there are fewer than 30
          prompts, or 6 on which the models differ, or it is more than such models can
          differ by.

        Where only the agreement is known, use `sample_size`.
    """
    _check_shares(power=power, alpha=alpha)
    select_models(table, a, b)
    _, items = prepare(
        table, average, ties, common, options, cluster=cluster, min_models=2
    )
    first = items.models.index(a)
    rows = []
    for second, name in enumerate(items.models):
        if name != a and name == (b or name):
            pair = items.subtract(np.array([first]), np.array([second]))
            row = _detect(pair, power, alpha)
            rows.append({"model_a": a, "model_b": name, **row})
    return pd.DataFrame(rows)


def _detect(pair: Items, power: float, alpha: float) -> dict[str, object]:
    """What `compare` finds between two models, with the reason where it is missing."""
    overall = overall_number(pair)
    result = estimate(pair, [overall])
    sums = sum_number(pair, overall)
    gap = np.abs(sums.contribution[0])
    n_prompts = int((sums.share > 0).sum())
    n_differing = int((gap > ROUNDING).sum())
    detectable = np.nan
    reason = add_hint(result.reason[0], result.value[0]).item()
    if reason:
        pass
    elif n_prompts < _MIN_CLUSTERS:
        reason = _FEW_CLUSTERS
    elif n_differing < _MIN_DIFFERING:
        reason = _FEW_DIFFERING
    else:
        detectable = detectable_differences(sums, alpha, power).item()
        if detectable > gap.sum():
            detectable = np.nan
            reason = _BEYOND
    return {
        "difference": result.value.item(),
        "agreement": 1 - n_differing / n_prompts if n_prompts else np.nan,
        "n_prompts": n_prompts,
        "detectable": detectable,
        "alpha": alpha,
        "average": pair.parts.label,
        "reason": reason,
    }


def sample_size(
    difference: float | Sequence[float],
    *,
    agreement: float | Sequence[float] = (0.7, 0.8, 0.9),
    power: float = 0.8,
    alpha: float = 0.05,
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
        Probability to find the difference, and level of the test; of several
        comparisons, alpha over their number is the first step of Holm's method.

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
    >>> sample_size(0.02, agreement=[0.9, 0.95])["n_prompts"].tolist()
    [1957, 978]
    """
    _check_shares(power=power, alpha=alpha)
    rows = []
    for delta, share in product(np.atleast_1d(difference), np.atleast_1d(agreement)):
        if not 0 < share < 1 or not 0 < abs(delta) < 1:
            values = f"{delta!r}, {share!r}"
            raise ValueError(
                f"difference, agreement: {values}; allowed: between 0 and 1"
            )
        row = {"difference": delta, "agreement": share, "alpha": alpha}
        if abs(delta) <= 1 - share + ROUNDING:
            n = _fewest_prompts(abs(delta), share, power, alpha)
            row["n_prompts"] = n
            row["power"] = exact_power(n, abs(delta), share, alpha)
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
    fewest = scipy.stats.binom.ppf(_UNLIKELY, n, disagreement)
    most = scipy.stats.binom.isf(_UNLIKELY, n, disagreement)
    m = np.arange(fewest, most + 1)

    # `add_pair` for one stratum of n equal clusters, of which m differ, solved for the
    # lead at which |center| = t * se (section "Two models" of docs/statistics.md).
    t = scipy.special.stdtrit(n - 1, 1 - alpha / 2)
    numerator = t**2 * (n * m / (n - 1) + 2)
    denominator = 1 + t**2 * (1 / (n - 1) - 2 / (n + 2) ** 2)
    lead = np.sqrt(numerator / denominator)
    # The most that the worse model may win of m; -1: with so few differing prompts
    # nothing is significant.
    limit = np.maximum(np.ceil((m - lead) / 2) - 1, -1)

    better_wins = min((disagreement + difference) / 2 / disagreement, 1.0)
    rejected = scipy.stats.binom.cdf(limit, m, better_wins)
    rejected += scipy.stats.binom.cdf(
        limit, m, 1 - better_wins
    )  # the wrong way counts too
    probability = scipy.stats.binom.pmf(m, n, disagreement)
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
