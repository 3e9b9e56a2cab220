"""Figures of best of n: subsets, curves over n, and the spread and the gap of prompts
with many right answers.
"""

import textwrap
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab import metrics
from rmlab.benchmarks.registry import benchmarks_by_name
from rmlab.plots import canvas
from rmlab.plots.canvas import COLOURS, MARKERS
from rmlab.tables import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_RESULTS = {  # of a prompt with several right answers: words, colour, marker
    "clear": ("clear: gap above spread", COLOURS[0], "o"),
    "right": ("right: every right answer on top", COLOURS[5], "D"),
    "wrong": ("wrong: a wrong answer above a right one", COLOURS[1], "X"),
}


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
    >>> [label.get_text() for label in rmlab.plots.plot_subsets(two).get_yticklabels()]
    ['math-prm']
    """
    columns = ["model", "quantity", "name", "value", "low", "high", "chance"]
    table = canvas.read_table(table, metrics.estimates, columns).query(
        "quantity == 'subset'"
    )
    canvas.refuse_blank(table, "value")
    models, n_subsets = _name_models(table["model"]), table["name"].nunique()
    table = table.dropna(subset=["value"])
    subsets = list(table["name"].unique()[::-1])
    titles = {
        column: name
        for b in benchmarks_by_name().values()
        for name, column in b.subset_names.items()
    }
    ax = canvas.new_rows(
        ax,
        [titles.get(name, name.replace("_", " ")) for name in subsets],
        n_series=len(models),
    )
    for i, (model, name) in enumerate(models.items()):
        rows = table[table["model"] == model]
        rows = rows.assign(
            y=rows["name"].map(subsets.index) + canvas.row_offset(i, len(models))
        )
        canvas.draw_dots(ax, rows, "value", (COLOURS[i], MARKERS[i]), name)
    chance = table.groupby("name")["chance"].first().reindex(subsets)
    place = np.arange(len(subsets))
    ax.vlines(chance, place - 0.45, place + 0.45, color="black", ls=":", lw=1.2)
    ax.hlines(place[1:] - 0.5, 0, 1.02, color="#dddddd", lw=0.8, zorder=0)
    ax.set_xlim(0, 1.02)
    label = "score (dotted: chance)" if chance.notna().any() else "score"
    canvas.label_values(
        ax, label, n_subsets - len(subsets), "without numbers left out", "subset"
    )
    canvas.add_legend(ax)
    return ax


def plot_best_of(curve: pd.DataFrame, *, columns: int = 3) -> "Figure":
    """Draw the accuracy of picking the right answer among n, one panel per subset.

    Parameters
    ----------
    curve : DataFrame
        The result of `rmlab.metrics.best_of_curve`, or scores; at most eight models.
    columns : int
        Panels side by side; in print as many as have room.

    Returns
    -------
    Figure
        One line per model with its 95 % intervals, set a little beside each other;
        dotted: chance, 1/n.

    Raises
    ------
    DataError
        For another table, more than eight models, or where no accuracy is known.

    Examples
    --------
    >>> import rmlab
    >>> scores = rmlab.score(rmlab.load("mini"), ["longest"])
    >>> keys = ["label", "slot"]
    >>> figure = rmlab.plots.plot_best_of(scores[(scores["label"] == "rejected") | (scores["slot"] == 0)])
    >>> figure.axes[0].get_title()
    'chat'
    """
    needed = ["model", "domain", "n", "accuracy", "low", "high", "chance"]
    curve = canvas.read_table(
        curve, metrics.best_of_curve, needed, "accuracy", argument="curve"
    )
    models, panels = (
        _name_models(curve["model"]),
        list(curve.groupby("domain", sort=False)),
    )
    figure, axes = canvas.new_panels(len(panels), columns, (2.5, 2.2))
    for ax, (domain, panel) in zip(axes, panels, strict=True):
        for i, (model, name) in enumerate(models.items()):
            rows = panel[panel["model"] == model].sort_values("n")
            x = rows["n"] + (i - (len(models) - 1) / 2) * min(0.1, 0.5 / len(models))
            ax.vlines(x, rows["low"], rows["high"], color=COLOURS[i], lw=1)
            ax.plot(
                x,
                rows["accuracy"],
                color=COLOURS[i],
                marker=MARKERS[i],
                ms=4,
                label=name,
            )
        ax.plot(
            panel.groupby("n")["chance"].first(),
            color="black",
            ls=":",
            lw=1.2,
            label="chance",
        )
        ax.set(
            xticks=sorted(curve["n"].unique()),
            ylim=(0, 1.05),
            xlabel="answers (n)",
            ylabel="right one on top",
        )
        ax.set_title(canvas.plain(domain), fontsize="medium")
    canvas.add_legend(axes[0], figure)
    return figure


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
    >>> detail = pd.DataFrame({"model": "m", "id": ["0", "1"], "kind": "tied", "spread": [1.0, 3.0], "gap": [2.0, 1.0]})
    >>> rmlab.plots.plot_ties(detail).axes[0].get_title().split("\\n")[1]
    '1 clear, 1 right, 0 wrong'
    """
    points = tie_points(detail)
    panels = list(points.groupby("model", sort=False))
    figure, axes = canvas.new_panels(len(panels), columns, (2.9, 3.0))
    right = 1.05 * max(points["spread"].max(), 1e-9)
    for ax, (model, rows) in zip(axes, panels, strict=True):
        for result, (words, colour, marker) in _RESULTS.items():
            part = rows[rows["result"] == result]
            ax.scatter(
                part["spread"],
                part["gap"],
                s=30,
                color=colour,
                marker=marker,
                alpha=0.75,
                lw=0,
                label=words,
            )
        ax.axhline(0, color="black", lw=0.8)
        ax.plot([0, right], [0, right], color="black", lw=0.8, ls="--")
        counts = ", ".join(
            f"{(rows['result'] == result).sum()} {result}" for result in _RESULTS
        )
        ax.set_title(
            f"{textwrap.fill(canvas.plain(model), 26)}\n{counts}", fontsize="small"
        )
        ax.set_xlabel("spread of right answers", fontsize="small")
        ax.set_ylabel("smallest right\nminus largest wrong", fontsize="small")
    bottom, top = min(points["gap"].min(), -0.05), max(points["gap"].max(), 0.05)
    axes[0].set(xlim=(-0.03 * right, right), ylim=(1.1 * bottom, 1.1 * top))
    canvas.add_legend(axes[0], figure)
    return figure


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
    >>> detail = pd.DataFrame({"model": "m", "id": ["0", "1"], "kind": "tied", "spread": [1.0, 3.0], "gap": [2.0, 1.0]})
    >>> rmlab.plots.tie_points(detail)["result"].tolist()
    ['clear', 'right']
    """
    needed = ["model", "id", "kind", "spread", "gap"]
    detail = canvas.read_table(detail, metrics.ties_detail, needed, argument="detail")
    tied = detail[detail["kind"] == "tied"].dropna(subset=["spread", "gap"])
    if tied.empty:
        raise DataError(
            "detail: no prompt with several right answers and scores for all of them. Score subset Ties."
        )
    sizes = (
        tied.assign(gap=tied["gap"].abs())
        .groupby("model")[["spread", "gap"]]
        .mean()
        .replace(0, np.nan)
    )
    unit = (
        tied["model"]
        .map(sizes["spread"].fillna(sizes["gap"]).fillna(1.0))
        .to_numpy(float)
    )
    spread, gap = (
        tied["spread"].to_numpy(float) / unit,
        tied["gap"].to_numpy(float) / unit,
    )
    result = np.select([gap > spread, gap > 0], ["clear", "right"], "wrong")
    return (
        tied[["model", "id"]]
        .assign(spread=spread, gap=gap, result=result)
        .reset_index(drop=True)
    )


def _name_models(models: pd.Series) -> dict[str, str]:
    """The models in their order with names for a legend; DataError for more than can be
    told apart.
    """
    names = list(dict.fromkeys(models))
    if len(names) > len(COLOURS):
        raise DataError(
            f"table: {len(names)} models; at most {len(COLOURS)} can be told apart. Keep fewer."
        )
    return dict(
        zip(names, map(canvas.plain, canvas.shorten_names(names, 40)), strict=True)
    )
