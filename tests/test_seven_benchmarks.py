"""PPE and CodeRewardBench: their rows, and numbers equal to plain loops; several
benchmarks in one command and one table.
"""

from collections import defaultdict
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import (
    FOUR,
    ONE,
    PROGRAM,
    SAMPLED,
    VOTE,
    judge_rows,
    write,
    write_rmb,
)
from fakes import Streaming

import rmlab
from rmlab import load, papers
from rmlab.benchmarks import hub
from rmlab.benchmarks.code_reward_bench import ASPECTS
from rmlab.benchmarks.ppe import SETS
from rmlab.benchmarks.reward_bench import SECTIONS


def by_length(responses):
    return rmlab.score(responses, "longest", progress=False)


LANGUAGES = ["English"] * 7 + ["Chinese"] * 5 + ["Russian"] * 4 + ["German"] * 4
LANGUAGES += ["Korean"] * 3 + ["Japanese"] * 3 + ["Czech", "Dutch"]
WINNERS = ["model_a", "model_b", "tie", "model_b", "tie (bothbad)"]


@pytest.fixture
def votes():
    rows = []
    for number, language in enumerate(LANGUAGES):
        row = {"question_id": f"q{number}", "winner": WINNERS[number % len(WINNERS)]}
        row |= {"language": language, "prompt": f"What is {number // 2}?"}
        row |= {"response_1": "one" * (number % 4 + 1)}
        rows.append(VOTE | row | {"response_2": "two" * (number * 7 % 5 + 1)})
    return rows


def test_ppe_preference_equals_a_plain_loop(votes, tmp_path):
    responses = load("ppe-preference", path=write(tmp_path / "test.json", votes))
    found = rmlab.summary(by_length(responses)).iloc[0]
    won = defaultdict(list)
    decided = [row for row in votes if not row["winner"].startswith("tie")]
    for row in decided:
        sides = [row["response_1"], row["response_2"]]
        better, worse = sides if row["winner"] == "model_a" else sides[::-1]
        is_rare = row["language"] in ("Czech", "Dutch")
        group = "other" if is_rare else row["language"]
        won[group].append(len(better) > len(worse))
    shares = {group: np.mean(wins) for group, wins in won.items()}
    assert found[[*shares]].to_dict() == pytest.approx(shares)
    assert found["overall"] == pytest.approx(np.mean(np.concatenate([*won.values()])))
    assert set(responses["language"]) == {row["language"] for row in decided}
    # Two votes on one question are one cluster.
    assert responses["question"].nunique() == len({row["prompt"] for row in decided})


def question(number, model):
    """Six candidates; in the sampled pairs the right one stands first or second."""
    marks = [(number + k) % 3 == 0 for k in range(6)]
    right, wrong = np.flatnonzero(marks).tolist(), np.flatnonzero(~np.array(marks))
    pairs = list(product(right, wrong.tolist()))[: number + 2]
    pairs = [pair[:: 1 if k % 2 else -1] for k, pair in enumerate(pairs)]
    row = {"question_id": number, "model_name": model, "prompt": f"Question {number}?"}
    row |= {"scores": marks, "sampled_conflict_pairs": pairs}
    for k in range(6):
        row[f"response_{k + 1}"] = f"{model} " * ((number * 5 + k * 3) % 7 + 1)
    return SAMPLED | row


@pytest.fixture
def sets(tmp_path):
    """The five sets, a folder each, and their rows."""
    rows = {}
    for part, name in enumerate(("MMLU-Pro", "MATH", "GPQA", "MBPP-Plus", "IFEval")):
        numbers = range(part, part + 3)
        rows[name.lower()] = [question(*pair) for pair in product(numbers, "xy")]
        folder = tmp_path / "math" / f"PPE-{name}-Best-of-K"
        write(folder / "data" / "train-00000.json", rows[name.lower()])
    return tmp_path / "math", rows


def test_ppe_correctness_equals_a_plain_loop(sets, monkeypatch):
    folder, rows = sets
    responses = load("ppe-correctness", path=folder)
    found = rmlab.summary(by_length(responses)).iloc[0]
    shares = {}
    for name in SETS:
        won = []
        for row in rows[name]:
            for i, j in row["sampled_conflict_pairs"]:
                right, wrong = (i, j) if row["scores"][i] else (j, i)
                lengths = [len(row[f"response_{k + 1}"]) for k in (right, wrong)]
                won.append(lengths[0] > lengths[1])
        shares[name] = np.mean(won)
    assert found[[*shares]].to_dict() == pytest.approx(shares)
    assert found["overall"] == pytest.approx(np.mean([*shares.values()]))
    # Two models' answers to one question are one cluster.
    every_row = [row for of_set in rows.values() for row in of_set]
    asked = {row["prompt"] for row in every_row}
    assert responses["question"].nunique() == len(asked)

    files = sorted(folder.rglob("*.json"))
    monkeypatch.setattr(hub, "fetch_benchmark", lambda *_: files)
    pool = rmlab.load_pool("ppe-correctness")
    n_right = sum(sum(row["scores"]) for row in every_row)
    assert (pool["label"] == "chosen").sum() == n_right
    assert set(pool["n_candidates"]) == {6}
    assert pool["id"].nunique() == len(asked) * len("xy")
    assert set(pool["domain"]) == set(SETS)


def test_a_set_of_questions_is_known_by_its_path(sets, tmp_path):
    with pytest.raises(rmlab.DataError, match="mmlu-pro"):
        load("ppe-correctness", path=write(tmp_path / "x" / "a.json", sets[1]["gpqa"]))


def test_aspects_are_the_domains_of_code_reward_bench(tmp_path):
    rows = []
    for aspect, n in product(ASPECTS, (1, 2, 3)):
        row = {"id": f"{aspect}_{n}", "aspect": aspect, "chosen": "y" * n}
        rows.append(PROGRAM | row | {"language": "Go" if n == 2 else "Python"})
    path = write(tmp_path / "full.json", rows)
    scores = by_length(load("code-reward-bench", path=path))
    found = rmlab.summary(scores).iloc[0]
    assert found[list(ASPECTS)].tolist() == pytest.approx([2 / 3] * 5)
    by_language = rmlab.accuracy(rmlab.pairs(scores), by="language")
    assert by_language["accuracy"].tolist() == [0.5, 1.0]


def test_accuracies_of_fifty_one_real_models_are_those_printed(shared_data):
    """A reply that could not be read counts as lost there; here it is missing."""
    pairs = papers.results("code-reward-bench")
    folder = shared_data / "themis-code-reward-bench"
    printed = pd.read_csv(folder / "printed_accuracies.csv").set_index("model")
    lost = pairs.assign(outcome=pairs["outcome"].fillna("loss"))
    columns = [*ASPECTS, "overall"]
    found = rmlab.summary(lost).set_index("model")[columns]
    difference = (found - printed[columns]).abs()
    assert difference.notna().all(axis=None)
    assert difference.size == 306
    assert difference.max(axis=None) <= 5.001e-5
    counts = rmlab.summary(pairs).set_index("model")[["missing", "n_ties"]]
    assert (counts - printed[["missing", "n_ties"]]).abs().max(axis=None) == 0


@pytest.fixture
def seven(sets, votes, tmp_path):
    """A folder or file of each of the seven benchmarks."""
    one_of_each = []
    names = [subset for section in SECTIONS.values() for subset in section]
    for number, name in enumerate(names * 5):
        texts = {"chosen": "a" * (number % 5 + 1), "rejected": "b" * 3}
        one_of_each.append(ONE | texts | {"id": number, "subset": name})
    best_of_four = []
    subsets = ("Factuality", "Precise IF", "Math", "Safety", "Focus")
    for name, n in product(subsets, range(6)):
        texts = {"id": f"{name}{n}", "chosen": ["a" * (n + 1)]}
        best_of_four.append(FOUR | texts | {"subset": name, "prompt": f"{n}?"})
    for kind, n in product(("ref", "tied"), range(6)):
        right = ["a" * (n + 2)] if kind == "ref" else ["a" * (n + 2), "c" * 5]
        row = {"id": f"{kind}:{n}", "subset": "Ties", "chosen": right}
        best_of_four.append(FOUR | row)
    return {
        "rm-bench": Path(__file__).parents[1] / "data" / "mini",
        "reward-bench": write(tmp_path / "1.json", one_of_each),
        "reward-bench-2": write(tmp_path / "2.json", best_of_four),
        "ppe-preference": write(tmp_path / "p.json", votes),
        "ppe-correctness": sets[0],
        "rmb": write_rmb(tmp_path / "rmb"),
        "judgebench": write(tmp_path / "j.json", judge_rows()),
    }


def test_one_command_scores_all_seven_and_compares_them(seven, tmp_path, main):
    places = []
    for name, place in seven.items():
        places += ["--benchmarks", f"{name}={place}"]
    page, store = tmp_path / "report.html", tmp_path / "store"
    words = ["report", "longest", "shortest", "--benchmarks", "all", *places]
    code, _, err = main(*words, "--store", store, "-o", page)
    assert code == 0, err
    assert page.stat().st_size > 10_000
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
