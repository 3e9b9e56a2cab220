"""Keys as numbers: what pandas says of the same columns, and nothing remembered that has changed."""

import gc

import numpy as np
import pandas as pd
import pytest
from designs import ragged_scores

from rmlab import keys, metrics, tables


def _table(rng, rows):
    """Columns of every kind that a key may have, missing values among them."""
    words = pd.Series(rng.choice(["chat", "math", "ä", ""], rows), dtype="str")
    return pd.DataFrame(
        {
            "words": words,
            "blank": words.where(pd.Series(rng.random(rows) < 0.7)),
            "ids": pd.Series(rng.integers(0, max(rows, 1), rows).astype(str), dtype="str"),
            "arrow": words.astype("string[pyarrow]"),
            "python": words.astype(object),
            "closed": pd.Categorical(rng.choice(["easy", "hard", None], rows)),
            "slot": rng.integers(0, 3, rows),
            "far": rng.choice([0, 10**12, -(10**12)], rows),
            "number": rng.choice([0.5, np.nan, -1.0], rows),
        }
    )


@pytest.mark.parametrize("rows", [0, 1, 7, 500])
@pytest.mark.parametrize("seed", range(4))
def test_combinations_are_numbered_as_pandas_groups_them(seed, rows):
    rng = np.random.default_rng(seed)
    table = _table(rng, rows)
    for columns in (["words"], ["blank", "slot"], ["far", "number"], list(rng.permutation(table.columns))):
        code, first = keys.number(table, columns)
        expected = table.groupby(columns, sort=False, dropna=False, observed=True).ngroup().to_numpy()
        assert (code == expected).all()
        assert (first == np.flatnonzero(~table.duplicated(columns).to_numpy())).all()
        assert keys.has_repeats(table, columns) == table.duplicated(columns).any()


def test_more_combinations_than_64_bits_could_number():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({f"c{i}": pd.Series(rng.permutation(3000).astype(str), dtype="str") for i in range(8)})
    assert not keys.has_repeats(table, list(table))
    assert keys.has_repeats(pd.concat([table, table.iloc[[17]]]), list(table))
    assert (keys.number(table, list(table))[0] == np.arange(3000)).all()


def test_codes_are_remembered_while_the_column_lives_and_never_when_it_has_changed():
    frame = pd.DataFrame({"id": pd.Series(["a", "b", "a"], dtype="str")})
    once = keys.coded(frame["id"])
    assert keys.coded(frame.assign(more=1)["id"]) is once
    frame.loc[0, "id"] = "c"
    assert keys.number(frame, ["id"])[0].tolist() == [0, 1, 2]
    assert list(keys.coded(frame["id"]).values) == ["c", "b", "a"]
    before = sum(type(thing) is keys.Coded for thing in gc.get_objects())
    del frame, once
    gc.collect()
    assert sum(type(thing) is keys.Coded for thing in gc.get_objects()) < before


def test_decoded_columns_are_the_columns():
    column = pd.Series(["x", "y", None, "x"], dtype="str")
    pd.testing.assert_series_equal(keys.decoded(keys.coded(column)), column)
    packed = pd.Series(keys.packed(keys.coded(column), np.array([3, 2, 1])))
    assert packed.astype("str").tolist()[::2] == ["x", "y"]
    assert packed.isna().tolist() == [False, True, False]


@pytest.mark.parametrize("words", [["a"], ["a", "b"], ["a", None]])
def test_long_columns_are_gathered_in_pieces(words, monkeypatch):
    monkeypatch.setattr(keys, "PIECE", 7)
    for rows in (0, 6, 7, 8, 40):
        column = pd.Series(np.random.default_rng(rows).choice(np.array(words, object), rows), dtype="str")
        pd.testing.assert_series_equal(keys.decoded(keys.coded(column)), column)


@pytest.mark.parametrize("starts", [[0], [0, 2000, 4000, 6000], [0, 1999, 4000, 6001]])
def test_stretches_that_say_the_same_lie_in_memory_once(starts, monkeypatch):
    monkeypatch.setattr(keys, "REPEATED", 100)
    ids = np.random.default_rng(0).integers(0, 500, 2000).astype(str)
    column = pd.Series(np.tile(ids, 4), dtype="str")
    name = pd.Series(np.repeat(["a", "b", "a", "c"], 2000), dtype="str")
    for values in (column, name):
        found = keys.decoded(keys.coded(values), np.array(starts))
        pd.testing.assert_series_equal(found, values)

    def places(values):
        return [
            chunk.buffers()[2].address
            for chunk in keys.decoded(values, np.array(starts)).array.__arrow_array__().chunks
        ]

    if starts == [0, 2000, 4000, 6000]:
        assert len(set(places(keys.coded(column)))) == 1
        assert len(places(keys.coded(name))) == 80
        assert len(set(places(keys.coded(name)))) < 10


def test_a_file_that_repeats_the_keys_of_another_shares_them():
    first = pd.DataFrame({"model": "a", "id": ["x", "y", "y"], "score": [1.0, 2.0, 3.0]}).astype({"model": "str"})
    second = first.assign(model="b", score=[4.0, 5.0, 6.0]).astype({"id": "str"}).copy(deep=True)
    other = second.assign(id=pd.Series(["x", "y", "z"], dtype="str"))
    for frame in (second, other):
        found = keys.shared(frame, first)
        pd.testing.assert_frame_equal(found, frame)
        same = found["id"].array.__arrow_array__() is first["id"].array.__arrow_array__()
        assert same == (frame is second)


@pytest.mark.parametrize("seed", range(6))
def test_pairs_are_the_merge_of_the_two_labels(seed):
    """The oracle is pandas' own join of chosen with rejected rows; rows of scores stand in any order."""
    scores = ragged_scores(np.random.default_rng(seed))
    found = metrics.pairs(scores)
    checked = tables.check_scores(scores, allow_missing=True).assign(row=np.arange(len(scores)))
    prompt = ["model", *tables.PROMPT]
    chosen, rejected = (checked[checked["label"] == label] for label in tables.LABELS)
    both = chosen.merge(rejected, on=prompt, suffixes=("_chosen", "_rejected"))
    both = both.sort_values(["row_chosen", "row_rejected"])
    expected = both[prompt].assign(
        chosen_slot=both["slot_chosen"], rejected_slot=both["slot_rejected"], subset=both["subset_chosen"],
        chosen_style=both["style_chosen"], rejected_style=both["style_rejected"],
        level=tables.level(both["style_chosen"], both["style_rejected"]),
        margin=both["score_chosen"] - both["score_rejected"],
    )  # fmt: skip
    expected = expected.assign(outcome=tables.outcome(expected["margin"].to_numpy())).reset_index(drop=True)
    pd.testing.assert_frame_equal(found, expected, check_exact=True)
    assert all(found[c].dtype == "str" for c in (*prompt, "subset"))


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_read_as_their_pairs_are(seed):
    scores = ragged_scores(np.random.default_rng(seed))
    pd.testing.assert_frame_equal(metrics.estimates(scores), metrics.estimates(metrics.pairs(scores)), check_exact=True)
