"""People's own files: side-by-side data, result files of other projects, plain files of scores."""

import json
import logging

import numpy as np
import pandas as pd
import pytest

import rmlab
from rmlab.io import join
from rmlab.tables import DataError


def lines(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_blank_second_answers_mean_one_fewer(tmp_path):
    for mark in ",;\t":
        (tmp_path / "own.csv").write_text("prompt,chosen,r1,r2\nq1,x,y,z\nq2,x,y,\nq3,x,,z\n".replace(",", mark))
        found = rmlab.load_pairs(tmp_path / "own.csv", columns={"rejected": ["r1", "r2"]})
        assert found.groupby("id").size().tolist() == [3, 2, 2]
        assert found.loc[found["id"] == "2", "response"].tolist() == ["x", "z"]
    (tmp_path / "own.csv").write_text("prompt,chosen,r1,r2\nq1,x,,\n")
    with pytest.raises(DataError, match="'r1' must be a non-empty string"):
        rmlab.load_pairs(tmp_path / "own.csv", columns={"rejected": ["r1", "r2"]})


SIDES = pd.DataFrame(
    {"q": ["1", "2", "3", "4", "5"], "left": list("abcde"), "right": list("vwxyz")}
    | {"winner": ["model_a", "right", "tie (bothbad)", None, "C"]}
)
COLUMNS = {"a": "left", "b": "right", "prompt": "q"}


def test_side_by_side_data_with_a_winner(caplog):
    with caplog.at_level(logging.WARNING):
        found = rmlab.load_pairs(SIDES, winner="winner", columns=COLUMNS)
    assert found[["id", "label", "response"]].astype("str").to_numpy().tolist() == [
        ["0", "chosen", "a"],
        ["0", "rejected", "v"],
        ["1", "chosen", "w"],
        ["1", "rejected", "b"],
    ]
    assert found.attrs["understood"]["without_winner"] == {"ties": 1, "unknown": {"empty": 1, "'C'": 1}}
    assert "of 5 rows 1 ties and 2 rows whose 'winner' is neither side" in caplog.text


def test_side_by_side_data_that_says_no_winner():
    with pytest.raises(DataError, match="0 ties and 5 rows"):
        rmlab.load_pairs(SIDES.assign(winner="x"), winner="winner", columns=COLUMNS)
    with pytest.raises(DataError, match=r"no column 'winer'; .*did you mean 'winner'"):
        rmlab.load_pairs(SIDES, winner="winer", columns=COLUMNS)
    with pytest.raises(DataError, match=r"no column for a and b.*left"):
        rmlab.load_pairs(SIDES, winner="winner")


def test_a_row_per_pair_two_levels_deep_and_in_lists(tmp_path):
    rows = [{"uid": i, "kind": "k", "out": {"rm": {"w": [[i + 0.5]], "l": [0.25]}}} for i in range(3)]
    columns = {"id": "uid", "domain": "kind", "chosen_score": "out.rm.w", "rejected_score": "out.rm.l"}
    found = rmlab.read_scores(lines(tmp_path / "judge.jsonl", rows), columns=columns)
    assert found["score"].tolist() == [0.5, 0.25, 1.5, 0.25, 2.5, 0.25]
    assert found["id"].tolist() == ["0", "0", "1", "1", "2", "2"]
    assert set(found["model"]) == set(found["benchmark"]) == {"judge"}
    assert rmlab.pairs(found)["margin"].tolist() == [0.25, 1.25, 2.25]


def test_a_row_per_prompt_with_a_list_of_scores(tmp_path):
    rows = [{"rewards": [3, 1, 2], "right": 1}, {"rewards": [3, 1, 2], "right": 2}]
    path = lines(tmp_path / "x.jsonl", rows)
    found = rmlab.read_scores(path, columns={"scores": "rewards", "num_correct": "right"}, model="m")
    assert found["label"].astype("str").tolist() == ["chosen", "rejected", "rejected", "chosen", "chosen", "rejected"]
    assert found["slot"].tolist() == [0, 0, 1, 0, 1, 0]
    first = rmlab.read_scores(path, columns={"scores": "rewards"})
    assert first["label"].astype("str").tolist() == ["chosen", "rejected", "rejected"] * 2
    with pytest.raises(DataError, match=r"row 0: 'right' must be .*it has 3"):
        rmlab.read_scores(
            lines(path, [{"rewards": [3, 1, 2], "right": 3}, *rows]),
            columns={"scores": "rewards", "num_correct": "right"},
        )


def test_rows_inside_one_object_and_columns_as_lists(tmp_path):
    rows = [{"uid": i, "rw": [i, 0.5]} for i in range(3)]
    (tmp_path / "in.json").write_text(json.dumps({"config": {}, "results": rows}))
    inside = rmlab.read_scores(tmp_path / "in.json", columns={"id": "results.uid", "scores": "results.rw"}, model="m")
    (tmp_path / "as.json").write_text(json.dumps({"r": {"uid": [0, 1, 2], "rw": [[i, 0.5] for i in range(3)]}}))
    lists = rmlab.read_scores(tmp_path / "as.json", columns={"id": "r.uid", "scores": "r.rw"}, model="m")
    for found in (inside, lists):
        assert found["score"].tolist() == [0.0, 0.5, 1.0, 0.5, 2.0, 0.5]
        assert found["id"].tolist() == ["0", "0", "1", "1", "2", "2"]


def test_a_row_per_answer_and_pairs_with_other_names(tmp_path):
    rows = [
        {"k": "7", "side": "chosen", "r": "1.5"},
        {"k": "7", "side": "rejected", "r": 1},
        {"k": "7", "side": "rejected", "r": 0},
    ]
    columns = {"id": "k", "label": "side", "score": "r"}
    found = rmlab.read_scores(lines(tmp_path / "x.jsonl", rows), columns=columns, model="m")
    assert found[["slot", "score"]].to_numpy().tolist() == [[0, 1.5], [0, 1.0], [1, 0.0]]
    rows = [{"rm": "m", "item": i, "diff": i - 1} for i in range(3)]
    pairs = rmlab.read_pairs(lines(tmp_path / "y.jsonl", rows), columns={"model": "rm", "id": "item", "margin": "diff"})
    assert pairs["outcome"].astype("str").tolist() == ["loss", "tie", "win"]


def test_columns_that_are_not_there_are_named(tmp_path):
    path = lines(tmp_path / "x.jsonl", [{"a": {"w": 1}, "l": 0}] * 2)
    for columns, message in {
        "a.x": r"no field 'a.x' for 'chosen_score'; found: ",
        "a": r"no field 'a' for 'chosen_score'",
    }.items():
        with pytest.raises(DataError, match=message):
            rmlab.read_scores(path, columns={"chosen_score": columns, "rejected_score": "l"})
    with pytest.raises(DataError, match=r"'choosen_score' is not a name of rmlab; .*did you mean 'chosen_score'"):
        rmlab.read_scores(path, columns={"choosen_score": "l"})
    with pytest.raises(DataError, match="name one of 'score'"):
        rmlab.read_scores(path, columns={"id": "l"})
    with pytest.raises(DataError, match="chosen_score"):
        rmlab.read_scores(path)


@pytest.fixture(scope="module")
def mini():
    return rmlab.load("mini")


@pytest.fixture(scope="module")
def scores(mini):
    return rmlab.score(mini, "random")


def test_a_plain_file_gives_the_whole_matrix(tmp_path, mini, scores):
    scores[["id", "label", "score"]].to_csv(tmp_path / "mine.csv", index=False)
    found = join(mini, tmp_path / "mine.csv")
    assert set(found["model"]) == {"mine"}
    np.testing.assert_array_equal(found["score"], scores["score"])
    pd.testing.assert_frame_equal(rmlab.matrix(found), rmlab.matrix(scores))


@pytest.mark.parametrize(
    "key",
    [["domain", "id", "label", "slot"], ["subset", "id", "label", "style"], ["domain", "id", "label", "response"]],
)
def test_rows_in_any_order_find_their_answers(mini, scores, key):
    plain = mini.assign(score=scores["score"])[[*key, "score"]].sample(frac=1, random_state=0)
    if "response" in key:
        plain = plain.drop_duplicates(key)
    pd.testing.assert_frame_equal(join(mini, plain, model="random"), scores, check_like=True)


def test_joins_that_would_guess_are_refused(mini, scores):
    plain = scores[["id", "label", "score"]]
    with pytest.raises(DataError, match=r"with those of other prompts or labels.*add a column ..domain"):
        join(mini, plain.sample(frac=1, random_state=0))
    chat = mini[mini["domain"] == "chat"]
    mine = plain[(mini["domain"] == "chat").to_numpy()]
    with pytest.raises(DataError, match=r"score is not a finite number in 2 of 96 rows.*allow_missing=True"):
        join(chat, mine.iloc[:-2])
    assert join(chat, mine.iloc[:-2], allow_missing=True)["score"].isna().sum() == 2
    with pytest.raises(DataError, match=r"1 of 97 scores belong to no answer"):
        join(chat, pd.concat([mine, mine.iloc[:1]]))
    with pytest.raises(DataError, match="no column 'id' or 'response'"):
        join(chat, mine[["label", "score"]])


def test_a_table_of_several_models_with_other_names(mini, scores):
    plain = pd.concat([scores.assign(model=m) for m in ("a", "b")])[["model", "domain", "id", "label", "slot", "score"]]
    named = plain.rename(columns={"score": "reward", "model": "rm"})
    columns = {"model": "rm", "score": "reward"} | {c: c for c in ("domain", "id", "label", "slot")}
    found = join(mini, named, columns=columns)
    assert found["model"].unique().tolist() == ["a", "b"]
    np.testing.assert_array_equal(found["score"], np.tile(scores["score"], 2))
