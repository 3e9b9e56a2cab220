"""Rows with intervals: numbers, ranks, leaderboards, effects and preferences."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab import bias, metrics, stats
from rmlab.benchmarks.registry import with_columns
from rmlab.plots import canvas
from rmlab.plots.canvas import BASELINE, COLOURS, MARKERS, POINT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AROUND_ZERO = {"difference", "gap", "change", "effect"}
_AXES = {
    "value": "share of comparisons won",
    "preference": "share of comparisons\nthat the fancier answer wins",
    "gap": "accuracy on easy minus accuracy on hard comparisons",
    "controlled": "share of comparisons won, at equal length or style",
    "change": "change in accuracy",
    "effect": "effect on the score\n(standard deviations within a prompt)",
    "difference": "difference in accuracy",
    "accuracy": "share of comparisons won",
    "rate": "worth in units of correctness\n(1 = being right)",
}
_LETTERED = 40  # rows up to which letters of groups are written unless asked for
_BOARD: dict[str, str | float] = {
    "kind": "model",
    "low": np.nan,
    "high": np.nan,
    "group": "",
}
_TERMS = {
    "correct": "right instead of wrong",
    "step": "one step of style",
    "step_plain": "plain instead of concise",
    "step_markdown": "Markdown instead of plain",
    "markdown": "Markdown marks doubled",
}
# beyond this a model looks at style alone, and its number would squeeze all others
_WIDEST_RATE = 4.0


def plot_forest(
    table: pd.DataFrame,
    *,
    value: str | None = None,
    label: str | list[str] | None = None,
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
    reference : float, optional
        Where the dotted line stands; by default 0 for differences, gaps, changes and
        effects, else 0.5.
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
    >>> ax = rmlab.plots.plot_forest(rmlab.compare(pairs, "SmolLM2-135M sum", "SmolLM2-135M mean", by="level"))
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['hard', 'normal', 'easy']
    """
    table = canvas.read_table(table, metrics.accuracy, ["low", "high"])
    value = value or next(
        (column for column in [*_AXES, "overall"] if column in table.columns), "value"
    )
    table = canvas.read_table(table, metrics.estimates, [value], value)
    rows = table.dropna(subset=[value]).iloc[::-1]
    rows = rows.sort_values(value, kind="stable") if sort else rows
    ax = canvas.new_rows(ax, _row_names(rows, value, label))
    usual_reference = 0.0 if value in _AROUND_ZERO else 0.5
    ax.axvline(
        usual_reference if reference is None else reference,
        color="black",
        lw=0.8,
        ls=":",
        zorder=0,
    )
    canvas.draw_dots(
        ax,
        rows.assign(y=np.arange(len(rows)), hollow=rows["low"].isna()),
        value,
        (POINT, "o"),
    )
    canvas.label_values(
        ax,
        _value_label(table, value),
        len(table) - len(rows),
        "without a value left out",
        "row",
    )
    return ax


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
    >>> ax = rmlab.plots.plot_rank(rmlab.rank(rmlab.papers.results("math-prm"), average="domains"))
    >>> ax.get_xlabel()
    'rank (1 is best)'
    """
    needed = ["model", "rank", "rank_low", "rank_high", "group", "value"]
    ranks = canvas.read_table(ranks, stats.rank, needed, "rank", argument="ranks")
    rows = (
        ranks.dropna(subset=["rank"])
        .head(most)
        .iloc[::-1]
        .astype(dict.fromkeys(needed[1:4], float))
    )
    ax = canvas.new_rows(ax, list(rows["model"]))
    y = np.arange(len(rows))
    ax.hlines(
        y, rows["rank_low"], rows["rank_high"], color=POINT, lw=5, alpha=0.35, zorder=1
    )
    ax.scatter(rows["rank"], y, color=POINT, s=26, zorder=2, clip_on=False)
    canvas.label_values(
        ax,
        "rank (1 is best)",
        len(ranks) - len(rows),
        "further down or without a score not drawn",
    )
    ax.set_xlim(0.5, max(len(rows), rows["rank_high"].max()) + 0.5)
    ax.locator_params(axis="x", integer=True, min_n_ticks=2)
    canvas.margin_column(ax, "score", [f"{score:.3f}" for score in rows["value"]], 0.6)
    if (rows["group"] != "").any() and (
        ranks["rank"].count() <= min(most, _LETTERED) if groups is None else groups
    ):
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
    board = canvas.read_table(
        board, metrics.summary, ["model", "overall"], "overall", argument="board"
    )
    board = board.assign(
        **{
            column: value
            for column, value in _BOARD.items()
            if column not in board.columns
        }
    )
    scored = board.dropna(subset=["overall"]).sort_values(
        "overall", ascending=False, kind="stable"
    )
    is_blind = scored["kind"] == "baseline"
    rows = (
        scored[is_blind | ((~is_blind).cumsum() <= most)]
        .iloc[::-1]
        .reset_index(drop=True)
    )
    ax = canvas.new_rows(ax, list(rows["model"]))
    for kind, style in (("model", (POINT, "o")), ("baseline", (BASELINE, "D"))):
        part = rows[rows["kind"] == kind]
        canvas.draw_dots(ax, part.assign(y=part.index), "overall", style)
    if chance is None and isinstance(
        usual := with_columns(board.columns).chance, float
    ):
        chance = usual
    if chance is not None:
        canvas.mark_line(ax, chance, f"chance ({chance:g})")
    if (rows["group"] != "").any():
        canvas.margin_column(
            ax,
            "group",
            [text if len(text) < 9 else text[:7] + "…" for text in rows["group"]],
            0.6,
        )
    canvas.label_values(
        ax,
        "overall score",
        len(board) - len(rows),
        "further down or without a score not drawn",
    )
    return ax


def _row_names(
    rows: pd.DataFrame, value: str, label: str | list[str] | None
) -> list[str]:
    columns = [label] if isinstance(label, str) else label
    if columns is None:
        keys = rows.loc[:, :value].select_dtypes(exclude="number")
        columns = [str(column) for column in keys if len(set(keys[column])) > 1] or [
            *keys.columns[:1]
        ]
        columns = [
            column
            for column in columns
            if column != "quantity" or "name" not in columns
        ]
    canvas.read_table(rows, metrics.estimates, columns)
    return (
        list(rows[columns].astype(str).agg(" · ".join, axis=1))
        if columns
        else list(rows.index.astype(str))
    )


def _value_label(table: pd.DataFrame, value: str) -> str:
    names = table.reindex(columns=["model_a", "model_b"]).drop_duplicates()
    if value == "difference" and len(names.dropna()) == len(names) == 1:
        first, second = (
            canvas.plain(name) for name in canvas.shorten_names(list(names.iloc[0]), 40)
        )
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
    table = canvas.read_table(
        table, bias.style_effects, needed, value, hint="Pass other models or terms."
    )
    series = table["term"].map(lambda term: _TERMS.get(term, f"{term} doubled"))
    ax = _draw_series(
        table, value, series, list(table.columns[: table.columns.get_loc("term")]), ax
    )
    ax.axvline(0.0, color="black", lw=0.8, zorder=0)
    if value == "rate":
        ax.axvline(1.0, color="black", lw=0.8, ls=":", zorder=0)
    return ax


def plot_preference(table: pd.DataFrame, *, ax: "Axes | None" = None) -> "Axes":
    """Draw how often the fancier telling of the same answer wins. The line at 0.5 is a
    model that does not care.

    Parameters
    ----------
    table : DataFrame
        The result of `rmlab.bias.style_preference`, or scores.
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        A row per model, a mark per pair of styles, hollow where most comparisons are
        ties; ties stand at the right.

    Raises
    ------
    DataError
        For another table, or where no preference is known.

    Examples
    --------
    >>> import rmlab
    >>> ax = rmlab.plots.plot_preference(rmlab.papers.results("smollm2-mini"))
    >>> [text.get_text() for text in ax.get_legend().get_texts()][0]
    'plain over concise'
    """
    table = canvas.read_table(
        table, bias.style_preference, ["preference", "low", "high"], "preference"
    )
    keys = table.columns[: table.columns.get_loc("preference")]
    styles = [name for name in ("fancier", "plainer") if name in keys]
    series = table[styles].astype(str).agg(" over ".join, axis=1)
    ax = _draw_series(table, "preference", series, list(keys.drop(styles)), ax)
    canvas.mark_line(ax, 0.5, "no preference (0.5)")
    ax.set_xlim(-0.02, 1.02)
    return ax


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
    names = (
        table[keys].astype(str).agg(" · ".join, axis=1)
        if keys
        else pd.Series("", index=table.index)
    )
    title = names.iloc[0] if len(set(names)) == 1 else ""
    if title and len(set(series)) > 1:
        names, series = series, pd.Series("", index=table.index)
    rows, labels, is_share = (
        list(names.unique())[::-1],
        list(series.unique()),
        value == "preference",
    )
    ax = canvas.new_rows(ax, rows, n_series=len(labels))
    ax.set_xlim(*_limits(table, value))
    for i, label in enumerate(labels):
        part = table[series == label].assign(
            y=names.map(rows.index) + canvas.row_offset(i, len(labels))
        )
        _draw_estimates(
            ax,
            part,
            value,
            (COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]),
            canvas.plain(label),
        )
    for name, reasons in table[table[value].isna()].groupby(names)["reason"]:
        canvas.write_beside(ax, rows.index(name), "; ".join(reasons.unique()))
    if is_share:
        canvas.list_ties(ax, table.groupby(names)["n_ties"].sum().reindex(rows))
    if len(labels) > 1:
        canvas.add_legend(ax, above=1.6 if is_share else 0.2)
    canvas.label_values(ax, _AXES[value])
    ax.set_title(canvas.plain(title), fontsize="medium", pad=16 if is_share else None)
    return ax


def _draw_estimates(
    ax: "Axes", table: pd.DataFrame, value: str, style: tuple[str, str], label: str
) -> None:
    """Dots and intervals of one series; unbounded intervals as dashed lines, values
    outside the axes as arrows.
    """
    left, right = ax.get_xlim()
    unbounded = table[np.isinf(table[["low", "high"]].to_numpy(float)).any(axis=1)]
    table = table.dropna(subset=[value]).drop(unbounded.index)
    is_inside = table[value].between(left, right)
    inside = table[is_inside]
    if value == "preference":
        inside = inside.assign(hollow=inside["n_ties"] > inside["n_pairs"] / 2)
    canvas.draw_dots(ax, inside, value, style, label)
    for y in unbounded["y"]:
        ax.axhline(y, color=style[0], lw=1.2, ls="--", alpha=0.6, zorder=1)
        canvas.write_beside(ax, y, "unbounded")
    for row in table[~is_inside].to_dict("records"):
        edge, marker, side = (
            (left, "<", "left") if row[value] < left else (right, ">", "right")
        )
        ax.hlines(
            row["y"],
            max(left, row["low"]),
            min(right, row["high"]),
            color=style[0],
            lw=1.4,
        )
        ax.plot(edge, row["y"], marker, color=style[0], ms=6, zorder=3, clip_on=False)
        # Above the line: the interval may reach under it.
        number = ax.annotate(
            f"{row[value]:.3g}",
            (edge, row["y"]),
            (0, 0.25),
            textcoords="offset fontsize",
            ha=side,
        )
        number.set(va="bottom", fontsize="x-small", color=style[0])


def _limits(table: pd.DataFrame, value: str) -> tuple[float, float]:
    """All finite numbers and the reference lines, with a margin; rates end at 4, and
    unbounded ones do not count.
    """
    bounded = (
        table[[value, "low", "high"]]
        .replace([np.inf, -np.inf], np.nan)
        .dropna()
        .to_numpy()
    )
    numbers = np.append(bounded, [0.0, 1.0] if value == "rate" else [0.0])
    numbers = (
        np.clip(numbers, -_WIDEST_RATE, _WIDEST_RATE) if value == "rate" else numbers
    )
    margin = 0.06 * max(float(np.ptp(numbers)), 0.1)
    return float(numbers.min()) - margin, float(numbers.max()) + margin
