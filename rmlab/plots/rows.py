"""Rows with intervals: numbers, ranks, leaderboards, effects, style gaps, lengths."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab import metrics, stats
from rmlab.baselines import is_baseline
from rmlab.benchmarks.registry import chance_of_columns
from rmlab.bias.effects import style_effects
from rmlab.estimation.weights import Average
from rmlab.plots import canvas
from rmlab.plots.canvas import BASELINE, LEVEL_STYLES, POINT, MarkStyle
from rmlab.tables import LEVELS, check_responses

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARK_AREA = 26  # square points
_LETTERS_PER_INCH = 8  # of the axes: so long may names be
_NOTE_LETTERS = 20  # of a line beside the rows
_AROUND_ZERO = {"difference", "gap", "change", "effect"}
_AXES = {
    "value": "share won",
    "preference": "share of comparisons that the fancier answer wins",
    "gap": "accuracy on easy minus accuracy on hard comparisons",
    "controlled": "share of comparisons won, at equal length or style",
    "change": "change in score",
    "effect": "effect on the score\n(standard deviations within a prompt)",
    "difference": "difference in accuracy",
    "accuracy": "share of comparisons won",
    "rate": "what the style is worth\n(1 = as much as being right)",
    "overall": "overall score",
}
_ONE_SERIES = {"": MarkStyle(POINT, "o")}
_LABEL_STYLES = {
    "chosen": MarkStyle("#2166ac", "o"),
    "rejected": MarkStyle("#d6604d", "D"),
}
_NOT_DRAWN = "further down or without a score not drawn"
_GROUP_LETTERS = 8
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
        drawable = [column for column in _AXES if column in table.columns]
        value = drawable[0] if drawable else "value"
    named_series = [] if series is None else [series]
    columns = [label] if isinstance(label, str) else label or []
    needed = [value, *named_series, *columns]
    table = canvas.table_to_draw(table, metrics.estimates, needed, value)
    rows = table.dropna(subset=[value])
    if sort:
        rows = rows.sort_values(value, ascending=False, kind="stable")

    columns = columns or _naming_columns(rows.loc[:, :value].drop(columns=named_series))
    rows = rows.assign(
        name=canvas.join_names(rows, columns), series="", hollow=rows["low"].isna()
    )
    styles = _ONE_SERIES
    if series is not None:
        rows["series"] = rows[series].astype(str)
        styles = canvas.series_styles(rows["series"])

    ax = _draw_rows(ax, rows, value, styles)
    if reference is None:
        reference = _usual_reference(table, value)
    ax.axvline(reference, color="black", lw=0.8, ls=":", zorder=0)
    n_left_out = len(table) - len(rows)
    label = _value_label(table, value)
    _label_values(ax, label, n_left_out, "without a value left out", "row")
    return ax


def _naming_columns(rows: pd.DataFrame) -> list[str]:
    """The columns of words that tell the rows apart, else the first of words."""
    words = rows.select_dtypes(exclude="number")
    columns = [str(column) for column in words if len(set(words[column])) > 1]
    if not columns:
        return list(words.columns[:1])
    if "name" in columns and "quantity" in columns:
        columns.remove("quantity")
    return columns


def _usual_reference(table: pd.DataFrame, value: str) -> float:
    """Zero for a difference, the chance of random scores for a share."""
    if value in _AROUND_ZERO:
        return 0.0
    chance = table.get("chance", pd.Series(dtype=float)).dropna().unique()
    return float(chance[0]) if len(chance) == 1 else 0.5


def _value_label(table: pd.DataFrame, value: str) -> str:
    models = table.reindex(columns=["model_a", "model_b"]).drop_duplicates()
    if value == "difference" and len(models) == len(models.dropna()) == 1:
        names = canvas.shorten_names(list(models.iloc[0]))
        first, second = [canvas.escape_name(name) for name in names]
        return f"difference in accuracy:\n{first}\nminus {second}"
    return _AXES.get(value, value)


def plot_rank(
    table: pd.DataFrame, *, most: int = 40, ax: "Axes | None" = None
) -> "Axes":
    """Draw ranks with their intervals, best on top.

    Parameters
    ----------
    table : DataFrame
        The result of `rmlab.rank`, or scores or pairs.
    most : int
        The best models that are drawn; the axis says how many follow.
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        A row per model, with its score at the right, and where all models are drawn the
        letters of its groups: models that share one are not clearly different. Models
        without a rank are left out, and counted below the axis.

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
    ranks = canvas.table_to_draw(table, stats.rank, needed, "rank")
    rows = ranks.dropna(subset=["rank"]).head(most).reset_index(drop=True)
    limits = rows[["rank", "rank_low", "rank_high"]].astype(float)
    rows = rows.assign(name=rows["model"], series="", **limits)
    rows[["low", "high"]] = limits[["rank_low", "rank_high"]]

    ax = _draw_rows(ax, rows, "rank", _ONE_SERIES)
    ax.locator_params(axis="x", integer=True, min_n_ticks=2)
    scores = rows["value"].map("{:.3f}".format)
    if len(rows) < ranks["rank"].count() or not rows["group"].any():
        _list_beside(ax, "score", list(scores))
    else:
        _list_beside(ax, "score, group", list(scores + "  " + rows["group"]))
    n_left_out = len(ranks) - len(rows)
    _label_values(ax, "rank (1 is best)", n_left_out, _NOT_DRAWN)
    return ax


def plot_leaderboard(
    table: pd.DataFrame, *, most: int = 40, ax: "Axes | None" = None
) -> "Axes":
    """Draw overall scores with their 95 % intervals, best on top, with the baselines
    among the models.

    Parameters
    ----------
    table : DataFrame
        The result of `rmlab.leaderboard`, or any table with model and overall, such as
        `rmlab.summary` or `rmlab.papers.published` return; of scores or pairs, the
        summary is drawn.
    most : int
        The best models that are drawn (baselines always are); the axis says how many
        follow.
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        A row per model; baselines are grey. Models that share a letter are not
        significantly different. A dotted line stands at 1/2 where every number of the
        table is a share of pairs won.

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
        table, metrics.summary, ["model", "overall"], "overall"
    )
    scored = board.dropna(subset=["overall"])
    scored = scored.sort_values("overall", ascending=False, kind="stable")
    is_blind = scored["model"].map(is_baseline)
    rows = scored[is_blind | ((~is_blind).cumsum() <= most)]
    rows = rows.assign(name=rows["model"], series="")

    ax = _draw_rows(ax, rows, "overall", _ONE_SERIES)
    _mark_chance(ax, chance_of_columns(board.columns))
    if "group" in rows and rows["group"].any():
        letters = []
        for group in rows["group"]:
            letters.append(textwrap.shorten(group, _GROUP_LETTERS, placeholder="…"))
        _list_beside(ax, "group", letters)
    n_left_out = len(board) - len(rows)
    _label_values(ax, _AXES["overall"], n_left_out, _NOT_DRAWN)
    return ax


def plot_effects(table: pd.DataFrame, *, ax: "Axes | None" = None) -> "Axes":
    """Draw effects on the score, or exchange rates, with their intervals.

    The line at 0 is "does not move the score"; the line at 1 of an exchange rate is
    "worth as much as being right". A rate whose interval is unbounded is a dashed line
    across the figure; one beyond 4 stands at the right as a number.

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
    hint = "pass other models or terms"
    table = canvas.table_to_draw(table, style_effects, needed, value, hint)
    terms = table["term"].map(lambda term: _TERMS.get(term, f"{term} doubled"))
    names = canvas.join_names(table, canvas.columns_before(table, "term"))
    title = ""
    if len(set(names)) == 1:
        title = names.iloc[0]
        rows = table.assign(name=terms, series="")
        styles = _ONE_SERIES
    else:
        rows = table.assign(name=names, series=terms)
        styles = canvas.series_styles(terms)

    label = _AXES[value]
    is_unbounded = np.isinf(rows["low"])
    if is_unbounded.any():
        label += "\ndashed: unbounded"
    is_far = (value == "rate") & (rows[value].abs() > _WIDEST_RATE) & ~is_unbounded
    notes = terms + ": " + rows[value].map("{:.3g}".format)
    notes = notes.where(is_far, rows.get("reason", ""))
    notes = notes.where(is_far | rows[value].isna(), "")
    rows[value] = rows[value].mask(is_far | is_unbounded)
    limits = rows[["low", "high"]]
    near = limits.clip(-_WIDEST_RATE, _WIDEST_RATE)
    rows[["low", "high"]] = limits.mask(is_far, near)

    ax = _draw_rows(ax, rows, value, styles)
    texts = []
    for _, of_row in notes.groupby(rows["name"], sort=False):
        texts.append("; ".join(filter(None, of_row.unique())))
    if any(texts):
        _list_beside(ax, "", texts)
    ax.axvline(0.0, color="black", lw=0.8, zorder=0)
    if value == "rate":
        ax.axvline(1.0, color="black", lw=0.8, ls=":", zorder=0)
    _label_values(ax, label)
    ax.set_title(canvas.escape_name(title), fontsize="medium")
    return ax


def plot_style_gap(
    table: pd.DataFrame,
    *,
    average: Average = "benchmark",
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw easy, normal and hard accuracy of every model: the longer the bar, the more
    style decides.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs; `rmlab.accuracy(table, by=["model", "level"])`, the table
        beside the figure; one row per model with easy, normal and hard
        (`rmlab.summary`, `rmlab.papers.published`), which has no intervals; or the
        result of `rmlab.style_gap`.
    average
        As in `rmlab.summary`. Used where `table` holds scores or pairs.
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        A row per model, the highest hard accuracy on top, baselines grey. The number of
        ties stands at the right, and a level that is mostly ties is hollow; a line
        below the axis explains lines and hollow marks. Models without any of these
        numbers are left out, and counted below the axis.

    Raises
    ------
    DataError
        For another table, and where no model has a number, with the reason.

    Examples
    --------
    >>> import rmlab
    >>> scores = rmlab.score(rmlab.load("mini"), ["longest", "shortest"])
    >>> ax = rmlab.plot_style_gap(scores)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['longest', 'shortest']
    """
    if canvas.is_items(table):
        table = metrics.accuracy(table, by=["model", "level"], average=average)
    levels = _read_levels(table)
    canvas.refuse_blank(levels, "accuracy")
    of_model = levels.groupby("name", sort=False)
    is_drawn = of_model["accuracy"].transform("count") > 0
    hard = levels["accuracy"].where(levels["series"] == "hard")
    rows = levels.assign(hard=hard.groupby(levels["name"]).transform("max"))
    rows = rows[is_drawn].sort_values("hard", ascending=False, kind="stable")
    rows["hollow"] = rows["n_ties"] > rows["n_pairs"] / 2

    present = {}
    for level, style in LEVEL_STYLES.items():
        if (rows["series"] == level).any():
            present[level] = style
    ax = _draw_rows(ax, rows, "accuracy", present, spans=True)
    ax.set_xlim(-0.02, 1.02)
    _mark_chance(ax, 0.5)
    n_ties = rows.groupby("name", sort=False)["n_ties"].sum()
    if n_ties.any():
        texts = n_ties.map("{:,.0f}".format).where(n_ties > 0, "")
        _list_beside(ax, "ties", list(texts))

    label = "share of comparisons won\ngrey bar: lowest to highest"
    if rows["low"].notna().any():
        label += "\nline: 95 % interval"
    if rows["hollow"].any():
        label += "\nhollow: mostly ties"
    n_left_out = levels["name"].nunique() - rows["name"].nunique()
    _label_values(ax, label, n_left_out, "without these numbers left out")
    return ax


def _read_levels(table: pd.DataFrame) -> pd.DataFrame:
    """One row per name and level (series) with its accuracy, limits and counts."""
    columns = set(table.columns)
    numbers = ["accuracy", "low", "high", "n_ties", "n_pairs", "reason"]
    if {"model", "level", "accuracy"} <= columns:
        levels = table.reindex(columns=numbers)
        levels["name"] = table["model"].astype(str)
        levels["series"] = table["level"].astype(str)
        return levels

    keys = ["model"]
    present = list(LEVELS)
    if {"easy", "hard", "gap"} <= columns:  # of `style_gap`
        keys = canvas.columns_before(table, "easy")
        present = ["easy", "hard"]
    table = canvas.table_to_draw(table, metrics.summary, [*keys, *present])
    names = canvas.join_names(table, keys)
    n_ties = table.get("n_ties", 0)
    reason = table.get("reason", "")
    wide = table[present].assign(name=names, reason=reason, n_ties=n_ties)
    ids = ["name", "reason", "n_ties"]
    levels = wide.melt(ids, var_name="series", value_name="accuracy")
    is_first = levels["series"] == present[0]
    levels["n_ties"] = levels["n_ties"].where(is_first, 0)  # those of all levels
    return levels.reindex(columns=["name", "series", *numbers])


def plot_lengths(responses: pd.DataFrame, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the mean length of chosen and rejected answers: a long line means that
    length gives the label away.

    Parameters
    ----------
    responses : DataFrame
        Responses, with their texts.
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        A row per subset and style: means in characters with their 95 % intervals.

    Raises
    ------
    DataError
        For another table, or without rows.

    Examples
    --------
    >>> import rmlab
    >>> ax = rmlab.plots.plot_lengths(rmlab.load("mini"))
    >>> ax.get_yticklabels()[-1].get_text()
    'chat concise'
    """
    responses = check_responses(responses)
    canvas.refuse_blank(responses, "response")
    keys = ["subset"]
    if responses["style"].notna().any():
        keys.append("style")
    subsets = pd.CategoricalDtype(list(responses["subset"].unique()), ordered=True)
    characters = responses["response"].str.len()
    answers = responses.assign(characters=characters).astype({"subset": subsets})
    groups = answers.groupby([*keys, "label"], observed=True)["characters"]
    rows = groups.agg(["mean", "sem"]).reset_index()
    half = 1.96 * rows["sem"].fillna(0)
    rows["low"] = rows["mean"] - half
    rows["high"] = rows["mean"] + half
    rows["name"] = rows[keys].astype(str).agg(" ".join, axis=1)
    rows["series"] = rows["label"].astype(str)

    ax = _draw_rows(ax, rows, "mean", _LABEL_STYLES, spans=True)
    _label_values(ax, "mean length (characters)")
    ax.set_xlim(left=0)
    return ax


def _draw_rows(
    ax: "Axes | None",
    table: pd.DataFrame,
    value: str,
    styles: dict[str, MarkStyle],
    *,
    spans: bool = False,
) -> "Axes":
    """Draw the rows of a table by their `name`, the first on top, with a mark and its
    interval for each `series`.

    Baselines are grey, rows that are `hollow` so; an interval without bounds is a
    dashed line. `spans`: a grey bar from the lowest to the highest mark of a row.
    """
    row = np.arange(len(table))
    names = list(table["name"])
    if len(styles) > 1:
        row, unique_names = pd.factorize(table["name"])
        names = list(unique_names)
    ax = _new_rows(ax, names, len(styles))
    table = table.assign(y=len(names) - 1 - row)
    table = table.reindex(columns=[*table.columns, *({"low", "high"} - {*table})])
    if spans:
        of_row = table.groupby("y")[value]
        lowest = of_row.min()
        ax.hlines(lowest.index, lowest, of_row.max(), color="#dddddd", lw=4)

    step = 0.8 / max(len(styles), 2)
    for i, (series, style) in enumerate(styles.items()):
        above = step * ((len(styles) - 1) / 2 - i)
        marks = table[table["series"] == series]
        colours = np.where(marks["name"].map(is_baseline), BASELINE, style.colour)
        y = marks["y"] + above
        is_unbounded = np.isinf(marks["low"].astype(float))
        for height in y[is_unbounded]:
            ax.axhline(height, color=style.colour, lw=1.2, ls="--", alpha=0.6)
        limits = marks[["low", "high"]].mask(is_unbounded).astype(float)
        ax.hlines(y, limits["low"], limits["high"], color=colours, lw=1.4, zorder=2)
        faces = np.where(marks.get("hollow", False), "white", colours)
        marker = style.marker
        ax.scatter(
            marks[value],
            y,
            _MARK_AREA,
            facecolors=faces.tolist(),
            edgecolors=colours.tolist(),
            marker=marker,
            lw=1.2,
            zorder=3,
            clip_on=False,
        )
        if series:
            name = canvas.shorten_names([series])[0]
            label = canvas.escape_name(name)
            ax.scatter([], [], _MARK_AREA, style.colour, marker=marker, label=label)
    if len(styles) > 1:
        canvas.add_legend(ax)
    return ax


def _new_rows(ax: "Axes | None", names: Sequence[str], n_series: int) -> "Axes":
    """Axes for a list of named rows, the first name on top, with room for `n_series`
    marks in a row.
    """
    n_rows = len(names)
    height = (0.16 + 0.1 * n_series) * max(n_rows, 2) + 1.1
    ax = canvas.new_axes(ax, (6.4, height))
    letters = _LETTERS_PER_INCH * ax.get_window_extent().width / ax.figure.dpi
    short_names = canvas.shorten_names(names, int(letters))
    labels = [canvas.escape_name(name) for name in reversed(short_names)]
    ax.set_yticks(range(n_rows), labels)
    for label, name in zip(ax.get_yticklabels(), reversed(names), strict=True):
        if is_baseline(name):
            label.set(color=BASELINE, style="italic")

    ax.spines["left"].set_visible(False)
    ax.set_ylim(-0.6, n_rows - 0.4)
    if n_series > 1:
        # A faint line between rows, so that each mark has its row.
        ax.set_yticks(np.arange(1, n_rows) - 0.5, minor=True)
        ax.grid(axis="y", which="minor", color="#dddddd", lw=0.8)
    ax.tick_params(axis="y", which="both", length=0)
    return ax


def _mark_chance(ax: "Axes", chance: float | None) -> None:
    """A dotted line, explained over the axes."""
    if chance is not None:
        label = f"chance ({chance:g})"
        ax.axvline(chance, color="black", lw=0.8, ls=":", zorder=0, label=label)
        canvas.add_legend(ax)


def _label_values(
    ax: "Axes", label: str, n_left_out: int = 0, why: str = "", noun: str = "model"
) -> None:
    # At the right, since the names of rows take the left of a printed column.
    text = canvas.describe_values(label, n_left_out, why, noun)
    ax.set_xlabel(text, loc="right")


def _list_beside(ax: "Axes", heading: str, texts: Sequence[str]) -> None:
    """A text at the right of each row, the first on top, under a heading."""
    side = ax.secondary_yaxis("right")
    lines = [textwrap.fill(text, _NOTE_LETTERS) for text in reversed(texts)]
    places = [*range(len(lines)), len(lines) - 0.4]
    side.set_yticks(places, [*lines, heading], fontsize="small")
    side.tick_params(length=0)
    side.spines["right"].set_visible(False)
