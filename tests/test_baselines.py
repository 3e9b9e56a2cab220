"""Content-blind scorers: what they count, that nothing else matters, and the published numbers."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest

from rmlab import baselines, metrics

TEXTS = ["short", "a longer answer", "**bold** and `code`\n- item", "- x\n- y", " ", "😀 שלום $x$ <b>"]
PROMPTS = ["p", "q", [{"role": "user", "content": "hi"}], "p", "p", "\ud800"]
STYLES = ("concise", "plain", "markdown")
REFERENCE = {  # easy, normal, hard in percent
    ("chat", "longest"): (81.1, 28.4, 2.6),
    ("chat", "shortest"): (18.9, 64.3, 97.4),
    ("code", "longest"): (77.5, 51.9, 25.4),
    ("safety", "longest"): (92.4, 37.9, 10.0),
    ("safety", "shortest"): (7.6, 61.9, 89.9),
}


@pytest.mark.parametrize("name", baselines.NAMES)
def test_one_float_per_response_whatever_the_order_and_batch(name):
    scorer = baselines.ALL[name]
    whole = scorer(PROMPTS, TEXTS)
    assert scorer.name == name
    assert whole.dtype == np.float64
    assert whole.shape == (len(TEXTS),)
    assert np.isfinite(whole).all()
    assert np.array_equal(scorer(PROMPTS[::-1], TEXTS[::-1]), whole[::-1])
    assert np.array_equal(np.concatenate([scorer([p], [t]) for p, t in zip(PROMPTS, TEXTS, strict=True)]), whole)
    assert np.array_equal(pickle.loads(pickle.dumps(scorer))(PROMPTS, TEXTS), whole)
    assert scorer([], []).shape == (0,)


def test_what_each_counts():
    assert baselines.longest(PROMPTS, TEXTS).tolist() == [len(t) for t in TEXTS]
    assert baselines.shortest(PROMPTS, TEXTS).tolist() == [-len(t) for t in TEXTS]
    assert baselines.most_markdown(PROMPTS, TEXTS).tolist() == [0, 0, 3, 2, 0, 0]
    assert set(baselines.constant(PROMPTS, TEXTS)) == {0.0}


def test_random_is_uniform_and_its_seeds_are_unrelated():
    texts = [f"answer {i}" for i in range(4000)]
    first, second = baselines.random(["p"] * 4000, texts), baselines.random_with(1)(["p"] * 4000, texts)
    assert first.min() >= 0
    assert first.max() < 1
    counts, _ = np.histogram(first, 10, (0, 1))
    assert ((counts - 400) ** 2 / 400).sum() < 27.9  # chi-square with 9 degrees of freedom, p = 0.001
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.06
    assert not np.isin(baselines.random(["q"] * 4000, texts), first).any()
    assert np.array_equal(baselines.random_with(0)(["p"], ["x"]), baselines.random(["p"], ["x"]))


@pytest.mark.parametrize("name", ["longest", "shortest"])
def test_length_scorers_reproduce_the_reference_table(shared_data, name):
    rows = []
    for file in ("chat", "code", "safety-refuse", "safety-response"):
        for row in json.loads((shared_data / "rm-bench" / f"{file}_filtered.json").read_text("utf-8")):
            rows += [
                (file.split("-")[0], f"{file}/{row['id']}", label, slot, file, style, row[label][slot])
                for label in ("chosen", "rejected")
                for slot, style in enumerate(STYLES)
            ]
    columns = ["domain", "id", "label", "slot", "subset", "style", "response"]
    frame = pd.DataFrame(rows, columns=columns).assign(model=name, benchmark="rm-bench")
    texts = frame.pop("response").tolist()
    frame["score"] = baselines.ALL[name](["prompt"] * len(texts), texts)
    assert len(frame) == 4788
    levels = metrics.accuracy(metrics.pairs(frame), by=["domain", "level"]).set_index(["domain", "level"])["accuracy"]
    for (domain, scorer), expected in REFERENCE.items():
        if scorer == name:
            assert tuple((100 * levels[domain]).round(1)[["easy", "normal", "hard"]]) == expected
