"""PPE and CodeRewardBench: their rows, and numbers equal to plain loops."""

import json
from itertools import product

import numpy as np
import pandas as pd
import pytest

import rmlab
from rmlab import DataError, load, papers
from rmlab.benchmarks.code_reward_bench import ASPECTS
from rmlab.benchmarks.ppe import SETS


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows))
    return path


def by_length(responses):
    return rmlab.score(responses, "longest", progress=False)


LANGUAGES = ["English"] * 7 + ["Chinese"] * 5 + ["Russian"] * 4 + ["German"] * 4
LANGUAGES += ["Korean"] * 3 + ["Japanese"] * 3 + ["Czech", "Dutch"]
WINNERS = ["model_a", "model_b", "tie", "model_b", "tie (bothbad)"]


def vote(number, language):
    return {
        "question_id": f"q{number}",
        "winner": WINNERS[number % len(WINNERS)],
        "language": language,
        "prompt": f"What is {number // 2}?",
        "response_1": "one" * (number % 4 + 1),
        "response_2": "two" * ((number * 7) % 5 + 1),
    }


@pytest.fixture
def votes():
    return [vote(number, language) for number, language in enumerate(LANGUAGES)]


def test_ppe_preference_equals_a_plain_loop(votes, tmp_path):
    responses = load("ppe-preference", path=write(tmp_path / "test.json", votes))
    found = rmlab.summary(by_length(responses)).iloc[0]
    wins = {}
    for row in votes:
        if row["winner"].startswith("tie"):
            continue
        sides = [row["response_1"], row["response_2"]]
        better, worse = sides if row["winner"] == "model_a" else sides[::-1]
        group = (
            row["language"] if row["language"] not in ("Czech", "Dutch") else "other"
        )
        wins.setdefault(group, []).append(len(better) > len(worse))
    for group, won in wins.items():
        assert found[group] == pytest.approx(np.mean(won)), group
    assert found["overall"] == pytest.approx(np.mean(np.concatenate([*wins.values()])))
    assert set(responses["language"]) == {
        row["language"] for row in votes if not row["winner"].startswith("tie")
    }
    # Two votes on one question are one cluster.
    questions = {row["prompt"] for row in votes if not row["winner"].startswith("tie")}
    assert responses["question"].nunique() == len(questions)


def test_a_winner_that_ppe_does_not_have_is_refused(votes, tmp_path):
    votes[3]["winner"] = "model_c"
    with pytest.raises(DataError, match=r"row 3.*model_c"):
        load("ppe-preference", path=write(tmp_path / "test.json", votes))


def question(number, model, n_candidates=6):
    marks = [(number + k) % 3 == 0 for k in range(n_candidates)]
    right = [k for k, mark in enumerate(marks) if mark]
    wrong = [k for k, mark in enumerate(marks) if not mark]
    pairs = list(product(right, wrong))[: number + 2]
    # The right one stands first or second.
    pairs = [pair if k % 2 else pair[::-1] for k, pair in enumerate(pairs)]
    texts = {
        f"response_{k + 1}": f"{model} " * ((number * 5 + k * 3) % 7 + 1)
        for k in range(n_candidates)
    }
    return {
        "question_id": number,
        "model_name": model,
        "prompt": f"Question {number}?",
        "scores": marks,
        "mean_score": 0.3,
        "sampled_conflict_pairs": [list(pair) for pair in pairs],
        **texts,
    }


@pytest.fixture
def sets(tmp_path):
    """The five sets, a folder each, and their rows."""
    rows = {}
    for part, name in enumerate(("MMLU-Pro", "MATH", "GPQA", "MBPP-Plus", "IFEval")):
        rows[name.lower()] = [
            question(number + part, model)
            for number in range(3)
            for model in ("x", "y")
        ]
        place = tmp_path / f"PPE-{name}-Best-of-K" / "data" / "train-00000.json"
        write(place, rows[name.lower()])
    return tmp_path, rows


def test_ppe_correctness_equals_a_plain_loop(sets):
    folder, rows = sets
    responses = load("ppe-correctness", path=folder)
    found = rmlab.summary(by_length(responses)).iloc[0]
    shares = []
    for name in SETS:
        won = []
        for row in rows[name]:
            for i, j in row["sampled_conflict_pairs"]:
                right, wrong = (i, j) if row["scores"][i] else (j, i)
                lengths = [len(row[f"response_{k + 1}"]) for k in (right, wrong)]
                won.append(lengths[0] > lengths[1])
        shares.append(np.mean(won))
        assert found[name] == pytest.approx(shares[-1]), name
    assert found["overall"] == pytest.approx(np.mean(shares))
    # Two models' answers to one question are one cluster.
    assert responses["question"].nunique() == len(
        {row["prompt"] for of_set in rows.values() for row in of_set}
    )


@pytest.mark.parametrize("pair", [[0, 3], [0, 99], [1], "0,1", None, [0, 0]])
def test_pairs_that_are_not_a_right_and_a_wrong_answer_are_refused(sets, pair):
    folder, rows = sets
    row = rows["math"][0]
    row["scores"] = [True, False, False, True, False, False]
    row["sampled_conflict_pairs"] = [[0, 1], pair]
    place = next(folder.glob("*MATH*/data/*.json"))
    with pytest.raises(DataError, match=r"row 0.*sampled_conflict_pairs"):
        load("ppe-correctness", path=write(place, rows["math"]))


def test_a_set_of_questions_is_known_by_its_path(sets, tmp_path):
    _, rows = sets
    with pytest.raises(DataError, match="mmlu-pro"):
        load("ppe-correctness", path=write(tmp_path / "x" / "a.json", rows["gpqa"]))


PROGRAM = {
    "id": "ECCO_1",
    "prompt": "Sort a list.",
    "chosen": "sorted(x)",
    "rejected": "x",
    "language": "Python",
    "aspect": "Runtime_Efficiency",
    "subset": "ECCO",
}


def test_aspects_are_the_domains_of_code_reward_bench(tmp_path):
    rows = [
        PROGRAM | {"id": f"{aspect}_{n}", "aspect": aspect, "chosen": "y" * n}
        for aspect in ASPECTS
        for n in range(1, 4)
    ]
    rows[0]["language"] = "Go"
    responses = load("code-reward-bench", path=write(tmp_path / "full.json", rows))
    assert list(responses["source"].unique()) == ["ECCO"]
    scores = by_length(responses)
    found = rmlab.summary(scores).iloc[0]
    assert found[list(ASPECTS)].tolist() == pytest.approx([2 / 3] * 5)
    by_language = rmlab.accuracy(rmlab.pairs(scores), by="language")
    assert set(by_language["language"]) == {"Go", "Python"}
    rows[1]["aspect"] = "Beauty"
    with pytest.raises(DataError, match="Beauty"):
        load("code-reward-bench", path=write(tmp_path / "full.json", rows))


def test_accuracies_of_fifty_one_real_models_are_those_printed(shared_data):
    """A reply that could not be read counts as lost there; here it is missing."""
    pairs = papers.results("code-reward-bench")
    assert pairs["model"].nunique() == 51
    folder = shared_data / "themis-code-reward-bench"
    printed = pd.read_csv(folder / "printed_accuracies.csv").set_index("model")
    lost = pairs.assign(outcome=pairs["outcome"].fillna("loss"))
    found = rmlab.summary(lost).set_index("model")
    columns = [*ASPECTS, "overall"]
    difference = (found[columns] - printed[columns]).abs()
    assert difference.notna().all(axis=None)
    assert difference.size == 306
    assert difference.max(axis=None) <= 5.001e-5
    whole = rmlab.summary(pairs).set_index("model")
    assert (whole["missing"] - printed["missing"]).abs().max() == 0
    assert (whole["n_ties"] - printed["n_ties"]).abs().max() == 0
