"""See what a reward model really rewards.

Load gives responses, scoring gives scores, pairing gives comparisons; every number and
every figure is a function of these three tables.

    import rmlab

    responses = rmlab.load("mini")
    scores = rmlab.score(responses, rmlab.baselines.longest)
    rmlab.summary(scores)

These are the names of a first day. All else is one dot deeper, in a module named for
the job: `rmlab.metrics`, `.stats`, `.bias`, `.styles`, `.plots`, `.scorers`, `.papers`,
`.widgets`, `.report`, `.io`, `.tables`, `.toy`, `.judges`, `.benchmarks`, `.scoring`,
`.servers`, `.inference`; `.training` when it is first asked for.
"""

from importlib import import_module
from types import ModuleType

from rmlab import (
    baselines,
    benchmarks,
    bias,
    inference,
    io,
    judges,
    metrics,
    papers,
    plots,
    report,
    scorers,
    stats,
    styles,
    tables,
    toy,
    widgets,
)
from rmlab.benchmarks import load, load_pool, load_preferences
from rmlab.bias.effects import exchange_rate, style_effects
from rmlab.bias.gap import style_gap
from rmlab.bias.probe import probe
from rmlab.checks import doctor, parity
from rmlab.io import read_pairs, read_scores, write_pairs, write_scores
from rmlab.judges import judge
from rmlab.metrics import accuracy, estimates, matrix, pairs, summary
from rmlab.plots import plot_matrices, plot_matrix, plot_style_gap
from rmlab.report import leaderboard, save_figure, write_report
from rmlab.scorers import classifier, implicit_reward, pairwise
from rmlab.scoring import merge_stores, prefer, rewards, score
from rmlab.servers import remote
from rmlab.stats import compare, rank
from rmlab.tables import DataError
from rmlab.version import __version__
from rmlab.widgets import explore

__all__ = [
    "DataError",
    "__version__",
    "accuracy",
    "baselines",
    "classifier",
    "compare",
    "doctor",
    "estimates",
    "exchange_rate",
    "explore",
    "implicit_reward",
    "judge",
    "leaderboard",
    "load",
    "load_pool",
    "load_preferences",
    "matrix",
    "merge_stores",
    "pairs",
    "pairwise",
    "parity",
    "plot_matrices",
    "plot_matrix",
    "plot_style_gap",
    "prefer",
    "probe",
    "rank",
    "read_pairs",
    "read_scores",
    "remote",
    "rewards",
    "save_figure",
    "score",
    "style_effects",
    "style_gap",
    "summary",
    "write_pairs",
    "write_report",
    "write_scores",
]


_MODULES = [
    "benchmarks",
    "bias",
    "inference",
    "io",
    "judges",
    "metrics",
    "papers",
    "plots",
    "report",
    "scorers",
    "scoring",
    "servers",
    "stats",
    "styles",
    "tables",
    "toy",
    "training",
    "widgets",
]


def __dir__() -> list[str]:
    """What tab completion shows: the names above and the modules of the docstring."""
    return sorted({*__all__, *_MODULES})


def __getattr__(name: str) -> ModuleType:
    """Load `rmlab.training` on first access, as it imports transformers."""
    if name == "training":
        return import_module("rmlab.training")
    raise AttributeError(f"module 'rmlab' has no attribute {name!r}")
