"""Figures of rewards: margins, what they promise, and the reward along an answer."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import metrics, stats, tables
from rmlab.plots import canvas
from rmlab.plots.canvas import COLOURS, LINES, MARKERS
from rmlab.plots.style import LEVEL_STYLES
from rmlab.tables import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = (12, 60)  # few enough that an outline shows more than noise
_JOINED = 10  # comparisons from which on a bin is joined to its neighbours
_ERROR = ["ece", "ece_low", "ece_high"]
_RISE, _FALL = "#2166ac", "#ef8a62"  # dark and light in grey
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
        The table beside it: `rmlab.stats.margins(pairs, by=by)`.

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
    margins = _group_margins(
        tables.check_pairs(pairs if "chosen_slot" in pairs else metrics.pairs(pairs)),
        by,
    )
    ax = canvas.new_axes(ax, (6.4, 3.6))
    pooled = np.concatenate(list(margins.values()))
    edges = _edges(
        pooled,
        bins or int(np.clip(2 * np.sqrt(min(map(len, margins.values()))), *_BINS)),
    )
    for i, (name, margin) in enumerate(margins.items()):
        colour = (
            LEVEL_STYLES[name][0] if name in LEVEL_STYLES else COLOURS[i % len(COLOURS)]
        )
        density = (
            np.histogram(margin[margin != 0], edges)[0] / len(margin) / np.diff(edges)
        )
        n_ties = int((margin == 0).sum())
        label = (
            f"{canvas.plain(name)}: {(margin > 0).mean():.2f} won of {len(margin):,}"
        )
        label += f", {n_ties:,} {'tie' if n_ties == 1 else 'ties'}" if n_ties else ""
        ax.stairs(density, edges, color=colour, fill=True, alpha=0.12)
        ax.stairs(
            density, edges, color=colour, lw=1.6, ls=LINES[i % len(LINES)], label=label
        )
        ax.plot(
            np.median(margin),
            0,
            marker="^",
            color=colour,
            ms=7,
            clip_on=False,
            zorder=3,
        )
    ax.axvline(0, color="black", lw=0.8, ls=":")
    n_outside = int(((pooled < edges[0]) | (pooled > edges[-1])).sum())
    outside = f"; {n_outside:,} of {len(pooled):,} lie outside" if n_outside else ""
    ax.set(
        xlabel=f"margin: chosen minus rejected\n(triangle: median{outside})",
        ylabel="density",
    )
    ax.set(xlim=(edges[0], edges[-1]), ylim=(0, None))
    canvas.add_legend(ax)
    return ax


def _group_margins(
    pairs: pd.DataFrame, by: str | None
) -> dict[str, NDArray[np.float64]]:
    models = list(pairs["model"].unique())
    if len(models) != 1:
        raise DataError(
            f"pairs: {len(models)} models {models[:5]}, whose margins have no common unit. Keep one."
        )
    if by is None and pairs["level"].notna().any():
        by = "level"
    tables.require_columns(pairs, [] if by is None else [by], "pairs")
    groups = (
        pd.Series("all comparisons", index=pairs.index) if by is None else pairs[by]
    )
    rows = pairs["margin"].notna() & groups.notna()
    if not rows.any():
        raise DataError(
            f"pairs: no row has a margin{f' and a {by}' if by else ''}. Judges give none: use scores."
        )
    margins = pairs["margin"][rows].groupby(
        groups[rows], sort=isinstance(groups.dtype, pd.CategoricalDtype)
    )
    return {str(name): group.to_numpy(float) for name, group in margins if len(group)}


def _edges(margin: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    """About `bins` bins of equal width over all but the outermost margins; zero is an
    edge.
    """
    left, right = np.clip(
        np.quantile(margin, [0.005, 0.995]), (-np.inf, 0), (0, np.inf)
    )
    width = (right - left or 1.0) / bins
    return width * np.arange(np.floor(left / width), max(np.ceil(right / width), 1) + 1)


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
        Points are as large as their bin is full; those of fewer than 10 comparisons are
        hollow and not joined. Lines are 95 % intervals clustered by prompt. The legend
        has the expected calibration error with its interval.

    Raises
    ------
    DataError
        For another table, or where no comparison has a margin.

    Examples
    --------
    >>> import rmlab
    >>> scores = rmlab.papers.results("math-prm")
    >>> ax = rmlab.plots.plot_calibration(scores[scores["model"] == "openbmb/Eurus-RM-7b"])
    >>> ax.get_ylabel()
    'share where it is right'
    """
    columns = ["model", "predicted", "accuracy", "low", "high", "n_pairs", *_ERROR]
    hint = "Judges give no margins: pass a reward model's scores."
    table = canvas.read_table(table, stats.calibration, columns, "accuracy", hint=hint)
    ax = canvas.new_axes(ax, (4.6, 3.9 + 0.3 * table["model"].nunique()))
    ax.plot([0.5, 1], [0.5, 1], color="black", lw=0.8, ls=":", zorder=0)
    names = canvas.shorten_names(list(table["model"].unique()), 40)
    for i, (name, (_, model_bins)) in enumerate(
        zip(names, table.groupby("model", sort=False), strict=True)
    ):
        filled = model_bins[model_bins["n_pairs"] > 0]
        colour, joined = COLOURS[i % len(COLOURS)], filled[filled["n_pairs"] >= _JOINED]
        ax.vlines(
            joined["predicted"],
            joined["low"],
            joined["high"],
            color=colour,
            lw=1,
            alpha=0.6,
            zorder=1,
        )
        ax.plot(
            joined["predicted"],
            joined["accuracy"],
            color=colour,
            lw=1,
            ls=LINES[i % len(LINES)],
            zorder=2,
        )
        points = ax.scatter(
            filled["predicted"],
            filled["accuracy"],
            marker=MARKERS[i % len(MARKERS)],
            zorder=3,
        )
        points.set(
            sizes=12 + 80 * filled["n_pairs"] / filled["n_pairs"].sum(),
            clip_on=False,
            edgecolor=colour,
        )
        points.set_facecolor(
            np.where(filled["n_pairs"] >= _JOINED, colour, "white").tolist()
        )
        label = f"{canvas.plain(name)}\n{_format_error(filled)}"
        ax.scatter(
            [], [], color=colour, marker=MARKERS[i % len(MARKERS)], s=26, label=label
        )
    ax.set(
        xlabel="predicted probability\nof the preferred answer",
        ylabel="share where it is right",
    )
    ax.set(xlim=(0.49, 1.01), ylim=(None, 1.02))
    canvas.add_legend(ax)
    return ax


def _format_error(bins: pd.DataFrame) -> str:
    """The model's calibration error for the legend."""
    if bins.empty:
        return "no margins"
    value, low, high = bins[_ERROR].iloc[0]
    limits = "" if np.isnan(low) else f" ({low:.3f} to {high:.3f})"
    return (
        f"ECE {value:.3f}{limits}"
        if not np.isnan(value)
        else "ECE of one prompt is unknown"
    )


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
            raise DataError(
                f"table: no column {column!r}. Pass rmlab.widgets.token_rewards(scorer, prompt, response)."
            )
    canvas.refuse_blank(table, "reward")
    ax = canvas.new_axes(ax, (min(max(0.24 * len(table) + 1.5, 5.0), 14.0), 3.4))
    x, reward = np.arange(len(table)), table["reward"].to_numpy(float)
    change = np.nan_to_num(table["change"].to_numpy(float))
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
    ax.step(x, reward, where="mid", color="#333333", lw=0.7)
    score = f"{reward[-1]:.2f}".replace("-", "\N{MINUS SIGN}")
    ax.annotate(
        score,
        (x[-1] + 0.5, reward[-1]),
        (0.4, 0),
        textcoords="offset fontsize",
        va="center",
    )
    ax.set(
        ylabel="reward",
        xlabel="token" if (table["method"] == "token").all() else "sentence",
    )
    ax.set(xlim=(-0.8, len(table) + 0.9))
    if len(table) <= _NAMED:
        names = [text.replace("\n", "⏎").strip() for text in table["text"]]
        names = [
            canvas.plain(name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…")
            for name in names
        ]
        ax.set_xticks(x, names, rotation=90, fontsize="small")
        canvas.set_column_names(ax, names, 2)
    # bars would end at the frame, and the marks of the extremes would be cut by it
    ax.use_sticky_edges = False
    ax.margins(y=0.08)
    return ax
