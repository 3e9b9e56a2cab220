"""Files of scores and comparisons: what is written reads back the same, what is broken
is refused.
"""

import csv
import json
import re
import unicodedata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fakes import Streaming
from hypothesis import example, given
from hypothesis import strategies as st

import rmlab
from rmlab.io import read_pairs, read_scores, write_pairs, write_scores
from rmlab.io.native import holds_pairs
from rmlab.metrics import pairs
from rmlab.scoring.stores import file_name
from rmlab.tables import DataError, check_pairs, check_scores

HOSTILE = [
    "=1+1",
    "'=1",
    "-x",
    "\x1b[31m",
    "\\u001b",
    "a\r\nb",
    "x;=1",
    "\ufeffm",
    "1",
    "-2",
    "nan",
    "",
    " ",
    "a,b",
]
HOSTILE += ["007", "owner/model", 'quo"ted', "\u05e9\u05dc\u05d5\u05dd"]


def write(path, content):
    path.write_text(
        content if isinstance(content, str) else json.dumps(content), encoding="utf-8"
    )
    return path


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_own_files_read_back_the_same(make_scores, tmp_path, suffix):
    """Hostile names, extra columns of every type, floats of every size, and
    provenance.
    """
    scores = make_scores({"chat": 4}, models=HOSTILE)
    names = dict(zip(scores["id"].unique(), ["", "1e5", "NA", "None"], strict=True))
    n = len(scores)
    floats = np.random.default_rng(0).normal(size=n) * 10.0 ** (
        np.arange(n) % 600 - 300
    )
    scores = scores.assign(
        id=scores["id"].replace(names),
        subset="@sub\tset",
        benchmark="=bench",
        digits=["7", "8"] * (n // 2),
        note=["x", None] * (n // 2),
        gap=[0.5, np.nan] * (n // 2),
        right=[True, False] * (n // 2),
        code=["007", "8", "1e5", "", "nan", "True"] * (n // 6),
        tokens=range(n),
        score=floats,
        **{"=head\x1b": "-see\u202e"},
    )
    scores = check_scores(scores)
    scores.attrs["provenance"] = {"model": "owner/model", "seeds": [1, None]}
    path = write_scores(scores, tmp_path / "new" / f"x.{suffix}")
    read = read_scores(path)
    pd.testing.assert_frame_equal(read, scores, check_exact=True)
    assert read["score"].to_numpy().tobytes() == floats.tobytes()
    assert read.attrs == scores.attrs
    files = {path.name, f"{path.name}.provenance.json"}
    assert {file.name for file in path.parent.iterdir()} == files
    table = pairs(scores).assign(code="007", tokens=7)
    judged = table.drop(columns="margin")
    judged["outcome"] = table["outcome"].where(table.index % 3 != 0)
    for comparisons in (table, judged):
        read = read_pairs(write_pairs(comparisons, tmp_path / f"y.{suffix}"))
        pd.testing.assert_frame_equal(read, check_pairs(comparisons), check_exact=True)


def test_a_spreadsheet_runs_no_name_of_a_file_of_scores_or_pairs(make_scores, tmp_path):
    names = ["=1+1", "'=1", "''=1", "-x", "-2", " @a", "a"]
    scores = make_scores({"chat": 4}, models=names).assign(**{"=head": "=note"})
    for write, read, table in (
        (write_scores, read_scores, scores),
        (write_pairs, read_pairs, pairs(scores)),
    ):
        file = write(table, tmp_path / "x.csv")
        lines = csv.reader(file.read_text("utf-8").splitlines())
        cells = [cell.strip() for row in lines for cell in row]
        assert "-x" not in cells
        assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]
        assert read(file)["model"].unique().tolist() == names


def test_provenance_belongs_to_the_file_it_was_written_for(tmp_path, make_scores):
    scores = make_scores(models=["a"])
    scores.attrs["provenance"] = {"seed": 1}
    first, second = (
        write_scores(scores.assign(model=name), tmp_path / f"{name}.csv")
        for name in "ab"
    )
    both = read_scores(str(tmp_path / "*"))
    assert both["model"].unique().tolist() == ["a", "b"]
    assert both.attrs == {
        "provenance": {"files": {str(first): {"seed": 1}, str(second): {"seed": 1}}}
    }
    second.write_text(second.read_text("utf-8").replace("\nb,", "\nc,"), "utf-8")
    with pytest.warns(UserWarning, match=r"b.csv: changed since") as caught:
        assert read_scores(second).attrs == {}
    assert caught[0].filename == __file__
    scores.attrs = {}
    assert read_scores(write_scores(scores, first)).attrs == {}


def test_rm_bench_files_of_the_runner(tmp_path):
    rows = [
        {
            "id": 8,
            "subset": "alpacaeval",
            "score_chosen": [1.5, [2.5], -3],
            "score_rejected": [0, 1, None],
        }
    ]
    folder = tmp_path / "Official-Name"
    folder.mkdir()
    for name, model in {
        "chat_filtered_RM-8B_REWORD_MODEL_20241001_120000": "RM-8B",
        "chat_filtered": "Official-Name",
        "safety-response_filtered_my_rm": "my_rm",
    }.items():
        read = read_scores(write(folder / f"{name}.json", rows), allow_missing=True)
        subset = name.split("_")[0]
        names = read[["model", "subset", "domain"]].drop_duplicates()
        assert names.values.tolist() == [[model, subset, subset.split("-")[0]]]
        assert read["score"].fillna(99).tolist() == [1.5, 2.5, -3, 0, 1, 99]
        assert read["style"].tolist() == ["concise", "plain", "markdown"] * 2
    with pytest.raises(DataError, match="score is not a finite number"):
        read_scores(folder / "chat_filtered.json")


@pytest.mark.parametrize("content", [{}, [{}]])
def test_objects_without_fields_are_refused(tmp_path, content):
    """They were an IndexError."""
    for read in (read_scores, read_pairs):
        with pytest.raises(DataError, match=r"x\.json"):
            read(write(tmp_path / "x.json", content))


def test_scores_of_judges_must_be_numbers(tmp_path):
    judged = {"pair_id": 1, "source": "livebench-math", "question": "q", "label": "A>B"}
    for score in ("many", {}, None, [1]):
        judgment = {"decision": "A>B", "judgment": {"scores": [1, score]}}
        with pytest.raises(DataError, match="JudgeBench"):
            read_pairs(
                write(tmp_path / "judged.json", [judged | {"judgments": [judgment]}])
            )


def test_reward_bench_files_of_the_runners(tmp_path):
    first = {
        "id": [395, 396],
        "subset": ["llmbar-natural"] * 2,
        "model": "owner/m",
        "scores_chosen": [1.5, [0.5]],
        "scores_rejected": [1, 2],
        "results": [1, 0],
    }
    one = write(tmp_path / "one.json", first)
    read = read_scores(one)
    assert read["id"].tolist() == ["395", "395", "396", "396"]
    assert read["score"].tolist() == [1.5, 1.0, 0.5, 2.0]
    names = read[["model", "benchmark", "domain"]].drop_duplicates()
    assert [*names.iloc[0]] == ["owner/m", "reward-bench", "llmbar-natural"]
    second = {
        "id": ["1", "ref:1", "1"],
        "subset": ["Focus", "ties", "Focus"],
        "num_correct": [1, 1, 1],
        "scores": [[3.0, 1, 2, 0], [[1.0], [2.0]], [1, 2]],
        "model": "owner/m",
    }
    two = write(tmp_path / "two.json", second)
    read = read_scores(two)
    assert read["score"].tolist() == [3, 1, 2, 0, 1, 2, 1, 2]
    assert read["subset"].tolist() == ["Focus"] * 4 + ["Ties"] * 2 + ["Focus"] * 2
    assert read["slot"].tolist() == [0, 0, 1, 2, 0, 0, 0, 0]
    # Another prompt of the same id.
    assert read["id"].tolist() == ["1"] * 4 + ["ref:1"] * 2 + ["1#2"] * 2
    both = read_scores([one, two], model="renamed")
    assert set(both["model"]) == {"renamed"}


def test_the_response_matrix(tmp_path):
    file = write(tmp_path / "matrix.csv", "model,395,0,2984\na/b,1,0.5,\nc,0.0,1.0,1\n")
    table = read_pairs(file)
    subsets = {"395": "llmbar-natural", "0": "alpacaeval-easy", "2984": "math-prm"}
    expected = [
        [model, subset, item]
        for model in ("a/b", "c")
        for item, subset in subsets.items()
    ]
    assert table[["model", "domain", "id"]].values.tolist() == expected
    outcome = table["outcome"].astype(object).where(table["outcome"].notna(), None)
    assert outcome.tolist() == ["win", "tie", None, "loss", "win", "win"]
    assert table["margin"].isna().all()
    items = write(tmp_path / "other.csv", "model,x,y\nm,1,0\n")
    assert set(read_pairs(items)["benchmark"]) == {"other"}  # items of one's own
    table = read_pairs(
        write(tmp_path / "mine.csv", "item,first,second\np,1,0\nq,0,0.5\nr,1,1\n")
    )
    outcomes = table.set_index(["model", "id"])["outcome"]
    assert outcomes.loc["first"].tolist() == ["win", "loss", "win"]
    assert outcomes.loc["second"].tolist() == ["loss", "tie", "win"]


RM = {"id": 1, "domain": "chat", "score_chosen": [1, 2, 3], "score_rejected": [1, 2, 3]}
RB = {
    "id": ["1"],
    "subset": ["Focus"],
    "scores": [[1, 2]],
    "num_correct": [1],
    "model": "m",
}
LINE = {
    "model": "m",
    "benchmark": "b",
    "domain": "d",
    "id": "1",
    "label": "chosen",
    "slot": 0,
    "subset": "s",
}
LINE |= {"score": 1}
DEEP = "[" * 100_000 + "]" * 100_000


def lines(**second):
    return f"{json.dumps(LINE)}\n{json.dumps(LINE | {'slot': 1} | second)}"


BAD = [  # reader, file, content, what the message names
    (read_scores, "x.json", [RM | {"score_chosen": [1, "two", 3]}], "score.*'two'"),
    (
        read_scores,
        "x.json",
        json.dumps([RM]).replace("[1, 2", "[1, Infinity", 1),
        "score .* 1 of 6 rows.*inf",
    ),
    (read_scores, "x.json", RB | {"num_correct": [2]}, "row 0.*'num_correct' .* 2"),
    (read_scores, "x.json", RB | {"subset": ["Focus", "Math"]}, "length"),
    (read_scores, "x.json", RB | {"subset": [["Focus"]]}, r"row 0 .*\['Focus'\]"),
    (read_scores, "x.jsonl", lines(id=["x"]), r"id .* row 1 .*\['x'\]"),
    (read_scores, "x.jsonl", lines(label=["x"]), r"label .* row 1 .*\['x'\]"),
    (
        read_scores,
        "x.jsonl",
        json.dumps(LINE) + '\n{"prompt": ' + DEEP + "}\n",
        "line 2",
    ),
    (
        read_scores,
        "x.csv",
        ",".join(LINE) + '\nm,b,d,1,chosen,0,s,"0,25"\n',
        "score .*'0,25'",
    ),
    (read_scores, "x.csv", "model,benchmark,label\nm,b\n", "row 0 has 2 cells"),
    (read_pairs, "x.csv", "model,4,5\na,1,1\nb,1,0.7\n", "row 1: '5' .*'0.7'"),
    (read_pairs, "x.csv", "name,4,5\na,1,1\n", r"x\.csv"),
    (read_pairs, "x.csv", "model,4,4\na,1,1\n", "called '4'"),
    (read_pairs, "x.csv", "model,4\na,1\na,0\n", "repeat a key"),
    (
        read_pairs,
        "x.csv",
        "\t".join(LINE) + "\nm\tb\td\t1\tchosen\t0\ts\t1\n",
        "scores",
    ),
    (read_pairs, "x.json", [RM], r"x.json: .*score"),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_files_are_refused(tmp_path, number):
    read, name, content, message = BAD[number]
    with pytest.raises(DataError, match=message):
        read(write(tmp_path / name, content))


def test_a_flipped_bit_in_a_page_of_our_parquet_is_found(tmp_path, make_scores):
    path = write_scores(make_scores(), tmp_path / "x.parquet")
    content = path.read_bytes()
    path.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
    with pytest.raises(DataError, match="Parquet"):
        read_scores(path)


def test_bad_arguments(tmp_path):
    write(tmp_path / "x.json", [RM])
    assert len(read_scores(tmp_path.glob("*.json"))) == 6
    for source, options, error, named in [
        (str(tmp_path / "*.csv"), {}, DataError, "source: "),
        (tmp_path / "..", {}, DataError, "source: "),
        ([], {}, DataError, "source: "),
        (None, {}, TypeError, "NoneType"),
        (tmp_path / "x.jsn", {}, DataError, r"x\.json"),
    ]:
        with pytest.raises(error, match=named):
            read_scores(source, **options)


# Names of finished tables: no two names share a file, on any file system, and every
# name comes back.

CONFUSABLE = [
    "org/model",
    "org--model",
    "Org/Model",
    "gpt:4",
    "gpt_4",
    "caf\u00e9",
    "cafe\u0301",
]
ALPHABET = "aAbB0/-_.%~: +é\u0301K\u212a\ud83d\0\n'\"<>|?*\\ßſ"
NAMES = st.text(st.sampled_from(ALPHABET), max_size=8) | st.text(max_size=8)


def seen_by_any_system(file):
    """What the least careful file system keeps of a name."""
    return unicodedata.normalize(
        "NFKC", unicodedata.normalize("NFKD", file.casefold()).casefold()
    ).rstrip(". ")


@given(st.tuples(NAMES, NAMES), st.tuples(NAMES, NAMES))
@example(("a-/b", "a--b"), ("a/-b", "a/b"))
@example(("/a", "b"), ("--a", "b"))
@example(("a.b", "c"), ("a", "b.c"))
@example(("a", "b.pairs"), ("a", "b"))
@example(("a", "pairs"), ("a.pairs", ""))
def test_different_names_have_different_files_and_the_model_s_end_is_never_in_doubt(
    first, second
):
    (model, benchmark), (other_model, other_benchmark) = first, second
    names = {
        first,
        second,
        (other_model, benchmark),
        (model, other_benchmark),
        (benchmark, model),
    }
    files = {
        seen_by_any_system(file_name(*name, pairs=pairs))
        for name in names
        for pairs in (False, True)
    }
    assert len(files) == 2 * len(names)


@given(NAMES, NAMES)
@example("-rf", "a.b")
@example("x" * 300, "pairs")
@example("Skywork/Skywork-Reward-V2-Qwen3-0.6B", "rm-bench")
def test_a_file_is_allowed_everywhere_and_says_what_it_holds(model, benchmark):
    for of_pairs in (False, True):
        file = file_name(model, benchmark, pairs=of_pairs)
        assert re.fullmatch(r"[A-Za-z0-9_~][A-Za-z0-9_.~-]*\.csv", file)
        assert len(file) < 200
        assert holds_pairs(Path(file)) == of_pairs


def test_confusable_names_and_benchmarks_are_read_back(tmp_path):
    responses = rmlab.load("mini").head(12)
    tables = []
    for number, name in enumerate([*CONFUSABLE, "other"]):
        scorer = Streaming(name)
        scorer.fingerprint = f"f{number}"
        benchmark = "mine.pairs" if name == "other" else "mini"
        frame = responses.assign(benchmark=benchmark)
        tables.append(rmlab.score(frame, scorer, store=tmp_path))
    order = ["model", *rmlab.tables.KEY]
    scores = pd.concat(tables, ignore_index=True).sort_values(order, ignore_index=True)
    for source in (tmp_path, str(tmp_path / "*.csv"), sorted(tmp_path.glob("*.csv"))):
        pd.testing.assert_frame_equal(
            rmlab.read_scores(source).sort_values(order, ignore_index=True), scores
        )
