"""The report on a judge: every planted fault is found by its own probe and by no other, and none in a sound judge."""

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
PROBES = ["position", "swap", "samples", "cycles", "padding", "markdown", "wording", "unreadable"]


def table(n=N, answers=2):
    """Prompts whose answers have a quality in their words, the chosen ones a higher one, sometimes by little."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(n):
        best = rng.integers(30, 60)
        for label in ("chosen", "rejected"):
            for slot in range(answers):
                worth = best - slot if label == "chosen" else best - rng.integers(3, 20) - slot
                text = f"This reply says something sensible number {slot}. Its quality here equals {worth} points."
                rows.append(("fake", "chat", str(i), label, slot, f"question {i}", f"{label.title()} {text}"))
    columns = ["benchmark", "domain", "id", "label", "slot", "prompt", "response"]
    return pd.DataFrame(rows, columns=columns)


def worth(text):
    return int(re.search(r"equals\W+(\d+)", text)[1])


def chance(*texts):
    return int.from_bytes(hashlib.blake2b(repr(texts).encode(), digest_size=4).digest()) / 2**32


def better(gain):
    return "[[A>B]]" if gain > 0 else "[[B>A]]" if gain < 0 else "[[A=B]]"


def sound(first, second, _):
    return better(worth(first) - worth(second))


def likes_first(first, second, _):
    return better(worth(first) - worth(second) + 8)


def order_sensitive(first, second, _):
    gap = worth(first) - worth(second)
    lean = 1 if chance(*sorted((first, second))) < 0.5 else -1
    return better(gap + 12 * lean)


def noisy(first, second, question):
    return better(worth(first) - worth(second)) if chance(first, second, question.seed) < 0.7 else "[[B>A]]" if (
        worth(first) > worth(second)
    ) else "[[A>B]]"  # fmt: skip


def in_circles(first, second, _):
    """Rock, scissors, paper by the remainders of the qualities, where these differ."""
    gap = (worth(first) - worth(second)) % 3
    return better(worth(first) - worth(second)) if gap == 0 else better(1 if gap == 1 else -1)


def likes_padding(first, second, _):
    length = [len(text.replace("*", "").replace("- ", "").split()) for text in (first, second)]
    return better(worth(first) - worth(second) + length[0] - length[1])


def likes_markdown(first, second, _):
    return better(worth(first) - worth(second) + 12 * (first.count("**") - second.count("**")))


def misreads_other_words(first, second, question):
    gap = worth(first) - worth(second)
    other = "Reply of assistant A" in question.messages[-1]["content"]
    return better(-gap if other and chance(*sorted((first, second))) < 0.3 else gap)


def mumbles(first, second, question):
    return "Who knows." if chance(first, second, question.seed) < 0.2 else sound(first, second, question)


FAULTS = {
    "position": likes_first, "swap": order_sensitive, "samples": noisy, "cycles": in_circles, "padding": likes_padding,
    "markdown": likes_markdown, "wording": misreads_other_words, "unreadable": mumbles,
}  # fmt: skip


def report(choose, n=N, **options):
    judgements = examine(pair_judge(choose, **options), table(n), progress=False)
    return judgements, judge_report(judgements).set_index("probe")


@pytest.mark.parametrize("fault", FAULTS)
def test_each_probe_finds_its_fault_and_no_other(fault):
    _, found = report(FAULTS[fault])
    assert found.index.tolist() == PROBES
    assert found.index[found["p_holm"] < 0.05].tolist() == [fault]
    assert found.loc[fault, "low"] > 0
    assert found.loc[fault, "effect"] >= found.loc[fault, "detectable"] / 2


def test_nothing_is_found_in_a_sound_judge():
    judgements, found = report(sound)
    assert (found["p"].dropna() == 1).all()
    assert (found["effect"] == 0).all()
    assert (found["reason"] == "").all()
    assert (found[["low", "high"]].abs().max(axis=1) > 0).all(), "zero is known with an error too"
    assert judgements["vote"].notna().all()
    assert found.loc["unreadable", "n_prompts"] == N


def test_a_judge_that_always_says_a_has_position_bias_1():
    _, found = report(lambda *_: "[[A>B]]")
    assert found.loc["position", "effect"] == 1.0
    assert found.loc["position", "share"] == 1.0
    assert found.loc["swap", "share"] == 1.0, "every winner changes"
    assert found.loc["swap", "effect"] == 0.0, "and the first place explains it"
    assert found.loc["cycles", "reason"] != "", "no verdict holds in both orders"
    _, other = report(lambda *_: "[[B>A]]")
    assert other.loc["position", "effect"] == -1.0


def test_the_numbers_by_hand():
    judgements, found = report(likes_first, n=40)
    as_is = judgements[(judgements["condition"] == "as is") & (judgements["sample"] == 0)]
    wide = as_is.pivot_table(index="id", columns="order", values="vote")
    assert found.loc["position", "effect"] == pytest.approx(((wide["first"] - wide["second"]) / 2).mean())
    assert found.loc["swap", "share"] == pytest.approx((wide["first"] * wide["second"] < 0).mean())
    _, noise = report(noisy)
    # Two answers, each right with probability 0.7, contradict one another with 2 x 0.7 x 0.3.
    assert abs(noise.loc["samples", "effect"] - 0.42) < 0.08
    _, mumbling = report(mumbles)
    assert abs(mumbling.loc["unreadable", "share"] - 0.2) < 0.03


def test_what_a_run_could_have_found_shrinks_with_prompts():
    (_, few), (_, many) = report(sound, n=20), report(sound)
    assert (few["detectable"] > 2 * many["detectable"]).all()
    assert many["detectable"].between(0.03, 0.2).all()
    _, tiny = report(sound, n=4)
    assert tiny["detectable"].isna().all()
    assert tiny["reason"].str.contains("fewer than 5 prompts").all()


def test_the_detectable_effect_is_found_as_often_as_it_says():
    _, found = report(sound, n=100)
    effect = found.loc["padding", "detectable"]
    rng = np.random.default_rng(1)
    level = 0.05 / len(PROBES)
    # k of 100 prompts change, all in one direction: McNemar's p is 2 / 2^k.
    power = np.mean([2.0 ** (1 - rng.binomial(100, effect)) < level for _ in range(4000)])
    assert abs(power - 0.8) < 0.03


def test_probes_that_cannot_be_asked_say_why():
    pairs = table(answers=1)
    once = judge_report(examine(pair_judge(sound), pairs, samples=1, progress=False)).set_index("probe")
    assert "samples=2" in once.loc["samples", "reason"]
    assert once.loc["cycles", "reason"] == "no prompt has three different answers"
    assert once.loc[["samples", "cycles"], ["effect", "p", "p_holm"]].isna().all(axis=None)
    short = pairs.assign(response=[f"{worth(text)}" for text in pairs["response"]])
    code = short.assign(response="```\n" + short["response"] + "\n```")
    plain = judge_report(examine(pair_judge(lambda *_: "[[A=B]]"), code, progress=False)).set_index("probe")
    assert plain.loc["markdown", "n_prompts"] == 0, "code is never touched"
    assert plain.loc["markdown", "reason"] != ""
    assert plain.loc["padding", "n_prompts"] == N


def points(text):
    """A rating that leaves room for what is added."""
    return 2 + (worth(text) - 10) / 10


def rates_padding(text, _):
    return f"[[{points(text) + (len(text.split()) > 20):.1f}]]"


def rates_by_words(text, question):
    other = "Reply of the assistant" in question.messages[-1]["content"]
    return f"[[{points(text) + 3 * other * chance(text):.1f}]]"


RATINGS = {
    None: lambda text, _: f"[[{points(text):.1f}]]",
    "padding": rates_padding,
    "wording": rates_by_words,
}


@pytest.mark.parametrize("fault", RATINGS)
def test_a_judge_that_rates_is_examined_where_it_applies(fault):
    judge = rating_judge(RATINGS[fault])
    judgements = examine(judge, table(), progress=False)
    assert set(judgements["order"]) == {"alone"}
    assert len(judge.respondent.asked) == N * 12, "two answers twice, as is, padded, marked up, and in other words"
    found = judge_report(judgements).set_index("probe")
    assert found.index.tolist() == PROBES
    inapplicable = found.loc[["position", "swap", "cycles"]]
    assert inapplicable[["effect", "p", "p_holm", "detectable"]].isna().all(axis=None)
    assert inapplicable["reason"].str.startswith("does not apply: answers are rated").all()
    assert found.index[found["p_holm"] < 0.05].tolist() == ([fault] if fault else [])
    assert (found["reason"].drop(inapplicable.index) == "").all()


def test_a_table_that_no_judge_gave_is_refused():
    with pytest.raises(DataError, match=r"judgements: .*'vote'"):
        judge_report(table())
