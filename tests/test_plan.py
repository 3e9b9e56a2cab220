"""What `rmlab plan` prints before the weights are there, against what a run then forwards."""

import csv
import io

import pytest

import rmlab
from rmlab import toy
from rmlab.inference.passes import packing_support


def planned(main, *words):
    code, out, err = main("plan", *words)
    assert code == 0, err
    (row,) = csv.DictReader(io.StringIO(out))
    return {name: int(value) for name, value in row.items() if name != "model"}


@pytest.mark.parametrize("architecture", ["llama", "modernbert", "qwen3"])
def test_tokens_are_those_forwarded_and_weights_those_loaded(tmp_path, main, architecture):
    implicit = architecture == "qwen3"
    folder = toy.save_model(tmp_path / "m", architecture, task="causal" if implicit else "classifier")
    scorer = (rmlab.implicit_reward if implicit else rmlab.classifier)(folder, device="cpu")
    texts = rmlab.load("mini")
    forwarded = []

    def count(_, args, named):
        forwarded.append(named["input_ids"].numel())

    packing_support(scorer.backbone)  # what is tried before the first pass counts for no run
    hook = scorer.backbone.register_forward_pre_hook(count, with_kwargs=True)
    scorer(texts["prompt"].tolist(), texts["response"].tolist())
    hook.remove()
    n_weights = sum(weight.numel() for weight in scorer.backbone.parameters())
    for path in folder.glob("*.safetensors"):
        path.unlink()
    row = planned(main, folder, "mini", *(["--implicit"] if implicit else []))
    assert row["tokens"] == sum(forwarded)
    assert row["minimum"] <= row["tokens"]
    assert row["bytes_16_bits"] // 2 - n_weights in range(20_000), "the rest is the head"
    assert row["bytes_32_bits"] == 2 * row["bytes_16_bits"]
