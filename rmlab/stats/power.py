"""The smallest difference between two models that a benchmark, or a part of it, can detect."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rmlab import intervals, metrics
from rmlab.stats.grid import credit, grid
from rmlab.stats.targets import Average, groups, too_few

__all__ = ["power"]


def power(
    pairs: pd.DataFrame,
    *,
    by: str | Sequence[str] | None = "domain",
    average: Average = "benchmark",
    ties: metrics.Ties = "loss",
    power: float = 0.8,
    alpha: float = 0.05,
    common: bool = False,
) -> pd.DataFrame:
    """Smallest difference in accuracy between two models that each part can detect: one row per `by` group.

    Columns: those of `by`, n_prompts, se (of a paired difference, median over the pairs of models), correlation
    (of two models' scores by prompt, median), detectable (difference found with probability `power` by a two-sided
    test at `alpha`), detectable_unpaired (what it would be if models were scored on different prompts), reason (why
    there is no number, else empty: fewer than 5 prompts in a domain, or no spread to go by).
    detectable = (z(1 - alpha/2) + z(power)) * se; Miller (arXiv 2411.00640), section 5. Needs two models.
    """
    from scipy.special import ndtri

    for argument, value in (("power", power), ("alpha", alpha)):
        if not 0 < value < 1:
            raise ValueError(f"{argument}: {value!r}; allowed: a probability between 0 and 1")
    table = grid(pairs, common=common, fewest_models=2)
    worth = credit(table.outcome, ties)
    reach = ndtri(1 - alpha / 2) + ndtri(power)
    columns = [] if by is None else [by] if isinstance(by, str) else list(by)
    upper = np.triu_indices(len(table.models), 1)
    rows = []
    for key, chosen, target in groups(table, columns, average):
        mean = intervals.weighted_mean(
            worth[:, chosen], target.cells[chosen], target.weights, table.prompt[chosen], table.n_prompts
        )
        n_prompts = int((~np.isnan(mean.influence)).any(axis=0).sum())
        product = _covariance(mean.influence, target.strata)
        own = np.diag(product)
        paired = np.sqrt(np.maximum(own[:, None] + own - 2 * product, 0))[upper]
        with np.errstate(invalid="ignore", divide="ignore"):
            correlation = (product / np.sqrt(own[:, None] * own))[upper]
        apart = np.sqrt(own[:, None] + own)[upper]
        few = max(too_few(mean.influence, target), key=len)
        error = _median(paired)
        reason = few or ("the models' results do not differ" if error == 0 else "" if error > 0 else "no comparisons")
        found = np.array([error, _median(correlation), reach * error, reach * _median(apart)])
        names = ("se", "correlation", "detectable", "detectable_unpaired")
        numbers = dict(zip(names, np.where(reason == "", found, np.nan).tolist(), strict=True))
        rows.append(key | {"n_prompts": n_prompts} | numbers | {"reason": reason})
    frame = pd.DataFrame(rows)
    typed = {c: frame[c].astype(table.items[c].dtype) for c in columns}
    return frame.assign(**typed, reason=frame["reason"].astype("str"))


def _covariance(influence: np.ndarray, strata: np.ndarray) -> np.ndarray:
    """Covariance of the models' estimates: products of influence summed by prompt, with n/(n-1) per stratum."""
    n = np.bincount(strata[~np.isnan(influence).all(axis=0)], minlength=strata.max() + 1).astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.where(n > 1, n / (n - 1), np.nan)[strata]
    known = ~np.isnan(influence).all(axis=0)
    filled = np.nan_to_num(influence[:, known])
    product: np.ndarray = (filled * scale[known]) @ filled.T
    return product


def _median(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")
