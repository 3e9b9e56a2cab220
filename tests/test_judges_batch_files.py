"""Batch files: one line a question, results joined by custom_id in any order, and nothing asked afterwards."""

import json

import pytest
from judge_fakes import completion, longer, responses

import rmlab
from rmlab.judges import read_results, write_requests
from rmlab.tables import DataError

COUNTS = ["read", "known", "failed", "strange", "missing"]


def batch_judge(**options):
    return rmlab.judge("m", "http://127.0.0.1:9/v1", name="batch", retries=0, **options)


def result(line, body, error=None):
    """A line that a batch endpoint writes for a line of requests, with an id of its own."""
    response = body and {"status_code": 400 if error else 200, "request_id": "r", "body": body}
    return {"id": "b", "custom_id": line["custom_id"], "response": response, "error": error}


def results(lines):
    """What a batch endpoint writes where the longer answer is better: another order."""
    texts = [line["body"]["messages"][-1]["content"] for line in lines]
    sides = [[text.split(f"<answer_{s}>\n")[1].split(f"\n</answer_{s}>")[0] for s in "ab"] for text in texts]
    return [result(line, completion(longer(*pair))) for line, pair in zip(lines, sides, strict=True)][::-1]


def write(path, lines):
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    return path


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_there_and_back(tmp_path):
    table, judge, store, out = responses(6), batch_judge(), tmp_path / "store", tmp_path / "out.jsonl"
    files = write_requests(judge, table, tmp_path / "r.jsonl", most=5)
    assert [file.name for file in files] == ["r.jsonl", "r-2.jsonl", "r-3.jsonl"]
    assert [len(read_lines(file)) for file in files] == [5, 5, 2]
    lines = [line for file in files for line in read_lines(file)]
    assert len({line["custom_id"] for line in lines}) == len(lines) == 12
    assert {(line["method"], line["url"]) for line in lines} == {("POST", "/v1/chat/completions")}
    outcomes = results(lines)
    stranger = outcomes[1] | {"custom_id": "another run"}
    counts = read_results(judge, table, write(out, [*outcomes[1:], stranger]), store=store).iloc[0]
    assert counts[COUNTS].tolist() == [11, 0, 0, 1, 1]
    (file,) = write_requests(judge, table, tmp_path / "rest.jsonl", store=store)
    assert [line["custom_id"] for line in read_lines(file)] == [outcomes[0]["custom_id"]]
    assert read_results(judge, table, write(out, outcomes), store=store).iloc[0][COUNTS].tolist() == [1, 11, 0, 0, 0]
    pairs = rmlab.prefer(table, judge, store=store, progress=False)
    assert set(pairs["verdict"]) == {"win"}, "there is no server, so nothing was asked"
    with pytest.raises(DataError, match="every question"):
        write_requests(judge, table, tmp_path / "none.jsonl", store=store)
    ties = responses(2, answers=2).assign(subset="Ties")
    (file,) = write_requests(batch_judge(mode="ranking"), ties, tmp_path / "ties.jsonl")
    assert len(read_lines(file)) == 8, "Ties are rated, one answer a line"


REFUSED = {"message": "max_tokens is too large", "type": "invalid_request_error", "param": "max_tokens", "code": None}


@pytest.mark.parametrize(
    ("body", "error"),
    [
        pytest.param({"error": REFUSED}, None, id="OpenAI refused it"),
        pytest.param(None, {"code": "batch_expired", "message": "not executed in time"}, id="OpenAI's batch expired"),
        pytest.param(None, {"error": {"message": "maximum context length", "code": 400}}, id="vLLM refused it"),
    ],
)
def test_lines_that_failed_are_asked_again_and_are_no_verdict(tmp_path, body, error):
    table, judge, out, store = responses(2), batch_judge(), tmp_path / "out.jsonl", tmp_path / "store"
    lines = read_lines(write_requests(judge, table, tmp_path / "requests.jsonl")[0])
    # A line separator in an answer ends no line of the file. vLLM writes empty fields as null.
    answer = completion("Well\u2028\x85\x0c\n[[A>B]]", reasoning=None, refusal=None) | {"system_fingerprint": None}
    outcomes = [result(lines[0], answer), *(result(line, body, error) for line in lines[1:])]
    out.write_bytes("".join(json.dumps(line, ensure_ascii=False) + "\r\n" for line in outcomes).encode())
    assert read_results(judge, table, out, store=store).iloc[0][COUNTS].tolist() == [1, 0, 3, 0, 3]
    unanswered = read_lines(write_requests(judge, table, tmp_path / "rest.jsonl", store=store)[0])
    assert [line["custom_id"] for line in unanswered] == [line["custom_id"] for line in lines[1:]]
    read_results(judge, table, write(out, [result(line, completion("[[B>A]]")) for line in unanswered]), store=store)
    assert sorted(rmlab.prefer(table, judge, store=store, progress=False)["verdict"]) == ["flip", "win"]


@pytest.mark.parametrize("line", ["not json", "[" * 9000, '{"custom_id": []}', "[]", "7"])
def test_lines_that_are_no_results_are_named(tmp_path, line):
    path = tmp_path / "out.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(DataError, match="line 1 "):
        read_results(batch_judge(), responses(2), path, store=tmp_path / "store")
