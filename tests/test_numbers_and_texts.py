"""What may be a number, and what may be a text: refused alike at every border of every table."""

import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rmlab
from rmlab import tables
from rmlab.records import read_rows
from rmlab.tables import DataError

HALF = "cut \ud83d"
ROW = {"model": "m", "benchmark": "b", "domain": "d", "id": "1", "label": "chosen", "slot": 0, "score": 0.5}


def scores(**changed):
    return pd.DataFrame([ROW | changed]).astype(dict.fromkeys(changed, object))


@settings(deadline=None)
@given(st.floats(allow_nan=False))
def test_a_text_is_the_float_it_is_written_as(value):
    for text in (repr(value), f" {value!r}"):
        if np.isinf(value):
            with pytest.raises(DataError, match=r"score is not a (finite )?number"):
                tables.check_scores(scores(score=text))
        else:
            assert tables.check_scores(scores(score=text))["score"].tolist() == [value]


@pytest.mark.parametrize(
    "value",
    ["1+2j", "1_0", "\uff11\uff12", "0x1f", "1,5", "12 34", "", "one", [1.0], {}],
    ids=str,
)
def test_what_is_no_number_is_no_score(value):
    with pytest.raises(DataError, match="score is not a number"):
        tables.check_scores(scores(score=value))
    with pytest.raises(DataError, match=r"slot is not a (whole )?number"):
        tables.check_scores(scores(slot=value))


@pytest.mark.parametrize("value", [7, "7", "7.0", 7.0, Decimal(7), np.int8(7)], ids=repr)
def test_numbers_of_all_kinds_are_numbers(value):
    frame = tables.check_scores(scores(score=value, slot=value))
    assert frame[["slot", "score"]].to_numpy().tolist() == [[7, 7.0]]


@pytest.mark.parametrize("value", [-1, 0.5, 10**12, "9" * 400, float("inf"), None])
def test_what_is_no_slot(value):
    with pytest.raises(DataError, match=r"slot is not a (whole number from 0|number)"):
        tables.check_scores(scores(slot=value))


@pytest.mark.parametrize("column", ["model", "benchmark", "domain", "id", "subset"])
def test_names_that_cannot_be_written_are_refused_in_every_table(column):
    row = {**ROW, "subset": "s", "prompt": "p", "response": "r", "chosen_slot": 0, "rejected_slot": 0, "margin": 1.0}
    frame = pd.DataFrame([row | {column: HALF}], dtype=object)
    for check in (tables.check_scores, tables.check_responses, tables.check_pairs):
        if check is tables.check_responses and column == "model":
            continue
        with pytest.raises(DataError, match="is not text that UTF-8 can hold"):
            check(frame)


@pytest.mark.parametrize("column", ["prompt", "response"])
def test_texts_that_cannot_be_written_are_refused(column):
    row = {**ROW, "prompt": "p", "response": "r"}
    with pytest.raises(DataError, match=f"{column} is not text that UTF-8 can hold"):
        tables.check_responses(pd.DataFrame([row | {column: HALF}], dtype=object))
    talk = [{"role": "user", "content": HALF}]
    with pytest.raises(DataError, match="prompt is not text that UTF-8 can hold"):
        tables.check_responses(pd.DataFrame([row | {"prompt": talk}], dtype=object))


def test_margins_beyond_all_floats_are_said():
    frame = pd.concat([scores(score=1.7e308), scores(score=-1.7e308, label="rejected")])
    with pytest.raises(DataError, match=r"beyond 1.8e308, first "):
        rmlab.pairs(frame)
    with pytest.raises(DataError, match="margin is not a finite number"):
        tables.check_pairs(pd.DataFrame([ROW]).assign(chosen_slot=0, rejected_slot=0, margin=np.inf))


@pytest.mark.parametrize("deep", ["[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000])
def test_deep_values_are_refused(tmp_path, deep):
    path = tmp_path / "deep.jsonl"
    path.write_text(json.dumps({"prompt": "p"}) + "\n" + '{"prompt": ' + deep + "}\n")
    with pytest.raises(DataError, match="line 2"):
        read_rows(path)


def test_a_flipped_bit_in_a_page_of_our_parquet_is_found(tmp_path):
    path = tmp_path / "x.parquet"
    table = rmlab.score(rmlab.load("mini"), "random")
    rmlab.write_scores(table, path)
    place = path.read_bytes().find(np.float64(table["score"].iloc[3]).tobytes())
    damaged = bytearray(path.read_bytes())
    damaged[place if place > 0 else 200] ^= 1
    path.write_bytes(bytes(damaged))
    with (
        pytest.warns(UserWarning, match="changed since"),
        pytest.raises(DataError, match="Parquet"),
    ):
        rmlab.read_scores(path)
