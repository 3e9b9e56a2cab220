"""People's own files: each layout goes from the file to rows, or ends with what to
type. Many of the cases were read otherwise than they mean.
"""

import contextlib
import gzip
import json
import zlib

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rmlab
from rmlab import load_pool, load_preferences, read_scores
from rmlab.io import join
from rmlab.tables import ITEM, KEY, DataError, check_match


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **fields):
    return {"role": "assistant", "content": text, **fields}


def system(text):
    return {"role": "system", "content": text}


def rows(**columns):
    """Rows of columns; what is no list is the same in each row."""
    lists = [cells for cells in columns.values() if isinstance(cells, list)]
    made = []
    for row in range(max(map(len, lists), default=1)):
        cells = columns.items()
        made.append({n: c[row] if isinstance(c, list) else c for n, c in cells})
    return made


def battles(column, cells, **fields):
    """A battle a cell, each with a prompt of its own."""
    prompts = [f"p{n}" for n in range(len(cells))]
    sides = {"prompt": prompts, "response_a": "x", "response_b": "y"}
    return rows(**sides, **{column: cells}, **fields)


def shown(responses):
    """The chosen and the rejected texts of each prompt: "a>b,c"."""
    comparisons = []
    for _, of_prompt in responses.groupby(["domain", "id"], sort=False):
        texts = of_prompt.groupby("label", observed=False)["response"]
        comparisons.append(">".join(texts.agg(lambda cells: ",".join(map(str, cells)))))
    return comparisons


def left_out(responses):
    return responses.attrs["understood"].get("left_out", {})


def write(content, path):
    """A list of rows or a frame as the file that its suffix says."""
    frame = pd.DataFrame(content)
    if path.suffix in (".csv", ".tsv"):
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_json(path, orient="records", lines=path.suffix == ".jsonl")
    return path


def margins(scores, models="AB"):
    table = rmlab.pairs(scores).pivot(index=ITEM, columns="model", values="margin")
    return [table[model].tolist() for model in models]


# Layouts: one set of three pairs, written in many ways.

PROMPTS = ["Two and two?", "Name a prime.", "Is it so?"]
RIGHT = ["4", "7", "yes"]
WRONG = ["5", "8", "no"]
PAIR = {"prompt": PROMPTS, "chosen": RIGHT, "rejected": WRONG}
CHOSEN = [2.0, 0.5, 1.0]
REJECTED = [1.0, 1.5, 1.0]
CHATML = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n{}<|im_end|>\n"


def with_answers(write_answer):
    """Pairs whose answers hold the prompt, written by a function of prompt and text."""
    return {
        "chosen": [*map(write_answer, PROMPTS, RIGHT)],
        "rejected": [*map(write_answer, PROMPTS, WRONG)],
    }


TALKS = with_answers(lambda prompt, text: [user(prompt), assistant(text)])
TEXTS = {
    "strings": PAIR,
    "question": {"question": PROMPTS, "chosen": RIGHT, "rejected": WRONG},
    "messages": {"messages": [[user(prompt)] for prompt in PROMPTS]}
    | with_answers(lambda _, text: [assistant(text)]),
    "conversations": TALKS,
    "prompt and conversations": PAIR | TALKS,
    "transcripts": with_answers("\n\nHuman: {}\n\nAssistant: {}".format),
    "chatml": with_answers(CHATML.format),
    "prompt repeated": PAIR | with_answers("{}\n{}".format),
}
SIDES = {
    "prompt": PROMPTS,
    "response_a": ["4", "8", "yes"],
    "response_b": ["5", "7", "no"],
    "score_a": [2.0, 1.5, 1.0],
    "score_b": [1.0, 0.5, 1.0],
}
ANSWERS = {
    "prompt": [prompt for prompt in PROMPTS for _ in "ab"],
    "response": ["4", "5", "7", "8", "yes", "no"],
    "score": [2.0, 1.0, 0.5, 1.5, 1.0, 1.0],
}
LISTS = {
    "prompt": PROMPTS,
    "responses": [["5", "4"], ["8", "7"], ["no", "yes"]],
    "labels": [[0, 1]] * 3,
    "scores": [[1.0, 2.0], [1.5, 0.5], [1.0, 1.0]],
}
BOTH = list(zip(CHOSEN, REJECTED, strict=True))
NAMED = [{"chosen": chosen, "rejected": rejected} for chosen, rejected in BOTH]
SCORED = {
    "score_chosen": PAIR | {"score_chosen": CHOSEN, "score_rejected": REJECTED},
    "chosen_score": PAIR | {"chosen_score": CHOSEN, "rejected_score": REJECTED},
    "object of scores": PAIR | {"scores": NAMED},
    "list of scores": PAIR | {"scores": [*map(list, BOTH)]},
    "winner a/b": SIDES | {"winner": ["a", "b", "a"]},
    "winner by column": SIDES | {"winner": ["response_a", "response_b", "a"]},
    "winner by name": SIDES
    | {"model_a": [*"xxY"], "model_b": [*"yyx"], "winner": [*"xyY"]},
    "label 1/0": ANSWERS | {"label": [1, 0] * 3},
    "label true/false": ANSWERS | {"label": [True, False] * 3},
    "label chosen/rejected": ANSWERS | {"label": ["chosen", "rejected"] * 3},
    "lists": LISTS,
}


@pytest.mark.parametrize("layout", [*TEXTS, *SCORED])
def test_layouts(tmp_path, layout):
    content = (TEXTS | SCORED)[layout]
    is_nested = any(isinstance(cells[0], list | dict) for cells in content.values())
    suffixes = ["json", "jsonl", "parquet"] + ["csv", "tsv"] * (not is_nested)
    paths = [write(content, tmp_path / f"mine.{suffix}") for suffix in suffixes]
    for source in (pd.DataFrame(content), *paths):
        responses = load_preferences(source, name="mine")
        assert responses["prompt"].tolist() == [p for p in PROMPTS for _ in "ab"]
        assert shown(responses) == ["4>5", "7>8", "yes>no"]
        assert set(responses["domain"]) == set(responses["subset"]) == {"mine"}
    for path in paths if layout in SCORED else ():
        scores = read_scores(path)
        check_match(scores, responses)
        assert rmlab.pairs(scores)["outcome"].tolist() == ["win", "loss", "tie"]
        assert scores["model"].unique().tolist() == ["mine"]


TWO = [("bad", 2.0), ("good", 1.0)]
SHARE = {"from": "gpt", "value": "good"}
PUBLIC = {
    "HelpSteer": rows(
        prompt=[*"ppqq"],
        response=["good", "bad", "x", "y"],
        helpfulness=[4, 1, 2, 2],
        verbosity=1,
    ),
    "UltraFeedback": rows(
        instruction="p",
        completions=[
            [{"model": "m", "response": text, "overall_score": -n} for text, n in TWO]
        ],
    ),
    "Nectar": rows(
        prompt="\n\nHuman: p\n\nAssistant:",
        answers=[[{"answer": text, "rank": n} for text, n in TWO]],
    ),
    "one-hot": rows(
        prompt="p",
        response_a="bad",
        response_b="good",
        winner_model_a=0,
        winner_model_b=1,
        winner_tie=0,
    ),
    "Kaggle": rows(
        prompt='["p"]',
        response_a='["bad"]',
        response_b='["good"]',
        winner_model_a=0,
        winner_model_b=1,
    ),
    "ranked": rows(parent="m", question="p", text=["good", "bad"], rank=[0, 1]),
    "PKU": rows(prompt="p", response_0="bad", response_1="good", better_response_id=1),
    "SHP": rows(
        history="p",
        human_ref_A="bad",
        human_ref_B="good",
        labels=0,
        score_A=3,
        score_B=9,
    ),
    "ShareGPT": rows(
        conversations=[[{"from": "human", "value": "p"}]],
        chosen=SHARE,
        rejected=SHARE | {"value": "bad"},
    ),
    "KTO": rows(
        prompt=[[user("p")]] * 2,
        completion=[[assistant("good")], [assistant("bad")]],
        label=[True, False],
    ),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_layouts(tmp_path, name):
    path = tmp_path / "data.jsonl.gz"
    lines = "".join(json.dumps(row) + "\n" for row in PUBLIC[name])
    path.write_bytes(gzip.compress(lines.encode()))
    for source in (PUBLIC[name], iter(PUBLIC[name]), path):
        responses = load_preferences(source)
        assert shown(responses) == ["good>bad"]
        assert "p" in str(responses["prompt"][0])
    # load_preferences sends answers without rivals there.
    if name == "KTO":
        assert load_pool(PUBLIC[name])["prompt"].tolist() == ["p", "p"]


ONE = {"prompt": "p", "chosen": "a", "rejected": "b"}
RANKS = [{"answer": "x", "rank": "2", "score": 9}, {"answer": "y", "rank": "1"}]
TALK = [user("1?"), assistant("a")]
PACKED = {"prompt": json.dumps([user("JSON?")])}
SAFER = PUBLIC["PKU"][0] | {"safer_response_id": 0}
NAMES = {
    "prompt": "p",
    "response_a": "x",
    "response_b": "y",
    "chosen": "response_b",
    "rejected": "response_a",
}
STORY = "Human: who?\n\nAssistant: me\n\nHuman: ah"
AB = {"prompt": "p", "response": [*"xy"]}
TIE = {"tie": 1}
ONLY = {"the only answer": 1}
READ = [  # Rows, options, what is compared, what is left out.
    ([ONE | {"chosen": ["a", "A"], "rejected": ["b", "c"]}], {}, ["a,A>b,c"], {}),
    # An answer that begins as the prompt does.
    ([ONE | {"chosen": "p!"}], {}, ["p!>b"], {}),
    ([{"chosen": TALK, "rejected": [TALK, TALK]}], {}, ["a>a,a"], {}),
    (rows(**AB | {"response": [*"abc"]}, rating=[3, 1, 3]), {}, ["a>b", "c>b"], TIE),
    (rows(prompt=[*"ppq"], response=[*"xyz"], rating=[1, 2, 3]), {}, ["y>x"], ONLY),
    (
        rows(prompt=[*"pq"], responses=[[*"xy"], []], ratings=[[1, 2], []]),
        {},
        ["y>x"],
        {"no answer": 1},
    ),
    ([{"prompt": "p", "answers": RANKS}], {}, ["y>x"], {}),
    ([SAFER], {"winner": "safer_response_id"}, ["bad>good"], {}),
    ([NAMES], {"columns": {"winner": "chosen"}}, ["y>x"], {}),
    # The model of an answer without a score is its author.
    (rows(**AB, label=[1, 0], model=["one", "two"]), {}, ["x>y"], {}),
    (
        rows(prompt=[*"pq"], chosen="x", r1=["y", None], r2="z"),
        {"columns": {"rejected": ["r1", "r2"]}},
        ["x>y,z", "x>z"],
        {},
    ),
    # JSON that an answer holds beside a packed prompt.
    ([PACKED | {"chosen": '["x", "y"]', "rejected": "[]"}], {}, ['["x", "y"]>[]'], {}),
]


@pytest.mark.parametrize("number", range(len(READ)))
def test_rows_that_were_read_otherwise(number):
    content, options, expected, lost = READ[number]
    responses = load_preferences(content, **options)
    assert shown(responses) == expected
    assert left_out(responses) == lost


CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
STEPS = [assistant(None, tool_calls=[CALL]), {"role": "tool", "content": "2"}]
START = [system("Be short."), user("Hi"), assistant("Hello"), user("Is it?")]
HUMAN = "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: Is it?\n\nAssistant: "
PARTS = [{"type": "text", "text": "Why"}, {"type": "text", "text": "?"}]


def ends(before):
    """Conversations that end with the answers a and b."""
    return {
        "chosen": [*before, assistant("a")],
        "rejected": [*before, assistant("b")],
    }


TOOLS = [{"name": "add", "a": "x"}, {"name": "sub", "b": "y"}]
PROMPTED = [  # A row and its prompt; the answers are a and b.
    (ONE | {"prompt": [user("1 + 1?")]} | ends(STEPS), [user("1 + 1?"), *STEPS]),
    (ONE | {"prompt": "1? "} | ends([user("1?")]), "1?"),
    (ends(START), START),
    ({"chosen": HUMAN + "a", "rejected": HUMAN + "b"}, START[1:]),
    (ONE | {"prompt": [{"role": "user", "content": PARTS}]}, "Why?"),
    (ONE | {"system": "Be brief."}, [system("Be brief."), user("p")]),
    (ONE | {"system": "s"} | ends([system("s"), user("p")]), [system("s"), user("p")]),
    (
        ONE | {"history": [user("Hi"), assistant("Hello")]},
        [user("Hi"), assistant("Hello"), user("p")],
    ),
    # Arrow gives each tool the fields of the other.
    (
        ONE | {"tools": TOOLS},
        [{"role": "tools", "content": json.dumps(TOOLS)}, user("p")],
    ),
    (ONE | {"prompt": "[3, 1, 2]"}, "[3, 1, 2]"),
]


@pytest.mark.parametrize("number", range(len(PROMPTED)))
def test_prompts_with_their_context(number):
    """What belongs to a prompt was dropped, or took its place. Null fields, which Arrow
    adds, are absent.
    """
    row, prompt = PROMPTED[number]
    for source in ([row], pa.Table.from_pylist([row]), pd.DataFrame([row])):
        responses = load_preferences(source)
        assert responses["prompt"].tolist() == [prompt, prompt]
        assert shown(responses) == ["a>b"]
    if "history" in row:
        frame = pd.DataFrame([row]).assign(response="22")
        assert rmlab.rewards(frame, "longest")["reward"].tolist() == [2.0]


def test_messages_keep_their_fields():
    call = {"function": {"name": "add", "arguments": {"a": 1, "b": None}}}
    row = {
        "prompt": "p",
        "chosen": [assistant(None, tool_calls=[call])],
        "rejected": [assistant("no", name=None)],
    }
    chosen, rejected = load_preferences([row])["response"]
    assert chosen["content"] is None
    assert chosen["tool_calls"][0]["function"]["arguments"] == {"a": 1}
    assert rejected == "no"
    story = load_preferences([ONE | {"chosen": STORY}])
    assert story["response"][0] == STORY


@pytest.mark.parametrize("write_cell", [json.dumps, repr])
def test_lists_in_cells_of_csv_are_read_where_the_whole_column_is(tmp_path, write_cell):
    frame = pd.DataFrame({"prompt": ["1?", "2?"]})
    for label in ("chosen", "rejected"):
        talks = [[user(prompt), assistant(label)] for prompt in frame["prompt"]]
        frame[label] = [*map(write_cell, talks)]
    path = write(frame, tmp_path / "uf.csv")
    assert shown(load_preferences(path)) == ["chosen>rejected"] * 2
    frame.loc[0, ["chosen", "rejected"]] = ["[1] is a list", "no"]
    assert shown(load_preferences(frame))[0] == "[1] is a list>no"


# Winners in words, numbers and grades.

WINNERS = [  # Column, cells, other columns; what is left out. First and last are a, b.
    ("winner", [1, "?", 2], {}, {"'?'": 1}),
    ("winner", ["A>>B", "A=B", "B > A"], {}, {"tie": 1}),
    ("winner", ["model_a", "tie", "model_b"], {}, {"tie": 1}),
    ("winner", ["response_a", "Tie (bothbad)", "b"], {}, {"tie": 1}),
    ("winner", ["a", None, "b"], {}, {"None": 1}),
    # A model against itself has no winner.
    ("winner", [*"mmM"], {"model_a": [*"mmn"], "model_b": [*"nmm"]}, {"'m'": 1}),
    ("winner", ["a", "-inf", "b"], {}, {"'-inf'": 1}),
    ("winner_a", ["1", "yes", "0"], {"winner_b": [*"001"]}, {"('yes', '0')": 1}),
    ("winner_a", [1, 0, 0], {"winner_b": [0, 0, 1]}, {"tie": 1}),
]


@pytest.mark.parametrize(("column", "cells", "others", "lost"), WINNERS)
def test_ways_to_write_a_winner(tmp_path, caplog, column, cells, others, lost):
    """Those without a winner are left out and counted; the others keep their ids."""
    content = battles(column, cells, score_a=1.0, score_b=0.0, **others)
    for source in (content, write(content, tmp_path / "x.csv")):
        responses = load_preferences(source)
        assert shown(responses) == ["x>y", "y>x"]
        assert responses["id"].tolist() == ["0", "0", "2", "2"]
        assert left_out(responses) == lost
        assert "left out" in caplog.text
    if column == "winner":
        assert read_scores(source)["id"].unique().tolist() == ["0", "2"]


GRADES = [  # Column, grades, strengths of x>y and y>x; the middle is left out.
    ("overall_preference", [-3, 0, 2], [3, 2]),
    ("overall_preference", [1, 3, 5], [2, 2]),
    ("preference_strength", [-2, 1], [2, 1]),
    ("winner", [-1, 0, 3], [1, 3]),
    ("winner", [1, 1.5, 2], [0.5, 0.5]),
    ("winner", [1, 4, 7], [3, 3]),
    ("winner", ["1", "3.0", "5"], [2, 2]),
    ("labels", [0, 1], [0.5, 0.5]),
]


@pytest.mark.parametrize(("column", "grades", "strengths"), GRADES)
def test_graded_preferences_say_their_direction(column, grades, strengths, caplog):
    """1 was read as the first answer and 2 as the second; other rows were lost."""
    content = battles(column, grades)
    if column != "winner":
        with pytest.raises(DataError, match="better='b' where"):
            load_preferences(content)
    responses = load_preferences(content, better="b")
    assert shown(responses) == ["x>y", "y>x"]
    assert responses["strength"].tolist()[::2] == strengths
    assert left_out(responses).get("tie", 0) == len(grades) - 2
    assert shown(load_preferences(content, better="a")) == ["y>x", "x>y"]
    assert f"scale {float(grades[0]):g} to {float(grades[-1]):g}" in caplog.text


def test_grades_of_one_sign_and_labels_of_shp():
    for column, grades, texts in (
        ("preference_strength", [1, 2], ["y>x", "y>x"]),
        ("overall_preference", [-2, -1], ["x>y", "x>y"]),
    ):
        responses = load_preferences(battles(column, grades), better="b")
        assert shown(responses) == texts
        assert responses["strength"].tolist()[::2] == [*map(abs, grades)]
    shp = {"prompt": [*"pqr"], "human_ref_a": "x", "human_ref_b": "y"}
    assert shown(load_preferences(rows(**shp, labels=[1, 0.5, 0]))) == ["x>y", "y>x"]
    assert shown(load_preferences(rows(**shp, label=[True, True, False])))[2] == "y>x"


# What is refused, and what to type.

BAD_SCALES = [[2, 4], [1, 4], [1, 1], [0.2, 0.9], [0, 10]]
SAID = system("Be long.")
IMAGE = {"role": "user", "content": [{"type": "image", "url": "x"}]}
ID = rows(id=1, prompt=["1?", "2?"], chosen="a", rejected="c")
LONG = {"id": 1, "prompt": "p", "response": [*"xy"], "label": [1, 0], "domain": "m"}
BAD = [  # Rows, options, what the message names.
    ([{"prompt": "1?", "chosen": "a"}], {}, "rejected.*columns="),
    ([{"chosen": "a", "rejected": "b"}], {}, r"row 0: no prompt.*--column prompt="),
    ([ONE | {"chosen": []}], {}, "row 0"),
    ([ONE | {"id": None}, ONE | {"id": "x"}], {}, "row 0.*'id' .*None"),
    ([ONE | {"prompt": "cut \ud83d"}], {}, "row 0: .*UTF-8"),
    ([ONE | {"images": ["x.png"]}], {}, "row 0"),
    ([ONE | {"prompt": [IMAGE]}], {}, "row 0"),
    ([{"chosen": TALK, "rejected": [user("2?"), assistant("b")]}], {}, "'rejected'"),
    ([ONE | {"prompt": "2?", "chosen": TALK, "rejected": TALK}], {}, "row 0"),
    ([ONE | {"system": "s", "prompt": [SAID, user("p")]}], {}, "row 0"),
    ([ONE | {"question": "q", "context": "c"}], {}, "'context'"),
    (
        [{"prompt": "p", "responses": [*"ab"], "labels": [1, 2]}],
        {},
        "'labels' .*1 or 0",
    ),
    ([SAFER], {}, "better_response_id"),
    (rows(prompt="p", completion=[*"ab"], label=True), {}, "load_pool"),
    (rows(**LONG) + rows(**LONG, subset="t"), {}, "'id' '1' occurs twice"),
    (
        battles("overall_preference", [1, 2, 3]),
        {"better": "b"},
        "'preference_strength'",
    ),
    *[(battles("winner", grades), {"better": "b"}, "middle") for grades in BAD_SCALES],
    (battles("winner", [1, 5, -1, 4]), {"better": "b"}, "-1"),
    (rows(prompt="p", response=[*"abcd"], rating=[1, 5, -1, None]), {}, "-1"),
    *[
        (battles("best", two), {"winner": "best"}, r"'best'.*'a' and 'b'")
        for two in ([0, 1], [1, 1], [True, False])
    ],
    (ID, {}, r"'id' '1' .*columns=\{'family': 'id'\}"),
    (ID, {"columns": {"chosen": "choosen"}}, r"\['chosen'\]: .*'choosen'; .*'chosen'"),
    (ID, {"columns": {"winner": "chosen"}}, "no column for a and b; .*columns="),
    ([], {}, "no rows"),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_what_is_refused(number):
    content, options, message = BAD[number]
    with pytest.raises(DataError, match=message):
        load_preferences(content, **options)


def test_a_remedy_can_be_followed():
    """Each message's next step, taken as it is written, leads on."""
    content = rows(ask=["1?", "2?"], left=["a", ""], right=[*"bc"], grade=[-1, 2])
    sides = {"a": "left", "b": "right"}
    steps = {
        "columns={'chosen'": {"columns": sides, "winner": "grade"},
        "better='b'": {"better": "b"},
        "columns={'prompt'": {"columns": sides | {"prompt": "ask"}},
        "on_bad_rows='drop'": {"on_bad_rows": "drop"},
    }
    options = {}
    for remedy, option in steps.items():
        with pytest.raises(DataError) as caught:
            load_preferences(content, **options)
        assert remedy in str(caught.value)
        options |= option
    assert len(load_preferences(content, **options)) == 2
    assert set(load_preferences(ID, columns={"family": "id"})["family"]) == {"1"}
    both = [ONE | {"question": "q"}]
    responses = load_preferences(both, columns={"prompt": "question"})
    assert set(responses["prompt"]) == {"q"}


@pytest.mark.parametrize("bad", ["", " \n", None, "label"])
def test_bad_rows_are_refused_or_dropped_and_counted(bad):
    prompts = [f"p{n // 2}" for n in range(8)]
    content = rows(prompt=prompts, response=[*"xy"] * 4, label=[1, 0] * 4)
    content[2]["response"] = content[5]["response"] = bad
    if bad == "label":
        content[2]["label"] = "perhaps"
        content[5]["response"] = ""
    with pytest.raises(DataError, match=r"row .*2 such.*on_bad_rows='drop'"):
        load_preferences(content)
    responses = load_preferences(content, on_bad_rows="drop")
    assert responses["prompt"].unique().tolist() == ["p0", "p3"]
    assert left_out(responses) == {"cannot be read": 2}


def test_what_was_understood(caplog):
    row = {"q": "1?", "good": "yes", "bad_1": "no", "bad_2": "never", "key": 7.0}
    row |= {"id": "x", "weight": 1, "score": 2.5, "critique": "long " * 100}
    columns = {"prompt": "q", "chosen": "good", "rejected": ["bad_1", "bad_2"]}
    responses = load_preferences([row], columns=columns | {"id": "key"})
    assert shown(responses) == ["yes>no,never"]
    assert [*responses[["id", "weight"]].iloc[0]] == ["7", 1]
    understood = responses.attrs["understood"]
    assert understood["columns"]["rejected"] == ["bad_1", "bad_2"]
    assert understood["extra"] == ["weight"]
    assert understood["ignored"] == ["id", "score", "critique"]

    load_preferences(rows(prompt="p", chosen="a", rejected=[*"bc"]))
    assert "pairs, 2 comparisons; 1 families" in caplog.text


# Where data come from.


def test_tables_of_other_libraries(tmp_path):
    frame = pd.DataFrame([ONE | {"chosen": ["a", "b"]}])
    assert shown(load_preferences(pa.Table.from_pandas(frame))) == ["a,b>b"]
    with pytest.raises(DataError, match=r"'train', 'test'.*source\['train'\]"):
        load_preferences({"train": frame, "test": frame})
    packed = tmp_path / "x.csv.zst"
    content = b"prompt,chosen,rejected\np,a,b\n"
    packed.write_bytes(pa.compress(content, codec="zstd", asbytes=True))
    assert set(load_preferences(packed)["benchmark"]) == {"x"}


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "cut.json.gz").write_bytes(zlib.compress(b"[]")[:5])
    (tmp_path / "cut.csv").write_text('prompt,chosen,rejected\n1?,a,"b')
    names = ["prompt", "chosen", "chosen", "chosen_score"]
    twice = pa.Table.from_arrays([pa.array(["a"])] * 4, names=names)
    pq.write_table(twice, tmp_path / "chosen.parquet")
    for name in ("cut.json.gz", "cut.csv", "chosen.parquet", "nothing.csv"):
        for load in (load_preferences, read_scores):
            with pytest.raises(DataError, match=name):
                load(tmp_path / name)
    with pytest.raises(DataError, match="chosen"):
        load_preferences(pd.DataFrame([["p", "a", "b", 1]], columns=names))


@pytest.mark.parametrize("depth", [200, 900])
def test_a_message_of_endless_nesting_is_refused_or_kept(tmp_path, depth):
    """It was a RecursionError."""
    nested = "[" * depth + "]" * depth
    message = f'{{"role": "user", "content": "x", "name": {nested}}}'
    answer = '{"role": "assistant", "content": "y"}'
    row = f'{{"chosen": [{message}, {answer}], "rejected": [{message}, {answer}]}}'
    path = tmp_path / "x.jsonl"
    path.write_text(f"{row}\n{row}")
    with contextlib.suppress(DataError):
        assert len(load_preferences(path)) == 4


# Scores.

MISTAKES = [
    (PAIR, "rmlab score"),
    (
        SCORED["chosen_score"] | {"reward_chosen": CHOSEN},
        "--column chosen_score=",
    ),
    ({"prompt": PROMPTS, "good": CHOSEN, "bad": REJECTED}, "--column chosen_score="),
    (
        PAIR | {"chosen_score": ["high", "1", "2"], "rejected_score": REJECTED},
        "row 0: 'chosen_score' .*'high'",
    ),
    ({"response": [*"ab"], "score": 1, "label": [1, 0]}, "'id'"),
    (SIDES | {"winner": ["tie", "neither", "?"]}, r"winner.*\?"),
    # A thousand, perhaps.
    ({"id": ["x"], "chosen_score": "1,250", "rejected_score": 0}, "'1,250'"),
    # load_preferences has `better=`, and read_scores has not.
    ({"winner": [-2, 1], "score_a": 2, "score_b": 1}, "write 'a' and 'b'"),
]


@pytest.mark.parametrize(("content", "remedy"), MISTAKES)
def test_mistakes_end_with_what_to_type(tmp_path, content, remedy):
    with pytest.raises(DataError, match=f"mine.csv.*{remedy}"):
        read_scores(write(content, tmp_path / "mine.csv"))


def test_scores_are_counted_by_row_and_label(tmp_path):
    """One score too many in a row and one missing in another gave 0.025 for 1.0."""
    scores = {"chosen_score": [[1], [1, 1], []], "rejected_score": [[0]] * 3}
    for content in (PAIR | scores, PAIR | scores | {"chosen_score": [[1, 2]] * 3}):
        path = write(content, tmp_path / "x.json")
        with pytest.raises(DataError, match=r"x.json: row .: 'chosen_score'"):
            read_scores(path)


@pytest.mark.parametrize("name", ["Chosen_Reward", "score_a"])
def test_scores_of_one_and_zero_without_texts(tmp_path, name):
    """They were taken for a matrix of outcomes."""
    columns = {"id": [*"xy"], name: [1, 1], "Rejected_Reward": [0, 1]}
    if name == "score_a":
        columns = {"id": [*"xy"], "winner": [*"ab"], "score_a": [2, 1], "score_b": 1}
    scores = read_scores(write(columns, tmp_path / "rm.csv"))
    assert set(scores["model"]) == {"rm"}
    assert scores["id"].unique().tolist() == ["x", "y"]
    assert rmlab.pairs(scores)["outcome"].tolist() == ["win", "tie"]


PATHS = {"chosen_score": "out.rm.w", "rejected_score": "out.rm.l"}
DEEP = [{"uid": i, "out": {"rm": {"w": [[i + 0.5]], "l": [0.25]}}} for i in range(3)]
OTHERS = [  # Rows, columns, and scores, ids and labels of the table.
    (
        DEEP,
        {"id": "uid", **PATHS},
        ([0.5, 0.25, 1.5, 0.25, 2.5, 0.25], "001122", "crcrcr"),
    ),
    (rows(rewards=[[3, 1, 2]]), {"scores": "rewards"}, ([3, 1, 2], "000", "crr")),
    # The first was taken for the chosen answer, whatever the labels.
    (
        rows(key=1, marks=[[0, 1]], rewards=[[3, 1]]),
        {"id": "key", "scores": "rewards", "labels": "marks"},
        ([3, 1], "11", "rc"),
    ),
    (
        rows(k="7", side=["chosen", "rejected", "rejected"], r=["1.5", 1, 0]),
        {"id": "k", "label": "side", "score": "r"},
        ([1.5, 1, 0], "777", "crr"),
    ),
]


@pytest.mark.parametrize(("content", "columns", "expected"), OTHERS)
def test_scores_of_other_projects(tmp_path, content, columns, expected):
    path = tmp_path / "judge.jsonl"
    path.write_text("\n".join(map(json.dumps, content)))
    table = read_scores(path, columns=columns)
    labels = "".join(label[0] for label in table["label"].astype("str"))
    assert (table["score"].tolist(), "".join(table["id"]), labels) == expected
    places = table.groupby(["id", "label"], observed=True).cumcount()
    assert table["slot"].tolist() == places.tolist()


COMMAS = {  # Lines of a file with semicolons, and the scores in it.
    "\ufeffid;Chosen_Score;Rejected_Score x;0,5;-1,25": [0.5, -1.25],
    "model;benchmark;domain;id;label;slot;score m;b;d;1;chosen;0;0,5": [0.5],
    "Model;Prompt;Response;Correct;Score m;p;x;1;0,5 m;p;y;0;0,25": [0.5, 0.25],
}


@pytest.mark.parametrize("lines", COMMAS)
def test_decimal_commas_of_a_file_with_semicolons(tmp_path, lines):
    path = tmp_path / "excel.csv"
    path.write_text(lines.replace(" ", "\n"), "utf-8")
    assert read_scores(path)["score"].tolist() == COMMAS[lines]
    path.write_text("prompt;response_a;response_b;winner\np;x;y;-1,5\nq;x;y;0,5")
    responses = load_preferences(path, better="b")
    assert responses["strength"].tolist()[::2] == [1.5, 0.5]


def test_a_list_of_scores_is_split_by_the_number_of_right_answers(tmp_path):
    """The first was taken for the chosen answer, whatever `num_correct` said."""
    content = rows(id=[*"xy"], scores=[[3, 2, 1], [5, 9, 4]], num_correct=[2, 1])
    scores = read_scores(write(content, tmp_path / "x.jsonl"))
    labels = "".join(label[0] for label in scores["label"].astype("str"))
    assert labels == "ccrcrr"
    assert scores["score"].tolist() == [3, 2, 1, 5, 9, 4]
    for count in (0, 3, 1.5, "many", None):
        content[1]["num_correct"] = count
        with pytest.raises(DataError, match=r"row 1.*'num_correct' .*at least 1"):
            read_scores(write(content, tmp_path / "x.jsonl"))


# Several models, in one file or in several.

ORDERS = (("A", "bac"), ("B", "cab"))
LISTED = {
    "ratings by row": [
        {"model": m, "prompt": "x", "response": r, "rating": ord(r), "score": ord(r)}
        for m, order in ORDERS
        for r in order
    ],
    "labels in lists": [
        {"model": m, "id": "1", "prompt": "x", "responses": [*order]}
        | {"labels": [int(r == "b") for r in order], "scores": [*map(ord, order)]}
        for m, order in ORDERS
    ],
    "sides": [
        {"model": m, "prompt": "x", "response_a": a, "response_b": b}
        | {"winner": "a" if a == "b" else "b", "score_a": ord(a), "score_b": ord(b)}
        for m, (a, b) in (("A", "ba"), ("B", "ab"))
    ],
    "some answers": [
        {"model": m, "prompt": "p", "response": r, "label": r in "ab", "score": ord(r)}
        for m, order in (("A", "abcd"), ("B", "dbc"))
        for r in order
    ],
}


@pytest.mark.parametrize("layout", LISTED)
def test_answers_of_models_pair_by_content_whatever_their_order(tmp_path, layout):
    """Places in a list, rows and sides were taken for the answers themselves."""
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(map(json.dumps, LISTED[layout])))
    scores = read_scores(path)
    first, second = margins(scores)
    assert len(first) == len(second) > 0
    responses = load_preferences(path)
    texts = responses.set_index(KEY)["response"]
    keys = pd.MultiIndex.from_frame(scores[KEY])
    assert texts.reindex(keys).map(ord).tolist() == scores["score"].tolist()


def shuffled(n_models=2, ids=False):
    """Twelve prompts with three answers, in another order for each model."""
    frame = pd.DataFrame({"q": np.repeat(range(12), 3), "n": [1, 4, 9] * 12})
    frame["prompt"] = "p" + frame["q"].astype("str")
    frame["response"] = (frame["n"] + frame["q"]).map("x".__mul__)
    frame["label"] = frame["n"] == 1
    models = []
    for number in range(n_models):
        score = frame["n"] * (-1) ** number
        model = frame.assign(model="ABC"[number], score=score.astype(float))
        models.append(model.sample(frac=1, random_state=number))
    return pd.concat(models).drop(columns="n")


def test_answers_of_several_models_in_any_order_have_one_slot_each(tmp_path):
    """Shuffled rows gave a model's scores to the texts of another slot."""
    path = write(shuffled(), tmp_path / "long.csv")
    scores = read_scores(path)
    responses = load_preferences(path)
    assert len(responses) == 36
    matched = scores.merge(responses[[*KEY, "response", "prompt"]], on=KEY)
    n = matched["response"].str.len() - matched["prompt"].str[1:].astype(int)
    assert (n * matched["model"].map({"A": 1, "B": -1}) == matched["score"]).all()


def test_pools_of_several_models_are_numbered_by_content():
    """Rows in another order made 1,240 of 1,600 keys wrong."""
    frame = shuffled(3).rename(columns={"label": "correct"})
    frame["score"] = frame["response"].str.len() * 1.0
    numbered = frame.drop(columns=["response"])
    for table in (frame, numbered.assign(candidate=frame["response"])):
        pool = load_pool(table)
        wide = pool.pivot(index=KEY, columns="model", values="score")
        assert wide.eq(wide["A"], axis=0).all(axis=None)
    with pytest.raises(DataError, match="'candidate'"):
        load_pool(numbered)


WIDE = pd.DataFrame({"row": [*"xyz"], "chosen_score": [1.0, 2, 3]})
WIDE["rejected_score"] = 2.0


def test_rows_of_scores_of_several_models_need_ids(tmp_path):
    """They were paired by the order of rows, without a word."""
    both = [WIDE.assign(model="A"), WIDE[::-1].assign(model="B")]
    path = write(pd.concat(both), tmp_path / "x.csv")
    with pytest.raises(DataError, match=r"columns=\{'id'"):
        read_scores(path)
    assert margins(read_scores(path, columns={"id": "row"})) == [[-1, 0, 1]] * 2


SIX = {"score": [0.0, 1, 2, 3], "correct": [1, 0, 1, 0]}
FILES = {
    "pairs": WIDE.assign(prompt=[*"pqr"], chosen="c", rejected="r"),
    "pool": pd.DataFrame({"prompt": [*"ppqq"], "response": [*"abcd"]} | SIX),
    "families": WIDE.rename(columns={"row": "family"}),
}


@pytest.mark.parametrize("layout", FILES)
def test_files_whose_rows_have_another_order_are_refused(tmp_path, layout):
    """They were paired by the numbers of their rows. Both next steps lead on."""
    frame = FILES[layout]
    models = {"A": frame, "B": frame[::-1], "C": frame}
    for model, of_model in models.items():
        (tmp_path / model).mkdir()
        write(of_model, tmp_path / model / "x.csv")
    with pytest.raises(DataError, match=r"give each row an id.*'model'"):
        read_scores(str(tmp_path / "*/x.csv"))
    in_order = read_scores(str(tmp_path / "[AC]/x.csv"))
    assert in_order["model"].unique().tolist() == ["A", "C"]
    name = "family" if layout == "families" else "prompt"
    named = {model: f.assign(id=f[name], model=model) for model, f in models.items()}
    for model, of_model in named.items():
        write(of_model.drop(columns="model"), tmp_path / model / "x.csv")
    joined = read_scores(str(tmp_path / "*/x.csv"))
    one = read_scores(write(pd.concat(named.values()), tmp_path / "x.csv"))
    for scores in (joined, one):
        wide = scores.pivot(index=KEY, columns="model", values="score")
        assert wide["A"].tolist() == wide["B"].tolist()


def test_files_called_after_models_are_of_one_benchmark(tmp_path):
    """Each model had a benchmark of its own, and nothing could be compared."""
    row = {"prompt": "p", "scores_chosen": 1.5, "scores_rejected": 0.5}
    row |= {"results": 1, "text_chosen": "<s>p", "text_rejected": "<s>p"}
    for name in ("m1", "m2"):
        (tmp_path / f"{name}_outputs.jsonl").write_text(json.dumps(row))
    scores = read_scores(str(tmp_path / "*.jsonl"))
    assert scores["model"].unique().tolist() == ["m1", "m2"]
    assert set(scores["benchmark"]) == {tmp_path.name}
    assert rmlab.pairs(scores)["outcome"].tolist() == ["win", "win"]


@pytest.mark.parametrize("n_models", [3, pytest.param(51, marks=pytest.mark.long)])
def test_real_scores_give_the_printed_accuracies(shared_data, tmp_path, n_models):
    """Themis-CodeRewardBench's scores as its project publishes them, file by file."""
    folder = shared_data / "themis-code-reward-bench"
    items = pd.read_parquet(folder / "items.parquet").set_index("item")
    published = pd.read_parquet(folder / "scores.parquet").astype({"model": "str"})
    printed = pd.read_csv(folder / "printed_accuracies.csv").set_index("model")
    # CE-RM has ties, and replies that could not be read.
    names = ["CE-RM-4B", *printed.index.drop("CE-RM-4B")][:n_models]
    for name in names:
        # One model has four rows fewer than there are items.
        of_model = published[published["model"] == name].set_index("item")
        margin = of_model["margin"].astype(float)
        frame = items.loc[of_model.index, ["language", "aspect", "subset"]].astype(str)
        frame["rejected_score"] = of_model["chosen"].astype(float) - margin
        frame["chosen_score"] = frame["rejected_score"] + margin
        frame["correct"] = margin > 0
        frame["score_diff"] = margin
        (tmp_path / name).mkdir()
        frame = frame.set_index(items.loc[of_model.index, "id"])
        frame.to_parquet(tmp_path / name / "scores.parquet")

    scores = read_scores(str(tmp_path / "*/scores.parquet"), allow_missing=True)
    pairs = rmlab.pairs(scores)
    # The printed table counts a tie and a missing score as lost.
    is_win = pairs["outcome"] == "win"
    overall = is_win.groupby(pairs["model"]).mean()
    by_aspect = is_win.groupby([pairs["model"], pairs["aspect"]]).mean().unstack()
    accuracies = by_aspect.assign(overall=overall)
    assert set(accuracies.index) == set(names)
    expected = printed.loc[accuracies.index, accuracies.columns]
    np.testing.assert_allclose(accuracies, expected, atol=5.1e-5)


# Repeated prompts, families and domains.


def repeated(times):
    frame = pd.DataFrame({"prompt": [f"What is {i} and {i}?" for i in range(60)]})
    frame["chosen_score"] = np.random.default_rng(0).normal(0.5, 1, len(frame))
    frame = frame.assign(chosen="yes", rejected="no", rejected_score=0.0)
    return pd.concat([frame] * times, ignore_index=True)


def test_repeated_prompts_are_one_cluster(tmp_path, caplog):
    once, often = (write(repeated(n), tmp_path / f"{n}.csv") for n in (1, 4))
    assert "family" not in read_scores(once)
    assert not caplog.records
    scores = read_scores(often)
    responses = load_preferences(often)
    assert "60 families" in caplog.text
    assert scores["id"].nunique() == 240
    assert scores["family"].nunique() == responses["family"].nunique() == 60
    columns = ["overall", "se", "low", "high", "n_prompts"]
    expected = rmlab.summary(read_scores(once))[columns]
    written = read_scores(rmlab.write_scores(scores, tmp_path / "s.csv"))
    for table in (scores, rmlab.pairs(scores), written):
        pd.testing.assert_frame_equal(rmlab.summary(table)[columns], expected)
    talks = [[*START[:3], user(text)] for text in ("Why?", " Why?\n", "How?")]
    responses = load_preferences(rows(prompt=talks, chosen=[*"abc"], rejected="d"))
    first, second, third = responses.drop_duplicates("id")["family"]
    assert first == second != third


def test_named_scores_have_the_families_and_ids_of_their_pairs(tmp_path):
    """Where only the scores were named, repeated prompts were independent and ids were
    rows.
    """
    frame = repeated(3).drop(columns=["chosen", "rejected"])
    expected = read_scores(write(frame, tmp_path / "rm.csv"))
    named = {"chosen_score": "good", "rejected_score": "bad", "prompt": "ask"}
    path = write(frame.rename(columns=named), tmp_path / "rm.csv")
    pd.testing.assert_frame_equal(read_scores(path, columns=named), expected)
    path = write(frame.assign(id=frame.index // 3), tmp_path / "ids.csv")
    with pytest.raises(DataError, match=r"columns=\{'family': 'id'\}"):
        read_scores(path)
    scores = read_scores(path, columns={"family": "id"})
    assert scores["id"].nunique() == 180
    assert rmlab.summary(scores)["n_prompts"].item() == 60


def test_a_column_model_names_the_models_of_scored_pairs(tmp_path):
    """A is always right and B always wrong, on the same questions."""
    right = pd.DataFrame({"prompt": [f"{i}?" for i in range(9)], "model": "A"})
    right = right.assign(chosen_score=1.0, rejected_score=0.0)
    wrong = right[::-1].assign(model="B", chosen_score=0.0, rejected_score=1.0)
    path = write(pd.concat([right, wrong]), tmp_path / "judges.csv")
    assert margins(read_scores(path)) == [[1.0] * 9, [-1.0] * 9]
    alone = rmlab.summary(read_scores(path, columns={"model": None}))
    assert alone["model"].tolist() == ["judges"]
    assert alone["n_prompts"].item() == 9  # each question twice: a family


# Pools.


def test_pools_of_prompts_and_their_authors():
    # Without scores the model is the author; all answers may be of one label.
    pool = load_pool(rows(prompt="p", completion=[*"ab"], label=True, model=[*"mn"]))
    assert pool["label"].astype("str").tolist() == ["chosen", "chosen"]
    assert "model" not in pool
    # Candidates with ids of their own belong to the prompt that is named.
    pool = load_pool(rows(**LONG | {"id": [1, 2]}), prompt="prompt")
    assert pool["n_candidates"].tolist() == [2, 2]
    with pytest.raises(DataError, match="'id' '1' occurs twice"):
        load_pool(rows(**LONG | {"prompt": [*"pq"]}))


# Plain tables of scores, joined to their responses.


KEYS = [
    ["domain", "id", "label", "slot"],
    ["subset", "id", "label", "style"],
    ["domain", "id", "label", "response"],
]


@pytest.mark.parametrize("key", KEYS)
def test_rows_in_any_order_find_their_answers(mini, key):
    scores = rmlab.score(mini, "random")
    plain = mini.assign(score=scores["score"])[[*key, "score"]]
    plain = plain.sample(frac=1, random_state=0).drop_duplicates(key)
    joined = join(mini, plain, model="random")
    pd.testing.assert_frame_equal(joined, scores, check_like=True)


def test_joins_that_would_guess_are_refused(tmp_path, mini):
    chat = mini[mini["domain"] == "chat"]
    mine = chat[["id", "label"]].assign(score=np.arange(len(chat)) / 2)
    joined = join(chat, write(mine, tmp_path / "mine.csv"))
    assert set(joined["model"]) == {"mine"}
    assert joined["score"].tolist() == mine["score"].tolist()
    assert join(chat, mine.iloc[:-2], allow_missing=True)["score"].isna().sum() == 2
    for texts, table, message in (
        (mini, mine, "'domain'"),
        (chat, mine.iloc[:-2], "2 of 96 rows"),
        (chat, pd.concat([mine, mine.iloc[:1]]), "1 of 97 scores"),
        (chat, mine[["label", "score"]], "'id' or 'response'"),
        (chat, mine.assign(model=["m", None] * 48), "model"),
        (chat, mine.assign(model=None), "model"),
    ):
        with pytest.raises(DataError, match=message):
            join(texts, table)


def test_pairs_with_other_names(tmp_path):
    path = write(rows(rm="m", item=[*"xyz"], diff=[-1, 0, 1]), tmp_path / "y.jsonl")
    columns = {"model": "rm", "id": "item", "margin": "diff"}
    table = rmlab.read_pairs(path, columns=columns)
    assert table["outcome"].astype("str").tolist() == ["loss", "tie", "win"]


# Files of reward-bench's runners.


def test_files_of_reward_bench_runners(tmp_path):
    path = tmp_path / "rm_all.jsonl"
    path.write_text('{"chosen": 1.5, "rejected": 0.5}\n{"chosen": 0, "rejected": 0.5}')
    scores = read_scores(path)
    assert set(scores["model"]) == {"rm"}
    assert rmlab.pairs(scores)["outcome"].tolist() == ["win", "loss"]
    judged = {
        "id": [395, 396, 397],
        "subset": ["llmbar-natural"] * 3,
        "results": [1, 0, 0.5],
        "text_chosen": ["a"] * 3,
        "model": "judge",
    }
    path = tmp_path / "judge.json"
    path.write_text(json.dumps(judged))
    pairs = rmlab.read_pairs(path)
    assert pairs["outcome"].tolist() == ["win", "loss", "tie"]
    assert set(pairs["model"]) == {"judge"}
