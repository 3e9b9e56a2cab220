"""Rows with intervals: numbers, ranks, leaderboards and effects."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab import metrics, stats
from rmlab.benchmarks.registry import chance_of_columns
from rmlab.bias.effects import style_effects
from rmlab.plots import canvas
from rmlab.plots.canvas import BASELINE, POINT, MarkStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AROUND_ZERO = {"difference", "gap", "change", "effect"}
_AXES = {
    "value": "share won",
    "preference": "share of comparisons\nthat the fancier answer wins",
    "gap": "accuracy on easy minus accuracy on hard comparisons",
    "controlled": "share of comparisons won, at equal length or style",
    "change": "change in accuracy",
    "effect": "effect on the score\n(standard deviations within a prompt)",
    "difference": "difference in accuracy",
    "accuracy": "share of comparisons won",
    "rate": "what the style is worth\n(1 = as much as being right)",
}
_LEGEND_LETTERS = 40  # of the name of a series
_LETTERED = 40  # rows up to which letters of groups are written unless asked for
# What stands in the columns that a table of overall scores lacks.
_BOARD: dict[str, str | float] = {
    "kind": "model",
    "low": np.nan,
    "high": np.nan,
    "group": "",
}
_KIND_STYLES = {"model": MarkStyle(POINT, "o"), "baseline": MarkStyle(BASELINE, "D")}
_TERMS = {
    "correct": "right instead of wrong",
    "step": "one step of style",
    "step_plain": "plain instead of concise",
    "step_markdown": "Markdown instead of plain",
    "markdown": "Markdown marks doubled",
}
# Beyond this a model looks at style alone, and its number would squeeze all others.
_WIDEST_RATE = 4.0


def plot_forest(
    table: pd.DataFrame,
    *,
    value: str | None = None,
    label: str | list[str] | None = None,
    series: str | None = None,
    reference: float | None = None,
    sort: bool = False,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the value and the interval of every row of a table, one below the other.

    Parameters
    ----------
    table : DataFrame
        Any table with a value, low and high, such as `accuracy`, `compare`, `style_gap`
        or `length_controlled` return; of scores or pairs, `rmlab.accuracy(table)` is
        drawn.
    value : str, optional
        The column to draw; by default the one that low and high belong to.
    label : str or list of str, optional
        The columns that name a row; by default those that tell the rows apart.
    series : str, optional
        A column, such as "model", whose values are marks in the same row: the subsets
        of several models, one below the other.
    reference : float, optional
        Where the dotted line stands; by default 0 for differences, gaps, changes and
        effects, else the table's one `chance`, else 0.5.
    sort : bool
        Whether the largest value stands on top, instead of the first row.
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        A row without an interval is drawn hollow; those without a value are left out,
        and counted below the axis.

    Raises
    ------
    DataError
        For a table without these columns, or without a number.

    Examples
    --------
    >>> import rmlab
    >>> pairs = rmlab.pairs(rmlab.papers.results("smollm2-mini"))
    >>> by_level = rmlab.compare(
    ...     pairs, "SmolLM2-135M sum", "SmolLM2-135M mean", by="level"
    ... )
    >>> ax = rmlab.plots.plot_forest(by_level)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['hard', 'normal', 'easy']
    """
    table = canvas.table_to_draw(table, metrics.accuracy, ["low", "high"])
    if value is None:
        value = _usual_value(table)
    table = canvas.table_to_draw(table, metrics.estimates, [value], value)
    rows = table.dropna(subset=[value])
    rows = rows.iloc[::-1]
    if sort:
        rows = rows.sort_values(value, kind="stable")
    if reference is None:
        reference = _usual_reference(table, value)
    if series is not None:
        names = _naming_columns(rows.loc[:, :value].drop(columns=series))
        marks = rows.iloc[::-1]
        ax = _draw_series(marks, value, marks[series].astype(str), names, ax)
        canvas.mark_line(ax, reference)
        return ax

    ax = canvas.new_rows(ax, _row_names(rows, value, label))
    canvas.mark_line(ax, reference)
    dots = rows.assign(y=np.arange(len(rows)))
    dots["hollow"] = dots["low"].isna()
    canvas.draw_dots(ax, dots, value, MarkStyle(POINT, "o"))

    x_label = _value_label(table, value)
    n_left_out = len(table) - len(rows)
    canvas.label_values(ax, x_label, n_left_out, "without a value left out", "row")
    return ax


def _usual_value(table: pd.DataFrame) -> str:
    """The column that low and high belong to."""
    for column in [*_AXES, "overall"]:
        if column in table.columns:
            return column
    return "value"


def _usual_reference(table: pd.DataFrame, value: str) -> float:
    """Zero for a difference, the chance of random scores for a share."""
    if value in _AROUND_ZERO:
        return 0.0
    chance = table.get("chance", pd.Series(dtype=float)).dropna().unique()
    return float(chance[0]) if len(chance) == 1 else 0.5


def plot_rank(
    ranks: pd.DataFrame,
    *,
    groups: bool | None = None,
    most: int = 40,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw ranks with their intervals, best on top.

    Parameters
    ----------
    ranks : DataFrame
        The result of `rmlab.rank`, or scores or pairs.
    groups : bool, optional
        Whether letters stand at the right: models that share one are not clearly
        different. By default where all models are drawn.
    most : int
        The best models that are drawn; the axis says how many follow.
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        A row per model, with its score at the right. Models without a rank are left
        out, and counted below the axis.

    Raises
    ------
    DataError
        For another table, or where no model has a rank.

    Examples
    --------
    >>> import rmlab
    >>> ranks = rmlab.rank(rmlab.papers.results("math-prm"), average="domains")
    >>> ax = rmlab.plots.plot_rank(ranks)
    >>> ax.get_xlabel()
    'rank (1 is best)'
    """
    needed = ["model", "rank", "rank_low", "rank_high", "group", "value"]
    ranks = canvas.table_to_draw(ranks, stats.rank, needed, "rank", argument="ranks")
    limits = ["rank", "rank_low", "rank_high"]
    rows = ranks.dropna(subset=["rank"]).head(most)
    rows = rows.iloc[::-1].astype(dict.fromkeys(limits, float))

    ax = canvas.new_rows(ax, list(rows["model"]))
    y = np.arange(len(rows))
    low = rows["rank_low"]
    high = rows["rank_high"]
    ax.hlines(y, low, high, color=POINT, lw=5, alpha=0.35, zorder=1)
    ax.scatter(rows["rank"], y, color=POINT, s=26, zorder=2, clip_on=False)

    n_left_out = len(ranks) - len(rows)
    why = "further down or without a score not drawn"
    canvas.label_values(ax, "rank (1 is best)", n_left_out, why)
    ax.set_xlim(0.5, max(len(rows), high.max()) + 0.5)
    ax.locator_params(axis="x", integer=True, min_n_ticks=2)

    scores = [f"{score:.3f}" for score in rows["value"]]
    canvas.margin_column(ax, "score", scores, 0.6)
    if groups is None:
        groups = ranks["rank"].count() <= min(most, _LETTERED)
    if groups and (rows["group"] != "").any():
        canvas.margin_column(ax, "group", list(rows["group"]), 4.4)
    return ax


def plot_leaderboard(
    board: pd.DataFrame,
    *,
    most: int = 40,
    chance: float | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw overall scores with their 95 % intervals, best on top, with the baselines
    among the models.

    Parameters
    ----------
    board : DataFrame
        The result of `rmlab.leaderboard`, or any table with model and overall, such as
        `rmlab.summary` or `rmlab.papers.published` return; of scores or pairs, the
        summary is drawn.
    most : int
        The best models that are drawn (baselines always are); the axis says how many
        follow.
    chance : float, optional
        Where the dotted line stands; by default at 1/2 where every number of the table
        is a share of pairs won.
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        A row per model; baselines are grey diamonds. Models that share a letter are not
        significantly different.

    Raises
    ------
    DataError
        For another table, or where no model has an overall score.

    Examples
    --------
    >>> import rmlab
    >>> ax = rmlab.plots.plot_leaderboard(rmlab.papers.published("rm-bench"), most=10)
    >>> len(ax.get_yticklabels())
    10
    """
    board = canvas.table_to_draw(
        board, metrics.summary, ["model", "overall"], "overall", argument="board"
    )
    rows = _board_rows(board, most)

    ax = canvas.new_rows(ax, list(rows["model"]))
    for kind, style in _KIND_STYLES.items():
        dots = rows[rows["kind"] == kind]
        canvas.draw_dots(ax, dots.assign(y=dots.index), "overall", style)

    if chance is None:
        chance = chance_of_columns(board.columns)
    if chance is not None:
        canvas.mark_line(ax, chance, f"chance ({chance:g})")

    if (rows["group"] != "").any():
        canvas.margin_column(ax, "group", _shorten_groups(rows["group"]), 0.6)
    n_left_out = len(board) - len(rows)
    why = "further down or without a score not drawn"
    canvas.label_values(ax, "overall score", n_left_out, why)
    return ax


def _board_rows(board: pd.DataFrame, most: int) -> pd.DataFrame:
    """The best models and all baselines, the best in the last row."""
    for column, value in _BOARD.items():
        if column not in board.columns:
            board = board.assign(**{column: value})
    scored = board.dropna(subset=["overall"])
    scored = scored.sort_values("overall", ascending=False, kind="stable")
    is_blind = scored["kind"] == "baseline"
    n_models = (~is_blind).cumsum()
    rows = scored[is_blind | (n_models <= most)].iloc[::-1]
    return rows.reset_index(drop=True)


def _shorten_groups(groups: pd.Series) -> list[str]:
    """Letters of groups, at most eight signs wide."""
    texts = []
    for letters in groups:
        if len(letters) > 8:
            letters = f"{letters[:7]}…"
        texts.append(letters)
    return texts


def _row_names(
    rows: pd.DataFrame, value: str, label: str | list[str] | None
) -> list[str]:
    if label is None:
        columns = _naming_columns(rows.loc[:, :value])
    elif isinstance(label, str):
        columns = [label]
    else:
        columns = label
    canvas.table_to_draw(rows, metrics.estimates, columns)
    if not columns:
        return list(rows.index.astype(str))
    return list(canvas.join_names(rows, columns, " · "))


def _naming_columns(rows: pd.DataFrame) -> list[str]:
    """The columns of words that tell the rows apart, else the first of words."""
    words = rows.select_dtypes(exclude="number")
    columns = [str(column) for column in words if len(set(words[column])) > 1]
    if not columns:
        return list(words.columns[:1])
    if "name" in columns and "quantity" in columns:
        columns.remove("quantity")
    return columns


def _value_label(table: pd.DataFrame, value: str) -> str:
    models = table.reindex(columns=["model_a", "model_b"]).drop_duplicates()
    if value == "difference" and len(models) == len(models.dropna()) == 1:
        names = canvas.shorten_names(list(models.iloc[0]), 40)
        first, second = [canvas.escape_name(name) for name in names]
        return f"difference in accuracy:\n{first}\nminus {second}"
    if value == "change" and "standardised" in table.columns:  # of `probe`
        return "change in score"
    return _AXES.get(value, value).replace("\n", " ")


def plot_effects(table: pd.DataFrame, *, ax: "Axes | None" = None) -> "Axes":
    """Draw effects on the score, or exchange rates, with their intervals.

    The line at 0 is "does not move the score"; the line at 1 of an exchange rate is
    "worth as much as being right". A rate whose interval is unbounded is a dashed line
    across the figure, another rate beyond 4 an arrow with its number.

    Parameters
    ----------
    table : DataFrame
        The result of `rmlab.style_effects` or `rmlab.exchange_rate`; of scores,
        `rmlab.style_effects(scores)`.
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        A row per model (a row per term for one model), a mark per term. A row without
        an estimate says why.

    Raises
    ------
    DataError
        For another table, or where no row has an estimate.

    Examples
    --------
    >>> import rmlab
    >>> ax = rmlab.plots.plot_effects(rmlab.papers.results("smollm2-mini"))
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['SmolLM2-135M mean', 'SmolLM2-135M sum']
    """
    value = "rate" if "rate" in table.columns else "effect"
    needed = ["term", value, "low", "high"]
    table = canvas.table_to_draw(
        table, style_effects, needed, value, hint="pass other models or terms"
    )
    series = table["term"].map(_name_term)
    keys = canvas.columns_before(table, "term")
    ax = _draw_series(table, value, series, keys, ax)
    ax.axvline(0.0, color="black", lw=0.8, zorder=0)
    if value == "rate":
        canvas.mark_line(ax, 1.0)
    return ax


def _name_term(term: str) -> str:
    return _TERMS.get(term, f"{term} doubled")


def _draw_series(
    table: pd.DataFrame,
    value: str,
    series: pd.Series,
    keys: list[str],
    ax: "Axes | None",
) -> "Axes":
    """A row per combination of the keys, the first on top, with a mark per series; for
    one row, a row per series.
    """
    names, series, title = _name_rows(table, series, keys)
    rows = list(names.unique())
    rows.reverse()
    labels = list(series.unique())

    ax = canvas.new_rows(ax, rows, n_series=len(labels))
    ax.set_xlim(*_limits(table, value))
    y = names.map(rows.index)
    short_labels = canvas.shorten_names(labels, _LEGEND_LETTERS)
    for i, (label, short_label) in enumerate(zip(labels, short_labels, strict=True)):
        offset = canvas.row_offset(i, len(labels))
        estimates = table.assign(y=y + offset)[series == label]
        style = canvas.series_style(i)
        _draw_estimates(ax, estimates, value, style, canvas.escape_name(short_label))
    unknown = table[table[value].isna()]
    if "reason" in unknown:
        for name, reasons in unknown.groupby(names)["reason"]:
            canvas.write_beside(ax, rows.index(name), "; ".join(reasons.unique()))

    if len(labels) > 1:
        canvas.add_legend(ax)
    canvas.label_values(ax, _AXES.get(value, value))
    ax.set_title(canvas.escape_name(title), fontsize="medium")
    return ax


def _name_rows(
    table: pd.DataFrame, series: pd.Series, keys: list[str]
) -> tuple[pd.Series, pd.Series, str]:
    """The row of every estimate, its series, and the title of a figure of one row."""
    unnamed = pd.Series("", index=table.index)
    names = unnamed
    if keys:
        names = canvas.join_names(table, keys, " · ")
    if len(set(names)) > 1:
        return names, series, ""

    title = names.iloc[0]
    if title and len(set(series)) > 1:
        return series, unnamed, title
    return names, series, title


def _draw_estimates(
    ax: "Axes", table: pd.DataFrame, value: str, style: MarkStyle, label: str
) -> None:
    """Dots and intervals of one series; unbounded intervals as dashed lines, values
    outside the axes as arrows.
    """
    limits = table[["low", "high"]].to_numpy(float)
    is_unbounded = np.isinf(limits).any(axis=1)
    bounded = table[~is_unbounded].dropna(subset=[value])
    is_inside = bounded[value].between(*ax.get_xlim())
    inside = bounded[is_inside]
    canvas.draw_dots(ax, inside, value, style, label)

    for y in table["y"][is_unbounded]:
        ax.axhline(y, color=style.colour, lw=1.2, ls="--", alpha=0.6, zorder=1)
        canvas.write_beside(ax, y, "unbounded")

    outside = bounded[~is_inside]
    columns = [outside[name] for name in ("y", value, "low", "high")]
    for y, number, low, high in zip(*columns, strict=True):
        _draw_arrow(ax, y, number, (low, high), style)


def _draw_arrow(
    ax: "Axes",
    y: float,
    number: float,
    interval: tuple[float, float],
    style: MarkStyle,
) -> None:
    """An arrow at the edge with the number that lies beyond it, and what is inside of
    its interval.
    """
    left, right = ax.get_xlim()
    low, high = interval
    colour = style.colour
    shown_low = max(left, low)
    shown_high = min(right, high)
    ax.hlines(y, shown_low, shown_high, color=colour, lw=1.4)

    edge = right
    marker = ">"
    alignment = "right"
    if number < left:
        edge = left
        marker = "<"
        alignment = "left"
    ax.plot(edge, y, marker, color=colour, ms=6, zorder=3, clip_on=False)
    ax.annotate(
        f"{number:.3g}",
        (edge, y),
        (0, 0.25),
        textcoords="offset fontsize",
        ha=alignment,
        va="bottom",  # above the line: the interval may reach under it
        fontsize="x-small",
        color=colour,
    )


def _limits(table: pd.DataFrame, value: str) -> tuple[float, float]:
    """All finite numbers and the reference lines, with a margin; rates end at 4, and
    unbounded ones do not count.
    """
    estimates = table[[value, "low", "high"]].to_numpy(float)
    is_finite = np.isfinite(estimates).all(axis=1)
    numbers = np.append(estimates[is_finite], 0.0)
    if value == "rate":
        numbers = np.append(numbers, 1.0).clip(-_WIDEST_RATE, _WIDEST_RATE)
    lowest = float(numbers.min())
    highest = float(numbers.max())
    margin = 0.06 * max(highest - lowest, 0.1)
    return lowest - margin, highest + margin
