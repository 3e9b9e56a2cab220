"""Figures of sureness: numbers with intervals, ranks with intervals, and who differs from whom."""

import textwrap
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab import metrics, stats, tables
from rmlab.plots.canvas import canvas, is_pairs
from rmlab.plots.names import plain, short
from rmlab.tables import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["differences", "plot_forest", "plot_rank", "plot_significance"]

POINT = "#2166ac"
PALE = "#bbbbbb"
_VALUES = ("value", "preference", "gap", "controlled", "change", "effect", "difference", "accuracy", "overall")
_AROUND_ZERO = ("difference", "gap", "change", "effect")
_NAMED = (
    "model", "model_a", "model_b", "quantity", "name", "domain", "subset", "level", "label", "chosen_style",
    "rejected_style", "plainer", "fancier", "term",
)  # fmt: skip
_MODELS = ("model", "model_a", "model_b")
_WORDS = {
    "gap": "accuracy on easy minus accuracy on hard comparisons",
    "preference": "share of comparisons that the fancier answer wins",
    "controlled": "share of comparisons won, at equal length or style",
    "change": "change in accuracy",
    "effect": "effect on the score (standard deviations within a prompt)",
}
_MOST_LETTERS = 40
_MOST_NUMBERS = 14  # models up to which the differences are written into the cells


def plot_forest(
    table: pd.DataFrame,
    *,
    value: str | None = None,
    label: str | list[str] | None = None,
    reference: float | None = None,
    sort: bool = False,
    ax: "Axes | None" = None,
) -> "Axes":
    """Forest plot: one line per row of a table, its value and its interval; returns the Axes.

    `table`: any table with a value, low and high, such as `accuracy`, `rm_bench`, `rank`, `compare`, `style_gap` or
    `length_controlled` return; it holds the numbers drawn. Of pairs, `accuracy(pairs)` is drawn. `value` names the
    column (default: the one that low and high belong to), `label` the column or columns that name a row (default:
    those that tell the rows apart). `reference` draws a dotted line (default: 0 for differences, gaps, changes and
    effects, else chance, 0.5). A row without an interval is drawn hollow.
    """
    table = metrics.accuracy(tables.check_pairs(table)) if is_pairs(table) else table
    value = _value_column(table, value)
    rows = table.sort_values(value, na_position="first", kind="stable") if sort else table.iloc[::-1]
    names = _names(rows, label)
    ax = canvas(ax, (6.4, 0.28 * len(rows) + 1.1))
    place = np.arange(len(rows))
    low, high = rows["low"].to_numpy(float), rows["high"].to_numpy(float)
    known = ~np.isnan(low)
    if reference is None:
        reference = 0.0 if value in _AROUND_ZERO else 0.5
    ax.axvline(reference, color="black", lw=0.8, ls=":", zorder=0)
    ax.hlines(place[known], low[known], high[known], color=POINT, lw=1.6, zorder=1)
    points = rows[value].to_numpy(float)
    ax.scatter(points[known], place[known], color=POINT, s=26, zorder=2)
    ax.scatter(points[~known], place[~known], facecolor="white", edgecolor=POINT, s=26, zorder=2)
    ax.set(yticks=place, yticklabels=names, xlabel=_axis_label(table, value))
    _bare(ax, len(rows))
    return ax


def plot_rank(ranks: pd.DataFrame, *, groups: bool | None = None, ax: "Axes | None" = None) -> "Axes":
    """Ranks with their intervals, best on top, as `rank` returns them (of pairs, `rank(pairs)`); returns the Axes.

    The number behind a name is the score. `groups` writes the letters at the right (default: up to 40 models): models
    that share a letter are not clearly different. Models without a rank are left out.
    """
    ranks = stats.rank(ranks) if is_pairs(ranks) else ranks
    _require(ranks, ["model", "rank", "rank_low", "rank_high", "group", "value"], "ranks", "rmlab.rank(table)")
    from matplotlib.ticker import MaxNLocator

    shown = ranks.dropna(subset=["rank"]).iloc[::-1]
    ax = canvas(ax, (6.4, 0.28 * len(shown) + 1.1))
    place = np.arange(len(shown))
    centre, low, high = (shown[c].to_numpy(float) for c in ("rank", "rank_low", "rank_high"))
    ax.hlines(place, low, high, color=POINT, lw=5, alpha=0.35, zorder=1)
    ax.scatter(centre, place, color=POINT, s=26, zorder=2)
    if groups or (groups is None and len(shown) <= _MOST_LETTERS):
        for y, text in zip(place, shown["group"], strict=True):
            ax.annotate(text, (1.01, y), xycoords=("axes fraction", "data"), va="center", fontsize="small")
    labels = [f"{short(name)}  {score:.3f}" for name, score in zip(shown["model"], shown["value"], strict=True)]
    ax.set(yticks=place, yticklabels=labels, xlabel="rank (1 is best)", xlim=(0.5, max(len(shown), *high) + 0.5))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    _bare(ax, len(shown))
    return ax


def plot_significance(contests: pd.DataFrame, *, alpha: float = 0.05, ax: "Axes | None" = None) -> "Axes":
    """Square of differences between models, row minus column; returns the Axes.

    `contests`: what `compare_all` returned, or pairs, which are then compared; the numbers drawn are `differences`.
    Blue: the row is better; red: worse. A cell whose difference is not clear at `alpha`, over all pairs at once, is
    left blank. Models are sorted by their mean difference from the others, best first. Differences are in points
    (hundredths).
    """
    import seaborn as sns
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    square = differences(contests, alpha=alpha)
    fresh = ax is None
    ax = canvas(ax, (0.42 * len(square) + 2.8, 0.42 * len(square) + 1.6) if len(square) <= 30 else (9.5, 8.5))
    whole = ax.get_figure(root=True)
    if fresh and whole is not None:
        whole.set_layout_engine("compressed")  # made for squares: the names at the left stay inside
    largest = np.nanmax(np.abs(square.to_numpy()), initial=1e-9)
    few = len(square) <= _MOST_NUMBERS
    shades = colormaps["RdBu"]  # without its white middle: only a blank cell is white
    sns.heatmap(
        100 * square.rename(index=short, columns=short),
        cmap=ListedColormap(np.vstack([shades(np.linspace(0, 0.42, 128)), shades(np.linspace(0.58, 1, 128))])),
        vmin=-100 * largest,
        vmax=100 * largest,
        annot=few,
        fmt=".1f",
        annot_kws={"fontsize": "small"},
        square=True,
        linewidths=0.5 if len(square) <= 30 else 0,
        linecolor="#eeeeee",
        cbar_kws={"label": "row minus column (points)", "shrink": 0.7},
        ax=ax,
    )
    ax.set(xlabel="", ylabel="")
    _name_both(ax, list(square.index))
    return ax


def differences(contests: pd.DataFrame, *, alpha: float = 0.05) -> pd.DataFrame:
    """The numbers of `plot_significance`: a square frame, models by models, best first, row minus column (-1 to 1).

    NaN where p_adjusted (over all pairs; without it p_holm) is not below `alpha`, and on the diagonal. Raises DataError
    where a pair of models stands in several rows, as in `compare(pairs, a, b, by=...)`.
    """
    contests = stats.compare_all(contests) if is_pairs(contests) else contests
    _require(contests, ["model_a", "model_b", "difference", "p_holm"], "contests", "compare_all(pairs)")
    if contests.duplicated(["model_a", "model_b"]).any():
        raise DataError(
            "contests: a pair of models stands in several rows; pass rmlab.stats.compare_all(table), "
            "or draw it with plot_forest"
        )
    models = list(dict.fromkeys([*contests["model_a"], *contests["model_b"]]))
    place = {name: i for i, name in enumerate(models)}
    a, b = (contests[side].map(place).to_numpy() for side in ("model_a", "model_b"))
    full, shown = np.full((2, len(models), len(models)), np.nan)
    gap = contests["difference"].to_numpy(float)
    adjusted = contests["p_adjusted" if "p_adjusted" in contests.columns else "p_holm"]
    kept = np.where(adjusted.to_numpy(float) < alpha, gap, np.nan)
    full[a, b], full[b, a], shown[a, b], shown[b, a] = gap, -gap, kept, -kept
    known = ~np.isnan(full)
    lead = np.where(known, full, 0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    order = np.argsort(-lead, kind="stable")
    names = [models[i] for i in order]
    return pd.DataFrame(shown[np.ix_(order, order)], index=names, columns=names)


def _name_both(ax: "Axes", names: list[str]) -> None:
    """Model names along both sides; where there are too many to read, only some."""
    step = -(-len(names) // 60)
    ticks = np.arange(0, len(names), step)
    size = "small" if len(names) <= 30 else 5
    shown = [short(names[i]) for i in ticks]
    ax.set_xticks(ticks + 0.5, shown, rotation=45, ha="right", rotation_mode="anchor", fontsize=size)
    ax.set_yticks(ticks + 0.5, shown, rotation=0, fontsize=size)
    ax.tick_params(length=0)


def _value_column(table: pd.DataFrame, value: str | None) -> str:
    candidates = [value] if value is not None else [c for c in _VALUES if c in table.columns]
    absent = [c for c in (*candidates[:1], "low", "high") if c not in table.columns]
    if absent or not candidates:
        raise DataError(
            f"table: no column {(absent or ['value'])[0]!r} in {list(table.columns)}; pass a table with a value, low "
            "and high, such as estimates(pairs), accuracy(pairs) or compare(pairs, a, b, by=...)"
        )
    return candidates[0]


def _names(rows: pd.DataFrame, label: str | list[str] | None) -> list[str]:
    columns = [label] if isinstance(label, str) else label
    if columns is None:
        found = [c for c in _NAMED if c in rows.columns]
        columns = [c for c in found if len(set(rows[c])) > 1] or found[:1]
        if "name" in columns and "quantity" in columns:
            columns = [c for c in columns if c != "quantity"]
    strange = [c for c in columns if c not in rows.columns]
    if strange:
        raise DataError(f"label: {strange[0]!r} is no column; {tables.nearest(strange[0], list(rows.columns))}")
    if not columns:
        return [str(i) for i in rows.index]
    parts = [[(short if c in _MODELS else plain)(name) for name in rows[c]] for c in columns]
    return ["  ".join(words) for words in zip(*parts, strict=True)]


def _axis_label(table: pd.DataFrame, value: str) -> str:
    if value != "difference":
        return (
            "share of comparisons won"
            if value == "accuracy" or "quantity" in table.columns
            else _WORDS.get(value, value)
        )
    a, b = (sorted(set(table[c])) if c in table.columns else [] for c in ("model_a", "model_b"))
    if len(a) == len(b) == 1:
        return textwrap.fill(f"difference in accuracy: {short(a[0])} minus {short(b[0])}", 70)
    return "difference in accuracy"


def _bare(ax: "Axes", rows: int) -> None:
    ax.set_ylim(-0.6, rows - 0.4)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)


def _require(table: pd.DataFrame, columns: list[str], argument: str, source: str) -> None:
    absent = [c for c in columns if c not in table.columns]
    if absent:
        raise DataError(f"{argument}: no column {absent[0]!r}; pass the table of {source}")
