"""The figure of a training run: a benchmark over the steps."""

import re
from typing import TYPE_CHECKING

import pandas as pd

from rmlab import metrics
from rmlab.bias.gap import style_gap
from rmlab.plots import canvas
from rmlab.plots.canvas import MarkStyle
from rmlab.plots.style import LEVEL_STYLES
from rmlab.tables import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_OVERALL = MarkStyle("black", "o")
_GAP = MarkStyle("#7b3294", "x", "--")
_STEP = re.compile(r"(.*?)(\d+)$")


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
        A line for each level, and a broken one for easy minus hard; of data without
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
        _draw_line(ax, table[table["quantity"] == "overall"], "overall", _OVERALL)
    else:
        for level, rows in levels.groupby("name", sort=False):
            _draw_line(ax, rows, str(level), LEVEL_STYLES[str(level)])
        gap = style_gap(scores).rename(columns={"gap": "value"})
        gap["step"] = gap["model"].map(steps)
        _draw_line(ax, gap, "style gap (easy minus hard)", _GAP)

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


def _draw_line(ax: "Axes", rows: pd.DataFrame, label: str, style: MarkStyle) -> None:
    """A line over the steps with the band of its intervals."""
    rows = rows.sort_values("step")
    ax.plot(
        rows["step"],
        rows["value"],
        color=style.colour,
        marker=style.marker,
        ls=style.line,
        ms=4,
        lw=1.4,
        label=label,
    )
    ax.fill_between(
        rows["step"], rows["low"], rows["high"], color=style.colour, alpha=0.15, lw=0
    )
