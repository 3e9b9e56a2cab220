"""A small part of a benchmark: whole prompts, from every domain."""

import numpy as np
import pandas as pd
import pytest

import rmlab
from rmlab.benchmarks import sample
from rmlab.tables import PROMPT, DataError


def table(**sizes):
    """Responses with prompts of each domain, whose rows are far apart."""
    rows = []
    for label in ("chosen", "rejected"):
        for domain, size in sizes.items():
            for number in range(size):
                rows.append((domain, str(number), label))
    frame = pd.DataFrame(rows, columns=["domain", "id", "label"])
    return frame.assign(benchmark="own", slot=0, prompt="p", response=frame["label"])


def test_prompts_stay_whole_and_rows_in_their_order():
    responses = rmlab.load("mini")
    part = sample(responses, 10, seed=3)
    drawn = set(map(tuple, part[PROMPT].to_numpy()))
    assert len(drawn) == 10
    kept = [tuple(key) in drawn for key in responses[PROMPT].to_numpy()]
    pd.testing.assert_frame_equal(part, responses[kept].reset_index(drop=True))


@pytest.mark.parametrize(
    ("sizes", "n", "expected"),
    [
        ({"chat": 100, "math": 300, "code": 600}, 100, [10, 30, 60]),
        ({"common": 995, "rare": 5}, 11, [6, 5]),
        ({"common": 995, "rare": 5}, 200, [195, 5]),
        ({"chat": 3, "math": 4}, 50, [3, 4]),
    ],
)
def test_domains_keep_their_shares_and_rare_ones_enough_for_an_interval(
    sizes, n, expected
):
    part = sample(table(**sizes), n)
    n_prompts = part.groupby("domain", sort=False)["id"].nunique()
    assert n_prompts.tolist() == expected


def test_a_summary_of_a_sample_has_an_interval_where_that_of_all_has_one():
    pairs = rmlab.papers.results("reward-bench")
    few = pairs[pairs["model"].isin(pairs["model"].unique()[:2])]
    summary = rmlab.summary(sample(few, 200))
    assert (summary["n_prompts"] == 200).all()
    assert (summary["high"] - summary["low"]).notna().all()


def test_the_seed_draws_the_prompts():
    responses = table(chat=50, math=50)
    first = sample(responses, 20, seed=1)
    pd.testing.assert_frame_equal(first, sample(responses, 20, seed=1))
    assert not first["id"].equals(sample(responses, 20, seed=2)["id"])


def test_every_prompt_is_as_likely_as_the_others_of_its_domain():
    responses = table(chat=6, math=12)
    counts = np.zeros(18)
    for seed in range(200):
        part = sample(responses, 9, seed=seed)
        keys = part.loc[part["label"] == "chosen", ["domain", "id"]]
        for domain, number in keys.itertuples(index=False):
            counts[int(number) + 6 * (domain == "math")] += 1
    np.testing.assert_allclose(counts[:6] / 200, counts[:6].mean() / 200, atol=0.15)
    np.testing.assert_allclose(counts[6:] / 200, counts[6:].mean() / 200, atol=0.15)


def test_fewer_prompts_than_subsets_are_refused():
    with pytest.raises(DataError, match="3 subsets"):
        sample(table(a=5, b=5, c=5), 2)


def rm_bench_like(seed):
    """Scores of as many prompts and styles as RM-Bench has, of differing difficulty."""
    rng = np.random.default_rng(seed)
    sizes = {"chat": 129, "code": 228, "math": 529, "safety": 441}
    styles = list(rmlab.load("mini")["style"].cat.categories)
    parts = []
    for domain, size in sizes.items():
        quality = rng.normal(0.7, 1.0, size)
        for slot, style in enumerate(styles):
            for label, weight in (("chosen", 1), ("rejected", 0)):
                scores = quality * weight + slot / 2 + rng.normal(0, 0.5, size)
                part = pd.DataFrame({"id": np.arange(size).astype(str)})
                columns = {"domain": domain, "slot": slot, "style": style}
                parts.append(part.assign(**columns, label=label, score=scores))
    frame = pd.concat(parts, ignore_index=True).assign(benchmark="rm-bench", model="m")
    frame["style"] = pd.Categorical(frame["style"], styles)
    return frame


@pytest.mark.parametrize(("n", "low", "high"), [(64, 0.08, 0.13), (200, 0.04, 0.07)])
def test_intervals_are_as_wide_as_the_docstring_says(n, low, high):
    part = sample(rm_bench_like(1), n)
    estimates = rmlab.estimates(part).set_index("name")
    widths = (estimates["high"] - estimates["low"]) / 2
    for name in ("overall", "easy", "normal", "hard"):
        assert low - 0.005 <= widths[name] <= high + 0.005
