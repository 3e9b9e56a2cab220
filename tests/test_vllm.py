"""A real vLLM on the CPU: what it answers, and that its scores are the local ones. Run
by `make test-long`.
"""

import os
import socket
import subprocess
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

import rmlab
from rmlab import toy
from rmlab.tables import DataError

VLLM = Path(
    os.environ.get(
        "RMLAB_VLLM", Path(__file__).parents[1] / ".venv" / "vllm" / "bin" / "vllm"
    )
)

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not VLLM.is_file(),
        reason="vLLM is not installed (make test-long, or RMLAB_VLLM=path)",
    ),
]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The folder of a tiny reward model and the address at which vLLM serves it."""
    home = tmp_path_factory.mktemp("vllm")
    # vLLM's kernels for the CPU need heads of 32 numbers.
    folder = toy.save_model(
        home / "tiny",
        head_dim=32,
        hidden_size=64,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.4,
    )
    port = free_port()
    command = [
        VLLM,
        "serve",
        folder,
        "--runner",
        "pooling",
        "--dtype",
        "float32",
        "--enforce-eager",
    ]
    command += [
        "--port",
        str(port),
        "--max-model-len",
        "2048",
        "--served-model-name",
        "tiny",
    ]
    calm = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": "1",
    }
    calm.pop("PYTHONPATH", None)
    with open(home / "log", "wb") as log:
        server = subprocess.Popen(
            list(map(str, command)),
            stdout=log,
            stderr=log,
            env=calm,
            start_new_session=True,
        )
    url, last = f"http://127.0.0.1:{port}", time.monotonic() + 900
    while time.monotonic() < last and server.poll() is None:
        try:
            httpx.get(f"{url}/health", timeout=5).raise_for_status()
            break
        except httpx.HTTPError:
            time.sleep(2)
    else:
        pytest.fail((home / "log").read_text()[-3000:])
    yield folder, url
    os.killpg(server.pid, 15)
    server.wait(60)


def test_the_scores_of_vllm_are_the_local_ones(served):
    folder, url = served
    responses = rmlab.load("mini").head(120)
    local = rmlab.score(responses, rmlab.classifier(folder, device="cpu"))["score"]
    remote = rmlab.remote(url, kind="vllm", tokenizer=folder)
    found = rmlab.score(responses, remote)["score"]
    assert np.abs(found - local).max() <= 2.5e-5 * local.std()
    findings = rmlab.doctor(url, responses, kind="vllm", tokenizer=folder)
    assert set(findings["status"]) == {"pass"}


def test_what_vllm_does_unasked_is_what_was_recorded(served):
    folder, url = served
    words = rmlab.classifier(folder).tokenizer
    ids = words.apply_chat_template(
        [{"role": "user", "content": "Hi"}], return_dict=False
    )
    text = words.decode(ids)

    def scores(**body):
        answer = httpx.post(
            f"{url}/classify", json={"model": "tiny"} | body, timeout=60
        ).json()
        return answer["data"][0]["probs"][0], answer["usage"]["prompt_tokens"]

    raw, n = scores(input=[ids], use_activation=False)
    assert n == len(ids)
    assert scores(input=[ids])[0] == pytest.approx(1 / (1 + np.exp(-raw)), abs=1e-6)
    assert scores(input=[ids], softmax=False)[0] == scores(input=[ids])[0], "ignored"
    assert scores(input=[text], use_activation=False)[1] == n + 1, "a second BOS token"
    assert scores(input=[text], use_activation=False, add_special_tokens=False) == (
        raw,
        n,
    )


def test_texts_that_are_too_long_are_named(served):
    folder, url = served
    responses = rmlab.load("mini").head(6)
    responses["response"] += " more" * 3000
    remote = rmlab.remote(url, kind="vllm", tokenizer=folder)
    with (
        pytest.warns(UserWarning, match="maximum context length"),
        pytest.raises(DataError, match="maximum context length"),
    ):
        rmlab.score(responses, remote)
