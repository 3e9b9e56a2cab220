"""Files of scores and comparisons: what is written reads back the same, what is broken is refused."""

import json
import math

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings

from rmlab.benchmarks import load
from rmlab.io import export_every_eval_ever, read_pairs, read_scores, write_pairs, write_scores
from rmlab.metrics import pairs
from rmlab.tables import DataError, check_pairs, check_scores

NAMES = ["owner/model", "007", "nan", "a,b", 'quo"ted', "line\nbreak", "\u05e9\u05dc\u05d5\u05dd"]


def sort(scores):
    return scores.sort_values(["model", "subset", "id", "label", "slot"], ignore_index=True)


def reward_bench_scores(kind, seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for subset, n, counts in [("Focus", 3, (1, 3)), ("Math", 2, (1, 3)), ("Ties", 2, (4, 5))]:
        counts = counts if kind == "reward-bench-2" else (1, 1)
        rows += [
            ("m", kind, subset, f"{subset}:{i}" if subset == "Ties" else str(i), label, slot, rng.normal())
            for i in range(n)
            for label, count in zip(("chosen", "rejected"), counts, strict=True)
            for slot in range(count)
        ]
    columns = ["model", "benchmark", "domain", "id", "label", "slot", "score"]
    return check_scores(pd.DataFrame(rows, columns=columns))


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
        {"model": "m", "benchmark": "b", "domain": "d", "id": [str(i) for i in range(len(values))], "label": "chosen",
         "slot": 0, "score": values}
    )  # fmt: skip
    for suffix in ("csv", "jsonl"):
        read = read_scores(write_scores(frame, tmp_path / f"x.{suffix}"))
        assert read["score"].to_numpy().tobytes() == np.array(values, dtype=float).tobytes()


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_missing_scores_stay_missing(tmp_path, make_scores, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    scores = make_scores()
    scores.loc[[2, 5], "score"] = np.nan
    path = write_scores(scores, tmp_path / f"x.{suffix}")
    with pytest.raises(DataError, match=r"2 of .* rows have a score that is not a finite number") as caught:
        read_scores(path)
    assert str(path) in str(caught.value)
    read = read_scores(path, allow_missing=True)
    assert read["score"].isna().to_numpy().nonzero()[0].tolist() == [2, 5]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_pairs_read_back_the_same(tmp_path, make_scores, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    table = pairs(make_scores())
    pd.testing.assert_frame_equal(read_pairs(write_pairs(table, tmp_path / f"x.{suffix}")), table)
    judged = table.drop(columns="margin").assign(outcome=table["outcome"].where(table.index % 3 != 0))
    expected = check_pairs(judged)
    pd.testing.assert_frame_equal(read_pairs(write_pairs(judged, tmp_path / f"y.{suffix}")), expected)


def test_rm_bench_files_read_back_the_same(tmp_path, make_scores):
    scores = check_scores(make_scores(models=["owner/model"]))
    scores["score"] = np.random.default_rng(1).normal(size=len(scores))
    path = write_scores(scores, tmp_path / "x.json", format="rm-bench")
    once = read_scores(path, model="owner/model")
    pd.testing.assert_frame_equal(sort(once), sort(scores))
    again = read_scores(write_scores(once, tmp_path / "y.json", format="rm-bench"), model="owner/model")
    pd.testing.assert_frame_equal(again, once)


def test_rm_bench_files_of_the_runner(tmp_path):
    rows = [{"id": 8, "subset": "alpacaeval", "prompt": "?", "chosen": ["a"] * 3, "rejected": ["b"] * 3,
             "score_chosen": [1.5, [2.5], -3], "score_rejected": [0, 1, None]}]  # fmt: skip
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
    with pytest.raises(DataError, match="a score that is not a finite number"):
        read_scores(folder / "code.json")
    (folder / "code.json").unlink()
    (folder / "safety-response_filtered_my_rm.json").unlink()
    (folder / "chat_filtered.json").unlink()
    (folder / "math_filtered_RM-8B_REWORD_MODEL_20241001_130000.json").write_text(json.dumps(rows))
    both = read_scores(str(tmp_path / "*" / "*.json"), allow_missing=True)
    assert both["subset"].value_counts().to_dict() == {"chat": 6, "math": 6}
    assert set(both["model"]) == {"RM-8B"}


def test_texts_of_written_rm_bench_files_are_the_benchmark_s(tmp_path):
    responses = load("mini")
    scores = responses[["benchmark", "domain", "id", "label", "slot", "subset", "style"]].assign(model="m", score=1.0)
    path = write_scores(scores, tmp_path / "x.json", format="rm-bench", responses=responses)
    (tmp_path / "total_dataset.json").write_bytes(path.read_bytes())
    texts = load("rm-bench", path=tmp_path / "total_dataset.json")
    assert texts["response"].tolist() == responses["response"].tolist()
    assert texts["prompt"].tolist() == responses["prompt"].tolist()
    other = responses.assign(id=responses["id"] + "x")
    with pytest.raises(DataError, match="have no text in responses"):
        write_scores(scores, tmp_path / "y.json", format="rm-bench", responses=other)
    assert not (tmp_path / "y.json").exists()


@pytest.mark.parametrize("kind", ["reward-bench", "reward-bench-2"])
def test_reward_bench_files_read_back_the_same(tmp_path, kind):
    scores = reward_bench_scores(kind)
    path = write_scores(scores, tmp_path / "x.json", format=kind)
    once = read_scores(path)
    pd.testing.assert_frame_equal(sort(once), sort(scores))
    pd.testing.assert_frame_equal(read_scores(write_scores(once, tmp_path / "y.json", format=kind)), once)
    assert (tmp_path / "y.json").read_text() == path.read_text()
    responses = scores.drop(columns=["model", "score"]).assign(
        prompt="?", response=scores["id"] + scores["label"].astype(str)
    )
    with_text = json.loads(write_scores(once, tmp_path / "z.json", format=kind, responses=responses).read_text())
    if kind == "reward-bench":
        assert with_text["text_chosen"][0] == "0chosen"
        assert with_text["results"] == (np.array(with_text["scores_chosen"]) > with_text["scores_rejected"]).tolist()
    else:
        assert with_text["text"][0] == ["0chosen"] + ["0rejected"] * 3
        assert [max(s) == s[0] for s in with_text["scores"]] == [r == 1 for r in with_text["results"]]


def test_reward_bench_files_of_the_runners(tmp_path):
    one = {"id": [395, 396], "subset": ["llmbar-natural"] * 2, "scores_chosen": [1.5, [0.5]], "scores_rejected": [1, 2],
           "results": [1, 0], "text_chosen": ["a", "b"], "text_rejected": ["c", "d"], "model": "owner/m",
           "model_type": "Seq. Classifier", "chat_template": "tokenizer"}  # fmt: skip
    (tmp_path / "one.json").write_text(json.dumps(one))
    read = read_scores(tmp_path / "one.json")
    assert read[["model", "benchmark", "domain", "id", "label", "score"]].values.tolist() == [
        ["owner/m", "reward-bench", "llmbar-natural", "395", "chosen", 1.5],
        ["owner/m", "reward-bench", "llmbar-natural", "395", "rejected", 1.0],
        ["owner/m", "reward-bench", "llmbar-natural", "396", "chosen", 0.5],
        ["owner/m", "reward-bench", "llmbar-natural", "396", "rejected", 2.0],
    ]
    two = {"id": ["1", "ref:1"], "subset": ["Focus", "ties"], "scores": [[3.0, 1, 2, 0], [[1.0], [2.0]]],
           "num_correct": [1, 1], "results": [1, 0], "text": [[], []], "model": "owner/m"}  # fmt: skip
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
        "win", "tie", None, "loss", "win", "win",
    ]  # fmt: skip
    assert table["margin"].isna().all()
    pd.testing.assert_frame_equal(
        read_pairs(write_pairs(table, tmp_path / "again.csv", format="response-matrix")), table
    )
    votes = read_scores(file, allow_missing=True)
    assert votes["score"].fillna(9).tolist() == [1, 0, 0.5, 0.5, 9, 9, 0, 1, 1, 0, 1, 0]
    pd.testing.assert_series_equal(pairs(votes)["outcome"], table["outcome"])
    again = write_scores(votes, tmp_path / "votes.csv", format="response-matrix")
    assert again.read_text() == (tmp_path / "again.csv").read_text()
    other = tmp_path / "other.csv"
    other.write_text("model,x,y\nm,1,0\n")
    mapped = read_pairs(other, benchmark="mine", subsets={"x": "s", "y": "t"})
    assert mapped[["benchmark", "domain"]].values.tolist() == [["mine", "s"], ["mine", "t"]]
    with pytest.raises(DataError, match=r"2 of 2 items have no subset, first 'x'; pass subsets="):
        read_pairs(other)


def test_the_real_response_matrix(shared_data, tmp_path):
    file = shared_data / "rewardbench" / "response_matrix.torch_measure.csv"
    table = read_pairs(file)
    assert table["model"].nunique() == 149
    counts = table["outcome"].value_counts(dropna=False)
    assert (counts["win"], counts["loss"], counts[np.nan]) == (301_943, 135_670, 7_152)
    assert len(table) == 149 * 2985
    written = write_pairs(
        table[table["model"] == "Ahjeong/MMPO_Gemma_7b"], tmp_path / "x.csv", format="response-matrix"
    )
    raw = next(line for line in file.read_text().splitlines() if line.startswith("Ahjeong/MMPO_Gemma_7b,"))
    assert written.read_text().splitlines()[1] == raw


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


def test_a_failed_write_leaves_the_old_file(tmp_path, make_scores):
    scores = make_scores(models=["a"])
    path = write_scores(scores, tmp_path / "x.csv")
    before = path.read_bytes()
    broken = scores.assign(score=np.inf)
    with pytest.raises(DataError, match="not a finite number"):
        write_scores(broken, path)
    with pytest.raises(DataError, match=r"2 models .*a, b.*holds one"):
        write_scores(make_scores(), path, format="rm-bench")
    with pytest.raises(DataError, match=r"cannot tell the file type from '\.xls'"):
        write_scores(scores, tmp_path / "x.xls")
    odd = scores.copy()
    odd.attrs["provenance"] = {"model": object()}
    with pytest.raises(DataError, match=r"attrs\['provenance'\]: .*not JSON serializable; use plain dicts"):
        write_scores(odd, path)
    assert [p.name for p in tmp_path.iterdir()] == ["x.csv"]
    assert path.read_bytes() == before


def bad(tmp_path, content, name="x.json"):
    file = tmp_path / name
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


RM = {"id": 1, "domain": "chat", "score_chosen": [1, 2, 3], "score_rejected": [1, 2, 3]}
RB = {"id": ["1"], "subset": ["Focus"], "scores": [[1, 2]], "num_correct": [1], "model": "m"}
HEADER = "model,benchmark,domain,id,label,slot,score\n"

BAD = {
    "texts": ([{"id": 1, "chosen": ["a"], "rejected": ["b"]}], r"it looks like a benchmark's texts: use load"),
    "averages": ({"chat": 0.7, "math": 0.9, "safety": 0.9, "total_avg_acc": 0.8}, r"averages of a model, without"),
    "anything": ({"a": 1}, r"not a file of scores; known formats: rmlab, rm-bench.*fields found: a"),
    "two scores": ([{**RM, "score_chosen": [1, 2]}], r"row 0 \(id 1\): 'score_chosen' must be a list of three numbers"),
    "no rejected": ([{"id": 1, "domain": "chat", "score_chosen": [1, 2, 3]}], r"'score_rejected' must be .*no such"),
    "text as score": ([{**RM, "score_chosen": [1, "2", 3]}], r"'score_chosen' must be numbers \(one is '2'\)"),
    "huge score": ([{**RM, "score_chosen": [1, 10**400, 3]}], r"'score_chosen' must be finite numbers"),
    "true as score": ([{**RM, "score_chosen": [1, True, 3]}], r"must be numbers \(one is True\)"),
    "unknown domain": ([{**RM, "domain": "chta"}], r"'domain' must be a domain of RM-Bench.*did you mean 'chat'"),
    "no domain": ([{"id": 1, **{k: v for k, v in RM.items() if "score" in k}}], r"start the file name with one of"),
    "repeated": ([RM, RM], r"6 rows repeat a key"),
    "no id": ([{k: v for k, v in RM.items() if k != "id"}], r"'id' must be a whole number or a string"),
    "infinite": ('[{"id": 1, "domain": "chat", "score_chosen": [1, Infinity, 3], "score_rejected": [1, 2, 3]}]',
                 r"1 of 6 rows have a score that is not a finite number.*inf"),
    "nan": ('[{"id": 1, "domain": "chat", "score_chosen": [1, NaN, 3], "score_rejected": [1, 2, 3]}]',
            r"1 of 6 rows have a score that is not a finite number.*allow_missing"),
    "num_correct": ({**RB, "num_correct": [2]}, r"row 0 \(id '1'\): 'num_correct' must be a whole number from 1 to 1"),
    "one score": ({**RB, "scores": [[1]]}, r"'scores' must be a list of at least two numbers"),
    "lengths": ({**RB, "subset": ["Focus", "Math"]}, r"columns differ in length: .*may be cut off"),
    "no subset": ({k: v for k, v in RB.items() if k != "subset"}, r"'subset' must be a list with one entry per prompt"),
    "cut off": ('[{"id": 1, "score_cho', r"the file is cut off"),
    "empty": ("", r"the file is empty"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_bad_json_is_refused(tmp_path, content, message):
    file = bad(tmp_path, content)
    with pytest.raises(DataError, match=message) as caught:
        read_scores(file)
    assert str(file) in str(caught.value)


BAD_CSV = {
    "label": ("m,b,d,1,choosen,0,1\n", r"label that is not one of chosen, rejected; .*'choosen'"),
    "slot": ("m,b,d,1,chosen,first,1\n", r"slot that is not a whole number"),
    "score": ("m,b,d,1,chosen,0,high\n", r"score that is not a number.*'high'"),
    "repeated": ("m,b,d,1,chosen,0,1\nm,b,d,1,chosen,0,2\n", r"1 rows repeat a key"),
    "cells": ("m,b,d,1,chosen,0,1,9,9\nm,b\n", r"x.csv"),
    "nan": ("m,b,d,1,chosen,0,nan\n", r"not a finite number"),
    "infinite": ("m,b,d,1,chosen,0,-inf\n", r"not a finite number.*-inf"),
}


@pytest.mark.parametrize(("content", "message"), BAD_CSV.values(), ids=BAD_CSV)
def test_bad_csv_is_refused(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        read_scores(bad(tmp_path, HEADER + content, "x.csv"))


def test_other_separators_are_understood(tmp_path):
    row = "m,b,d,1,chosen,0,0.25\n"
    expected = read_scores(bad(tmp_path, HEADER + row, "comma.csv"))
    for separator, name in ((";", "x.csv"), ("\t", "x.csv"), ("\t", "x.tsv")):
        found = read_scores(bad(tmp_path, (HEADER + row).replace(",", separator), name))
        pd.testing.assert_frame_equal(found, expected)
    with pytest.raises(DataError, match=r"score that is not a number.*'0,25'"):
        read_scores(bad(tmp_path, (HEADER + row).replace(",", ";").replace("0.25", "0,25"), "x.csv"))


def test_bad_style_and_missing_columns(tmp_path):
    styled = HEADER.replace("slot", "slot,style") + "m,b,d,1,chosen,0,consise,1\n"
    with pytest.raises(DataError, match=r"style that is not one of concise, plain, markdown; .*'consise'"):
        read_scores(bad(tmp_path, styled, "x.csv"))
    with pytest.raises(DataError, match=r"x.csv: scores: missing columns \['benchmark', 'id'\]"):
        read_scores(bad(tmp_path, "model,domain,label,slot,score\nm,d,chosen,0,1\n", "x.csv"))


def test_bad_matrix_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"row 1: '5' must be 1, 0.5, 0 or an empty cell; it has '0.7'"):
        read_pairs(bad(tmp_path, "model,4,5\na,1,1\nb,1,0.7\n", "x.csv"))
    with pytest.raises(DataError, match=r"the first column must be 'model'"):
        read_pairs(bad(tmp_path, "name,4,5\na,1,1\n", "x.csv"))
    with pytest.raises(DataError, match=r"the header names the column '4' twice"):
        read_pairs(bad(tmp_path, "model,4,4\na,1,1\n", "x.csv"))
    with pytest.raises(DataError, match=r"row 0 has 2 cells, the header has 3"):
        read_pairs(bad(tmp_path, "model,4,5\na,1\n", "x.csv"))
    with pytest.raises(DataError, match=r"row 0: 'model' must be a name"):
        read_pairs(bad(tmp_path, "model,4\n,1\n", "x.csv"))
    with pytest.raises(DataError, match="repeat a key"):
        read_pairs(bad(tmp_path, "model,4\na,1\na,0\n", "x.csv"))
    with pytest.raises(DataError, match=r"a file of scores \(rm-bench\), not of comparisons"):
        read_pairs(bad(tmp_path, [RM]))


def test_what_a_file_looks_like_is_said(tmp_path):
    write_scores(reward_bench_scores("reward-bench-2"), tmp_path / "two.json", format="reward-bench-2")
    for other in ("rm-bench", "reward-bench", "rmlab"):
        with pytest.raises(DataError, match=rf"looks like a reward-bench-2 file: leave out format='{other}'"):
            read_scores(tmp_path / "two.json", format=other)
    with pytest.raises(DataError, match=r"looks like a leaderboard of averages.* pass it to reproduce"):
        read_scores(bad(tmp_path, "model,Score,Chat,Safety\na,0.9,0.8,0.7\n", "board.csv"))


def test_bad_arguments(tmp_path, make_scores):
    with pytest.raises(DataError, match=r"no file matches; check the folder and the pattern"):
        read_scores(str(tmp_path / "*.json"))
    with pytest.raises(DataError, match=r"is a folder; name its files"):
        read_scores(tmp_path)
    with pytest.raises(DataError, match=r"an empty list of files"):
        read_scores([])
    with pytest.raises(TypeError, match=r"source: expected a path, a glob or a list of them, got NoneType"):
        read_scores(None)
    bad(tmp_path, [RM])
    assert len(read_scores(tmp_path.glob("*.json"))) == 6
    with pytest.raises(DataError, match=r"no such file; in that folder: .*did you mean 'x.json'"):
        read_scores(tmp_path / "x.jsn")
    with pytest.raises(DataError, match=r"format: 'rmbench' is unknown; .*did you mean 'rm-bench'"):
        read_scores(tmp_path / "x.json", format="rmbench")
    with pytest.raises(DataError, match=r"format: 'csv' is unknown"):
        write_scores(make_scores(), tmp_path / "y.csv", format="csv")
    with pytest.raises(DataError, match=r"holds scores, not comparisons"):
        write_pairs(pairs(make_scores()), tmp_path / "y.json", format="rm-bench")
    with pytest.raises(DataError, match=r"a response matrix holds one\s+comparison per item"):
        write_pairs(pairs(make_scores()), tmp_path / "y.csv", format="response-matrix")
    with pytest.raises(DataError, match=r"one chosen and one rejected answer per prompt"):
        write_scores(make_scores(), tmp_path / "y.csv", format="response-matrix")
    with pytest.raises(DataError, match=r"has 1 chosen answers in the styles .* an RM-Bench file needs"):
        write_scores(reward_bench_scores("reward-bench"), tmp_path / "y.json", format="rm-bench")
    with pytest.raises(DataError, match=r"has 1 chosen and 3 rejected answers; a RewardBench 1 file holds one of each"):
        write_scores(reward_bench_scores("reward-bench-2"), tmp_path / "y.json", format="reward-bench")


# The instance-level schema of github.com/evaleval/every_eval_ever, version 0.2.1: required fields and their types.
REQUIRED = {"schema_version": str, "evaluation_id": str, "model_id": str, "evaluation_name": str, "sample_id": str,
            "interaction_type": str, "input": dict, "answer_attribution": list, "evaluation": dict}  # fmt: skip
ALLOWED = {*REQUIRED, "sample_hash", "output", "messages", "token_usage", "performance", "error", "metadata"}
ATTRIBUTION = {"turn_idx", "source", "extracted_value", "extraction_method", "is_terminal"}


def test_every_eval_ever(tmp_path, make_scores):
    scores = make_scores(models=["owner/model"])
    talk = [{"role": "user", "content": "Hi"}]
    keys = scores[["benchmark", "domain", "id", "label", "slot", "subset", "style"]]
    responses = keys.assign(prompt="Which?", response=keys["id"] + keys["label"].astype(str) + keys["slot"].astype(str))
    responses["prompt"] = [talk if name.startswith("math") else "Which?" for name in responses["id"]]
    table = pairs(scores)
    count = export_every_eval_ever(table, responses, tmp_path / "samples.jsonl", evaluation_id="e/1")
    lines = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text(encoding="utf-8").splitlines()]
    assert count == len(lines) == len(table)
    assert len({line["sample_id"] for line in lines}) == count
    for line, pair in zip(lines, table.to_dict("records"), strict=True):
        assert line.keys() <= ALLOWED
        assert all(isinstance(line[name], kind) for name, kind in REQUIRED.items())
        assert line["interaction_type"] == "single_turn"
        assert line["messages"] is None
        assert (line["evaluation_id"], line["model_id"]) == ("e/1", "owner/model")
        assert line["answer_attribution"][0].keys() == ATTRIBUTION
        chosen, rejected = line["input"]["choices"]
        assert line["input"]["reference"] == [chosen]
        assert chosen == f"{pair['id']}chosen{pair['chosen_slot']}"
        assert rejected == f"{pair['id']}rejected{pair['rejected_slot']}"
        assert line["input"]["raw"] == (json.dumps(talk) if pair["domain"] == "math" else "Which?")
        assert line["evaluation"] == {
            "score": {"win": 1.0, "tie": 0.5, "loss": 0.0}[pair["outcome"]],
            "is_correct": pair["outcome"] == "win",
        }
        assert line["output"]["raw"] == {"win": [chosen], "tie": [], "loss": [rejected]}[pair["outcome"]]
        assert all(isinstance(value, str) for value in line["metadata"].values())
        assert line["metadata"]["level"] == pair["level"]
        assert math.isclose(float(line["metadata"]["margin"]), pair["margin"])


def test_every_eval_ever_leaves_out_what_is_missing(tmp_path, make_scores):
    scores = make_scores(models=["m"])
    responses = scores.drop(columns=["model", "score"]).assign(prompt="?", response="x")
    scores.loc[0, "score"] = np.nan
    table = pairs(scores)
    assert export_every_eval_ever(table, responses, tmp_path / "x.jsonl") == len(table) - 3
    with pytest.raises(DataError, match="no comparison has an outcome"):
        export_every_eval_ever(table[table["outcome"].isna()], responses, tmp_path / "y.jsonl")
    with pytest.raises(DataError, match="have no text in responses"):
        export_every_eval_ever(table, responses[responses["domain"] != "math"], tmp_path / "y.jsonl")
    assert not (tmp_path / "y.jsonl").exists()
