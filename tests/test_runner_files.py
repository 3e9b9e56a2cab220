"""The result files of the benchmarks' own runners, as they write them."""

import json

import pandas as pd
import pytest

import rmlab
from rmlab import read_scores, write_scores
from rmlab.tables import DataError

STYLES = 3


def rm_bench_row(subset, number):
    """A row of RM-Bench's file of all domains."""
    return {
        "id": f"{subset}/{number}",
        "prompt": f"Prompt {number} über {subset}?",
        "chosen": [f"right {subset} {number}" + "!" * i for i in range(STYLES)],
        "rejected": [f"wrong {number}" + "?" * i for i in range(STYLES)],
        "domain": subset,
        "subset": "origin",
    }


def rm_bench(tmp_path):
    """The rows of a released file, and the responses."""
    subsets = ["chat", "math", "code", "safety-refuse", "safety-response"]
    rows = []
    for place, subset in enumerate(subsets):
        rows += [rm_bench_row(subset, n) for n in (3 + 10 * place, 100 + place)]
    path = tmp_path / "total_dataset.json"
    path.write_text(json.dumps(rows), "utf-8")
    return rows, rmlab.load("rm-bench", path=path)


def reward_bench_2(tmp_path):
    rows = [
        {
            "id": "7",
            "prompt": "Which?",
            "chosen": ["this"],
            "rejected": ["that one", "no", "none at all"],
            "subset": "Precise IF",
            "num_correct": 1,
        },
        *[
            {
                "id": f"{kind}:1",
                "prompt": "A colour?",
                "chosen": ["red", "deep blue", "green"][:n_right],
                "rejected": ["seven", "a cup"],
                "subset": "Ties",
                "num_correct": n_right,
            }
            for kind, n_right in (("ref", 1), ("tied", 3))
        ],
    ]
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(rows), "utf-8")
    return rows, rmlab.load("reward-bench-2", path=path)


def score(responses, name="my-rm"):
    return rmlab.score(responses, {name: rmlab.baselines.longest})


def same_scores(read, scores):
    key = ["model", *rmlab.tables.KEY]
    columns = [*key, "subset", "style", "score"]
    expected = scores[columns].sort_values(key).reset_index(drop=True)
    read = read[columns].sort_values(key).reset_index(drop=True)
    pd.testing.assert_frame_equal(read, expected, check_exact=True)


def test_rm_bench_writes_the_rows_of_its_data_with_three_scores_a_side(tmp_path):
    rows, responses = rm_bench(tmp_path)
    scores = score(responses)
    path = tmp_path / "total_dataset_my-rm.json"
    shuffled = scores.sample(frac=1, random_state=1)
    assert write_scores(shuffled, path, format="rm-bench", responses=responses) == path

    written = {row["id"]: row for row in json.loads(path.read_text("utf-8"))}
    assert len(written) == len(rows)
    for row in rows:
        expected = dict(row)
        for label in ("chosen", "rejected"):
            expected[f"score_{label}"] = [float(len(text)) for text in row[label]]
        assert written[row["id"]] == expected
    same_scores(read_scores(path), scores)


def test_reward_bench_2_writes_columns_of_lists_the_chosen_answers_first(tmp_path):
    rows, responses = reward_bench_2(tmp_path)
    scores = score(responses, "owner/m")
    path = write_scores(
        scores, tmp_path / "m.json", format="reward-bench-2", responses=responses
    )

    written = json.loads(path.read_text("utf-8"))
    assert written["model"] == "owner/m"
    assert written["id"] == [row["id"] for row in rows]
    assert written["subset"] == [row["subset"] for row in rows]
    assert written["num_correct"] == [row["num_correct"] for row in rows]
    texts = [[*row["chosen"], *row["rejected"]] for row in rows]
    assert written["scores"] == [[len(text) for text in of_row] for of_row in texts]
    ends = [[turns[-1]["content"] for turns in row] for row in written["text"]]
    assert ends == texts
    # A share of the best score for the first answer, as the runner counts it.
    assert written["results"] == [0.0, 0.0, 0.0]
    same_scores(read_scores(path), scores)


def test_the_first_of_equally_good_answers_earns_its_share(tmp_path):
    _, responses = reward_bench_2(tmp_path)
    scores = rmlab.score(responses, "constant")
    path = tmp_path / "m.json"
    write_scores(scores, path, format="reward-bench-2", responses=responses)
    results = json.loads(path.read_text("utf-8"))["results"]
    assert results == [1 / 4, 1 / 3, 1 / 5]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda scores: scores.iloc[1:], "chat.*'3'"),
        (lambda scores: scores.assign(score=float("nan")), "score"),
        (lambda scores: scores.assign(benchmark="mini"), "'mini'"),
        (
            lambda scores: pd.concat([scores, scores.assign(model="b")]),
            "2 models",
        ),
    ],
)
def test_a_file_that_could_not_be_submitted_is_not_written(tmp_path, change, names):
    _, responses = rm_bench(tmp_path)
    scores = score(responses)
    path = tmp_path / "out.json"
    with pytest.raises(DataError, match=names):
        write_scores(change(scores), path, format="rm-bench", responses=responses)
    assert not path.exists()


def test_scores_of_other_texts_are_refused(tmp_path):
    _, responses = rm_bench(tmp_path)
    some = responses[responses["domain"] != "chat"]
    with pytest.raises(DataError, match=r"chat.*'3'"):
        write_scores(
            score(responses), tmp_path / "o.json", format="rm-bench", responses=some
        )


def test_what_the_runners_file_needs_is_named(tmp_path):
    _, responses = rm_bench(tmp_path)
    scores = score(responses)
    path = tmp_path / "out.json"
    with pytest.raises(TypeError, match="responses="):
        write_scores(scores, path, format="rm-bench")
    with pytest.raises(ValueError, match=r"'rm-bnch'.*'rm-bench'"):
        write_scores(scores, path, format="rm-bnch", responses=responses)
    csv = tmp_path / "out.csv"
    with pytest.raises(DataError, match=r"out\.csv.*\.json"):
        write_scores(scores, csv, format="rm-bench", responses=responses)
    with pytest.raises(TypeError, match="format="):
        write_scores(scores, tmp_path / "s.csv", responses=responses)
