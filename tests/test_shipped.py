"""What ships: mini's code, and the scorers that do not read the answer."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest, kstest

from rmlab import baselines, toy

MINI = Path(__file__).resolve().parents[1] / "data" / "mini"
RUN = (
    "import json, sys\nsource, tests = json.load(sys.stdin)\nnames = {}\nexec(source, "
    "names)\nexec(tests, names)"
)


def test_chosen_code_of_mini_passes_its_tests_and_rejected_code_fails_them():
    for row in json.loads((MINI / "code_filtered.json").read_text(encoding="utf-8")):
        for label, error in (("chosen", ""), ("rejected", "AssertionError")):
            done = subprocess.run(
                [sys.executable, "-I", "-c", RUN],
                input=json.dumps([row[label][0], row["tests"]]),
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
            )
            assert (done.returncode == 0) == (label == "chosen"), row["id"]
            assert error in done.stderr, row["id"]


TEXTS = [
    "short",
    "a longer answer",
    "**bold** and `code`\n- item",
    "- x\n- y",
    " ",
    "😀 שלום $x$ <b>",
]
PROMPTS = ["p", "q", [{"role": "user", "content": "hi"}], "p", "p", "\ud800"]
SCORES = {
    "longest": [*map(len, TEXTS)],
    "shortest": [-len(text) for text in TEXTS],
    "constant": [0.0] * 6,
}
SCORES |= {"most_markdown": [0, 0, 3, 2, 0, 0]}


@pytest.mark.parametrize("name", baselines.NAMES)
def test_one_float_per_response_whatever_the_order_and_batch(name):
    scorer = baselines.ALL[name]
    whole = scorer(PROMPTS, TEXTS)
    assert (scorer.name, whole.dtype, whole.shape) == (name, np.float64, (len(TEXTS),))
    assert whole.tolist() == SCORES.get(name.replace("-", "_"), whole.tolist())
    assert np.array_equal(scorer(PROMPTS[::-1], TEXTS[::-1]), whole[::-1])
    assert np.array_equal(
        np.concatenate([scorer([p], [t]) for p, t in zip(PROMPTS, TEXTS, strict=True)]),
        whole,
    )
    assert np.array_equal(pickle.loads(pickle.dumps(scorer))(PROMPTS, TEXTS), whole)
    assert scorer([], []).shape == (0,)


def test_random_is_uniform():
    texts = [str(k) for k in range(4000)]
    drawn = baselines.random(["p"] * 4000, texts)
    assert kstest(drawn, "uniform").pvalue > 0.01


def test_the_noise_of_a_toy_is_standard_normal_times_its_dial(mini):
    draws = []
    for seed in range(10):
        scorer = toy.scorer(mini, skill=0.0, style=0.0, noise=2.0, seed=seed)
        draws.append(scorer(mini["prompt"].tolist(), mini["response"].tolist()))
    assert kstest(np.concatenate(draws) / 2.0, "norm").pvalue > 0.01


def test_the_lengths_of_mini_tell_nothing(mini):
    """In every domain the right answer of a style is the longer one about every second
    time.
    """
    table = mini.assign(length=mini["response"].str.len())
    lengths = table.pivot_table(
        "length", ["domain", "id", "style"], "label", observed=True
    )
    is_longer = lengths["chosen"] > lengths["rejected"]
    for domain, longer in is_longer.groupby("domain"):
        assert binomtest(int(longer.sum()), len(longer)).pvalue > 0.3, domain
    means = lengths.groupby("domain").mean()
    np.testing.assert_allclose(means["chosen"], means["rejected"], rtol=0.03)
