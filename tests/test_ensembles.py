"""Ensembles: laws that hold for any scores, and plain loops as oracles."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmlab import metrics, tables
from rmlab.metrics.ensembles import HOW, ensemble
from rmlab.tables import DataError


def three(make_scores, seed=0):
    return make_scores(models=("a", "b", "c"), seed=seed, levels=5)


def scores_by_key(frame):
    return frame.set_index(tables.KEY)["score"]


def rank_oracle(scores):
    """Mean rank from 0 to 1, by counting who is beaten."""
    scores_of = {}
    for key, prompt in scores.groupby(tables.PROMPT):
        for row in prompt.itertuples():
            others = prompt[prompt["model"] == row.model]
            beaten = sum((row.score > x) + 0.5 * (row.score == x) for x in others["score"]) - 0.5
            scores_of.setdefault((*key, row.label, row.slot), []).append(beaten / (len(others) - 1))
    return {key: sum(ranks) / len(ranks) for key, ranks in scores_of.items()}


def vote_oracle(scores):
    """Every two answers meet; most models decide."""
    scores_of = {}
    for key, prompt in scores.groupby(tables.PROMPT):
        answers = {}
        for row in prompt.itertuples():
            answers.setdefault((*key, row.label, row.slot), {})[row.model] = row.score
        for one, mine in answers.items():
            won = 0.0
            for other, theirs in answers.items():
                if one == other:
                    continue
                ahead = sum(mine[m] > theirs[m] for m in mine) - sum(mine[m] < theirs[m] for m in mine)
                won += 1.0 if ahead > 0 else 0.5 if ahead == 0 else 0.0
            scores_of[one] = won / (len(answers) - 1)
    return scores_of


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("how", "oracle"), [("rank", rank_oracle), ("vote", vote_oracle)])
def test_ranks_and_votes_equal_plain_loops(make_scores, how, oracle, seed):
    scores = three(make_scores, seed)
    combined, expected = scores_by_key(ensemble(scores, how=how)), oracle(scores)
    assert len(combined) == len(expected)
    for key, value in expected.items():
        assert combined[key] == pytest.approx(value)


def test_mean_and_zscore_equal_numpy(make_scores):
    scores = three(make_scores)
    wide = scores.pivot_table(index=tables.KEY, columns="model", values="score", sort=False, observed=True)
    np.testing.assert_allclose(scores_by_key(ensemble(scores)).loc[wide.index], wide.mean(axis=1))
    standard = ((wide - wide.mean()) / wide.std(ddof=0)).mean(axis=1)
    np.testing.assert_allclose(scores_by_key(ensemble(scores, how="zscore")).loc[wide.index], standard)


@pytest.mark.parametrize("how", HOW)
def test_the_labels_are_never_looked_at(make_scores, how):
    scores = three(make_scores)
    swapped = scores.assign(label=scores["label"].map({"chosen": "rejected", "rejected": "chosen"}))
    expected = scores_by_key(ensemble(scores, how=how))
    combined = scores_by_key(ensemble(swapped, how=how))
    for (benchmark, domain, id_, label, slot), value in expected.items():
        other = "rejected" if label == "chosen" else "chosen"
        assert combined[(benchmark, domain, id_, other, slot)] == value


@settings(max_examples=25, deadline=None)
@given(scale=st.floats(0.01, 100), shift=st.floats(-50, 50), seed=st.integers(0, 99))
def test_scale_and_shift_of_a_model_only_matter_to_the_mean(scale, shift, seed):
    rng = np.random.default_rng(seed)
    rows = [(m, "b", "d", str(i), label, 0) for m in "ab" for i in range(6) for label in tables.LABELS]
    scores = pd.DataFrame(rows, columns=["model", *tables.KEY]).assign(score=rng.normal(size=len(rows)))
    moved = scores.assign(score=scores["score"].where(scores["model"] == "b", scores["score"] * scale + shift))
    for how in ("zscore", "rank", "vote"):
        np.testing.assert_allclose(ensemble(moved, how=how)["score"], ensemble(scores, how=how)["score"], atol=1e-9)


@pytest.mark.parametrize("how", HOW)
def test_missing_scores_stay_missing_and_touch_no_other_model(make_scores, how):
    scores = three(make_scores)
    scores.loc[0, "score"] = np.nan
    combined = ensemble(scores, how=how)
    key = tuple(scores.loc[0, tables.KEY])
    assert np.isnan(scores_by_key(combined)[key])
    assert combined["score"].isna().sum() == 1
    rest = scores[~(scores[tables.KEY] == list(key)).all(axis=1)]
    expected = scores_by_key(ensemble(rest, how=how))
    np.testing.assert_allclose(scores_by_key(combined).drop([key]).loc[expected.index], expected)


def test_a_constant_model_adds_nothing_to_a_zscore(make_scores):
    scores = make_scores(models=("a", "b"))
    flat = scores.assign(score=scores["score"].where(scores["model"] == "a", 3.3))
    alone, combined = metrics.pairs(flat[flat["model"] == "a"]), metrics.pairs(ensemble(flat, how="zscore"))
    assert (alone["outcome"].to_numpy() == combined["outcome"].to_numpy()).all()


def test_bad_arguments_are_named(make_scores):
    scores = three(make_scores)
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
    with pytest.raises(DataError, match="different responses, first"):
        ensemble(scores.iloc[1:])


def test_equal_sums_of_ranks_are_equal_to_the_last_bit(make_scores):
    """In whatever order the models come: Ties asks for distances, where a rounded third decides."""
    scores = make_scores(models=tuple("abcdefg"), levels=5)
    forth, back = (
        scores_by_key(ensemble(scores, list(names), how="rank", name="all")) for names in ("abcdefg", "gfedcba")
    )
    assert forth.tolist() == back.loc[forth.index].tolist()
