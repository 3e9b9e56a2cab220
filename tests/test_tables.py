"""The checks at the border: legal tables pass in the contract's shape, illegal values
are named with their place.
"""

import pickle
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmlab import tables
from rmlab.tables import DataError

HALF = "cut \ud83d"  # UTF-8 cannot hold half of a surrogate pair
ROW = {
    "model": "m",
    "benchmark": "b",
    "domain": "d",
    "id": "1",
    "label": "chosen",
    "slot": 0,
    "subset": "s",
}
ROW |= {
    "score": 0.5,
    "prompt": "p",
    "response": "r",
    "chosen_slot": 0,
    "rejected_slot": 0,
    "margin": 1.0,
}
CHECKS = {
    "responses": tables.check_responses,
    "scores": tables.check_scores,
    "pairs": tables.check_pairs,
}


def scores(**changed):
    return pd.DataFrame([ROW | changed]).astype(dict.fromkeys(changed, object))


def values(column):
    return column.astype(object).where(column.notna(), None).tolist()


def test_responses_take_the_contract_shape_and_leave_the_input_alone(mini):
    responses = mini.head(6).drop(columns="subset").astype({"style": "str"})
    before = responses.copy(deep=True)
    checked = tables.check_responses(responses.assign(note="kept"))
    assert list(checked.columns)[:9] == tables.RESPONSES
    assert checked["note"].eq("kept").all()
    assert checked["style"].dtype == tables.STYLE
    assert (checked["subset"] == checked["domain"]).all()
    pd.testing.assert_frame_equal(responses, before)
    pd.testing.assert_frame_equal(tables.check_responses(checked), checked)
    # In whatever order and index.
    reversed_ = tables.check_responses(responses[::-1])
    assert reversed_["style"].tolist() == checked["style"].tolist()[::-1]


REFUSED = {
    ("scores", "score"): [
        "1+2j",
        "1_0",
        "0x1f",
        "1,5",
        "",
        "one",
        [1.0],
        np.nan,
        np.inf,
    ],
    ("scores", "slot"): ["one", {}, -1, 0.5, 10**12, np.inf, None],
    ("scores", "model"): [HALF, None, ["x"]],
    ("pairs", "model"): [HALF, None],
    ("pairs", "margin"): [np.inf],
    ("pairs", "outcome"): ["won"],
    ("responses", "id"): [HALF, None, ["x"]],
    ("responses", "response"): ["", " \n", 3, [], ["x", ""], HALF],
    ("responses", "prompt"): [
        None,
        [{"role": "user"}],
        [{"role": "user", "content": HALF}],
    ],
    ("responses", "label"): ["best", None, ["x"]],
    ("responses", "style"): ["fancy"],
}
ROWS = [(*place, value) for place, values in REFUSED.items() for value in values]


@pytest.mark.parametrize(("table", "column", "value"), ROWS)
def test_a_bad_value_is_named_with_its_place(table, column, value):
    legal = {"outcome": "win"} if column == "outcome" else {}
    frame = pd.DataFrame(
        [ROW | legal | {"id": "0"}, ROW | {column: value}], dtype=object
    )
    with pytest.raises(DataError, match=f"{table}: {column} .*row 1 ") as caught:
        CHECKS[table](frame)
    assert repr(value)[:20] in str(caught.value)


@pytest.mark.parametrize("table", CHECKS)
def test_repeated_keys_and_absent_columns_are_refused(table):
    frame = pd.DataFrame([ROW])
    with pytest.raises(
        DataError, match=f"{table}: 1 rows repeat a key, first .*'id': '1'"
    ):
        CHECKS[table](pd.concat([frame, frame]))
    with pytest.raises(DataError, match=r"\['domain'\].*rmlab\."):
        CHECKS[table](frame.drop(columns="domain"))
    with pytest.raises(TypeError, match=f"{table}: .*DataFrame, got list"):
        CHECKS[table]([1, 2])


def test_a_column_called_model_hides_no_repeated_responses():
    texts = pd.DataFrame([ROW]).assign(prompt="p", response="r")
    with pytest.raises(DataError, match="1 rows repeat a key"):
        tables.check_responses(
            pd.concat([texts.assign(model="a"), texts.assign(model="b")])
        )


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_text_is_the_float_it_is_written_as(value):
    for text in (repr(value), f" {value!r}"):
        assert tables.check_scores(scores(score=text))["score"].tolist() == [value]


def test_numbers_of_all_kinds_are_numbers_and_missing_scores_pass_where_allowed():
    for number in (7, "7.0", Decimal(7), np.int8(7)):
        frame = tables.check_scores(scores(score=number, slot=number))
        assert frame[["slot", "score"]].to_numpy().tolist() == [[7, 7.0]]
    for missing in (np.nan, None, "NaN"):
        frame = tables.check_scores(scores(score=missing), allow_missing=True)
        assert frame["score"].isna().all()
    with pytest.raises(DataError, match=r"score is not a finite number .*inf"):
        tables.check_scores(scores(score=np.inf), allow_missing=True)


def test_scores_of_other_texts_are_refused(make_scores):
    table = make_scores()
    keys = table[tables.KEY].drop_duplicates()
    tables.check_match(table, keys)
    with pytest.raises(
        DataError, match=r"2 of \d+ rows have no text in responses, first .*'chat/0'"
    ):
        tables.check_match(table, keys.iloc[1:])


def test_pairs_make_outcome_and_level_from_margin_and_styles():
    rows = [
        ROW | {"id": str(i), "chosen_style": "plain", "margin": margin}
        for i, margin in enumerate([1.0, -1, 0, None])
    ]
    frame = pd.DataFrame(rows).assign(
        rejected_style=["plain", "concise", "markdown", None]
    )
    frame = frame.drop(columns=[*{*ROW} - {*tables.PAIRS}])
    checked = tables.check_pairs(frame)
    assert values(checked["outcome"]) == ["win", "loss", "tie", None]
    assert values(checked["level"]) == ["normal", "easy", "hard", None]
    assert list(checked.columns) == tables.PAIRS
    judged = tables.check_pairs(frame.drop(columns="margin").assign(outcome="win"))
    assert judged["margin"].isna().all()
    with pytest.raises(DataError, match="outcome"):
        tables.check_pairs(frame.drop(columns="margin"))


def test_an_error_keeps_its_parts_also_from_another_process():
    error = DataError("score: 'a' in row 3", "correct the row")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == f"{copy.problem}; {copy.remedy}" == str(error)
    assert str(DataError("no rows")) == "no rows"
