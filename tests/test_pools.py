"""Best of n on pools: the exact share of right selections, its references, intervals
and differences, against brute force.
"""

import itertools

import numpy as np
import pandas as pd
import pytest

import rmlab
from rmlab import metrics, papers
from rmlab.tables import DataError

LAST_STEP = {
    "Skywork-o1-Open-PRM-Qwen-2.5-7B": (0.842, 0.882, 0.918),
    "internlm2-7b-reward": (0.842, 0.863, 0.884),
    "math-shepherd-mistral-7b-prm": (0.842, 0.849, 0.838),
}


def pool_frame(seed, sizes, levels=4, models=("m",), answers=3):
    """Small pools with many ties: the first all right, the second all wrong."""
    rng = np.random.default_rng(seed)
    rows = []
    for model, (i, size) in itertools.product(models, enumerate(sizes)):
        for _ in range(size):
            right = bool(rng.random() < 0.5) if i > 1 else i == 0
            answer = "right" if right else f"wrong {rng.integers(answers)}"
            score = float(rng.integers(1, levels + 1))
            rows.append((model, f"p{i}", right, answer, score))
    columns = ["model", "prompt", "correct", "answer", "score"]
    frame = pd.DataFrame(rows, columns=columns)
    frame["candidate"] = frame.groupby(["model", "prompt"]).cumcount()
    frame["characters"] = rng.integers(1, 5, len(frame))
    frame["n_steps"] = rng.integers(1, 4, len(frame))
    return frame


def plain_share(values, right, n):
    """Share of right candidates on top, over all subsets of n."""
    shares = []
    for drawn in itertools.combinations(range(len(values)), n):
        highest = max(values[i] for i in drawn)
        top = [right[i] for i in drawn if values[i] == highest]
        shares.append(sum(top) / len(top))
    return np.mean(shares)


def plain_vote(answers, right, n, weights):
    """Share of right candidates with the winning answer, over all subsets of n."""
    is_right = dict(zip(answers, right, strict=True))
    shares = []
    for drawn in itertools.combinations(range(len(answers)), n):
        votes = {}
        for i in drawn:
            votes[answers[i]] = votes.get(answers[i], 0) + weights[i]
        top = [is_right[name] for name in votes if votes[name] == max(votes.values())]
        shares.append(sum(top) / len(top))
    return np.mean(shares)


def curve_of(table, kind="model", name=None):
    rows = table[table["kind"] == kind]
    rows = rows[rows["model"] == name] if name else rows
    return rows.set_index("n")["accuracy"].to_dict()


@pytest.mark.parametrize("seed", range(6))
def test_every_curve_is_the_mean_over_all_subsets(seed):
    """Ties, prompts that are all right or all wrong, unequal pools, n = pool."""
    sizes = (4, 4, 5, 6, 4, 7)
    frame = pool_frame(seed, sizes)
    pool = rmlab.load_pool(frame)
    table = metrics.best_of_curve(pool, sizes=(1, 2, 3, 4), by="model", references=True)
    prompts = [prompt for _, prompt in frame.groupby("prompt")]

    def plain(n, column, sign=1):
        shares = [
            plain_share((sign * p[column]).tolist(), p["correct"].tolist(), n)
            for p in prompts
        ]
        return np.mean(shares)

    def voted(n, weights):
        shares = [
            plain_vote(p["answer"].tolist(), p["correct"].tolist(), n, weights(p))
            for p in prompts
        ]
        return np.mean(shares)

    for n in (1, 2, 3, 4):
        assert curve_of(table)[n] == pytest.approx(plain(n, "score"))
        assert curve_of(table, "any right")[n] == pytest.approx(plain(n, "correct"))
        base = frame.groupby("prompt")["correct"].mean().mean()
        assert curve_of(table, "random")[n] == pytest.approx(base)
        blind = {"longest": ("characters", 1), "shortest": ("characters", -1)}
        blind["fewest steps"] = ("n_steps", -1)
        for name, (column, sign) in blind.items():
            drawn = curve_of(table, "content-blind", name)[n]
            assert drawn == pytest.approx(plain(n, column, sign)), name
        expected = voted(n, lambda p: np.ones(len(p)))
        drawn = curve_of(table, "majority")[n]
        assert drawn == pytest.approx(expected, abs=0.03 if n > 1 else 1e-9)
        weighted = voted(n, lambda p: p["score"].to_numpy())
        drawn = curve_of(table, "weighted majority", "m")[n]
        assert drawn == pytest.approx(weighted, abs=0.03 if n > 1 else 1e-9)
    assert (
        table["kl"] - np.log(table["n"]) + (table["n"] - 1) / table["n"]
    ).abs().max() < 1e-12
    assert (table.loc[table["kind"] != "model", "model"] != "").all()


@pytest.fixture
def pool_of_two():
    return rmlab.load_pool(pool_frame(5, [4] * 40, models=("a", "b"), levels=9))


def test_gains_are_paired_by_prompt(pool_of_two):
    gains = metrics.best_of_gain(pool_of_two, sizes=(2, 4))
    curve = metrics.best_of_curve(pool_of_two, sizes=(1, 2, 4), by="model")
    value = curve.set_index(["model", "n"])["accuracy"]
    kinds = ["n and 1"] * 4 + ["n and n / 2"] * 4 + ["models"] * 2
    assert gains["comparison"].tolist() == kinds
    for row in gains.itertuples():
        assert row.value_a == pytest.approx(value[row.model_a, row.n_a])
        assert row.value_b == pytest.approx(value[row.model_b, row.n_b])
        assert row.difference == pytest.approx(row.value_a - row.value_b)
        assert row.peak == value[row.model_a][[2, 4]].idxmax()
        is_end = {"up": row.low > 0, "down": row.high < 0}
        assert is_end.get(row.direction, row.low <= 0 <= row.high)
    credit = {"a": [], "b": []}
    for (model, _), rows in pool_of_two.groupby(["model", "id"]):
        right = (rows["label"] == "chosen").tolist()
        credit[model].append(plain_share(rows["score"].tolist(), right, 4))
    differences = np.subtract(credit["a"], credit["b"])
    expected = np.std(differences, ddof=1) / np.sqrt(len(differences))
    assert gains["se"].iloc[-1] == pytest.approx(expected)


def test_a_size_beyond_the_smallest_pool_is_a_row_with_its_reason(pool_of_two):
    short = pool_of_two.drop(index=0)
    table = metrics.best_of_curve(short, sizes=(3, 4, 64), by="model")
    beyond = table[(table["model"] == "a") & (table["n"] == 4)].iloc[0]
    assert np.isnan(beyond["accuracy"])
    assert "3 candidates" in beyond["reason"]
    assert table[table["n"] == 3]["accuracy"].notna().all()
    assert table[table["n"] == 64]["accuracy"].isna().all()
    single = rmlab.load_pool(pool_frame(0, [1] * 8))
    table = metrics.best_of_curve(single, sizes=(1, 2), by="model")
    assert table["accuracy"].isna().tolist() == [False, True]
    gains = metrics.best_of_gain(short, sizes=(2, 4))
    is_beyond = gains["n_a"] == 4
    assert gains.loc[is_beyond, "difference"].isna().all()
    assert (gains.loc[is_beyond, "reason"] != "").all()
    assert gains.loc[~is_beyond, "difference"].notna().all()
    assert (gains["peak"] == 2).all()


def test_a_candidate_without_a_score_is_missing_and_no_loss(pool_of_two):
    scores = pool_of_two.copy()
    scores.loc[scores["model"] == "a", "score"] = scores["score"].where(
        scores["id"] != "p7"
    )
    table = metrics.best_of_curve(scores, sizes=(2,), by="model").set_index("model")
    rest = metrics.best_of_curve(scores[scores["id"] != "p7"], sizes=(2,), by="model")
    assert table["missing"].tolist() == [1, 0]
    assert table["n_prompts"].tolist() == [39, 40]
    assert table.loc["a", "accuracy"] == pytest.approx(rest["accuracy"].iloc[0])
    gains = metrics.best_of_gain(scores, sizes=(2,))
    assert gains["missing"].tolist() == [1, 0, 1, 0, 1]
    with pytest.raises(DataError, match="score"):
        rmlab.load_pool(pool_frame(0, [3] * 5).assign(score=np.nan))


@pytest.mark.parametrize("sizes", [(0, 1), (1.5,), ()])
def test_sizes_that_are_none_are_refused(pool_of_two, sizes):
    with pytest.raises(ValueError, match=r"^sizes.*allowed"):
        metrics.best_of_gain(pool_of_two, sizes=sizes)


def test_rows_of_domains_and_of_models(pool_of_two):
    domains = np.where(pool_of_two["id"] < "p3", "x", "y")
    scores = pool_of_two.assign(domain=domains)
    table = metrics.best_of_curve(scores, sizes=(1, 2))
    assert table[["model", "domain", "n"]].to_numpy().tolist() == [
        [model, domain, n] for model in "ab" for domain in "xy" for n in (1, 2)
    ]
    with pytest.raises(DataError, match="by"):
        metrics.best_of_curve(scores, by="domain")
    with pytest.raises(DataError, match="nowhere"):
        metrics.best_of_curve(scores, by=["model", "nowhere"])


def test_a_scores_table_is_one_of_pools_where_a_prompt_has_not_one_right_answer():
    single = pd.DataFrame({"id": [*"aaabbb"], "slot": [0, 0, 1] * 2, "score": 1.0})
    single["label"] = ["chosen", "rejected", "rejected"] * 2
    single = single.assign(model="m", benchmark="own", domain="d")
    table = metrics.best_of_curve(single, sizes=(2,))
    assert "kind" not in table
    assert table["accuracy"].tolist() == [0.5]
    tied = single.assign(domain="Ties", slot=range(6), id="tied:0")
    with_ties = pd.concat([single, tied]).assign(benchmark="reward-bench-2")
    four = metrics.best_of_curve(with_ties, sizes=(2,))
    assert four["domain"].tolist() == ["d"]
    assert "kind" not in four
    more = single.assign(label=["chosen", "rejected", "rejected"] + ["chosen"] * 3)
    more["slot"] = [0, 0, 1, 0, 1, 2]
    pools = metrics.best_of_curve(more, sizes=(2,))
    assert pools["kind"].tolist() == ["model"]
    assert pools["accuracy"].tolist() == [pytest.approx((1 / 3 + 1) / 2)]


def test_negative_rewards_weigh_no_votes():
    frame = pool_frame(2, [4] * 6)
    frame["score"] -= 3
    table = metrics.best_of_curve(
        rmlab.load_pool(frame), sizes=(2,), by="model", references=True
    )
    row = table[table["kind"] == "weighted majority"].iloc[0]
    assert np.isnan(row["accuracy"])
    assert "negative" in row["reason"]


# Tables of pools


def test_a_pool_with_texts_is_scored_as_any_responses():
    frame = pd.DataFrame({"question": [*"qqrrr"], "right": [1, 1, 0, 1, 0]})
    # Two candidates are equal.
    frame["text"] = [letter * 3 for letter in "aacde"]
    names = {"prompt": "question", "response": "text", "correct": "right"}
    pool = rmlab.load_pool(frame, **names)
    assert pool["id"].tolist() == [*"00111"]
    assert pool["label"].str[0].tolist() == [*"ccrcr"]
    assert pool["slot"].tolist() == [0, 1, 0, 0, 1]
    assert pool["n_candidates"].tolist() == [2, 2, 3, 3, 3]
    scores = rmlab.score(pool, ["longest"])
    table = metrics.best_of_curve(scores, sizes=(2,), by="model")
    assert table["accuracy"].iloc[0] == pytest.approx((1 + 1 / 3) / 2)
    both = rmlab.load_pool(frame.assign(model="m", score=1.0), **names)
    assert both["characters"].tolist() == [3] * 5
    assert "response" not in both


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_of_pools_are_read_and_come_back(tmp_path, suffix):
    frame = pool_frame(4, (3, 3, 5)).rename(columns={"prompt": "problem"})
    path = tmp_path / f"candidates.{suffix}"
    write = frame.to_parquet if suffix == "parquet" else frame.to_csv
    write(path, index=False)
    scores = rmlab.read_scores(path)
    expected = rmlab.load_pool(frame, prompt="problem", name="candidates")
    pd.testing.assert_frame_equal(scores, expected, check_dtype=False)
    again = rmlab.read_scores(rmlab.write_scores(scores, tmp_path / f"again.{suffix}"))
    curve = metrics.best_of_curve(scores, sizes=(1, 3), by="model", references=True)
    # Steps and lengths of a CSV file were texts.
    for table in (again, rmlab.load_pool(path, prompt="problem")):
        pd.testing.assert_frame_equal(
            metrics.best_of_curve(table, sizes=(1, 3), by="model", references=True),
            curve,
        )


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"correct": None}, "correct"),
        ({"correct": "maybe"}, "maybe"),
        ({"prompt": None}, "prompt"),
        ({"model": None}, "model"),
        ({"score": "much"}, "score"),
    ],
)
def test_a_bad_pool_is_named(change, word):
    with pytest.raises(DataError, match=word):
        rmlab.load_pool(pool_frame(0, (2, 2)).assign(**change))


def test_a_pool_without_texts_and_scores_or_a_column_is_refused():
    frame = pool_frame(0, (2, 2))
    with pytest.raises(DataError, match="response"):
        rmlab.load_pool(frame.drop(columns=["score", "answer"]))
    # Whose scores they are is in no other column.
    with pytest.raises(DataError, match=r"frame: .*'model'") as caught:
        rmlab.load_pool(frame.drop(columns="model"))
    assert "model=" in caught.value.remedy


# Step scores

RULES = {
    "last": lambda steps: steps[-1],
    "min": min,
    "mean": np.mean,
    "product": np.prod,
    "sum_log": lambda steps: np.log(steps).sum(),
}


@pytest.mark.parametrize("how", RULES)
def test_step_scores_are_combined_as_said(how):
    rng = np.random.default_rng(0)
    steps = [rng.random(n).tolist() for n in rng.integers(1, 9, 50)]
    expected = [RULES[how](one) for one in steps]
    index = range(100, 150)
    score = metrics.combine_steps(pd.Series(steps, index=index), how)
    assert score.tolist() == pytest.approx(expected)
    assert score.index.tolist() == list(index)
    assert metrics.combine_steps(steps, how).tolist() == pytest.approx(expected)
    gaps = metrics.combine_steps([[], [0.5], None, [0.5, np.nan], [np.nan, 0.5]], how)
    assert gaps.isna().tolist() == [True, False, True, True, True]
    assert metrics.combine_steps([], how).empty


@pytest.mark.parametrize(
    ("steps", "how"),
    [
        ([1, 2], "last"),
        (["0.5"], "last"),
        ([["a"]], "last"),
        ([[0.1, [0.2]]], "last"),
        ([[-0.5]], "product"),
        ([[0.0]], "sum_log"),
    ],
)
def test_steps_that_are_none_are_refused(steps, how):
    with pytest.raises(DataError, match="steps" if how == "last" else how):
        metrics.combine_steps(steps, how)
    assert metrics.combine_steps([[0.0, 0.5]], "product").tolist() == [0.0]


# Real pools


@pytest.fixture(scope="module")
def real_steps():
    candidates = papers.results("best-of-32-candidates")
    steps = papers.results("best-of-32-steps")
    assert candidates.attrs["source"]["licence"] == "CC-BY-4.0"
    return steps.merge(candidates, on=["problem", "candidate"])


def real_pool(table, how):
    score = metrics.combine_steps(table["steps"], how)
    columns = ["model", "problem", "candidate", "answer", "characters", "correct"]
    return rmlab.load_pool(table[columns].assign(score=score), prompt="problem")


def test_the_curves_of_real_pools(real_steps):
    """Three that rise, stand and fall after the last step, one that falls by the
    lowest.
    """
    assert len(real_steps) == 112_000
    last = real_steps[real_steps["model"].isin(LAST_STEP)]
    curve = metrics.best_of_curve(real_pool(last, "last"), sizes=(1, 4, 32), by="model")
    for model, expected in LAST_STEP.items():
        assert curve.loc[curve["model"] == model, "accuracy"].round(3).tolist() == [
            *expected
        ]
    small = real_steps[real_steps["model"] == "internlm2-1_8b-reward"]
    curve = metrics.best_of_curve(real_pool(small, "min"), sizes=(1, 4, 32), by="model")
    assert curve["accuracy"].round(3).tolist() == [0.842, 0.837, 0.811]
    gains = metrics.best_of_gain(real_pool(last, "last")).set_index(
        ["comparison", "model_a", "n_a"]
    )
    gains = gains.sort_index()
    best = "Skywork-o1-Open-PRM-Qwen-2.5-7B"
    assert [*gains.loc[[("n and n / 2", best, 32)], "direction"]] == ["up"]
    assert [*gains.loc[[("n and 1", best, 32)], "peak"]] == [32]
    worst = "math-shepherd-mistral-7b-prm"
    assert [*gains.loc[[("n and 1", worst, 32)], "direction"]] == ["open"]
