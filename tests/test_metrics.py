"""Metrics against nested loops written from the reference, and the laws they obey."""

import numpy as np
import oracles
import pandas as pd
import pytest

from rmlab import metrics, tables
from rmlab.tables import DataError, group_codes

ENOUGH = dict.fromkeys(("chat", "math", "code", "safety-refuse", "safety-response"), 6)
ANSWER = ["model", *tables.KEY]


def test_every_chosen_meets_every_rejected(make_scores):
    """Of prompts with one to three answers of each label, in any order of rows."""
    rng = np.random.default_rng(0)
    scores = make_scores()
    place = scores["id"].str[-1].astype(int) + (scores["label"] == "chosen")
    scores = scores[scores["slot"] <= place % 3].sample(frac=1, random_state=1)
    pairs = metrics.pairs(scores)
    assert list(pairs.columns) == tables.PAIRS
    assert not pairs.duplicated(tables.PAIR_KEY).any()
    pd.testing.assert_frame_equal(tables.check_pairs(pairs), pairs)
    n_answers = scores.groupby(["model", "domain", "id", "label"]).size().unstack()
    assert len(pairs) == (n_answers["chosen"] * n_answers["rejected"]).sum()

    score = scores.set_index(ANSWER)["score"]
    for row in pairs.iloc[rng.permutation(len(pairs))[:60]].itertuples():
        prompt = (row.model, row.benchmark, row.domain, row.id)
        margin = score[(*prompt, "chosen", row.chosen_slot)]
        margin -= score[(*prompt, "rejected", row.rejected_slot)]
        assert row.margin == margin
        assert row.outcome == ["loss", "tie", "win"][int(np.sign(margin)) + 1]
        steps = np.sign(row.chosen_slot - row.rejected_slot)
        assert row.level == ["hard", "normal", "easy"][1 + steps]


@pytest.mark.parametrize(
    "edit",
    [
        lambda scores: scores,
        lambda scores: scores[6:],
        lambda scores: scores[:-6],
        lambda scores: scores.sort_values(tables.KEY),
        lambda scores: scores.assign(style=scores["style"].mask(scores.model == "b")),
        lambda scores: scores.assign(
            id=scores["id"] + scores["model"].map({"c": "x"}).fillna("")
        ),
    ],
)
def test_models_together_have_the_pairs_that_each_has_alone(make_scores, edit):
    scores = edit(make_scores(models=("a", "b", "c"))).dropna(subset=["id"])
    alone = pd.concat([metrics.pairs(rows) for _, rows in scores.groupby("model")])
    alone = alone.sort_values(tables.PAIR_KEY, ignore_index=True)
    together = metrics.pairs(scores).sort_values(tables.PAIR_KEY, ignore_index=True)
    pd.testing.assert_frame_equal(together, alone)
    again = scores[scores["model"] == "a"]
    with pytest.raises(DataError, match="'a'"):
        metrics.pairs(pd.concat([again, again.assign(model="b"), again]))


def test_columns_of_ones_own_replace_no_column_of_pairs(make_scores):
    scores = make_scores()
    further = {"level": "5", "margin": 1.0, "outcome": "win", "chosen_slot": 7}
    pairs = metrics.pairs(scores.assign(**further, source="web"))
    pd.testing.assert_frame_equal(pairs.drop(columns="source"), metrics.pairs(scores))


def test_matrix_equals_the_nested_loops(make_scores):
    scores = make_scores(seed=3)
    for model in ("a", "b"):
        pairs = metrics.pairs(scores[scores["model"] == model])
        rows = oracles.rows_of(scores, model)
        by_domain = {}
        for domain in oracles.DOMAINS:
            inside = [row for row in rows if row["id"].startswith(domain)]
            by_domain[domain] = oracles.matrix(inside)
        for table, average, expected in (
            (pairs, "prompts", oracles.matrix(rows)),
            (pairs, "benchmark", np.mean([*by_domain.values()], axis=0)),
            (pairs.query("domain == 'chat'"), "benchmark", by_domain["chat"]),
        ):
            matrix = metrics.matrix(table, average=average)
            np.testing.assert_allclose(matrix, expected, atol=1e-15)
            assert list(matrix.index) == list(matrix.columns) == [*tables.STYLES]


def test_order_of_rows_and_increasing_maps_change_nothing(make_scores):
    scores = make_scores(ENOUGH, seed=2)
    before = scores.copy(deep=True)
    table = metrics.summary(scores)
    mapped = scores.assign(score=np.exp(scores["score"]) - 40)
    for changed in (scores.sample(frac=1, random_state=0), mapped):
        summary = metrics.summary(changed).sort_values("model", ignore_index=True)
        pd.testing.assert_frame_equal(summary, table)
    pd.testing.assert_frame_equal(scores, before)


def test_swapping_the_labels_turns_wins_into_losses(make_scores):
    scores = make_scores(models=("a",), seed=4)
    swap = {"chosen": "rejected", "rejected": "chosen"}
    mirrored = scores.assign(label=scores["label"].map(swap))
    half = metrics.matrix(scores, ties="half")
    other = metrics.matrix(mirrored, ties="half")
    np.testing.assert_allclose(half + other.to_numpy().T, 1.0)


@pytest.mark.parametrize(
    ("ties", "share"), [("loss", 0), ("half", 0.5), ("drop", None)]
)
def test_a_constant_scorer_shows_the_rule_for_ties(make_scores, ties, share):
    table = metrics.accuracy(make_scores().assign(score=0.0), ties=ties)
    np.testing.assert_array_equal(table["accuracy"], np.full(2, share, float))
    assert (table["n_ties"] == 18 * 9).all()


@pytest.mark.parametrize(
    "average",
    ["benchmark", "domains", "prompts", {"chat": 2, "math": 1, "code": 1, "safety": 0}],
)
def test_accuracies_estimates_and_matrix_are_the_summary(make_scores, average):
    scores = make_scores(ENOUGH, seed=8)
    pairs = metrics.pairs(scores)
    summary = metrics.summary(scores, average=average).set_index("model")
    overall = metrics.accuracy(pairs, average=average).set_index("model")
    renamed = overall.rename(columns={"accuracy": "overall"})
    same = ["overall", "se", "low", "high"]
    pd.testing.assert_frame_equal(summary[same], renamed[same])
    long = metrics.estimates(pairs, average=average)
    wide = long.pivot(index="model", columns="name", values="value")
    for by, names in (
        ("level", tables.LEVELS),
        ("domain", ("chat", "math", "code", "safety")),
    ):
        expected = summary[[*names]]
        np.testing.assert_array_equal(wide[[*names]], expected)
        rows = metrics.accuracy(pairs, by=["model", by], average=average)
        by_name = rows.pivot(index="model", columns=by, values="accuracy")
        np.testing.assert_allclose(by_name[[*names]], expected, atol=1e-15)
    matrix = metrics.matrix(pairs[pairs["model"] == "a"], average=average).to_numpy()
    levels = oracles.levels(matrix)
    expected = summary.loc["a", [*levels]].astype(float)
    np.testing.assert_allclose([*levels.values()], expected, atol=1e-15)


def test_one_domain_is_that_domain_and_several_need_all(make_scores):
    pairs = metrics.pairs(make_scores(ENOUGH, models=("a",)))
    whole = metrics.summary(pairs).iloc[0]
    chat = pairs[pairs["domain"] == "chat"]
    row = metrics.accuracy(chat).iloc[0]
    assert (row["accuracy"], row["average"]) == (whole["chat"], "chat alone")
    assert np.isnan(metrics.summary(chat)["overall"].iloc[0])
    two = pairs[pairs["domain"].isin(["chat", "code"])]
    assert metrics.matrix(two).isna().all(axis=None)
    assert metrics.matrix(two, average="domains").notna().all(axis=None)


@pytest.mark.parametrize("kind", ["str", "object", "string", "category"])
def test_rows_are_numbered_in_order_of_appearance(kind):
    rng = np.random.default_rng(4)
    columns = {
        "text": rng.choice(["x", "y", None], 60),
        "letter": rng.choice(["u", "v"], 60),
        "count": rng.integers(0, 2, 60),
    }
    frame = pd.DataFrame(columns).astype({"text": kind, "letter": kind})
    for rows in (frame, frame.sort_values(["letter", "count"]), frame.head(0)):
        codes, first = group_codes(rows, list(rows))
        groups = rows.groupby(list(rows), sort=False, dropna=False, observed=True)
        assert codes.tolist() == groups.ngroup().tolist()
        assert first.tolist() == [codes.tolist().index(i) for i in range(len(first))]


@pytest.mark.parametrize("kind", ["object", "str", "string", "category"])
def test_the_type_of_a_column_of_strings_changes_nothing(make_scores, kind):
    """Closed vocabularies as plain strings are read in their order; a category without
    rows has no row.
    """
    pairs = metrics.pairs(make_scores(models=("b", "a")))
    names = ["model", "benchmark", "domain", "id", "subset"]
    names += [] if kind == "category" else tables.CLOSED.keys() & set(pairs)
    typed = pairs.astype(dict.fromkeys(names, kind))
    one = pairs["model"] == "a"
    for function, options in (
        (metrics.summary, {"safety": "split"}),
        (metrics.accuracy, {"by": ["model", "domain", "level"]}),
        (metrics.accuracy, {"by": ["model", "chosen_style", "rejected_style"]}),
        (metrics.matrix, {}),
    ):
        table = function(typed[one], **options)
        expected = function(pairs[one], **options)
        pd.testing.assert_frame_equal(table, expected, check_dtype=False)
    hard = typed[one & (pairs["level"] == "hard")]
    n_pairs = metrics.accuracy(hard, by="level")["n_pairs"].tolist()
    assert n_pairs == [0, 0, len(hard)]


def test_misuse_is_refused_by_name(make_scores):
    pairs = metrics.pairs(make_scores())
    two_benchmarks = pd.concat([pairs, pairs.assign(benchmark="other")])
    odd = pairs.assign(outcome=["wins"] * 54 + ["loss"] * (len(pairs) - 54))
    plain = tables.check_pairs(pairs.assign(chosen_style=pd.NA, level=pd.NA))
    one_label = make_scores().query("label == 'chosen'")
    for function, table, options, message in (
        (metrics.accuracy, pairs, {"by": "level"}, r"by: \['level'\] has no 'model'"),
        (metrics.accuracy, pairs, {"by": "levle"}, "'levle' is not a column"),
        (metrics.accuracy, pairs, {"ties": "los"}, "did you mean 'loss'"),
        (metrics.accuracy, pairs, {"confidence": 95}, "confidence: 95; allowed"),
        (metrics.accuracy, plain, {"by": ["model", "level"]}, "'level' is missing"),
        (metrics.accuracy, odd, {}, r"outcome .*54 of 324 .*'wins'"),
        (metrics.matrix, pairs, {}, "one model"),
        (metrics.matrix, pairs.head(0), {}, "no rows"),
        (metrics.pairs, one_label, {}, "one label only"),
        (metrics.summary, pairs.assign(domain="Focus"), {}, "'Focus' is not one of"),
        (metrics.summary, two_benchmarks, {}, "2 benchmarks"),
    ):
        with pytest.raises(ValueError, match=message):
            function(table, **options)
    with pytest.raises(TypeError, match=r"table: expected .* got NoneType"):
        metrics.summary(None)
