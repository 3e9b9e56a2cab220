"""What the explorer shows: a plain object, and the prompts that fit it."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.tables import PROMPT, STYLES, DataError, nearest
from rmlab.widgets.index import Floats, Index, Ints

__all__ = ["Field", "Match", "Selection", "cell_shares", "check", "frame", "match", "share_won"]

Field = str | tuple[object, ...] | None
"""A value of a field of a selection, before it is checked."""

OUTCOMES = ("win", "tie", "loss", "missing", "flip")
ORDERS = ("worst", "best", "data")


@dataclass(frozen=True)
class Selection:
    """Which comparisons to look at; a field left alone does not filter, nor does "all" for domain, subset or outcome.

    `models`: one or two names (the second is compared with the first). `cell`: (chosen style, rejected style).
    `outcome`: win, tie, loss, missing, or flip (two models disagree). `margin`: (lowest, highest) of the first model,
    None for no limit. `text`: appears in the prompt or an answer, whatever the case. `order`: worst or best margin
    first, or data; with two models flips come first. `prompt`: (benchmark, domain, id) of the prompt that is open.

    >>> Selection(models=("longest",), cell=("concise", "markdown"))
    Selection(models=('longest',), cell=('concise', 'markdown'))
    >>> Selection.from_query(Selection(domain="math", margin=(None, -1.0)).query())
    Selection(domain='math', margin=(None, -1.0))
    """

    models: tuple[str, ...] = ()
    domain: str | None = None
    subset: str | None = None
    cell: tuple[str, str] | None = None
    outcome: str | None = None
    margin: tuple[float | None, float | None] = (None, None)
    text: str = ""
    order: str = "worst"
    prompt: tuple[str, str, str] | None = None

    def __post_init__(self) -> None:
        for name in ("models", "cell", "margin", "prompt"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise DataError(f"selection: {name} is the string {value!r}; write a tuple: ({value!r},)")
            object.__setattr__(self, name, value if value is None else tuple(value))

    def __repr__(self) -> str:
        return f"Selection({', '.join(f'{name}={value!r}' for name, value in self._set().items())})"

    def query(self) -> str:
        """The selection as the query part of a link."""
        parts = [
            (name, "" if item is None else str(item))
            for name, value in self._set().items()
            for item in (value if isinstance(value, tuple) else (value,))
        ]
        return urlencode(parts)

    @classmethod
    def from_query(cls, query: str) -> "Selection":
        """The selection that `query()` wrote; parts with other names are left alone."""
        found: dict[str, list[str]] = {}
        for name, value in parse_qsl(query.lstrip("?"), keep_blank_values=True):
            found.setdefault(name, []).append(value)
        made: dict[str, Field] = {}
        for item in fields(cls):
            values = found.get(item.name)
            if values and item.name == "margin":
                made["margin"] = _limits(values)
            elif values:
                made[item.name] = tuple(values) if item.name in ("models", "cell", "prompt") else values[0]
        return cls(**made)  # type: ignore[arg-type]

    def _set(self) -> dict[str, Field]:
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}


class Match(NamedTuple):
    """Prompts that fit a selection, in its order. `prompts`: rows of `Index.prompts`; the rest one value for each.

    n: comparisons that fit; lost: those that the first model gets wrong; margin: their mean under the first model;
    other: under the second (NaN without one); flips: comparisons on which the two disagree.
    """

    prompts: Ints
    n: Ints
    lost: Ints
    margin: Floats
    other: Floats
    flips: Ints


def check(index: Index, selection: Selection) -> Selection:
    """Return the selection with its models filled in; raise DataError where it names something that is not there."""
    if not isinstance(selection, Selection):
        raise DataError(f"selection: {selection!r} is not a Selection; write Selection(domain=...), or use view.select")
    models = selection.models or index.models[:1]
    if len(models) > 2 or len(set(models)) < len(models):
        raise DataError(f"selection: models={models!r}; give one model, or two different ones")
    for name in models:
        _known("models", name, index.models)
    selection = _without_all(index, selection)
    _known("domain", selection.domain, index.domain_names)
    _known("subset", selection.subset, index.subset_names)
    _known("outcome", selection.outcome, OUTCOMES)
    _known("order", selection.order, ORDERS)
    if selection.cell is not None:
        if len(selection.cell) != 2:
            raise DataError(f"selection: cell={selection.cell!r}; give (chosen style, rejected style)")
        for style in selection.cell:
            _known("cell", style, STYLES)
        if not index.has_styles:
            raise DataError("selection: cell needs styles, and these responses have none; leave it out")
    if selection.outcome == "flip" and len(models) < 2:
        raise DataError("selection: outcome='flip' needs two models; name a second one in models")
    if not isinstance(selection.text, str):
        raise DataError(f"selection: text={selection.text!r}; give a string, '' for all prompts")
    if selection.prompt is not None and len(selection.prompt) != 3:
        raise DataError(f"selection: prompt={selection.prompt!r}; give (benchmark, domain, id)")
    _check_margin(selection.margin)
    return replace(selection, models=tuple(models))


def match(index: Index, selection: Selection) -> Match:
    """Prompts with at least one comparison that fits, in the order asked for."""
    selection = check(index, selection)
    margin = index.margin(selection.models[0])
    other = index.margin(selection.models[1]) if len(selection.models) > 1 else None
    flip = _disagree(margin, other)
    fits = _fits(index, selection, margin, flip)
    size = len(index.prompts)
    prompt = index.prompt[fits]
    n = np.bincount(prompt, minlength=size)
    lost = np.bincount(prompt, margin[fits] < 0, size).astype(np.intp)
    flips = np.bincount(prompt, flip[fits], size).astype(np.intp)
    mean = _mean(prompt, margin[fits], size)
    second = np.full(size, np.nan) if other is None else _mean(prompt, other[fits], size)
    found = np.flatnonzero(n * index.contain(selection.text))
    found = found[_order(selection, mean[found], second[found], flips[found])]
    return Match(found, n[found], lost[found], mean[found], second[found], flips[found])


def cell_shares(index: Index, selection: Selection, model: str) -> tuple[Floats, Ints]:
    """Share of comparisons won (a tie is not won) and their number in the nine cells, chosen style by rejected style.

    Domain, subset and text count; cell, outcome and margin do not, as they would only show the filter again. Domains
    are averaged where the benchmark does so: over the whole benchmark this is `rmlab.matrix`.
    """
    rows = _prompts(index, selection) & index.contain(selection.text)
    margin = index.margin(model)
    counted = rows[index.prompt] & (index.cell >= 0) & ~np.isnan(margin)
    domain = index.domains if index.domains_alike else np.zeros_like(index.domains)
    cell = 9 * domain[index.prompt[counted]] + index.cell[counted]
    size = 9 * (int(domain.max(initial=0)) + 1)
    n = np.bincount(cell, minlength=size).reshape(-1, 9)
    won = np.bincount(cell, margin[counted] > 0, size).reshape(-1, 9)
    there = n.any(axis=1)  # domains that the selection leaves out are not averaged
    with np.errstate(invalid="ignore"):
        share = (won[there] / n[there]).mean(axis=0) if there.any() else np.full(9, np.nan)
    return share.reshape(3, 3), n.sum(axis=0).reshape(3, 3)


def share_won(index: Index, selection: Selection, model: str) -> tuple[float, int]:
    """Share of comparisons won and their number, counted as in `cell_shares`, with or without styles."""
    if index.domains_alike:
        shares, n = cell_shares(index, selection, model)
        return float(shares.mean()), int(n.sum())
    rows = _prompts(index, selection) & index.contain(selection.text)
    margin = index.margin(model)[rows[index.prompt]]
    known = margin[~np.isnan(margin)]
    return (float((known > 0).mean()) if len(known) else float("nan")), len(known)


def frame(index: Index, selection: Selection, found: Match) -> pd.DataFrame:
    """The match as a table, one row per prompt.

    Columns: benchmark, domain, id, subset, prompt, n_pairs, lost, margin; with two models also other and flips.
    """
    selection = check(index, selection)
    table = index.prompts.iloc[found.prompts][[*PROMPT, "subset", "prompt"]].reset_index(drop=True)
    table = table.assign(n_pairs=found.n, lost=found.lost, margin=found.margin)
    return table.assign(other=found.other, flips=found.flips) if len(selection.models) > 1 else table


def _fits(index: Index, selection: Selection, margin: Floats, flip: NDArray[np.bool_]) -> NDArray[np.bool_]:
    fits = _prompts(index, selection)[index.prompt]
    if selection.cell is not None:
        chosen, rejected = (STYLES.index(style) for style in selection.cell)
        fits &= index.cell == 3 * chosen + rejected
    if selection.outcome is not None:
        fits &= _has_outcome(selection.outcome, margin, flip)
    low, high = selection.margin
    if low is not None:
        fits &= margin >= low
    if high is not None:
        fits &= margin <= high
    return fits


def _prompts(index: Index, selection: Selection) -> NDArray[np.bool_]:
    rows = np.ones(len(index.prompts), bool)
    if selection.domain is not None:
        rows &= index.domains == index.domain_names.index(selection.domain)
    if selection.subset is not None:
        rows &= index.subsets == index.subset_names.index(selection.subset)
    return rows


def _has_outcome(outcome: str, margin: Floats, flip: NDArray[np.bool_]) -> NDArray[np.bool_]:
    if outcome == "flip":
        return flip
    if outcome == "missing":
        return np.isnan(margin)
    sign = {"win": 1, "tie": 0, "loss": -1}[outcome]
    return np.asarray(np.sign(margin) == sign)


def _disagree(margin: Floats, other: Floats | None) -> NDArray[np.bool_]:
    if other is None:
        return np.zeros(len(margin), bool)
    known = ~(np.isnan(margin) | np.isnan(other))
    return np.asarray(known & (np.sign(margin) != np.sign(other)))


def _mean(group: Ints, values: Floats, size: int) -> Floats:
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.bincount(group[known], values[known], size) / np.bincount(group[known], minlength=size)


def _order(selection: Selection, mean: Floats, other: Floats, flips: Ints) -> Ints:
    if selection.order == "data":
        by = np.zeros(len(mean))
    elif len(selection.models) > 1:
        by = -np.abs(mean - other) if selection.order == "worst" else np.abs(mean - other)
    else:
        by = mean if selection.order == "worst" else -mean
    first = -flips if len(selection.models) > 1 else np.zeros(len(mean), int)
    return np.lexsort((by, first)).astype(np.intp)


def _without_all(index: Index, selection: Selection) -> Selection:
    """ "all" is how the page calls a filter that is not set; it stays where data has a part of that name."""
    if selection.outcome == "all":
        selection = replace(selection, outcome=None)
    if selection.domain == "all" and "all" not in index.domain_names:
        selection = replace(selection, domain=None)
    if selection.subset == "all" and "all" not in index.subset_names:
        selection = replace(selection, subset=None)
    return selection


def _known(argument: str, value: str | None, allowed: Sequence[str]) -> None:
    if value is not None and value not in allowed:
        raise DataError(f"selection: {argument}={value!r}; {nearest(value, list(allowed))}")


def _limits(values: list[str]) -> tuple[float | None, float | None]:
    try:
        low, high = (float(value) if value else None for value in values)
    except ValueError:
        raise DataError(f"selection: margin={values!r}; give two numbers, empty for no limit") from None
    return low, high


def _check_margin(margin: tuple[object, ...]) -> None:
    given = [limit for limit in margin if limit is not None]
    limits = [float(limit) for limit in given if isinstance(limit, Real) and limit == limit]
    if len(margin) != 2 or len(limits) < len(given) or limits != sorted(limits):
        raise DataError(f"selection: margin={margin!r}; give (lowest, highest), None for no limit")
