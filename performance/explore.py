"""The explorer on 10,000 prompts and 50 models: how long filtering and the first paint
take.

    python performance/explore.py

Every question is one of `view.select` and `view.frame`. Beside it the plain way:
boolean masks over the pairs table. Texts are synthetic, about 1,500 characters each
(RM-Bench's are 1,400 on average). Writes performance/results/explore.csv: question,
prompts, models, found, median_ms, worst_ms, plain_ms, ratio.
"""

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import pandas as pd

from rmlab import metrics, tables
from rmlab.widgets import explore
from rmlab.widgets.explorer import Selection, check_selection, matching_prompts

WORDS = [
    "the",
    "a",
    "model",
    "answer",
    "reward",
    "is",
    "not",
    "of",
    "under",
    "style",
    "longer",
    "because",
    "number",
    "seven",
    "Paris",
    "bold",
    "list",
    "which",
    "therefore",
    "explain",
    "river",
    "light",
    "matter",
    "often",
    "prompt",
    "shorter",
    "heading",
    "table",
    "value",
    "margin",
]
QUESTIONS = {
    "one model": Selection(("model 0",)),
    "another model": Selection(("model 7",)),
    "two models": Selection(("model 3", "model 4")),
    "flips in a cell": Selection(
        ("model 3", "model 4"), cell=("concise", "markdown"), outcome="flip"
    ),
    "losses in a domain": Selection(("model 5",), domain="math", outcome="loss"),
    "a range of margins": Selection(("model 5",), margin=(-0.5, 0.5)),
    "a common word": Selection(("model 5",), text="heading"),
    "a word that is nowhere": Selection(("model 5",), text="xylophone"),
    "words, flips, cell": Selection(
        ("model 8", "model 9"),
        cell=("plain", "markdown"),
        outcome="flip",
        text="paris bold",
    ),
}


def world(prompts, models, seed=0):
    """Responses and scores of the given size."""
    rng = np.random.default_rng(seed)
    shape = [
        (label, slot, style)
        for label in tables.LABELS
        for slot, style in enumerate(tables.STYLES)
    ]
    number = np.repeat(np.arange(prompts), len(shape))
    frame = pd.DataFrame(shape * prompts, columns=["label", "slot", "style"])
    domain = np.array(["chat", "math", "code", "safety"])[number % 4]
    frame = frame.assign(
        benchmark="synthetic", domain=domain, id=number.astype(str), subset=domain
    )
    stock = [" ".join(rng.choice(WORDS, 250)) for _ in range(2000)]
    texts = [
        f"{stock[k]} {n}" for n, k in enumerate(rng.integers(0, len(stock), len(frame)))
    ]
    asked = [f"What is number {n}?" for n in number]
    responses = tables.check_responses(frame.assign(prompt=asked, response=texts))
    keys = frame[
        ["benchmark", "domain", "id", "label", "slot", "subset", "style"]
    ].astype({"id": "str"})
    every = [
        keys.assign(model=f"model {m}", score=rng.normal(size=len(keys)).round(3))
        for m in range(models)
    ]
    return tables.check_scores(pd.concat(every, ignore_index=True)), responses


def plainly(pairs, spoken, selection):
    """The same filter with masks over the pairs table; returns the number of
    prompts.
    """
    by_model = pairs[pairs["model"] == selection.models[0]]
    mask = np.ones(len(by_model), bool)
    if selection.domain:
        mask &= (by_model["domain"] == selection.domain).to_numpy()
    if selection.cell:
        mask &= (by_model["chosen_style"] == selection.cell[0]).to_numpy()
        mask &= (by_model["rejected_style"] == selection.cell[1]).to_numpy()
    if selection.outcome == "flip":
        other = pairs[pairs["model"] == selection.models[1]]
        mask &= by_model["outcome"].to_numpy() != other["outcome"].to_numpy()
    elif selection.outcome:
        mask &= (by_model["outcome"] == selection.outcome).to_numpy()
    low, high = selection.margin
    if low is not None:
        mask &= by_model["margin"].between(low, high).to_numpy()
    found = (
        by_model[mask]
        .groupby(["domain", "id"], sort=False)
        .agg(n=("margin", "size"), margin=("margin", "mean"))
    )
    if selection.text:
        found = found[[selection.text in spoken[key] for key in found.index]]
    return len(found.sort_values("margin"))


def timed(work, repeats):
    """Median and worst time in milliseconds."""
    spans = []
    for repeat in range(repeats):
        start = time.perf_counter()
        work(repeat)
        spans.append((time.perf_counter() - start) * 1000)
    return statistics.median(spans), max(spans)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=int, default=10_000)
    parser.add_argument("--models", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "explore.csv"
    )
    args = parser.parse_args()
    scores, responses = world(args.prompts, args.models)
    explore(
        scores.head(6), responses.head(6)
    )  # the imports are the notebook's, not the widget's
    start = time.perf_counter()
    view = explore(scores, responses)
    view._repr_mimebundle_()
    paint = (time.perf_counter() - start) * 1000
    sizes = {"prompts": args.prompts, "models": args.models}
    rows = [
        {
            "question": "first paint",
            **sizes,
            "found": len(view.frame),
            "median_ms": paint,
            "worst_ms": paint,
        }
    ]
    wanted = [
        m
        for m in view.data.models
        if m in {name for s in QUESTIONS.values() for name in s.models}
    ]
    pairs = metrics.pairs(scores[scores["model"].isin(wanted)])
    texts = responses.groupby(["domain", "id"], sort=False)
    spoken = {
        key: "\n".join([g["prompt"].iloc[0], *g["response"]]).lower()
        for key, g in texts
    }
    for name, selection in QUESTIONS.items():

        def click(repeat, selection=selection):
            view.selection = Selection(("model 1",)) if repeat < 0 else selection
            return len(view.frame)

        click(-1)
        median, worst = timed(click, args.repeats)
        plain, _ = timed(lambda repeat, s=selection: plainly(pairs, spoken, s), 3)
        found = len(matching_prompts(view.data, check_selection(view.data, selection)))
        assert found == plainly(pairs, spoken, selection)
        rows.append(
            {
                "question": name,
                **sizes,
                "found": found,
                "median_ms": median,
                "worst_ms": worst,
                "plain_ms": plain,
            }
        )
    table = pd.DataFrame(rows)
    table["ratio"] = table["plain_ms"] / table["median_ms"]
    table.round(2).to_csv(args.out, index=False)
    print(table.round(1).to_string(index=False))
    print(f"\nmedian over the questions: {table['median_ms'].iloc[1:].median():.1f} ms")


if __name__ == "__main__":
    main()
