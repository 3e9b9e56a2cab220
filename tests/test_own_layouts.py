"""Files as people write them: each layout goes from the file to numbers, or ends with the option to type."""

import json

import numpy as np
import pandas as pd
import pytest

import rmlab
from rmlab.tables import DataError

PROMPTS, RIGHT, WRONG = ["Two and two?", "Name a prime.", "Is it so?"], ["4", "7", "yes"], ["5", "8", "no"]
CHOSEN, REJECTED = [2.0, 0.5, 1.0], [1.0, 1.5, 1.0]
PAIR = {"prompt": PROMPTS, "chosen": RIGHT, "rejected": WRONG}
SIDES = {
    "prompt": PROMPTS,
    "response_a": [RIGHT[0], WRONG[1], RIGHT[2]],
    "response_b": [WRONG[0], RIGHT[1], WRONG[2]],
    "score_a": [CHOSEN[0], REJECTED[1], CHOSEN[2]],
    "score_b": [REJECTED[0], CHOSEN[1], REJECTED[2]],
}
ANSWERS = {
    "prompt": [prompt for prompt in PROMPTS for _ in "ab"],
    "response": [text for both in zip(RIGHT, WRONG, strict=True) for text in both],
    "score": [score for both in zip(CHOSEN, REJECTED, strict=True) for score in both],
}
LISTS = [
    {"prompt": prompt, "responses": [wrong, right], "labels": [0, 1], "scores": [low, high]}
    for prompt, right, wrong, high, low in zip(PROMPTS, RIGHT, WRONG, CHOSEN, REJECTED, strict=True)
]
LAYOUTS = {
    "score_chosen": PAIR | {"score_chosen": CHOSEN, "score_rejected": REJECTED},
    "chosen_score": PAIR | {"chosen_score": CHOSEN, "rejected_score": REJECTED},
    "reward_chosen": PAIR | {"reward_chosen": CHOSEN, "reward_rejected": REJECTED},
    "nested": PAIR | {"scores": [{"chosen": c, "rejected": r} for c, r in zip(CHOSEN, REJECTED, strict=True)]},
    "list of scores": PAIR | {"scores": [[c, r] for c, r in zip(CHOSEN, REJECTED, strict=True)]},
    "winner a/b": SIDES | {"winner": ["a", "b", "a"]},
    "winner 1/2": SIDES | {"winner": [1, 2, 1]},
    "winner A>B": SIDES | {"winner": ["A>B", "B>A", "A > B"]},
    "winner by name": SIDES | {"model_a": ["x", "x", "y"], "model_b": ["y", "y", "x"], "winner": ["x", "y", "y"]},
    "label 1/0": ANSWERS | {"label": [1, 0] * 3},
    "label true/false": ANSWERS | {"label": [True, False] * 3},
    "label chosen/rejected": ANSWERS | {"label": ["chosen", "rejected"] * 3},
    "lists": LISTS,
}


def write(content, path):
    frame = pd.DataFrame(content)
    if path.suffix in (".csv", ".tsv"):
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_json(path, orient="records", lines=path.suffix == ".jsonl")
    return path


NESTED = ("nested", "list of scores", "lists")  # a cell of CSV holds no list
FILES = [
    (layout, suffix)
    for layout in LAYOUTS
    for suffix in (".csv", ".tsv", ".json", ".jsonl", ".parquet")
    if layout not in NESTED or suffix not in (".csv", ".tsv")
]


@pytest.mark.parametrize(("layout", "suffix"), FILES)
def test_texts_and_scores_of_one_file_have_the_same_ids(tmp_path, layout, suffix):
    path = write(LAYOUTS[layout], tmp_path / f"mine{suffix}")
    responses, scores = rmlab.load_pairs(path), rmlab.read_scores(path)
    rmlab.tables.check_match(scores, responses)
    assert responses.pivot(index="id", columns="label", values="response").to_numpy().tolist() == [
        [right, wrong] for right, wrong in zip(RIGHT, WRONG, strict=True)
    ]
    assert rmlab.pairs(scores)["outcome"].tolist() == ["win", "loss", "tie"]
    assert scores["model"].unique().tolist() == ["mine"]


@pytest.mark.parametrize("names", [("score_chosen", "score_rejected"), ("good", "bad")])
def test_from_a_file_to_a_report_and_an_explorer_in_one_command(tmp_path, main, names):
    rng = np.random.default_rng(0)
    prompts = [f"What is {n} plus {n}?" for n in range(60)]
    rows = {"prompt": prompts, "chosen": [f"{2 * n}" for n in range(60)], "rejected": ["One, as everybody knows."] * 60}
    path = write(rows | {names[0]: rng.normal(size=60), names[1]: rng.normal(2, 1, 60)}, tmp_path / "mine.csv")
    columns = [] if names[0] == "score_chosen" else ["--column", "chosen_score=good", "--column", "rejected_score=bad"]
    code, _, err = main("report", path, "-o", tmp_path / "report.html", *columns)
    assert code == 0, err
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "mine scores" in page
    assert "shorter than the rejected one" in page
    code, _, err = main("explore", path, "-o", tmp_path / "explorer.html", "--no-open", *columns)
    assert code == 0, err
    assert "What is 7 plus 7?" in (tmp_path / "explorer.html").read_text(encoding="utf-8")


def test_ties_and_empty_winners_keep_the_ids_of_the_others(tmp_path):
    path = write(SIDES | {"winner": ["tie", "b", "a"]}, tmp_path / "mine.csv")
    assert (
        rmlab.load_pairs(path)["id"].unique().tolist() == rmlab.read_scores(path)["id"].unique().tolist() == ["1", "2"]
    )


def test_a_matrix_turned_over(tmp_path):
    path = write({"item": ["p", "q", "r"], "first": [1, 0, 1], "second": [0, 0.5, 1]}, tmp_path / "mine.csv")
    table = rmlab.read_pairs(path).set_index(["model", "id"])["outcome"]
    assert table.loc["first"].tolist() == ["win", "loss", "win"]
    assert table.loc["second"].tolist() == ["loss", "tie", "win"]


MISTAKES = {
    "no scores": (PAIR, "rmlab score"),
    "winner without scores": (
        {name: SIDES[name] for name in ("prompt", "response_a", "response_b")} | {"winner": ["a", "b", "a"]},
        "rmlab score",
    ),
    "two spellings": (
        PAIR | {"chosen_score": CHOSEN, "reward_chosen": CHOSEN, "rejected_score": REJECTED},
        "--column chosen_score=",
    ),
    "other names": ({"prompt": PROMPTS, "good": CHOSEN, "bad": REJECTED}, "--column chosen_score="),
    "a word for a score": (PAIR | {"chosen_score": ["high", "1", "2"], "rejected_score": REJECTED}, "high"),
    "ratings for labels": (ANSWERS | {"label": [5, 1, 4, 2, 3, 3]}, "label"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_end_with_what_to_type(tmp_path, mistake):
    content, remedy = MISTAKES[mistake]
    with pytest.raises(DataError) as caught:
        rmlab.read_scores(write(content, tmp_path / "mine.csv"))
    assert remedy in str(caught.value)
    assert "mine.csv" in str(caught.value)


def test_scores_without_texts(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text(
        "".join(json.dumps({"id": f"q{n}", "chosen_score": n, "rejected_score": 1}) + "\n" for n in range(3))
    )
    assert rmlab.pairs(rmlab.read_scores(path))[["id", "outcome"]].to_numpy().tolist() == [
        ["q0", "loss"],
        ["q1", "tie"],
        ["q2", "win"],
    ]
