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


def shown(frame):
    return frame.set_index(tables.KEY)["score"]


def rank_oracle(scores):
    """Mean rank from 0 to 1, by counting who is beaten."""
    found = {}
    for key, prompt in scores.groupby(tables.PROMPT):
        for row in prompt.itertuples():
            others = prompt[prompt["model"] == row.model]
            beaten = sum((row.score > x) + 0.5 * (row.score == x) for x in others["score"]) - 0.5
            found.setdefault((*key, row.label, row.slot), []).append(beaten / (len(others) - 1))
    return {key: sum(ranks) / len(ranks) for key, ranks in found.items()}


def vote_oracle(scores):
    """Every two answers meet; most models decide."""
    found = {}
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
            found[one] = won / (len(answers) - 1)
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("how", "oracle"), [("rank", rank_oracle), ("vote", vote_oracle)])
def test_ranks_and_votes_equal_plain_loops(make_scores, how, oracle, seed):
    scores = three(make_scores, seed)
    made, expected = shown(ensemble(scores, how=how)), oracle(scores)
    assert len(made) == len(expected)
    for key, value in expected.items():
        assert made[key] == pytest.approx(value)


def test_mean_and_zscore_equal_numpy(make_scores):
    scores = three(make_scores)
    wide = scores.pivot_table(index=tables.KEY, columns="model", values="score", sort=False, observed=True)
    np.testing.assert_allclose(shown(ensemble(scores)).loc[wide.index], wide.mean(axis=1))
    standard = ((wide - wide.mean()) / wide.std(ddof=0)).mean(axis=1)
    np.testing.assert_allclose(shown(ensemble(scores, how="zscore")).loc[wide.index], standard)


@pytest.mark.parametrize("how", HOW)
def test_the_labels_are_never_looked_at(make_scores, how):
    scores = three(make_scores)
    swapped = scores.assign(label=scores["label"].map({"chosen": "rejected", "rejected": "chosen"}))
    expected = shown(ensemble(scores, how=how))
    made = shown(ensemble(swapped, how=how))
    for (benchmark, domain, id_, label, slot), value in expected.items():
        other = "rejected" if label == "chosen" else "chosen"
        assert made[(benchmark, domain, id_, other, slot)] == value


@pytest.mark.parametrize("how", HOW)
def test_copies_of_one_model_keep_its_outcomes(make_scores, how):
    one = make_scores(models=("a",))
    scores = pd.concat([one.assign(model=name) for name in "abc"])
    alone, together = metrics.pairs(one), metrics.pairs(ensemble(scores, how=how))
    assert (alone["outcome"].to_numpy() == together["outcome"].to_numpy()).all()


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
def test_row_order_does_not_matter_and_nothing_is_changed(make_scores, how):
    scores = three(make_scores)
    before = scores.copy(deep=True)
    mixed = shown(ensemble(scores.sample(frac=1, random_state=0), ["a", "b", "c"], how=how))
    pd.testing.assert_series_equal(mixed.sort_index(), shown(ensemble(scores, how=how)).sort_index())
    pd.testing.assert_frame_equal(scores, before)


@pytest.mark.parametrize("how", HOW)
def test_missing_scores_stay_missing_and_touch_no_other_model(make_scores, how):
    scores = three(make_scores)
    scores.loc[0, "score"] = np.nan
    made = ensemble(scores, how=how)
    key = tuple(scores.loc[0, tables.KEY])
    assert np.isnan(shown(made)[key])
    assert made["score"].isna().sum() == 1
    rest = scores[~(scores[tables.KEY] == list(key)).all(axis=1)]
    expected = shown(ensemble(rest, how=how))
    np.testing.assert_allclose(shown(made).drop([key]).loc[expected.index], expected)


def test_a_constant_model_adds_nothing_to_a_zscore(make_scores):
    scores = make_scores(models=("a", "b"))
    flat = scores.assign(score=scores["score"].where(scores["model"] == "a", 3.3))
    alone, made = metrics.pairs(flat[flat["model"] == "a"]), metrics.pairs(ensemble(flat, how="zscore"))
    assert (alone["outcome"].to_numpy() == made["outcome"].to_numpy()).all()


def test_a_vote_of_many_wide_prompts_is_worked_on_in_blocks(monkeypatch, make_scores):
    scores = three(make_scores)
    whole = ensemble(scores, how="vote")
    monkeypatch.setattr("rmlab.metrics.ensembles.DUELS_AT_ONCE", 200)
    pd.testing.assert_frame_equal(ensemble(scores, how="vote"), whole)


def test_the_result_is_a_scores_table_with_a_documented_name(make_scores):
    scores = three(make_scores)
    made = ensemble(scores, ["a", "c"], how="rank")
    assert set(made["model"]) == {"rank of 2 models"}
    assert made.attrs["provenance"] == {"rank of 2 models": {"ensemble": "rank", "models": ["a", "c"]}}
    tables.check_scores(pd.concat([scores, made]))
    assert set(ensemble(scores, name="all")["model"]) == {"all"}


def test_bad_arguments_are_named(make_scores):
    scores = three(make_scores)
    with pytest.raises(ValueError, match="how: 'mode'"):
        ensemble(scores, how="mode")
    with pytest.raises(DataError, match="'d' is not in scores"):
        ensemble(scores, ["a", "d"])
    with pytest.raises(DataError, match="named twice"):
        ensemble(scores, ["a", "a"])
    with pytest.raises(DataError, match="two models or more"):
        ensemble(scores, ["a"])
    with pytest.raises(TypeError, match="not the string"):
        ensemble(scores, "ab")
    with pytest.raises(DataError, match="already a model"):
        ensemble(scores, name="a")
    with pytest.raises(DataError, match="different responses: 1 stand with one of them only"):
        ensemble(scores.iloc[1:])


def test_equal_sums_of_ranks_are_equal_to_the_last_bit(make_scores):
    """In whatever order the models come: Ties asks for distances, where a rounded third decides."""
    scores = make_scores(models=tuple("abcdefg"), levels=5)
    forth, back = (shown(ensemble(scores, list(names), how="rank", name="all")) for names in ("abcdefg", "gfedcba"))
    assert forth.tolist() == back.loc[forth.index].tolist()
