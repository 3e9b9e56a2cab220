"""The main job on the bundled data, in one call: scores, table, figures."""

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from rmlab import baselines, metrics, plots, toy
from rmlab.benchmarks import load
from rmlab.report import save_figure
from rmlab.scorers.base import PlainScorer
from rmlab.scoring import score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def demo(folder: str | Path = "figures") -> tuple[pd.DataFrame, list[Path]]:
    """Score the bundled benchmark with content-blind baselines and two toy reward
    models, and draw the result.

    The toy models know the right answers: one weighs substance, the other mostly style.

    Parameters
    ----------
    folder : str or Path
        Where the figures are written.

    Returns
    -------
    DataFrame
        The summary, one row per scorer.
    list of Path
        Each figure as PNG, and its numbers as CSV.
    """
    responses = load("mini")
    scorers: list[PlainScorer] = [
        baselines.longest,
        baselines.shortest,
        baselines.most_markdown,
        baselines.random,
        toy.scorer(responses, skill=2.0, style=0.2, name="toy: substance"),
        toy.scorer(responses, skill=0.7, style=1.5, name="toy: style-biased"),
    ]
    pairs = metrics.pairs(score(responses, scorers))
    cells = metrics.accuracy(pairs, by=["model", "chosen_style", "rejected_style"])
    levels = metrics.accuracy(pairs, by=["model", "level"])
    figures: dict[str, tuple[Axes | Figure, pd.DataFrame]] = {
        "demo_matrices": (plots.plot_matrices(pairs, columns=3), cells),
        "demo_style_gap": (plots.plot_style_gap(levels), levels),
        "demo_lengths": (plots.plot_lengths(responses), plots.lengths(responses)),
    }
    files = [
        save_figure(figure, Path(folder) / name, table)
        for name, (figure, table) in figures.items()
    ]
    return metrics.summary(pairs), [file for group in files for file in group]
