"""What ships: mini's code, and the scorers that do not read the answer."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rmlab import baselines

MINI = Path(__file__).resolve().parents[1] / "data" / "mini"
RUN = "import json, sys\nsource, tests = json.load(sys.stdin)\nnames = {}\nexec(source, names)\nexec(tests, names)"


def test_chosen_code_of_mini_passes_its_tests_and_rejected_code_fails_them():
    for row in json.loads((MINI / "code_filtered.json").read_text(encoding="utf-8")):
        for label in ("chosen", "rejected"):
            command, sent = [sys.executable, "-I", "-c", RUN], json.dumps([row[label][0], row["tests"]])
            done = subprocess.run(command, input=sent, capture_output=True, text=True, timeout=20, check=False)
            assert (done.returncode == 0) == (label == "chosen"), row["id"]
            assert label == "chosen" or "AssertionError" in done.stderr, row["id"]


TEXTS = ["short", "a longer answer", "**bold** and `code`\n- item", "- x\n- y", " ", "😀 שלום $x$ <b>"]
PROMPTS = ["p", "q", [{"role": "user", "content": "hi"}], "p", "p", "\ud800"]
SCORES = {"longest": [*map(len, TEXTS)], "shortest": [-len(text) for text in TEXTS], "constant": [0.0] * 6}
SCORES |= {"most_markdown": [0, 0, 3, 2, 0, 0]}


@pytest.mark.parametrize("name", baselines.NAMES)
def test_one_float_per_response_whatever_the_order_and_batch(name):
    scorer = baselines.ALL[name]
    whole = scorer(PROMPTS, TEXTS)
    assert (scorer.name, whole.dtype, whole.shape) == (name, np.float64, (len(TEXTS),))
    assert whole.tolist() == SCORES.get(name.replace("-", "_"), whole.tolist())
    assert np.array_equal(scorer(PROMPTS[::-1], TEXTS[::-1]), whole[::-1])
    assert np.array_equal(np.concatenate([scorer([p], [t]) for p, t in zip(PROMPTS, TEXTS, strict=True)]), whole)
    assert np.array_equal(pickle.loads(pickle.dumps(scorer))(PROMPTS, TEXTS), whole)
    assert scorer([], []).shape == (0,)
