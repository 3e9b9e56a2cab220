"""Preference pairs of one's own: the usual layouts, the shared prompt, and what is refused."""

import json

import pandas as pd
import pytest

from rmlab.benchmarks import load_pairs
from rmlab.metrics import pairs
from rmlab.tables import DataError


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def texts(responses):
    return [(str(label), slot, text) for label, slot, text in responses[["label", "slot", "response"]].values.tolist()]


BOTH = [("chosen", 0, "yes"), ("rejected", 0, "no")]
LAYOUTS = {
    "strings": {"prompt": "Is it?", "chosen": "yes", "rejected": "no"},
    "messages": {"chosen": [user("Is it?"), assistant("yes")], "rejected": [user("Is it?"), assistant("no")]},
    "prompt and messages": {
        "prompt": "Is it?",
        "chosen": [user("Is it?"), assistant("yes")],
        "rejected": [user("Is it?"), assistant("no")],
    },
    "prompt messages": {"prompt": "Is it?", "chosen": [assistant("yes")], "rejected": [assistant("no")]},
    "transcript": {"chosen": "\n\nHuman: Is it?\n\nAssistant: yes", "rejected": "\n\nHuman: Is it?\n\nAssistant: no"},
    "chatml": {
        "chosen": "<|im_start|>user\nIs it?<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n",
        "rejected": "<|im_start|>user\nIs it?<|im_end|>\n<|im_start|>assistant\nno<|im_end|>\n",
    },
    "prompt repeated": {"prompt": "Is it?", "chosen": "Is it?\nyes", "rejected": "Is it?\nno"},
}


@pytest.mark.parametrize("row", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("suffix", ["frame", "json", "jsonl", "parquet"])
def test_layouts(tmp_path, row, suffix):
    source = pd.DataFrame([row])
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
        source.to_parquet(tmp_path / "mine.parquet")
    elif suffix != "frame":
        (tmp_path / f"mine.{suffix}").write_text(json.dumps([row] if suffix == "json" else row), encoding="utf-8")
    responses = load_pairs(source if suffix == "frame" else tmp_path / f"mine.{suffix}", name="mine")
    assert texts(responses) == BOTH
    assert responses["prompt"].tolist() == ["Is it?"] * 2
    assert set(responses["benchmark"]) == set(responses["domain"]) == set(responses["subset"]) == {"mine"}
    assert responses["style"].isna().all()
    assert set(responses["id"]) == {"0"}


@pytest.mark.parametrize("name", ["prompt", "question", "input", "messages", "instruction"])
def test_names_of_the_prompt(name):
    responses = load_pairs(pd.DataFrame({name: ["Is it?"], "chosen": ["yes"], "rejected": ["no"]}))
    assert responses["prompt"].tolist() == ["Is it?"] * 2
    assert responses.attrs["understood"]["columns"]["prompt"] == [name]


def test_a_conversation_keeps_its_earlier_turns():
    start = [{"role": "system", "content": "Be short."}, user("Hi"), assistant("Hello"), user("Is it?")]
    expected = pd.DataFrame({"chosen": [[*start, assistant("yes")]], "rejected": [[*start, assistant("no")]]})
    responses = load_pairs(expected)
    assert responses["prompt"].tolist() == [start, start]
    assert texts(responses) == BOTH
    by_column = pd.DataFrame({"messages": [start], "chosen": ["yes"], "rejected": ["no"]})
    assert load_pairs(by_column)["prompt"].tolist() == [start, start]
    said = "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: Is it?\n\nAssistant: "
    spoken = load_pairs(pd.DataFrame({"chosen": [said + "yes"], "rejected": [said + "no"]}))
    assert spoken["prompt"].tolist() == [start[1:], start[1:]]
    assert texts(spoken) == BOTH


def test_several_answers():
    frame = pd.DataFrame(
        {
            "prompt": ["1?", "2?"],
            "chosen": [["a"], ["b", "B"]],
            "rejected": [["c", "d"], ["e"]],
        }
    )
    responses = load_pairs(frame)
    assert texts(responses[responses["id"] == "0"]) == [("chosen", 0, "a"), ("rejected", 0, "c"), ("rejected", 1, "d")]
    assert texts(responses[responses["id"] == "1"]) == [("chosen", 0, "b"), ("chosen", 1, "B"), ("rejected", 0, "e")]
    assert len(pairs(responses.assign(model="m", score=0.5))) == 4
    talks = [[user("1?"), assistant("c")], [user("1?"), assistant("d")]]
    of_messages = load_pairs(pd.DataFrame({"chosen": [[user("1?"), assistant("a")]], "rejected": [talks]}))
    assert texts(of_messages) == texts(responses[responses["id"] == "0"])


def test_columns_of_other_names():
    frame = pd.DataFrame(
        {"q": ["1?"], "good": ["yes"], "bad_1": ["no"], "bad_2": ["never"], "key": [7.0], "kind": ["sums"], "id": ["x"]}
    )
    columns = {"prompt": "q", "chosen": "good", "rejected": ["bad_1", "bad_2"], "id": "key", "domain": "kind"}
    responses = load_pairs(frame, columns=columns, name="mine")
    assert texts(responses) == [("chosen", 0, "yes"), ("rejected", 0, "no"), ("rejected", 1, "never")]
    assert set(responses["id"]) == {"7"}
    assert set(responses["domain"]) == set(responses["subset"]) == {"sums"}
    assert responses.attrs["understood"]["ignored"] == ["id"]


def test_transcripts_inside_answers_stay_where_a_prompt_is_given():
    story = "Human: who?\n\nAssistant: me\n\nHuman: ah"
    responses = load_pairs(pd.DataFrame({"prompt": ["Write a dialogue"], "chosen": [story], "rejected": ["no"]}))
    assert responses["response"].tolist() == [story, "no"]


def test_a_prompt_that_only_some_answers_repeat_stays():
    frame = pd.DataFrame({"prompt": ["Say hi", "Say ho"], "chosen": ["Say hi!", "ho"], "rejected": ["no", "no"]})
    assert load_pairs(frame)["response"].tolist() == ["Say hi!", "no", "ho", "no"]


def test_what_was_understood():
    frame = pd.DataFrame({"question": ["1?"], "chosen": ["yes"], "rejected": ["no"], "weight": [1], "score": [2.5]})
    frame["critique"] = "long " * 100
    assert load_pairs(frame, name="mine").attrs["understood"] == {
        "columns": {"prompt": ["question"], "chosen": ["chosen"], "rejected": ["rejected"]},
        "extra": ["weight"],
        "ignored": ["score", "critique"],
    }


@pytest.mark.parametrize("name", ["subset", "domain"])
def test_a_list_is_no_name_of_a_part(tmp_path, name):
    row = {"prompt": "1?", "chosen": "a", "rejected": "b", name: ["x", "y"]}
    (tmp_path / "x.jsonl").write_text(json.dumps(row))
    for source in (pd.DataFrame([row]), tmp_path / "x.jsonl"):
        with pytest.raises(DataError, match=rf"row 0: '{name}' .*\['x', 'y'\]"):
            load_pairs(source)


WINNERS = {
    "beside ties": ("winner", [1, 2, 0]),
    "labels with ties": ("labels", [1.0, 0.0, 0.5]),
    "true and false": ("label", [True, False]),
    "signs with ties": ("winner", ["A>>B", "B > A", "A=B"]),
    "words": ("winner", ["model_a", "model_b", "tie"]),
}


@pytest.mark.parametrize(("column", "winners"), WINNERS.values(), ids=WINNERS)
@pytest.mark.parametrize("suffix", ["frame", "csv"])
def test_ways_to_write_a_winner(tmp_path, column, winners, suffix):
    n = len(winners)
    frame = pd.DataFrame({"prompt": list("123")[:n], "response_a": list("abc")[:n], "response_b": list("xyz")[:n]})
    frame[column] = winners
    if suffix == "csv":
        frame.to_csv(tmp_path / "x.csv", index=False)
    responses = load_pairs(frame if suffix == "frame" else tmp_path / f"x.{suffix}", winner=column)
    assert responses["response"].tolist() == ["a", "x", "y", "b"]
    assert responses["id"].tolist() == ["0", "0", "1", "1"]
    left_out = responses.attrs["understood"]["without_winner"]
    assert left_out["ties"] + sum(left_out["unknown"].values()) == n - 2


@pytest.mark.parametrize("winners", [[0, 1], [1, 1], ["0", "1"], [True, False]])
def test_a_winner_that_may_mean_either_side_is_refused(winners):
    frame = pd.DataFrame({"prompt": ["1?", "2?"], "response_a": ["a", "b"], "response_b": ["x", "y"], "best": winners})
    with pytest.raises(DataError, match=r"'best'.*'a' and 'b'"):
        load_pairs(frame, winner="best")
    numbered = frame.rename(columns={"response_a": "response_0", "response_b": "response_1", "best": "label"})
    with pytest.raises(DataError, match=r"'label'.*'a' and 'b'"):
        load_pairs(numbered, winner="label", columns={"a": "response_0", "b": "response_1"})


def test_real_files(shared_data):
    llmbar = load_pairs(shared_data / "rewardbench" / "llmbar_419.jsonl")
    assert len(llmbar) == 2 * 419
    assert llmbar["domain"].value_counts().to_dict() == {
        "llmbar-adver-neighbor": 268,
        "llmbar-natural": 200,
        "llmbar-adver-GPTInst": 184,
        "llmbar-adver-GPTOut": 94,
        "llmbar-adver-manual": 92,
    }


ONE_PROMPT = r"'rejected' must be conversations with one prompt"

BAD = {
    "no rejected": ({"prompt": "1?", "chosen": "a"}, r"no column for rejected.*prompt.*columns="),
    "no prompt": ({"chosen": "a", "rejected": "b"}, r"row 0: 'prompt' must be .*columns=\{'prompt': ...\}"),
    "empty chosen": ({"prompt": "1?", "chosen": "", "rejected": "b"}, r"row 0: 'chosen' must be a non-empty string"),
    "empty list": ({"prompt": "1?", "chosen": [], "rejected": ["b"]}, r"'chosen' must be .* has \[\]; fill in"),
    "other prompts": (
        {"chosen": [user("1?"), assistant("a")], "rejected": [user("2?"), assistant("b")]},
        ONE_PROMPT,
    ),
    "ends with the user": (
        {"chosen": [user("1?"), assistant("a")], "rejected": [assistant("a"), user("1?")]},
        ONE_PROMPT,
    ),
    "mixed": ({"chosen": [user("1?"), assistant("a")], "rejected": "b"}, ONE_PROMPT),
}


@pytest.mark.parametrize(("row", "message"), BAD.values(), ids=BAD)
def test_bad_rows_are_refused(row, message):
    with pytest.raises(DataError, match=message):
        load_pairs(pd.DataFrame([row]))


def test_half_a_prompt_is_refused():
    frame = pd.DataFrame({"instruction": ["Add."], "input": ["1, 2"], "chosen": ["3"], "rejected": ["4"]})
    with pytest.raises(DataError, match=r"may be 'instruction', 'input', or both; name one "):
        load_pairs(frame)
    assert load_pairs(frame, columns={"prompt": "instruction"})["prompt"].unique().tolist() == ["Add."]
    whole = frame.assign(prompt=frame["instruction"] + "\n\n" + frame["input"])
    assert load_pairs(whole)["prompt"].unique().tolist() == ["Add.\n\n1, 2"]


def test_bad_arguments(tmp_path):
    frame = pd.DataFrame({"id": [1, 1], "prompt": ["1?", "2?"], "chosen": ["a", "b"], "rejected": ["c", "d"]})
    with pytest.raises(DataError, match=r"'id' '1' .*columns=\{'id': None\}"):
        load_pairs(frame)
    assert load_pairs(frame, columns={"id": None})["id"].tolist() == ["0", "0", "1", "1"]
    with pytest.raises(DataError, match=r"columns\['chosen'\]: no column 'choosen'; .*did you mean 'chosen'"):
        load_pairs(frame, columns={"chosen": "choosen"})
    with pytest.raises(DataError, match=r"columns: .*'winner'"):
        load_pairs(frame, columns={"winner": "chosen"})
    with pytest.raises(DataError, match="the frame has no rows"):
        load_pairs(frame[:0])
    (tmp_path / "cut.csv").write_text('prompt,chosen,rejected\n1?,a,"b')
    with pytest.raises(DataError, match=r"cut.csv: line 2 is not CSV .*may be cut off"):
        load_pairs(tmp_path / "cut.csv")
    with pytest.raises(DataError, match="no such file"):
        load_pairs(tmp_path / "nothing.jsonl")
    with pytest.raises(DataError, match="no such file"):
        load_pairs("nothing.csv")
