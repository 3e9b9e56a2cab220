"""Result files of other projects, with a path for each column, and plain files of scores joined to the answers."""

import json

import numpy as np
import pandas as pd
import pytest

import rmlab
from rmlab.io import join
from rmlab.tables import DataError


def test_blank_second_answers_mean_one_fewer(tmp_path):
    path = tmp_path / "own.csv"
    for mark in ",;\t":
        path.write_text("prompt,chosen,r1,r2\nq1,x,y,z\nq2,x,y,\nq3,x,,z\n".replace(",", mark))
        responses = rmlab.load_pairs(path, columns={"rejected": ["r1", "r2"]})
        assert responses.groupby("id").size().tolist() == [3, 2, 2]
        assert responses.loc[responses["id"] == "2", "response"].tolist() == ["x", "z"]
    path.write_text("prompt,chosen,r1,r2\nq1,x,,\n")
    with pytest.raises(DataError, match="'r1'"):
        rmlab.load_pairs(path, columns={"rejected": ["r1", "r2"]})


PAIR = {"chosen_score": "out.rm.w", "rejected_score": "out.rm.l"}
UIDS = [{"uid": i, "rw": [i, 0.5]} for i in range(3)]
LISTS = [{"rewards": [3, 1, 2], "right": n} for n in (1, 2)]
SIDES = [{"k": "7", "side": side, "r": r} for side, r in (("chosen", "1.5"), ("rejected", 1), ("rejected", 0))]
UID_SCORES = [0, 0.5, 1, 0.5, 2, 0.5]
# The file, its columns, and scores, ids and labels of the table.
DEEP = [{"uid": i, "out": {"rm": {"w": [[i + 0.5]], "l": [0.25]}}} for i in range(3)]
INSIDE, TURNED = {"config": {}, "results": UIDS}, {"r": {"uid": [0, 1, 2], "rw": [row["rw"] for row in UIDS]}}
LAYOUTS = [
    (DEEP, {"id": "uid", **PAIR}, ([0.5, 0.25, 1.5, 0.25, 2.5, 0.25], "001122", "crcrcr")),
    (LISTS, {"scores": "rewards", "num_correct": "right"}, ([3, 1, 2, 3, 1, 2], "000111", "crrccr")),
    (LISTS, {"scores": "rewards"}, ([3, 1, 2, 3, 1, 2], "000111", "crrcrr")),
    (INSIDE, {"id": "results.uid", "scores": "results.rw"}, (UID_SCORES, "001122", "crcrcr")),
    (TURNED, {"id": "r.uid", "scores": "r.rw"}, (UID_SCORES, "001122", "crcrcr")),
    (SIDES, {"id": "k", "label": "side", "score": "r"}, ([1.5, 1, 0], "777", "crr")),
]


def write(path, content):
    path.write_text("\n".join(map(json.dumps, content)) if isinstance(content, list) else json.dumps(content))
    return path


@pytest.mark.parametrize(("content", "columns", "expected"), LAYOUTS)
def test_scores_of_other_projects(tmp_path, content, columns, expected):
    scores, ids, labels = expected
    path = write(tmp_path / ("judge.jsonl" if isinstance(content, list) else "judge.json"), content)
    table = rmlab.read_scores(path, columns=columns)
    assert table["score"].tolist() == scores
    assert "".join(table["id"]) == ids
    assert "".join(label[0] for label in table["label"].astype(str)) == labels
    assert set(table["model"]) == set(table["benchmark"]) == {"judge"}
    assert table["slot"].tolist() == table.groupby(["id", "label"], observed=True).cumcount().tolist()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"chosen_score": "a.x", "rejected_score": "l"}, "'a.x' for 'chosen_score'"),
        ({"chosen_score": "a", "rejected_score": "l"}, "'a' for 'chosen_score'"),
        ({"choosen_score": "l"}, "'choosen_score' .*'chosen_score'"),
        ({"id": "l"}, "'score'"),
        (None, "chosen_score"),
        ({"scores": "s", "num_correct": "n"}, "row 0: 'n' .* 3"),
    ],
)
def test_columns_that_are_not_there_are_named(tmp_path, columns, message):
    path = write(tmp_path / "x.jsonl", [{"a": {"w": 1}, "l": 0, "s": [3, 1, 2], "n": 3}] * 2)
    with pytest.raises(DataError, match=message):
        rmlab.read_scores(path, columns=columns)


@pytest.fixture(scope="module")
def mini():
    return rmlab.load("mini")


@pytest.fixture(scope="module")
def scores(mini):
    return rmlab.score(mini, "random")


KEYS = [["domain", "id", "label", "slot"], ["subset", "id", "label", "style"], ["domain", "id", "label", "response"]]


@pytest.mark.parametrize("key", KEYS)
def test_rows_in_any_order_find_their_answers(mini, scores, key):
    plain = mini.assign(score=scores["score"])[[*key, "score"]].sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(join(mini, plain.drop_duplicates(key), model="random"), scores, check_like=True)


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


def test_a_table_of_several_models_with_other_names(mini, scores):
    plain = pd.concat([scores.assign(model=m) for m in ("a", "b")])
    columns = {"model": "rm", "score": "reward"} | {c: c for c in ("domain", "id", "label", "slot")}
    table = join(mini, plain[[*columns]].rename(columns=columns), columns=columns)
    assert table["model"].unique().tolist() == ["a", "b"]
    np.testing.assert_array_equal(table["score"], np.tile(scores["score"], 2))


def test_pairs_with_other_names(tmp_path):
    path = write(tmp_path / "y.jsonl", [{"rm": "m", "item": i, "diff": i - 1} for i in range(3)])
    table = rmlab.read_pairs(path, columns={"model": "rm", "id": "item", "margin": "diff"})
    assert table["outcome"].astype("str").tolist() == ["loss", "tie", "win"]
