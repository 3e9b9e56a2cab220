"""A judge behind `transformers serve` on loopback: a real server, a toy model."""

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
from rmlab.store import Store
from rmlab.tables import DataError

ABSENT = [name for name in ("fastapi", "uvicorn", "openai") if find_spec(name) is None]
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(ABSENT), reason=f"transformers serve needs {', '.join(ABSENT)}: pip install them beside"),
]


def _answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


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
        last = time.monotonic() + 180
        while not _answers(port):
            if time.monotonic() > last or server.poll() is not None:
                pytest.skip("transformers serve did not start on this machine")
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1", folder
    finally:
        server.terminate()
        server.wait(30)


def test_the_server_answers_every_question_as_this_process_does(served, tmp_path):
    url, folder = served
    options = {"answer_tokens": 6, "name": "m"}
    local = rmlab.judge(folder, device="cpu", dtype="float32", **options)
    remote = rmlab.judge(str(folder), url, concurrency=2, **options)
    tables = [
        rmlab.prefer(responses(2), judge, store=tmp_path / str(i), allow_missing=True, progress=False)
        for i, judge in enumerate((local, remote))
    ]
    texts = [
        sorted(answer["text"] for answer in Store(tmp_path / str(i)).read(judge.respondent.fingerprint).values())
        for i, judge in enumerate((local, remote))
    ]
    assert texts[0] == texts[1]
    provenance = tables[1].attrs["provenance"]["m"]
    assert (provenance["failed"], provenance["asked"]) == (0, 4)
    with pytest.raises(DataError, match="log-probabilities"):
        rmlab.prefer(responses(1), rmlab.judge(str(folder), url, mode="logprob"), progress=False)
