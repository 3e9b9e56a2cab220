"""Preference pairs of one's own: the usual layouts, the shared prompt, and what is refused."""

import json

import numpy as np
import pandas as pd
import pytest

from rmlab.benchmarks import load_pairs
from rmlab.metrics import pairs
from rmlab.tables import DataError, check_responses


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
    assert responses.attrs["understood"]["prompt"] == f"column {name!r}"


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


def test_answers_may_be_equal():
    same = [user("Is it?"), assistant("yes")]
    responses = load_pairs(pd.DataFrame({"chosen": [same], "rejected": [same]}))
    assert responses["response"].tolist() == ["yes", "yes"]


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
    assert responses.attrs["understood"]["rejected"] == "rejected: 1 to 2 a prompt"
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


def test_csv_and_text_that_must_not_change(tmp_path):
    odd = 'NA, "quoted"\r\n\u05e9\u05dc\u05d5\u05dd $x$ <b>'
    frame = pd.DataFrame(
        {"id": ["007", "nan"], "prompt": [odd, "2?"], "chosen": ["None", "b"], "rejected": ["null", odd]}
    )
    frame.to_csv(tmp_path / "pairs.csv", index=False)
    responses = load_pairs(tmp_path / "pairs.csv")
    assert responses["response"].tolist() == ["None", "null", "b", odd]
    assert responses["prompt"].tolist() == [odd, odd, "2?", "2?"]
    assert responses["id"].tolist() == ["007", "007", "nan", "nan"]
    assert set(responses["benchmark"]) == {"pairs"}


def test_transcripts_inside_answers_stay_where_a_prompt_is_given():
    story = "Human: who?\n\nAssistant: me\n\nHuman: ah"
    responses = load_pairs(pd.DataFrame({"prompt": ["Write a dialogue"], "chosen": [story], "rejected": ["no"]}))
    assert responses["response"].tolist() == [story, "no"]


def test_a_prompt_that_only_some_answers_repeat_stays():
    frame = pd.DataFrame({"prompt": ["Say hi", "Say ho"], "chosen": ["Say hi!", "ho"], "rejected": ["no", "no"]})
    assert load_pairs(frame)["response"].tolist() == ["Say hi!", "no", "ho", "no"]


def test_the_frame_given_is_not_changed():
    frame = pd.DataFrame({"prompt": ["1?"], "chosen": [["a", "b"]], "rejected": [np.array(["c"], dtype=object)]})
    before = frame.copy(deep=True)
    responses = load_pairs(frame)
    assert frame.to_dict("list").keys() == before.to_dict("list").keys()
    assert frame["chosen"].tolist() == before["chosen"].tolist()
    pd.testing.assert_frame_equal(responses, check_responses(responses))


def test_duplicate_prompts_are_legal():
    frame = pd.DataFrame({"prompt": ["1?", "1?"], "chosen": ["a", "b"], "rejected": ["c", "d"]})
    assert load_pairs(frame)["id"].tolist() == ["0", "0", "1", "1"]


def test_what_was_understood():
    frame = pd.DataFrame({"question": ["1?"], "chosen": ["yes" * 200], "rejected": ["no"], "weight": [1]})
    assert load_pairs(frame, name="mine").attrs["understood"] == {
        "prompts": 1,
        "chosen": "chosen: 1 a prompt",
        "rejected": "rejected: 1 a prompt",
        "prompt": "column 'question'",
        "id": "row number",
        "domain": "name",
        "looks_like": "preference pairs of your own: load_pairs(...)",
        "ignored": ["weight"],
        "first": {
            "id": "'0'",
            "prompt": "'1?'",
            "chosen": "['" + "yes" * 65 + "...",
            "rejected": "['no']",
        },
    }


def test_a_benchmark_s_file_is_recognised():
    three = {"id": "1", "prompt": "1?", "chosen": ["a", "b", "c"], "rejected": ["d", "e", "f"]}
    assert "RM-Bench" in load_pairs(pd.DataFrame([three])).attrs["understood"]["looks_like"]


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
    file = shared_data / "rewardbench" / "math_prm_447.scores.rewardmath.jsonl"
    math = load_pairs(file)
    raw = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(math) == 2 * 447
    assert math["response"].tolist() == ["\n".join(r[f"{side}_steps"]) for r in raw for side in ("chosen", "rejected")]
    assert set(math["domain"]) == {"math-prm"}
    assert "scores" in math.attrs["understood"]["ignored"]


BAD = {
    "no rejected": ({"prompt": "1?", "chosen": "a"}, r"no column for rejected; found: prompt, chosen; say which"),
    "no prompt": ({"chosen": "a", "rejected": "b"}, r"'prompt' must be a prompt.*columns=\{'prompt': ...\}"),
    "empty chosen": ({"prompt": "1?", "chosen": "", "rejected": "b"}, r"row 0: 'chosen' must be a non-empty string"),
    "empty list": ({"prompt": "1?", "chosen": [], "rejected": ["b"]}, r"'chosen' must be .* has \[\]; fill in"),
    "missing": ({"prompt": "1?", "chosen": None, "rejected": "b"}, r"'chosen' must be .* has None"),
    "number": ({"prompt": "1?", "chosen": "a", "rejected": 5}, r"'rejected' must be .* has 5"),
    "empty answer": (
        {"chosen": [user("1?"), assistant("")], "rejected": [user("1?"), assistant("b")]},
        r"'chosen' must be a list of non-empty strings",
    ),
    "other prompts": (
        {"chosen": [user("1?"), assistant("a")], "rejected": [user("2?"), assistant("b")]},
        r"to the same prompt as all others of the row \(the conversations differ before their last message\)",
    ),
    "other lengths": (
        {"chosen": [user("1?"), assistant("a")], "rejected": [user("1?"), assistant("b"), user("c"), assistant("d")]},
        r"the conversations differ before their last message",
    ),
    "other transcripts": (
        {"chosen": "\n\nHuman: 1?\n\nAssistant: a", "rejected": "\n\nHuman: 2?\n\nAssistant: b"},
        r"the conversations differ before their last message",
    ),
    "ends with the user": (
        {"chosen": [user("1?"), assistant("a")], "rejected": [assistant("a"), user("1?")]},
        r"a conversation ends with the role 'user'",
    ),
    "mixed": ({"chosen": [user("1?"), assistant("a")], "rejected": "b"}, r"some answers are conversations, others"),
    "prompt is a number": ({"prompt": 5, "chosen": "a", "rejected": "b"}, r"'prompt' must be a string, or a list of"),
    "a result file": ({"id": 1, "score_chosen": [1], "score_rejected": [0]}, r"looks like a file of scores: read_sc"),
}


@pytest.mark.parametrize(("row", "message"), BAD.values(), ids=BAD)
def test_bad_rows_are_refused(row, message):
    with pytest.raises(DataError, match=message):
        load_pairs(pd.DataFrame([row]))


def test_half_an_emoji_is_refused():
    frame = pd.DataFrame({"prompt": ["a"], "chosen": ["b"], "rejected": [["c", "d \ud83d"]]})
    with pytest.raises(DataError, match=r"frame: row 0: a text holds half of a surrogate pair"):
        load_pairs(frame)


def test_half_a_prompt_is_refused():
    frame = pd.DataFrame({"instruction": ["Add."], "input": ["1, 2"], "chosen": ["3"], "rejected": ["4"]})
    with pytest.raises(DataError, match=r"may be 'instruction', 'input', or both; name one .*'\\n\\n' \+"):
        load_pairs(frame)
    assert load_pairs(frame, columns={"prompt": "instruction"})["prompt"].unique().tolist() == ["Add."]
    whole = frame.assign(prompt=frame["instruction"] + "\n\n" + frame["input"])
    assert load_pairs(whole)["prompt"].unique().tolist() == ["Add.\n\n1, 2"]


def test_bad_arguments(tmp_path):
    frame = pd.DataFrame({"id": [1, 1], "prompt": ["1?", "2?"], "chosen": ["a", "b"], "rejected": ["c", "d"]})
    with pytest.raises(DataError, match=r"row 1: 'id' '1' is already row 0; .*columns=\{'id': None\}"):
        load_pairs(frame)
    assert load_pairs(frame, columns={"id": None})["id"].tolist() == ["0", "0", "1", "1"]
    with pytest.raises(DataError, match=r"columns\['chosen'\]: no column 'choosen'; .*did you mean 'chosen'"):
        load_pairs(frame, columns={"chosen": "choosen"})
    with pytest.raises(DataError, match=r"'winner' is not a name that load_pairs knows"):
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
