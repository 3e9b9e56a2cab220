"""RewardBench 1 and 2 against plain loops written from the reference, and against the
public leaderboard.
"""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import FIVE

import rmlab
from rmlab import metrics, tables
from rmlab.benchmarks.reward_bench import SECTIONS, find_task
from rmlab.estimation.best_of import best_of
from rmlab.tables import DataError, check_scores


def subset_rows(scores):
    """The six subsets with their intervals."""
    found = metrics.estimates(scores)
    return found[found["quantity"] == "subset"]


def best_of_four(seed, n=6, levels=3):
    rng = np.random.default_rng(seed)
    rows = [
        (
            "m",
            "reward-bench-2",
            domain,
            str(i),
            label,
            slot,
            float(rng.integers(levels)),
        )
        for domain in FIVE
        for i in range(n)
        for label, slot in [
            ("chosen", 0),
            ("rejected", 0),
            ("rejected", 1),
            ("rejected", 2),
        ]
    ]
    return pd.DataFrame(rows, columns=["model", *tables.KEY, "score"])


def ties(seed, n=5, levels=4, correct=(1, 4)):
    rng = np.random.default_rng(seed)
    rows = []
    for number, (kind, n_right) in itertools.product(
        range(n), zip(("ref", "tied"), correct, strict=True)
    ):
        for label, count in (("chosen", n_right), ("rejected", 3)):
            for slot in range(count):
                score = float(rng.integers(levels)) + (
                    2.0 if label == "chosen" else 0.0
                )
                rows.append(
                    (
                        "m",
                        "reward-bench-2",
                        "Ties",
                        f"{kind}:{number}",
                        label,
                        slot,
                        score,
                    )
                )
    return pd.DataFrame(rows, columns=["model", *tables.KEY, "score"])


def ties_oracle(scores):
    """The Ties score written out from the reference, prompt by prompt."""
    by_id = {}
    for row in scores.itertuples():
        by_id.setdefault(row.id, {"chosen": [], "rejected": []})[row.label].append(
            row.score
        )
    acc = {"ref": [], "tied": []}
    prefers, both, margins = [], [], []
    for id_, sides in by_id.items():
        acc[id_.split(":")[0]].append(min(sides["chosen"]) > max(sides["rejected"]))
    for id_, sides in by_id.items():
        kind, number = id_.split(":")
        if kind == "ref":
            continue
        ref = by_id[f"ref:{number}"]
        spread = max(sides["chosen"]) - min(sides["chosen"])
        gap_tied = min(sides["chosen"]) - max(sides["rejected"])
        gap_ref = min(ref["chosen"]) - max(ref["rejected"])
        smaller = min(gap_ref, gap_tied)
        prefers.append(gap_tied > spread)
        both.append(smaller > spread)
        at_zero = math.nan if smaller == 0 else math.copysign(math.inf, smaller)
        ratio = smaller / spread if spread else at_zero
        margin = math.tanh(ratio - 1)
        margins.append(0.0 if math.isnan(margin) else margin)
    parts = [
        (0.3, acc["tied"]),
        (0.3, acc["ref"]),
        (0.2, prefers),
        (0.2, both),
        (0.01, margins),
    ]
    return sum(weight * sum(values) / len(values) for weight, values in parts)


def whole(seed):
    return pd.concat([best_of_four(seed), ties(seed)], ignore_index=True)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rule", ["share", "loss", "win"])
def test_credit_and_outcome_equal_the_plain_loop(rule, seed):
    """One chosen answer among four: what the rule makes of the rejected ones that score
    the same where none scores higher.
    """
    scores = best_of_four(seed)
    table = best_of(check_scores(scores), ties=rule).set_index(["domain", "id"])
    for key, prompt in scores.groupby(["domain", "id"]):
        own = prompt.loc[prompt["label"] == "chosen", "score"].item()
        others = prompt.loc[prompt["label"] == "rejected", "score"].tolist()
        level = sum(other == own for other in others)
        credit = {"share": 1 / (1 + level), "loss": float(level == 0), "win": 1.0}[rule]
        outcome = 1 if level else 2
        if max(others) > own:
            credit, outcome = 0.0, 0
        row = table.loc[key]
        assert (row["outcome"], row["n_answers"]) == (outcome, 4)
        assert row["credit"] == pytest.approx(credit)
    assert set(table["outcome"]) == {0, 1, 2}


@pytest.mark.parametrize("seed", range(6))
def test_ties_equal_the_plain_oracle(seed):
    scores = ties(seed, levels=2 if seed % 2 else 6)
    assert metrics.ties_score(scores)["score"].mean() == pytest.approx(
        ties_oracle(scores), abs=1e-12
    )


def test_ties_at_the_edges():
    equal = ties(0).assign(score=1.0)
    assert (
        metrics.ties_score(equal)["score"].mean()
        == pytest.approx(ties_oracle(equal))
        == 0
    )
    perfect = ties(0).assign(score=lambda f: (f["label"] == "chosen").astype(float))
    assert (
        metrics.ties_score(perfect)["score"].mean()
        == pytest.approx(ties_oracle(perfect))
        == pytest.approx(1.01)
    )


def test_summary_is_the_mean_of_six_with_an_interval():
    scores = whole(1)
    row = metrics.summary(scores).iloc[0]
    subsets = subset_rows(scores).set_index("name")["value"]
    assert row["overall"] == pytest.approx(subsets.mean())
    assert list(subsets.index) == [
        "factuality",
        "precise_if",
        "math",
        "safety",
        "focus",
        "ties",
    ]
    assert row["ties"] == pytest.approx(ties_oracle(scores[scores["domain"] == "Ties"]))
    assert row["low"] < row["overall"] < row["high"]
    assert (row["n_prompts"], row["missing"]) == (35, 0)


def test_a_constant_scorer_earns_a_quarter_and_nothing_when_strict():
    scores = whole(0).assign(score=0.0)
    row = metrics.summary(scores).iloc[0]
    assert (
        row[["factuality", "precise_if", "math", "safety", "focus"]].tolist()
        == [0.25] * 5
    )
    strict = metrics.summary(scores, ties="loss").iloc[0]
    assert (
        strict[["factuality", "precise_if", "math", "safety", "focus"]].tolist()
        == [0.0] * 5
    )
    with pytest.raises(DataError, match=r"table: RewardBench 2 .* scores"):
        metrics.accuracy(metrics.pairs(scores))


def test_a_missing_subset_or_score_is_missing_not_zero():
    scores = best_of_four(0)
    row = metrics.summary(scores).iloc[0]
    assert np.isnan(row["ties"])
    assert np.isnan(row["overall"])
    scores.loc[0, "score"] = np.nan
    table = subset_rows(scores).set_index("name")
    assert table.loc["factuality", ["n_prompts", "missing"]].tolist() == [5, 1]


def test_best_of_curve_is_the_mean_over_all_draws():
    scores = best_of_four(3)
    curve = metrics.best_of_curve(scores).set_index(["domain", "n"])
    for domain in FIVE:
        prompts = [p for _, p in scores[scores["domain"] == domain].groupby("id")]
        for n in (2, 3, 4):
            earned = []
            for prompt in prompts:
                chosen = prompt.loc[prompt["label"] == "chosen", "score"].item()
                draws = itertools.combinations(
                    prompt.loc[prompt["label"] == "rejected", "score"], n - 1
                )
                credits = [
                    0 if max(d) > chosen else 1 / (1 + sum(x == chosen for x in d))
                    for d in draws
                ]
                earned.append(sum(credits) / len(credits))
            assert curve.loc[(domain, n), "accuracy"] == pytest.approx(
                sum(earned) / len(earned)
            )
    four = subset_rows(scores).set_index("name")["value"]
    assert curve.loc[("Focus", 4), "accuracy"] == pytest.approx(four["focus"])
    assert curve.loc[("Focus", 2), "chance"] == 0.5


def test_families_of_prompts_widen_a_curve():
    rng = np.random.default_rng(0)
    n = 80
    rows = pd.DataFrame(
        {"id": np.repeat(np.arange(n), 4), "slot": np.tile([0, 0, 1, 2], n)}
    )
    rows["label"] = np.tile(["chosen", "rejected", "rejected", "rejected"], n)
    rows["template"] = rows["id"] // 4
    is_won = (rng.random(n // 4) < 0.6)[rows["template"]]
    rows["score"] = np.where(
        (rows["label"] == "chosen") & is_won, 1.0, 0.5 * (rows["label"] == "rejected")
    )
    scores = rows.astype({"id": "str"}).assign(model="m", benchmark="own", domain="all")
    apart = metrics.best_of_curve(scores, sizes=(2,)).iloc[0]
    together = metrics.best_of_curve(scores, sizes=(2,), cluster="template").iloc[0]
    assert together["accuracy"] == apart["accuracy"]
    assert together["se"] > 1.5 * apart["se"]


@pytest.mark.parametrize(
    "lost", [("tied:1", "chosen", 1), ("tied:1", "chosen", 3), ("ref:2", "rejected", 0)]
)
def test_ties_prompts_that_lack_answers_are_refused(lost):
    scores = pd.concat([ties(0), ties(1).assign(model="other")], ignore_index=True)
    gone = (scores[["id", "label", "slot"]] == list(lost)).all(axis=1) & (
        scores["model"] == "other"
    )
    kind, number = lost[0].split(":")
    with pytest.raises(DataError, match=rf"'other'.*'{number}', 'kind': '{kind}'"):
        metrics.ties_score(scores[~gone])
    assert len(metrics.ties_score(scores)) == 10


def test_bad_scores_are_named():
    scores = whole(0)
    with pytest.raises(DataError, match="no partner"):
        metrics.ties_score(scores[scores["id"] != "ref:2"])
    with pytest.raises(DataError, match="one chosen and three rejected"):
        metrics.summary(scores.drop(index=1))
    own = scores.drop(columns="benchmark").assign(benchmark="mine")
    assert "factuality" not in metrics.summary(own)
    with pytest.raises(
        DataError, match="no prompt is in RewardBench 2's domain 'Ties'"
    ):
        metrics.ties_score(scores[scores["domain"] != "Ties"])
    with pytest.raises(DataError, match="no rows"):
        metrics.summary(scores.head(0))
    with pytest.raises(DataError, match="one label only"):
        best_of(check_scores(scores[scores["label"] == "chosen"]))


def sections_oracle(pairs, counts):
    """RewardBench 1's sections from the reference: subset accuracies, weighted by fixed
    counts.
    """
    win = (pairs["outcome"] == "win").groupby(pairs["subset"]).mean()
    return {
        name: sum(win[s] * counts.get(s, n) for s, n in part.items())
        / sum(counts.get(s, n) for s, n in part.items())
        for name, part in SECTIONS.items()
    }


@pytest.fixture
def one_pair_each():
    rng = np.random.default_rng(0)
    subsets = [
        s for part in SECTIONS.values() for s in part for _ in range(7 + len(s) % 5)
    ]
    frame = pd.DataFrame(
        {
            "model": "m",
            "benchmark": "reward-bench",
            "domain": subsets,
            "id": range(len(subsets)),
        }
    )
    return tables.check_pairs(
        frame.assign(
            chosen_slot=0,
            rejected_slot=0,
            margin=rng.integers(-1, 3, len(subsets)).astype(float),
        )
    )


def test_sections_use_the_published_weights(one_pair_each):
    row = metrics.summary(one_pair_each).iloc[0]
    expected = sections_oracle(one_pair_each, {})
    for name, value in expected.items():
        assert row[name] == pytest.approx(value), name
    assert row["overall"] == pytest.approx(sum(expected.values()) / 4)
    assert np.isnan(row["prior_sets"])
    swapped = metrics.summary(one_pair_each, weights="published-before-2024-09").iloc[0]
    counts = {"xstest-should-refuse": 250, "xstest-should-respond": 154}
    assert swapped["safety"] == pytest.approx(
        sections_oracle(one_pair_each, counts)["safety"]
    )
    counted = metrics.summary(one_pair_each, weights="counts").iloc[0]
    pooled = one_pair_each[
        one_pair_each["subset"].str.contains("^mt-bench-easy$|^mt-bench-med$|^alpaca")
    ]
    assert counted["chat"] == pytest.approx((pooled["outcome"] == "win").mean())


def test_prior_sets_count_half(one_pair_each):
    more = one_pair_each.head(8).assign(
        subset=["anthropic_helpful", "anthropic_hhh", "shp", "summarize"] * 2,
        id=[f"p{i}" for i in range(8)],
    )
    pairs = pd.concat([one_pair_each, more.assign(outcome="win")], ignore_index=True)
    pairs["outcome"] = pairs["outcome"].astype(tables.OUTCOME)
    row = metrics.summary(pairs).iloc[0]
    assert row["prior_sets"] == 1
    assert row["overall"] == pytest.approx(
        (row[["chat", "chat_hard", "safety", "reasoning"]].sum() + 0.5) / 4.5
    )


def test_an_absent_subset_makes_its_section_missing(one_pair_each):
    row = metrics.summary(one_pair_each[one_pair_each["subset"] != "hep-go"]).iloc[0]
    assert np.isnan(row["reasoning"])
    assert np.isnan(row["overall"])
    assert row["chat"] > 0


def test_the_real_response_matrix_gives_the_official_leaderboard(shared_data):
    folder = shared_data / "rewardbench"
    wide = pd.read_csv(folder / "response_matrix.torch_measure.csv", index_col="model")
    content = pd.read_csv(
        folder / "item_content.torch_measure.csv", dtype=str
    ).set_index("item_id")["content"]
    long = wide.copy().reset_index().melt("model", var_name="id", value_name="margin")
    names = long["id"].map(content.str.extract(r"^\[([^\]]+)\]")[0])
    long = long.assign(
        benchmark="reward-bench",
        domain=names,
        subset=names,
        margin=long["margin"] - 0.5,
    )
    pairs = tables.check_pairs(long.assign(chosen_slot=0, rejected_slot=0))
    found = metrics.summary(pairs).set_index("model")
    board = (
        pd.read_csv(folder / "leaderboard.every_eval_ever.csv")
        .drop_duplicates("model")
        .set_index("model")
    )
    both = [model for model in found.index if model in board.index]
    complete = [m for m in both if found.loc[m, "missing"] == 0]
    assert len(both) == 99
    official = {
        "chat": "Chat",
        "chat_hard": "Chat Hard",
        "safety": "Safety",
        "reasoning": "Reasoning",
    }
    for ours, theirs in official.items():
        gap = (found.loc[both, ours] - board.loc[both, theirs]).abs()
        assert gap.max() < 5e-5, (ours, gap.idxmax(), gap.max(), len(complete))


@pytest.mark.parametrize("right", [True, False])
def test_nobody_is_perfectly_sure_of_a_perfect_score(right):
    scores = pd.concat([best_of_four(0), ties(0)], ignore_index=True)
    scores["score"] = np.where(scores["label"] == "chosen", 1.0, 0.0 if right else 2.0)
    subsets = subset_rows(scores)
    inside = (subsets["low"] <= subsets["value"]) & (
        subsets["value"] <= subsets["high"]
    )
    assert inside.all()
    assert (subsets["high"] - subsets["low"] > 0.05).all()
    row = metrics.summary(scores).iloc[0]
    assert row["ties"] == pytest.approx(1.01 if right else -0.01)
    assert row["low"] <= row["overall"] <= row["high"]


def test_a_task_in_six_languages_is_one_cluster():
    """On released ids: as many clusters as tasks, and the error of their means."""
    pairs = rmlab.papers.results("reward-bench")
    is_shown = pairs["domain"].str.startswith("hep-")
    is_shown &= pairs["model"] == pairs["model"].iloc[0]
    pairs = pairs[is_shown].reset_index(drop=True)
    won_by_task = {}
    for item, subset, outcome in zip(
        pairs["id"], pairs["subset"], pairs["outcome"], strict=True
    ):
        won_by_task.setdefault(find_task(item, subset), []).append(outcome == "win")
    assert [len(won) for won in won_by_task.values()] == [6] * 164

    means = [np.mean(won) for won in won_by_task.values()]
    row = rmlab.accuracy(pairs, by=["model"], average="prompts").iloc[0]
    assert row["se"] == pytest.approx(np.std(means, ddof=1) / math.sqrt(164))
