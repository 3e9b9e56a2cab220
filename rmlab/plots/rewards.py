"""Figures of rewards: margins, what they promise, and the reward along an answer."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import metrics, stats, tables
from rmlab.plots import canvas
from rmlab.plots.canvas import MarkStyle
from rmlab.plots.style import LEVEL_STYLES
from rmlab.tables import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = (12, 60)  # few enough that an outline shows more than noise
_FEWEST = 10  # comparisons from which on a bin is drawn
_BESIDE = 0.006  # between the intervals of two models in the same bin
_ERROR = ["ece", "ece_low", "ece_high"]
# Dark and light in grey.
_RISE = "#2166ac"
_FALL = "#ef8a62"
_NAMED = 60  # more pieces than this leave no room for their text
_LETTERS = 24  # of the text of a piece


def plot_margins(
    pairs: pd.DataFrame,
    *,
    by: str | None = None,
    bins: int | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the distribution of one model's margins. Right of zero the chosen answer
    wins.

    Parameters
    ----------
    pairs : DataFrame
        Pairs or scores of one model.
    by : str, optional
        The column with an outline for each value; by default the level, where
        comparisons have one.
    bins : int, optional
        About how many; zero is an edge. By default so many as the smallest group
        allows.
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        Densities; the legend has the share won and the ties, which lie in no bin. About
        the outermost 0.5 % on each side lie outside the frame; the axis says how many.
        The table beside it: `pairs.groupby(["model", by])["margin"].describe()`.

    Raises
    ------
    DataError
        With several models, whose scores have different units, without margins, or
        without the column `by`.

    Examples
    --------
    >>> import rmlab
    >>> scores = rmlab.papers.results("math-prm")
    >>> ax = rmlab.plots.plot_margins(scores[scores["model"] == "openbmb/Eurus-RM-7b"])
    >>> ax.get_legend().get_texts()[0].get_text()
    'all comparisons: 0.61 won of 447'
    """
    if "chosen_slot" not in pairs:
        pairs = metrics.pairs(pairs)
    margins = _group_margins(tables.check_pairs(pairs), by)
    pooled = np.concatenate(list(margins.values()))
    if not bins:
        smallest_group = min(map(len, margins.values()))
        bins = int(np.clip(2 * np.sqrt(smallest_group), *_BINS))
    edges = _edges(pooled, bins)

    ax = canvas.new_axes(ax, (6.4, 3.6))
    for i, (name, margin) in enumerate(margins.items()):
        style = canvas.series_style(i)
        if name in LEVEL_STYLES:
            style = style._replace(colour=LEVEL_STYLES[name].colour)
        _draw_distribution(ax, name, margin, edges, style)
    ax.axvline(0, color="black", lw=0.8, ls=":")

    is_outside = (pooled < edges[0]) | (pooled > edges[-1])
    n_outside = int(is_outside.sum())
    explanation = "triangle: median"
    if n_outside:
        explanation += f"; {n_outside:,} of {len(pooled):,} lie outside"
    ax.set_xlabel(f"margin: chosen minus rejected\n({explanation})")
    ax.set_ylabel("density")
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(bottom=0)
    canvas.add_legend(ax)
    return ax


def _draw_distribution(
    ax: "Axes",
    name: str,
    margin: NDArray[np.float64],
    edges: NDArray[np.float64],
    style: MarkStyle,
) -> None:
    """The density of one group's margins, its median, and its results in the legend."""
    n_pairs = len(margin)
    counts, _ = np.histogram(margin[margin != 0], edges)
    density = counts / n_pairs / np.diff(edges)

    share_won = (margin > 0).mean()
    label = f"{canvas.escape_name(name)}: {share_won:.2f} won of {n_pairs:,}"
    n_ties = int((margin == 0).sum())
    if n_ties:
        label += f", {canvas.format_ties(n_ties)}"

    colour = style.colour
    ax.stairs(density, edges, color=colour, fill=True, alpha=0.12)
    ax.stairs(density, edges, color=colour, lw=1.6, ls=style.line, label=label)
    median = np.median(margin)
    ax.plot(median, 0, marker="^", color=colour, ms=7, clip_on=False, zorder=3)


def _group_margins(
    pairs: pd.DataFrame, by: str | None
) -> dict[str, NDArray[np.float64]]:
    models = list(pairs["model"].unique())
    if len(models) != 1:
        names = f"{len(models)} models {models[:5]}"
        problem = f"pairs: {names}, whose margins have no common unit"
        raise DataError(problem, "keep one")

    if by is None and pairs["level"].notna().any():
        by = "level"
    groups = pd.Series("all comparisons", index=pairs.index)
    if by is not None:
        tables.require_columns(pairs, [by], "pairs")
        groups = pairs[by]

    is_drawn = pairs["margin"].notna() & groups.notna()
    if not is_drawn.any():
        condition = "" if by is None else f" and a {by}"
        remedy = "judges give none: use scores"
        raise DataError(f"pairs: no row has a margin{condition}", remedy)
    is_ordered = isinstance(groups.dtype, pd.CategoricalDtype)
    margins = pairs["margin"][is_drawn].groupby(
        groups[is_drawn], sort=is_ordered, observed=True
    )
    return {str(name): group.to_numpy(float) for name, group in margins if len(group)}


def _edges(margin: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    """About `bins` bins of equal width over all but the outermost margins; zero is an
    edge.
    """
    low, high = np.quantile(margin, [0.005, 0.995])
    left = min(float(low), 0.0)
    right = max(float(high), 0.0)
    width = (right - left) / bins
    if width == 0:
        width = 1 / bins
    first = np.floor(left / width)
    last = max(np.ceil(right / width), 1.0)
    return width * np.arange(first, last + 1)


def plot_calibration(table: pd.DataFrame, *, ax: "Axes | None" = None) -> "Axes":
    """Draw how often a model is right against the probability that its margins promise,
    by Bradley and Terry.

    On the diagonal a model is as often right as its margins promise; below it, it is
    too sure.

    Parameters
    ----------
    table : DataFrame
        The result of `rmlab.stats.calibration`, or scores or pairs.
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        Points are as large as their bin is full; bins of fewer than 10 comparisons are
        left out, and counted below the axis. Lines are 95 % intervals clustered by
        prompt. Several models stand a little beside each other. The legend has the
        expected calibration error with its interval.

    Raises
    ------
    DataError
        For another table, or where no comparison has a margin.

    Examples
    --------
    >>> import rmlab
    >>> scores = rmlab.papers.results("math-prm")
    >>> scores = scores[scores["model"] == "openbmb/Eurus-RM-7b"]
    >>> ax = rmlab.plots.plot_calibration(scores)
    >>> ax.get_ylabel()
    'share where it is right'
    """
    columns = ["model", "predicted", "accuracy", "low", "high", "n_pairs", *_ERROR]
    hint = "judges give no margins: pass a reward model's scores"
    table = canvas.table_to_draw(
        table, stats.calibration, columns, "accuracy", hint=hint
    )
    models = list(table["model"].unique())
    names = canvas.shorten_names(models, 40)

    ax = canvas.new_axes(ax, (4.6, 3.9 + 0.3 * len(models)))
    ax.plot([0.5, 1], [0.5, 1], color="black", lw=0.8, ls=":", zorder=0)
    for i, (model, name) in enumerate(zip(models, names, strict=True)):
        bins = table[(table["model"] == model) & (table["n_pairs"] > 0)]
        shift = _BESIDE * (i - (len(models) - 1) / 2)
        _draw_calibration(ax, name, bins, canvas.series_style(i), shift)

    label = "promised probability\nthat the answer of higher score is right"
    n_sparse = int(table["n_pairs"].between(1, _FEWEST - 1).sum())
    if n_sparse:
        label += f"\n(bins of fewer than {_FEWEST} comparisons left out: {n_sparse})"
    ax.set_xlabel(label)
    ax.set_ylabel("share where it is right")
    ax.set_xlim(0.49, 1.01)
    ax.set_ylim(top=1.02)
    canvas.add_legend(ax)
    return ax


def _draw_calibration(
    ax: "Axes", name: str, bins: pd.DataFrame, style: MarkStyle, shift: float
) -> None:
    """The bins of one model, beside those of the other models, and its calibration
    error in the legend.
    """
    colour = style.colour
    full = bins[bins["n_pairs"] >= _FEWEST]
    predicted = full["predicted"] + shift
    ax.vlines(predicted, full["low"], full["high"], color=colour, lw=1.2, zorder=1)
    ax.plot(predicted, full["accuracy"], color=colour, lw=1, ls=style.line, zorder=2)

    areas = 12 + 80 * full["n_pairs"] / bins["n_pairs"].sum()
    ax.scatter(
        predicted,
        full["accuracy"],
        s=areas,
        color=colour,
        marker=style.marker,
        lw=0,
        zorder=3,
        clip_on=False,
    )
    label = f"{canvas.escape_name(name)}\n{_format_error(bins)}"
    canvas.name_series(ax, style, label)


def _format_error(bins: pd.DataFrame) -> str:
    """The model's calibration error for the legend."""
    if bins.empty:
        return "no margins"
    value, low, high = bins[_ERROR].iloc[0]
    if np.isnan(value):
        return "ECE of one prompt is unknown"
    limits = "" if np.isnan(low) else f" ({low:.3f} to {high:.3f})"
    return f"ECE {value:.3f}{limits}"


def plot_token_rewards(table: pd.DataFrame, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the reward after every piece of an answer: a staircase whose steps are the
    changes.

    Parameters
    ----------
    table : DataFrame
        The result of `rmlab.widgets.token_rewards`.
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        Blue bars are rises, orange ones (in grey the lighter) falls; the last level is
        the score. Up to 60 pieces are named below the axis, at a column's width as many
        as have room.

    Raises
    ------
    DataError
        For another table, or without rows.

    Examples
    --------
    >>> import rmlab
    >>> tokens = rmlab.papers.results("smollm2-tokens").query("label == 'chosen'")
    >>> rmlab.plots.plot_token_rewards(tokens).get_ylabel()
    'reward'
    """
    for column in ("text", "reward", "change", "method"):
        if column not in table.columns:
            remedy = "pass rmlab.widgets.token_rewards(scorer, prompt, response)"
            raise DataError(f"table: no column {column!r}", remedy)
    canvas.refuse_blank(table, "reward")

    width = min(max(0.24 * len(table) + 1.5, 5.0), 14.0)
    ax = canvas.new_axes(ax, (width, 3.4))
    x = np.arange(len(table))
    reward = table["reward"].to_numpy(float)
    _draw_changes(ax, x, reward, table["change"].to_numpy(float))
    ax.step(x, reward, where="mid", color="#333333", lw=0.7)

    score = f"{reward[-1]:.2f}".replace("-", "\N{MINUS SIGN}")
    end = (x[-1] + 0.5, reward[-1])
    ax.annotate(score, end, (0.4, 0), textcoords="offset fontsize", va="center")
    is_by_token = (table["method"] == "token").all()
    ax.set_xlabel("token" if is_by_token else "sentence")
    ax.set_ylabel("reward")
    ax.set_xlim(-0.8, len(table) + 0.9)
    if len(table) <= _NAMED:
        _name_pieces(ax, table["text"])

    # Bars would end at the frame, and the marks of the extremes would be cut by it.
    ax.use_sticky_edges = False
    ax.margins(y=0.08)
    return ax


def _draw_changes(
    ax: "Axes",
    x: NDArray[np.int64],
    reward: NDArray[np.float64],
    change: NDArray[np.float64],
) -> None:
    """A bar from each reward to the next."""
    change = np.nan_to_num(change)
    colours = np.where(change < 0, _FALL, _RISE)
    # The edge keeps the smallest change in sight at a column's width.
    ax.bar(
        x,
        change,
        bottom=reward - change,
        width=0.75,
        color=colours,
        edgecolor=colours,
        linewidth=1,
    )


def _name_pieces(ax: "Axes", texts: pd.Series) -> None:
    """The text of every piece below its bar, as many letters as have room."""
    names = []
    for text in texts:
        name = text.replace("\n", "⏎").strip()
        if len(name) > _LETTERS:
            name = f"{name[: _LETTERS - 1]}…"
        names.append(canvas.escape_name(name))
    ax.set_xticks(range(len(names)), names, rotation=90, fontsize="small")
    canvas.set_column_names(ax, names, 2)
