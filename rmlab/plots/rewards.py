"""Figures of rewards: margins, the reward along an answer, any number against
another.
"""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab import metrics, tables
from rmlab.plots import canvas
from rmlab.plots.canvas import LEVEL_STYLES, POINT, MarkStyle
from rmlab.tables import DataError, FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = (12, 60)  # few enough that an outline shows more than noise
# Dark and light in grey.
_RISE = "#2166ac"
_FALL = "#ef8a62"
_NAMED = 60  # more pieces than this leave no room for their text
_LETTERS = 24  # of the text of a piece


def plot_margins(pairs: pd.DataFrame, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the distribution of one model's margins. Right of zero the chosen answer
    wins.

    Parameters
    ----------
    pairs : DataFrame
        Pairs or scores of one model.
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        Densities, an outline for each level where comparisons have one; the legend has
        the share won and the ties, which lie in no bin. About the outermost 0.5 % on
        each side lie outside the frame; the axis says how many. The table beside it:
        `pairs.groupby("level")["margin"].describe()`.

    Raises
    ------
    DataError
        With several models, whose scores have different units, and without margins.

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
    pairs = tables.check_pairs(pairs)
    models = list(pairs["model"].unique())
    if len(models) != 1:
        names = f"{len(models)} models {models[:5]}"
        problem = f"pairs: {names}, whose margins have no common unit"
        raise DataError(problem, "keep one")
    canvas.refuse_blank(pairs, "margin", "judges give none: use scores")
    pairs = pairs.dropna(subset="margin")
    groups = {"all comparisons": (pairs["margin"], MarkStyle(POINT, "o"))}
    if pairs["level"].notna().any():
        groups = {}
        for level, margin in pairs.groupby("level", observed=True)["margin"]:
            groups[str(level)] = (margin, LEVEL_STYLES[str(level)])

    edges = _bin_edges(pairs["margin"].to_numpy(), len(pairs) // len(groups))
    ax = canvas.new_axes(ax, (6.4, 3.6))
    for name, (margin, style) in groups.items():
        label = f"{name}: {(margin > 0).mean():.2f} won of {len(margin):,}"
        n_ties = int((margin == 0).sum())
        if n_ties:
            label += f", {n_ties:,} tied"
        untied = margin[margin != 0]
        weights = np.full(len(untied), 1 / (edges[1] - edges[0]) / len(margin))
        density, _ = np.histogram(untied, edges, weights=weights)
        colour = style.colour
        ax.stairs(density, edges, color=colour, fill=True, alpha=0.12)
        ax.stairs(density, edges, color=colour, lw=1.6, ls=style.line, label=label)
        ax.plot(margin.median(), 0, "^", color=colour, ms=7, clip_on=False)
    ax.axvline(0, color="black", lw=0.8, ls=":")

    n_outside = int((~pairs["margin"].between(edges[0], edges[-1])).sum())
    label = "margin: chosen minus rejected\ntriangle: median"
    if n_outside:
        label += f"; {n_outside:,} of {len(pairs):,} lie outside"
    ax.set_xlabel(canvas.describe_values(label))
    ax.set_ylabel("density")
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(bottom=0)
    canvas.add_legend(ax)
    return ax


def _bin_edges(margin: FloatArray, n_in_group: int) -> FloatArray:
    """Bins of equal width over all but the outermost margins; zero is an edge."""
    n_bins = int(np.clip(2 * np.sqrt(n_in_group), *_BINS))
    low, high = np.quantile(margin, [0.005, 0.995])
    left = min(float(low), 0.0)
    right = max(float(high), 0.0)
    width = (right - left) / n_bins or 1.0
    return width * np.arange(np.floor(left / width), np.ceil(right / width) + 1.5)


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
    change = np.nan_to_num(table["change"].to_numpy(float))
    colours = np.where(change < 0, _FALL, _RISE)
    # The edge keeps the smallest change in sight at a column's width.
    ax.bar(
        x, change, 0.75, reward - change, color=colours, edgecolor=colours, linewidth=1
    )
    ax.step(x, reward, where="mid", color="#333333", lw=0.7)

    score = f"{reward[-1]:.2f}".replace("-", "\N{MINUS SIGN}")
    end = (x[-1] + 0.5, reward[-1])
    ax.annotate(score, end, (0.4, 0), textcoords="offset fontsize", va="center")
    is_by_token = (table["method"] == "token").all()
    ax.set_xlabel("token" if is_by_token else "sentence")
    ax.set_ylabel("reward")
    ax.set_xlim(-0.8, len(table) + 0.9)
    if len(table) <= _NAMED:
        names = []
        for text in table["text"]:
            name = text.replace("\n", "⏎").strip()
            if len(name) > _LETTERS:
                name = f"{name[: _LETTERS - 1]}…"
            names.append(canvas.escape_name(name))
        ax.set_xticks(x, names, rotation=90, fontsize="small")

    # Bars would end at the frame, and the marks of the extremes would be cut by it.
    ax.use_sticky_edges = False
    ax.margins(y=0.08)
    return ax


def plot_scatter(
    table: pd.DataFrame,
    x: str,
    y: str,
    *,
    group: str | None = None,
    named: int = 4,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw two columns of a table with a row per model against each other.

    Parameters
    ----------
    table : DataFrame
        Any table with the column model; of scores or pairs, the summary is drawn.
    x, y : str
        Columns with numbers.
    group : str, optional
        A column with at most eight values, which give points their colour and mark.
    named : int
        How many models are named, by numbers: those farthest from a robust line
        through all (Theil and Sen's).
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        A point per model. Rows that lack a number are left out, and counted below the
        axis.

    Raises
    ------
    DataError
        For a column that is not there, too many groups, or where no row has both
        numbers.

    Examples
    --------
    >>> import rmlab
    >>> board = rmlab.papers.published("rm-bench")
    >>> ax = rmlab.plots.plot_scatter(board, "easy", "hard", named=1)
    >>> [text.get_text() for text in ax.texts]
    ['1', '1  RM-Mistral-7B']
    """
    named_group = [] if group is None else [group]
    columns = ["model", x, y, *named_group]
    table = canvas.table_to_draw(table, metrics.summary, columns)
    points = table.dropna(subset=[x, y])
    if points.empty:
        problem = f"table: none of {len(table)} rows has both {x} and {y}"
        raise DataError(problem, canvas.AVERAGE_HINT)
    series = pd.Series("", index=points.index)
    if group is not None:
        series = points[group].astype(str)

    ax = canvas.new_axes(ax, (4.6, 4.0))
    for name, style in canvas.series_styles(series).items():
        of_group = points[series == name]
        ax.scatter(
            of_group[x],
            of_group[y],
            s=26,
            color=style.colour,
            marker=style.marker,
            alpha=0.7,
            lw=0,
            label=canvas.escape_name(name),
        )
    n_left_out = len(table) - len(points)
    x_label = canvas.escape_name(x)
    ax.set_xlabel(
        canvas.describe_values(x_label, n_left_out, "without both numbers left out")
    )
    ax.set_ylabel(canvas.escape_name(y))
    _name_points(ax, _find_outliers(points, x, y, named).sort_values(y), x, y)
    if group is not None:
        canvas.add_legend(ax)
    return ax


def _name_points(ax: "Axes", named: pd.DataFrame, x: str, y: str) -> None:
    """A number beside each named point, and below the axes what they stand for."""
    from matplotlib.patheffects import withStroke

    # Other points and lines that callers draw may run through a number.
    outline = withStroke(linewidth=2, foreground=ax.get_facecolor())
    bare_names = [name.split("/")[-1] for name in named["model"]]
    names = canvas.shorten_names(bare_names)

    lines = []
    positions = zip(names, named[x], named[y], strict=True)
    for number, (name, across, up) in enumerate(positions, start=1):
        mark = ax.annotate(
            str(number), (across, up), (0.45, 0.45), textcoords="offset fontsize"
        )
        mark.set(fontsize="small", path_effects=[outline], annotation_clip=False)
        lines.append(f"{number}  {canvas.escape_name(name)}")
    if lines:
        n_label_lines = 1 + ax.get_xlabel().count("\n")
        ax.annotate(
            "\n".join(lines),
            (0, 0),
            (0, -2.9 - 1.5 * n_label_lines),
            "axes fraction",
            "offset fontsize",
            va="top",
            fontsize="small",
            annotation_clip=False,
        )


def _find_outliers(points: pd.DataFrame, x: str, y: str, most: int) -> pd.DataFrame:
    """The rows farthest from a robust line through all (Theil and Sen's)."""
    from scipy.stats import theilslopes

    if len(points) < 3 or len(set(points[x])) == 1:
        return points.head(0)
    across = points[x].to_numpy(float)
    up = points[y].to_numpy(float)
    level = up - theilslopes(up, across).slope * across
    residual = np.abs(level - np.median(level))
    farthest = np.argsort(-residual, kind="stable")[:most]
    return points.iloc[farthest]
