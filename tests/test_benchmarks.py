"""Benchmarks from files, what each counts against plain loops, and the registry:
tables, refusals, fields.
"""

import json
from collections import defaultdict
from itertools import product

import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import reward_bench_2_scores, reward_bench_pairs

import rmlab
from rmlab import metrics, report
from rmlab.benchmarks import load, named
from rmlab.benchmarks.registry import benchmark_of
from rmlab.benchmarks.rm_bench import SUBSETS as RM_BENCH
from rmlab.tables import STYLES, DataError, check_pairs


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "\n".join(map(json.dumps, rows))
        if path.suffix == ".jsonl"
        else json.dumps(rows),
        encoding="utf-8",
    )
    return path


def row(number=1, **changes):
    """A row in RM-Bench's layout."""
    odd = " \N{GRINNING FACE}\N{ZERO WIDTH JOINER}\n\t a\u2028b\x85c\r\nd\0"
    answers = {"id": number, "subset": "here", "prompt": f"Question {number}?{odd}"}
    for label, word in (("chosen", "right"), ("rejected", "wrong")):
        answers[label] = [
            f"{word} {number}",
            f"It is {word} {number}.",
            f"**{word}** {number}",
        ]
    return answers | changes


@pytest.fixture
def folder(tmp_path):
    """Five per-domain files with two prompts each, out of order."""
    for place, subset in enumerate(RM_BENCH):
        write(
            tmp_path / "five" / f"{subset}_filtered.json",
            [row(10 * place + 2), row(10 * place)],
        )
    return tmp_path / "five"


def test_rm_bench_from_files_of_domains_and_from_the_total_file(
    folder, tmp_path, caplog
):
    responses = load("rm-bench", path=folder)
    assert len(responses) == 5 * 2 * 6
    assert responses["subset"].drop_duplicates().tolist() == list(RM_BENCH)
    assert (responses["domain"] == responses["subset"].str.split("-").str[0]).all()
    assert set(responses["benchmark"]) == {"rm-bench"}
    assert set(responses["source"]) == {"here"}
    first = responses[:6]
    assert first["label"].tolist() == ["chosen"] * 3 + ["rejected"] * 3
    assert first["slot"].tolist() == [0, 1, 2] * 2
    assert first["style"].tolist() == list(STYLES) * 2
    assert first["response"].tolist() == row(0)["chosen"] + row(0)["rejected"]
    assert set(first["prompt"]) == {row(0)["prompt"]}
    ids = [str(10 * place + i) for place in range(5) for i in (0, 2)]
    assert responses["id"].tolist()[::6] == ids
    assert responses.attrs == {"missing_domains": []}

    rows = []
    for subset in sorted(RM_BENCH):
        of_file = json.loads((folder / f"{subset}_filtered.json").read_text("utf-8"))
        rows += [r | {"id": f"{subset}/{r['id']}", "domain": subset} for r in of_file]
    total = write(tmp_path / "one" / "total_dataset.json", rows)
    lines = "\n".join(json.dumps(r, ensure_ascii=False) for r in rows)
    (tmp_path / "lines.json").write_text(lines, encoding="utf-8", newline="")
    (tmp_path / "marked.json").write_bytes(b"\xef\xbb\xbf" + total.read_bytes())
    paths = [tmp_path / "lines.json", tmp_path / "marked.json"]
    for path in (total, str(total.parent), *paths):
        pd.testing.assert_frame_equal(load("rm-bench", path=path), responses)
    slashed = [row(domain="chat", id="chat/a/b", note=7, error="e")]
    read = load("rm-bench", path=write(tmp_path / "one" / "x.json", slashed))
    assert [*read.loc[0, ["id", "note", "error"]]] == ["a/b", "7", "e"]

    for subset in ("math", "safety-refuse"):
        (folder / f"{subset}_filtered.json").unlink()
    caplog.clear()
    partial = load("rm-bench", path=folder)
    assert "math, safety-refuse" in caplog.text
    assert partial.attrs["missing_domains"] == ["math", "safety-refuse"]
    assert set(partial["subset"]) == {"chat", "code", "safety-response"}


ONE = {
    "id": 395,
    "prompt": "Which?",
    "chosen": "a",
    "rejected": "b",
    "subset": "llmbar-natural",
}
FOUR = {
    "id": "1",
    "prompt": "Which?",
    "chosen": ["a"],
    "rejected": ["b", "c", "d"],
    "subset": "Focus",
}
READ = {
    "reward-bench": [ONE, ONE | {"id": 7, "subset": "shp"}],
    "reward-bench-2": [
        FOUR,
        FOUR
        | {"id": "tied:1", "subset": "ties", "chosen": ["a", "A"], "num_correct": 2},
    ],
}


@pytest.mark.parametrize("name", READ)
def test_reward_bench_from_files(tmp_path, name):
    responses = load(name, path=write(tmp_path / "x.json", READ[name]))
    expected = []
    for r in READ[name]:
        for label in ("chosen", "rejected"):
            for slot, text in enumerate(r[label]):
                expected.append([str(r["id"]), r["subset"], label, slot, text])
    columns = responses[["id", "subset", "label", "slot", "response"]]
    assert columns.replace("Ties", "ties").values.tolist() == expected
    assert responses["subset"].tolist() == responses["domain"].tolist()
    assert responses["style"].isna().all()


BAD_FILES = [
    (b"", "empty"),
    (b"[]", "no rows"),
    (json.dumps([row(1)]).encode()[:-30], r"line 1 column \d+"),
    (b'{"id": 1}\n{"id": 2}\n{"id', "line 3: "),
    ('[{"id": 1, "prompt": "\xe9"}]'.encode("latin-1"), "UTF-8 .*byte 22"),
    (b'[{"id": 1, "prompt": "so \\ud83d"}]', "row 0: .* surrogate"),
    (json.dumps([row(), "text"]).encode(), "row 1 is 'text'"),
]


@pytest.mark.parametrize(("content", "message"), BAD_FILES)
def test_bad_files_are_refused(tmp_path, content, message):
    (tmp_path / "chat_filtered.json").write_bytes(content)
    with pytest.raises(DataError, match=f"chat_filtered.json.*{message}"):
        load("rm-bench", path=tmp_path / "chat_filtered.json")


def test_bad_places(tmp_path, folder):
    write(tmp_path / "mine.json", [row(1)])
    (tmp_path / "empty").mkdir()
    for name, path, message in [
        (
            "rm-bench",
            folder / "chat_filterd.json",
            r"chat_filterd.json: no such file.*chat_filtered.json",
        ),
        ("rm-bench", tmp_path / "empty", "chat_filtered.json"),
        ("reward-bench", tmp_path / "empty", "found 0"),
        ("reward-bench", folder, "found 5"),
        ("rmb", tmp_path / "empty", "no data file"),
        ("rm-bench", tmp_path / "mine.json", r"mine.json: .*'domain' in row 0"),
        ("rm_bench", None, r"'rm_bench'; .*'rm-bench'"),
    ]:
        with pytest.raises(DataError, match=message):
            load(name, path=path)
    with pytest.raises(TypeError, match=r"rmb.*path="):
        load("rmb")


def test_a_table_is_found_by_its_name(make_scores):
    scores = make_scores()
    for table, name in [
        (scores, "rm-bench"),
        (scores.assign(benchmark="mini"), "mini"),
        (scores.assign(benchmark="a copy"), "own"),
    ]:
        assert benchmark_of(table).name == name
    with pytest.raises(DataError, match="2 benchmarks"):
        benchmark_of(pd.concat([scores, scores.assign(benchmark="a copy")]))
    with pytest.raises(DataError, match=f"1 of {len(scores)} rows"):
        benchmark_of(
            scores.assign(benchmark=scores["benchmark"].where(scores.index != 3))
        )
    with pytest.raises(TypeError, match="dict"):
        benchmark_of({})


def test_options_and_chance_are_the_benchmarks_and_other_options_are_refused(
    make_scores,
):
    scores, best_of_four = make_scores(), reward_bench_2_scores()
    assert (
        metrics.summary(scores, safety="split")["average"].iloc[0]
        == "benchmark, safety=split"
    )
    assert (
        metrics.summary(reward_bench_pairs(), prior_sets="none")["average"].iloc[0]
        == "benchmark, prior_sets=none"
    )
    with pytest.raises(TypeError, match=r"weights='counts': .*'safety'"):
        metrics.summary(scores, weights="counts")
    with pytest.raises(ValueError, match=r"'splitt'.*'split'"):
        metrics.summary(scores, safety="splitt")
    with pytest.raises(ValueError, match=r"ties: 'half'; .*'share', 'loss', 'win'"):
        metrics.summary(best_of_four, ties="half")
    row = metrics.summary(best_of_four, overall="without-ties").iloc[0]
    assert row["overall"] == pytest.approx(
        row[["factuality", "precise_if", "math", "safety", "focus"]].mean()
    )
    chance = (
        metrics.estimates(best_of_four)
        .drop_duplicates(["quantity", "name"])
        .set_index("name")["chance"]
    )
    assert chance["factuality"] == 0.25
    assert chance[["ties", "overall"]].isna().all()
    assert (metrics.estimates(reward_bench_pairs())["chance"].dropna() == 0.5).all()


def test_a_column_of_prompts_clusters_ties_as_well():
    """A pair of Ties prompts has the column of its first prompt."""
    scores = reward_bench_2_scores(models=("a",), n=8)
    number = scores["id"].str.extract(r"(\d+)$")[0].astype(int)
    items = named("reward-bench-2").items(
        scores.assign(family=(number // 2).astype(str)), cluster=["family"]
    )
    family = items.frame["id"].astype(int) // 2
    assert (
        pd.Series(items.cluster).groupby(family.to_numpy()).nunique().tolist()
        == [1] * family.nunique()
    )
    assert len(np.unique(items.cluster)) == family.nunique()


def test_tasks_in_several_subsets_are_one_cluster():
    ids = ["1554", "1718", "0", "195", "900"]
    subsets = [
        "hep-python",
        "hep-go",
        "alpacaeval-easy",
        "alpacaeval-length",
        "refusals-dangerous",
    ]
    table = pd.DataFrame(
        {"model": "m", "benchmark": "reward-bench", "domain": subsets, "id": ids}
    )
    table = check_pairs(table.assign(chosen_slot=0, rejected_slot=0, margin=1.0))
    items = named("reward-bench").items(table)
    cluster = dict(zip(items.frame["id"], items.cluster, strict=True))
    assert cluster["1554"] == cluster["1718"]
    assert len(set(cluster.values())) == len(np.unique(items.cluster))
    assert (
        len(
            np.unique(
                named("reward-bench").items(table.assign(id="x" + table["id"])).cluster
            )
        )
        == 5
    )


def test_subsets_that_count_in_no_section_do_no_harm():
    pairs = reward_bench_pairs(seed=2)
    more = pairs.head(6).assign(
        domain="mtbench_gpt4", subset="mtbench_gpt4", id=[f"x{i}" for i in range(6)]
    )
    whole = pd.concat([pairs, more], ignore_index=True)
    pd.testing.assert_frame_equal(metrics.summary(whole), metrics.summary(pairs))
    assert report.leaderboard(whole)["rank"].notna().sum() == 2


DOMAIN = {
    "mmlu-pro-law": "knowledge",
    "livebench-reasoning": "reasoning",
    "livebench-math": "math",
}
DOMAIN |= {"livecodebench": "coding", "mmlu-pro-physics": "knowledge"}
SPLITS = ("gpt-4o", "claude-3-5-sonnet")


def judge_rows(n=40, model=SPLITS[0]):
    """Rows in JudgeBench's layout; every question stands in two of them."""
    return [
        {
            "pair_id": f"{model[:3]}-{i}",
            "source": [*DOMAIN][i % 5],
            "question": f"Question {i // 2}?",
            "response_model": model,
            "response_A": "a" * (1 + i),
            "response_B": "b" * (1 + (7 * i) % n),
            "label": "A>B" if i % 3 else "B>A",
        }
        for i in range(n)
    ]


def test_judgebench_reads_both_splits_and_its_numbers_are_those_of_a_plain_loop(
    tmp_path,
):
    rows = {}
    for model in SPLITS:
        of_split = judge_rows(model=model)
        rows |= {row["pair_id"]: row for row in of_split}
        name = f"dataset=judgebench,response_model={model}.jsonl"
        write(tmp_path / "data" / name, of_split)
    responses = load("judgebench", path=tmp_path / "data")
    assert len(responses) == 2 * len(rows)
    for answer in responses.itertuples():
        row = rows[answer.id]
        side = row["label"][0 if answer.label == "chosen" else 2]
        assert answer.response == row[f"response_{side}"]
        assert answer.source == row["source"]
        assert answer.response_model == row["response_model"]
    right = defaultdict(list)
    for row in rows.values():
        margin = len(row["response_A"]) - len(row["response_B"])
        is_right = margin > 0 if row["label"] == "A>B" else margin < 0
        right[DOMAIN[row["source"]]].append(is_right)
    scores = rmlab.score(responses, "longest")
    # A question of both splits is one cluster.
    cluster = named("judgebench").items(rmlab.pairs(scores)).cluster
    assert len(np.unique(cluster)) == 20
    summary = rmlab.summary(scores).iloc[0]
    shares = {domain: np.mean(wins) for domain, wins in right.items()}
    assert summary[[*shares]].to_dict() == pytest.approx(shares)
    assert summary["overall"] == pytest.approx(np.concatenate([*right.values()]).mean())
    by_domain = rmlab.summary(scores, average="domains")["overall"].item()
    assert by_domain == pytest.approx(np.mean([*shares.values()]))


JUDGED_FILE = "response_model=gpt-4o,judge_name={},judge_model={}.jsonl"


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
    overall = rmlab.summary(pairs)["overall"].item()
    assert overall == pytest.approx(expected.count("win") / 25)
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


HELP, HARM = "Helpfulness/Chat/Discussion", "Harmlessness/S1"


def answer(name, length):
    return {"llm_name": name, "answer": "x" * length}


def rmb_row(i, **answers):
    prompt = {
        "conversation_input": [
            {"role": "user", "content": f"Prompt {i}", "language": "English"}
        ]
    }
    return prompt | answers


def rmb_pairs(place, n=24):
    """Rows of RMB's set of pairs, three a prompt."""
    sides = [
        {"chosen": answer("a", 5 + i % 7), "reject": answer("b", 3 + i % 11)}
        for i in range(n)
    ]
    path = f"Pairwise_set/{place}"
    return [
        rmb_row(i // 3, pair_uid=f"{place[:4]}{i}", category_path=path, **side)
        for i, side in enumerate(sides)
    ]


def rmb_lists(place, n=8):
    """Rows of RMB's best of n: the same prompts, two to four losers each."""
    losers = [
        [answer("b", 4 + (i * j) % 7) for j in range(1, 3 + i % 3)] for i in range(n)
    ]
    named_alike = {"category_path": f"BoN_set/{place}", "bon_best": answer("a", 9)}
    return [
        rmb_row(i, bon_uid=str(i), loser_list=losers[i], **named_alike)
        for i in range(n)
    ]


def write_rmb(folder):
    for place in (HELP, HARM):
        write(folder / "Pairwise_set" / f"{place}.json", rmb_pairs(place))
        write(folder / "BoN_set" / f"{place}.json", rmb_lists(place))
    return folder


def test_rmb_counts_a_list_only_if_the_best_beats_every_loser(tmp_path, caplog):
    expected = {}
    for goal, place in {"helpfulness": HELP, "harmlessness": HARM}.items():
        pair_wins = [
            len(row["chosen"]["answer"]) > len(row["reject"]["answer"])
            for row in rmb_pairs(place)
        ]
        list_wins = [
            all(len(loser["answer"]) < 9 for loser in row["loser_list"])
            for row in rmb_lists(place)
        ]
        expected |= {
            f"{goal}_pairs": np.mean(pair_wins),
            f"{goal}_best_of_n": np.mean(list_wins),
        }
    assert len(set(expected.values())) > 1
    responses = load("rmb", path=write_rmb(tmp_path))
    assert "one set only" not in caplog.text
    assert set(responses["scenario"]) == {"Chat/Discussion", "S1"}
    scores = rmlab.score(responses, "longest")
    for table in (scores, rmlab.pairs(scores)):
        summary = rmlab.summary(table).iloc[0]
        assert {domain: summary[domain] for domain in expected} == pytest.approx(
            expected
        )
        assert summary["overall"] == pytest.approx(np.mean(list(expected.values())))
    items = named("rmb").items(rmlab.pairs(scores))
    assert len(np.unique(items.cluster)) == 8, (
        "a prompt of both sets and goals is one cluster"
    )
    assert items.credit.shape == (1, 2 * 24 + 2 * 8)
    (tmp_path / "BoN_set" / f"{HARM}.json").unlink()
    summary = rmlab.summary(rmlab.score(load("rmb", path=tmp_path), "longest")).iloc[0]
    assert "harmlessness/S1" in caplog.text
    assert "harmlessness_best_of_n" in caplog.text
    assert np.isnan(summary["overall"])
    assert "harmlessness_best_of_n" in summary["reason"]


def test_rows_of_the_runner_of_rmb(tmp_path, caplog):
    rows = [
        {
            "pair_uid": str(i),
            "category_path": f"Pairwise_set/{HELP}",
            "chosen_reward": 0.1 * i,
        }
        for i in range(12)
    ]
    scores = rmlab.read_scores(
        write(tmp_path / "my-rm.json", [row | {"reject_reward": 0.45} for row in rows])
    )
    assert "my-rm.json" in caplog.text
    assert "'question'" in caplog.text
    assert set(scores["benchmark"]) == {"rmb"}
    assert rmlab.summary(scores)["helpfulness_pairs"].item() == pytest.approx(7 / 12)


def test_evalbiasbench_labels_the_first_or_the_second_answer(tmp_path):
    rows = [BIAS_ROW, BIAS_ROW | {"label": 1, "instruction": "!"}]
    responses = load(
        "evalbiasbench", path=write(tmp_path / "x.json", {"length bias": rows})
    )
    assert responses["response"].tolist() == ["b", "a", "a", "b"]
    assert [set(responses["domain"]), responses["question"].nunique()] == [
        {"length bias"},
        2,
    ]
    summary = rmlab.summary(rmlab.score(load("evalbiasbench"), "longest")).iloc[0]
    assert summary["n_prompts"] == 80
    assert summary["overall"] < 0.5


JUDGE_ROW, RMB_ROW = judge_rows(n=1)[0], rmb_pairs(HELP)[0]
BIAS_ROW = {
    "bias": "length bias",
    "instruction": "?",
    "response1": "a",
    "response2": "b",
    "label": 2,
}
JUDGED, REWARDS = (
    {"judgments": [{"decision": "A>B"}]},
    {"chosen_reward": 1, "reject_reward": 0},
)
STRANGE, LACKS_SCENARIO = (
    ("category_path", "Pairwise_set/Humour/x"),
    ("category_path", "Pairwise_set/Helpfulness"),
)
RMB_CELLS = [
    ("chosen", {"llm_name": "a"}),
    ("reject", None),
    ("conversation_input", []),
]
RM_RESULT = {
    "id": 1,
    "subset": "math",
    "score_chosen": [1, 2, 3],
    "score_rejected": [1, 2, 3],
}
NAMES = [("subset", {"a": 1}), ("subset", ["Math"]), ("subset", 7), ("subset", None)]
CELLS = [
    ("chosen", ["a", 5, "c"]),
    ("rejected", ["a"]),
    ("prompt", None),
    ("id", 1.5),
    ("id", 1),
    ("domain", "chatt"),
]
BAD = {  # a good row, and cells that are refused in place of its own
    "judgebench": (
        JUDGE_ROW,
        [("source", "trivia"), ("label", "A=B"), ("response_A", ""), ("pair_id", None)],
    ),
    "judgebench result": (
        JUDGE_ROW | JUDGED,
        [("source", "trivia"), ("label", "A=B"), ("judgments", [])],
    ),
    "rmb": (RMB_ROW, [STRANGE, LACKS_SCENARIO, *RMB_CELLS]),
    "rmb result": (RMB_ROW | REWARDS, [STRANGE]),
    "rm-bench": (row(domain="chat"), CELLS),
    "rm-bench result": (RM_RESULT, [("score_chosen", [1]), ("score_rejected", [])]),
    "reward-bench": (ONE, [*NAMES, ("chosen", ""), ("rejected", 3)]),
    "reward-bench-2": (FOUR, [*NAMES, ("chosen", []), ("rejected", [1])]),
    "evalbiasbench": (BIAS_ROW, [("bias", "vanity"), ("label", 3), ("label", None)]),
}


@pytest.mark.parametrize(
    ("name", "row", "column", "value"),
    [(name, row, *cell) for name, (row, cells) in BAD.items() for cell in cells],
    ids=lambda part: str(part)[:30],
)
def test_a_bad_row_is_named(tmp_path, name, row, column, value):
    benchmark, _, is_result = name.partition(" ")
    ids = {key: "x" for key in ("id", "pair_id", "pair_uid") if key in row}
    rows = [row, row | ids | {column: value}]
    path = write(
        tmp_path / "math.json",
        {"length bias": rows} if benchmark == "evalbiasbench" else rows,
    )
    with pytest.raises(DataError, match=r"math\.json: row 1") as caught:
        rmlab.read_pairs(path) if is_result else load(benchmark, path=path)
    assert f"'{column}'" in str(caught.value)
    assert repr(value) in str(caught.value)


def test_a_file_that_lists_wordings_of_its_prompts_is_read_one_wording_at_a_time(
    tmp_path,
):
    rows = []
    for number in (3, 1):
        wordings = [f"Why {number}?", f'"Why {number}?"']
        texts = {"chosen": f"a{number}", "rejected": f"b{number}"}
        rows.append({"id": number, "prompt": wordings, "subset": "algebra"} | texts)
    path = write(tmp_path / "math_filtered_prompt_disturbance.json", rows)
    original = load("rm-bench", path=path, variant=0)
    quoted = load("rm-bench", path=path, variant=1)
    assert original["prompt"].unique().tolist() == ["Why 1?", "Why 3?"]
    assert quoted["prompt"].unique().tolist() == ['"Why 1?"', '"Why 3?"']
    pd.testing.assert_frame_equal(
        original.drop(columns="prompt"), quoted.drop(columns="prompt")
    )
    assert quoted["response"].tolist() == ["a1", "b1", "a3", "b3"]
    assert set(quoted["style"]) == {"concise"}
    assert set(quoted["domain"]) == {"math"}
    for variant in (2, -1):
        with pytest.raises(DataError, match=f"variant={variant}"):
            load("rm-bench", path=path, variant=variant)
    with pytest.raises(DataError, match="'prompt'"):
        load("rm-bench", path=path)
    with pytest.raises(TypeError, match="variant=1"):
        load("mini", variant=1)


def test_reward_auditor_s_original_wordings_are_rm_bench_s(shared_data):
    folder = shared_data / "rm-bench"
    path = folder / "math_filtered_prompt_disturbance.rewardauditor.json"
    original = load("rm-bench", path=path, variant=0).set_index(["id", "label"])
    released = json.loads((folder / "math_concise_only.json").read_text())
    for row in released:
        answers = original.loc[str(row["id"])]
        assert answers["prompt"].tolist() == [row["prompt"]] * 2
        assert answers.loc["chosen", "response"] == row["chosen"][0]
        assert answers.loc["rejected", "response"] == row["rejected"][0]
    handle = load("rm-bench", path=path, variant=3)
    assert handle["prompt"].str.contains("@").all()
    assert len(handle) == len(original) == 2 * 529


def test_some_domains_are_a_benchmark_of_their_own():
    """Nothing is missing where a domain was never asked for, in any function."""
    part = load("mini", domains=["chat", "code"])
    scores = rmlab.score(part, ["longest", "shortest"])
    assert set(scores["benchmark"]) == {"mini (chat, code)"}
    summary = rmlab.summary(scores)
    assert list(summary)[1:7] == ["chat", "code", "easy", "normal", "hard", "overall"]
    mean = summary[["chat", "code"]].mean(axis=1)
    np.testing.assert_allclose(summary["overall"], mean)
    whole = rmlab.summary(rmlab.score(load("mini"), ["longest", "shortest"]))
    np.testing.assert_array_equal(summary["chat"], whole["chat"])
    for table in (summary, rmlab.rank(scores), rmlab.style_gap(scores)):
        assert (table["reason"] == "").all()
    assert rmlab.leaderboard(scores)["overall"].notna().all()
    assert rmlab.estimates(scores)["value"].notna().all()
    assert rmlab.compare(scores, "longest", "shortest")["p"].notna().all()
    gone = scores[scores["domain"] != "code"]
    assert rmlab.summary(gone)["reason"].str.contains("code").all()
    with pytest.raises(DataError, match="'maths'"):
        load("mini", domains=["maths"])


def test_the_order_and_repeats_of_domains_do_not_matter():
    part = load("mini", domains=["chat", "code"])
    for domains in (["code", "chat"], ["chat", "code", "chat"]):
        pd.testing.assert_frame_equal(load("mini", domains=domains), part)
    assert set(load("mini", domains="chat")["benchmark"]) == {"mini (chat)"}
    with pytest.raises(DataError, match="domains"):
        load("mini", domains=[])


def test_a_section_keeps_the_subsets_of_its_domains():
    pairs = reward_bench_pairs(models=("a",))
    domains = ["alpacaeval-easy", "donotanswer", "xstest-should-refuse"]
    benchmark = named("reward-bench").only(domains)
    kept = pairs[pairs["domain"].isin(domains)].assign(benchmark=benchmark.name)
    row = rmlab.summary(kept).iloc[0]
    weight = np.array([100 / 358, (136 + 154) / 740])  # those of the whole benchmark
    sections = row[["chat", "safety"]].to_numpy(float)
    assert row["overall"] == pytest.approx(sections @ weight / weight.sum())
    assert "reasoning" not in row
