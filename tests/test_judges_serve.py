"""A judge behind `transformers serve` on loopback: a real server, a toy model, every mode."""

import os
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from judge_fakes import responses

import rmlab
from rmlab import toy
from rmlab.tables import DataError

ABSENT = [name for name in ("fastapi", "uvicorn", "openai") if find_spec(name) is None]
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(ABSENT), reason=f"transformers serve needs {', '.join(ABSENT)}: pip install them beside"),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Address and folder of a toy model that is served."""
    folder = toy.save_model(tmp_path_factory.mktemp("served"), task="causal", max_position_embeddings=1024)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).parent / "transformers"), "serve", "--port", str(port), "--device", "cpu"]
    calm = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    server = subprocess.Popen(command, env=calm, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(port, server)
        yield f"http://127.0.0.1:{port}/v1", folder
    finally:
        server.terminate()
        server.wait(30)


def _wait(port, server):
    last = time.monotonic() + 180
    while time.monotonic() < last and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.5)
    pytest.skip("transformers serve did not start on this machine")


@pytest.mark.parametrize(("mode", "go"), [("pairwise", "prefer"), ("rating", "score"), ("ranking", "score")])
def test_every_question_is_answered(served, tmp_path, mode, go):
    url, folder = served
    judge = rmlab.judge(str(folder), url, mode=mode, answer_tokens=6, concurrency=2, name="served")
    table = getattr(rmlab, go)(responses(2), judge, store=tmp_path, allow_missing=True, progress=False)
    about = table.attrs["provenance"]["served"]
    assert about["failed"] == 0
    assert about["asked"] == about["questions"] == 4 - 2 * (mode == "ranking")
    assert 0 < about["answer_tokens"] <= 6 * about["asked"]
    again = getattr(rmlab, go)(responses(2), judge, store=tmp_path, allow_missing=True, progress=False)
    assert again.attrs["provenance"]["served"]["asked"] == 0


def test_a_server_that_ignores_what_it_is_asked_is_found_out(served):
    url, folder = served
    with pytest.raises(DataError, match="gives no log-probabilities"):
        rmlab.prefer(responses(1), rmlab.judge(str(folder), url, mode="logprob"), progress=False)


def test_the_server_and_this_process_write_the_same(served):
    url, folder = served
    here = rmlab.judge(folder, answer_tokens=6, device="cpu", dtype="float32").respondent
    there = rmlab.judge(str(folder), url, answer_tokens=6).respondent
    from rmlab.judges.questions import Question, Template
    from rmlab.scorers import Text

    words = Template("plain", "", "{prompt}")
    asked = [Question(i, (0,), 0, words, Text(text, ("",))) for i, text in enumerate(toy.models.TEXTS[:4])]
    texts = [
        {question.item: answer.text for question, answer in respondent.respond(asked)} for respondent in (here, there)
    ]
    assert texts[0] == texts[1]
