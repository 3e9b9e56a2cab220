"""Judges' tables: outcomes and verdicts, votes, orders, best of four, ratings, and the published conventions."""

import itertools

import numpy as np
import pandas as pd
import pytest
from judge_fakes import Respondent, both, longer, pair_judge, responses

import rmlab
from rmlab.judges.modes import AnswerJudge, ListJudge
from rmlab.judges.questions import Answer, load_template
from rmlab.tables import DataError


def prefer(judge, n=20, **options):
    return rmlab.prefer(responses(n), judge, progress=False, **options)


def score(judge, table, **options):
    return rmlab.score(table, judge, progress=False, **options)


CUT = Answer("I lean to [[A]] because of the long list of things", "length")
BOTH_ORDERS = [
    ("[[A]]", "[[B]]", "win", "win"),
    ("[[B]]", "[[A]]", "loss", "loss"),
    ("[[A]]", "[[A]]", "flip", "tie"),
    ("[[A>>B]]", "[[A>B]]", "flip", "tie"),
    ("[[A=B]]", "[[A=B]]", "tie", "tie"),
    ("[[A]]", "[[A=B]]", "win", "win"),
    ("[[A=B]]", "[[A]]", "loss", "loss"),
    ("[[A]]", "what?", "unparsable", None),
    ("what?", "[[A]]", "unparsable", None),
    (None, "[[A]]", "failed", None),
    ("[[A]]", None, "failed", None),
    (None, "what?", "failed", None),
    (CUT, "[[B]]", "unparsable", None),
    (Answer("So:\n[[A]]", "length"), "hm [[A]]</think>[[B]]", "win", "win"),
]


@pytest.mark.parametrize(("forward", "backward", "verdict", "outcome"), BOTH_ORDERS)
def test_both_orders_together(forward, backward, verdict, outcome):
    judge = pair_judge(lambda first, *_: forward if first.startswith("chosen") else backward)
    pairs = prefer(judge, 1, allow_missing=True)
    assert pairs["verdict"].tolist() == [verdict]
    assert pairs["outcome"].astype(object).where(pairs["outcome"].notna(), None).tolist() == [outcome]
    assert pairs["margin"].isna().all()


def test_missing_answers_are_counted_apart_and_refused_unless_allowed():
    answers = itertools.cycle(["[[A]]", "[[B]]", "nothing", "[[A]]", None, "[[A]]"])
    pairs = prefer(pair_judge(lambda *_: next(answers)), 6, allow_missing=True)
    provenance = pairs.attrs["provenance"]["judge"]
    assert provenance["verdicts"] == {"win": 2, "unparsable": 2, "failed": 2}
    assert (provenance["missing"], provenance["unparsable"], provenance["failed"]) == (4, 2, 2)
    assert provenance["failures"] == {"status 500": 2}
    assert rmlab.accuracy(pairs)[["n_pairs", "missing"]].to_numpy().tolist() == [[2, 4]]
    with pytest.raises(DataError, match=r"6 items 2 .*status 500"):
        prefer(pair_judge(lambda *_: next(answers)), 6)


def test_most_votes_count():
    answers = iter(["[[A]]", "[[B]]", "[[B]]", "[[B]]", "huh", "[[A]]"])
    pairs = prefer(pair_judge(lambda *_: next(answers), samples=3), 1)
    # Sample by sample in both orders: chosen first A, B, huh; rejected first B, B, A.
    assert pairs["vote_first"].tolist() == [0.0]
    assert pairs["vote_second"].tolist() == [pytest.approx(1 / 3)]
    assert pairs["verdict"].tolist() == ["win"]


def odds(a, b):
    return Answer("A", "length", top={"A": np.log(a), " A": np.log(a), "B": np.log(b), "The": -1.0})


def letter_judge(choose, **options):
    return pair_judge(choose, template="letter", letters=True, **options)


def test_log_odds_of_the_letters():
    chosen_first, rejected_first = odds(0.4, 0.1), odds(0.1, 0.3)
    pairs = prefer(letter_judge(lambda first, *_: chosen_first if first.startswith("chosen") else rejected_first), 3)
    # P(chosen) is 0.8 / 0.9 where it is shown first, 0.3 / 0.5 where it is shown second.
    mean = (8 / 9 + 3 / 5) / 2
    assert pairs["margin"].tolist() == [pytest.approx(np.log(mean / (1 - mean)))] * 3
    assert pairs["outcome"].tolist() == pairs["verdict"].tolist() == ["win"] * 3
    pairs = prefer(letter_judge(lambda *_: chosen_first), 3)
    assert pairs["margin"].abs().max() < 1e-12
    assert set(pairs["verdict"]) == {"flip"}


def test_a_letter_that_the_server_does_not_name_is_the_least_likely_at_most():
    only = letter_judge(lambda *_: Answer("A", top={"A": -0.1, "x": -3.0}), one_order=True)
    assert np.abs(prefer(only, 1)["margin"].iloc[0]) == pytest.approx(2.9)
    silent = letter_judge(lambda *_: Answer("x", top={"x": -0.1}))
    assert prefer(silent, 1, allow_missing=True)["verdict"].tolist() == ["unparsable"]


def test_both_orders_are_asked_and_equal_questions_once():
    judge = pair_judge(longer)
    table = pd.concat([responses(5), responses(5).assign(id=lambda frame: frame["id"] + " again")])
    assert len(rmlab.prefer(table, judge, progress=False)) == 10
    shown = [tuple(side.split()[0] for side in both(question)) for question in judge.respondent.asked]
    assert sorted(shown) == [("chosen", "rejected")] * 5 + [("rejected", "chosen")] * 5


def test_one_order_is_a_coin_that_does_not_know_which_answer_is_right():
    def is_win(labels=None, **options):
        judge = pair_judge(lambda *_: "[[A]]", one_order=True, template="two", **options)
        table = responses(400).replace({"label": labels or {}})
        pairs = rmlab.prefer(table, judge, progress=False)
        assert len(judge.respondent.asked) == 400
        return (pairs["outcome"] == "win").to_numpy()

    assert 160 < is_win().sum() < 240
    assert (is_win({"chosen": "rejected", "rejected": "chosen"}) != is_win()).all()
    assert (is_win(seed=1) != is_win()).any()


def focus(n):
    """One right and three wrong answers to each prompt."""
    table = responses(n, answers=3)
    return table[(table["label"] == "rejected") | (table["slot"] == 0)].assign(
        benchmark="reward-bench-2", domain="Focus", subset="Focus"
    )


def ties():
    """A pair of Ties prompts."""
    rows = [
        ("reward-bench-2", "Ties", f"{kind}:0", label, slot, "Ties", "Name a colour.", f"{label} {slot} {kind}")
        for kind, label, count in (
            ("ref", "chosen", 1),
            ("ref", "rejected", 2),
            ("tied", "chosen", 3),
            ("tied", "rejected", 2),
        )
        for slot in range(count)
    ]
    columns = ["benchmark", "domain", "id", "label", "slot", "subset", "prompt", "response"]
    return pd.DataFrame(rows, columns=columns)


def choose(question):
    """The letter of the right answer; a rating where the question wants one."""
    text = question.messages[-1]["content"]
    if "<answer>" in text:
        return "[[9]]" if "chosen" in text else "[[2]]"
    place = next(letter for letter in "abcd" if f"<answer_{letter}>\nchosen" in text)
    return f"[[{place.upper()}]]"


def lister(answer, published=False, **options):
    """A judge of lists; Ties are rated."""
    respondent = Respondent(answer)
    ties = AnswerJudge("judge", respondent, load_template("rating-ties", "answer"), published=published)
    ranking = load_template("ranking", "list")
    return ListJudge("judge", respondent, ranking, apart={"Ties": ties}, published=published, **options)


def test_best_of_four_and_ties_by_ratings():
    judge = lister(choose)
    scores = score(judge, pd.concat([focus(8), ties()]))
    assert rmlab.metrics.best_of(scores[scores["domain"] == "Focus"])["credit"].tolist() == [1.0] * 8
    accuracies = rmlab.metrics.ties_score(scores[scores["domain"] == "Ties"])
    assert accuracies["accuracy_tied"].tolist() == accuracies["accuracy_ref"].tolist() == [1.0]
    assert set(scores["verdict"]) == {"ranked", "rated"}
    asked = [question.messages[0]["content"] for question in judge.respondent.asked]
    assert sum("several answers" in text for text in asked) == 8
    assert sum("Several different answers may be fully right" in text for text in asked) == 8


def test_a_fixed_letter_earns_a_quarter():
    scores = score(lister(lambda _: "[[A]]"), focus(400))
    assert 0.18 < rmlab.metrics.best_of(scores)["credit"].mean() < 0.32


def test_votes_share_and_doubles_get_the_same():
    answers = iter(["[[A]]", "[[A]]", "nothing"])
    table = focus(1).assign(response=["same", "same", "other", "more"])
    judge = lister(lambda _: next(answers), samples=3)
    scores = score(judge, table)
    texts = (question.messages[-1]["content"] for question in judge.respondent.asked)
    first_answers = [text.split("<answer_a>\n")[1].split("\n")[0] for text in texts][:2]
    assert scores["score"].tolist() == [first_answers.count(text) / 2 for text in ("same", "same", "other", "more")]


def test_ratings_and_their_mean():
    answers = itertools.cycle(["[[2]]", "[[4]]", "none", "[[7]]", "none", "none"])
    judge = AnswerJudge("judge", Respondent(lambda _: next(answers)), load_template("rating", "answer"), samples=2)
    table = responses(3).query("label == 'chosen'")
    scores = score(judge, table, allow_missing=True)
    assert scores["score"].fillna(-9).tolist() == [3.0, 7.0, -9]
    assert scores["verdict"].tolist() == ["rated", "rated", "unparsable"]
    with pytest.raises(DataError, match=r"3 items .* 1 no verdict"):
        score(judge, table)


def test_what_cannot_be_read_counts_as_the_runners_count_it():
    options = {"one_order": True, "published": True, "template": "two"}
    pairs = prefer(pair_judge(lambda *_: "no idea", **options), 10)
    assert set(pairs["verdict"]) == {"unparsable"}
    assert rmlab.accuracy(pairs, ties="half")["accuracy"].tolist() == [0.5]
    scores = score(lister(lambda _: "no idea", published=True), focus(5))
    assert rmlab.metrics.best_of(scores)["credit"].tolist() == [0.25] * 5
    assert set(score(lister(lambda _: "no idea", published=True), ties())["score"]) == {-1.0}
    failed = prefer(pair_judge(lambda *_: None, **options), 2, allow_missing=True)
    assert failed["outcome"].isna().all(), "no answer is asked for again, not counted"


def test_judges_are_scorers():
    pair, rater = pair_judge(longer), AnswerJudge("r", Respondent(choose), load_template("rating", "answer"))
    assert pair.prefer(["q"] * 2, ["long one", "x"], ["x", "long one"]).tolist() == [1, -1]
    assert rater(["q"], ["chosen"]).tolist() == [9.0]
    with pytest.raises(TypeError, match=r"use rmlab\.prefer"):
        rmlab.score(responses(1), pair)
    with pytest.raises(TypeError, match=r"use rmlab\.score"):
        rmlab.prefer(responses(1), rater)
    with pytest.raises(DataError, match=r"28 .*26"):
        score(lister(choose), responses(1, answers=14).assign(domain="Focus"))
