"""Files of one's own and of other projects: each layout goes from the file to numbers,
or ends with what to type.
"""

import json

import numpy as np
import pandas as pd
import pytest

import rmlab
from rmlab.benchmarks import load_preferences
from rmlab.io import join
from rmlab.tables import DataError


def message(role):
    return lambda text: {"role": role, "content": text}


user, assistant = message("user"), message("assistant")
CHATML = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n{}<|im_end|>\n"
PROMPTS, RIGHT, WRONG = (
    ["Two and two?", "Name a prime.", "Is it so?"],
    ["4", "7", "yes"],
    ["5", "8", "no"],
)
CHOSEN, REJECTED = [2.0, 0.5, 1.0], [1.0, 1.5, 1.0]
PAIR = {"prompt": PROMPTS, "chosen": RIGHT, "rejected": WRONG}


def with_answers(write_answer):
    """Pairs whose answers hold the prompt, written by a function of prompt and text."""
    return {
        "chosen": [*map(write_answer, PROMPTS, RIGHT)],
        "rejected": [*map(write_answer, PROMPTS, WRONG)],
    }


TALKS = with_answers(lambda prompt, text: [user(prompt), assistant(text)])
TEXTS = {
    "strings": PAIR,
    **{
        name: {name: PROMPTS, "chosen": RIGHT, "rejected": WRONG}
        for name in ("question", "input", "instruction")
    },
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
}
SIDES |= {"score_a": [2.0, 1.5, 1.0], "score_b": [1.0, 0.5, 1.0]}
ANSWERS = {
    "prompt": [prompt for prompt in PROMPTS for _ in "ab"],
    "response": ["4", "5", "7", "8", "yes", "no"],
}
ANSWERS |= {"score": [2.0, 1.0, 0.5, 1.5, 1.0, 1.0]}
LISTS = {
    "prompt": PROMPTS,
    "responses": [["5", "4"], ["8", "7"], ["no", "yes"]],
    "labels": [[0, 1]] * 3,
}
SCORED = {
    "score_chosen": PAIR | {"score_chosen": CHOSEN, "score_rejected": REJECTED},
    "chosen_score": PAIR | {"chosen_score": CHOSEN, "rejected_score": REJECTED},
    "reward_chosen": PAIR | {"reward_chosen": CHOSEN, "reward_rejected": REJECTED},
    "object of scores": PAIR
    | {
        "scores": pd.DataFrame({"chosen": CHOSEN, "rejected": REJECTED}).to_dict(
            "records"
        )
    },
    "list of scores": PAIR
    | {"scores": list(map(list, zip(CHOSEN, REJECTED, strict=True)))},
    "winner a/b": SIDES | {"winner": ["a", "b", "a"]},
    "winner by name": SIDES
    | {
        "model_a": ["x", "x", "y"],
        "model_b": ["y", "y", "x"],
        "winner": ["x", "y", "y"],
    },
    "label 1/0": ANSWERS | {"label": [1, 0] * 3},
    "label true/false": ANSWERS | {"label": [True, False] * 3},
    "label chosen/rejected": ANSWERS | {"label": ["chosen", "rejected"] * 3},
    "lists": LISTS | {"scores": [[1.0, 2.0], [1.5, 0.5], [1.0, 1.0]]},
}


def write(content, path):
    frame, separator = (
        pd.DataFrame(content),
        {".csv": ",", ".tsv": "\t"}.get(path.suffix),
    )
    if separator:
        frame.to_csv(path, index=False, sep=separator)
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_json(path, orient="records", lines=path.suffix == ".jsonl")
    return path


@pytest.mark.parametrize("layout", [*TEXTS, *SCORED])
def test_layouts(tmp_path, layout):
    content = (TEXTS | SCORED)[layout]
    is_nested = any(isinstance(cells[0], list | dict) for cells in content.values())
    suffixes = ("json", "jsonl", "parquet", *(() if is_nested else ("csv", "tsv")))
    for source in (
        pd.DataFrame(content),
        *(write(content, tmp_path / f"mine.{suffix}") for suffix in suffixes),
    ):
        responses = load_preferences(source, name="mine")
        by_label = responses.pivot(
            index="id", columns="label", values=["prompt", "response"]
        )
        expected = [PROMPTS, PROMPTS, RIGHT, WRONG]
        assert by_label.T.to_numpy().tolist() == expected, source
        assert (
            set(responses["benchmark"])
            == set(responses["domain"])
            == set(responses["subset"])
            == {"mine"}
        )
        assert responses["style"].isna().all()
        if layout in SCORED and not isinstance(source, pd.DataFrame):
            scores = rmlab.read_scores(source)
            rmlab.tables.check_match(scores, responses)
            assert rmlab.pairs(scores)["outcome"].tolist() == ["win", "loss", "tie"]
            assert scores["model"].unique().tolist() == ["mine"]


def texts(responses):
    return (
        responses[["label", "slot", "response"]]
        .astype({"label": "str"})
        .to_numpy()
        .tolist()
    )


REWARDS = {"id": ["x", "y"], "Chosen_Reward": [1, 1], "Rejected_Reward": [0, 1]}


@pytest.mark.parametrize("first", ["id", "model"])
def test_rewards_of_one_and_zero_without_texts_are_scores(tmp_path, first):
    """They were taken for a matrix of outcomes, where the names had capitals or a model
    stood first.
    """
    rows = {"model": ["rm", "rm"]} | REWARDS if first == "model" else REWARDS
    scores = rmlab.read_scores(write(rows, tmp_path / "rm.csv"))
    assert set(scores["model"]) == {"rm"}
    assert rmlab.pairs(scores)["outcome"].tolist() == ["win", "tie"]


@pytest.mark.parametrize("texts", [{"id": ["x", "y"]}, {"prompt": ["p", "q"]}, {}])
def test_a_model_and_its_rewards_under_other_names_are_to_be_named(tmp_path, texts):
    """`'id' must be 1, 0.5, 0 or an empty cell`."""
    rows = {"model": ["rm", "rm"]} | texts | {"good": [0.4, 2.0], "bad": [0.1, 0.2]}
    path = write(rows, tmp_path / "rm.csv")
    with pytest.raises(DataError, match="chosen_score"):
        rmlab.read_scores(path)


def test_a_conversation_keeps_its_earlier_turns():
    start = [
        {"role": "system", "content": "Be short."},
        user("Hi"),
        assistant("Hello"),
        user("Is it?"),
    ]
    expected = [["chosen", 0, "yes"], ["rejected", 0, "no"]]
    transcript = "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: Is it?\n\nAssistant: "
    for prompt, chosen, rejected in (
        (start, [*start, assistant("yes")], [*start, assistant("no")]),
        (start[1:], transcript + "yes", transcript + "no"),
    ):
        responses = load_preferences(
            pd.DataFrame({"chosen": [chosen], "rejected": [rejected]})
        )
        assert responses["prompt"].tolist() == [prompt, prompt]
        assert texts(responses) == expected


def test_several_answers():
    first = [["chosen", 0, "a"], ["rejected", 0, "c"], ["rejected", 1, "d"]]
    frame = pd.DataFrame(
        {
            "prompt": ["1?", "2?"],
            "chosen": [["a"], ["b", "B"]],
            "rejected": [["c", "d"], ["e"]],
        }
    )
    responses = load_preferences(frame)
    assert texts(responses[responses["id"] == "0"]) == first
    assert texts(responses[responses["id"] == "1"]) == [
        ["chosen", 0, "b"],
        ["chosen", 1, "B"],
        ["rejected", 0, "e"],
    ]
    talks = [[user("1?"), assistant("c")], [user("1?"), assistant("d")]]
    of_messages = load_preferences(
        pd.DataFrame({"chosen": [[user("1?"), assistant("a")]], "rejected": [talks]})
    )
    assert texts(of_messages) == first


def test_columns_of_other_names_and_what_was_understood():
    row = {
        "q": "1?",
        "good": "yes",
        "bad_1": "no",
        "bad_2": "never",
        "key": 7.0,
        "kind": "sums",
        "id": "x",
    }
    frame = pd.DataFrame([row | {"weight": 1, "score": 2.5, "critique": "long " * 100}])
    columns = {
        "prompt": "q",
        "chosen": "good",
        "rejected": ["bad_1", "bad_2"],
        "id": "key",
        "domain": "kind",
    }
    responses = load_preferences(frame, columns=columns, name="mine")
    assert texts(responses) == [
        ["chosen", 0, "yes"],
        ["rejected", 0, "no"],
        ["rejected", 1, "never"],
    ]
    assert [set(responses[c]) for c in ("id", "domain", "subset", "weight")] == [
        {"7"},
        {"sums"},
        {"sums"},
        {1},
    ]
    understood = responses.attrs["understood"]
    assert understood["columns"]["rejected"] == ["bad_1", "bad_2"]
    assert understood["extra"] == ["weight"]
    assert understood["ignored"] == ["id", "score", "critique"]


def test_texts_that_only_look_like_a_prompt_stay():
    story = "Human: who?\n\nAssistant: me\n\nHuman: ah"
    responses = load_preferences(
        pd.DataFrame(
            {"prompt": ["Write a dialogue"], "chosen": [story], "rejected": ["no"]}
        )
    )
    assert responses["response"].tolist() == [story, "no"]
    frame = pd.DataFrame(
        {
            "prompt": ["Say hi", "Say ho"],
            "chosen": ["Say hi!", "ho"],
            "rejected": ["no", "no"],
        }
    )
    assert load_preferences(frame)["response"].tolist() == ["Say hi!", "no", "ho", "no"]


@pytest.mark.parametrize(
    ("column", "winners", "left_out"),
    [
        ("winner", [1, "?", 2], {"'?'": 1}),
        ("labels", [1.0, 0.5, 0.0], {"tie": 1}),
        ("label", [True, False], None),
        ("winner", ["A>>B", "A=B", "B > A"], {"tie": 1}),
        ("winner", ["model_a", "tie", "model_b"], {"tie": 1}),
        ("winner", ["x", "Tie (bothbad)", "y"], {"tie": 1}),
        ("winner", ["a", None, "b"], {"None": 1}),
    ],
)
def test_ways_to_write_a_winner(tmp_path, caplog, column, winners, left_out):
    """Those without a winner are left out and counted, and the others keep their
    ids.
    """
    n = len(winners)
    word = "human_ref" if column.startswith("label") else "response"
    frame = pd.DataFrame(
        {
            "prompt": list("123")[:n],
            f"{word}_a": list("abc")[:n],
            f"{word}_b": list("pqr")[:n],
        }
    )
    frame = frame.assign(
        score_a=1.0, score_b=0.0, model_a="X", model_b="Y", **{column: winners}
    )
    for source in (frame, write(frame, tmp_path / "x.csv")):
        responses = load_preferences(source, winner=column)
        assert responses["response"].tolist() == ["a", "p", "pqr"[n - 1], "abc"[n - 1]]
        assert responses["id"].tolist() == ["0", "0", str(n - 1), str(n - 1)]
        assert responses.attrs["understood"].get("left_out") == left_out
        assert ("left out" in caplog.text) == (n > 2)
    if column == "winner":
        assert rmlab.read_scores(source)["id"].unique().tolist() == ["0", str(n - 1)]


@pytest.mark.parametrize("winners", [[0, 1], [1, 1], ["0", "1"], [True, False]])
def test_a_winner_that_may_mean_either_side_is_refused(winners):
    frame = pd.DataFrame(
        {
            "prompt": ["1?", "2?"],
            "response_a": ["a", "b"],
            "response_b": ["x", "y"],
            "best": winners,
        }
    )
    with pytest.raises(DataError, match=r"frame: .*'best'.*'a' and 'b'"):
        load_preferences(frame, winner="best")
    numbered = frame.rename(
        columns={
            "response_a": "response_0",
            "response_b": "response_1",
            "best": "label",
        }
    )
    with pytest.raises(DataError, match=r"'label'.*'a' and 'b'"):
        load_preferences(
            numbered, winner="label", columns={"a": "response_0", "b": "response_1"}
        )


PAIR_ROW = {"prompt": "1?", "chosen": "a", "rejected": "b"}
TALK = [user("1?"), assistant("a")]
BAD_ROWS = [
    ({"prompt": "1?", "chosen": "a"}, "rejected.*columns="),
    ({"chosen": "a", "rejected": "b"}, r"row 0: no prompt.*columns=.*--column prompt="),
    (PAIR_ROW | {"chosen": ""}, "row 0: 'chosen'"),
    (PAIR_ROW | {"chosen": []}, r"'chosen' .* \[\]"),
    ({"chosen": TALK, "rejected": [user("2?"), assistant("b")]}, "'rejected'"),
    ({"chosen": TALK, "rejected": TALK[::-1]}, "'rejected'"),
    (
        {"instruction": "Add.", "input": "1", "chosen": "3", "rejected": "4"},
        "'instruction', 'input'",
    ),
    (PAIR_ROW | {"subset": ["x"]}, r"row 0: 'subset' .*\['x'\]"),
    (PAIR_ROW | {"id": True}, "row 0.*'id' .*True"),
    (PAIR_ROW | {"prompt": "cut \ud83d"}, "row 0"),
    (
        {"prompt": "1?", "responses": ["a", "b"], "labels": [1, 2]},
        "row 0: 'labels' .*1 or 0",
    ),
]


@pytest.mark.parametrize(("row", "message"), BAD_ROWS)
def test_bad_rows_are_refused(row, message):
    with pytest.raises(DataError, match=f"frame.*{message}"):
        load_preferences(pd.DataFrame([row], dtype=object))


MISTAKES = [
    (PAIR, "rmlab score"),
    (SCORED["chosen_score"] | {"reward_chosen": CHOSEN}, "--column chosen_score="),
    ({"prompt": PROMPTS, "good": CHOSEN, "bad": REJECTED}, "--column chosen_score="),
    (
        PAIR | {"chosen_score": ["high", "1", "2"], "rejected_score": REJECTED},
        "row 0: 'chosen_score' .*'high'",
    ),
    (ANSWERS | {"label": [5, 1, 4, 2, 3, 3]}, "row 0: 'label' .*5"),
    (
        {name: ANSWERS[name] for name in ("response", "score")} | {"label": [1, 0] * 3},
        "'id'",
    ),
    (SIDES | {"winner": ["tie", "neither", "?"]}, r"winner.*\?"),
]


@pytest.mark.parametrize(("content", "remedy"), MISTAKES)
def test_mistakes_end_with_what_to_type(tmp_path, content, remedy):
    with pytest.raises(DataError, match=f"mine.csv.*{remedy}"):
        rmlab.read_scores(write(content, tmp_path / "mine.csv"))


def test_scores_without_texts(tmp_path):
    path = write(
        {"id": ["x", "y", "z"], "chosen_score": [0, 1, 2], "rejected_score": 1},
        tmp_path / "mine.jsonl",
    )
    outcomes = rmlab.pairs(rmlab.read_scores(path))
    assert dict(zip(outcomes["id"], outcomes["outcome"], strict=True)) == {
        "x": "loss",
        "y": "tie",
        "z": "win",
    }
    lists = PAIR | {"chosen_score": [[1, 2]] * 3, "rejected_score": [0] * 3}
    with pytest.raises(DataError, match=r"mine\.json: row 0.*'chosen_score'"):
        rmlab.read_scores(write(lists, tmp_path / "mine.json"))


def test_bad_arguments(tmp_path):
    frame = pd.DataFrame(
        {
            "id": [1, 1],
            "prompt": ["1?", "2?"],
            "chosen": ["a", "b"],
            "rejected": ["c", "d"],
        }
    )
    assert load_preferences(frame, columns={"id": None})["id"].tolist() == [
        "0",
        "0",
        "1",
        "1",
    ]
    parts = load_preferences(
        frame.assign(domain=None, subset="s"), columns={"id": None}
    )
    assert set(parts["domain"]) == {"s"}
    (tmp_path / "cut.csv").write_text('prompt,chosen,rejected\n1?,a,"b')
    for source, options, message in (
        (frame, {}, r"frame: 'id' '1' .*columns=\{'family': 'id'\}"),
        (
            frame,
            {"columns": {"chosen": "choosen"}},
            r"frame: columns\['chosen'\]: .*'choosen'; .*'chosen'",
        ),
        (frame, {"columns": {"choosen": "chosen"}}, "columns: .*'choosen'; .*'chosen'"),
        (
            frame,
            {"columns": {"winner": "chosen"}},
            "frame: no column for a and b; .*columns=",
        ),
        (frame[:0], {}, "no rows"),
        (
            frame,
            {"name": "cut \ud83d", "columns": {"id": None}},
            r"name: .*\\ud83d",
        ),  # a UnicodeEncodeError before
        (tmp_path / "cut.csv", {}, "cut.csv: line 2"),
        (tmp_path / "nothing.csv", {}, "nothing.csv: no such file"),
    ):
        with pytest.raises(DataError, match=message):
            load_preferences(source, **options)


def test_blank_second_answers_mean_one_fewer(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("prompt,chosen,r1,r2\nq1,x,y,z\nq2,x,y,\nq3,x,,z\n")
    responses = rmlab.load_preferences(path, columns={"rejected": ["r1", "r2"]})
    assert responses.groupby("id").size().tolist() == [3, 2, 2]
    assert responses.loc[responses["id"] == "2", "response"].tolist() == ["x", "z"]
    path.write_text("prompt,chosen,r1,r2\nq1,x,,\n")
    with pytest.raises(DataError, match="'r1'"):
        rmlab.load_preferences(path, columns={"rejected": ["r1", "r2"]})


PATHS = {"chosen_score": "out.rm.w", "rejected_score": "out.rm.l"}
RATED = [{"rewards": [3, 1, 2], "right": n} for n in (1, 2)]
LABELLED = [
    {"k": "7", "side": side, "r": r}
    for side, r in (("chosen", "1.5"), ("rejected", 1), ("rejected", 0))
]
# The file, its columns, and scores, ids and labels of the table.
DEEP = [{"uid": i, "out": {"rm": {"w": [[i + 0.5]], "l": [0.25]}}} for i in range(3)]
OTHERS = [
    (
        DEEP,
        {"id": "uid", **PATHS},
        ([0.5, 0.25, 1.5, 0.25, 2.5, 0.25], "001122", "crcrcr"),
    ),
    (
        RATED,
        {"scores": "rewards", "num_correct": "right"},
        ([3, 1, 2, 3, 1, 2], "000111", "crrccr"),
    ),
    (LABELLED, {"id": "k", "label": "side", "score": "r"}, ([1.5, 1, 0], "777", "crr")),
]


def write_json(path, content):
    path.write_text(
        "\n".join(map(json.dumps, content))
        if isinstance(content, list)
        else json.dumps(content)
    )
    return path


@pytest.mark.parametrize(("content", "columns", "expected"), OTHERS)
def test_scores_of_other_projects(tmp_path, content, columns, expected):
    scores, ids, labels = expected
    path = write_json(
        tmp_path / ("judge.jsonl" if isinstance(content, list) else "judge.json"),
        content,
    )
    table = rmlab.read_scores(path, columns=columns)
    assert table["score"].tolist() == scores
    assert "".join(table["id"]) == ids
    assert "".join(label[0] for label in table["label"].astype(str)) == labels
    assert set(table["model"]) == set(table["benchmark"]) == {"judge"}
    assert (
        table["slot"].tolist()
        == table.groupby(["id", "label"], observed=True).cumcount().tolist()
    )


@pytest.fixture(scope="module")
def mini():
    return rmlab.load("mini")


@pytest.fixture(scope="module")
def scores(mini):
    return rmlab.score(mini, "random")


KEYS = [
    ["domain", "id", "label", "slot"],
    ["subset", "id", "label", "style"],
    ["domain", "id", "label", "response"],
]


@pytest.mark.parametrize("key", KEYS)
def test_rows_in_any_order_find_their_answers(mini, scores, key):
    plain = mini.assign(score=scores["score"])[[*key, "score"]].sample(
        frac=1, random_state=0
    )
    pd.testing.assert_frame_equal(
        join(mini, plain.drop_duplicates(key), model="random"), scores, check_like=True
    )


def test_joins_that_would_guess_are_refused(tmp_path, mini, scores):
    plain = scores[["id", "label", "score"]]
    plain.to_csv(tmp_path / "mine.csv", index=False)
    in_order = join(mini, tmp_path / "mine.csv")
    assert set(in_order["model"]) == {"mine"}
    np.testing.assert_array_equal(in_order["score"], scores["score"])
    chat = mini[mini["domain"] == "chat"]
    mine = plain[(mini["domain"] == "chat").to_numpy()]
    assert join(chat, mine.iloc[:-2], allow_missing=True)["score"].isna().sum() == 2
    for texts, table, message in (
        (mini, plain.sample(frac=1, random_state=0), "'domain'"),
        (chat, mine.iloc[:-2], "2 of 96 rows"),
        (chat, pd.concat([mine, mine.iloc[:1]]), "1 of 97 scores"),
        (chat, mine[["label", "score"]], "'id' or 'response'"),
    ):
        with pytest.raises(DataError, match=message):
            join(texts, table)


def test_pairs_with_other_names(tmp_path):
    path = write_json(
        tmp_path / "y.jsonl", [{"rm": "m", "item": i, "diff": i - 1} for i in range(3)]
    )
    table = rmlab.read_pairs(
        path, columns={"model": "rm", "id": "item", "margin": "diff"}
    )
    assert table["outcome"].astype("str").tolist() == ["loss", "tie", "win"]


# Several models, repeated prompts, and names in files that nobody made for rmlab.


def questions(n=30, **columns):
    return pd.DataFrame(
        {"prompt": [f"What is {i} and {i}?" for i in range(n)]} | columns
    )


def two_models(order):
    """A is always right and B always wrong, on the same questions."""
    right = questions(model="A", chosen_score=1.0, rejected_score=0.0)
    wrong = questions(model="B", chosen_score=0.0, rejected_score=1.0)[::-1]
    return pd.concat([right, wrong])[
        ["prompt", "model", "chosen_score", "rejected_score"][::order]
    ]


def test_named_scores_have_the_families_and_ids_of_their_pairs(tmp_path):
    """Where only the scores were named, repeated prompts were independent and ids were
    rows.
    """
    rows = repeated_scores(3)
    expected = rmlab.read_scores(write(rows, tmp_path / "rm.csv"))
    renamed = rows.rename(columns={"chosen_score": "good", "rejected_score": "bad"})
    named = {"chosen_score": "good", "rejected_score": "bad"}
    scores = rmlab.read_scores(write(renamed, tmp_path / "rm.csv"), columns=named)
    pd.testing.assert_frame_equal(scores, expected)
    assert rmlab.summary(scores)["n_prompts"].item() == 60
    path = write(renamed.rename(columns={"prompt": "ask"}), tmp_path / "ask.csv")
    scores = rmlab.read_scores(path, columns=named | {"prompt": "ask"})
    assert rmlab.summary(scores)["n_prompts"].item() == 60
    numbered = renamed.assign(id=[f"q{row}" for row in renamed.index])
    scores = rmlab.read_scores(write(numbered, tmp_path / "ids.csv"), columns=named)
    rmlab.tables.check_match(scores, load_preferences(tmp_path / "ids.csv"))


@pytest.mark.parametrize("ids", [None, "q"])
def test_answers_of_several_models_in_any_order_have_one_slot_each(tmp_path, ids):
    """Shuffled rows gave a model's scores to the texts of another slot."""
    rows = [
        {
            "model": m,
            "q": i,
            "prompt": f"p{i}",
            "response": "x" * (3 + n + i),
            "label": n == 1,
            "score": n * sign,
        }
        for m, sign in (("A", 1), ("B", -1))
        for i in range(12)
        for n in (1, 4, 9)
    ]
    path = write(
        pd.DataFrame(rows).sample(frac=1, random_state=0), tmp_path / "long.csv"
    )
    columns = {"id": ids} if ids else None
    scores, responses = (
        rmlab.read_scores(path, columns=columns),
        load_preferences(path, columns=columns),
    )
    assert len(responses) == 36
    matched = scores.merge(
        responses[[*rmlab.tables.KEY, "response", "prompt"]], on=rmlab.tables.KEY
    )
    length = matched["response"].str.len() - 3 - matched["prompt"].str[1:].astype(int)
    sign = matched["model"].map({"A": 1, "B": -1})
    assert (length * sign == matched["score"]).all()
    assert rmlab.compare(scores, "A", "B")["difference"].item() == -1.0


def test_other_answers_under_one_id_are_refused(tmp_path):
    """The texts of the second model were dropped, and its scores read as of the first
    one's.
    """
    rows = [
        {"id": i, "model": m, "prompt": "p", "chosen": m + "!", "rejected": "b"}
        for m in "AB"
        for i in range(3)
    ]
    scored = pd.DataFrame(rows).assign(chosen_score=1.0, rejected_score=0.0)
    with pytest.raises(DataError, match="id 0"):
        load_preferences(scored)


def test_decimal_commas_of_a_file_with_semicolons_are_numbers(tmp_path):
    path = tmp_path / "excel.csv"
    content = "\ufeffid;Chosen_Score;Rejected_Score\nx;0,5;-1,25\ny;2;0,75\n"
    path.write_text(content, "utf-8")
    assert rmlab.read_scores(path)["score"].tolist() == [0.5, -1.25, 2.0, 0.75]
    path.write_text(
        'id,chosen_score,rejected_score\nx,"1,250",0\n'
    )  # may be a thousand
    with pytest.raises(DataError, match="'1,250'"):
        rmlab.read_scores(path)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_column_model_names_the_models_of_scored_pairs(tmp_path, order, suffix):
    path = write(two_models(order), tmp_path / f"judges{suffix}")
    for columns in (
        None,
        {"model": "model"},
        {name: name for name in ("model", "chosen_score", "rejected_score")},
    ):
        table = rmlab.summary(rmlab.read_scores(path, columns=columns)).set_index(
            "model"
        )
        assert table["overall"].to_dict() == {"A": 1.0, "B": 0.0}
        assert table["n_prompts"].tolist() == [30, 30]
        assert (
            rmlab.compare(rmlab.read_scores(path, columns=columns), "A", "B")[
                "difference"
            ].item()
            == 1.0
        )
    alone = rmlab.summary(rmlab.read_scores(path, columns={"model": None}))
    assert alone["model"].tolist() == ["judges"]
    assert alone["n_prompts"].item() == 30  # each question twice: a family


def repeated_scores(times=4):
    frame = questions(60, chosen="yes", rejected="no", rejected_score=0.0)
    frame["chosen_score"] = np.random.default_rng(0).normal(0.5, 1, len(frame))
    return pd.concat([frame] * times, ignore_index=True)


def test_repeated_prompts_are_one_cluster(tmp_path, caplog):
    once, often = (write(repeated_scores(n), tmp_path / f"{n}.csv") for n in (1, 4))
    assert "family" not in rmlab.read_scores(once)
    assert not caplog.records
    scores = rmlab.read_scores(often)
    responses = load_preferences(often)
    assert len(caplog.records) == 1
    assert scores["id"].nunique() == 240
    assert scores["family"].nunique() == responses["family"].nunique() == 60
    columns = ["overall", "se", "low", "high", "n_prompts"]
    expected = rmlab.summary(rmlab.read_scores(once))[columns]
    for table in (
        scores,
        rmlab.pairs(scores),
        rmlab.read_scores(rmlab.write_scores(scores, tmp_path / "s.csv")),
    ):
        pd.testing.assert_frame_equal(rmlab.summary(table)[columns], expected)
    assert (
        rmlab.summary(scores, cluster="id")["se"].item() < 0.6 * expected["se"].item()
    )
    both = pd.concat([scores, rmlab.score(responses, "longest")])
    assert set(rmlab.leaderboard(both)["n_prompts"]) == {60}


def test_conversations_with_one_text_are_a_family():
    talks = [
        [user("Hi"), assistant("Hello"), user(text)]
        for text in ("Why?", " Why?\n", "How?")
    ]
    responses = load_preferences(
        pd.DataFrame({"prompt": talks, "chosen": ["a", "b", "c"], "rejected": "d"})
    )
    first, second, third = responses.drop_duplicates("id")["family"]
    assert first == second != third


def test_repeated_ids_are_a_family_where_one_says_so(tmp_path):
    rows = repeated_scores(1).assign(id=lambda frame: frame.index // 3)
    path = write(rows, tmp_path / "ids.csv")
    with pytest.raises(DataError, match=r"columns=\{'family': 'id'\}"):
        rmlab.read_scores(path)
    scores = rmlab.read_scores(path, columns={"family": "id"})
    assert scores["id"].nunique() == 60
    assert rmlab.summary(scores)["n_prompts"].item() == 20


@pytest.mark.parametrize(
    "domains", [["Math", "Safety"], ["Focus"], ["hep-python", "xstest-should-refuse"]]
)
@pytest.mark.parametrize("n_rejected", [1, 3])
def test_domains_of_ones_own_are_no_benchmark(domains, n_rejected):
    frame = questions(48, chosen=[["good"]] * 48, rejected=[["bad"] * n_rejected] * 48)
    responses = load_preferences(
        frame.assign(domain=domains * (48 // len(domains))), name="mine"
    )
    scores = rmlab.score(responses, "longest")
    rows = rmlab.estimates(scores)
    assert set(rows["chance"]) == {0.5}
    assert rmlab.leaderboard(scores)["overall"].tolist()[0] == 1.0
    assert rmlab.accuracy(scores)["n_pairs"].item() == 48 * n_rejected


def test_texts_of_another_file_are_found_by_their_keys(tmp_path):
    texts = questions(
        chosen=["good" * (1 + i % 4) for i in range(30)], rejected="bad and long"
    )
    texts = texts.assign(
        id=[f"q{i}" for i in range(30)], source=[f"s{i % 6}" for i in range(30)]
    )
    rewards = texts[["id"]].assign(chosen_score=np.arange(30.0), rejected_score=9.5)
    scores = rmlab.read_scores(write(rewards, tmp_path / "rewards.csv"))
    responses = load_preferences(write(texts, tmp_path / "pairs.csv"))
    page = rmlab.write_report(
        scores, tmp_path / "r.html", responses=responses, texts=True
    )
    assert "bad and long" in page.read_text("utf-8")
    rmlab.bias.length_controlled(scores, rmlab.styles.features(responses))
    rmlab.leaderboard(scores, responses=responses)
    with pytest.raises(DataError, match=r"'pairs'.*'rewards'"):
        rmlab.write_report(
            scores, tmp_path / "r.html", responses=responses[responses["id"] != "q3"]
        )


@pytest.mark.parametrize(
    ("row", "name"),
    [
        (
            {"chosen": list("abc"), "rejected": list("def"), "domain": "chat"},
            "rm-bench",
        ),
        ({"chosen": "a", "rejected": "b", "subset": "hep-python"}, "reward-bench"),
        (
            {"chosen": ["a"], "rejected": ["b"], "subset": "Focus", "num_correct": 1},
            "reward-bench-2",
        ),
    ],
)
def test_files_of_benchmarks_are_hinted_at(tmp_path, caplog, row, name):
    load_preferences(
        write_json(tmp_path / "mine.json", [{"id": "1", "prompt": "1?"} | row])
    )
    assert f"load('{name}'" in caplog.text
