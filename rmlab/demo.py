"""The main job on the bundled data, in one call: scores, table, figures."""

from pathlib import Path

import pandas as pd

from rmlab import baselines, metrics, plots, toy
from rmlab.benchmarks import load
from rmlab.report import save_figure
from rmlab.scorers.base import PlainScorer
from rmlab.scoring import score


def demo(folder: str | Path = "figures") -> tuple[pd.DataFrame, list[Path]]:
    """Score the bundled benchmark with baselines and two toy reward models, and draw.

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
    scores = score(responses, scorers)
    pairs = metrics.pairs(scores)

    cells = metrics.accuracy(pairs, by=["model", "chosen_style", "rejected_style"])
    levels = metrics.accuracy(pairs, by=["model", "level"])

    folder = Path(folder)
    matrices_figure = plots.plot_matrices(pairs, columns=3)
    files = [
        *save_figure(matrices_figure, folder / "demo_matrices", cells),
        *save_figure(plots.plot_style_gap(levels), folder / "demo_style_gap", levels),
    ]
    return metrics.summary(pairs), files
