"""Benchmarks from files, their numbers against plain loops, refusals, and some domains
alone.
"""

import json
from collections import defaultdict
from itertools import product

import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import (
    BIASED,
    FOUR,
    JUDGED,
    LIST,
    NINE,
    ONE,
    PAIR,
    PROGRAM,
    ROWS,
    SAMPLED,
    TRANSLATED,
    VOTE,
    judge_rows,
    reward_bench_2_scores,
    reward_bench_pairs,
    rmb_rows,
    styles,
    write,
    write_rmb,
)

import rmlab
from rmlab import metrics, report
from rmlab.benchmarks import load
from rmlab.benchmarks.registry import benchmark_of, benchmarks_by_name
from rmlab.benchmarks.rm_bench import SUBSETS as RM_BENCH
from rmlab.tables import STYLES, DataError, check_pairs

ODD = " \N{GRINNING FACE}\N{ZERO WIDTH JOINER}\n\t a\u2028b\x85c\r\nd\0"


@pytest.mark.parametrize(("name", "row", "ids", "columns"), ROWS)
def test_a_row_is_read(tmp_path, name, row, ids, columns):
    responses = load(name, path=write(tmp_path / "gpqa.json", [row]))
    assert set(responses["benchmark"]) == {name}
    assert responses["id"].unique().tolist() == ids
    for column, value in columns.items():
        assert set(responses[column]) == {value}
    for _, answers in responses.groupby("id"):
        chosen = answers.loc[answers["label"] == "chosen", "response"].tolist()
        assert chosen in (["a"], styles("a"))
        rejected = answers.loc[answers["label"] == "rejected", "response"].tolist()
        assert rejected in (["b"], ["b", "b"], [*"bcd"], styles("b"))
    asked = responses["prompt"].tolist()
    assert asked == [row.get("conversation_input", "Why?")] * len(asked)
    assert responses["style"].isna().all() == (name != "rm-bench")


IDS = [
    ("rm-bench", NINE, {"domain": "code"}, "7", "7"),
    ("m-reward-bench", TRANSLATED, {"language": "zh"}, "de/1718", "zh/1718"),
    ("reward-bench-2", FOUR, {"subset": "Math"}, "1", "1"),
]


@pytest.mark.parametrize(("name", "row", "elsewhere", "item", "other"), IDS)
def test_different_prompts_of_one_id_are_items_and_equal_ones_are_refused(
    tmp_path, name, row, elsewhere, item, other
):
    rows = [row | {"prompt": f"{n}?"} for n in range(10)]
    path = write(tmp_path / "x.json", rows)
    prompts = load(name, path=path).drop_duplicates("id").set_index("id")["prompt"]
    ids = [item, *(f"{item}#{n}" for n in range(2, 11))]
    assert prompts[ids].tolist() == [f"{n}?" for n in range(10)]
    responses = load(name, path=write(path, [*rows, row | elsewhere]))
    prompts = responses.drop_duplicates(["domain", "id"])
    assert sorted(prompts["id"]) == sorted([*ids, other])
    counts = rmlab.accuracy(rmlab.score(responses, "longest"), by=["model", "domain"])
    assert counts["n_prompts"].sum() == 11
    with pytest.raises(DataError, match=r"x\.json: row 11.*'id'"):
        load(name, path=write(path, [*rows, row | elsewhere, rows[3]]))


@pytest.fixture
def folder(tmp_path):
    """RM-Bench's five files with two prompts each."""
    for place, subset in enumerate(RM_BENCH):
        rows = []
        for number in (10 * place, 10 * place + 2):
            row = {"id": number, "prompt": f"Question {number}?{ODD}", "subset": "here"}
            row |= {"chosen": styles(f"right {number}")}
            rows.append(row | {"rejected": styles(f"wrong {number}")})
        write(tmp_path / "five" / f"{subset}_filtered.json", rows)
    return tmp_path / "five"


def test_rm_bench_from_files_of_domains_and_from_the_total_file(
    folder, tmp_path, caplog
):
    write(folder / "chat_filtered_prompt_disturbance.json", [])
    responses = load("rm-bench", path=folder)
    assert responses["subset"].drop_duplicates().tolist() == list(RM_BENCH)
    assert (responses["domain"] == responses["subset"].str.split("-").str[0]).all()
    assert responses["style"].tolist() == list(STYLES) * 2 * 10
    assert responses["response"].tolist()[:6] == styles("right 0") + styles("wrong 0")
    assert responses["prompt"][0] == f"Question 0?{ODD}"
    assert not caplog.text

    rows = []
    for subset in sorted(RM_BENCH):
        of_file = json.loads((folder / f"{subset}_filtered.json").read_text("utf-8"))
        rows += [r | {"id": f"{subset}/{r['id']}", "domain": subset} for r in of_file]
    total = write(tmp_path / "one" / "data" / "total_dataset.json", rows)
    write(total.with_name("chat_filtered.json"), [])
    lines = tmp_path / "lines.json"
    text = "\n".join(json.dumps(r, ensure_ascii=False) for r in rows)
    lines.write_text(f"\N{BYTE ORDER MARK}{text}", encoding="utf-8", newline="")
    for path in (total, str(tmp_path / "one"), lines):
        pd.testing.assert_frame_equal(load("rm-bench", path=path), responses)

    for subset in ("math", "safety-refuse"):
        (folder / f"{subset}_filtered.json").unlink()
    load("rm-bench", path=folder)
    assert "math, safety-refuse" in caplog.text


BAD_FILES = [
    (b"[]", "no rows"),
    (b'{"id": 1}\n{"id": 2}\n{"id', "line 3: "),
    ('[{"id": 1, "prompt": "\xe9"}]'.encode("latin-1"), "UTF-8 .*byte 22"),
    (b'[{"id": 1, "prompt": "so \\ud83d"}]', "row 0: .* surrogate"),
    (json.dumps([NINE, "text"]).encode(), "row 1 is 'text'"),
]


@pytest.mark.parametrize(("content", "message"), BAD_FILES)
def test_bad_files_are_refused(tmp_path, content, message):
    (tmp_path / "chat_filtered.json").write_bytes(content)
    with pytest.raises(DataError, match=f"chat_filtered.json.*{message}"):
        load("rm-bench", path=tmp_path / "chat_filtered.json")


def test_bad_places(tmp_path, folder):
    write(tmp_path / "mine.json", [{"id": 1, "prompt": "?"}])
    absent = r"chat_filterd.json: no such file.*chat_filtered.json"
    for name, path, message in [
        ("rm-bench", folder / "chat_filterd.json", absent),
        ("rm-bench", tmp_path / "x", "no file"),
        ("rm-bench", tmp_path / "mine.json", r"mine.json: row 0.*'domain'"),
        ("rm_bench", None, r"'rm_bench'; .*'rm-bench'"),
    ]:
        (tmp_path / "x").mkdir(exist_ok=True)
        with pytest.raises(DataError, match=message):
            load(name, path=path)
    with pytest.raises(TypeError, match=r"rmb.*path="):
        load("rmb")


NAMES = [("subset", {"a": 1}), ("subset", ["Math"]), ("subset", None)]
RESULT = {"id": 1, "subset": "math", "score_chosen": [1, 2, 3]}
RESULT |= {"score_rejected": [1, 2, 3]}
DECIDED = {"judgments": [{"decision": "A>B"}]}
STRANGE = ("category_path", "Pairwise_set/Humour/x")
BAD = {  # a good row, and cells that are refused in place of its own
    "rm-bench": (
        NINE,
        [
            *[("chosen", ["a", 5, "c"]), ("rejected", ["a"]), ("prompt", None)],
            ("domain", "chatt"),
        ],
    ),
    "reward-bench": (ONE, [*NAMES, ("chosen", ""), ("id", 1.5), ("id", True)]),
    "reward-bench-2": (FOUR, [*NAMES, ("chosen", []), ("id", "")]),
    "m-reward-bench": (TRANSLATED, [("source", "trivia")]),
    "judgebench": (JUDGED, [("source", "trivia"), ("label", "A=B")]),
    "rmb": (PAIR, [STRANGE, ("reject", None), ("conversation_input", [])]),
    "rmb list": (LIST, [("category_path", "BoN_set/Helpfulness"), ("loser_list", [])]),
    "evalbiasbench": ({"x": [BIASED]}, [("x", [BIASED | {"label": 3}]), ("x", 7)]),
    "ppe-preference": (VOTE, [("winner", "model_c"), ("response_1", "")]),
    "ppe-correctness": (
        SAMPLED,
        [
            ("sampled_conflict_pairs", [[0, 1], pair])
            for pair in ([0, 2], [1, 1], [1, 99], [1], "0,1", None)
        ],
    ),
    "code-reward-bench": (PROGRAM, [("aspect", "Beauty")]),
    "rm-bench result": (RESULT, [("subset", "maths")]),
    "judgebench result": (
        JUDGED | DECIDED,
        [("source", "trivia"), ("label", "A=B"), ("judgments", [])],
    ),
}


@pytest.mark.parametrize(
    ("name", "row", "column", "value"),
    [(name, row, *cell) for name, (row, cells) in BAD.items() for cell in cells],
    ids=lambda part: str(part)[:20],
)
def test_a_bad_row_is_named(tmp_path, name, row, column, value):
    benchmark, _, kind = name.partition(" ")
    rows = [row, row | {"id": 2, "pair_id": "x", column: value}]
    read = rmlab.read_pairs if benchmark == "judgebench" else rmlab.read_scores
    path = write(tmp_path / "gpqa.json", rows)
    with pytest.raises(DataError, match=r"gpqa\.json: (a )?row"):
        read(path) if kind == "result" else load(benchmark, path=path)


def test_a_table_is_found_by_its_name(make_scores):
    scores = make_scores()
    for name, found in [("mini", "mini"), ("a copy", "own"), ("a (copy)", "own")]:
        assert benchmark_of(scores.assign(benchmark=name)).name == found
    with pytest.raises(DataError, match="2 benchmarks"):
        benchmark_of(pd.concat([scores, scores.assign(benchmark="a copy")]))
    some = scores["benchmark"].where(scores.index != 3)
    with pytest.raises(DataError, match=f"1 of {len(scores)} rows"):
        benchmark_of(scores.assign(benchmark=some))
    with pytest.raises(TypeError, match="dict"):
        benchmark_of({})


def test_options_and_chance_are_the_benchmarks_and_other_options_are_refused(
    make_scores,
):
    scores, best_of_four = make_scores(), reward_bench_2_scores(models=["a"])
    split = metrics.summary(scores, safety="split")
    assert split["average"].iloc[0] == "benchmark, safety=split"
    for table, option, error, message in [
        (scores, {"weights": "counts"}, TypeError, r"weights='counts': .*'safety'"),
        (scores, {"safety": "splitt"}, ValueError, r"'splitt'.*'split'"),
        (best_of_four, {"ties": "half"}, ValueError, r"'share', 'loss', 'win'"),
    ]:
        with pytest.raises(error, match=message):
            metrics.summary(table, **option)
    row = metrics.summary(best_of_four, overall="without-ties").iloc[0]
    five = row[["factuality", "precise_if", "math", "safety", "focus"]]
    assert row["overall"] == pytest.approx(five.mean())
    chance = metrics.estimates(best_of_four).set_index("name")["chance"]
    assert chance["factuality"] == 0.25
    assert chance[["ties", "overall"]].isna().all()
    assert (metrics.estimates(reward_bench_pairs())["chance"].dropna() == 0.5).all()


@pytest.mark.parametrize(
    ("name", "column"), [("rm-bench", "domain"), ("reward-bench", "subset")]
)
def test_a_domain_or_subset_of_another_benchmark_is_refused(name, column, make_scores):
    pairs = metrics.pairs(make_scores())
    if name == "reward-bench":
        pairs = reward_bench_pairs()
    pairs[column] = pairs[column].where(pairs.index != 3, "trivia")
    with pytest.raises(DataError, match=f"{column} 'trivia'"):
        metrics.accuracy(pairs)


def test_a_column_of_prompts_clusters_ties_as_well():
    """A pair of Ties prompts has the column of its first prompt."""
    scores = reward_bench_2_scores(models=("a",), n=8)
    number = scores["id"].str.extract(r"(\d+)$")[0].astype(int)
    table = scores.assign(family=(number // 2).astype(str))
    items = benchmarks_by_name()["reward-bench-2"].items(table, cluster=["family"])
    expected = pd.factorize(items.frame["id"].astype(int) // 2)[0]
    np.testing.assert_array_equal(items.cluster, expected)


def test_tasks_in_several_subsets_are_one_cluster():
    """Items that are not released are clusters of their own."""
    ids = ["1554", "1718", "0", "195", "900", "x"]
    subsets = ["hep-python", "hep-go", "alpacaeval-easy", "alpacaeval-length"]
    subsets += ["refusals-dangerous"] * 2
    table = pd.DataFrame({"domain": subsets, "id": ids, "margin": 1.0})
    table = table.assign(model="m", benchmark="reward-bench", chosen_slot=0)
    table = check_pairs(table.assign(rejected_slot=0))
    clusters = benchmarks_by_name()["reward-bench"].items(table).cluster
    assert clusters.tolist() == [0, 0, 1, 1, 2, 3]


def test_subsets_that_count_in_no_section_do_no_harm():
    pairs = reward_bench_pairs(seed=2)
    more = pairs.head(6).assign(
        domain="mtbench_gpt4", subset="mtbench_gpt4", id=[f"x{i}" for i in range(6)]
    )
    whole = pd.concat([pairs, more], ignore_index=True)
    pd.testing.assert_frame_equal(metrics.summary(whole), metrics.summary(pairs))
    assert report.leaderboard(whole)["rank"].notna().sum() == 2


DOMAIN = {"mmlu-pro-law": "knowledge", "mmlu-pro-physics": "knowledge"}
DOMAIN |= {"livebench-reasoning": "reasoning", "livebench-math": "math"}
DOMAIN |= {"livecodebench": "coding"}


def test_judgebench_reads_both_splits_and_its_numbers_are_those_of_a_plain_loop(
    tmp_path,
):
    right = defaultdict(list)
    for model in ("gpt-4o", "claude-3-5-sonnet"):
        rows = judge_rows(model=model)
        write(tmp_path / "data" / f"response_model={model}.json", rows)
        for row in rows:
            margin = len(row["response_A"]) - len(row["response_B"])
            is_right = margin > 0 if row["label"] == "A>B" else margin < 0
            right[DOMAIN[row["source"]]].append(is_right)
    scores = rmlab.score(load("judgebench", path=tmp_path / "data"), "longest")
    # A question of both splits is one cluster.
    cluster = benchmarks_by_name()["judgebench"].items(rmlab.pairs(scores)).cluster
    assert len(np.unique(cluster)) == 20
    summary = rmlab.summary(scores).iloc[0]
    shares = {domain: np.mean(wins) for domain, wins in right.items()}
    assert summary[[*shares]].to_dict() == pytest.approx(shares)
    assert summary["overall"] == pytest.approx(np.concatenate([*right.values()]).mean())
    by_domain = rmlab.summary(scores, average="domains")["overall"].item()
    assert by_domain == pytest.approx(np.mean([*shares.values()]))


JUDGED_FILE = "response_model=gpt-4o,judge_name={},judge_model={}.json"


def test_a_judge_is_right_where_both_orders_sum_to_more_than_nothing(tmp_path):
    decisions = ["A>B", "B>A", "A=B", None, "unreadable"]
    flip = {"A>B": "B>A", "B>A": "A>B"}
    rows = judge_rows(n=25)
    expected = []
    for row, (first, second) in zip(rows, product(decisions, decisions), strict=True):
        judged = {"judgment": {"text": "..."}, "decision": first}
        row["judgments"] = [judged, second and {"decision": second}]
        votes = (first, flip.get(second, second))
        lead = votes.count(row["label"]) - votes.count(flip[row["label"]])
        expected.append("win" if lead > 0 else "loss" if lead < 0 else "tie")
    path = write(tmp_path / JUDGED_FILE.format("arena_hard", "o1-mini"), rows)
    pairs = rmlab.read_pairs(path)
    assert set(pairs["model"]) == {"o1-mini (arena_hard)"}
    assert pairs["outcome"].tolist() == expected
    with pytest.raises(DataError, match="read_pairs"):
        rmlab.read_scores(path)


@pytest.mark.parametrize("n_orders", [1, 2])
def test_the_margin_of_scored_judgments_is_their_mean_in_the_original_order(
    tmp_path, n_orders
):
    """The second judgment shows B first, so its scores come in that order. Two equal
    scores are a tie, whatever the file decides.
    """
    rows = judge_rows(n=12)
    margins = []
    for i, row in enumerate(rows):
        of_a, of_b, of_a_again = 0.5 * (i % 4), 0.25 * i, 0.75 * (i % 3)
        row["judgments"] = [
            {"judgment": {"scores": [of_a, of_b]}, "decision": "A>B"},
            {"judgment": {"scores": [of_b, of_a_again]}, "decision": "B>A"},
        ][:n_orders]
        margin = np.mean([of_a - of_b, of_a_again - of_b][:n_orders])
        margins.append(margin if row["label"] == "A>B" else -margin)
    path = write(tmp_path / JUDGED_FILE.format("reward_model", "me_rm"), rows)
    pairs = rmlab.read_pairs(path)
    assert pairs["margin"].tolist() == pytest.approx(margins)
    assert set(pairs["model"]) == {"me_rm"}
    overall = rmlab.summary(pairs)["overall"].item()
    assert overall == pytest.approx(np.mean(np.array(margins) > 0))


def test_rmb_counts_a_list_only_if_the_best_beats_every_loser(tmp_path, caplog):
    expected = {}
    for goal in ("Helpfulness", "Harmlessness"):
        pairs, lists = rmb_rows(f"{goal}/S1")
        pair_wins = [
            len(row["chosen"]["answer"]) > len(row["reject"]["answer"]) for row in pairs
        ]
        list_wins = []
        for row in lists:
            is_beaten = [len(loser["answer"]) < 9 for loser in row["loser_list"]]
            list_wins.append(all(is_beaten))
        expected[f"{goal.lower()}_pairs"] = np.mean(pair_wins)
        expected[f"{goal.lower()}_best_of_n"] = np.mean(list_wins)
    assert len(set(expected.values())) > 1
    scores = rmlab.score(load("rmb", path=write_rmb(tmp_path)), "longest")
    assert not caplog.text
    for table in (scores, rmlab.pairs(scores)):
        summary = rmlab.summary(table).iloc[0]
        assert summary[[*expected]].to_dict() == pytest.approx(expected)
        assert summary["overall"] == pytest.approx(np.mean(list(expected.values())))
    items = benchmarks_by_name()["rmb"].items(rmlab.pairs(scores))
    # A prompt of both sets and goals is one cluster.
    assert len(np.unique(items.cluster)) == 8
    assert items.credit.shape == (1, 2 * 24 + 2 * 8)
    (tmp_path / "BoN_set" / "Harmlessness" / "S1.json").unlink()
    summary = rmlab.summary(rmlab.score(load("rmb", path=tmp_path), "longest")).iloc[0]
    assert "harmlessness_best_of_n" in caplog.text
    assert np.isnan(summary["overall"])
    assert "harmlessness_best_of_n" in summary["reason"]


def test_evalbiasbench_ships_with_rmlab():
    summary = rmlab.summary(rmlab.score(load("evalbiasbench"), "longest")).iloc[0]
    assert summary["n_prompts"] == 80
    assert summary["overall"] < 0.5


def test_some_domains_are_a_benchmark_of_their_own():
    """Nothing is missing where a domain was never asked for, in any function."""
    part = load("mini", domains=["code", "chat", "code"])
    scores = rmlab.score(part, ["longest", "shortest"])
    assert set(scores["benchmark"]) == {"mini (chat, code)"}
    summary = rmlab.summary(scores)
    assert list(summary)[1:7] == ["chat", "code", "easy", "normal", "hard", "overall"]
    mean = summary[["chat", "code"]].mean(axis=1)
    np.testing.assert_allclose(summary["overall"], mean)
    whole = rmlab.summary(rmlab.score(load("mini"), ["longest", "shortest"]))
    np.testing.assert_array_equal(summary["chat"], whole["chat"])
    overall = summary.set_index("model")["overall"]
    estimates = rmlab.estimates(scores)
    compared = report.compare_benchmarks([scores])
    for table, column in [
        (rmlab.rank(scores), "value"),
        (rmlab.leaderboard(scores), "overall"),
        (estimates[estimates["quantity"] == "overall"], "value"),
        (compared, "mean"),
    ]:
        of_model = table.set_index("model")[column]
        assert of_model[overall.index].to_dict() == overall.to_dict()
        assert (table["reason"].fillna("") == "").all()
    assert estimates["value"].notna().all()
    for domains in (["maths"], []):
        with pytest.raises(DataError, match="domains"):
            load("mini", domains=domains)
    assert set(load("mini", domains="chat")["benchmark"]) == {"mini (chat)"}


def test_a_domain_that_was_asked_for_is_missing_in_python_and_in_the_report(tmp_path):
    """Of two models one lacks all of code, the other one score of it."""
    part = load("mini", domains=["chat", "code"])
    scores = rmlab.score(part, ["longest", "shortest"])
    lacks = (scores["model"] == "longest") & (scores["domain"] == "code")
    is_gone = scores.index == scores.index[scores["model"] == "shortest"][0]
    gaps = scores.assign(score=scores["score"].mask(is_gone))[~lacks]
    summary = rmlab.summary(gaps).set_index("model")
    board = rmlab.leaderboard(gaps, common=None)
    board = board.set_index("model").loc[summary.index]
    columns = ["chat", "code", "overall", "low", "high", "n_prompts", "missing"]
    expected = summary[columns]
    pd.testing.assert_frame_equal(board[columns], expected, check_dtype=False)
    assert np.isnan(summary.loc["longest", ["code", "overall"]].tolist()).all()
    assert summary.loc["longest", "reason"] == "nothing in code"
    assert board.loc["longest", "reason"].startswith("nothing in code")
    assert summary.loc["shortest", "missing"] == 3
    page = tmp_path / "report.html"
    rmlab.write_report(gaps, page)
    assert "nothing in code" in page.read_text("utf-8")
    rmlab.write_report(scores, page)
    assert "nothing in" not in page.read_text("utf-8")


@pytest.mark.parametrize("weights", ["published", "counts"])
def test_a_section_keeps_the_subsets_of_its_domains(weights):
    pairs = reward_bench_pairs(models=("a",))
    domains = ["alpacaeval-easy", "donotanswer", "xstest-should-refuse"]
    benchmark = benchmarks_by_name()["reward-bench"].only(domains)
    kept = pairs[pairs["domain"].isin(domains)].assign(benchmark=benchmark.name)
    row = rmlab.summary(kept, weights=weights).iloc[0]
    weight = np.array([100 / 358, (136 + 154) / 740])  # those of the whole benchmark
    if weights == "counts":
        weight = np.array([1.0, 1.0])
    sections = row[["chat", "safety"]].to_numpy(float)
    assert row["overall"] == pytest.approx(sections @ weight / weight.sum())
    assert "reasoning" not in row
