"""Random results in the shape of RewardBench 1 and 2."""

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.benchmarks.reward_bench import SECTIONS

FIVE = ("Factuality", "Precise IF", "Math", "Safety", "Focus")


def reward_bench_pairs(seed=0, models=("a", "b"), prior_sets=False, sizes=(5, 11)):
    """Every subset of RewardBench 1 with a few prompts; ties happen."""
    rng = np.random.default_rng(seed)
    names = [subset for section in SECTIONS.values() for subset in section]
    if prior_sets:
        names += ["anthropic_helpful", "anthropic_hhh", "shp", "summarize"]
    counts = {name: int(rng.integers(*sizes)) for name in names}
    rows = [
        (model, "reward-bench", name, f"{name}-{i}", 0, 0, float(rng.integers(-2, 4)))
        for model in models
        for name, n in counts.items()
        for i in range(n)
    ]
    columns = ["model", *tables.PROMPT, "chosen_slot", "rejected_slot", "margin"]
    return tables.check_pairs(pd.DataFrame(rows, columns=columns))


def reward_bench_2_scores(seed=0, models=("a", "b"), n=6, levels=4, right=1.0):
    """Best of four in five subsets (of 6, 7, 8 ... prompts) and pairs of Ties prompts;
    equal scores happen.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for model in models:
        for place, domain in enumerate(FIVE):
            for i in range(n + place):
                rows += [(model, "reward-bench-2", domain, str(i), "chosen", 0, right)]
                rows += [
                    (model, "reward-bench-2", domain, str(i), "rejected", slot, 0.0)
                    for slot in range(3)
                ]
        for i in range(n):
            for kind, correct in (("ref", 1), ("tied", 4)):
                rows += [
                    (model, "reward-bench-2", "Ties", f"{kind}:{i}", "chosen", s, 1.5)
                    for s in range(correct)
                ]
                rows += [
                    (model, "reward-bench-2", "Ties", f"{kind}:{i}", "rejected", s, 0.0)
                    for s in range(3)
                ]
    frame = pd.DataFrame(rows, columns=["model", *tables.KEY, "score"])
    return frame.assign(score=frame["score"] + rng.integers(0, levels, len(frame)))
