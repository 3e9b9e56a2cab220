"""A real Triton server with NeMo's tensors: every attribute as it was sent. Run by `make test-long`."""

import os
import socket
import subprocess
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
from faulty_server import FaultyServer
from nemo_server import ratings
from served_models import Triton

import rmlab
from rmlab.servers import steerlm

HERE = Path(__file__).parent
PYTHON = Path(os.environ.get("RMLAB_PYTRITON", HERE.parent / ".venv" / "pytriton" / "bin" / "python"))

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not PYTHON.is_file(), reason="no pytriton here (make test-long, or RMLAB_PYTRITON=path)"),
]


@pytest.fixture(scope="module", params=[5, 9])
def served(request, tmp_path_factory):
    """The number of attributes and the address at which Triton serves them."""
    home = tmp_path_factory.mktemp("triton")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    calm = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(PYTHON), str(HERE / "nemo_server.py"), str(port), str(request.param)]
    with open(home / "log", "wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=calm, start_new_session=True)
    url, last = f"http://127.0.0.1:{port}", time.monotonic() + 180
    while time.monotonic() < last and server.poll() is None:
        try:
            httpx.get(f"{url}/v2/models/reward_model/ready", timeout=5).raise_for_status()
            break
        except httpx.HTTPError:
            time.sleep(0.5)
    else:
        pytest.fail((home / "log").read_text()[-3000:])
    yield request.param, url
    os.killpg(server.pid, 15)
    server.wait(60)


def test_every_attribute_is_what_the_server_rated(served):
    n, url = served
    responses = rmlab.load("mini")
    table = rmlab.score(responses, rmlab.remote(url, kind="triton", label_weights="Nemotron-4-340B-Reward"))
    sent = [steerlm.conversation(*row) for row in zip(responses["prompt"], responses["response"], strict=True)]
    rated = np.array([ratings(text, False, n) for text in sent], np.float32)
    names = [*(steerlm.FIRST_FOUR if n == 9 else ()), *steerlm.ATTRIBUTES]
    np.testing.assert_array_equal(table[names], rated)
    np.testing.assert_allclose(table["score"], rated[:, -5:] @ np.array(steerlm.WEIGHTS["Nemotron-4-340B-Reward"]))
    ended = rmlab.remote(url, kind="triton", label_weights="Nemotron-4-340B-Reward", add_eos=True)
    assert ended(["Hi"], ["Hello"]) == pytest.approx(
        np.float32(ratings(steerlm.conversation("Hi", "Hello"), True, n))[-5:] @ ended.mix[-5:]
    )


def test_the_server_of_the_other_tests_answers_as_this_one(served):
    n, url = served
    responses = rmlab.load("mini").head(24)
    responses.loc[1, "response"] = "x" * 6000
    tables = []
    with FaultyServer(Triton(lambda text, eos: ratings(text, eos, n), longest=5000)) as server:
        for address in (server.url, url):
            remote = rmlab.remote(address, kind="triton", label_weights=[1] * 5, retries=0)
            with pytest.warns(UserWarning, match="exceeded"):
                tables.append(rmlab.score(responses, remote, allow_missing=True))
    assert tables[0].equals(tables[1])
    assert tables[0]["score"].isna().tolist() == [i == 1 for i in range(24)]
