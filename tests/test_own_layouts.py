"""Layouts of public data: each was read otherwise than it means, or not at all."""

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
from rmlab.tables import DataError


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **fields):
    return {"role": "assistant", "content": text, **fields}


def answers(responses):
    """Chosen and rejected texts by id."""
    table = {}
    for item, rows in responses.groupby("id", sort=False):
        for label in ("chosen", "rejected"):
            texts = rows.loc[rows["label"] == label, "response"].tolist()
            table.setdefault(item, []).append(texts)
    return table


def test_graded_preferences_say_their_direction():
    """1 was read as the first answer and 2 as the second; other rows were lost."""
    rows = [
        {
            "context": [user("Hi")],
            "response1": "x",
            "response2": "y",
            "overall_preference": n,
        }
        for n in (-3, -1, 0, 1, 2)
    ]
    with pytest.raises(DataError, match="better='b' where"):
        rmlab.load_preferences(rows)
    responses = rmlab.load_preferences(rows, better="b")
    assert answers(responses) == {
        "0": [["x"], ["y"]],
        "1": [["x"], ["y"]],
        "3": [["y"], ["x"]],
        "4": [["y"], ["x"]],
    }
    assert set(responses["prompt"]) == {"Hi"}
    strengths = responses.drop_duplicates("id")["strength"].tolist()
    assert strengths == [3, 1, 1, 2]
    turned = rmlab.load_preferences(rows, better="a")
    assert answers(turned)["0"] == [["y"], ["x"]]


def test_a_prompt_stays_beside_completions_of_several_messages():
    """trl's form: the prompt was replaced by the completions' own first messages."""
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    start = [assistant(None, tool_calls=[call]), {"role": "tool", "content": "2"}]
    row = {
        "prompt": [user("1 + 1?")],
        "chosen": [*start, assistant("2")],
        "rejected": [*start, assistant("3")],
    }
    for source in ([row], pa.Table.from_pylist([row]), pd.DataFrame([row])):
        responses = rmlab.load_preferences(source)
        assert responses["prompt"].tolist() == [[user("1 + 1?"), *start]] * 2
        assert responses["response"].tolist() == ["2", "3"]


def test_a_prompt_that_contradicts_the_answers_is_refused():
    talk = [user("2?"), assistant("x")]
    rows = [{"prompt": "1?", "chosen": talk, "rejected": talk}]
    with pytest.raises(DataError, match="row 0"):
        rmlab.load_preferences(rows)
    rows[0]["prompt"] = "2? "
    assert set(rmlab.load_preferences(rows)["prompt"]) == {"2?"}


def test_system_history_and_tools_belong_to_the_prompt():
    row = {
        "system": "Be brief.",
        "history": [["Hi", "Hello"]],
        "tools": [{"name": "add"}],
        "prompt": "1 + 1?",
        "chosen": "2",
        "rejected": "3",
    }
    [prompt, _] = rmlab.load_preferences([row])["prompt"]
    assert [turn["role"] for turn in prompt] == [
        "tools",
        "system",
        "user",
        "assistant",
        "user",
    ]
    assert json.loads(prompt[0]["content"]) == [{"name": "add"}]
    assert [turn["content"] for turn in prompt[1:]] == [
        "Be brief.",
        "Hi",
        "Hello",
        "1 + 1?",
    ]
    scored = rmlab.rewards(pd.DataFrame([{**row, "response": "2"}]), "longest")
    assert scored["reward"].tolist() == [1.0]


def test_parts_of_text_become_text_and_images_are_refused():
    text = [{"type": "text", "text": "Why"}, {"type": "text", "text": "?"}]
    row = {
        "prompt": [{"role": "user", "content": text}],
        "chosen": "a",
        "rejected": "b",
    }
    assert set(rmlab.load_preferences([row])["prompt"]) == {"Why?"}
    image = {"role": "user", "content": [{"type": "image", "url": "x"}]}
    for bad in ({"prompt": [image]}, {"images": ["x.png"]}):
        with pytest.raises(DataError, match="row 0"):
            rmlab.load_preferences([row | bad])


def test_an_answer_with_tool_calls_is_a_message():
    call = {
        "type": "function",
        "function": {"name": "add", "arguments": {"a": 1, "b": None}},
    }
    called = assistant(None, tool_calls=[call])
    rows = [
        {"prompt": "p", "chosen": [called], "rejected": [assistant("no", name=None)]}
    ]
    chosen, rejected = rmlab.load_preferences(rows)["response"]
    assert chosen["content"] is None
    # Null fields are absent, as Arrow adds them to every row.
    assert chosen["tool_calls"][0]["function"]["arguments"] == {"a": 1}
    assert rejected == "no"


@pytest.mark.parametrize("depth", [200, 300, 600, 900])
def test_a_message_of_endless_nesting_is_refused_or_kept(tmp_path, depth):
    """It was a RecursionError."""
    nested = "[" * depth + "]" * depth
    message = f'{{"role": "user", "content": "x", "name": {nested}}}'
    answer = '{"role": "assistant", "content": "y"}'
    row = f'{{"chosen": [{message}, {answer}], "rejected": [{message}, {answer}]}}'
    path = tmp_path / "x.jsonl"
    path.write_text(f"{row}\n{row}")
    with contextlib.suppress(DataError):
        assert len(rmlab.load_preferences(path)) == 4


@pytest.mark.parametrize("write", [json.dumps, repr])
def test_lists_in_cells_of_csv_are_read_where_the_whole_column_is(tmp_path, write):
    frame = pd.DataFrame({"prompt": ["1?", "2?"]})
    for label in ("chosen", "rejected"):
        frame[label] = [write([user(p), assistant(label)]) for p in frame["prompt"]]
    path = tmp_path / "uf.csv"
    frame.to_csv(path, index=False)
    assert answers(rmlab.load_preferences(path))["1"] == [["chosen"], ["rejected"]]
    frame.loc[0, ["chosen", "rejected"]] = ["[1] is a list", "no"]
    assert answers(rmlab.load_preferences(frame))["0"] == [["[1] is a list"], ["no"]]


HELPSTEER = [
    {"prompt": "p", "response": text, "helpfulness": n, "verbosity": 1}
    for text, n in (("good", 4), ("bad", 1))
] + [{"prompt": "q", "response": text, "helpfulness": 2} for text in "xy"]
ULTRAFEEDBACK = [
    {
        "instruction": "p",
        "completions": [
            {"model": "m", "response": text, "overall_score": n}
            for text, n in (("bad", 2.0), ("good", 8.5))
        ],
    }
]
NECTAR = [
    {
        "prompt": "\n\nHuman: p\n\nAssistant:",
        "answers": [
            {"answer": text, "rank": n} for text, n in (("bad", 2.0), ("good", 1.0))
        ],
    }
]
ONE_HOT = [
    {
        "prompt": "p",
        "response_a": "bad",
        "response_b": "good",
        "winner_model_a": 0,
        "winner_model_b": 1,
        "winner_tie": 0,
    }
]
KAGGLE = [
    {
        **dict.fromkeys(("winner_model_a", "winner_tie"), 0),
        "prompt": '["p"]',
        "response_a": '["bad"]',
        "response_b": '["good"]',
        "winner_model_b": 1,
    }
]
RANKED = [
    {"parent": "m", "question": "p", "text": text, "rank": n}
    for n, text in enumerate(("good", "bad"))
]
PKU = [
    {
        "prompt": "p",
        "response_0": "bad",
        "response_1": "good",
        "better_response_id": 1,
    }
]
SHP = [
    {
        "history": "p",
        "human_ref_A": "bad",
        "human_ref_B": "good",
        "labels": 0,
        "score_A": 3,
        "score_B": 9,
    }
]
SHAREGPT = [
    {
        "conversations": [{"from": "human", "value": "p"}],
        "chosen": {"from": "gpt", "value": "good"},
        "rejected": {"from": "gpt", "value": "bad"},
    }
]
KTO = [
    {"prompt": [user("p")], "completion": [assistant(text)], "label": text == "good"}
    for text in ("good", "bad")
]
PUBLIC = {
    "HelpSteer": HELPSTEER,
    "UltraFeedback": ULTRAFEEDBACK,
    "Nectar": NECTAR,
    "one-hot": ONE_HOT,
    "Kaggle": KAGGLE,
    "ranked": RANKED,
    "PKU": PKU,
    "SHP": SHP,
    "ShareGPT": SHAREGPT,
    "KTO": KTO,
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_layouts(tmp_path, name):
    path = tmp_path / "data.jsonl.gz"
    lines = "".join(json.dumps(row) + "\n" for row in PUBLIC[name])
    path.write_bytes(gzip.compress(lines.encode()))
    for source in (PUBLIC[name], iter(PUBLIC[name]), path):
        responses = rmlab.load_preferences(source)
        assert list(answers(responses).values()) == [[["good"], ["bad"]]]
        assert "p" in str(responses["prompt"][0])


def test_two_labels_of_one_pair_are_to_be_chosen_from():
    rows = [PKU[0] | {"safer_response_id": 0}]
    with pytest.raises(DataError, match="better_response_id"):
        rmlab.load_preferences(rows)
    safer = rmlab.load_preferences(rows, winner="safer_response_id")
    assert answers(safer) == {"0": [["bad"], ["good"]]}


def test_ratings_of_several_answers_are_all_their_pairs():
    rows = [
        {"prompt": "p", "response": text, "rating": n}
        for text, n in zip("abc", (3, 1, 3), strict=True)
    ]
    responses = rmlab.load_preferences(rows)
    assert list(answers(responses).values()) == [[["a"], ["b"]], [["c"], ["b"]]]
    assert len(responses["family"].unique()) == 1
    assert responses.attrs["understood"]["left_out"] == {"tie": 1}


def test_ranks_are_not_ratings():
    """The worst answer was the chosen one."""
    with pytest.raises(DataError, match=r"columns=\{'rank': 'rank'\}"):
        rmlab.load_preferences(RANKED, columns={"rating": "rank"})


def test_answers_without_their_rivals_are_a_pool():
    rows = [{"prompt": "p", "completion": text, "label": True} for text in "ab"]
    with pytest.raises(DataError, match="load_pool"):
        rmlab.load_preferences(rows)
    pool = rmlab.load_pool(rows)
    assert pool["label"].astype("str").tolist() == ["chosen", "chosen"]


@pytest.mark.parametrize("blank", ["", " \n", None])
def test_rows_with_an_empty_answer_are_refused_or_dropped_and_counted(blank):
    rows = [{"prompt": f"p{n}", "chosen": "a", "rejected": "b"} for n in range(4)]
    rows[1]["chosen"] = rows[2]["rejected"] = blank
    with pytest.raises(DataError, match=r"row 1.*2 such.*on_bad_rows='drop'"):
        rmlab.load_preferences(rows)
    responses = rmlab.load_preferences(rows, on_bad_rows="drop")
    assert responses["id"].unique().tolist() == ["0", "3"]
    assert responses.attrs["understood"]["bad_rows"] == 2


class Lazy:
    def collect(self):
        return self


def test_tables_of_other_libraries(tmp_path):
    rows = [{"prompt": "p", "chosen": ["a", "b"], "rejected": "c"}]
    frame = pd.DataFrame(rows)
    for source in (pa.Table.from_pandas(frame), {"train": pa.Table.from_pylist(rows)}):
        assert answers(rmlab.load_preferences(source)) == {"0": [["a", "b"], ["c"]]}
    splits = {"train": frame, "test": frame}
    with pytest.raises(DataError, match=r"'train', 'test'.*split="):
        rmlab.load_preferences(splits)
    assert len(rmlab.load_preferences(splits, split="test")) == 3
    with pytest.raises(TypeError, match="collect"):
        rmlab.load_preferences(Lazy())
    packed = tmp_path / "x.csv.zst"
    packed.write_bytes(
        pa.compress(b"prompt,chosen,rejected\np,a,b\n", codec="zstd", asbytes=True)
    )
    assert set(rmlab.load_preferences(packed)["benchmark"]) == {"x"}
    (tmp_path / "cut.json.gz").write_bytes(zlib.compress(b"[]")[:5])
    with pytest.raises(DataError, match=r"cut\.json\.gz"):
        rmlab.load_preferences(tmp_path / "cut.json.gz")


def test_scores_are_counted_by_row_and_label(tmp_path):
    """One score too many in a row and one missing in another gave 0.025 for 1.0."""
    rows = [
        {
            "prompt": f"p{n}",
            "chosen": "a",
            "rejected": "b",
            "chosen_score": [1],
            "rejected_score": [0],
        }
        for n in range(4)
    ]
    rows[1]["chosen_score"] = [1, 1]
    rows[2]["chosen_score"] = []
    path = tmp_path / "x.json"
    path.write_text(json.dumps(rows))
    with pytest.raises(DataError, match=r"row 1: 'chosen_score'"):
        rmlab.read_scores(path)


def test_a_column_named_twice_is_refused(tmp_path):
    table = pa.Table.from_arrays(
        [pa.array(["a"])] * 3, names=["prompt", "chosen", "chosen"]
    )
    pq.write_table(table, tmp_path / "x.parquet")
    frame = pd.DataFrame(
        [["p", "a", "b", "c"]], columns=["prompt", "chosen", "chosen", "rejected"]
    )
    for source in (tmp_path / "x.parquet", frame):
        with pytest.raises(DataError, match="chosen"):
            rmlab.load_preferences(source)


def test_pools_of_several_models_are_numbered_by_content():
    """Rows in another order made 1,240 of 1,600 keys wrong."""
    rng = np.random.default_rng(0)
    texts = pd.DataFrame(
        {
            "prompt": np.repeat(["p", "q"], 8),
            "response": [f"r{n}" for n in range(16)],
            "correct": rng.random(16) < 0.5,
        }
    )
    models = [
        texts.sample(frac=1, random_state=n).assign(model=f"m{n}") for n in range(3)
    ]
    frame = pd.concat(models)
    frame["score"] = frame["response"].str[1:].astype(float)
    pool = rmlab.load_pool(frame)
    wide = pool.pivot(index=rmlab.tables.KEY, columns="model", values="score")
    assert wide.eq(wide["m0"], axis=0).all(axis=None)
    numbered = frame.drop(columns="response")
    with pytest.raises(DataError, match="'candidate'"):
        rmlab.load_pool(numbered)
    pool = rmlab.load_pool(numbered.assign(candidate=frame["response"]))
    again = pool.pivot(index=rmlab.tables.KEY, columns="model", values="score")
    assert again.to_numpy().tolist() == wide.to_numpy().tolist()


def test_models_that_scored_different_answers_have_one_slot_for_each_text(tmp_path):
    """The slots were places among the model's own answers."""
    scored = [("A", "abcd"), ("B", "dbc")]
    rows = [
        (model, "p", text, text in "ab", ord(text))
        for model, texts in scored
        for text in texts
    ]
    path = tmp_path / "x.csv"
    names = ["model", "prompt", "response", "label", "score"]
    pd.DataFrame(rows, columns=names).to_csv(path, index=False)
    texts = rmlab.load_preferences(path)[[*rmlab.tables.KEY, "response"]]
    scores = rmlab.read_scores(path).merge(texts, on=rmlab.tables.KEY)
    assert len(scores) == 7
    assert scores["response"].map(ord).tolist() == scores["score"].tolist()


def test_a_pool_is_read_from_a_file(tmp_path):
    frame = pd.DataFrame(
        {"question": ["p"] * 2, "response": ["a", "b"], "correct": [1, 0]}
    )
    frame.to_csv(tmp_path / "mine.csv", index=False)
    assert set(rmlab.load_pool(tmp_path / "mine.csv")["benchmark"]) == {"mine"}


def test_files_of_one_name_are_models_by_the_part_that_differs(tmp_path):
    """All were called `scores`, and their keys collided."""
    for name, value in (("rm-a", 1.0), ("rm-b", None)):
        frame = pd.DataFrame(
            {"chosen_score": [value, 1.0], "rejected_score": 0.5},
            index=pd.Index(["x", "y"], name="id"),
        )
        (tmp_path / name).mkdir()
        frame.to_parquet(tmp_path / name / "scores.parquet")
    scores = rmlab.read_scores(
        str(tmp_path / "*" / "scores.parquet"), allow_missing=True
    )
    assert scores["model"].unique().tolist() == ["rm-a", "rm-b"]
    assert scores["id"].unique().tolist() == ["x", "y"]
    assert rmlab.summary(scores)["missing"].tolist() == [0, 1]


@pytest.mark.parametrize("end", ["", "_outputs", "_all"])
def test_files_called_after_models_are_of_one_benchmark(tmp_path, end):
    """Each model had a benchmark of its own, and nothing could be compared."""
    rows = [{"prompt": "p", "scores_chosen": 1.5, "scores_rejected": 0.5}]
    rows[0] |= {"results": 1, "text_chosen": "<s>p", "text_rejected": "<s>p"}
    for name in ("m1", "m2"):
        (tmp_path / f"{name}{end}.jsonl").write_text(json.dumps(rows[0]))
    scores = rmlab.read_scores(str(tmp_path / "*.jsonl"))
    assert scores["model"].unique().tolist() == ["m1", "m2"]
    assert set(scores["benchmark"]) == {tmp_path.name}
    assert rmlab.pairs(scores)["outcome"].tolist() == ["win", "win"]


def test_files_of_reward_bench_runners(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    lines = '{"chosen": 1.5, "rejected": 0.5}\n{"chosen": 0, "rejected": 0.5}\n'
    outcomes = rmlab.pairs(rmlab.read_scores(write("rm_all.jsonl", lines)))["outcome"]
    assert outcomes.tolist() == ["win", "loss"]
    judged = {
        "id": [395, 396, 397],
        "subset": ["llmbar-natural"] * 3,
        "results": [1, 0, 0.5],
        "text_chosen": ["a"] * 3,
        "model": "judge",
    }
    pairs = rmlab.read_pairs(write("judge.json", judged))
    assert pairs["outcome"].tolist() == ["win", "loss", "tie"]
    assert set(pairs["model"]) == {"judge"}


def test_different_prompts_with_one_id_are_different_items(tmp_path):
    rows = [
        {
            "id": "7",
            "prompt": f"q{n}",
            "chosen": ["a"],
            "rejected": ["b", "c", "d"],
            "subset": "Focus",
            "num_correct": 1,
        }
        for n in range(3)
    ]
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(rows))
    responses = rmlab.load("reward-bench-2", path=path)
    assert responses["id"].nunique() == 3
    scores = rmlab.score(responses, "random")
    results = {
        "id": ["7"] * 3,
        "subset": ["Focus"] * 3,
        "num_correct": [1] * 3,
        "scores": scores["score"].to_numpy().reshape(3, 4).tolist(),
        "model": "random",
    }
    (tmp_path / "results.json").write_text(json.dumps(results))
    read = rmlab.read_scores(tmp_path / "results.json")
    rmlab.tables.check_match(read, responses)


def test_a_remedy_can_be_followed(tmp_path):
    """Each message's next step, taken as it is written, leads on."""
    frame = pd.DataFrame(
        {"ask": ["1?", "2?"], "left": ["a", ""], "right": ["b", "c"], "grade": [-1, 2]}
    )
    options = {}
    steps = [
        (
            "columns={'chosen'",
            {"columns": {"a": "left", "b": "right"}, "winner": "grade"},
        ),
        ("better='b'", {"better": "b"}),
        (
            "columns={'prompt'",
            {"columns": {"a": "left", "b": "right", "prompt": "ask"}},
        ),
        ("on_bad_rows", {"on_bad_rows": "drop"}),
    ]
    for remedy, option in steps:
        with pytest.raises(DataError) as caught:
            rmlab.load_preferences(frame, **options)
        if remedy != "on_bad_rows":
            assert remedy in str(caught.value)
        options |= option
    assert len(rmlab.load_preferences(frame, **options)) == 2


@pytest.mark.parametrize("n_models", [3, pytest.param(51, marks=pytest.mark.long)])
def test_real_scores_give_the_printed_accuracies(shared_data, tmp_path, n_models):
    """Themis-CodeRewardBench's scores as its project publishes them, file by file."""
    folder = shared_data / "themis-code-reward-bench"
    items = pd.read_parquet(folder / "items.parquet").set_index("item")
    margins = pd.read_parquet(folder / "scores.parquet").astype({"model": "str"})
    printed = pd.read_csv(folder / "printed_accuracies.csv").set_index("model")
    # CE-RM has ties, and replies that could not be read.
    names = ["CE-RM-4B", *printed.index.drop("CE-RM-4B")][:n_models]
    for name in names:
        # One model has four rows fewer than there are items.
        rows = margins[margins["model"] == name].set_index("item")
        margin = rows["margin"].astype(float)
        chosen = rows["chosen"].astype(float).fillna(0.0)
        of_model = items.loc[rows.index]
        frame = of_model[["language", "aspect", "subset"]].astype("str")
        frame["chosen_score"] = margin.where(margin.isna(), chosen + margin)
        frame["rejected_score"] = margin.where(margin.isna(), chosen)
        frame["correct"] = margin > 0
        frame["score_diff"] = margin
        (tmp_path / name).mkdir()
        frame.set_index(of_model["id"]).to_parquet(tmp_path / name / "scores.parquet")

    scores = rmlab.read_scores(str(tmp_path / "*/scores.parquet"), allow_missing=True)
    pairs = rmlab.pairs(scores)
    # The printed table counts a tie and a missing score as lost.
    is_win = pairs["outcome"] == "win"
    overall = is_win.groupby(pairs["model"]).mean()
    by_aspect = is_win.groupby([pairs["model"], pairs["aspect"]]).mean().unstack()
    accuracies = by_aspect.assign(overall=overall)
    assert set(accuracies.index) == set(names)
    expected = printed.loc[accuracies.index, accuracies.columns]
    np.testing.assert_allclose(accuracies, expected, atol=5.1e-5)


SIDES = {"prompt": "p", "response_a": "x", "response_b": "y"}


def battles(column, cells, **fields):
    """A battle a cell, each with a prompt of its own."""
    return [
        {**SIDES, "prompt": f"p{n}", column: cell, **fields}
        for n, cell in enumerate(cells)
    ]


@pytest.mark.parametrize(
    ("column", "grades"),
    [
        ("preference_strength", [1, 2]),
        ("preference_strength", [-2, -1]),
        ("overall_preference", [-2, -1]),
    ],
)
def test_graded_columns_are_signed(column, grades):
    """1 was the first answer and 2 the second, or the middle a tie."""
    rows = battles(column, grades)
    with pytest.raises(DataError, match="better"):
        rmlab.load_preferences(rows)
    responses = rmlab.load_preferences(rows, better="b")
    best = ["y", "x"] if grades[0] > 0 else ["x", "y"]
    assert responses["response"].tolist() == best * 2
    strengths = responses.drop_duplicates("id")["strength"].tolist()
    assert strengths == [abs(grade) for grade in grades]


@pytest.mark.parametrize(
    "grades", [[2, 4], [0, 3], [1, 4], [-3, -1], [1, 1], [0.2, 0.9], [0, 10]]
)
def test_a_scale_without_a_known_middle_is_refused(grades):
    with pytest.raises(DataError, match="middle"):
        rmlab.load_preferences(battles("winner", grades), better="b")


@pytest.mark.parametrize(
    "grades", [[-1, 0, 3], [0, 0.5, 1], [1, 1.5, 2], [1, 4, 7], ["1", "3.0", "5"]]
)
def test_a_scale_with_a_known_middle(grades):
    responses = rmlab.load_preferences(battles("winner", grades), better="b")
    assert responses["response"].tolist() == ["x", "y", "y", "x"]
    assert responses.attrs["understood"]["left_out"] == {"tie": 1}


@pytest.mark.parametrize("column", ["label", "labels"])
def test_a_numeric_label_beside_answers_needs_its_direction(column):
    rows = battles(column, [1, 0])
    with pytest.raises(DataError, match="better"):
        rmlab.load_preferences(rows)
    responses = rmlab.load_preferences(rows, better="b")
    assert responses["response"].tolist() == ["y", "x", "x", "y"]


def long_rows(*rows):
    names = ("id", "prompt", "response", "label", "domain")
    return [dict(zip(names, row, strict=True)) for row in rows]


def test_ids_that_restart_in_each_domain_are_told_apart():
    """Answers to different prompts were compared."""
    rows = long_rows(
        (1, "p", "x", 2, "math"),
        (1, "p", "y", 1, "math"),
        (1, "q", "v", 4, "code"),
        (1, "q", "w", 3, "code"),
    )
    responses = rmlab.load_preferences(rows, columns={"rating": "label", "label": None})
    assert responses["response"].tolist() == ["x", "y", "v", "w"]
    assert responses["prompt"].tolist() == ["p", "p", "q", "q"]


@pytest.mark.parametrize("load", [rmlab.load_preferences, rmlab.load_pool])
def test_one_id_with_two_prompts_is_refused(load):
    rows = long_rows((1, "p", "x", 1, "math"), (1, "q", "y", 0, "math"))
    with pytest.raises(DataError, match="row "):
        load(rows)


def test_the_model_of_an_unscored_answer_is_its_author():
    rows = [
        {"prompt": "p", "response": "x", "label": 1, "model": "one"},
        {"prompt": "p", "response": "y", "label": 0, "model": "two"},
    ]
    assert answers(rmlab.load_preferences(rows)) == {"0": [["x"], ["y"]]}
    pool = rmlab.load_pool(rows)
    assert "model" not in pool
    assert pool["n_candidates"].tolist() == [2, 2]


POOL = pd.DataFrame(
    {
        "Model": "m",
        "Prompt": "p",
        "Response": ["x", "y"],
        "Correct": [1, 0],
        "Score": [0.5, 0.25],
    }
)


def test_columns_of_a_pool_may_have_capitals(tmp_path):
    path = tmp_path / "pool.csv"
    POOL.to_csv(path, index=False)
    for pool in (rmlab.load_pool(POOL), rmlab.load_pool(path), rmlab.read_scores(path)):
        assert pool["score"].tolist() == [0.5, 0.25]
        assert set(pool["model"].astype("str")) == {"m"}
        assert pool["n_candidates"].tolist() == [2, 2]


@pytest.mark.parametrize("text", ['["a", "b"]', '{"a": 1}'])
@pytest.mark.parametrize("prompt", ["Write JSON.", json.dumps([user("JSON?")])])
def test_an_answer_that_is_json_stays_text(text, prompt):
    """Beside packed prompts a list became two rival answers."""
    row = {"prompt": prompt, "chosen": text, "rejected": "[]"}
    responses = rmlab.load_preferences([row])
    assert responses["response"].tolist() == [text, "[]"]


def test_a_rank_as_text_is_a_rank():
    """The answer with the larger score was the chosen one."""
    listed = [
        {"answer": "bad", "rank": "2", "score": 9},
        {"answer": "good", "rank": "1", "score": 1},
    ]
    responses = rmlab.load_preferences([{"prompt": "p", "answers": listed}])
    assert responses["response"].tolist() == ["good", "bad"]
    listed[0]["rank"] = "second"
    with pytest.raises(DataError, match="row 0"):
        rmlab.load_preferences([{"prompt": "p", "answers": listed}])


def test_lists_of_ranks_are_not_ratings():
    rows = [{"prompt": "p", "responses": ["x", "y"], "ranks": [1, 2]}]
    with pytest.raises(DataError, match="rank"):
        rmlab.load_preferences(rows, columns={"ratings": "ranks"})


def test_prompts_without_a_comparison_are_counted():
    rated = [
        {"prompt": prompt, "response": text, "rating": n}
        for prompt, text, n in (("p", "x", 1), ("p", "y", 2), ("q", "z", 3))
    ]
    responses = rmlab.load_preferences(rated)
    assert sum(responses.attrs["understood"]["left_out"].values()) == 1
    listed = [
        {"prompt": "p", "responses": ["x", "y"], "ratings": [1, 2]},
        {"prompt": "q", "responses": [], "ratings": []},
    ]
    responses = rmlab.load_preferences(listed)
    assert sum(responses.attrs["understood"]["left_out"].values()) == 1


def test_decimal_commas_of_pools_and_scales(tmp_path):
    path = tmp_path / "pool.csv"
    POOL.to_csv(path, index=False, sep=";", decimal=",")
    for pool in (rmlab.load_pool(path), rmlab.read_scores(path)):
        assert pool["score"].tolist() == [0.5, 0.25]
    lines = ["prompt;response_a;response_b;winner", "p;x;y;-1,5", "q;x;y;0,5"]
    path.write_text("\n".join(lines))
    responses = rmlab.load_preferences(path, better="b")
    assert responses["response"].tolist() == ["x", "y", "y", "x"]
    assert responses.drop_duplicates("id")["strength"].tolist() == [1.5, 0.5]


def test_decimal_commas_of_scores(tmp_path):
    path = tmp_path / "scores.csv"
    lines = ["model;benchmark;domain;id;label;slot;score"]
    lines += ["m;b;d;1;chosen;0;0,5", "m;b;d;1;rejected;0;0,25"]
    path.write_text("\n".join(lines))
    assert rmlab.read_scores(path)["score"].tolist() == [0.5, 0.25]


def test_a_winner_that_both_models_are_called_is_none():
    rows = battles("winner", ["a", "m"], model_a="m", model_b="m")
    responses = rmlab.load_preferences(rows)
    assert responses["id"].unique().tolist() == ["0"]
    assert responses.attrs["understood"]["left_out"] == {"'m'": 1}


def test_chosen_cells_that_name_columns_are_refused():
    row = {**SIDES, "chosen": "response_b", "rejected": "response_a"}
    with pytest.raises(DataError, match=r"\{'winner': 'chosen'\}"):
        rmlab.load_preferences([row])
    responses = rmlab.load_preferences([row], columns={"winner": "chosen"})
    assert responses["response"].tolist() == ["y", "x"]


@pytest.mark.parametrize("word", ["nan", "inf", "-inf"])
def test_words_that_float_reads_are_no_winners(word):
    responses = rmlab.load_preferences(battles("winner", ["a", word, "b"]))
    assert responses["id"].unique().tolist() == ["0", "2"]
    assert responses.attrs["understood"]["left_out"] == {repr(word): 1}


def test_winners_of_scores_without_texts(tmp_path):
    """The remedy named columns that led nowhere."""
    path = tmp_path / "battles.csv"
    path.write_text("id,winner,score_a,score_b\nx,a,2,1\ny,b,2,1\n")
    outcomes = rmlab.pairs(rmlab.read_scores(path)).set_index("id")["outcome"]
    assert outcomes.to_dict() == {"x": "win", "y": "loss"}
    # `better=` was named, which this function does not have.
    path.write_text("id,winner,score_a,score_b\nx,-2,2,1\ny,1,2,1\n")
    with pytest.raises(DataError, match="write 'a' and 'b'"):
        rmlab.read_scores(path)


def test_unpaired_answers_of_messages_are_a_pool():
    """load_preferences sends them to load_pool, which refused messages."""
    pool = rmlab.load_pool(KTO)
    assert pool["response"].tolist() == ["good", "bad"]
    assert pool["prompt"].tolist() == ["p", "p"]


def test_a_bad_label_is_a_bad_row():
    rows = [
        {"prompt": f"p{n}", "response": text, "label": label}
        for n in range(3)
        for text, label in (("x", 1), ("y", 0))
    ]
    rows[1]["label"] = "perhaps"
    rows[2]["response"] = ""
    with pytest.raises(DataError, match="on_bad_rows='drop'"):
        rmlab.load_preferences(rows)
    responses = rmlab.load_preferences(rows, on_bad_rows="drop")
    assert responses["prompt"].unique().tolist() == ["p2"]
    assert responses.attrs["understood"]["bad_rows"] == 2


def test_a_prompt_that_is_a_json_object_stays_text():
    texts = ['{"task": "add"}', '["one", "two"]']
    rows = [{"prompt": text, "chosen": "a", "rejected": "b"} for text in texts]
    assert rmlab.load_preferences(rows)["prompt"].unique().tolist() == texts


def test_decimal_commas_of_joined_scores(tmp_path):
    row = {"prompt": "p", "chosen": "a", "rejected": "b", "id": "7"}
    path = tmp_path / "excel.csv"
    path.write_text("id;label;score\n7;chosen;0,5\n7;rejected;-1,25\n")
    scores = rmlab.io.join(rmlab.load_preferences([row]), path)
    assert scores["score"].tolist() == [0.5, -1.25]


@pytest.mark.parametrize("layout", ["winner", "rating", "ratings"])
def test_a_missing_value_of_a_scale_is_not_read_as_its_lowest(layout):
    numbers = [1, 5, -1, 4]
    if layout == "winner":
        rows = battles("winner", numbers)
    elif layout == "rating":
        rows = [{"prompt": "p", "response": f"r{n}", "rating": n} for n in numbers]
    else:
        texts = [f"r{n}" for n in numbers]
        rows = [{"prompt": "p", "responses": texts, "ratings": numbers}]
    options = {"better": "b"} if layout == "winner" else {}
    with pytest.raises(DataError, match="-1"):
        rmlab.load_preferences(rows, **options)


@pytest.mark.parametrize("other", ["context", "input"])
def test_a_context_beside_the_question_is_not_dropped(other):
    row = {"question": "q", other: "c", "chosen": "a", "rejected": "b"}
    with pytest.raises(DataError, match=rf"'question'.*'{other}'"):
        rmlab.load_preferences([row])
    named = rmlab.load_preferences([row], columns={"prompt": "question"})
    assert set(named["prompt"]) == {"q"}


@pytest.mark.parametrize("place", ["prompt", "answers"])
def test_two_different_system_messages_are_refused(place):
    said = {"role": "system", "content": "Be long."}
    talk = [said, user("Hi")]
    rows = [{"system": "Be brief.", "prompt": talk, "chosen": "a", "rejected": "b"}]
    if place == "answers":
        rows[0].pop("prompt")
        rows[0]["chosen"] = [*talk, assistant("a")]
        rows[0]["rejected"] = [*talk, assistant("b")]
    with pytest.raises(DataError, match="row 0"):
        rmlab.load_preferences(rows)
    said["content"] = "Be brief."
    assert rmlab.load_preferences(rows)["prompt"][0] == talk


def test_a_system_column_and_conversations_that_repeat_the_prompt():
    """They were refused as contradicting each other."""
    talks = {label: [user("Hi"), assistant(label)] for label in ("chosen", "rejected")}
    row = {"system": "Be brief.", "prompt": "Hi", **talks}
    responses = rmlab.load_preferences([row])
    assert responses["response"].tolist() == ["chosen", "rejected"]
    assert [turn["role"] for turn in responses["prompt"][0]] == ["system", "user"]


def test_scores_by_model_id_and_label_need_no_slot(tmp_path):
    path = tmp_path / "plain.csv"
    lines = ["model,label,id,score", "m,chosen,x,2", "m,rejected,x,1"]
    path.write_text("\n".join([*lines, "n,rejected,x,2", "n,chosen,x,1"]))
    pairs = rmlab.pairs(rmlab.read_scores(path)).set_index("model")
    assert pairs["outcome"].to_dict() == {"m": "win", "n": "loss"}
    twice = [*lines, "m,rejected,x,0", "n,rejected,x,0"]
    path.write_text("\n".join([*twice, "n,chosen,x,2", "n,rejected,x,1"]))
    with pytest.raises(DataError, match="'candidate'"):
        rmlab.read_scores(path)


def test_an_overall_preference_may_begin_at_one():
    """All rows chose one side: the column's name made the grades signed."""
    unclear = battles("overall_preference", [1, 2, 3])
    with pytest.raises(DataError, match="'preference_strength'"):
        rmlab.load_preferences(unclear, better="b")
    responses = rmlab.load_preferences(
        battles("overall_preference", [1, 2, 3, 4, 5]), better="b"
    )
    assert responses["response"].tolist() == ["x", "y"] * 2 + ["y", "x"] * 2
    assert responses.attrs["understood"]["left_out"] == {"tie": 1}


LISTED = {
    "ratings by row": [
        {"model": m, "prompt": "x", "response": r, "rating": "abc".index(r)}
        | {"score": float(ord(r))}
        for m, order in (("A", "abc"), ("B", "cab"))
        for r in order
    ],
    "labels in lists": [
        {"model": m, "id": "1", "prompt": "x", "responses": [*order]}
        | {"labels": [int(r == "b") for r in order]}
        | {"scores": [float(ord(r)) for r in order]}
        for m, order in (("A", "bac"), ("B", "cab"))
    ],
    "lists without ids": [
        {"model": m, "prompt": "x", "responses": [*order]}
        | {"ratings": [ord(r) for r in order], "scores": [float(ord(r)) for r in order]}
        for m, order in (("A", "bac"), ("B", "cab"))
    ],
    "rejected": [
        {"model": m, "id": "1", "prompt": "x", "chosen": "b", "rejected": [*order]}
        | {"chosen_score": 98.0, "rejected_score": [float(ord(r)) for r in order]}
        for m, order in (("A", "ac"), ("B", "ca"))
    ],
    "sides": [
        {"model": m, "prompt": "x", "response_a": a, "response_b": b}
        | {"winner": "a" if a == "b" else "b"}
        | {"score_a": float(ord(a)), "score_b": float(ord(b))}
        for m, (a, b) in (("A", "ba"), ("B", "ab"))
    ],
}


@pytest.mark.parametrize("layout", LISTED)
def test_answers_of_models_pair_by_content_whatever_their_order(tmp_path, layout):
    """Places in a list, rows and sides were taken for the answers themselves."""
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(map(json.dumps, LISTED[layout])))
    scores = rmlab.read_scores(path)
    margins = rmlab.pairs(scores).pivot(
        index=rmlab.tables.ITEM, columns="model", values="margin"
    )
    assert margins["A"].tolist() == margins["B"].tolist()
    responses = rmlab.load_preferences(path)
    assert len(responses) == len(scores) / 2
    texts = responses.set_index(rmlab.tables.KEY)["response"]
    keys = pd.MultiIndex.from_frame(scores[rmlab.tables.KEY])
    assert texts.reindex(keys).map(ord).tolist() == scores["score"].tolist()


def test_columns_that_differ_by_model_do_not_tell_answers_apart(tmp_path):
    """Models with a column of seconds shared nothing."""
    frame = pd.DataFrame(
        {"id": [*"xxyyzz"], "label": [1, 0] * 3, "score": [2.0, 1, 1, 2, 2, 1]}
    )
    models = [frame.assign(model="A"), frame[::-1].assign(model="B")]
    both = pd.concat(models).assign(seconds=np.arange(12) / 7)
    path = tmp_path / "x.csv"
    both.to_csv(path, index=False)
    margins = rmlab.pairs(rmlab.read_scores(path)).pivot(
        index=rmlab.tables.ITEM, columns="model", values="margin"
    )
    assert margins.to_numpy().tolist() == [[1, 1], [-1, -1], [1, 1]]


@pytest.mark.parametrize("name", ["item", "row"])
def test_rows_of_scores_of_several_models_need_ids(tmp_path, name):
    """They were paired by the order of rows, without a word."""
    frame = pd.DataFrame({name: [*"xyz"], "chosen_score": [1.0, 2, 3]})
    frame = frame.assign(rejected_score=2.0, model="A")
    path = tmp_path / "x.csv"
    pd.concat([frame, frame[::-1].assign(model="B")]).to_csv(path, index=False)
    if name == "row":
        with pytest.raises(DataError, match=r"columns=\{'id'"):
            rmlab.read_scores(path)
    columns = None if name == "item" else {"id": name}
    pairs = rmlab.pairs(rmlab.read_scores(path, columns=columns))
    margins = pairs.pivot(index="id", columns="model", values="margin")
    assert margins["A"].tolist() == margins["B"].tolist() == [-1, 0, 1]


def test_files_of_scores_whose_families_have_another_order_are_refused(tmp_path):
    frame = pd.DataFrame({"family": [*"xyz"], "chosen_score": [1.0, 2, 3]})
    frame["rejected_score"] = 2.0
    for model, rows in (("A", frame), ("B", frame[::-1]), ("C", frame)):
        (tmp_path / model).mkdir()
        rows.to_csv(tmp_path / model / "x.csv", index=False)
    with pytest.raises(DataError, match="give each row an id"):
        rmlab.read_scores(str(tmp_path / "*/x.csv"))
    scores = rmlab.read_scores(str(tmp_path / "*/x.csv"), columns={"id": "family"})
    margins = rmlab.pairs(scores).pivot(index="id", columns="model", values="margin")
    assert (margins.sub(margins["A"], axis=0) == 0).all(axis=None)
    assert len(rmlab.read_scores(str(tmp_path / "[AC]/x.csv"))) == 12


@pytest.mark.parametrize("layout", ["pairs", "pool"])
def test_files_whose_rows_have_another_order_are_refused(tmp_path, layout):
    """They were paired by the numbers of their rows."""
    frame = pd.DataFrame({"prompt": [*"pqr"], "chosen": "c", "rejected": "r"})
    frame = frame.assign(chosen_score=[0.0, 1, 2], rejected_score=0.5)
    if layout == "pool":
        frame = pd.DataFrame({"prompt": [*"ppqq"], "response": [*"abcd"]})
        frame = frame.assign(score=[0.0, 1, 2, 3], correct=[1, 0, 1, 0])
    for name, rows in (("A", frame), ("B", frame[::-1])):
        (tmp_path / name).mkdir()
        rows.to_csv(tmp_path / name / "x.csv", index=False)
    with pytest.raises(DataError, match="'model'"):
        rmlab.read_scores(str(tmp_path / "*/x.csv"))
    # Both next steps lead on.
    for folder in tmp_path.iterdir():
        rows = pd.read_csv(folder / "x.csv")
        rows.assign(id=rows["prompt"]).to_csv(folder / "x.csv", index=False)
    scores = rmlab.read_scores(str(tmp_path / "*/x.csv"))
    models = [frame.assign(model="A"), frame[::-1].assign(model="B")]
    pd.concat(models).to_csv(tmp_path / "x.csv", index=False)
    for read in (scores, rmlab.read_scores(tmp_path / "x.csv")):
        wide = read.pivot(index=rmlab.tables.KEY, columns="model", values="score")
        assert wide["A"].tolist() == wide["B"].tolist()
        assert not {"(prompt)", "(response)"} & {*read}


@pytest.mark.parametrize("load", [rmlab.load_preferences, rmlab.load_pool])
def test_ids_that_restart_by_subset_beside_a_domain_are_refused(load):
    rows = long_rows((1, "p", "x", 1, "math"), (1, "p", "y", 0, "math"))
    with pytest.raises(DataError, match="into one column"):
        load([row | {"subset": f"s{n}"} for n, row in enumerate(rows)])


def test_only_load_preferences_speaks_of_dropping_rows(tmp_path):
    rows = long_rows((1, "p", "x", "?", "math"))
    (tmp_path / "x.jsonl").write_text(json.dumps(rows[0] | {"score": 1}))
    for load, source in (
        (rmlab.load_pool, rows),
        (rmlab.read_scores, tmp_path / "x.jsonl"),
    ):
        with pytest.raises(DataError) as caught:
            load(source)
        assert "on_bad_rows" not in str(caught.value)


@pytest.mark.parametrize("model", [["m", None], [None, None], ["", "m"]])
def test_joined_scores_without_a_model_are_refused(model):
    """Rows without one were dropped; without any there was a raw error."""
    row = {"id": "1", "prompt": "p", "chosen": "a", "rejected": "b"}
    responses = rmlab.load_preferences([row])
    plain = pd.DataFrame({"id": "1", "label": ["chosen", "rejected"], "score": 1.0})
    plain["model"] = pd.Series(model, dtype=object)
    with pytest.raises(DataError, match="model="):
        rmlab.io.join(responses, plain)
    assert len(rmlab.io.join(responses, plain, model="m")) == 2


def test_cells_of_winners_that_are_not_read_are_named():
    rows = battles("winner_a", ["yes", 1, 0.7, 0], winner_b=0)
    responses = rmlab.load_preferences(rows)
    assert responses["id"].unique().tolist() == ["1"]
    left_out = responses.attrs["understood"]["left_out"]
    assert left_out.pop("tie") == 1
    assert sum(left_out.values()) == len(left_out) == 2


def test_a_winner_whose_name_ends_as_a_number_is_found():
    rows = battles("winner", ["m-2.0", "m-2"], model_a="m-2.0", model_b="m-2")
    assert rmlab.load_preferences(rows)["response"].tolist() == ["x", "y", "y", "x"]


def test_the_line_says_where_the_middle_is(caplog):
    rmlab.load_preferences(battles("winner", [1, 2, 3]), better="b")
    assert "middle 2, scale 1 to 3" in caplog.text


def test_the_line_has_no_empty_brackets(caplog):
    rows = [{"prompt": "p", "chosen": "a", "rejected": text} for text in "bc"]
    rmlab.load_preferences(rows)
    assert "pairs, 2 comparisons; 1 families" in caplog.text


def test_steps_that_are_read_as_answers_are_told(caplog):
    row = {"prompt": "p", "completions": ["a", "b"], "labels": [True, False]}
    rmlab.load_preferences([row])
    assert "steps" in caplog.text


def test_a_tensor_in_an_extra_column_is_ignored():
    """It was a RuntimeError."""
    torch = pytest.importorskip("torch")
    row = {"prompt": "p", "chosen": "a", "rejected": "b"}
    responses = rmlab.load_preferences([row | {"logits": torch.zeros(2)}])
    assert responses.attrs["understood"]["ignored"] == ["logits"]


@pytest.mark.parametrize("text", ["[3, 1, 2]", "[[1], [2]]"])
def test_a_prompt_that_is_a_list_of_numbers_stays_text(text):
    rows = [{"prompt": text, "chosen": "a", "rejected": "b"}]
    assert set(rmlab.load_preferences(rows)["prompt"]) == {text}


def test_nulls_that_arrow_adds_are_no_part_of_tools():
    row = {"prompt": "p", "chosen": "a", "rejected": "b"}
    tools = [{"name": "add", "a": 1}, {"name": "sub", "b": 1}]
    [prompt, _] = rmlab.load_preferences(
        pa.Table.from_pylist([row | {"tools": tools}])
    )["prompt"]
    assert json.loads(prompt[0]["content"]) == tools


def test_candidates_with_ids_of_their_own_belong_to_the_named_prompt():
    """Each was a prompt of its own."""
    rows = long_rows((1, "p", "x", 1, "math"), (2, "p", "y", 0, "math"))
    assert rmlab.load_pool(rows, prompt="prompt")["n_candidates"].tolist() == [2, 2]
