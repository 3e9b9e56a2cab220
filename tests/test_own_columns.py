"""Columns of one's own: families of prompts, sources, and domains that have the names of columns."""

import numpy as np
import pandas as pd
import pytest

import rmlab
from rmlab import stats, tables
from rmlab.tables import DataError


def families(n=12, size=4, models=("a", "b"), seed=0):
    """Scores of families of prompts that mostly stand or fall together; `source` differs between families."""
    rng = np.random.default_rng(seed)
    keys = [(m, "own", "all", f"{f}-{p}", 0, f"f{f}") for m in models for f in range(n) for p in range(size)]
    frame = pd.DataFrame(keys, columns=["model", "benchmark", "domain", "id", "slot", "family"])
    frame["source"] = np.where(frame["family"].str[1:].astype(int) % 3, "web", "books")
    up = np.repeat(rng.normal(0.5, 2, n * len(models)), size) + rng.normal(size=len(frame))
    return pd.concat([frame.assign(label="chosen", score=up), frame.assign(label="rejected", score=0.0)])


def family_error(credit, family):
    """Error of a mean, clustered by families of equal size: by hand, from the families' means."""
    means = pd.Series(np.asarray(credit, float)).groupby(np.asarray(family)).mean()
    return means.std(ddof=1) / np.sqrt(len(means))


def test_the_error_of_a_family_of_prompts_is_that_of_its_sums():
    scores = families()
    pairs = rmlab.pairs(scores)
    gaps = scores.assign(family=scores["family"].where(scores["id"] != "3-1"))
    won = {model: rows["outcome"].eq("win").to_numpy(float) for model, rows in pairs.groupby("model")}
    family = pairs.loc[pairs["model"] == "a", "family"]
    for function in (rmlab.summary, rmlab.accuracy, rmlab.estimates, rmlab.rank, rmlab.leaderboard):
        for table in (scores, pairs):
            rows = function(table, cluster="family").drop_duplicates("model").set_index("model")
            assert rows.loc["a", "se"] == pytest.approx(family_error(won["a"], family)), function
        with pytest.raises(DataError, match=r"cluster: .*'famly'.*'family'"):
            function(scores, cluster="famly")
        with pytest.raises(DataError, match=r"cluster: \['family'\].*'3-1'"):
            function(gaps, cluster="family")
    row, apart = (rmlab.summary(scores, cluster=cluster).set_index("model").loc["a"] for cluster in ("family", None))
    assert row["se"] > 1.2 * apart["se"]
    assert row["n_prompts"] == 48
    difference = pytest.approx(family_error(won["a"] - won["b"], family))
    assert rmlab.compare(scores, "a", "b", cluster="family")["se"].item() == difference
    assert stats.compare_all(scores, cluster="family")["se"].item() == difference


def test_columns_of_a_prompt_go_into_pairs_and_others_do_not():
    scores = families()
    pairs = rmlab.pairs(scores.assign(tokens=np.arange(len(scores))))
    assert list(pairs.columns) == [*tables.PAIRS, "family", "source"]
    source = scores.drop_duplicates("id").set_index("id")["source"]
    assert (pairs["source"].to_numpy() == source[pairs["id"]].to_numpy()).all()


def test_accuracy_and_compare_reach_a_column_of_ones_own():
    scores = families()
    pairs = rmlab.pairs(scores)
    expected = (pairs["outcome"] == "win").groupby([pairs["source"], pairs["model"]]).mean().unstack()
    for table in (scores, pairs):
        accuracy = rmlab.accuracy(table, by=["model", "source"]).set_index(["source", "model"])["accuracy"]
        difference = rmlab.compare(table, "a", "b", by="source").set_index("source")
        np.testing.assert_allclose(accuracy.unstack().loc[expected.index], expected)
        np.testing.assert_allclose(difference[["value_a", "value_b"]].loc[expected.index], expected)
        np.testing.assert_allclose(difference["difference"], expected["a"] - expected["b"])
        near = stats.equivalence(table, "a", "b", margin=0.5, by="source")
        assert difference.index.tolist() == near["source"].tolist() == ["books", "web"]
    with pytest.raises(DataError, match=r"by: .*'sorce'.*'source'"):
        rmlab.compare(pairs, "a", "b", by="sorce")


def test_a_column_that_differs_between_models_splits_each_model_by_its_own():
    pairs = rmlab.pairs(families())
    pairs["size"] = pd.cut(pairs["margin"].abs(), [0, 1, 2, 100])
    accuracy = rmlab.accuracy(pairs, by=["model", "size"]).set_index(["model", "size"])
    won = (pairs["outcome"] == "win").groupby([pairs["model"], pairs["size"]], observed=True).agg(["size", "mean"])
    assert accuracy["n_pairs"].to_dict() == won["size"].to_dict()
    assert accuracy["accuracy"].to_dict() == pytest.approx(won["mean"].to_dict())
    with pytest.raises(DataError, match="'size' differs between the models"):
        rmlab.compare(pairs, "a", "b", by="size")
    with pytest.raises(DataError, match="by: 'size' is missing"):
        rmlab.accuracy(pairs.assign(size=pd.cut(pairs["margin"].abs(), [0, 1])), by=["model", "source", "size"])
    with pytest.raises(DataError, match="by: 'reason'"):  # the name of a column of the result
        rmlab.accuracy(pairs.assign(reason=pairs["source"]), by=["model", "reason"])


NAMES = ["easy", "hard", "overall", "group", "rank", "model", "se"]


def test_a_domain_may_have_the_name_of_a_column(make_scores):
    """Of data with styles, which has a column "hard" of its own: both numbers stay."""
    sizes = dict(zip(["chat", "math", "code", "safety-refuse", "safety-response"], range(8, 13), strict=True))
    scores = make_scores(sizes, seed=3)
    domain = np.array(NAMES)[scores["id"].str.split("/").str[1].astype(int) % len(NAMES)]
    pairs = rmlab.pairs(scores.assign(benchmark="own", domain=domain, subset=domain))
    won = (pairs["outcome"] == "win").astype(float)
    functions = (rmlab.summary, rmlab.leaderboard, rmlab.rank)
    summary, board, rank = (function(pairs).set_index("model").loc[["a", "b"]] for function in functions)
    expected = {f"domain {name}": pairs["domain"] == name for name in NAMES}
    expected |= {level: pairs["level"] == level for level in ("easy", "hard")} | {"overall": won >= 0}
    for table in (summary, board):
        assert table.columns.is_unique
        for column, is_counted in expected.items():
            np.testing.assert_allclose(table[column], won[is_counted].groupby(pairs["model"]).mean()[table.index])
    assert board[["group", "rank"]].to_dict() == rank[["group", "rank"]].to_dict()
