"""RM-Bench and RewardBench from files, and the registry: tables, refusals, and fields that agree."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import reward_bench_2_scores, reward_bench_pairs

from rmlab import metrics, report
from rmlab.benchmarks import benchmark_of, load, named
from rmlab.benchmarks.registry import benchmarks_by_name
from rmlab.benchmarks.rm_bench import SUBSETS as RM_BENCH
from rmlab.tables import STYLES, DataError

PUBLISHED = Path(__file__).parents[1] / "data" / "published"


def row(number=1, **changes):
    texts = {label: [f"{word} {number}", f"It is {word} {number}.", f"**{word}** {number}"] for label, word in LABELS}
    answers = {"id": number, "subset": "here", "prompt": f"Question {number}?"} | texts | changes
    return {name: value for name, value in answers.items() if value is not ...}


LABELS = (("chosen", "right"), ("rejected", "wrong"))


def put(path, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path):
    """Five per-domain files with two prompts each."""
    for place, subset in enumerate(RM_BENCH):
        put(tmp_path / "five" / f"{subset}_filtered.json", [row(10 * place), row(10 * place + 1)])
    return tmp_path / "five"


def test_per_domain_files(folder):
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
    assert responses.attrs == {"missing_domains": []}


def test_the_total_file_gives_the_same_table(folder, tmp_path):
    rows = [
        {**r, "id": f"{subset}/{r['id']}", "domain": subset}
        for subset in sorted(RM_BENCH)
        for r in json.loads((folder / f"{subset}_filtered.json").read_text())
    ]
    total = put(tmp_path / "one" / "total_dataset.json", rows)
    (tmp_path / "lines.json").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (tmp_path / "marked.json").write_bytes(b"\xef\xbb\xbf" + total.read_bytes())
    for path in (total, str(total.parent), tmp_path / "lines.json", tmp_path / "marked.json"):
        pd.testing.assert_frame_equal(load("rm-bench", path=path), load("rm-bench", path=folder))


def test_missing_domains_are_named_and_not_invented(folder, caplog):
    (folder / "math_filtered.json").unlink()
    (folder / "safety-refuse_filtered.json").unlink()
    responses = load("rm-bench", path=folder)
    assert "math, safety-refuse" in caplog.text
    assert responses.attrs["missing_domains"] == ["math", "safety-refuse"]
    assert set(responses["subset"]) == {"chat", "code", "safety-response"}


def test_the_released_files(shared_data):
    responses = load("rm-bench", path=shared_data / "rm-bench")
    assert responses.attrs == {"missing_domains": ["math"]}
    for subset in ("chat", "code", "safety-refuse", "safety-response"):
        raw = json.loads((shared_data / "rm-bench" / f"{subset}_filtered.json").read_text(encoding="utf-8"))
        read = responses[responses["subset"] == subset]
        assert read["response"].tolist() == [text for r in raw for text in r["chosen"] + r["rejected"]]
        assert read["id"].tolist() == [str(r["id"]) for r in raw for _ in range(6)]
        assert read["source"].tolist() == [r["subset"] for r in raw for _ in range(6)]
    assert (responses["error"].notna() == (responses["domain"] == "chat")).all()


@pytest.mark.parametrize(
    "text", ["\N{GRINNING FACE}\N{ZERO WIDTH JOINER}", " \n\t ", "a\u2028b\x85c\r\nd", "nan", "a\0b"]
)
@pytest.mark.parametrize("lines", [False, True])
def test_odd_but_legal_text_passes_unchanged(tmp_path, text, lines):
    file = tmp_path / "chat_filtered.json"
    rows = [row(i, prompt=text, chosen=[text] * 3, rejected=[text] * 3) for i in range(2)]
    dumped = [json.dumps(r, ensure_ascii=False) for r in rows]
    file.write_text("\n".join(dumped) if lines else f"[{','.join(dumped)}]", encoding="utf-8", newline="")
    responses = load("rm-bench", path=file)
    assert responses["prompt"].tolist() == responses["response"].tolist() == [text] * 12


BAD_ROWS = {
    "no chosen": (row(chosen=...), r"row 1 \(id 1\): 'chosen' .*3 of them"),
    "a number": (row(chosen=["a", 5, "c"]), r"'chosen' .*\['a', 5, 'c'\]"),
    "no prompt": (row(prompt=...), "'prompt'"),
    "fraction as id": (row(id=1.5), r"'id' .* 1.5"),
    "repeated id": (row(0), r"row 1 .*'id' .*'chat'.* 0"),
    "unknown domain": (row(domain="chatt"), r"'domain' .* 'chatt'; .*'chat'"),
    "not an object": ("text", "row 1 is 'text'"),
}
BAD_FILES = {
    "empty": (b"", "empty"),
    "no rows": (b"[]", "no rows"),
    "cut off": (json.dumps([row(1)]).encode()[:-30], r"line 1 column \d+"),
    "cut off lines": (b'{"id": 1}\n{"id": 2}\n{"id', "line 3: "),
    "latin 1": ('[{"id": 1, "prompt": "\xe9"}]'.encode("latin-1"), r"UTF-8 .*byte 22"),
    "half an emoji": (b'[{"id": 1, "prompt": "so \\ud83d"}]', "row 0: .* surrogate"),
} | {name: (json.dumps([row(0), bad]).encode(), message) for name, (bad, message) in BAD_ROWS.items()}


@pytest.mark.parametrize(("content", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_files_are_refused(tmp_path, content, message):
    file = tmp_path / "chat_filtered.json"
    file.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        load("rm-bench", path=file)
    assert str(file) in str(caught.value)


def test_bad_places(tmp_path, folder):
    put(tmp_path / "mine.json", [row(1)])
    (tmp_path / "empty").mkdir()
    for name, path, message in [
        ("rm-bench", folder / "chat_filterd.json", r"chat_filterd.json: no such file.*chat_filtered.json"),
        ("rm-bench", tmp_path / "empty", "chat_filtered.json"),
        ("reward-bench", tmp_path / "empty", "found 0"),
        ("rmb", tmp_path / "empty", "no data file"),
        ("rm-bench", tmp_path / "mine.json", r"mine.json: .*'domain' in row 0"),
        ("rm_bench", None, r"'rm_bench'; .*'rm-bench'"),
    ]:
        with pytest.raises(DataError, match=message):
            load(name, path=path)
    with pytest.raises(TypeError, match=r"rmb.*path="):
        load("rmb")


def test_reward_bench_2(tmp_path):
    focus = {"id": "1", "prompt": "Which?", "chosen": ["a"], "rejected": ["b", "c", "d"], "subset": "Focus"}
    ref = focus | {"id": "ref:1", "subset": "ties", "rejected": ["b"], "total_completions": 2}
    tied = focus | {"id": "tied:1", "subset": "Ties", "chosen": ["a", "A"], "num_correct": 2}
    responses = load("reward-bench-2", path=put(tmp_path / "x.json", [focus, ref, tied]))
    assert responses["subset"].tolist() == responses["domain"].tolist() == ["Focus"] * 4 + ["Ties"] * 7
    assert responses["style"].isna().all()
    tied_rows = responses[responses["id"] == "tied:1"]
    assert tied_rows["label"].tolist() == ["chosen"] * 2 + ["rejected"] * 3
    assert tied_rows["slot"].tolist() == [0, 1, 0, 1, 2]
    assert tied_rows["response"].tolist() == ["a", "A", "b", "c", "d"]


def test_a_table_is_found_by_its_name_first_and_by_what_it_holds_else(make_scores):
    scores = make_scores()
    for table, name in [
        (scores, "rm-bench"),
        (scores.assign(benchmark="mini"), "mini"),
        (scores.assign(benchmark="a copy"), "rm-bench"),
        (scores.assign(benchmark="a copy", style=pd.NA), "own"),
        (scores.assign(benchmark="mine", domain="poems", subset="poems"), "own"),
        (reward_bench_pairs().assign(benchmark="x"), "reward-bench"),
        (reward_bench_2_scores().assign(benchmark="x"), "reward-bench-2"),
    ]:
        assert benchmark_of(table).name == name
    with pytest.raises(DataError, match="2 benchmarks"):
        benchmark_of(pd.concat([scores, scores.assign(benchmark="mini")]))
    with pytest.raises(TypeError, match="dict"):
        benchmark_of({})


def test_every_field_of_a_benchmark_fits_the_others():
    for benchmark in benchmarks_by_name().values():
        names = {*benchmark.subsets.values(), *benchmark.subset_names.values(), *benchmark.sections}
        levels = {"easy", "normal", "hard"} if benchmark.styles else set()
        assert set(benchmark.columns) <= names | levels, benchmark.name
        assert {s for section in benchmark.sections.values() for s in section} <= set(benchmark.subsets)
        for name, value in (option for options in benchmark.variants.values() for option in options.items()):
            allowed = {"ties": benchmark.ties, "average": ("prompts", "domains")}.get(name)
            assert value in (allowed or benchmark.options[name])
        assert all((PUBLISHED / file).is_file() for file, _ in benchmark.published.values())


def test_options_are_the_benchmarks_and_others_are_refused(make_scores):
    scores = make_scores()
    assert metrics.summary(scores, safety="split")["average"].iloc[0] == "benchmark, safety=split"
    with pytest.raises(TypeError, match=r"weights='counts': .*'safety'"):
        metrics.summary(scores, weights="counts")
    with pytest.raises(ValueError, match=r"'splitt'.*'split'"):
        metrics.summary(scores, safety="splitt")
    with pytest.raises(ValueError, match=r"ties: 'half'; .*'share', 'loss', 'win'"):
        metrics.summary(reward_bench_2_scores(), ties="half")


def test_tasks_in_several_subsets_are_one_cluster():
    ids = ["1554", "1718", "0", "195", "900"]
    subsets = ["hep-python", "hep-go", "alpacaeval-easy", "alpacaeval-length", "refusals-dangerous"]
    rows = [("m", "reward-bench", s, i, 0, 0, 1.0) for i, s in zip(ids, subsets, strict=True)]
    columns = ["model", "benchmark", "domain", "id", "chosen_slot", "rejected_slot", "margin"]
    table = pd.DataFrame(rows, columns=columns)
    items = named("reward-bench").items(table)
    cluster = dict(zip(items.frame["id"], items.cluster, strict=True))
    assert cluster["1554"] == cluster["1718"]
    assert len(set(cluster.values())) == len(np.unique(items.cluster))
    assert len(np.unique(named("reward-bench").items(table.assign(id="x" + table["id"])).cluster)) == 5


def test_chance_is_the_benchmarks():
    chance = (
        metrics.estimates(reward_bench_2_scores()).drop_duplicates(["quantity", "name"]).set_index("name")["chance"]
    )
    assert chance["factuality"] == 0.25
    assert chance[["ties", "overall"]].isna().all()
    assert (metrics.estimates(reward_bench_pairs())["chance"].dropna() == 0.5).all()


def test_reward_bench_1(tmp_path):
    subsets = {395: "llmbar-natural", 2538: "math-prm", 7: "shp"}
    rows = [
        {"id": i, "prompt": "Which?", "chosen": "a", "rejected": "b", "subset": name} for i, name in subsets.items()
    ]
    responses = load("reward-bench", path=put(tmp_path / "x.json", rows))
    assert responses["domain"].tolist() == ["llmbar-natural"] * 2 + ["math-prm"] * 2 + ["shp"] * 2
    assert responses["response"].tolist() == ["a", "b"] * 3
    assert responses["id"].tolist() == ["395"] * 2 + ["2538"] * 2 + ["7"] * 2


def test_subsets_that_count_in_no_section_do_no_harm():
    pairs = reward_bench_pairs(seed=2)
    more = pairs.head(6).assign(domain="mtbench_gpt4", subset="mtbench_gpt4", id=[f"x{i}" for i in range(6)])
    whole = pd.concat([pairs, more], ignore_index=True)
    pd.testing.assert_frame_equal(metrics.summary(whole), metrics.summary(pairs))
    assert report.leaderboard(whole)["rank"].notna().sum() == 2
