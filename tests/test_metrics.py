"""Metrics against nested loops written from the reference, and the laws they obey."""

import numpy as np
import oracles
import pandas as pd
import pytest

from rmlab import metrics, tables
from rmlab.tables import DataError, group_codes

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
        assert row.outcome == (
            "win" if chosen > rejected else "tie" if chosen == rejected else "loss"
        )
        assert (
            row.level
            == ["hard", "normal", "easy"][
                1 + np.sign(row.chosen_slot - row.rejected_slot)
            ]
        )


def test_pairs_of_ragged_prompts_are_a_full_product():
    sizes = {"0": (1, 3), "1": (2, 2), "2": (4, 1)}
    rows = [
        ("m", "reward-bench-2", "Ties", id_, label, slot, float(slot))
        for id_, counts in sizes.items()
        for label, count in zip(("chosen", "rejected"), counts, strict=True)
        for slot in range(count)
    ]
    scores = pd.DataFrame(rows, columns=["model", *tables.KEY, "score"]).sample(
        frac=1, random_state=1
    )
    pairs = metrics.pairs(scores)
    assert pairs.groupby("id").size().to_dict() == {"0": 3, "1": 4, "2": 4}
    assert not pairs.duplicated(tables.PAIR_KEY).any()


@pytest.mark.parametrize(
    "edit",
    [
        lambda scores: scores,
        lambda scores: scores[6:],
        lambda scores: scores[:-6],
        lambda scores: scores.sort_values(tables.KEY),
        lambda scores: scores.assign(
            style=np.where(scores["model"] == "b", "plain", scores["style"])
        ),
        lambda scores: scores.assign(
            id=scores["id"] + np.where(scores["model"] == "c", "x", "")
        ),
    ],
)
def test_models_together_have_the_pairs_that_each_has_alone(make_scores, edit):
    scores = edit(make_scores(models=("a", "b", "c")))
    pairs, codes = (
        metrics.pairs(scores),
        group_codes(scores, ["model", *tables.PROMPT])[0],
    )
    alone = pd.concat([metrics.pairs(rows) for _, rows in scores.groupby("model")])
    in_order = [
        frame.sort_values(tables.PAIR_KEY, ignore_index=True)
        for frame in (pairs, alone)
    ]
    pd.testing.assert_frame_equal(*in_order)
    assert (
        codes == scores.groupby(["model", *tables.PROMPT], sort=False).ngroup()
    ).all()
    again = scores[scores["model"] == "b"]
    with pytest.raises(DataError, match="'b'"):
        metrics.pairs(pd.concat([again.assign(model="a"), again, again]))


def test_columns_of_ones_own_replace_no_column_of_pairs(make_scores):
    scores = make_scores()
    further = {"level": "5", "margin": 1.0, "outcome": "win", "chosen_slot": 7}
    pairs = metrics.pairs(scores.assign(**further, source="web"))
    pd.testing.assert_frame_equal(pairs.drop(columns="source"), metrics.pairs(scores))


def test_matrix_equals_the_nested_loops(make_scores):
    scores = make_scores(seed=3)
    pairs = metrics.pairs(scores)
    for model in ("a", "b"):
        rows = oracles.rows_of(scores, model)
        expected = oracles.matrix(rows)
        found = metrics.matrix(pairs[pairs["model"] == model], average="prompts")
        np.testing.assert_allclose(found, expected, atol=1e-15)
        domains = [
            oracles.matrix([row for row in rows if row["id"].startswith(d)])
            for d in oracles.DOMAINS
        ]
        found = metrics.matrix(pairs[pairs["model"] == model])
        np.testing.assert_allclose(found, np.mean(domains, axis=0), atol=1e-15)
        chat = oracles.matrix([row for row in rows if row["id"].startswith("chat")])
        np.testing.assert_allclose(
            metrics.matrix(
                pairs[(pairs["model"] == model) & (pairs["domain"] == "chat")]
            ),
            chat,
        )
    assert list(found.index) == list(found.columns) == ["concise", "plain", "markdown"]


def test_order_of_rows_and_increasing_maps_change_nothing(make_scores):
    scores = make_scores(seed=2)
    table = metrics.summary(metrics.pairs(scores))
    shuffled = metrics.summary(
        metrics.pairs(scores.sample(frac=1, random_state=0))
    ).sort_values("model")
    pd.testing.assert_frame_equal(shuffled.reset_index(drop=True), table)
    mapped = metrics.summary(
        metrics.pairs(scores.assign(score=np.exp(scores["score"]) - 40))
    )
    pd.testing.assert_frame_equal(mapped, table)


def test_swapping_the_labels_turns_wins_into_losses(make_scores):
    scores = make_scores(seed=4, levels=1000)
    swapped = scores.assign(
        label=scores["label"].map({"chosen": "rejected", "rejected": "chosen"})
    )
    pairs, mirrored = metrics.pairs(scores), metrics.pairs(swapped)
    one, other = pairs[pairs["model"] == "a"], mirrored[mirrored["model"] == "a"]
    half = (
        metrics.matrix(one, ties="half")
        + metrics.matrix(other, ties="half").to_numpy().T
    )
    np.testing.assert_allclose(half, 1.0)


def test_tie_policies_are_ordered_and_a_constant_scorer_shows_them(make_scores):
    pairs = metrics.pairs(make_scores().assign(score=0.0))
    by_policy = {
        policy: metrics.accuracy(pairs, ties=policy)["accuracy"]
        for policy in ("loss", "half", "drop")
    }
    assert (by_policy["loss"] == 0).all()
    assert (by_policy["half"] == 0.5).all()
    assert by_policy["drop"].isna().all()
    table = metrics.accuracy(pairs)
    assert (table["n_ties"] == table["n_pairs"]).all()


def test_scores_and_pairs_give_the_same_numbers(make_scores):
    scores = make_scores(ENOUGH)
    pairs = metrics.pairs(scores)
    for table in (metrics.summary, metrics.estimates, metrics.accuracy):
        pd.testing.assert_frame_equal(table(scores), table(pairs))


def test_accuracies_estimates_and_matrix_are_the_summary(make_scores):
    pairs = metrics.pairs(make_scores(ENOUGH, seed=8))
    for average in (
        "benchmark",
        "domains",
        "prompts",
        {"chat": 2, "math": 1, "code": 1, "safety": 0},
    ):
        summary = metrics.summary(pairs, average=average).set_index("model")
        overall = metrics.accuracy(pairs, average=average).set_index("model")
        for column, other in {
            "overall": "accuracy",
            "se": "se",
            "low": "low",
            "high": "high",
        }.items():
            np.testing.assert_array_equal(summary[column], overall[other])
        for by, names in (
            ("level", tables.LEVELS),
            ("domain", ("chat", "math", "code", "safety")),
        ):
            long = metrics.accuracy(pairs, by=["model", by], average=average)
            wide = long.pivot(index="model", columns=by, values="accuracy")
            np.testing.assert_allclose(
                wide[list(names)], summary[list(names)], atol=1e-15
            )
        long = metrics.estimates(pairs, average=average)
        for name in ("chat", "hard", "overall"):
            own = long[long["name"] == name].set_index("model")["value"]
            np.testing.assert_array_equal(own, summary[name])
        found = metrics.matrix(pairs[pairs["model"] == "a"], average=average).to_numpy()
        levels = [
            found[np.tril_indices(3, -1)].mean(),
            np.diag(found).mean(),
            found[np.triu_indices(3, 1)].mean(),
        ]
        np.testing.assert_allclose(
            levels, summary.loc["a", list(tables.LEVELS)].astype(float), atol=1e-15
        )


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


def test_rows_are_numbered_in_order_of_appearance():
    rng = np.random.default_rng(4)
    text, letter = rng.choice(["x", "y", None], 60), rng.choice(["u", "v"], 60)
    frame = pd.DataFrame(
        {"text": text, "letter": letter, "count": rng.integers(0, 2, 60)}
    )
    for kind in ("str", "object", "string", "category"):
        typed = frame.astype({"text": kind, "letter": kind})
        for rows in (
            typed,
            typed.sort_values(["letter", "count"]),
            typed.head(1),
            typed.head(0),
        ):
            found, first = group_codes(rows, list(rows))
            expected = rows.groupby(
                list(rows), sort=False, dropna=False, observed=True
            ).ngroup()
            assert found.tolist() == expected.tolist()
            assert first.tolist() == [
                found.tolist().index(i) for i in range(len(first))
            ]


def test_plain_strings_are_read_in_the_order_of_the_vocabulary(make_scores):
    pairs = metrics.pairs(make_scores())
    closed = ["chosen_style", "rejected_style", "level", "outcome"]
    for by in (["model", "level"], ["model", "chosen_style", "rejected_style"]):
        expected = metrics.accuracy(pairs, by=by)
        for kind in (object, "str"):
            shuffled = pairs.astype(dict.fromkeys(closed, kind)).sort_values(
                "model", kind="stable"
            )
            pd.testing.assert_frame_equal(metrics.accuracy(shuffled, by=by), expected)
    plain = pairs.astype(dict.fromkeys(closed, "str"))
    open_ = ["model", "benchmark", "domain", "id", "subset"]
    for typed in (
        plain,
        *(
            pairs.astype(dict.fromkeys(open_, kind))
            for kind in ("object", "string", "category")
        ),
    ):
        pd.testing.assert_frame_equal(metrics.summary(typed), metrics.summary(pairs))
        split = metrics.summary(pairs, safety="split")
        pd.testing.assert_frame_equal(metrics.summary(typed, safety="split"), split)
    one = pairs["model"] == "a"
    pd.testing.assert_frame_equal(
        metrics.matrix(plain[one]), metrics.matrix(pairs[one])
    )
    hard = pairs[pairs["level"] == "hard"].astype({"level": "str"})
    assert metrics.accuracy(hard[hard["model"] == "a"], by="level")[
        "n_pairs"
    ].tolist() == [0, 0, len(hard) // 2]


def test_models_that_are_not_there_have_no_row(make_scores):
    pairs = metrics.pairs(make_scores())
    typed = pairs.astype({"model": "category", "domain": "category"})
    left = typed[typed["model"] == "b"]
    assert metrics.accuracy(left)["model"].tolist() == ["b"]
    assert metrics.summary(left)["model"].tolist() == ["b"]
    by = ["model", "domain", "level"]
    expected = metrics.accuracy(pairs[pairs["model"] == "b"], by=by)
    pd.testing.assert_frame_equal(
        metrics.accuracy(left, by=by).astype({"model": "str", "domain": "str"}),
        expected,
    )


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
        (metrics.accuracy, plain, {"by": "level"}, "level is missing"),
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


def test_metrics_leave_their_input_alone(make_scores):
    scores = make_scores()
    before = scores.copy(deep=True)
    pairs = metrics.pairs(scores)
    kept = pairs.copy(deep=True)
    metrics.summary(pairs)
    metrics.accuracy(pairs, by=["model", "chosen_style", "rejected_style"])
    pd.testing.assert_frame_equal(scores, before)
    pd.testing.assert_frame_equal(pairs, kept)
