"""Metrics against nested loops written from the reference, and the laws they obey."""

import numpy as np
import oracles
import pandas as pd
import pytest

from rmlab import intervals, metrics, tables
from rmlab.metrics.columns import number
from rmlab.stats import intervals as reported
from rmlab.tables import DataError

ENOUGH = dict.fromkeys(("chat", "math", "code", "safety-refuse", "safety-response"), 6)


def test_every_chosen_meets_every_rejected(make_scores):
    scores = make_scores()
    pairs = metrics.pairs(scores)
    assert len(pairs) == 2 * 18 * 9
    assert list(pairs.columns) == tables.PAIRS
    pd.testing.assert_frame_equal(tables.check_pairs(pairs), pairs)
    score = scores.set_index(["model", "domain", "id", "label", "slot"])["score"]
    for row in pairs.sample(40, random_state=0).itertuples():
        chosen = score[row.model, row.domain, row.id, "chosen", row.chosen_slot]
        rejected = score[row.model, row.domain, row.id, "rejected", row.rejected_slot]
        assert row.margin == chosen - rejected
        assert row.outcome == ("win" if chosen > rejected else "tie" if chosen == rejected else "loss")
        assert row.level == ["hard", "normal", "easy"][1 + np.sign(row.chosen_slot - row.rejected_slot)]


def test_pairs_of_ragged_prompts_are_a_full_product():
    sizes = {"0": (1, 3), "1": (2, 2), "2": (4, 1)}
    rows = [
        ("m", "reward-bench-2", "Ties", id_, label, slot, float(slot))
        for id_, counts in sizes.items()
        for label, count in zip(("chosen", "rejected"), counts, strict=True)
        for slot in range(count)
    ]
    columns = ["model", "benchmark", "domain", "id", "label", "slot", "score"]
    scores = pd.DataFrame(rows, columns=columns).sample(frac=1, random_state=1)
    pairs = metrics.pairs(scores)
    assert pairs.groupby("id").size().to_dict() == {"0": 3, "1": 4, "2": 4}
    assert not pairs.duplicated(tables.PAIR_KEY).any()


def test_matrix_equals_the_nested_loops(make_scores):
    scores = make_scores(seed=3)
    pairs = metrics.pairs(scores)
    for model in ("a", "b"):
        rows = oracles.rows_of(scores, model)
        expected = oracles.matrix(rows)
        found = metrics.matrix(pairs[pairs["model"] == model])
        np.testing.assert_allclose(found, expected, atol=1e-15)
        chat = oracles.matrix([row for row in rows if row["id"].startswith("chat")])
        np.testing.assert_allclose(metrics.matrix(pairs[(pairs["model"] == model) & (pairs["domain"] == "chat")]), chat)
    assert list(found.index) == list(found.columns) == ["concise", "plain", "markdown"]


def test_the_array_layer_equals_the_table_layer(make_scores):
    scores = make_scores(seed=5)
    wide = scores.sort_values([*tables.PROMPT, "model", "slot"], kind="stable")
    chosen, rejected = (
        wide[wide["label"] == label]
        .sort_values(["model", "domain", "id", "slot"])["score"]
        .to_numpy()
        .reshape(2, -1, 3)
        for label in ("chosen", "rejected")
    )
    pairs = metrics.pairs(scores)
    for model, found in zip("ab", metrics.win_matrix(chosen, rejected), strict=True):
        np.testing.assert_allclose(found, metrics.matrix(pairs[pairs["model"] == model]), atol=1e-15)


def test_order_of_rows_and_increasing_maps_change_nothing(make_scores):
    scores = make_scores(seed=2)
    table = metrics.rm_bench(metrics.pairs(scores))
    shuffled = metrics.rm_bench(metrics.pairs(scores.sample(frac=1, random_state=0))).sort_values("model")
    pd.testing.assert_frame_equal(shuffled.reset_index(drop=True), table)
    mapped = metrics.rm_bench(metrics.pairs(scores.assign(score=np.exp(scores["score"]) - 40)))
    pd.testing.assert_frame_equal(mapped, table)


def test_swapping_the_labels_turns_wins_into_losses(make_scores):
    scores = make_scores(seed=4, levels=1000)
    swapped = scores.assign(label=scores["label"].map({"chosen": "rejected", "rejected": "chosen"}))
    pairs, mirrored = metrics.pairs(scores), metrics.pairs(swapped)
    one, other = pairs[pairs["model"] == "a"], mirrored[mirrored["model"] == "a"]
    half = metrics.matrix(one, ties="half") + metrics.matrix(other, ties="half").to_numpy().T
    np.testing.assert_allclose(half, 1.0)


def test_tie_policies_are_ordered_and_a_constant_scorer_shows_them(make_scores):
    pairs = metrics.pairs(make_scores().assign(score=0.0))
    by_policy = {policy: metrics.accuracy(pairs, ties=policy)["accuracy"] for policy in ("loss", "half", "drop")}
    assert (by_policy["loss"] == 0).all()
    assert (by_policy["half"] == 0.5).all()
    assert by_policy["drop"].isna().all()
    table = metrics.accuracy(pairs)
    assert (table["ties"] == table["n_pairs"]).all()


def test_accuracy_counts_prompts_and_clusters_errors(make_scores):
    pairs = metrics.pairs(make_scores(seed=9))
    table = metrics.accuracy(pairs, by=["model", "level"])
    assert list(table["level"].dtype.categories) == ["easy", "normal", "hard"]
    assert (table["n_pairs"] == 54).all()
    assert (table["n_prompts"] == 18).all()
    one = pairs[(pairs["model"] == "a") & (pairs["level"] == "hard")].assign(win=lambda f: f["outcome"] == "win")
    means = one.groupby(["domain", "id"])["win"].mean()
    row = table[(table["model"] == "a") & (table["level"] == "hard")].iloc[0]
    assert row["accuracy"] == pytest.approx(means.mean())
    assert row["se"] == pytest.approx(means.std(ddof=1) / np.sqrt(18))
    assert row["low"] < row["accuracy"] < row["high"]


def test_perfect_and_hopeless_models_keep_a_width(make_scores):
    scores = make_scores(ENOUGH)
    perfect = scores.assign(score=(scores["label"] == "chosen").astype(float))
    row = metrics.accuracy(metrics.pairs(perfect)).iloc[0]
    assert row["accuracy"] == 1
    assert row["low"] < 1
    assert row["high"] == 1
    overall = metrics.rm_bench(metrics.pairs(perfect)).iloc[0]
    assert overall["overall"] == 1
    assert overall["low"] < 1


def test_fewer_than_five_prompts_have_no_interval(make_scores):
    sizes = {"chat": 4, "math": 5, "code": 6, "safety-refuse": 4, "safety-response": 3}
    pairs = metrics.pairs(make_scores(sizes, seed=2))
    limits = ["se", "low", "high"]
    for by, short in (("domain", ["chat"]), ("subset", ["chat", "safety-refuse", "safety-response"])):
        table = metrics.accuracy(pairs, by=["model", by])
        few = table[by].isin(short)
        assert few.equals(table["n_prompts"] < intervals.FEWEST)
        assert table.loc[few, limits].isna().all(axis=None)
        assert table.loc[~few, limits].notna().all(axis=None)
        assert table["accuracy"].notna().all()
    # One rule for one number: the table that says why blanks the same rows.
    for kept in (pairs, pairs[pairs["id"] != "math/0"]):
        table, why = metrics.rm_bench(kept), reported(kept).query("quantity == 'overall'")
        assert table[limits].isna().all(axis=None)
        assert (why["reason"] != "").all()
        assert table["overall"].notna().all()
    enough = metrics.pairs(make_scores(sizes | {"chat": 5}, seed=2))
    assert metrics.rm_bench(enough)[limits].notna().all(axis=None)
    assert metrics.rm_bench(enough, safety="split")[limits].isna().all(axis=None)


def test_the_interval_is_that_of_the_comparisons_one_by_one(make_scores):
    scores = make_scores(ENOUGH | {"math": 9}, models=("a", "b", "c"), seed=6)
    scores.loc[np.random.default_rng(0).choice(len(scores), 40, replace=False), "score"] = np.nan
    ragged = scores[~((scores["model"] == "b") & scores["id"].isin(["chat/0", "math/3"]))]
    pairs = metrics.pairs(ragged)
    model, prompt = (number(pairs, by)[0] for by in (["model"], tables.PROMPT))
    item = 9 * prompt + 3 * pairs["chosen_slot"].to_numpy() + pairs["rejected_slot"].to_numpy()
    domain = pd.Categorical(pairs["domain"], categories=["chat", "math", "code", "safety"]).codes.astype(int)
    cell, stratum = (np.zeros(size, int) for size in (item.max() + 1, prompt.max() + 1))
    cell[item], stratum[prompt] = 3 * domain + pairs["level"].cat.codes, domain
    for ties in ("loss", "half", "drop"):
        values = np.full((3, len(cell)), np.nan)
        values[model, item] = metrics.credit(pairs, ties=ties)
        mean = intervals.weighted_mean(values, cell, np.full(12, 1 / 12), np.arange(len(cell)) // 9, len(stratum))
        low, high = intervals.stratified_interval(mean, stratum)
        table = metrics.rm_bench(pairs, ties=ties)
        expected = {"overall": mean.value, "se": intervals.stratified_error(mean.influence, stratum)[0]}
        for column, value in (expected | {"low": low, "high": high}).items():
            np.testing.assert_allclose(table[column], value, atol=1e-13, err_msg=column)
        assert table["n_prompts"].tolist() == (~np.isnan(mean.influence)).sum(axis=1).tolist()
        assert table["missing"].tolist() == pairs["outcome"].isna().groupby(pairs["model"]).sum().tolist()


def test_rows_are_numbered_in_order_of_appearance():
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(
        {
            "text": rng.choice(["x", "y", None], 60),
            "letter": rng.choice(["u", "v"], 60),
            "count": rng.integers(0, 2, 60),
        }
    )
    for kind in ("str", "object", "string", "category"):
        typed = frame.astype({"text": kind, "letter": kind})
        for rows in (typed, typed.sort_values(["letter", "count"]), typed.head(1), typed.head(0)):
            found, first = number(rows, list(rows))
            expected = rows.groupby(list(rows), sort=False, dropna=False, observed=True).ngroup()
            assert found.tolist() == expected.tolist()
            assert first.tolist() == [found.tolist().index(i) for i in range(len(first))]


def test_missing_scores_are_counted_and_never_lost(make_scores):
    scores = make_scores()
    scores.loc[0, "score"] = np.nan
    pairs = metrics.pairs(scores)
    assert pairs["outcome"].isna().sum() == 3
    table = metrics.accuracy(pairs).set_index("model")
    assert table.loc["a", "missing"] == 3
    assert table.loc["a", "n_pairs"] == table.loc["b", "n_pairs"] - 3


def test_plain_strings_are_read_in_the_order_of_the_vocabulary(make_scores):
    pairs = metrics.pairs(make_scores())
    closed = ["chosen_style", "rejected_style", "level", "outcome"]
    for by in ("level", ["model", "chosen_style", "rejected_style"]):
        expected = metrics.accuracy(pairs, by=by)
        for kind in (object, "str"):
            shuffled = pairs.astype(dict.fromkeys(closed, kind)).sort_values("model", kind="stable")
            pd.testing.assert_frame_equal(metrics.accuracy(shuffled, by=by), expected)
    plain = pairs.astype(dict.fromkeys(closed, "str"))
    open_ = ["model", "benchmark", "domain", "id", "subset"]
    for typed in (plain, *(pairs.astype(dict.fromkeys(open_, kind)) for kind in ("object", "string", "category"))):
        pd.testing.assert_frame_equal(metrics.rm_bench(typed), metrics.rm_bench(pairs))
        split = metrics.rm_bench(pairs, safety="split")
        pd.testing.assert_frame_equal(metrics.rm_bench(typed, safety="split"), split)
    one = pairs["model"] == "a"
    pd.testing.assert_frame_equal(metrics.matrix(plain[one]), metrics.matrix(pairs[one]))
    hard = pairs[pairs["level"] == "hard"].astype({"level": "str"})
    assert metrics.accuracy(hard, by="level")["n_pairs"].tolist() == [0, 0, len(hard)]


def test_models_that_are_not_there_have_no_row(make_scores):
    pairs = metrics.pairs(make_scores())
    typed = pairs.astype({"model": "category", "domain": "category"})
    left = typed[typed["model"] == "b"]
    assert metrics.accuracy(left)["model"].tolist() == ["b"]
    assert metrics.rm_bench(left)["model"].tolist() == ["b"]
    by = ["model", "domain", "level"]
    expected = metrics.accuracy(pairs[pairs["model"] == "b"], by=by)
    pd.testing.assert_frame_equal(metrics.accuracy(left, by=by).astype({"model": "str", "domain": "str"}), expected)
    bins = pairs.assign(size=pd.cut(pairs["margin"].abs(), [-1, 0, 1, 1000, 2000]))
    sized = metrics.accuracy(bins, by="size")
    assert sized["size"].is_monotonic_increasing
    assert sized["n_pairs"].iloc[-1] == 0


def test_misuse_is_refused_by_name(make_scores):
    pairs = metrics.pairs(make_scores())
    with pytest.raises(DataError, match="one model"):
        metrics.matrix(pairs)
    with pytest.raises(ValueError, match="did you mean 'loss'"):
        metrics.accuracy(pairs, ties="los")
    with pytest.raises(DataError, match="'levle' is not a column"):
        metrics.accuracy(pairs, by="levle")
    with pytest.raises(DataError, match="'Focus' is not one of RM-Bench"):
        metrics.rm_bench(pairs.assign(domain="Focus"))
    with pytest.raises(DataError, match="2 benchmarks"):
        metrics.rm_bench(pd.concat([pairs, pairs.assign(benchmark="other")]))
    with pytest.raises(DataError, match="one label only"):
        metrics.pairs(make_scores().query("label == 'chosen'"))
    for summary in (metrics.matrix, metrics.accuracy, metrics.rm_bench):
        with pytest.raises(DataError, match=r"comes from rmlab\.pairs\(scores\)"):
            summary(make_scores())
        with pytest.raises(TypeError, match="pairs: expected a pandas DataFrame, got NoneType"):
            summary(None)
    with pytest.raises(DataError, match=r"'wins' in 54 of .*did you mean 'win'"):
        metrics.accuracy(pairs.assign(outcome=["wins"] * 54 + ["loss"] * (len(pairs) - 54)))
    with pytest.raises(ValueError, match=r"confidence: 95; allowed: between 0 and 1"):
        metrics.accuracy(pairs, confidence=95)
    with pytest.raises(ValueError, match=r"average: 'domain'; .*did you mean 'domains'"):
        metrics.matrix(pairs[pairs["model"] == "a"], average="domain")
    with pytest.raises(DataError, match="no rows"):
        metrics.matrix(pairs.head(0))
    plain = pairs.assign(chosen_style=pd.NA, level=pd.NA)
    with pytest.raises(DataError, match="level is missing"):
        metrics.accuracy(tables.check_pairs(plain), by="level")


def test_metrics_leave_their_input_alone(make_scores):
    scores = make_scores()
    before = scores.copy(deep=True)
    pairs = metrics.pairs(scores)
    kept = pairs.copy(deep=True)
    metrics.rm_bench(pairs)
    metrics.accuracy(pairs, by=["model", "chosen_style", "rejected_style"])
    pd.testing.assert_frame_equal(scores, before)
    pd.testing.assert_frame_equal(pairs, kept)
