"""The lessons' server: right where it should be, wrong where it is told to be."""

import numpy as np
import pytest
from fakes import toy_responses

import rmlab
from rmlab import toy
from rmlab.tables import DataError


def test_a_served_model_has_the_local_scores_unless_told_otherwise(tmp_path, one_thread):
    texts = toy_responses(prompts=4, slots=2)
    folder = toy.save_model(tmp_path / "model", initializer_range=0.5)
    local = rmlab.classifier(folder, device="cpu")
    scores = rmlab.score(texts, local)["score"]
    with toy.serve(folder) as server:
        remote = rmlab.remote(server.url, kind="vllm", weights=folder, send="text", name="served")
        np.testing.assert_allclose(rmlab.score(texts, remote)["score"], scores, atol=1e-5 * scores.std())
    with toy.serve(folder, sigmoid=True) as server, pytest.raises(DataError, match="sigmoid"):
        rmlab.remote(server.url, kind="vllm", tokenizer=folder)
    with toy.serve(folder, double_bos=True) as server:
        remote = rmlab.remote(server.url, kind="vllm", tokenizer=folder, name="served")
        rows = rmlab.parity(local, remote, texts).set_index("check")
    assert rows.loc["cause", "found"].startswith("double bos")
