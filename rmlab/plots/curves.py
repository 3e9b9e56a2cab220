"""Curves with bands: best of n, a benchmark over the steps of a training run,
calibration.
"""

import re
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab import metrics, stats, tables
from rmlab.bias.gap import style_gap
from rmlab.metrics.pools import holds_pools
from rmlab.plots import canvas
from rmlab.plots.canvas import LEVEL_STYLES, MarkStyle
from rmlab.tables import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_REFERENCES = {
    "any right": ("any right (pass@n)", "-"),
    "majority": ("majority of answers", "--"),
    "random": ("random (chance)", ":"),
}
"""Labels and lines of the references of best of n, by kind."""
_OVERALL = MarkStyle("black", "o")
_GAP = MarkStyle("#7b3294", "X", ":")
_STEP = re.compile(r"(.*?)(\d+)$")
_FEWEST = 10  # comparisons from which on a bin is drawn
_BESIDE = 0.006  # between the intervals of two models in the same bin
_ERROR = ["ece", "ece_low", "ece_high"]


def plot_best_of(table: pd.DataFrame) -> "Figure":
    """Draw how often the best of n is right, one panel per subset.

    Parameters
    ----------
    table : DataFrame
        The result of `rmlab.metrics.best_of_curve`, or scores (pools of which are drawn
        with their references); at most eight models.

    Returns
    -------
    Figure
        One line per model with the band of its 95 % intervals, and black lines for the
        references that the curve holds: chance and, of pools, any right (pass@n) and
        majority. A curve by model alone has one panel.

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
    if canvas.is_items(table):
        is_pool = holds_pools(tables.check_scores(table, allow_missing=True))
        table = metrics.best_of_curve(table, references=is_pool)
    needed = ["model", "n", "accuracy", "low", "high", "chance"]
    curve = canvas.table_to_draw(table, metrics.best_of_curve, needed, "accuracy")
    is_pool = "kind" in curve
    curve = _add_chance(curve.assign(domain=curve.get("domain", "")))
    is_model = curve["kind"] == "model"
    styles = canvas.series_styles(curve.loc[is_model, "model"])
    alpha = min(0.15, 0.4 / len(styles))
    panels = list(curve.groupby("domain", sort=False))

    # A legend over one panel has a row for each model.
    size = (2.5, 2.2) if len(panels) > 1 else (4.6, 2.8 + 0.16 * len(styles))
    figure, axes = canvas.new_panels(len(panels), 3, size)
    for ax, (domain, panel) in zip(axes, panels, strict=True):
        for model, style in styles.items():
            points = panel[(panel["model"] == model) & (panel["kind"] == "model")]
            _draw_band(ax, points, "n", "accuracy", model, style, alpha)
        for kind, (label, line) in _REFERENCES.items():
            points = panel[panel["kind"] == kind].sort_values("n")
            if len(points):
                x = points["n"]
                y = points["accuracy"]
                ax.plot(x, y, color="black", ls=line, lw=1.2, label=label)
        ax.set_xscale("log", base=2)
        sizes = sorted(curve["n"].unique())
        ax.set_xticks(sizes, [str(n) for n in sizes])
        ax.set_xticks([], minor=True)
        if not is_pool:  # whose shares stand close together
            ax.set_ylim(0, 1.05)
        ax.set_xlabel("answers (n)")
        ax.set_ylabel("share of prompts solved")
        ax.set_title(canvas.escape_name(domain), fontsize="medium")
    canvas.add_legend(axes[0], figure)
    return figure


def _add_chance(curve: pd.DataFrame) -> pd.DataFrame:
    """A curve whose rows have kinds, among them those of chance."""
    if "kind" in curve:
        return curve
    chance = curve.drop_duplicates(["domain", "n"])
    chance = chance.assign(kind="random", accuracy=chance["chance"])
    return pd.concat([curve.assign(kind="model"), chance])


def plot_training(scores: pd.DataFrame, *, ax: "Axes | None" = None) -> "Axes":
    """Draw accuracy by level, and the style gap, over the steps of a training run.

    Parameters
    ----------
    scores : DataFrame
        Scores or pairs of one run on one benchmark, such as the `scores` of a
        `rmlab.training.BenchmarkCallback`. The models' names end with the step.
    ax : Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    Axes
        A line for each level, and a dotted one for easy minus hard; of data without
        levels one line for the whole. Bands are 95 % intervals clustered by prompt:
        they say how exact each step is, and not whether two steps differ, for which
        there is `rmlab.compare`.

    Raises
    ------
    DataError
        Where names do not end with a step, and for several runs.

    Examples
    --------
    >>> import rmlab
    >>> responses = rmlab.load("mini")
    >>> steps = {f"step {step}": rmlab.toy.scorer(responses, skill=step / 50)
    ...     for step in (0, 50, 100)}
    >>> ax = rmlab.plots.plot_training(rmlab.score(responses, steps))
    >>> ax.get_xlabel()
    'step'
    """
    steps = _number_steps(scores)
    table = metrics.estimates(scores)
    table["step"] = table["model"].map(steps)
    levels = table[table["quantity"] == "level"]

    ax = canvas.new_axes(ax, (5.4, 3.6))
    if levels.empty:
        whole = table[table["quantity"] == "overall"]
        _draw_band(ax, whole, "step", "value", "overall", _OVERALL)
    else:
        for level, rows in levels.groupby("name", sort=False):
            style = LEVEL_STYLES[str(level)]
            _draw_band(ax, rows, "step", "value", str(level), style)
        gap = style_gap(scores)
        gap["step"] = gap["model"].map(steps)
        _draw_band(ax, gap, "step", "gap", "easy minus hard", _GAP)

    ax.set_xlabel("step")
    ax.set_ylabel("share of comparisons won")
    canvas.add_legend(ax)
    return ax


def _number_steps(scores: pd.DataFrame) -> dict[str, int]:
    """The step of each model, from the end of its name."""
    steps = {}
    runs = set()
    for name in scores["model"].astype(str).unique():
        parts = _STEP.match(name)
        if parts is None:
            problem = f"scores: the model {name!r} does not end with a step"
            raise DataError(problem, "name the models such as 'step 100'")
        runs.add(parts[1])
        steps[name] = int(parts[2])
    if len(runs) > 1:
        problem = f"scores: {len(runs)} runs ({', '.join(sorted(runs)[:3])})"
        raise DataError(problem, "draw one run at a time")
    return steps


def _draw_band(
    ax: "Axes",
    rows: pd.DataFrame,
    x: str,
    y: str,
    name: str,
    style: MarkStyle,
    alpha: float = 0.15,
) -> None:
    """A line over `x` with the band of its intervals."""
    rows = rows.sort_values(x)
    colour = style.colour
    short_name = canvas.shorten_names([name])[0]
    ax.plot(
        rows[x],
        rows[y],
        color=colour,
        marker=style.marker,
        ls=style.line,
        ms=4,
        lw=1.4,
        label=canvas.escape_name(short_name),
    )
    ax.fill_between(rows[x], rows["low"], rows["high"], color=colour, alpha=alpha, lw=0)


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
    table = canvas.table_to_draw(table, stats.calibration, columns, "accuracy", hint)
    styles = canvas.series_styles(table["model"])

    ax = canvas.new_axes(ax, (4.6, 3.9 + 0.3 * len(styles)))
    ax.plot([0.5, 1], [0.5, 1], color="black", lw=0.8, ls=":", zorder=0)
    for i, (model, style) in enumerate(styles.items()):
        bins = table[(table["model"] == model) & (table["n_pairs"] > 0)]
        full = bins[bins["n_pairs"] >= _FEWEST]
        x = full["predicted"] + _BESIDE * (i - (len(styles) - 1) / 2)
        colour = style.colour
        ax.vlines(x, full["low"], full["high"], color=colour, lw=1.2, zorder=1)
        ax.plot(x, full["accuracy"], color=colour, lw=1, ls=style.line, zorder=2)
        share = full["n_pairs"] / bins["n_pairs"].sum()
        name = canvas.shorten_names([model])[0]
        ax.scatter(
            x,
            full["accuracy"],
            s=12 + 80 * share,
            color=colour,
            marker=style.marker,
            lw=0,
            zorder=3,
            clip_on=False,
            label=f"{canvas.escape_name(name)}\n{_format_error(bins)}",
        )

    label = "promised probability\nthat the answer of higher score is right"
    n_sparse = int(table["n_pairs"].between(1, _FEWEST - 1).sum())
    why = f"of fewer than {_FEWEST} comparisons left out"
    ax.set_xlabel(canvas.describe_values(label, n_sparse, why, "bin"))
    ax.set_ylabel("share where it is right")
    ax.set_xlim(0.49, 1.01)
    ax.set_ylim(top=1.02)
    canvas.add_legend(ax)
    return ax


def _format_error(bins: pd.DataFrame) -> str:
    """The model's calibration error for the legend."""
    if bins.empty:
        return "no margins"
    value, low, high = bins[_ERROR].iloc[0]
    if np.isnan(value):
        return "ECE of one prompt is unknown"
    limits = "" if np.isnan(low) else f" ({low:.3f} to {high:.3f})"
    return f"ECE {value:.3f}{limits}"
