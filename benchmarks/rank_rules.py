"""Rules for the interval of a rank, side by side, on a normal approximation: mean coverage and width.

Models have true scores, their estimates normal errors: independent ones for published scores and gaps, those of the
real answers for RewardBench's 149 models. Published and real scores are scattered anew by one error in every draw.

    python benchmarks/rank_rules.py [--draws 300] [--data ../shared/data] [--out benchmarks/results/rank_rules.csv]
"""

import argparse
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd

from rmlab.papers import published

RESAMPLES = 2000
SHARES = (0.75, 0.8, 0.85, 1.0)
Limits = tuple[np.ndarray, np.ndarray]
World = tuple[np.ndarray, np.ndarray]  # true scores, covariance of their errors


def ranks_of(scores: np.ndarray) -> np.ndarray:
    return 1 + np.argsort(np.argsort(-scores, axis=-1), axis=-1)


def resampled(drawn: np.ndarray, own: np.ndarray) -> tuple[Limits, Limits]:
    """Quantiles of the resampled ranks, and the same with half of the probability of the limit itself (mid-p)."""
    places = np.arange(1, len(own) + 1)[:, None]
    share = np.stack([(drawn == place).mean(axis=0) for place in places])
    up_to = share.cumsum(axis=0)
    middle = up_to - share / 2
    kept = (middle > 0.025) & (middle < 0.975)
    low = np.where(kept, places, len(own) + 1).min(axis=0)
    high = np.where(kept, places, 0).max(axis=0)
    plain = (up_to >= 0.025).argmax(axis=0) + 1, (up_to >= 0.975 - 1e-12).argmax(axis=0) + 1
    return plain, (np.minimum(low, own), np.maximum(high, own))


def rules(scores: np.ndarray, covariance: np.ndarray, rng: np.random.Generator) -> dict[str, Limits]:
    error = np.linalg.cholesky(covariance + 1e-14 * np.eye(len(scores)))
    noise = rng.standard_normal((RESAMPLES, len(scores))) @ error.T
    plain, mid = resampled(ranks_of(scores + noise), ranks_of(scores))
    own = np.diag(covariance)
    spread = np.sqrt(own[:, None] + own - 2 * covariance) + np.eye(len(scores))
    ahead = (scores - scores[:, None]) / spread  # of the column over the row
    found = {"quantiles of resampled ranks": plain, "the same, mid-p": mid}
    for share in SHARES:
        z = 1.96 * share
        found[f"paired, {share} of the half-width"] = 1 + (ahead > z).sum(1), len(scores) - (ahead < -z).sum(1)
    return found


def independent(scores: np.ndarray, error: float) -> World:
    return scores, np.eye(len(scores)) * error**2 / 2


def worlds(folder: Path, rng: np.random.Generator) -> dict[str, Callable[[], World]]:
    def listed(name: str, error: float) -> Callable[[], World]:
        scores = published(name)["overall"].dropna().to_numpy(float)
        return lambda: independent(scores + rng.normal(0, error / np.sqrt(2), len(scores)), error)

    def spaced(models: int, gap: float) -> Callable[[], World]:
        return lambda: independent(np.cumsum(rng.exponential(gap, models)), 1.0)

    found = {
        "RM-Bench, published": listed("rm-bench", 0.0095),
        "RewardBench 2, published": listed("reward-bench-2", 0.011),
    }
    path = folder / "rewardbench/response_matrix.torch_measure.csv"
    if path.is_file():
        wide = pd.read_csv(path, index_col="model").to_numpy(float)
        scores = np.nanmean(wide, axis=1)
        off = np.nan_to_num(wide - scores[:, None])
        covariance = off @ off.T / wide.shape[1] ** 2
        found["RewardBench, 149 models"] = lambda: (rng.multivariate_normal(scores, covariance), covariance)
    gaps = {f"{k} models, random gaps of {g} errors": spaced(k, g) for k in (5, 10, 30) for g in (0.1, 0.25, 0.5, 1.0)}
    return found | gaps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rng, rows = np.random.default_rng(0), []
    for name, make in worlds(options.data, rng).items():
        held: dict[str, list[tuple[float, float]]] = {}
        for _ in range(options.draws):
            true, covariance = make()
            error = np.linalg.cholesky(covariance + 1e-14 * np.eye(len(true)))
            found = rules(true + error @ rng.standard_normal(len(true)), covariance, rng)
            for rule, (low, high) in found.items():
                inside = (low <= ranks_of(true)) & (ranks_of(true) <= high)
                held.setdefault(rule, []).append((inside.mean(), (high - low).mean()))
        for rule, values in held.items():
            share, width = np.mean(values, axis=0)
            error_of_share = np.std([v[0] for v in values]) / np.sqrt(len(values))
            rows.append({"models": name, "rule": rule, "share": share, "error": error_of_share, "width": width,
                         "draws": options.draws})  # fmt: skip
    table = pd.DataFrame(rows).round(4).assign(date=date.today().isoformat())
    print(table.pivot(index="models", columns="rule", values="share").round(3).to_string())
    if options.out:
        table.to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
