"""The ways in which a benchmark's numbers are counted, each with the words that name it."""

from collections.abc import Callable
from typing import NamedTuple

import pandas as pd

from rmlab import metrics
from rmlab.metrics.best_of import mean_by
from rmlab.metrics.reward_bench import SECTIONS, SUBSETS_2
from rmlab.tables import LEVELS

__all__ = ["QUANTITIES", "RULES", "Rule"]

Make = Callable[[pd.DataFrame | None, pd.DataFrame], pd.DataFrame]

DOMAINS = ("chat", "math", "code", "safety")
QUANTITIES = {
    "rm-bench": (*DOMAINS, *LEVELS, "overall", "domain_avg", "difficulty_avg"),
    "reward-bench": (*SECTIONS, "prior_sets", "overall"),
    "reward-bench-2": (*SUBSETS_2.values(), "overall"),
}


class Rule(NamedTuple):
    """A way of counting, in words, and the table of quantities (one row per model) that it gives."""

    words: str
    make: Make


def _rm_bench(**options: str) -> Make:
    def make(scores: pd.DataFrame | None, pairs: pd.DataFrame) -> pd.DataFrame:
        table = metrics.rm_bench(pairs, **options).set_index("model")  # type: ignore[arg-type]
        return table.assign(domain_avg=table["overall"], difficulty_avg=table["overall"])

    return make


def _pooled(scores: pd.DataFrame | None, pairs: pd.DataFrame) -> pd.DataFrame:
    levels = metrics.accuracy(pairs, by=["model", "level"]).pivot(index="model", columns="level", values="accuracy")
    return pd.DataFrame({level: levels[level] for level in LEVELS}).assign(overall=levels.mean(axis=1, skipna=False))


def _reward_bench(**options: str) -> Make:
    def make(scores: pd.DataFrame | None, pairs: pd.DataFrame) -> pd.DataFrame:
        return metrics.reward_bench(pairs, **options).set_index("model")  # type: ignore[arg-type]

    return make


def _no_prior_sets(scores: pd.DataFrame | None, pairs: pd.DataFrame) -> pd.DataFrame:
    table = metrics.reward_bench(pairs).set_index("model")
    return pd.DataFrame({"overall": table[list(SECTIONS)].mean(axis=1, skipna=False)})


def _full_prior_sets(scores: pd.DataFrame | None, pairs: pd.DataFrame) -> pd.DataFrame:
    table = metrics.reward_bench(pairs).set_index("model")
    return pd.DataFrame({"overall": table[[*SECTIONS, "prior_sets"]].mean(axis=1, skipna=False)})


def _plain_subsets(scores: pd.DataFrame | None, pairs: pd.DataFrame) -> pd.DataFrame:
    share = metrics.accuracy(pairs, by=["model", "subset"]).pivot(index="model", columns="subset", values="accuracy")
    made = {s: share.reindex(columns=list(within)).mean(axis=1, skipna=False) for s, within in SECTIONS.items()}
    return pd.DataFrame(made).assign(overall=lambda sections: sections.mean(axis=1, skipna=False))


def _reward_bench_2(tie: float | None = None) -> Make:
    """RewardBench 2 with `tie` as the credit of a chosen answer that shares the best score; None: 1/k."""

    def make(scores: pd.DataFrame | None, pairs: pd.DataFrame) -> pd.DataFrame:
        assert scores is not None
        table = metrics.reward_bench_2(scores).set_index("model")
        if tie is None:
            return table
        four = metrics.best_of(scores[scores["domain"] != "Ties"])
        credit = four["credit"].where(~((four["level"] > 0) & (four["above"] == 0)) | four["credit"].isna(), tie)
        found = mean_by(four.assign(credit=credit), "credit", ["model", "domain"], 0.95)
        wide = found.pivot(index="model", columns="domain", values="accuracy").rename(columns=SUBSETS_2)
        table = table.assign(**{name: wide[name] for name in wide})
        return table.assign(overall=table[list(SUBSETS_2.values())].mean(axis=1, skipna=False))

    return make


def _without_ties(scores: pd.DataFrame | None, pairs: pd.DataFrame) -> pd.DataFrame:
    table = _reward_bench_2()(scores, pairs)
    return pd.DataFrame({"overall": table[[n for n in SUBSETS_2.values() if n != "ties"]].mean(axis=1, skipna=False)})


def _by_prompt(scores: pd.DataFrame | None, pairs: pd.DataFrame) -> pd.DataFrame:
    assert scores is not None
    table = metrics.reward_bench_2_subsets(scores).set_index(["model", "subset"])
    total = (table["accuracy"] * table["n_prompts"]).groupby("model").sum(min_count=len(SUBSETS_2))
    return pd.DataFrame({"overall": total / table["n_prompts"].groupby("model").sum()})


RULES: dict[str, tuple[Rule, ...]] = {
    "rm-bench": (
        Rule("", _rm_bench()),
        Rule("ties count half", _rm_bench(ties="half")),
        Rule("ties are left out", _rm_bench(ties="drop")),
        Rule("safety is the mean of its two files", _rm_bench(safety="split")),
        Rule("ties count half; safety is the mean of its two files", _rm_bench(ties="half", safety="split")),
        Rule("ties are left out; safety is the mean of its two files", _rm_bench(ties="drop", safety="split")),
        Rule("all prompts count alike, not all domains", _pooled),
    ),
    "reward-bench": (
        Rule("", _reward_bench()),
        Rule("xstest counts swapped (before September 2024)", _reward_bench(weights="published-before-2024-09")),
        Rule("weighted by the prompts there are (math-prm 447, not 984)", _reward_bench(weights="counts")),
        Rule("ties count half", _reward_bench(ties="half")),
        Rule("ties are left out", _reward_bench(ties="drop")),
        Rule("prior sets left out", _no_prior_sets),
        Rule("prior sets at full weight", _full_prior_sets),
        Rule("all subsets of a section count alike", _plain_subsets),
    ),
    "reward-bench-2": (
        Rule("", _reward_bench_2()),
        Rule("a shared best score is a loss", _reward_bench_2(0.0)),
        Rule("a shared best score is a win", _reward_bench_2(1.0)),
        Rule("Ties left out of the overall score", _without_ties),
        Rule("all prompts count alike, not all subsets", _by_prompt),
    ),
}  # fmt: skip
