"""The grid behind the statistics: models by comparisons, with the prompt and the domain of each comparison."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import metrics, tables
from rmlab.tables import PROMPT, DataError

__all__ = ["ITEM", "Grid", "allowed", "credit", "grid"]

Codes = NDArray[np.intp]
Floats = NDArray[np.float64]

ITEM = [*PROMPT, "chosen_slot", "rejected_slot"]
_DESCRIBING = ["subset", "chosen_style", "rejected_style", "level"]


class Grid(NamedTuple):
    """Outcomes of every model on the same comparisons, in the order of their keys, whatever the order of the rows.

    So random signs and resamples, which are dealt out by place, do not depend on the order of the rows either.
    """

    models: list[str]
    items: pd.DataFrame  # one row per comparison: key, subset, styles, level; its index is their order in the pairs
    prompt: Codes  # prompt of each comparison, 0 ... n_prompts - 1
    domain: Codes  # domain of each prompt, an index into `domains`
    domains: list[str]
    outcome: NDArray[np.int8]  # (models, comparisons): index into OUTCOMES, -1 where missing
    margin: Floats  # (models, comparisons): NaN where missing

    @property
    def n_prompts(self) -> int:
        """Number of prompts."""
        return len(self.domain)


def grid(pairs: pd.DataFrame, *, common: bool = False, fewest_models: int = 1) -> Grid:
    """Spread `pairs` out into models by comparisons.

    Every model must have a row for every comparison (a blank outcome counts as a row): otherwise DataError names the
    model and how many it lacks, unless `common`, which keeps the comparisons that all models have.
    """
    pairs = _checked(pairs, fewest_models)
    number, items = _items(pairs)
    model, names = pd.factorize(pairs["model"])
    outcome = np.full((len(names), len(items)), -2, np.int8)
    outcome[model, number] = pairs["outcome"].cat.codes.to_numpy()
    margin = np.full(outcome.shape, np.nan)
    margin[model, number] = pairs["margin"].to_numpy()
    kept = _present(outcome != -2, list(names), items, common)
    items, outcome, margin = items[kept].reset_index(drop=True), outcome[:, kept], margin[:, kept]
    items = items.sort_values(ITEM)
    order = items.index.to_numpy()
    prompt = items.groupby(PROMPT, sort=False).ngroup().to_numpy().astype(np.intp)
    first = np.concatenate([[0], np.flatnonzero(np.diff(prompt)) + 1])
    domain, domains = pd.factorize(items["domain"].iloc[first])
    return Grid(list(names), items, prompt, domain.astype(np.intp), list(domains), outcome[:, order], margin[:, order])


def credit(outcome: NDArray[np.int8], ties: metrics.Ties) -> Floats:
    """What each outcome earns under a tie policy; NaN where missing or dropped."""
    allowed("ties", ties, ("loss", "half", "drop"))
    earned = np.array([0.0, {"loss": 0.0, "half": 0.5, "drop": np.nan}[ties], 1.0, np.nan])
    worth: Floats = earned[outcome]
    return worth


def _checked(pairs: pd.DataFrame, fewest_models: int) -> pd.DataFrame:
    pairs = tables.check_pairs(pairs)
    models, benchmarks = pairs["model"].unique(), pairs["benchmark"].unique()
    if len(pairs) == 0:
        raise DataError("pairs: no rows; nothing to compare")
    if len(benchmarks) > 1:
        raise DataError(
            f"pairs: {len(benchmarks)} benchmarks {sorted(benchmarks)}; keep one: pairs[pairs.benchmark == ...]"
        )
    if len(models) < fewest_models:
        raise DataError(
            f"pairs: {len(models)} model {list(models)}; a comparison needs {fewest_models}: "
            "add another model's pairs with pd.concat([pairs, others])"
        )
    return pairs


def _items(pairs: pd.DataFrame) -> tuple[Codes, pd.DataFrame]:
    number = pairs.groupby(ITEM, sort=False).ngroup().to_numpy().astype(np.intp)
    first = np.unique(number, return_index=True)[1]
    return number, pairs.iloc[first][[*ITEM, *_DESCRIBING]].reset_index(drop=True)


def _present(present: NDArray[np.bool_], models: list[str], items: pd.DataFrame, common: bool) -> NDArray[np.bool_]:
    everywhere = np.asarray(present.all(axis=0))
    if everywhere.all() or (common and everywhere.any()):
        return everywhere
    lacking = (~present).sum(axis=1)
    worst = int(lacking.argmax())
    first = items[ITEM].iloc[int((~present[worst]).argmax())].to_dict()
    remedy = (
        f"pass common=True to use the {everywhere.sum()} comparisons that all models have"
        if everywhere.any()
        else "no comparison is shared by all models: leave some models out"
    )
    raise DataError(
        f"pairs: the models were scored on different comparisons: {(lacking > 0).sum()} of {len(models)} models lack "
        f"some, most of all {models[worst]!r} with {lacking[worst]} of {len(items)}, first {first}; {remedy}"
    )


def allowed(argument: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ValueError unless `value` is one of the choices."""
    if value not in choices:
        raise ValueError(f"{argument}: {value!r}; {tables.nearest(value, choices)}")
