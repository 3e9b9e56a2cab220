"""The checks at the border: legal tables pass in the contract's shape, illegal ones name the value."""

import numpy as np
import pandas as pd
import pytest

from rmlab import tables
from rmlab.tables import DataError


@pytest.fixture
def responses():
    rows = [
        ("b", "chat", "0", label, slot, style, "Why?", f"{label} {style}")
        for label in ("chosen", "rejected")
        for slot, style in enumerate(tables.STYLES)
    ]
    return pd.DataFrame(rows, columns=["benchmark", "domain", "id", "label", "slot", "style", "prompt", "response"])


def test_responses_take_the_contract_shape_and_leave_the_input_alone(responses):
    before = responses.copy(deep=True)
    checked = tables.check_responses(responses.assign(note="kept"))
    assert list(checked.columns) == [*tables.RESPONSES, "note"]
    assert checked["style"].dtype == tables.STYLE
    assert (checked["subset"] == checked["domain"]).all()
    pd.testing.assert_frame_equal(responses, before)
    pd.testing.assert_frame_equal(tables.check_responses(checked), checked)


@pytest.mark.parametrize("text", ["🙂", "שלום", "   \n", "<script>x</script>", "$x$ `$`", "x" * 1_000_000])
def test_odd_but_legal_text_passes_unchanged(responses, text):
    responses.loc[0, "response"] = text
    assert tables.check_responses(responses)["response"].iloc[0] == text


def test_a_conversation_is_a_legal_prompt(responses):
    messages = [{"role": "user", "content": "Why?"}]
    responses["prompt"] = [messages] * len(responses)
    assert tables.check_responses(responses)["prompt"].iloc[0] == messages


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("style", "fancy", "'fancy'"),
        ("label", "best", "'best'"),
        ("label", None, "label"),
        ("response", "", "response"),
        ("response", 3, "response"),
        ("prompt", None, "prompt"),
        ("prompt", [{"role": "user"}], "messages"),
        ("slot", -1, "slot"),
        ("slot", "one", "'one'"),
        ("id", None, "id"),
    ],
)
def test_a_bad_value_is_named_with_its_place(responses, column, value, words):
    responses[column] = [*responses[column][:4], value, *responses[column][5:]]
    with pytest.raises(DataError, match="row 4") as caught:
        tables.check_responses(responses)
    assert words in str(caught.value)
    assert column in str(caught.value)


def test_repeated_keys_and_absent_columns_are_refused(responses):
    with pytest.raises(DataError, match="repeat a key"):
        tables.check_responses(pd.concat([responses, responses.head(1)]))
    with pytest.raises(DataError, match=r"missing columns \['slot'\]"):
        tables.check_responses(responses.drop(columns="slot"))
    with pytest.raises(TypeError, match="DataFrame"):
        tables.check_responses([1, 2])


def test_messages_show_plain_values_and_where_such_a_table_comes_from(responses, make_scores):
    scores = make_scores()
    for broken in (scores.assign(score=np.nan), pd.concat([scores, scores.head(1)])):
        with pytest.raises(DataError) as caught:
            tables.check_scores(broken)
        assert "np." not in str(caught.value)
    with pytest.raises(DataError, match=r"rmlab\.score\(responses"):
        tables.check_scores(responses)
    with pytest.raises(DataError, match=r"rmlab\.pairs\(scores\)"):
        tables.check_pairs(scores)
    with pytest.raises(DataError, match=r"row 1 .*'model'.* has 'high'"):
        tables.check_scores(scores.head(2).assign(score=[1.0, "high"]))


def test_missing_scores_raise_unless_allowed(make_scores):
    scores = make_scores()
    scores.loc[3, "score"] = np.nan
    with pytest.raises(DataError, match="allow_missing"):
        tables.check_scores(scores)
    assert tables.check_scores(scores, allow_missing=True)["score"].isna().sum() == 1
    scores.loc[3, "score"] = np.inf
    with pytest.raises(DataError, match="inf"):
        tables.check_scores(scores, allow_missing=True)
    with pytest.raises(DataError, match="'high'"):
        tables.check_scores(make_scores().astype({"score": object}).replace({"score": {0.0: "high"}}))


def test_scores_of_other_texts_are_refused(make_scores):
    scores = make_scores()
    responses = scores[tables.KEY].drop_duplicates()
    tables.check_match(scores, responses)
    with pytest.raises(DataError, match="no text in responses"):
        tables.check_match(scores, responses.iloc[1:])


def test_pairs_make_outcome_and_level_from_margin_and_styles():
    frame = pd.DataFrame(
        {"model": "m", "benchmark": "b", "domain": "d", "id": ["0", "1", "2", "3"], "chosen_slot": 0}
        | {"rejected_slot": 0, "chosen_style": "plain", "rejected_style": ["plain", "concise", "markdown", None]}
        | {"margin": [1.0, -1.0, 0.0, np.nan]}
    )
    checked = tables.check_pairs(frame)
    assert checked["outcome"].astype(object).where(checked["outcome"].notna(), None).tolist() == [
        "win",
        "loss",
        "tie",
        None,
    ]
    assert checked["level"].astype(object).where(checked["level"].notna(), None).tolist() == [
        "normal",
        "easy",
        "hard",
        None,
    ]
    assert list(checked.columns) == tables.PAIRS
    judged = tables.check_pairs(frame.drop(columns="margin").assign(outcome="win"))
    assert judged["margin"].isna().all()
    with pytest.raises(DataError, match="outcome"):
        tables.check_pairs(frame.drop(columns="margin"))
