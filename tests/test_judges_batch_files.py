"""Batch files: one line a question, results joined by custom_id in any order, and nothing asked afterwards."""

import json
import random

import pytest
from judge_fakes import completion, longer, responses

import rmlab
from rmlab.judges import read_results, write_requests
from rmlab.tables import DataError


def made(**options):
    return rmlab.judge("m", "http://127.0.0.1:9/v1", name="batch", retries=0, **options)


def results(lines, answer):
    """What a batch endpoint writes: another order, and an id of its own."""
    found = []
    for number, line in enumerate(lines):
        text = line["body"]["messages"][-1]["content"]
        sides = [text.split(f"<answer_{side}>\n")[1].split(f"\n</answer_{side}>")[0] for side in "ab"]
        body = {"status_code": 200, "request_id": "r", "body": completion(answer(*sides))}
        found.append({"id": f"b{number}", "custom_id": line["custom_id"], "response": body, "error": None})
    random.Random(0).shuffle(found)
    return found


def write(path, lines):
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    return path


def test_there_and_back(tmp_path):
    table, judge = responses(6), made()
    (file,) = write_requests(judge, table, tmp_path / "requests.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len({line["custom_id"] for line in lines}) == len(lines) == 12
    assert {(line["method"], line["url"]) for line in lines} == {("POST", "/v1/chat/completions")}
    found = results(lines, longer)
    found[0] = found[0] | {"response": None, "error": {"code": "server_error"}}
    strange = found[1] | {"custom_id": "another run"}
    row = read_results(judge, table, write(tmp_path / "out.jsonl", [*found, strange]), store=tmp_path / "store")
    counts = row[["read", "known", "failed", "strange", "absent"]].to_numpy().tolist()
    assert counts == [[11, 0, 1, 1, 1]]
    (rest,) = write_requests(judge, table, tmp_path / "rest.jsonl", store=tmp_path / "store")
    left = [json.loads(line) for line in rest.read_text().splitlines()]
    assert [line["custom_id"] for line in left] == [found[0]["custom_id"]]
    row = read_results(judge, table, write(tmp_path / "out2.jsonl", results(left, longer)), store=tmp_path / "store")
    assert row[["read", "absent"]].to_numpy().tolist() == [[1, 0]]
    pairs = rmlab.prefer(table, judge, store=tmp_path / "store", progress=False)
    assert set(pairs["verdict"]) == {"win"}, "there is no server, so nothing was asked"
    row = read_results(judge, table, tmp_path / "out.jsonl", store=tmp_path / "store")
    assert row[["read", "known"]].to_numpy().tolist() == [[0, 11]]
    with pytest.raises(DataError, match="holds an answer to every question"):
        write_requests(judge, table, tmp_path / "none.jsonl", store=tmp_path / "store")


def test_many_lines_are_several_files(tmp_path):
    paths = write_requests(made(), responses(6), tmp_path / "r.jsonl", most=5)
    assert [path.name for path in paths] == ["r.jsonl", "r-2.jsonl", "r-3.jsonl"]
    assert [len(path.read_text().splitlines()) for path in paths] == [5, 5, 2]


def test_lists_and_ties_go_into_one_file(tmp_path):
    table = responses(2, answers=2).assign(subset="Ties")
    (file,) = write_requests(made(mode="ranking"), table, tmp_path / "r.jsonl")
    assert len(file.read_text().splitlines()) == 8, "Ties are rated, one answer a line"


@pytest.mark.parametrize(
    ("content", "says"),
    [("not json", "line 1 is not a result"), ('{"id": 3}', "line 1 is not a result"), ("[1]", "line 1 is not a result"),
     ('{"custom_id": "x"}', "none of its 1 lines")],
)  # fmt: skip
def test_files_that_are_no_results_of_this_run(tmp_path, content, says):
    (tmp_path / "bad.jsonl").write_text(content)
    with pytest.raises(DataError, match=says):
        read_results(made(), responses(2), tmp_path / "bad.jsonl", store=tmp_path / "store")
    with pytest.raises(DataError, match="cannot be read"):
        read_results(made(), responses(2), tmp_path / "absent.jsonl", store=tmp_path / "store")
