"""Unlabelled pairs with a planted preference for length: do intervals hold the truth,
and is the preference reported?

200 prompts a draw, one pair each; the chosen answer is shorter, about equal or longer.
A comparison is won with probability 0.7, plus the planted cost where the chosen answer
is longer, less it where it is shorter.

    python performance/length_pairs.py      # writes results/length_pairs.csv
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

import rmlab

TARGET = Path(__file__).with_name("results") / "length_pairs.csv"
LENGTHS = {"shorter": (80, 200), "equal": (120, 120), "longer": (200, 80)}


def draw(rng: np.random.Generator, n_prompts: int, cost: float) -> pd.DataFrame:
    """Pairs with length classes from the texts, and outcomes drawn with the planted
    probabilities.
    """
    side = rng.choice(list(LENGTHS), n_prompts)
    rows = pd.DataFrame(
        {
            "benchmark": "drawn",
            "domain": "drawn",
            "id": np.arange(n_prompts).astype(str).repeat(2),
            "label": ["chosen", "rejected"] * n_prompts,
            "slot": 0,
            "prompt": "?",
            "response": ["x" * length for name in side for length in LENGTHS[name]],
        }
    )
    chance = 0.7 + cost * np.select(
        [side == "longer", side == "shorter"], [1.0, -1.0], 0.0
    )
    win = rng.random(n_prompts) < chance
    responses = rmlab.tables.check_responses(rows)
    scores = responses.drop(columns=["prompt", "response"]).assign(
        model="m", score=np.column_stack([win, ~win]).astype(float).ravel()
    )
    return rmlab.bias.style_differences(rmlab.tables.check_scores(scores), responses)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--prompts", type=int, default=200)
    options = parser.parse_args()
    rows = []
    for cost in (0.0, 0.1):
        rng = np.random.default_rng(0)
        held, reported = [], []
        for _ in range(options.draws):
            pairs = draw(rng, options.prompts, cost)
            table = rmlab.accuracy(pairs, by=["model", "length"]).set_index("length")
            truth = pd.Series(
                {"shorter": 0.7 - cost, "equal": 0.7, "longer": 0.7 + cost}
            )
            held.append(((table["low"] <= truth) & (truth <= table["high"])).to_numpy())
            reported.append(
                any(
                    "longer minus shorter" in text
                    for text in rmlab.report.sentences(pairs)
                )
            )
        coverage = dict(
            zip(
                ("shorter", "equal", "longer"),
                np.mean(held, axis=0).round(4),
                strict=True,
            )
        )
        rows.append(
            {
                "cost": cost,
                "draws": options.draws,
                "prompts": options.prompts,
                **coverage,
                "reported": np.mean(reported),
            }
        )
        print(rows[-1], flush=True)
    pd.DataFrame(rows).to_csv(TARGET, index=False)


if __name__ == "__main__":
    main()
