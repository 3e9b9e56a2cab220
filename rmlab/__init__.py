"""See what a reward model really rewards.

Load gives responses, scoring gives scores, pairing gives comparisons; every number and every figure is a function of
these three tables.

    import rmlab

    responses = rmlab.load("mini")
    scores = rmlab.score(responses, rmlab.baselines.longest)
    rmlab.rm_bench(rmlab.pairs(scores))
"""

from rmlab import styles
from rmlab.benchmarks import load, load_pairs
from rmlab.bias import (
    debias,
    debias_change,
    exchange_rate,
    length_controlled,
    style_controlled,
    style_effects,
    style_gap,
    style_preference,
)
from rmlab.bias.probe import probe
from rmlab.doctor import doctor
from rmlab.ensembles import ensemble
from rmlab.explore import explore, playground, token_rewards
from rmlab.metrics import (
    accuracy,
    best_of,
    best_of_curve,
    matrix,
    pairs,
    reward_bench,
    reward_bench_2,
    reward_bench_2_subsets,
    rm_bench,
    ties_detail,
    ties_score,
)
from rmlab.plots import (
    plot_best_of,
    plot_calibration,
    plot_effects,
    plot_forest,
    plot_leaderboard,
    plot_lengths,
    plot_margins,
    plot_matrices,
    plot_matrix,
    plot_preference,
    plot_rank,
    plot_significance,
    plot_style_gap,
    plot_subsets,
    plot_ties,
    plot_token_rewards,
)
from rmlab.published import audit_leaderboard, published
from rmlab.report import leaderboard, save_figure, write_report
from rmlab.reproduce import agreement, reproduce
from rmlab.score_files import export_every_eval_ever, read_pairs, read_scores, write_pairs, write_scores
from rmlab.scorers import baselines, classifier
from rmlab.scorers.implicit import implicit_reward
from rmlab.scorers.pairwise import pairwise
from rmlab.scoring import merge, prefer, score
from rmlab.stats import (
    calibration,
    compare,
    compare_all,
    error_clusters,
    error_correlation,
    flips,
    items,
    margins,
    power,
    rank,
    sensitivity,
)
from rmlab.styles import audit
from rmlab.styles.rules import restyle_pairs
from rmlab.tables import DataError, check_pairs, check_responses, check_scores

__version__ = "0.1.0"

__all__ = [
    "DataError",
    "__version__",
    "accuracy",
    "agreement",
    "audit",
    "audit_leaderboard",
    "baselines",
    "best_of",
    "best_of_curve",
    "calibration",
    "check_pairs",
    "check_responses",
    "check_scores",
    "classifier",
    "compare",
    "compare_all",
    "debias",
    "debias_change",
    "doctor",
    "ensemble",
    "error_clusters",
    "error_correlation",
    "exchange_rate",
    "explore",
    "export_every_eval_ever",
    "flips",
    "implicit_reward",
    "items",
    "leaderboard",
    "length_controlled",
    "load",
    "load_pairs",
    "margins",
    "matrix",
    "merge",
    "pairs",
    "pairwise",
    "playground",
    "plot_best_of",
    "plot_calibration",
    "plot_effects",
    "plot_forest",
    "plot_leaderboard",
    "plot_lengths",
    "plot_margins",
    "plot_matrices",
    "plot_matrix",
    "plot_preference",
    "plot_rank",
    "plot_significance",
    "plot_style_gap",
    "plot_subsets",
    "plot_ties",
    "plot_token_rewards",
    "power",
    "prefer",
    "probe",
    "published",
    "rank",
    "read_pairs",
    "read_scores",
    "reproduce",
    "restyle_pairs",
    "reward_bench",
    "reward_bench_2",
    "reward_bench_2_subsets",
    "rm_bench",
    "save_figure",
    "score",
    "sensitivity",
    "style_controlled",
    "style_effects",
    "style_gap",
    "style_preference",
    "styles",
    "ties_detail",
    "ties_score",
    "token_rewards",
    "write_pairs",
    "write_report",
    "write_scores",
]
