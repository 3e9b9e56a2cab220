"""Files of scores and comparisons: what is written reads back the same, what is broken is refused."""

import json

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from result_files import write_matrix

from rmlab.io import read_pairs, read_scores, write_pairs, write_scores
from rmlab.metrics import pairs
from rmlab.tables import DataError, check_pairs, check_scores

NAMES = ["owner/model", "007", "nan", "a,b", 'quo"ted', "line\nbreak", "\u05e9\u05dc\u05d5\u05dd"]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_own_files_read_back_the_same(tmp_path, make_scores, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    scores = check_scores(make_scores(models=NAMES).assign(tokens=7))
    scores["score"] = np.random.default_rng(0).normal(size=len(scores)) * 10.0 ** (np.arange(len(scores)) % 600 - 300)
    scores.loc[:3, "id"] = ["NA", "", "1e5", "None"]
    scores.attrs["provenance"] = {"model": "owner/model", "revision": None, "seeds": [1, 2]}
    path = write_scores(scores, tmp_path / "new" / f"scores.{suffix}")
    read = read_scores(path)
    pd.testing.assert_frame_equal(read, scores)
    assert read["score"].tolist() == scores["score"].tolist()
    assert read.attrs == scores.attrs
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name, f"{path.name}.provenance.json"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_every_finite_float_survives(tmp_path, values):
    frame = pd.DataFrame(
        {
            "model": "m",
            "benchmark": "b",
            "domain": "d",
            "id": [str(i) for i in range(len(values))],
            "label": "chosen",
            "slot": 0,
            "score": values,
        }
    )
    for suffix in ("csv", "jsonl"):
        read = read_scores(write_scores(frame, tmp_path / f"x.{suffix}"))
        assert read["score"].to_numpy().tobytes() == np.array(values, dtype=float).tobytes()


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_pairs_read_back_the_same(tmp_path, make_scores, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    table = pairs(make_scores())
    pd.testing.assert_frame_equal(read_pairs(write_pairs(table, tmp_path / f"x.{suffix}")), table)
    judged = table.drop(columns="margin").assign(outcome=table["outcome"].where(table.index % 3 != 0))
    expected = check_pairs(judged)
    pd.testing.assert_frame_equal(read_pairs(write_pairs(judged, tmp_path / f"y.{suffix}")), expected)


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
    "007",
]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_names_and_extra_columns_come_back_exactly(make_scores, tmp_path, suffix):
    scores = make_scores({"chat": 3}, models=HOSTILE)
    names = dict(zip(scores["id"].unique(), HOSTILE[5:], strict=False))
    n = len(scores)
    extra = {
        "code": ["007", "8", "1e5", "", "nan", "True"] * (n // 6),
        "digits": ["7", "8"] * (n // 2),
        "note": ["x", None] * (n // 2),
        "=head\x1b": "-see\u202e",
        "tokens": range(n),
        "share": np.arange(n) / 7,
        "gap": [0.5, np.nan] * (n // 2),
        "right": [True, False] * (n // 2),
    }
    scores = scores.assign(id=scores["id"].replace(names), subset="@sub\tset", benchmark="=bench", domain="+d", **extra)
    scores = check_scores(scores)
    pd.testing.assert_frame_equal(read_scores(write_scores(scores, tmp_path / f"x.{suffix}")), scores, check_exact=True)
    table = check_pairs(pairs(scores).assign(code="007", tokens=7))
    pd.testing.assert_frame_equal(read_pairs(write_pairs(table, tmp_path / f"y.{suffix}")), table, check_exact=True)


def test_rm_bench_files_of_the_runner(tmp_path):
    rows = [
        {
            "id": 8,
            "subset": "alpacaeval",
            "prompt": "?",
            "chosen": ["a"] * 3,
            "rejected": ["b"] * 3,
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
        "code": "Official-Name",
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(rows))
        read = read_scores(folder / f"{name}.json", allow_missing=True)
        assert set(read["model"]) == {model}
        assert set(read["subset"]) == {name.split("_")[0]}
        assert set(read["domain"]) == {name.split("_")[0].split("-")[0]}
        assert read["score"].fillna(99).tolist() == [1.5, 2.5, -3, 0, 1, 99]
        assert read["style"].tolist() == ["concise", "plain", "markdown"] * 2
    with pytest.raises(DataError, match="score is not a finite number"):
        read_scores(folder / "code.json")
    (folder / "code.json").unlink()
    (folder / "safety-response_filtered_my_rm.json").unlink()
    (folder / "chat_filtered.json").unlink()
    (folder / "math_filtered_RM-8B_REWORD_MODEL_20241001_130000.json").write_text(json.dumps(rows))
    both = read_scores(str(tmp_path / "*" / "*.json"), allow_missing=True)
    assert both["subset"].value_counts().to_dict() == {"chat": 6, "math": 6}
    assert set(both["model"]) == {"RM-8B"}


def test_reward_bench_files_of_the_runners(tmp_path):
    one = {
        "id": [395, 396],
        "subset": ["llmbar-natural"] * 2,
        "scores_chosen": [1.5, [0.5]],
        "scores_rejected": [1, 2],
        "results": [1, 0],
        "text_chosen": ["a", "b"],
        "text_rejected": ["c", "d"],
        "model": "owner/m",
        "model_type": "Seq. Classifier",
        "chat_template": "tokenizer",
    }
    (tmp_path / "one.json").write_text(json.dumps(one))
    read = read_scores(tmp_path / "one.json")
    assert read[["model", "benchmark", "domain", "id", "label", "score"]].values.tolist() == [
        ["owner/m", "reward-bench", "llmbar-natural", "395", "chosen", 1.5],
        ["owner/m", "reward-bench", "llmbar-natural", "395", "rejected", 1.0],
        ["owner/m", "reward-bench", "llmbar-natural", "396", "chosen", 0.5],
        ["owner/m", "reward-bench", "llmbar-natural", "396", "rejected", 2.0],
    ]
    two = {
        "id": ["1", "ref:1"],
        "subset": ["Focus", "ties"],
        "scores": [[3.0, 1, 2, 0], [[1.0], [2.0]]],
        "num_correct": [1, 1],
        "results": [1, 0],
        "text": [[], []],
        "model": "owner/m",
    }
    (tmp_path / "two.json").write_text(json.dumps(two))
    read = read_scores(tmp_path / "two.json")
    assert read["score"].tolist() == [3, 1, 2, 0, 1, 2]
    assert read["subset"].tolist() == ["Focus"] * 4 + ["Ties"] * 2
    assert read["slot"].tolist() == [0, 0, 1, 2, 0, 0]
    both = read_scores([tmp_path / "one.json", tmp_path / "two.json"], model="renamed")
    assert set(both["model"]) == {"renamed"}
    assert set(both["benchmark"]) == {"reward-bench", "reward-bench-2"}


def test_the_response_matrix(tmp_path):
    file = tmp_path / "matrix.csv"
    file.write_text("model,395,0,2984\na/b,1,0.5,\nc,0.0,1.0,1\n")
    table = read_pairs(file)
    assert table[["model", "domain", "id"]].values.tolist() == [
        [model, subset, item]
        for model in ("a/b", "c")
        for item, subset in {"395": "llmbar-natural", "0": "alpacaeval-easy", "2984": "math-prm"}.items()
    ]
    assert table["outcome"].astype(object).where(table["outcome"].notna(), None).tolist() == [
        "win",
        "tie",
        None,
        "loss",
        "win",
        "win",
    ]
    assert table["margin"].isna().all()
    pd.testing.assert_frame_equal(read_pairs(write_matrix(table, tmp_path / "again.csv")), table)
    with pytest.raises(DataError, match=r"matrix.csv: .*outcomes and no scores; use read_pairs\('.*matrix.csv'\)"):
        read_scores(file, allow_missing=True)
    other = tmp_path / "other.csv"
    other.write_text("model,x,y\nm,1,0\n")
    mapped = read_pairs(other, benchmark="mine", subsets={"x": "s", "y": "t"})
    assert mapped[["benchmark", "domain"]].values.tolist() == [["mine", "s"], ["mine", "t"]]
    assert set(read_pairs(other)["benchmark"]) == {"other"}  # items of one's own
    other.write_text("model,4,y\nm,1,0\n")
    with pytest.raises(DataError, match="'y'"):
        read_pairs(other)


def test_provenance_belongs_to_the_file_it_was_written_for(tmp_path, make_scores):
    scores = make_scores(models=["a"])
    scores.attrs["provenance"] = {"seed": 1}
    one = write_scores(scores, tmp_path / "one.csv")
    two = write_scores(scores.assign(model="b"), tmp_path / "two.csv")
    both = read_scores(str(tmp_path / "*"))
    assert both["model"].unique().tolist() == ["a", "b"]
    assert both.attrs == {"provenance": {"files": {str(one): {"seed": 1}, str(two): {"seed": 1}}}}
    two.write_text(two.read_text().replace("\nb,", "\nc,"))
    with pytest.warns(UserWarning, match=r"two.csv: changed since two.csv.provenance.json was written") as caught:
        assert read_scores(two).attrs == {}
    assert caught[0].filename == __file__
    scores.attrs = {}
    write_scores(scores, one)
    assert read_scores(one).attrs == {}


def bad(tmp_path, content, name="x.json"):
    file = tmp_path / name
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


RM = {"id": 1, "domain": "chat", "score_chosen": [1, 2, 3], "score_rejected": [1, 2, 3]}
RB = {"id": ["1"], "subset": ["Focus"], "scores": [[1, 2]], "num_correct": [1], "model": "m"}
HEADER = "model,benchmark,domain,id,label,slot,score\n"

BAD = {
    "texts": ([{"id": 1, "chosen": ["a"], "rejected": ["b"]}], r"rmlab score"),
    "anything": ({"a": 1}, "chosen_score"),
    "two scores": ([{**RM, "score_chosen": [1, 2]}], r"row 0: 'score_chosen' must be a list of three"),
    "text as score": ([{**RM, "score_chosen": [1, "two", 3]}], r"score is not a number.*'two'"),
    "no domain": ([{"id": 1, **{k: v for k, v in RM.items() if "score" in k}}], r"'domain' must be one of"),
    "infinite": (
        '[{"id": 1, "domain": "chat", "score_chosen": [1, Infinity, 3], "score_rejected": [1, 2, 3]}]',
        r"score is not a finite number in 1 of 6 rows.*inf",
    ),
    "num_correct": ({**RB, "num_correct": [2]}, r"row 0: 'num_correct' must be .*it has 2"),
    "lengths": ({**RB, "subset": ["Focus", "Math"]}, r"differ in length.*may be cut off"),
    "list as subset": ({**RB, "subset": [["Focus"]]}, r"row 0 .*\['Focus'\]"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_bad_json_is_refused(tmp_path, content, message):
    file = bad(tmp_path, content)
    with pytest.raises(DataError, match=message) as caught:
        read_scores(file)
    assert str(file) in str(caught.value)


def test_other_separators_are_understood(tmp_path):
    row = "m,b,d,1,chosen,0,0.25\n"
    expected = read_scores(bad(tmp_path, HEADER + row, "comma.csv"))
    for separator, name in ((";", "x.csv"), ("\t", "x.csv"), ("\t", "x.tsv")):
        found = read_scores(bad(tmp_path, (HEADER + row).replace(",", separator), name))
        pd.testing.assert_frame_equal(found, expected)
    with pytest.raises(DataError, match=r"score is not a number.*'0,25'"):
        read_scores(bad(tmp_path, (HEADER + row).replace(",", ";").replace("0.25", "0,25"), "x.csv"))


def test_bad_matrix_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"row 1: '5' must be 1, 0.5, 0 or an empty cell; it has '0.7'"):
        read_pairs(bad(tmp_path, "model,4,5\na,1,1\nb,1,0.7\n", "x.csv"))
    with pytest.raises(DataError, match=r"x\.csv"):
        read_pairs(bad(tmp_path, "name,4,5\na,1,1\n", "x.csv"))
    with pytest.raises(DataError, match=r"the header names the column '4' twice"):
        read_pairs(bad(tmp_path, "model,4,4\na,1,1\n", "x.csv"))
    with pytest.raises(DataError, match=r"row 0 has 2 cells, the header has 3"):
        read_pairs(bad(tmp_path, "model,4,5\na,1\n", "x.csv"))
    with pytest.raises(DataError, match="model"):
        read_pairs(bad(tmp_path, "model,4\n,1\n", "x.csv"))
    with pytest.raises(DataError, match="repeat a key"):
        read_pairs(bad(tmp_path, "model,4\na,1\na,0\n", "x.csv"))
    with pytest.raises(DataError, match="use pairs"):
        read_pairs(bad(tmp_path, [RM]))


@pytest.mark.parametrize("name", ["id", "subset", "label", "model"])
def test_a_list_in_place_of_a_name_is_refused(tmp_path, name):
    row = {"model": "m", "benchmark": "b", "domain": "d", "id": "1", "label": "chosen", "slot": 0, "score": 1}
    path = bad(
        tmp_path,
        json.dumps(row | {"subset": "s"}) + "\n" + json.dumps(row | {"subset": "s", "slot": 1, name: ["x"]}),
        "x.jsonl",
    )
    with pytest.raises(DataError, match=rf"x.jsonl: scores: {name} .* row 1 .*\['x'\]"):
        read_scores(path)


def test_bad_arguments(tmp_path, make_scores):
    with pytest.raises(DataError, match=r"source: .*json"):
        read_scores(str(tmp_path / "*.json"))
    with pytest.raises(DataError, match=r"source: "):
        read_scores(tmp_path)
    with pytest.raises(DataError, match=r"source: .*\[\]"):
        read_scores([])
    with pytest.raises(TypeError, match="NoneType"):
        read_scores(None)
    bad(tmp_path, [RM])
    assert len(read_scores(tmp_path.glob("*.json"))) == 6
    with pytest.raises(DataError, match=r"no such file.*x\.json"):
        read_scores(tmp_path / "x.jsn")
    with pytest.raises(ValueError, match=r"format: 'rmbench'; .*did you mean 'rm-bench'"):
        read_scores(tmp_path / "x.json", format="rmbench")
