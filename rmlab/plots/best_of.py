"""The figure of best of n: how often the selected answer is right."""

from typing import TYPE_CHECKING

import pandas as pd

from rmlab import metrics, tables
from rmlab.metrics.pools import holds_pools
from rmlab.plots import canvas
from rmlab.plots.canvas import SERIES_COLOURS
from rmlab.tables import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_REFERENCES = {
    "any right": ("any right (pass@n)", "-"),
    "majority": ("majority of answers", "--"),
    "random": ("random", ":"),
}
"""Labels and lines of the references of pools, by kind."""


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
