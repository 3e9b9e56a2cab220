"""Do the measures recover planted effects? Scorers with a known preference, and toy
models trained with a dial.

Instruments against the truth, and the dial's effect over training seeds, about ten
minutes each:

    python performance/planted.py scorers --draws 100
    python performance/planted.py seeds --seeds 20

`scorers` writes its table and a figure to performance/results, `seeds` what
`rmlab.papers.results("toy-dial")` gives. A training that is in its table is not made
again: remove the file to start anew. One thread; minutes are those of a core that has
nothing else to do.
"""

import argparse
import sys
import tempfile
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from statistics import NormalDist

import matplotlib as mpl
import numpy as np
import pandas as pd
from scipy import stats as distributions

import rmlab
from rmlab import styles
from rmlab.styles.transforms import ASSURANCES

sys.path.insert(0, str(Path(__file__).parents[1] / "notebooks" / "course"))
import course

mpl.use("agg")

RESULTS = Path(__file__).parent / "results"
SEEDS = (
    Path(__file__).parents[1] / "data" / "results" / "toy_dial.csv"
)  # ships: lab 2 draws it
SETTINGS = (0.0, 0.1, 0.3, 1.0)
DIALS = ("length", "markdown", "confidence")
NOISE = 0.8
PROMPTS = 80
TERMS = ["correct", "step_plain", "step_markdown", "characters"]
TERM = {"length": "characters", "markdown": "step_markdown", "confidence": "sure"}
CHANGE = {"length": "padding", "markdown": "headings", "confidence": "confidence"}
COLUMNS = [
    "instrument",
    "dial",
    "weight",
    "planted",
    "null",
    "before",
    "found",
    "low",
    "high",
]
"""`null` is what an instrument should say where nothing is planted, `before` the number
that it corrects.
"""


@dataclass(frozen=True)
class Planted:
    """Scores correctness and style by known weights; the noise depends on text and seed
    alone.
    """

    claims: dict[str, str]
    seed: str
    right: float = 1.0
    length: float = 0.0
    markdown: float = 0.0
    confidence: float = 0.0
    noise: float = NOISE
    name: str = "planted"

    def __call__(self, prompts, responses):
        return np.array(
            [
                self._score(prompt, text)
                for prompt, text in zip(prompts, responses, strict=True)
            ]
        )

    def _score(self, prompt, text):
        sure = sum(text.count(phrase) for phrase in ASSURANCES)
        looks = (
            self.markdown * ("## " in text)
            + self.length * np.log2(len(text))
            + self.confidence * sure
        )
        claim = self.claims[prompt]
        right = f"It is {claim}." in text or f"**Answer:** {claim}\n" in f"{text}\n"
        return (
            self.right * right
            + looks
            + self.noise * draw_noise(self.seed, prompt, text)
        )


def draw_noise(seed, prompt, text):
    """A standard normal number that depends on nothing but its arguments."""
    digest = blake2b(f"{seed}\n{prompt}\n{text}".encode(), digest_size=8).digest()
    return NormalDist().inv_cdf((int.from_bytes(digest, "big") // 2**11 + 0.5) / 2**53)


def of_draw(draw):
    """Rows of COLUMNS: every instrument at every setting of each dial, on new questions
    and with new noise.
    """
    questions = distinct(course.world(3 * PROMPTS, seed=draw))
    features = styles.features(questions).assign(
        sure=questions["sure"].to_numpy(dtype=int)
    )
    concise = questions[questions["right"] & (questions["style"] == "concise")]
    claims = dict(
        zip(
            concise["prompt"],
            concise["response"].str[len("It is ") :].str.split(".").str[0],
            strict=True,
        )
    )
    rows = []
    for dial in DIALS:
        for weight in SETTINGS:
            scorer = Planted(claims, f"{draw} {dial} {weight}", **{dial: weight})
            rows += [
                (name, dial, weight, *row)
                for name, *row in instruments(questions, features, scorer, dial)
            ]
    return pd.DataFrame(rows, columns=COLUMNS)


def distinct(questions):
    """The first PROMPTS questions of which none is asked twice: the same texts twice
    would be no two observations.
    """
    keyed = questions.drop_duplicates(["prompt", "label", "slot"])
    return keyed[keyed["id"].isin(keyed["id"].unique()[:PROMPTS])].reset_index(
        drop=True
    )


def instruments(questions, features, scorer, dial):
    """What each instrument says of this scorer: its name, then COLUMNS from `planted`
    on.
    """
    scores = rmlab.score(questions, scorer, progress=False)
    yield _probed(questions, scorer, dial)
    yield from _fitted(scores, features, getattr(scorer, dial), dial)
    if (
        dial != "confidence"
        # chance decides which answers sound sure, so that easy and hard know nothing of
        # it
    ):
        yield _debiased(scores, features, dial)
    if dial == "length":
        yield _controlled(scores, features, scorer)
        ignorant = replace(scorer, right=0.0)
        yield _controlled(
            rmlab.score(questions, ignorant, progress=False), features, ignorant
        )


def _probed(questions, scorer, dial):
    """The planted change is what the same scorer without its noise makes of the same
    texts.
    """
    plain = questions[questions["style"] == "plain"]
    found = rmlab.probe(plain, scorer, [CHANGE[dial]], by="transform").iloc[0]
    planted = rmlab.probe(
        plain, replace(scorer, noise=0.0), [CHANGE[dial]], by="transform"
    ).iloc[0]["change"]
    return "probe", planted, 0.0, np.nan, found["change"], found["low"], found["high"]


def _fitted(scores, features, weight, dial):
    terms = [*TERMS, *(["sure"] if dial == "confidence" else [])]
    effect = (
        rmlab.style_effects(scores, features, terms=terms)
        .set_index("term")
        .loc[TERM[dial]]
    )
    yield (
        "style_effects",
        weight / _spread(scores),
        0.0,
        np.nan,
        effect["effect"],
        effect["low"],
        effect["high"],
    )
    rate = (
        rmlab.exchange_rate(scores, features, terms=terms)
        .set_index("term")
        .loc[TERM[dial]]
    )
    yield "exchange_rate", weight, 0.0, np.nan, rate["rate"], rate["low"], rate["high"]


def _debiased(scores, features, dial):
    """Without its preference the scorer has no style gap: right and wrong answers look
    alike here.
    """
    before = rmlab.style_gap(scores).iloc[0]["gap"]
    on = {"length": "characters", "markdown": "headings"}[dial]
    after = rmlab.style_gap(
        rmlab.bias.debias(scores, features, on=on).drop(columns="removed")
    ).iloc[0]
    return "debias", 0.0, 0.0, before, after["gap"], after["low"], after["high"]


def _controlled(scores, features, scorer):
    row = rmlab.bias.length_controlled(rmlab.pairs(scores), features).iloc[0]
    planted = distributions.norm.cdf(scorer.right / (NOISE * np.sqrt(2)))
    name = "length_controlled" if scorer.right else "length_controlled, ignorant scorer"
    return (
        name,
        planted,
        0.5,
        row["accuracy"],
        row["controlled"],
        row["low"],
        row["high"],
    )


def _spread(scores):
    keyed = scores.groupby(["domain", "id"])["score"]
    return float(
        np.sqrt(
            ((scores["score"] - keyed.transform("mean")) ** 2).sum()
            / (len(scores) - keyed.ngroups)
        )
    )


def judged(rows):
    """Means over the draws, and the share of intervals that hold what was planted, see
    something, see the opposite.
    """
    above, below = rows["low"] > rows["null"], rows["high"] < rows["null"]
    opposite = (above & (rows["planted"] < rows["null"])) | (
        below & (rows["planted"] > rows["null"])
    )
    held = (rows["low"] <= rows["planted"]) & (rows["planted"] <= rows["high"])
    rows = rows.assign(
        covered=held, detected=above | below, wrong_sign=opposite, draws=1
    )
    groups = rows.groupby(["instrument", "dial", "weight"], sort=False)
    means = groups[
        [
            "planted",
            "before",
            "found",
            "low",
            "high",
            "covered",
            "detected",
            "wrong_sign",
        ]
    ].mean()
    return means.assign(draws=groups["draws"].sum()).round(3).reset_index()


def run_seeds(seeds, questions=300):
    """Train what the table of trainings lacks, each written at once: dial 0 with all
    seeds, the others a quarter.
    """
    test = course.world(questions, seed=10_000)
    rows = pd.read_csv(SEEDS).to_dict("records") if SEEDS.exists() else []
    there = {(row["dial"], row["seed"]) for row in rows}
    dials = (0.0, 0.25, 0.5, 0.75, 1.0)
    for seed in range(seeds):
        for dial in dials if seed < max(3, seeds // 4) else dials[:1]:
            if (dial, seed) not in there:
                rows.append(trained(dial, seed, test))
                print(rows[-1], flush=True)
                table = pd.DataFrame(rows).sort_values(["dial", "seed"])
                table.round(4).to_csv(SEEDS, index=False)
    return pd.read_csv(SEEDS)


def trained(dial, seed, test):
    """A row of the table of trainings."""
    pairs = course.preferences(3000, length=dial, markdown=dial, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        model = course.train(pairs, folder, steps=400, seed=seed)
        scores = rmlab.score(
            test, rmlab.classifier(model.folder, name="toy"), progress=False
        )
    easy, normal, hard = (
        float(share)
        for share in rmlab.summary(scores).iloc[0][["easy", "normal", "hard"]]
    )
    return {
        "dial": dial,
        "seed": seed,
        "easy": easy,
        "normal": normal,
        "hard": hard,
        "gap": easy - hard,
    }


def over_seeds(table):
    """Means over training seeds, and Student's interval of the gap."""
    found = table.groupby("dial")[["easy", "normal", "hard", "gap"]].mean()
    sem, n = table.groupby("dial")["gap"].sem(), table.groupby("dial").size()
    half = sem * distributions.t.ppf(0.975, n - 1)
    return found.assign(
        gap_low=found["gap"] - half, gap_high=found["gap"] + half, seeds=n
    ).round(3)


def draw(table):
    """What measures: found against planted. What corrects: before and after at each
    setting. Means of 95 % limits.
    """
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}
    )
    fig, axes = plt.subplots(2, 3, figsize=(7, 4.9), layout="constrained")
    for ax, name in zip(
        axes[0], ("probe", "style_effects", "exchange_rate"), strict=True
    ):
        _measured(ax, table[table["instrument"] == name])
        ax.set_title(f"{name}\n{_coverage(table, [name])}", fontsize=8.5)
    _corrected(axes[1, 0], table[table["instrument"] == "debias"], "style gap")
    axes[1, 0].set_title(f"debias\n{_coverage(table, ['debias'])}", fontsize=8.5)
    both = ["length_controlled", "length_controlled, ignorant scorer"]
    for name in both:
        _corrected(
            axes[1, 1], table[table["instrument"] == name], "P(win at equal length)"
        )
    axes[1, 1].set_title(f"length_controlled\n{_coverage(table, both)}", fontsize=8.5)
    _legend(axes[1, 2])
    fig.savefig(RESULTS / "planted.png", dpi=200)


LOOKS = {
    "length": ("#0072b2", "o"),
    "markdown": ("#d55e00", "s"),
    "confidence": ("#009e73", "^"),
}


def _measured(ax, rows):
    ax.axline((0, 0), slope=1, color="0.6", linewidth=0.8, zorder=0)
    beside = 0.015 * (
        rows["planted"].max() < 2
    )  # preferences of one weight would hide each other
    for number, (dial, own) in enumerate(rows.groupby("dial", sort=False)):
        colour, marker = LOOKS[dial]
        ends = [own["found"] - own["low"], own["high"] - own["found"]]
        place = own["planted"] + beside * (number - 1)
        ax.errorbar(
            place,
            own["found"],
            ends,
            color=colour,
            marker=marker,
            markersize=4,
            linestyle="none",
        )
    ax.set(xlabel="planted", ylabel="found")


def _corrected(ax, rows, what):
    for number, (dial, own) in enumerate(rows.groupby("dial", sort=False)):
        colour, marker = LOOKS[dial]
        place = np.arange(len(own)) + 0.14 * number
        ends = [own["found"] - own["low"], own["high"] - own["found"]]
        ax.plot(
            place,
            own["before"],
            color=colour,
            marker=marker,
            markersize=4,
            markerfacecolor="white",
            linestyle=":",
        )
        ax.errorbar(
            place,
            own["found"],
            ends,
            color=colour,
            marker=marker,
            markersize=4,
            linestyle="none",
        )
    ax.axhline(rows["planted"].iloc[0], color="0.6", linewidth=0.8, zorder=0)
    ax.set(
        xlabel="weight of the preference",
        ylabel=what,
        xticks=range(len(SETTINGS)),
        xticklabels=map(str, SETTINGS),
    )


def _coverage(table, names):
    """How many of the instrument's intervals hold what was planted."""
    rows = table[table["instrument"].isin(names)]
    share = np.average(rows["covered"], weights=rows["draws"])
    return f"{100 * share:.1f} % of {rows['draws'].sum():,} intervals"


def _legend(ax):
    from matplotlib.lines import Line2D

    dials = [
        Line2D([], [], color=c, marker=m, markersize=4, linestyle="none")
        for c, m in LOOKS.values()
    ]
    before = Line2D(
        [],
        [],
        color="0.3",
        marker="o",
        markersize=4,
        markerfacecolor="white",
        linestyle=":",
    )
    after = Line2D([], [], color="0.3", marker="o", markersize=4)
    truth = Line2D([], [], color="0.6", linewidth=0.8)
    says = [
        f"preference for {name.capitalize() if name == 'markdown' else name}"
        for name in LOOKS
    ]
    says += ["before the correction", "found, mean 95 % limits", "what was planted"]
    title = "per cent: 95 % intervals that\nhold what was planted"
    ax.legend(
        [*dials, before, after, truth],
        says,
        loc="center",
        frameon=False,
        title=title,
        alignment="left",
    )
    ax.axis("off")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["scorers", "seeds"])
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    if given.part == "scorers":
        found = judged(pd.concat([of_draw(number) for number in range(given.draws)]))
        found.to_csv(RESULTS / "planted.csv", index=False)
        draw(found)
        print(found.to_string(index=False))
    else:
        print(over_seeds(run_seeds(given.seeds)).to_string())
