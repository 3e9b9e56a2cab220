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
    counts = row[["read", "known", "failed", "strange", "missing"]].to_numpy().tolist()
    assert counts == [[11, 0, 1, 1, 1]]
    (rest,) = write_requests(judge, table, tmp_path / "rest.jsonl", store=tmp_path / "store")
    left = [json.loads(line) for line in rest.read_text().splitlines()]
    assert [line["custom_id"] for line in left] == [found[0]["custom_id"]]
    row = read_results(judge, table, write(tmp_path / "out2.jsonl", results(left, longer)), store=tmp_path / "store")
    assert row[["read", "missing"]].to_numpy().tolist() == [[1, 0]]
    pairs = rmlab.prefer(table, judge, store=tmp_path / "store", progress=False)
    assert set(pairs["verdict"]) == {"win"}, "there is no server, so nothing was asked"
    row = read_results(judge, table, tmp_path / "out.jsonl", store=tmp_path / "store")
    assert row[["read", "known"]].to_numpy().tolist() == [[0, 11]]
    with pytest.raises(DataError, match="holds an answer to every question"):
        write_requests(judge, table, tmp_path / "none.jsonl", store=tmp_path / "store")


def vllm_line(line, text):
    """A line of `vllm run-batch`: every field of its classes, the empty ones as null, and Unicode as it is."""
    message = dict.fromkeys(["refusal", "annotations", "audio", "function_call", "reasoning"])
    message |= {"role": "assistant", "content": text, "tool_calls": []}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop", "stop_reason": None}
    body = dict.fromkeys(["service_tier", "system_fingerprint", "prompt_logprobs", "prompt_token_ids"])
    body |= {"id": "chatcmpl-1", "object": "chat.completion", "created": 1_790_000_000, "model": "m"}
    body |= {"choices": [choice | {"token_ids": None}], "kv_transfer_params": None}
    body |= {"usage": {"prompt_tokens": 7, "total_tokens": 10, "completion_tokens": 3, "prompt_tokens_details": None}}
    response = {"status_code": 200, "request_id": "vllm-batch-1", "body": body}
    return {"id": "vllm-1", "custom_id": line["custom_id"], "response": response, "error": None}


def openai_failure(line):
    """A request that OpenAI refused: the error is the body, and `error` is null."""
    error = {"message": "max_tokens is too large", "type": "invalid_request_error", "param": "max_tokens", "code": None}
    response = {"status_code": 400, "request_id": "r", "body": {"error": error}}
    return {"id": "batch_req_1", "custom_id": line["custom_id"], "response": response, "error": None}


def openai_expired(line):
    error = {"code": "batch_expired", "message": "This request could not be executed before the window expired."}
    return {"id": "batch_req_2", "custom_id": line["custom_id"], "response": None, "error": error}


def vllm_failure(line):
    """A request that vLLM refused: no body, and the whole error beside it."""
    error = {"error": {"message": "maximum context length is 64 tokens", "type": "BadRequestError", "code": 400}}
    response = {"status_code": 400, "request_id": "vllm-batch-2", "body": None}
    return {"id": "vllm-2", "custom_id": line["custom_id"], "response": response, "error": error}


@pytest.mark.parametrize("failure", [openai_failure, openai_expired, vllm_failure])
def test_lines_that_failed_are_asked_again_and_are_no_verdict(tmp_path, failure):
    table, judge = responses(2), made()
    (file,) = write_requests(judge, table, tmp_path / "requests.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    # A line separator in an answer ends no line of the file.
    found = [vllm_line(lines[0], "Well\u2028\x85\x0c\n[[A>B]]"), *map(failure, lines[1:])]
    out = tmp_path / "out.jsonl"
    out.write_bytes("".join(json.dumps(line, ensure_ascii=False) + "\r\n" for line in found).encode())
    row = read_results(judge, table, out, store=tmp_path / "store").iloc[0]
    assert row[["read", "known", "failed", "strange", "missing"]].tolist() == [1, 0, 3, 0, 3]
    (rest,) = write_requests(judge, table, tmp_path / "rest.jsonl", store=tmp_path / "store")
    left = [json.loads(line)["custom_id"] for line in rest.read_text().splitlines()]
    assert left == [line["custom_id"] for line in lines[1:]]
    out.write_text("".join(json.dumps(vllm_line(line, "[[B>A]]")) + "\n" for line in lines[1:]))
    read_results(judge, table, out, store=tmp_path / "store")
    pairs = rmlab.prefer(table, judge, store=tmp_path / "store", progress=False)
    assert sorted(pairs["verdict"]) == ["flip", "win"]


def test_many_lines_are_several_files(tmp_path):
    paths = write_requests(made(), responses(6), tmp_path / "r.jsonl", most=5)
    assert [path.name for path in paths] == ["r.jsonl", "r-2.jsonl", "r-3.jsonl"]
    assert [len(path.read_text().splitlines()) for path in paths] == [5, 5, 2]


def test_lists_and_ties_go_into_one_file(tmp_path):
    table = responses(2, answers=2).assign(subset="Ties")
    (file,) = write_requests(made(mode="ranking"), table, tmp_path / "r.jsonl")
    assert len(file.read_text().splitlines()) == 8, "Ties are rated, one answer a line"


@pytest.mark.parametrize(
    "line", ["not json", "[" * 9000, '{"custom_id":' * 9000, '{"custom_id": []}', '{"custom_id": {"a": 1}}', "[]", "7"]
)
def test_lines_that_are_no_results_are_named(tmp_path, line):
    path = tmp_path / "out.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(DataError, match="line 1 "):
        read_results(made(), responses(2), path, store=tmp_path / "store")
