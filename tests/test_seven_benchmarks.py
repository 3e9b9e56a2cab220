"""PPE and CodeRewardBench: their rows, and numbers equal to plain loops."""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import FOUR, ONE, judge_rows, write, write_rmb
from fakes import Streaming

import rmlab
from rmlab import DataError, load, papers
from rmlab.benchmarks import hub
from rmlab.benchmarks.code_reward_bench import ASPECTS
from rmlab.benchmarks.ppe import SETS
from rmlab.benchmarks.reward_bench import SECTIONS


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
        folder = tmp_path / "math" / f"PPE-{name}-Best-of-K"
        place = folder / "data" / "train-00000.json"
        write(place, rows[name.lower()])
    return tmp_path / "math", rows


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


def test_the_candidates_of_ppe_correctness_are_pools(sets, monkeypatch):
    folder, rows = sets
    files = sorted(folder.rglob("*.json"))
    monkeypatch.setattr(hub, "fetch_benchmark", lambda *_: files)
    pool = rmlab.load_pool("ppe-correctness")
    n_right = sum(sum(row["scores"]) for of_set in rows.values() for row in of_set)
    assert (pool["label"] == "chosen").sum() == n_right
    assert pool["n_candidates"].unique().tolist() == [6]
    asked = {row["question_id"] for of_set in rows.values() for row in of_set}
    assert pool["id"].nunique() == len(asked) * len("xy")
    assert set(pool["domain"]) == set(SETS)


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


@pytest.fixture
def seven(sets, votes, tmp_path):
    """A folder or file of each of the seven benchmarks."""
    correctness, _ = sets
    one_of_each = []
    for name in (subset for section in SECTIONS.values() for subset in section):
        for _ in range(5):
            number = len(one_of_each)
            texts = {"chosen": "a" * (number % 5 + 1), "rejected": "b" * 3}
            one_of_each.append(ONE | texts | {"id": number, "subset": name})
    best_of_four = []
    for name in ("Factuality", "Precise IF", "Math", "Safety", "Focus"):
        for n in range(6):
            texts = {"id": f"{name}{n}", "chosen": ["a" * (n + 1)]}
            best_of_four.append(FOUR | texts | {"subset": name, "prompt": f"{n}?"})
    for kind, n in product(("ref", "tied"), range(6)):
        right = ["a" * (n + 2)] if kind == "ref" else ["a" * (n + 2), "c" * 5]
        row = {"id": f"{kind}:{n}", "subset": "Ties", "chosen": right}
        best_of_four.append(FOUR | row | {"num_correct": len(right)})
    return {
        "rm-bench": Path(__file__).parents[1] / "data" / "mini",
        "reward-bench": write(tmp_path / "1.json", one_of_each),
        "reward-bench-2": write(tmp_path / "2.json", best_of_four),
        "ppe-preference": write(tmp_path / "p.json", votes),
        "ppe-correctness": correctness,
        "rmb": write_rmb(tmp_path / "rmb"),
        "judgebench": write(tmp_path / "j.json", judge_rows()),
    }


def test_all_seven_are_one_table_with_their_mean(seven):
    scores = [by_length(load(name, path=place)) for name, place in seven.items()]
    row = rmlab.report.compare_benchmarks(scores).set_index("model").loc["longest"]
    alone = [rmlab.summary(table)["overall"].iloc[0] for table in scores]
    assert row[[*seven]].tolist() == pytest.approx(alone)
    assert row["mean"] == pytest.approx(np.mean(alone))


def test_a_printed_number_outside_the_interval_is_named():
    """Printed numbers of a model beside scores that are right in half of the pairs."""
    name = "Skywork-Reward-V2-Llama-3.1-8B"
    scores = rmlab.score(load("mini"), "random", progress=False)
    scores = scores.assign(model=f"Skywork/{name}", benchmark="rm-bench")
    row = rmlab.report.compare_benchmarks(scores).iloc[0]
    table = papers.published("seven-benchmarks").set_index("model")
    assert row["rm-bench_printed"] == table.loc[name, "rm_bench"]
    assert row["rm-bench_high"] < row["rm-bench_printed"]
    assert row["outside"] == "rm-bench"
    near = scores.assign(model="another")
    assert rmlab.report.compare_benchmarks(near)["outside"].tolist() == [""]


def test_a_text_of_two_benchmarks_is_forwarded_once_and_a_stopped_run_resumes(tmp_path):
    mini = load("mini")
    both = pd.concat([mini, mini.assign(benchmark="rm-bench")], ignore_index=True)
    scorer = Streaming()
    scores = rmlab.score(both, scorer, store=tmp_path, progress=False)
    assert len(scorer.forwarded) == len(mini.drop_duplicates(["prompt", "response"]))
    again = Streaming()
    assert rmlab.score(both, again, store=tmp_path, progress=False).equals(scores)
    assert again.forwarded == []


def test_a_mean_over_benchmarks_is_missing_where_one_of_them_is():
    mini = load("mini")
    two = rmlab.score(mini, ["longest", "shortest"], progress=False)
    other = by_length(mini).assign(benchmark="rm-bench")
    board = rmlab.report.compare_benchmarks([two, other]).set_index("model")
    ours = board.loc["longest", ["mini", "rm-bench"]].mean()
    assert board.loc["longest", "mean"] == pytest.approx(ours)
    assert np.isnan(board.loc["shortest", "mean"])
    assert "rm-bench" in board.loc["shortest", "reason"]
