"""How often the intervals hold the truth and the tests cry wolf, by simulation at the benchmarks' real sizes.

Scores come from tests/designs.py: six answers a prompt, a prompt effect, true accuracies known in closed form. Every
interval and test is the one that `rmlab.intervals`, `compare`, `compare_all` and `rank` use, run on many draws at once.

    python benchmarks/coverage.py [--draws 2000] [--data ../shared/data] [--out benchmarks/results/coverage.csv]
"""

import argparse
import sys
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import designs
import ranks
from designs import SIZES, Design

from rmlab import metrics
from rmlab.stats import comparing, permutation, reported, targets
from rmlab.stats.grid import credit

BATCH = 100
Row = dict[str, object]
DESIGNS = {
    "typical": Design(),
    "strong model": Design(advantage=(1.5, 2.4, 1.3, 2.8)),
    "near the ceiling": Design(advantage=(3.0, 3.4, 2.8, 3.8)),
    "strong style": Design(style=1.5),
}

TIES_PAIRS = 51  # of prompts
RIGHT_BY = {  # how much better right answers score: Factuality, Precise IF, Math, Safety, Focus, Ties
    "typical": (1.5, 0.6, 1.8, 3.5, 2.2, 2.0),
    "near the ceiling": (4.0, 4.5, 5.0, 5.5, 5.0, 5.0),
}


def batches(draws: int) -> Iterator[int]:
    for start in range(0, draws, BATCH):
        yield min(BATCH, draws - start)


def numbers(name: str, design: Design, draws: int, seed: int) -> list[Row]:
    """Coverage of cells, levels, domains, overall; and of naive intervals: binomial, every comparison independent.

    `worst` is the lowest coverage of a single domain, level or cell. (A cell has one comparison a prompt: the naive
    interval fails there only because it overlooks that small domains count as much as large ones.)
    """
    rng = np.random.default_rng(seed)
    single: dict[tuple[str, str, str], list[np.ndarray]] = {}
    for rows in batches(draws):
        table = designs.grid(designs.margins(design, rows, designs.prompts_in_common(rows, rng), rng))
        worth = credit(table.outcome, "loss")
        for quantity, label, target, chosen in reported.quantities(table, "benchmark"):
            one = reported.estimate(worth, table, target, chosen=chosen)
            true = designs.truth(design, quantity, label)
            n = int(chosen.sum())
            share = worth[:, chosen].mean(axis=1)
            half = 1.96 * np.sqrt(share * (1 - share) / n)
            inside = (one.low <= true) & (true <= one.high)
            single.setdefault((quantity, "clustered", label), []).append(inside)
            single.setdefault((quantity, "naive", label), []).append(np.abs(one.value - true) <= half)
    held: dict[tuple[str, str], list[np.ndarray]] = {}
    for (quantity, method, _), inside in single.items():
        held.setdefault((quantity, method), []).append(np.concatenate(inside))
    worst = {kind: min(inside.mean() for inside in found) for kind, found in held.items()}
    return [
        {"what": f"coverage: {quantity}", "design": name, "method": method, "share": np.concatenate(inside).mean(),
         "draws": len(np.concatenate(inside)), "worst": worst[quantity, method]}
        for (quantity, method), inside in held.items()
    ]  # fmt: skip


def pairs_of_models(design: Design, other: Design, draws: int, seed: int, sizes: dict = SIZES) -> Iterator[tuple]:
    """Grids that hold two models on the same prompts: rows 0 ... n - 1 of one, n ... 2 n - 1 of the other."""
    rng = np.random.default_rng(seed)
    for rows in batches(draws):
        common = designs.prompts_in_common(rows, rng, sizes)
        both = [designs.margins(d, rows, common, rng, sizes) for d in (design, other)]
        yield designs.grid(np.concatenate(both), sizes), np.arange(rows), np.arange(rows) + rows


def differences(draws: int, seed: int) -> list[Row]:
    """Coverage of paired differences, and of the interval that forgets the pairing and the clusters."""
    design, other = Design(), Design(advantage=(0.5, 0.1, 0.2, 1.0), style=0.6)
    rows = []
    for by in ([], ["level"], ["domain"]):
        held, naive = [], []
        for table, a, b in pairs_of_models(design, other, draws, seed):
            worth = credit(table.outcome, "loss")
            for key, chosen, target in targets.groups(table, by, "benchmark"):
                quantity, label = next(iter(key.items()), ("overall", "overall"))
                true = designs.truth(design, quantity, label) - designs.truth(other, quantity, label)
                found = comparing.paired(table, worth, target, chosen, a, b, comparing.Options(0.95, 1, 0, False))
                held.append((found["low"] <= true) & (true <= found["high"]))
                one, two = found["accuracy_a"], found["accuracy_b"]
                half = 1.96 * np.sqrt((one * (1 - one) + two * (1 - two)) / chosen.sum())
                naive.append(np.abs(found["difference"] - true) <= half)
        name = by[0] if by else "overall"
        for method, inside in (("clustered", held), ("naive", naive)):
            share = np.concatenate(inside).mean()
            rows.append({"what": f"coverage: difference, {name}", "design": "two models", "method": method,
                         "share": share, "draws": len(np.concatenate(inside))})  # fmt: skip
    return rows


def reward_bench_2(name: str, advantages: tuple[float, ...], draws: int, seed: int) -> list[Row]:
    """Coverage of what `reward_bench_2` reports: best-of-four subsets, Ties, overall.

    Scores lie on a grid of halves, so that they tie: 1/k credit. A Ties pair has one right answer in the one prompt,
    eight in the other, eight wrong ones in both, and a level of difficulty in common.
    """
    rng = np.random.default_rng(seed)
    subsets = dict(zip([*designs.BEST_OF_FOUR, "Ties"], advantages, strict=True))
    sizes = designs.BEST_OF_FOUR | {"Ties": TIES_PAIRS}
    keys = reward_bench_2_keys(sizes)

    def value(of: pd.DataFrame, rows: int) -> pd.DataFrame:
        scores = []
        for row in range(rows):
            for subset, part in of.groupby("domain", sort=False):
                common = rng.standard_normal(part["prompt"].max() + 1)[part["prompt"]]
                right = (part["label"] == "chosen").to_numpy()
                spread = np.where((subset == "Ties") & right, 0.25, 1.0)  # answers that are equally right score alike
                score = right * (subsets[subset] + common) + spread * rng.standard_normal(len(part))
                scores.append(part.assign(score=np.round(2 * score) / 2, model=f"draw {row}"))
        return pd.concat(scores, ignore_index=True).drop(columns="prompt")

    many = metrics.reward_bench_2(value(reward_bench_2_keys(dict.fromkeys(sizes, 40_000)), 1)).iloc[0]
    held: dict[str, list[np.ndarray]] = {"best of four, subset": [], "Ties": [], "RewardBench 2, overall": []}
    for start in range(0, draws, 20):
        scores = value(keys, min(20, draws - start))
        for row in metrics.reward_bench_2_subsets(scores).itertuples():
            kind = "Ties" if row.subset == "ties" else "best of four, subset"
            held[kind].append(row.low <= many[row.subset] <= row.high)
        whole = metrics.reward_bench_2(scores)
        held["RewardBench 2, overall"] += list((whole["low"] <= many["overall"]) & (many["overall"] <= whole["high"]))
    return [
        {"what": f"coverage: {kind}", "design": name, "method": "clustered", "share": np.mean(inside),
         "draws": len(inside)}
        for kind, inside in held.items()
    ]  # fmt: skip


def reward_bench_2_keys(sizes: dict[str, int]) -> pd.DataFrame:
    """Keys of a scores table of RewardBench 2 with so many prompts (Ties: pairs of prompts), and their number."""
    parts = []
    for subset, n in sizes.items():
        for kind, right in (("ref", 1), ("tied", 8)) if subset == "Ties" else (("", 1),):
            wrong = 8 if kind else 3
            number = np.repeat(np.arange(n), right + wrong)
            ids = number.astype(str)
            parts.append(
                pd.DataFrame(
                    {
                        "benchmark": "reward-bench-2",
                        "domain": subset,
                        "id": np.char.add(f"{kind}:", ids) if kind else ids,
                        "label": np.tile(["chosen"] * right + ["rejected"] * wrong, n),
                        "slot": np.tile(np.r_[np.arange(right), np.arange(wrong)], n),
                        "prompt": number,
                    }
                )
            )
    return pd.concat(parts, ignore_index=True)


def type_one(draws: int, seed: int) -> list[Row]:
    """Share of significant differences at 5 % between models of equal merit."""
    same = Design(advantage=(0.3, 0.1, 0.0, 0.2))
    up, down = (Design(advantage=(0.0, 0.0, sign * 0.4, -sign * 0.4), style=0.0) for sign in (1, -1))
    cases = {
        "sign-flip, overall": (same, same, SIZES, 9),
        "sign-flip, overall equal but not the domains": (up, down, SIZES, 9),
        "sign-flip, 129 prompts": (same._replace(advantage=(0.3,)),) * 2 + ({"chat": 129}, 9),
        "sign-flip, 30 prompts": (same._replace(advantage=(0.3,)),) * 2 + ({"chat": 30}, 9),
        "mcnemar, 2985 prompts": (same._replace(advantage=(0.6,)),) * 2 + ({"all": 2985}, 1),
        "mcnemar, 450 prompts": (same._replace(advantage=(0.6,)),) * 2 + ({"all": 450}, 1),
    }
    rows = []
    for name, (one, other, sizes, per) in cases.items():
        p = []
        for table, a, b in pairs_of_models(one, other, draws, seed, sizes):
            if per == 1:
                table = designs.grid(table.margin[:, ::9], sizes)
            average = "domains" if per == 9 else "prompts"
            target = targets.overall(table, average)
            everything = np.ones(len(table.prompt), bool)
            options = comparing.Options(0.95, 10_000, seed, True)
            p.append(comparing.paired(table, credit(table.outcome, "loss"), target, everything, a, b, options)["p"])
        share = (np.concatenate(p) < 0.05).mean()
        rows.append({"what": "type I error", "design": "equal models", "method": name, "share": share,
                     "draws": len(np.concatenate(p))})  # fmt: skip
    return rows


def family(models: int, draws: int, seed: int) -> list[Row]:
    """Share of draws in which any of all the pairs of equal models differs after Holm; without Holm beside it."""
    rng = np.random.default_rng(seed)
    same = Design(advantage=(0.3, 0.1, 0.0, 0.2))
    first, second = np.triu_indices(models, 1)
    any_raw, any_holm = [], []
    for _ in range(draws):
        common = designs.prompts_in_common(1, rng)
        table = designs.grid(np.concatenate([designs.margins(same, 1, common, rng) for _ in range(models)]))
        target = targets.overall(table, "benchmark")
        options = comparing.Options(0.95, 2000, 0, True)
        everything = np.ones(len(table.prompt), bool)
        p = comparing.paired(table, credit(table.outcome, "loss"), target, everything, first, second, options)["p"]
        any_raw.append((p < 0.05).any())
        any_holm.append((permutation.holm(p) < 0.05).any())
    return [
        {"what": "family-wise error", "design": f"{models} equal models, {len(first)} pairs", "method": method,
         "share": np.mean(found), "draws": draws}
        for method, found in (("no correction", any_raw), ("Holm", any_holm))
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    draws, start = options.draws, time.perf_counter()
    rows: list[Row] = []
    for number, (name, design) in enumerate(DESIGNS.items()):
        rows += numbers(name, design, draws, seed=number)
    rows += differences(draws, seed=10)
    rows += ranks.simulated(max(draws // 2, 10), seed=20)
    if options.data.is_dir():
        rows += ranks.real(options.data, max(draws // 4, 10), seed=21)
    for number, (name, advantages) in enumerate(RIGHT_BY.items()):
        rows += reward_bench_2(f"RewardBench 2 sizes, {name}", advantages, max(draws // 2, 10), seed=30 + number)
    rows += type_one(draws, seed=40)
    rows += family(6, max(draws // 2, 10), seed=50)
    table = pd.DataFrame(rows)
    plain = np.sqrt(table["share"] * (1 - table["share"]) / table["draws"])
    table["error"] = table["error"].fillna(plain)
    table = table.round(4).assign(date=date.today().isoformat(), machine="2 CPU cores")
    print(table.drop(columns=["date", "machine"]).to_string(index=False))
    print(f"{time.perf_counter() - start:.0f} s")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
