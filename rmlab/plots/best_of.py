"""Figures of best of n: subsets, curves over n, and the spread and the gap of prompts
with many right answers.
"""

import textwrap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from rmlab import metrics, tables
from rmlab.benchmarks.registry import benchmarks_by_name
from rmlab.metrics.pools import holds_pools
from rmlab.plots import canvas
from rmlab.plots.canvas import SERIES_COLOURS
from rmlab.tables import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class _TieResult(NamedTuple):
    """How a prompt with several right answers is drawn."""

    label: str
    colour: str
    marker: str


_RESULTS = {
    "clear": _TieResult("clear: gap above spread", SERIES_COLOURS[0], "o"),
    "right": _TieResult("right: every right answer on top", SERIES_COLOURS[5], "D"),
    "wrong": _TieResult(
        "wrong: a wrong answer above a right one", SERIES_COLOURS[1], "X"
    ),
}


_REFERENCES = {
    "any right": ("any right (pass@n)", "-"),
    "majority": ("majority of answers", "--"),
    "random": ("random", ":"),
}
"""Labels and lines of the references of pools, by kind."""


def plot_subsets(table: pd.DataFrame, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the subsets of a benchmark with their 95 % intervals, a mark for each model.

    Parameters
    ----------
    table : DataFrame
        The result of `rmlab.estimates`, or scores or pairs; at most eight models.
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        A row per subset that has a number. The dotted line in a row is the chance of
        random scores there (1/4 for best of four; Ties has none).

    Raises
    ------
    DataError
        For another table, more than eight models, or a benchmark without subsets.

    Examples
    --------
    >>> import rmlab
    >>> scores = rmlab.papers.results("math-prm")
    >>> two = scores[scores["model"].isin(scores["model"].unique()[:2])]
    >>> ax = rmlab.plots.plot_subsets(two)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['math-prm']
    """
    columns = ["model", "quantity", "name", "value", "low", "high", "chance"]
    table = canvas.table_to_draw(table, metrics.estimates, columns)
    table = table[table["quantity"] == "subset"]
    canvas.refuse_blank(table, "value")
    models = _name_models(table["model"])
    n_subsets = table["name"].nunique()
    table = table.dropna(subset=["value"])
    subsets = list(table["name"].unique())
    subsets.reverse()

    titles = _subset_titles(subsets)
    ax = canvas.new_rows(ax, titles, n_series=len(models))
    for i, (model, label) in enumerate(models.items()):
        dots = table[table["model"] == model]
        offset = canvas.row_offset(i, len(models))
        dots = dots.assign(y=dots["name"].map(subsets.index) + offset)
        canvas.draw_dots(ax, dots, "value", canvas.series_style(i), label)

    chance = table.groupby("name")["chance"].first().reindex(subsets)
    rows = np.arange(len(subsets))
    ax.vlines(chance, rows - 0.45, rows + 0.45, color="black", ls=":", lw=1.2)
    ax.set_xlim(0, 1.02)

    label = "score"
    if chance.notna().any():
        label = "score (dotted: chance)"
        without = np.array(titles)[chance.isna()]
        if len(without):
            label = f"score (dotted: chance; none for {', '.join(without)})"
    n_left_out = n_subsets - len(subsets)
    canvas.label_values(ax, label, n_left_out, "without numbers left out", "subset")
    canvas.add_legend(ax)
    return ax


def _subset_titles(subsets: list[str]) -> list[str]:
    """Subsets as their benchmark writes them."""
    titles = {}
    for benchmark in benchmarks_by_name().values():
        for title, column in benchmark.subset_names.items():
            titles[column] = title
    return [titles.get(name, name.replace("_", " ")) for name in subsets]


def plot_best_of(curve: pd.DataFrame, *, columns: int = 3) -> "Figure":
    """Draw how often the best of n is right, one panel per subset.

    Parameters
    ----------
    curve : DataFrame
        The result of `rmlab.metrics.best_of_curve`, or scores (pools of which are drawn
        with their references); at most eight models.
    columns : int
        Panels side by side; in print as many as have room.

    Returns
    -------
    Figure
        One line per model with its 95 % intervals: set a little beside each other over
        n, with chance, 1/n, dotted; or, for pools, bands over the logarithm of n, with
        the references that the curve holds as lines: any right (pass@n), majority and
        random. A curve by model alone has one panel.

    Raises
    ------
    DataError
        For another table, more than eight models, or where no accuracy is known.

    Examples
    --------
    >>> import rmlab
    >>> scores = rmlab.score(rmlab.load("mini"), ["longest"])
    >>> first_of_each = scores[(scores["label"] == "rejected") | (scores["slot"] == 0)]
    >>> figure = rmlab.plots.plot_best_of(first_of_each)
    >>> figure.axes[0].get_title()
    'chat'
    """
    if canvas.is_items(curve):
        curve = _make_curve(curve)
    needed = ["model", "n", "accuracy", "low", "high", "chance"]
    curve = canvas.table_to_draw(
        curve, metrics.best_of_curve, needed, "accuracy", argument="curve"
    )
    is_pool = "kind" in curve
    is_model = curve["kind"] == "model" if is_pool else curve["n"] > 0
    models = _name_models(curve.loc[is_model, "model"])
    if "domain" not in curve:
        curve = curve.assign(domain="")
    panels = list(curve.groupby("domain", sort=False))

    size = (2.5, 2.2)
    if is_pool and len(panels) == 1:
        # The legend has a row for each model.
        size = (4.6, 2.8 + 0.16 * len(models))
    figure, axes = canvas.new_panels(len(panels), columns, size)
    for ax, (domain, panel) in zip(axes, panels, strict=True):
        if is_pool:
            _draw_pools(ax, panel, models)
        else:
            _draw_curves(ax, panel, models)
            ax.set_ylim(0, 1.05)
            ax.set_ylabel("share of prompts solved")
        ax.set_xticks(sorted(curve["n"].unique()))
        ax.set_xlabel("answers (n)")
        ax.set_title(canvas.escape_name(domain), fontsize="medium")
    canvas.add_legend(axes[0], figure)
    return figure


def _make_curve(scores: pd.DataFrame) -> pd.DataFrame:
    """The curve of scores; with references where they are of pools."""
    is_pool = holds_pools(tables.check_scores(scores, allow_missing=True))
    return metrics.best_of_curve(scores, references=is_pool)


def _draw_curves(ax: "Axes", curve: pd.DataFrame, models: dict[str, str]) -> None:
    """A line for each model, a little beside the others, and the line of chance."""
    step = min(0.1, 0.5 / len(models))
    middle = (len(models) - 1) / 2
    for i, (model, label) in enumerate(models.items()):
        colour, marker, _ = canvas.series_style(i)
        points = curve[curve["model"] == model].sort_values("n")
        x = points["n"] + (i - middle) * step
        y = points["accuracy"]
        ax.vlines(x, points["low"], points["high"], color=colour, lw=1)
        ax.plot(x, y, color=colour, marker=marker, ms=4, label=label)

    chance = curve.groupby("n")["chance"].first()
    ax.plot(chance, color="black", ls=":", lw=1.2, label="chance")


def _draw_pools(ax: "Axes", curve: pd.DataFrame, models: dict[str, str]) -> None:
    """A line with a band for each model, over the logarithm of n, and references."""
    from matplotlib.ticker import NullLocator

    alpha = min(0.15, 0.4 / len(models))
    for i, (model, label) in enumerate(models.items()):
        colour, marker, line = canvas.series_style(i)
        is_here = (curve["model"] == model) & (curve["kind"] == "model")
        points = curve[is_here].sort_values("n")
        n = points["n"]
        y = points["accuracy"]
        low = points["low"]
        high = points["high"]
        ax.fill_between(n, low, high, color=colour, alpha=alpha, lw=0)
        ax.plot(n, y, color=colour, marker=marker, ls=line, ms=4, label=label)
    for kind, (label, line) in _REFERENCES.items():
        points = curve[curve["kind"] == kind].sort_values("n")
        if len(points):
            n = points["n"]
            y = points["accuracy"]
            ax.plot(n, y, color="black", ls=line, lw=1.2, label=label)

    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:.0f}")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_ylabel("share of prompts solved")


def plot_ties(detail: pd.DataFrame, *, columns: int = 3) -> "Figure":
    """Draw spread against gap of every Ties prompt with several right answers, one
    panel per model.

    Right: right answers get different scores. Up: they stand above the wrong ones.
    Below the solid line a wrong answer is above a right one; above the dashed line (gap
    = spread) the model tells right from wrong more clearly than right from right.

    Parameters
    ----------
    detail : DataFrame
        The result of `rmlab.metrics.ties_detail`, or scores.
    columns : int
        Panels side by side; in print as many as have room.

    Returns
    -------
    Figure
        Scores of models have no common unit, so both are in mean spreads of the model;
        `tie_points` are the numbers.

    Raises
    ------
    DataError
        For another table, or without such prompts.

    Examples
    --------
    >>> import rmlab
    >>> detail = pd.DataFrame({"model": "m", "kind": "tied", "id": ["0", "1"]})
    >>> detail = detail.assign(spread=[1.0, 3.0], gap=[2.0, 1.0])
    >>> rmlab.plots.plot_ties(detail).axes[0].get_title().split("\\n")[1]
    '1 clear, 1 right, 0 wrong'
    """
    points = tie_points(detail)
    panels = list(points.groupby("model", sort=False))
    figure, axes = canvas.new_panels(len(panels), columns, (2.9, 3.0))
    right = 1.05 * max(points["spread"].max(), 1e-9)
    for ax, (model, prompts) in zip(axes, panels, strict=True):
        _draw_prompts(ax, prompts)
        ax.axhline(0, color="black", lw=0.8)
        ax.plot([0, right], [0, right], color="black", lw=0.8, ls="--")

        title = textwrap.fill(canvas.escape_name(model), 26)
        n_prompts = prompts["result"].value_counts().reindex([*_RESULTS], fill_value=0)
        counts = ", ".join(f"{n} {result}" for result, n in n_prompts.items())
        ax.set_title(f"{title}\n{counts}", fontsize="small")
        ax.set_xlabel("spread of right answers", fontsize="small")
        ax.set_ylabel("smallest right\nminus largest wrong", fontsize="small")

    bottom = min(points["gap"].min(), -0.05)
    top = max(points["gap"].max(), 0.05)
    axes[0].set_xlim(-0.03 * right, right)
    axes[0].set_ylim(1.1 * bottom, 1.1 * top)
    canvas.add_legend(axes[0], figure)
    return figure


def _draw_prompts(ax: "Axes", prompts: pd.DataFrame) -> None:
    """A point for each prompt of one model."""
    for result, (label, colour, marker) in _RESULTS.items():
        points = prompts[prompts["result"] == result]
        ax.scatter(
            points["spread"],
            points["gap"],
            s=30,
            color=colour,
            marker=marker,
            alpha=0.75,
            lw=0,
            label=label,
        )


def tie_points(detail: pd.DataFrame) -> pd.DataFrame:
    """Spread and gap of every Ties prompt with several right answers: the numbers of
    `plot_ties`.

    Parameters
    ----------
    detail : DataFrame
        The result of `rmlab.metrics.ties_detail`, or scores.

    Returns
    -------
    DataFrame
        One row per model and prompt: model, id, spread and gap in mean spreads of the
        model (in mean gaps where all its spreads are 0), result: "clear" (gap above
        spread), "right" (above 0) or "wrong".

    Raises
    ------
    DataError
        For another table, or without such prompts.

    Examples
    --------
    >>> import rmlab
    >>> detail = pd.DataFrame({"model": "m", "kind": "tied", "id": ["0", "1"]})
    >>> detail = detail.assign(spread=[1.0, 3.0], gap=[2.0, 1.0])
    >>> rmlab.plots.tie_points(detail)["result"].tolist()
    ['clear', 'right']
    """
    needed = ["model", "id", "kind", "spread", "gap"]
    detail = canvas.table_to_draw(
        detail, metrics.ties_detail, needed, argument="detail"
    )
    tied = detail[detail["kind"] == "tied"]
    tied = tied.dropna(subset=["spread", "gap"])
    if tied.empty:
        problem = (
            "detail: no prompt with several right answers and scores for all of them"
        )
        raise DataError(problem, "score subset Ties")
    tied = tied.reset_index(drop=True)

    mean_spread = tied["spread"].groupby(tied["model"]).mean().replace(0, np.nan)
    mean_gap = tied["gap"].abs().groupby(tied["model"]).mean().replace(0, np.nan)
    unit_of_model = mean_spread.fillna(mean_gap).fillna(1.0)
    unit = tied["model"].map(unit_of_model).to_numpy(float)

    spread = tied["spread"].to_numpy(float) / unit
    gap = tied["gap"].to_numpy(float) / unit
    result = np.select([gap > spread, gap > 0], ["clear", "right"], "wrong")
    return pd.DataFrame(
        {
            "model": tied["model"],
            "id": tied["id"],
            "spread": spread,
            "gap": gap,
            "result": result,
        }
    )


def _name_models(models: pd.Series) -> dict[str, str]:
    """The models in their order with names for a legend; DataError for more than can be
    told apart.
    """
    names = list(dict.fromkeys(models))
    most = len(SERIES_COLOURS)
    if len(names) > most:
        problem = f"table: {len(names)} models; at most {most} can be told apart"
        raise DataError(problem, "keep fewer")
    short_names = canvas.shorten_names(names, 40)
    labels = [canvas.escape_name(name) for name in short_names]
    return dict(zip(names, labels, strict=True))
