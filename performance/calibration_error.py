"""How often the interval of the calibration error holds it, and what a calibrated model
shows on average.

Margins are log-odds times a factor: 1 is calibrated. Outcomes follow the log-odds; the
nine comparisons of a prompt depend on each other through a normal variable they share.
The truth is the error of the bins, from many draws.

    python performance/calibration_error.py [--draws 2000] [--comparisons 1 9]
        [--out performance/results/calibration_error.csv]
"""

import argparse
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
from keep_rows import keep_rows
from scipy.special import expit, ndtr

from rmlab import stats

BATCH = 50
MANY = 2_000_000
# share of the variance behind the outcomes that a prompt's comparisons have in common
SHARED = 0.5
WORLDS = [
    (50, 1),
    (100, 1),
    (400, 1),
    (1327, 1),
    (64, 9),
    (441, 9),
]  # prompts, comparisons of each
FACTORS = (1.0, 0.6, 1.3, 2.0, 4.0)


def margins(
    rows: int, prompts: int, per: int, factor: float, rng: np.random.Generator
) -> np.ndarray:
    odds = np.abs(rng.normal(0, 1.5, (rows, prompts, per)))
    common = (
        rng.standard_normal((rows, prompts, 1)) * np.sqrt(SHARED) if per > 1 else 0.0
    )
    own = rng.standard_normal(odds.shape) * np.sqrt(1 - SHARED if per > 1 else 1.0)
    return factor * odds * np.where(ndtr(common + own) < expit(odds), 1, -1)


def truth(factor: float, bins: int) -> float:
    odds = np.abs(np.random.default_rng(99).normal(0, 1.5, MANY))
    said = expit(factor * odds)
    place = np.minimum((2 * bins * (said - 0.5)).astype(int), bins - 1)
    return float(np.abs(np.bincount(place, expit(odds) - said, bins)).sum() / MANY)


def rows(draws: int, comparisons: list[int]) -> Iterator[dict[str, object]]:
    for prompts, per in (world for world in WORLDS if world[1] in comparisons):
        for factor in FACTORS:
            for bins in (10,) if factor != 1 else (5, 10, 15):
                rng = np.random.default_rng(prompts + per)
                table = pd.concat(
                    stats.calibration_error(
                        _pairs(
                            margins(min(BATCH, draws - i), prompts, per, factor, rng)
                        ),
                        bins=bins,
                    )
                    for i in range(0, draws, BATCH)
                )
                true = truth(factor, bins)
                brier, loss = scores(factor)
                yield {
                    "prompts": prompts,
                    "comparisons": per,
                    "factor": factor,
                    "bins": bins,
                    "true": true,
                    "ece": table["ece"].mean(),
                    "share": (
                        (table["ece_low"] <= true) & (true <= table["ece_high"])
                    ).mean(),
                    "width": (table["ece_high"] - table["ece_low"]).mean(),
                    "brier": (
                        (table["brier_low"] <= brier) & (brier <= table["brier_high"])
                    ).mean(),
                    "log_loss": (
                        (table["log_loss_low"] <= loss)
                        & (loss <= table["log_loss_high"])
                    ).mean(),
                    "draws": len(table),
                }


def scores(factor: float) -> tuple[float, float]:
    """True Brier score and log loss."""
    odds = np.abs(np.random.default_rng(98).normal(0, 1.5, MANY))
    p, said = expit(odds), expit(factor * odds)
    return (
        float((p * (1 - said) ** 2 + (1 - p) * said**2).mean()),
        float((-p * np.log(said) - (1 - p) * np.log(expit(-factor * odds))).mean()),
    )


def _pairs(margin: np.ndarray) -> pd.DataFrame:
    model, prompt, slot = (place.ravel() for place in np.indices(margin.shape))
    return pd.DataFrame(
        {
            "model": np.char.add("draw ", model.astype(str)),
            "benchmark": "b",
            "domain": "d",
            "id": prompt.astype(str),
            "chosen_slot": slot,
            "rejected_slot": 0,
            "margin": margin.ravel(),
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument(
        "--comparisons",
        type=int,
        nargs="+",
        default=[1, 9],
        help="only worlds of so many a prompt",
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    start, made = time.perf_counter(), []
    for row in rows(options.draws, options.comparisons):
        made.append(row)
        print(
            "  ".join(
                f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v}"
                for k, v in row.items()
            ),
            flush=True,
        )
    table = (
        pd.DataFrame(made)
        .round(4)
        .assign(date=date.today().isoformat(), machine="2 CPU cores, shared")
    )
    for what in ("share", "brier", "log_loss"):
        print(f"{what}: mean {table[what].mean():.3f}, worst {table[what].min():.3f}")
    print(f"{time.perf_counter() - start:.0f} s")
    if options.out:
        keep_rows(table, options.out, ["prompts", "comparisons", "factor", "bins"])


if __name__ == "__main__":
    main()
