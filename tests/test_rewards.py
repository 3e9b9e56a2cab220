"""A list of answers without labels: people's own table gets a column, and nothing else
changes.
"""

import json

import numpy as np
import pandas as pd
import pytest
from fakes import Streaming, truth

import rmlab
from rmlab.tables import DataError

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Name a prime."},
]


def answers():
    """Rows of a generation run: prompts out of order, an odd index, columns of all
    types, one of them with a name of ours.
    """
    return pd.DataFrame(
        {
            "when": pd.to_datetime(["2026-01-01", None, "2026-01-03", "2026-01-04"]),
            "question": ["b?", "a?", "b?", "a?"],
            "answer": ["Long answer.", "No.", "Yes.", "Long answer."],
            "label": [3, 1, 2, 7],
            "meta": [{"k": 1}, None, [1, 2], "x"],
            "score": pd.array([1, None, 3, 4], dtype="Int64"),
        },
        index=["w", "x", "x", "z"],
    )


def score_answers(frame, model=None, **options):
    scorer = Streaming() if model is None else model
    names = {"prompt": "question", "response": "answer"}
    return rmlab.rewards(frame, scorer, **names, **options)


def test_rows_and_other_columns_stay_as_they_are():
    frame = answers()
    before = frame.copy(deep=True)
    scored = score_answers(frame)
    pd.testing.assert_frame_equal(frame, before)
    pd.testing.assert_frame_equal(scored.drop(columns="reward"), before)
    rows = zip(frame["question"], frame["answer"], strict=True)
    expected = [truth(question, answer) for question, answer in rows]
    np.testing.assert_array_equal(scored["reward"], expected)


@pytest.mark.parametrize(
    ("column", "cell", "missing"),
    [
        ("answer", None, [1]),
        ("answer", np.nan, [1]),
        ("answer", pd.NA, [1]),
        ("answer", "", [1]),
        ("answer", " \n", [1]),
        ("question", None, [1]),
        # An empty prompt is one.
        ("question", "", []),
    ],
)
def test_what_is_missing_has_a_missing_reward(column, cell, missing):
    frame = answers().astype({column: object})
    frame.iloc[1, frame.columns.get_loc(column)] = cell
    scored = score_answers(frame)
    assert np.flatnonzero(scored["reward"].isna()).tolist() == missing
    assert score_answers(answers().assign(answer=None))["reward"].isna().all()
    assert score_answers(answers()[:0])["reward"].dtype == np.float64


def test_no_number_of_the_model_is_refused_by_its_row_or_allowed():
    frame = answers()

    def refuses(prompts, responses):
        return [np.nan if text == "Yes." else 1.0 for text in responses]

    with pytest.raises(DataError, match="row 2"):
        score_answers(frame, refuses)
    scored = score_answers(frame, refuses, allow_missing=True)
    np.testing.assert_array_equal(scored["reward"], [1, 1, np.nan, 1])


@pytest.mark.parametrize(
    ("prompt", "response"),
    [
        (CHAT, "Seven."),
        (CHAT, [{"role": "assistant", "content": "Seven."}]),
        (CHAT[:1], [CHAT[1], {"role": "assistant", "content": "Seven."}]),
        (np.array(CHAT, object), "Seven."),
        (None, [*CHAT, {"role": "assistant", "content": "Seven."}]),
    ],
)
def test_chats_are_lists_of_messages(prompt, response):
    seen = []

    def model(prompts, responses):
        seen.extend(zip(prompts, responses, strict=True))
        return [1.0] * len(prompts)

    frame = pd.DataFrame({"prompt": [prompt], "response": [response]})
    column = None if prompt is None else "prompt"
    scored = rmlab.rewards(frame, model, prompt=column)
    assert seen == [(CHAT, "Seven.")]
    assert scored["reward"].tolist() == [1.0]


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("question", 5),
        ("question", []),
        ("question", [{"role": "user"}]),
        ("answer", {"content": "x"}),
        ("answer", [{"role": "user", "content": "x"}]),
        ("answer", "\ud800"),
    ],
)
def test_a_cell_that_is_no_text_is_named_by_its_row(column, cell):
    frame = answers()
    cells = frame[column].tolist()
    cells[2] = cell
    frame[column] = pd.Series(cells, index=frame.index, dtype=object)
    with pytest.raises(DataError, match=f"row 2.*{column}"):
        score_answers(frame)


def test_a_store_keeps_scores_and_no_table_of_a_benchmark(tmp_path):
    scored = score_answers(answers(), store=tmp_path)
    again = score_answers(answers(), Streaming(), store=tmp_path)
    assert again.attrs["provenance"]["fake"]["scored"] == 0
    np.testing.assert_array_equal(again["reward"], scored["reward"])
    assert list(tmp_path.rglob("*.csv")) == []


def test_misuse_is_named():
    with pytest.raises(DataError, match="reward"):
        score_answers(answers().assign(reward=1.0))
    with pytest.raises(DataError, match="2 models"):
        score_answers(answers(), ["longest", "shortest"])


# The command.


ROWS = [
    {"prompt": "Hi", "response": "Hello there.", "step": 1, "tags": ["a"]},
    {"prompt": CHAT, "response": None, "note": "cut"},
    {"prompt": CHAT, "response": "Seven.", "step": 2, "big": 2**60 + 1},
]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_objects_keep_their_fields(main, tmp_path):
    file = write_lines(tmp_path / "in.jsonl", ROWS)
    out = tmp_path / "out.jsonl"
    code, printed, err = main("rewards", file, "longest", "-q", "-o", out)
    assert (code, printed, err.count("\n")) == (0, "", 1)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    rewards = [12.0, None, 6.0]
    assert rows == [row | {"reward": x} for row, x in zip(ROWS, rewards, strict=True)]


def test_a_csv_file_keeps_its_cells(main, tmp_path):
    file = tmp_path / "in.csv"
    file.write_text('q,a,share\n"x, y",Yes.,"0.50"\nx,,007\n')
    out = tmp_path / "out.csv"
    words = ("--prompt", "q", "--response", "a", "-q", "-o", out)
    assert main("rewards", file, "longest", *words)[0] == 0
    assert out.read_text() == 'q,a,share,reward\n"x, y",Yes.,0.50,4.0\nx,,007,\n'
