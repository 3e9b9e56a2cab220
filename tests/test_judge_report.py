"""The report on a judge: every planted fault is found by its own probe and by no other,
and none in a sound judge.
"""

import hashlib
import re

import numpy as np
import pandas as pd
import pytest
from judge_fakes import pair_judge, rating_judge

from rmlab.judges import examine
from rmlab.stats import judge_report
from rmlab.tables import DataError

N = 100
PROBES = [
    "position",
    "swap",
    "samples",
    "cycles",
    "padding",
    "markdown",
    "wording",
    "unreadable",
]


def table(n=N, answers=2):
    """Prompts whose answers have a quality in their words, the chosen ones a higher
    one, sometimes by little.
    """
    rng, rows = np.random.default_rng(0), []
    for i in range(n):
        best = rng.integers(30, 60)
        for label, slot in [
            (label, slot) for label in ("chosen", "rejected") for slot in range(answers)
        ]:
            quality = best - slot - (0 if label == "chosen" else rng.integers(3, 20))
            text = f"{label.title()} This reply says something sensible number {slot}."
            rows.append(
                (
                    str(i),
                    label,
                    slot,
                    f"question {i}",
                    f"{text} Its quality here equals {quality} points.",
                )
            )
    columns = ["id", "label", "slot", "prompt", "response"]
    return pd.DataFrame(rows, columns=columns).assign(benchmark="fake", domain="chat")


def worth(text):
    return int(re.search(r"equals\W+(\d+)", text)[1])


def chance(*texts):
    return (
        int.from_bytes(hashlib.blake2b(repr(texts).encode(), digest_size=4).digest())
        / 2**32
    )


def lean(first, second):
    return 1 if chance(*sorted((first, second))) < 0.5 else -1


def n_words(text):
    return len(text.replace("*", "").replace("- ", "").split())


def misread(first, second, question, gap):
    is_reworded = "Reply of assistant A" in question.messages[-1]["content"]
    return -gap if is_reworded and chance(*sorted((first, second))) < 0.3 else gap


# How far each judge sees the first answer ahead, where `gap` is how far it is.
FAULTS = {
    "position": lambda a, b, q, gap: gap + 8,
    "swap": lambda a, b, q, gap: gap + 12 * lean(a, b),
    "samples": lambda a, b, q, gap: gap if chance(a, b, q.seed) < 0.7 else -gap,
    # Rock, scissors, paper by the remainders of the qualities, where these differ.
    "cycles": lambda a, b, q, gap: (gap, 1, -1)[gap % 3],
    "padding": lambda a, b, q, gap: gap + n_words(a) - n_words(b),
    "markdown": lambda a, b, q, gap: gap + 12 * (a.count("**") - b.count("**")),
    "wording": misread,
    "unreadable": lambda a, b, q, gap: None if chance(a, b, q.seed) < 0.2 else gap,
}


def report(see, n=N):
    def choose(first, second, question):
        gap = see(first, second, question, worth(first) - worth(second))
        return (
            "Who knows."
            if gap is None
            else "[[A>B]]"
            if gap > 0
            else "[[B>A]]"
            if gap < 0
            else "[[A=B]]"
        )

    judgements = examine(pair_judge(choose), table(n), progress=False)
    return judgements, judge_report(judgements).set_index("probe")


@pytest.mark.parametrize("fault", FAULTS)
def test_each_probe_finds_its_fault_and_no_other(fault):
    judgements, probes = report(FAULTS[fault])
    assert probes.index.tolist() == PROBES
    assert probes.index[probes["p_holm"] < 0.05].tolist() == [fault]
    assert probes.loc[fault, "low"] > 0
    assert probes.loc[fault, "effect"] >= probes.loc[fault, "detectable"] / 2
    share = {"samples": 0.42, "unreadable": 0.2}.get(
        fault
    )  # two answers, each right with probability 0.7
    assert share is None or probes.loc[fault, "share"] == pytest.approx(share, abs=0.08)
    as_is = judgements[
        (judgements["condition"] == "as is") & (judgements["sample"] == 0)
    ]
    vote = as_is.pivot_table(index="id", columns="order", values="vote")
    if fault in ("position", "swap"):
        assert probes.loc["position", "effect"] == pytest.approx(
            ((vote["first"] - vote["second"]) / 2).mean()
        )
        assert probes.loc["swap", "share"] == pytest.approx(
            (vote["first"] * vote["second"] < 0).mean()
        )


def test_nothing_is_found_in_a_sound_judge_and_prompts_make_it_surer():
    judgements, probes = report(lambda a, b, q, gap: gap)
    assert (probes["p"].dropna() == 1).all()
    assert (probes["effect"] == 0).all()
    assert (probes["reason"] == "").all()
    assert (probes[["low", "high"]].abs().max(axis=1) > 0).all(), (
        "zero is known with an error too"
    )
    assert judgements["vote"].notna().all()
    assert probes.loc["unreadable", "n_prompts"] == N
    # k of 100 prompts change, all in one direction: McNemar's p is 2 / 2^k.
    k, level = (
        np.random.default_rng(1).binomial(
            100, probes.loc["padding", "detectable"], 4000
        ),
        0.05 / len(PROBES),
    )
    assert np.mean(2.0 ** (1 - k) < level) == pytest.approx(0.8, abs=0.03)
    _, tiny = report(lambda a, b, q, gap: gap, n=4)
    assert tiny["detectable"].isna().all()
    assert tiny["reason"].str.contains("fewer than 5 prompts").all()
    second, first = (
        report(lambda *_, vote=vote: vote)[1] for vote in (-1, 1)
    )  # judges that see only the place
    assert first.loc["position", ["effect", "share"]].tolist() == [1, 1]
    assert first.loc["swap", ["effect", "share"]].tolist() == [0, 1], (
        "every winner changes: the place explains it"
    )
    assert first.loc["cycles", "reason"] != "", "no verdict holds in both orders"
    assert second.loc["position", "effect"] == -1


def test_families_of_prompts_widen_an_effect():
    """Padding sways the judge in whole families; `examine` carries the column along."""
    responses = table(80).assign(template=lambda t: t["id"].astype(int) // 4)

    def choose(first, second, question):
        number = int(re.search(r"question (\d+)", question.messages[-1]["content"])[1])
        gap = worth(first) - worth(second)
        if number // 4 % 2:
            gap += 100 * (n_words(first) - n_words(second))
        return "[[A>B]]" if gap > 0 else "[[B>A]]"

    judgements = examine(pair_judge(choose), responses, progress=False)
    reports = [
        judge_report(judgements, cluster=cluster).set_index("probe")
        for cluster in (None, "template")
    ]
    apart, together = (report.loc["padding"] for report in reports)
    assert together["effect"] == apart["effect"] > 0
    assert together["se"] > 1.5 * apart["se"]
    with pytest.raises(DataError, match="famly"):
        judge_report(judgements, cluster="famly")


def test_probes_that_cannot_be_asked_say_why():
    pairs, judge = table(answers=1), pair_judge(lambda *_: "[[A=B]]")
    once = (
        judge_report(examine(judge, pairs, samples=1, progress=False))
        .set_index("probe")
        .loc[["samples", "cycles"]]
    )
    assert (once["reason"] != "").all()
    assert (once[["n_prompts", "missing"]] == [0, N]).all(axis=None)
    assert once[["effect", "p", "p_holm"]].isna().all(axis=None)
    code = pairs.assign(
        response=[f"```\n{worth(text)}\n```" for text in pairs["response"]]
    )
    fenced = judge_report(examine(judge, code, progress=False)).set_index("probe")
    assert fenced.loc[["markdown", "padding"], "n_prompts"].tolist() == [0, N], (
        "code is never touched"
    )
    assert fenced.loc["markdown", "reason"] != ""
    with pytest.raises(DataError, match=r"judgements: .*'vote'"):
        judge_report(table())


RATINGS = {  # points that each judge adds to the quality of an answer
    None: lambda text, question: 0,
    "padding": lambda text, question: len(text.split()) > 20,
    "wording": lambda text, question: (
        3
        * ("Reply of the assistant" in question.messages[-1]["content"])
        * chance(text)
    ),
}


@pytest.mark.parametrize("fault", RATINGS)
def test_a_judge_that_rates_is_examined_where_it_applies(fault):
    judge = rating_judge(
        lambda text, q: (
            f"[[{2 + (worth(text) - 10) / 10 + RATINGS[fault](text, q):.1f}]]"
        )
    )
    judgements = examine(judge, table(), progress=False)
    assert set(judgements["order"]) == {"alone"}
    assert len(judge.respondent.asked) == N * 12, (
        "two answers twice, as is, padded, marked up, and in other words"
    )
    probes = judge_report(judgements).set_index("probe")
    inapplicable = probes.loc[["position", "swap", "cycles"]]
    assert inapplicable[["effect", "p", "p_holm", "detectable"]].isna().all(axis=None)
    assert (inapplicable["reason"] != "").all()
    assert probes.index[probes["p_holm"] < 0.05].tolist() == ([fault] if fault else [])
    assert (probes["reason"].drop(inapplicable.index) == "").all()
