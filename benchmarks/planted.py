"""Do the instruments find what was planted? Scorers with a known taste, and toy models trained with a dial.

    python benchmarks/planted.py scorers --draws 200     # instruments against the truth, about three minutes
    python benchmarks/planted.py seeds --seeds 20        # the dial's effect over training seeds, about ten minutes

Each writes its table, and `scorers` a figure, to benchmarks/results. One thread.
"""

import argparse
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from statistics import NormalDist

import matplotlib as mpl
import numpy as np
import pandas as pd
from scipy import stats as distributions

import rmlab
from rmlab import styles, toy
from rmlab.styles.transforms import ASSURANCES

mpl.use("agg")

RESULTS = Path(__file__).parent / "results"
SETTINGS = (0.0, 0.1, 0.3, 1.0)
NOISE = 0.8
PROMPTS = 80
TERMS = ["correct", "step_plain", "step_markdown", "characters"]


@dataclass(frozen=True)
class Planted:
    """Scores what a text says and looks like, each at its price; luck depends on text and seed alone."""

    claims: dict[str, str]
    seed: int
    length: float = 0.0
    markdown: float = 0.0
    confidence: float = 0.0
    noise: float = NOISE
    name: str = "planted"

    def __call__(self, prompts, responses):
        return np.array([self._score(prompt, text) for prompt, text in zip(prompts, responses, strict=True)])

    def _score(self, prompt, text):
        sure = sum(text.count(phrase) for phrase in ASSURANCES)
        looks = self.markdown * ("## " in text) + self.length * np.log2(len(text)) + self.confidence * sure
        claim = self.claims[prompt]
        right = f"It is {claim}." in text or f"**Answer:** {claim}\n" in f"{text}\n"
        return right + looks + self.noise * luck(self.seed, prompt, text)


@cache
def luck(seed, prompt, text):
    """A standard normal number that depends on nothing but its arguments."""
    digest = blake2b(f"{seed}\n{prompt}\n{text}".encode(), digest_size=8).digest()
    return NormalDist().inv_cdf((int.from_bytes(digest, "big") // 2**11 + 0.5) / 2**53)


def instruments(questions, features, draw, dial, weight):
    """Rows of one draw: instrument, number, planted value, estimate, interval."""
    concise = questions[questions["right"] & (questions["style"] == "concise")]
    claims = dict(zip(concise["prompt"], concise["response"].str[len("It is ") :].str.split(".").str[0], strict=True))
    scorer = Planted(claims, draw, **{dial: weight})
    scores = rmlab.score(questions, scorer, progress=False)
    pairs = rmlab.pairs(scores)
    if dial != "confidence":
        term = {"length": "characters", "markdown": "step_markdown"}[dial]
        rate = rmlab.exchange_rate(scores, features, terms=TERMS).set_index("term").loc[term]
        yield "exchange_rate", weight, rate["rate"], rate["low"], rate["high"]
        effect = rmlab.style_effects(scores, features, terms=TERMS).set_index("term").loc[term]
        yield "style_effects", weight / _spread(scores), effect["effect"], effect["low"], effect["high"]
    if dial == "length":
        row = rmlab.bias.length_controlled(pairs, features).iloc[0]
        truth = distributions.norm.cdf(1 / (NOISE * np.sqrt(2)))
        yield "length_controlled", truth, row["controlled"], row["low"], row["high"]
    yield from _probed(questions, scorer, dial)
    yield from _debiased(questions, features, scores, replace(scorer, **{dial: 0.0}), dial)


def _probed(questions, scorer, dial):
    change = {"length": "padding", "markdown": "headings", "confidence": "confidence"}[dial]
    plain = questions[questions["style"] == "plain"]
    found = rmlab.probe(plain, scorer, [change], by="transform").iloc[0]
    truth = rmlab.probe(plain, replace(scorer, noise=0.0), [change], by="transform").iloc[0]["change"]
    yield "probe", truth, found["change"], found["low"], found["high"]


def _debiased(questions, features, scores, clean, dial):
    on = {"length": ["characters"], "markdown": ["step"]}.get(dial)
    if on is None:
        return
    after = rmlab.style_gap(rmlab.bias.debias(scores, features, on=on).drop(columns="removed")).iloc[0]
    truth = rmlab.style_gap(rmlab.score(questions, clean, progress=False)).iloc[0]
    yield "debias (style gap)", truth["gap"], after["gap"], after["low"], after["high"]


def _spread(scores):
    keyed = scores.groupby(["domain", "id"])["score"]
    return float(np.sqrt(((scores["score"] - keyed.transform("mean")) ** 2).sum() / (len(scores) - keyed.ngroups)))


def run_scorers(draws):
    rows = []
    for draw in range(draws):
        questions = toy.world(PROMPTS, seed=draw)
        features = styles.features(questions)
        for dial in ("length", "markdown", "confidence"):
            for weight in SETTINGS:
                for instrument, truth, estimate, low, high in instruments(questions, features, draw, dial, weight):
                    rows.append((instrument, dial, weight, truth, estimate, low, high))
    table = pd.DataFrame(rows, columns=["instrument", "dial", "weight", "truth", "estimate", "low", "high"])
    return table.groupby(["instrument", "dial", "weight"], sort=False).apply(_judged).reset_index()


def _judged(rows):
    zero = 0.5 if rows.name[0] == "length_controlled" else 0.0
    return pd.Series(
        {
            "planted": rows["truth"].mean(),
            "found": rows["estimate"].mean(),
            "covered": ((rows["low"] <= rows["truth"]) & (rows["truth"] <= rows["high"])).mean(),
            "not_zero": ((rows["low"] > zero) | (rows["high"] < zero)).mean(),
            "wrong_sign": (
                ((rows["low"] > zero) & (rows["truth"] < zero)) | ((rows["high"] < zero) & (rows["truth"] > zero))
            ).mean(),
            "draws": len(rows),
        }
    ).round(3)


def run_seeds(seeds, questions=300):
    test = toy.world(questions, seed=10_000)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for dial in (0.0, 0.25, 0.5, 0.75, 1.0):
            for seed in range(seeds if dial in (0.0, 1.0) else max(3, seeds // 4)):
                pairs = toy.preferences(3000, length=dial, markdown=dial, seed=seed)
                model = toy.train(pairs, folder, steps=450, seed=seed, progress=False)
                scores = rmlab.score(test, rmlab.classifier(model.folder, name="toy"), progress=False)
                row = rmlab.summary(scores).iloc[0]
                rows.append((dial, seed, row["easy"], row["normal"], row["hard"], row["easy"] - row["hard"]))
                print(rows[-1], flush=True)
    return pd.DataFrame(rows, columns=["dial", "seed", "easy", "normal", "hard", "gap"])


def over_seeds(table):
    """Means over training seeds, and Student's interval of the gap."""
    found = table.groupby("dial")[["easy", "normal", "hard", "gap"]].mean()
    sem, n = table.groupby("dial")["gap"].sem(), table.groupby("dial").size()
    half = sem * distributions.t.ppf(0.975, n - 1)
    return found.assign(gap_low=found["gap"] - half, gap_high=found["gap"] + half, seeds=n).round(3)


def draw(table):
    """What was found against what was planted, one panel per instrument."""
    import matplotlib.pyplot as plt

    names = table["instrument"].unique()
    fig, axes = plt.subplots(1, len(names), figsize=(2.3 * len(names), 2.6), layout="constrained")
    for ax, name in zip(axes, names, strict=True):
        for (dial, rows), marker in zip(
            table[table["instrument"] == name].groupby("dial", sort=False), "os^", strict=False
        ):
            ax.plot(rows["planted"], rows["found"], marker=marker, label=dial)
        ax.axline((0, 0), slope=1, color="grey", linewidth=0.8)
        ax.set(title=name, xlabel="planted", ylabel="found" if ax is axes[0] else "")
        ax.legend(fontsize=7)
    fig.savefig(RESULTS / "planted.png", dpi=150)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["scorers", "seeds"])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    if given.part == "scorers":
        found = run_scorers(given.draws)
        found.to_csv(RESULTS / "planted.csv", index=False)
        draw(found)
        print(found.to_string(index=False))
    else:
        every = run_seeds(given.seeds)
        every.round(4).to_csv(RESULTS / "dial_over_seeds.csv", index=False)
        print(over_seeds(every).to_string())
