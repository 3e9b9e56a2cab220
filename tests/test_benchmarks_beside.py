"""JudgeBench, RMB and EvalBiasBench: files in the published layouts, and their numbers against plain loops."""

import json
import logging
from collections import defaultdict

import numpy as np
import pandas as pd
import pytest

import rmlab
from rmlab.papers import published
from rmlab.tables import DataError

SOURCES = ["mmlu-pro-law", "mmlu-pro-physics", "livebench-reasoning", "livebench-math", "livecodebench"]
DOMAIN = {"mmlu": "knowledge", "livebench-reasoning": "reasoning", "livebench-math": "math", "livecodebench": "coding"}


def judge_rows(n=40, model="gpt-4o-2024-05-13"):
    """Rows in JudgeBench's layout; every question stands in two of them."""
    return [
        {
            "pair_id": f"{model[:3]}-{i}",
            "original_id": None,
            "source": SOURCES[i % 5],
            "question": f"Question {i // 2}?",
            "response_model": model,
            "response_A": "a" * (1 + i),
            "response_B": "b" * (1 + (7 * i) % n),
            "label": "A>B" if i % 3 else "B>A",
        }
        for i in range(n)
    ]


def write(path, rows, *, lines=True):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)) if lines else json.dumps(rows), encoding="utf-8")
    return path


def domain_of(row):
    return next(domain for prefix, domain in DOMAIN.items() if row["source"].startswith(prefix))


@pytest.fixture
def judge_files(tmp_path):
    for model in ("gpt-4o-2024-05-13", "claude-3-5-sonnet-20240620"):
        write(tmp_path / "data" / f"dataset=judgebench,response_model={model}.jsonl", judge_rows(model=model))
    return tmp_path / "data"


def test_judgebench_reads_both_splits_and_clusters_by_question(judge_files):
    responses = rmlab.load("judgebench", path=judge_files)
    rows = {
        row["pair_id"]: row
        for model in ("gpt-4o-2024-05-13", "claude-3-5-sonnet-20240620")
        for row in judge_rows(model=model)
    }
    assert len(responses) == 2 * len(rows)
    for _, answer in responses.iterrows():
        row = rows[answer["id"]]
        side = row["label"][0] if answer["label"] == "chosen" else row["label"][2]
        assert answer["response"] == row[f"response_{side}"]
        assert answer["domain"] == domain_of(row)
    scores = rmlab.score(responses, "longest")
    items = rmlab.benchmarks.named("judgebench").items(scores)
    assert len(np.unique(items.cluster)) == len({row["question"] for row in rows.values()}) == 20


def test_judgebench_numbers_are_the_shares_of_a_plain_loop(judge_files):
    rows = [row for model in ("gpt-4o-2024-05-13", "claude-3-5-sonnet-20240620") for row in judge_rows(model=model)]
    right = defaultdict(list)
    for row in rows:
        margin = len(row["response_A"]) - len(row["response_B"])
        right[domain_of(row)].append((margin if row["label"] == "A>B" else -margin) > 0)
    scores = rmlab.score(rmlab.load("judgebench", path=judge_files), "longest")
    summary = rmlab.summary(scores).iloc[0]
    for domain, wins in right.items():
        assert summary[domain] == pytest.approx(np.mean(wins))
    assert summary["overall"] == pytest.approx(np.mean([win for wins in right.values() for win in wins]))
    domains = rmlab.summary(scores, average="domains")["overall"].item()
    assert domains == pytest.approx(np.mean([np.mean(wins) for wins in right.values()]))


def flip(decision):
    return {"A>B": "B>A", "B>A": "A>B"}.get(decision, decision)


def test_a_judge_is_right_where_both_orders_sum_to_more_than_nothing(tmp_path):
    decisions = ["A>B", "B>A", "A=B", None, "unreadable"]
    rows = judge_rows(n=25)
    counters = []
    for row, (first, second) in zip(rows, [(a, b) for a in decisions for b in decisions], strict=True):
        row["judgments"] = [{"judgment": {"text": "..."}, "decision": decision} for decision in (first, second)]
        if second is None:
            row["judgments"][1] = None
        counter = 0
        for decision in (first, flip(second)):
            counter += decision == row["label"]
            counter -= decision == flip(row["label"])
        counters.append(counter)
    name = "dataset=judgebench,response_model=gpt-4o,judge_name=arena_hard,judge_model=o1-mini"
    pairs = rmlab.read_pairs(write(tmp_path / f"{name}.jsonl", rows))
    assert pairs["model"].unique().tolist() == ["o1-mini (arena_hard)"]
    expected = ["win" if counter > 0 else "loss" if counter < 0 else "tie" for counter in counters]
    assert pairs["outcome"].tolist() == expected
    assert rmlab.summary(pairs)["overall"].item() == pytest.approx(np.mean(np.array(counters) > 0))
    with pytest.raises(DataError, match="read_pairs"):
        rmlab.read_scores(tmp_path / f"{name}.jsonl")


def test_two_equal_scores_of_a_reward_model_are_wrong_whatever_the_file_decides(tmp_path):
    rows = judge_rows(n=30)
    for i, row in enumerate(rows):
        scores = [0.5 * (i % 4), 0.5]
        row["judgments"] = [{"judgment": {"scores": scores}, "decision": "A>B" if scores[0] > scores[1] else "B>A"}]
    name = "dataset=judgebench,response_model=gpt-4o,judge_name=reward_model,judge_model=me_rm"
    pairs = rmlab.read_pairs(write(tmp_path / f"{name}.jsonl", rows))
    margins = [(0.5 * (i % 4) - 0.5) * (1 if row["label"] == "A>B" else -1) for i, row in enumerate(rows)]
    assert pairs["margin"].tolist() == margins
    assert set(pairs["model"]) == {"me_rm"}
    assert rmlab.summary(pairs)["overall"].item() == pytest.approx(np.mean(np.array(margins) > 0))


@pytest.mark.parametrize(
    ("changes", "column", "value"),
    [
        ({"source": "trivia"}, "source", "trivia"),
        ({"label": "A=B"}, "label", "A=B"),
        ({"response_A": ""}, "response_A", "''"),
        ({"pair_id": None}, "pair_id", "None"),
    ],
)
def test_a_bad_row_of_judgebench_is_named(tmp_path, changes, column, value):
    path = write(tmp_path / "x.jsonl", [*judge_rows(n=3), judge_rows(n=4)[3] | changes])
    with pytest.raises(DataError, match="row 3") as caught:
        rmlab.load("judgebench", path=path)
    assert column in str(caught.value)
    assert value in str(caught.value)
    if column in ("source", "label"):
        rows = [row | {"judgments": [{"decision": "A>B"}]} for row in judge_rows(n=2)]
        with pytest.raises(DataError, match=value):
            rmlab.read_pairs(write(tmp_path / "y.jsonl", [*rows, rows[0] | {"pair_id": "x"} | changes]))


HELP, HARM = "Helpfulness/Chat/Discussion", "Harmlessness/S1"


def talk(i):
    return [{"role": "user", "content": f"Prompt {i}", "language": "English"}]


def answer(name, length):
    return {"llm_name": name, "answer": "x" * length}


def rmb_sets(n=24):
    """Files of both sets by place; three pairs and one list of two to four losers a prompt."""
    sets = {}
    for place in (HELP, HARM):
        pairs = [
            {
                "pair_uid": f"{place[:4]}{i}",
                "conversation_input": talk(i // 3),
                "chosen": answer("a", 5 + i % 7),
                "reject": answer("b", 3 + i % 11),
                "category_path": f"Pairwise_set/{place}",
            }
            for i in range(n)
        ]
        lists = [
            {
                "bon_uid": str(i),
                "conversation_input": talk(i),
                "bon_best": answer("a", 9),
                "loser_list": [answer("b", 4 + (i * j) % 7) for j in range(1, 3 + i % 3)],
                "category_path": f"BoN_set/{place}",
            }
            for i in range(n // 3)
        ]
        sets |= {f"Pairwise_set/{place}.json": pairs, f"BoN_set/{place}.json": lists}
    return sets


@pytest.fixture
def rmb_folder(tmp_path):
    for place, rows in rmb_sets().items():
        write(tmp_path / "RMB_dataset" / place, rows, lines=False)
    return tmp_path / "RMB_dataset"


def test_rmb_counts_a_list_only_if_the_best_beats_every_loser(rmb_folder):
    right = defaultdict(list)
    for place, rows in rmb_sets().items():
        goal = "helpfulness" if "Helpfulness" in place else "harmlessness"
        for row in rows:
            if "bon_uid" in row:
                best = len(row["bon_best"]["answer"])
                right[f"{goal}_best_of_n"].append(all(best > len(loser["answer"]) for loser in row["loser_list"]))
            else:
                right[f"{goal}_pairs"].append(len(row["chosen"]["answer"]) > len(row["reject"]["answer"]))
    responses = rmlab.load("rmb", path=rmb_folder)
    scores = rmlab.score(responses, "longest")
    expected = {domain: np.mean(wins) for domain, wins in right.items()}
    assert len(set(expected.values())) > 1
    for table in (scores, rmlab.pairs(scores)):
        summary = rmlab.summary(table).iloc[0]
        assert {domain: summary[domain] for domain in expected} == pytest.approx(expected)
        assert summary["overall"] == pytest.approx(np.mean(list(expected.values())))
    items = rmlab.benchmarks.named("rmb").items(scores)
    assert len(np.unique(items.cluster)) == 8, "a prompt of both sets and goals is one cluster"
    assert items.credit.shape == (1, 2 * 24 + 2 * 8)


def test_rmb_names_what_a_folder_lacks(rmb_folder, caplog):
    (rmb_folder / "BoN_set" / f"{HARM}.json").unlink()
    with caplog.at_level(logging.WARNING):
        scores = rmlab.score(rmlab.load("rmb", path=rmb_folder), "longest")
    assert "harmlessness/S1" in caplog.text
    assert "harmlessness_best_of_n" in caplog.text
    summary = rmlab.summary(scores).iloc[0]
    assert np.isnan(summary["overall"])
    assert "harmlessness_best_of_n" in summary["reason"]


@pytest.mark.parametrize(
    ("changes", "column"),
    [
        ({"category_path": "Pairwise_set/Humour/x"}, "category_path"),
        ({"category_path": "Pairwise_set/Helpfulness"}, "category_path"),
        ({"chosen": {"llm_name": "a"}}, "chosen"),
        ({"reject": None}, "reject"),
        ({"conversation_input": []}, "conversation_input"),
    ],
)
def test_a_bad_row_of_rmb_is_named(tmp_path, changes, column):
    rows = rmb_sets()[f"Pairwise_set/{HELP}.json"][:3]
    with pytest.raises(DataError, match=rf"row 2.*{column}"):
        rmlab.load("rmb", path=write(tmp_path / "x.json", [*rows[:2], rows[2] | changes], lines=False))


def test_rows_of_the_runner_of_rmb(tmp_path, caplog):
    rows = [
        {
            "pair_uid": str(i),
            "category_path": f"Pairwise_set/{HELP}",
            "chosen_reward": 0.1 * i,
            "reject_reward": 0.45,
            "is_correct": int(i > 4),
        }
        for i in range(12)
    ]
    scores = rmlab.read_scores(write(tmp_path / "my-rm.json", rows, lines=False))
    assert "question" in caplog.text
    assert scores["benchmark"].unique().tolist() == ["rmb"]
    assert rmlab.summary(scores)["helpfulness_pairs"].item() == pytest.approx(np.mean([r["is_correct"] for r in rows]))
    strange = rows[0] | {"pair_uid": "x", "category_path": "Pairwise_set/Humour/x"}
    bad = write(tmp_path / "bad.json", [*rows, strange], lines=False)
    with pytest.raises(DataError, match="Humour"):
        rmlab.read_scores(bad)


def test_the_shipped_evalbiasbench(shared_data):
    original = json.loads((shared_data / "evalbiasbench" / "biasbench.json").read_text(encoding="utf-8"))
    responses = rmlab.load("evalbiasbench")
    assert responses.groupby("domain", sort=False)["id"].nunique().to_dict() == {
        kind.replace("_", " "): len(rows) for kind, rows in original.items()
    }
    assert responses["question"].nunique() == 79
    chosen = responses[responses["label"] == "chosen"]["response"].tolist()
    assert chosen == [row["response1"] for rows in original.values() for row in rows]
    scores = rmlab.score(responses, "longest")
    right = {
        kind.replace("_", " "): np.mean([len(row["response1"]) > len(row["response2"]) for row in rows])
        for kind, rows in original.items()
    }
    summary = rmlab.summary(scores).iloc[0]
    assert {kind: summary[kind] for kind in right} == pytest.approx(right)
    assert summary["n_prompts"] == 80


@pytest.mark.parametrize("changes", [{"bias": "vanity"}, {"label": 3}, {"label": None}])
def test_a_bad_row_of_evalbiasbench_is_named(tmp_path, changes):
    row = {"bias": "length bias", "instruction": "?", "response1": "a", "response2": "b", "label": 2}
    path = write(tmp_path / "x.json", {"length bias": [row, row | {"instruction": "!"}]}, lines=False)
    assert rmlab.load("evalbiasbench", path=path)["response"].tolist() == ["b", "a"] * 2
    path.write_text(json.dumps({"length bias": [row, row | changes]}))
    with pytest.raises(DataError, match=f"row 1.*{next(iter(changes))}"):
        rmlab.load("evalbiasbench", path=path)


def test_published_rows_are_the_columns_of_the_seven_benchmarks():
    seven = published("seven-benchmarks").set_index("model")
    for name in ("judgebench", "rmb"):
        pd.testing.assert_series_equal(published(name).set_index("model")["overall"], seven[name], check_names=False)
    assert published("judgebench")["note"].str.contains("63.43").all()
