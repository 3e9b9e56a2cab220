"""Ensembles: laws that hold for any scores, and plain loops as oracles."""

from collections import Counter
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmlab import tables
from rmlab.metrics.ensembles import HOW, HOW_OF_PAIRS, ensemble
from rmlab.stats import compare
from rmlab.tables import DataError


@pytest.fixture
def scores(make_scores):
    return make_scores(models=("a", "b", "c"), levels=5)


def scores_by_key(frame):
    return frame.set_index(tables.KEY)["score"]


def rank_oracle(mine, others, models):
    """Mean rank from 0 to 1, by counting who is beaten."""
    beaten = [
        np.mean([(mine[m] > x[m]) + 0.5 * (mine[m] == x[m]) for x in others])
        for m in models
    ]
    return np.mean(beaten)


def vote_oracle(mine, others, models):
    """Every two answers meet; most models decide."""
    leads = [sum((mine[m] > x[m]) - (mine[m] < x[m]) for m in models) for x in others]
    return np.mean([1.0 if lead > 0 else 0.5 if lead == 0 else 0.0 for lead in leads])


@pytest.mark.parametrize(
    ("how", "oracle"), [("rank", rank_oracle), ("vote", vote_oracle)]
)
def test_ranks_and_votes_equal_plain_loops(scores, how, oracle):
    """In whatever order the models come, to the last bit: Ties asks for distances,
    where a rounded third decides.
    """
    combined, expected = scores_by_key(ensemble(scores, how=how)), {}
    for _, prompt in scores.groupby(tables.PROMPT):
        answers = {
            key: dict(zip(rows["model"], rows["score"], strict=True))
            for key, rows in prompt.groupby(tables.KEY)
        }
        for key, mine in answers.items():
            others = [answer for name, answer in answers.items() if name != key]
            expected[key] = oracle(mine, others, ["a", "b", "c"])
    assert combined.to_dict() == pytest.approx(expected)
    assert (
        scores_by_key(ensemble(scores, ["c", "b", "a"], how=how))[
            combined.index
        ].tolist()
        == combined.tolist()
    )


def test_mean_and_zscore_equal_numpy(scores):
    wide = scores.pivot_table(
        index=tables.KEY, columns="model", values="score", sort=False, observed=True
    )
    np.testing.assert_allclose(
        scores_by_key(ensemble(scores)).loc[wide.index], wide.mean(axis=1)
    )
    standard = ((wide - wide.mean()) / wide.std(ddof=0)).mean(axis=1)
    np.testing.assert_allclose(
        scores_by_key(ensemble(scores, how="zscore")).loc[wide.index], standard
    )
    flat = scores.assign(
        score=scores["score"].where(scores["model"] == "a", 3.3)
    )  # constant models add nothing
    alone = (wide["a"] - wide["a"].mean()) / wide["a"].std(ddof=0) / 3
    np.testing.assert_allclose(
        scores_by_key(ensemble(flat, how="zscore")).loc[wide.index], alone, atol=1e-12
    )


@pytest.mark.parametrize("how", HOW)
def test_the_labels_are_never_looked_at(scores, how):
    swapped = scores.assign(
        label=scores["label"].map({"chosen": "rejected", "rejected": "chosen"})
    )
    np.testing.assert_array_equal(
        ensemble(swapped, how=how)["score"], ensemble(scores, how=how)["score"]
    )


@settings(max_examples=25, deadline=None)
@given(scale=st.floats(0.01, 100), shift=st.floats(-50, 50), seed=st.integers(0, 99))
def test_scale_and_shift_of_a_model_only_matter_to_the_mean(scale, shift, seed):
    rng = np.random.default_rng(seed)
    rows = [
        (m, "b", "d", str(i), label, 0)
        for m in "ab"
        for i in range(6)
        for label in tables.LABELS
    ]
    scores = pd.DataFrame(rows, columns=["model", *tables.KEY]).assign(
        score=rng.normal(size=len(rows))
    )
    moved = scores.assign(
        score=scores["score"].where(
            scores["model"] == "b", scores["score"] * scale + shift
        )
    )
    for how in ("zscore", "rank", "vote"):
        np.testing.assert_allclose(
            ensemble(moved, how=how)["score"],
            ensemble(scores, how=how)["score"],
            atol=1e-9,
        )


@pytest.mark.parametrize("how", HOW)
def test_missing_scores_stay_missing_and_touch_no_other_model(scores, how):
    scores.loc[0, "score"] = np.nan
    combined = ensemble(scores, how=how)
    key = tuple(scores.loc[0, tables.KEY])
    assert np.isnan(scores_by_key(combined)[key])
    assert combined["score"].isna().sum() == 1
    rest = scores[~(scores[tables.KEY] == list(key)).all(axis=1)]
    expected = scores_by_key(ensemble(rest, how=how))
    np.testing.assert_allclose(
        scores_by_key(combined).drop([key]).loc[expected.index], expected
    )


def test_bad_arguments_are_named(scores):
    for error, message, options in (
        (ValueError, "how: 'mode'", {"how": "mode"}),
        (DataError, "models: 'd'", {"models": ["a", "d"]}),
        (DataError, "models: 'a'", {"models": ["a", "a"]}),
        (DataError, "models: 'a'", {"models": ["a"]}),
        (TypeError, "models: .*'ab'", {"models": "ab"}),
        (DataError, "name: 'a'", {"name": "a"}),
    ):
        with pytest.raises(error, match=message):
            ensemble(scores, **options)
    with pytest.raises(DataError, match="scores: "):
        ensemble(scores.iloc[1:])


@pytest.fixture
def verdicts():
    """Pairs of four judges with every combination of win, tie, loss and no verdict; the
    first two always disagree.
    """
    opposite = {1.0: -1.0, -1.0: 1.0, 0.0: 0.0}
    margins = list(product([1.0, -1.0], [-1.0, 0.0, 1.0, np.nan], [-2.0, 0.0, 2.0]))
    rows = []
    for number, (first, third, fourth) in enumerate(margins):
        answers = {"a": first, "b": opposite[first], "c": third, "d": fourth}
        for model, margin in answers.items():
            row = {"model": model, "benchmark": "own", "domain": "d"}
            row |= {"id": str(number), "chosen_slot": 0, "rejected_slot": 0}
            row |= {"margin": margin, "source": f"s{number % 2}", "seconds": margin}
            rows.append(row)
    return tables.check_pairs(pd.DataFrame(rows))


def majority_oracle(outcomes):
    """Most verdicts, a tie where two lead, none where one is missing."""
    if any(pd.isna(outcome) for outcome in outcomes):
        return "missing"
    counts = Counter(outcomes).most_common()
    if len(counts) > 1 and counts[0][1] == counts[1][1]:
        return "tie"
    return counts[0][0]


@pytest.mark.parametrize("judges", ["ab", "abc", "acd", "abcd"])
def test_the_majority_of_a_jury_equals_a_plain_loop(verdicts, judges):
    jury = ensemble(verdicts, list(judges), how="majority", name="jury")
    members = verdicts[verdicts["model"].isin(list(judges))]
    by_id = members.groupby("id", sort=False)["outcome"].agg(list)
    expected = by_id.map(majority_oracle)
    outcomes = jury["outcome"].astype(object).fillna("missing")
    assert dict(zip(jury["id"], outcomes, strict=True)) == expected.to_dict()
    assert jury["margin"].isna().all()


def test_two_judges_that_always_disagree_are_a_jury_of_ties(verdicts):
    for how in HOW_OF_PAIRS:
        jury = ensemble(verdicts, ["a", "b"], how=how)
        assert jury["outcome"].tolist() == ["tie"] * len(jury)


def test_the_mean_of_a_jury_needs_the_margins_of_all(verdicts):
    jury = ensemble(verdicts, name="jury")
    for _, row in jury.iterrows():
        members = verdicts.loc[verdicts["id"] == row["id"], "margin"].tolist()
        mean = sum(members) / 4  # NaN where one is
        np.testing.assert_equal(row["margin"], mean)
        verdict = "win" if mean > 0 else "loss" if mean < 0 else "tie"
        assert pd.isna(row["outcome"]) if np.isnan(mean) else row["outcome"] == verdict
    deaf = verdicts.assign(margin=verdicts["margin"].where(verdicts["model"] != "a"))
    with pytest.raises(DataError, match=r"'a'.*how='majority'"):
        ensemble(deaf)


def test_a_jury_is_compared_with_its_members_like_any_model(verdicts):
    jury = ensemble(verdicts, ["a", "c", "d"], how="majority", name="jury")
    assert jury["source"].tolist() == verdicts["source"][::4].tolist()
    assert "seconds" not in jury, "which differs between its members"
    both = pd.concat([verdicts, jury])
    row = compare(both, "jury", "c").iloc[0]
    assert row["value_a"] == pytest.approx((jury["outcome"] == "win").sum() / 18)
    assert row["missing"] == jury["outcome"].isna().sum() == 6
    with pytest.raises(DataError, match=r"pairs: .*different comparisons"):
        ensemble(verdicts[1:], how="majority")
    with pytest.raises(ValueError, match="how: 'vote'"):
        ensemble(verdicts, how="vote")
