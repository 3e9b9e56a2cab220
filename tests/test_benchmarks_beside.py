"""JudgeBench, RMB and EvalBiasBench: files in the published layouts, and their numbers against plain loops."""

import json
import logging
from collections import defaultdict

import numpy as np
import pytest

import rmlab
from rmlab.benchmarks import named
from rmlab.tables import DataError

DOMAIN = {
    "mmlu-pro-law": "knowledge",
    "mmlu-pro-physics": "knowledge",
    "livebench-reasoning": "reasoning",
    "livebench-math": "math",
    "livecodebench": "coding",
}
JUDGES = ("gpt-4o-2024-05-13", "claude-3-5-sonnet-20240620")


def judge_rows(n=40, model=JUDGES[0]):
    """Rows in JudgeBench's layout; every question stands in two of them."""
    return [
        {
            "pair_id": f"{model[:3]}-{i}",
            "original_id": None,
            "source": [*DOMAIN][i % 5],
            "question": f"Question {i // 2}?",
            "response_model": model,
            "response_A": "a" * (1 + i),
            "response_B": "b" * (1 + (7 * i) % n),
            "label": "A>B" if i % 3 else "B>A",
        }
        for i in range(n)
    ]


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)) if path.suffix == ".jsonl" else json.dumps(rows), encoding="utf-8")
    return path


def test_judgebench_reads_both_splits_and_its_numbers_are_the_shares_of_a_plain_loop(tmp_path):
    rows = {row["pair_id"]: row for model in JUDGES for row in judge_rows(model=model)}
    for model in JUDGES:
        write(tmp_path / "data" / f"dataset=judgebench,response_model={model}.jsonl", judge_rows(model=model))
    responses = rmlab.load("judgebench", path=tmp_path / "data")
    assert len(responses) == 2 * len(rows)
    for answer in responses.itertuples():
        row = rows[answer.id]
        assert answer.response == row[f"response_{row['label'][0 if answer.label == 'chosen' else 2]}"]
    right = defaultdict(list)
    for row in rows.values():
        margin = len(row["response_A"]) - len(row["response_B"])
        right[DOMAIN[row["source"]]].append((margin if row["label"] == "A>B" else -margin) > 0)
    scores = rmlab.score(responses, "longest")
    assert len(np.unique(named("judgebench").items(scores).cluster)) == 20, "a question of both splits is one cluster"
    summary = rmlab.summary(scores).iloc[0]
    for domain, wins in right.items():
        assert summary[domain] == pytest.approx(np.mean(wins))
    assert summary["overall"] == pytest.approx(np.mean([win for wins in right.values() for win in wins]))
    by_domain = rmlab.summary(scores, average="domains")["overall"].item()
    assert by_domain == pytest.approx(np.mean([np.mean(wins) for wins in right.values()]))


def flip(decision):
    return {"A>B": "B>A", "B>A": "A>B"}.get(decision, decision)


def test_a_judge_is_right_where_both_orders_sum_to_more_than_nothing(tmp_path):
    decisions = ["A>B", "B>A", "A=B", None, "unreadable"]
    rows, counters = judge_rows(n=25), []
    for row, (first, second) in zip(rows, [(a, b) for a in decisions for b in decisions], strict=True):
        row["judgments"] = [{"judgment": {"text": "..."}, "decision": decision} for decision in (first, second)]
        if second is None:
            row["judgments"][1] = None
        votes = (first, flip(second))
        counters.append(votes.count(row["label"]) - votes.count(flip(row["label"])))
    path = tmp_path / "dataset=judgebench,response_model=gpt-4o,judge_name=arena_hard,judge_model=o1-mini.jsonl"
    pairs = rmlab.read_pairs(write(path, rows))
    assert pairs["model"].unique().tolist() == ["o1-mini (arena_hard)"]
    expected = ["win" if counter > 0 else "loss" if counter < 0 else "tie" for counter in counters]
    assert pairs["outcome"].tolist() == expected
    assert rmlab.summary(pairs)["overall"].item() == pytest.approx(np.mean(np.array(counters) > 0))
    with pytest.raises(DataError, match="read_pairs"):
        rmlab.read_scores(path)


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


HELP, HARM = "Helpfulness/Chat/Discussion", "Harmlessness/S1"


def answer(name, length):
    return {"llm_name": name, "answer": "x" * length}


def rmb_pairs(place=HELP, n=24):
    """Rows of RMB's set of pairs, three a prompt."""
    return [
        {
            "pair_uid": f"{place[:4]}{i}",
            "conversation_input": [{"role": "user", "content": f"Prompt {i // 3}", "language": "English"}],
            "chosen": answer("a", 5 + i % 7),
            "reject": answer("b", 3 + i % 11),
            "category_path": f"Pairwise_set/{place}",
        }
        for i in range(n)
    ]


def rmb_lists(place, n=8):
    """Rows of RMB's best of n: the same prompts, two to four losers each."""
    return [
        {
            "bon_uid": str(i),
            "conversation_input": [{"role": "user", "content": f"Prompt {i}", "language": "English"}],
            "bon_best": answer("a", 9),
            "loser_list": [answer("b", 4 + (i * j) % 7) for j in range(1, 3 + i % 3)],
            "category_path": f"BoN_set/{place}",
        }
        for i in range(n)
    ]


def write_rmb(folder):
    for place in (HELP, HARM):
        write(folder / "Pairwise_set" / f"{place}.json", rmb_pairs(place))
        write(folder / "BoN_set" / f"{place}.json", rmb_lists(place))
    return folder


def test_rmb_counts_a_list_only_if_the_best_beats_every_loser(tmp_path):
    expected = {}
    for goal, place in {"helpfulness": HELP, "harmlessness": HARM}.items():
        pair_wins = [len(row["chosen"]["answer"]) > len(row["reject"]["answer"]) for row in rmb_pairs(place)]
        list_wins = [all(len(loser["answer"]) < 9 for loser in row["loser_list"]) for row in rmb_lists(place)]
        expected |= {f"{goal}_pairs": np.mean(pair_wins), f"{goal}_best_of_n": np.mean(list_wins)}
    assert len(set(expected.values())) > 1
    scores = rmlab.score(rmlab.load("rmb", path=write_rmb(tmp_path)), "longest")
    for table in (scores, rmlab.pairs(scores)):
        summary = rmlab.summary(table).iloc[0]
        assert {domain: summary[domain] for domain in expected} == pytest.approx(expected)
        assert summary["overall"] == pytest.approx(np.mean(list(expected.values())))
    items = named("rmb").items(scores)
    assert len(np.unique(items.cluster)) == 8, "a prompt of both sets and goals is one cluster"
    assert items.credit.shape == (1, 2 * 24 + 2 * 8)


def test_rmb_names_what_a_folder_lacks(tmp_path, caplog):
    (write_rmb(tmp_path) / "BoN_set" / f"{HARM}.json").unlink()
    with caplog.at_level(logging.WARNING):
        scores = rmlab.score(rmlab.load("rmb", path=tmp_path), "longest")
    assert "harmlessness/S1" in caplog.text
    assert "harmlessness_best_of_n" in caplog.text
    summary = rmlab.summary(scores).iloc[0]
    assert np.isnan(summary["overall"])
    assert "harmlessness_best_of_n" in summary["reason"]


def test_rows_of_the_runner_of_rmb(tmp_path, caplog):
    rows = [
        {"pair_uid": str(i), "category_path": f"Pairwise_set/{HELP}", "chosen_reward": 0.1 * i, "reject_reward": 0.45}
        for i in range(12)
    ]
    scores = rmlab.read_scores(write(tmp_path / "my-rm.json", rows))
    assert "question" in caplog.text
    assert scores["benchmark"].unique().tolist() == ["rmb"]
    assert rmlab.summary(scores)["helpfulness_pairs"].item() == pytest.approx(7 / 12)


def test_the_shipped_evalbiasbench(shared_data):
    original = json.loads((shared_data / "evalbiasbench" / "biasbench.json").read_text(encoding="utf-8"))
    responses = rmlab.load("evalbiasbench")
    assert responses["question"].nunique() == 79
    chosen = responses[responses["label"] == "chosen"]["response"].tolist()
    assert chosen == [row["response1"] for rows in original.values() for row in rows]
    right = {
        kind.replace("_", " "): np.mean([len(row["response1"]) > len(row["response2"]) for row in rows])
        for kind, rows in original.items()
    }
    summary = rmlab.summary(rmlab.score(responses, "longest")).iloc[0]
    assert {kind: summary[kind] for kind in right} == pytest.approx(right)
    assert summary["n_prompts"] == 80


JUDGE_ROW = judge_rows(n=1)[0]
BIAS_ROW = {"bias": "length bias", "instruction": "?", "response1": "a", "response2": "b", "label": 2}


JUDGED, REWARDS = {"judgments": [{"decision": "A>B"}]}, {"chosen_reward": 1, "reject_reward": 0}
RMB_ROW, STRANGE = rmb_pairs()[0], ("category_path", "Pairwise_set/Humour/x")
LACKS_SCENARIO = ("category_path", "Pairwise_set/Helpfulness")
BAD = {  # the file, a good row of it, and cells that are refused in place of its own
    "judgebench": (JUDGE_ROW, [("source", "trivia"), ("label", "A=B"), ("response_A", ""), ("pair_id", None)]),
    "judgebench result": (JUDGE_ROW | JUDGED, [("source", "trivia"), ("label", "A=B")]),
    "rmb": (
        RMB_ROW,
        [STRANGE, LACKS_SCENARIO, ("chosen", {"llm_name": "a"}), ("reject", None), ("conversation_input", [])],
    ),
    "rmb result": (RMB_ROW | REWARDS, [STRANGE]),
    "evalbiasbench": (BIAS_ROW, [("bias", "vanity"), ("label", 3), ("label", None)]),
}


@pytest.mark.parametrize(
    ("name", "row", "column", "value"),
    [(name, row, *cell) for name, (row, cells) in BAD.items() for cell in cells],
    ids=lambda part: str(part)[:30],
)
def test_a_bad_row_is_named(tmp_path, name, row, column, value):
    benchmark, _, is_result = name.partition(" ")
    rows = [row, row | {column: value} | ({"pair_id": "x"} if column == "source" else {})]
    path = write(tmp_path / "x.json", {"length bias": rows} if benchmark == "evalbiasbench" else rows)
    with pytest.raises(DataError, match="row 1") as caught:
        rmlab.read_pairs(path) if is_result else rmlab.load(benchmark, path=path)
    assert f"'{column}'" in str(caught.value)
    assert repr(value) in str(caught.value)
