"""Judges without a server: what answers say, outcomes and verdicts, votes, orders, best
of four, ratings.
"""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from judge_fakes import Respondent, longer, pair_judge, responses, shown_answers

import rmlab
from rmlab.estimation.best_of import best_of
from rmlab.judges.kinds import AnswerJudge, ListJudge, PairJudge
from rmlab.judges.questions import Completion, load_template
from rmlab.judges.readers import (
    PUBLISHED_LETTER,
    PUBLISHED_RATING,
    choose_reader,
)
from rmlab.tables import DataError

URL = "http://127.0.0.1:9/v1"
DEFAULT = choose_reader(None)


def prefer(judge, n=20, **options):
    return rmlab.prefer(responses(n), judge, progress=False, **options)


def score(judge, table, **options):
    return rmlab.score(table, judge, progress=False, **options)


CUT = Completion("I lean to [[A]] because of the long list of things", "length")
BOTH_ORDERS = [
    ("[[A]]", "[[B]]", "win", "win"),
    ("[[B]]", "[[A]]", "loss", "loss"),
    ("[[A]]", "[[A]]", "flip", "tie"),
    ("[[A=B]]", "[[A=B]]", "tie", "tie"),
    ("[[A]]", "[[A=B]]", "win", "win"),
    ("[[A=B]]", "[[A]]", "loss", "loss"),
    ("[[A]]", "what?", "unparsable", None),
    (None, "[[A]]", "failed", None),
    (None, "what?", "failed", None),
    (CUT, "[[B]]", "unparsable", None),
    (Completion("So:\n[[A]]", "length"), "hm [[A]]</think>[[B]]", "win", "win"),
]


def judge_by(table, **options):
    """A judge that says what a row says: in the order of its first two columns."""

    def choose(first, second, question):
        number = int(question.text.prompt.split()[1])
        return table[number][not first.startswith("chosen")]

    return prefer(pair_judge(choose, **options), len(table), allow_missing=True)


def test_both_orders_together():
    pairs = judge_by(BOTH_ORDERS, template="three")
    outcomes = pairs["outcome"].astype(object).where(pairs["outcome"].notna(), None)
    assert [*zip(pairs["verdict"], outcomes, strict=True)] == [
        row[2:] for row in BOTH_ORDERS
    ]
    assert pairs["margin"].isna().all()


STRENGTHS = [
    # What is said where the first answer is shown first, and second: margin and
    # verdict.
    ("[[A>>B]]", "[[B>>A]]", 2.0, "win"),
    ("[[A>>B]]", "[[B>A]]", 1.5, "win"),
    ("[[A>B]]", "[[A=B]]", 0.5, "win"),
    ("[[A>>B]]", "[[A>B]]", 0.5, "win"),
    ("[[B>A]]", "[[B>>A]]", 0.5, "win"),
    ("[[B>>A]]", "[[A>B]]", -1.5, "loss"),
    ("[[A>>B]]", "[[A>>B]]", 0.0, "flip"),
    ("[[A=B]]", "[[A=B]]", 0.0, "tie"),
    ("[[A>>B]]", "what?", None, "unparsable"),
]


def test_a_much_better_answer_is_not_lost_to_a_slight_opposite_in_the_other_order():
    """A judge with five verdicts was read as one with three: this was a flip."""
    pairs = judge_by(STRENGTHS)
    margins = pairs["margin"].astype(object).where(pairs["margin"].notna(), None)
    assert [*zip(margins, pairs["verdict"], strict=True)] == [
        row[2:] for row in STRENGTHS
    ]
    signs = {"win": 1, "tie": 0, "loss": -1}
    outcomes = pairs["outcome"].astype(object).map(signs)
    assert outcomes.equals(np.sign(pairs["margin"]).rename("outcome"))
    assert pairs["strength"].equals(pairs["margin"].abs().rename("strength"))
    assert pairs["vote_second"].tolist()[:5] == [2.0, 1.0, 0.0, -1.0, 2.0]


def question(tmp_path, words):
    file = tmp_path / "question.txt"
    file.write_text(f"{{prompt}}\n\nA: {{answer_a}}\n\nB: {{answer_b}}\n\n{words}\n")
    return load_template(file, "pair")


@pytest.mark.parametrize(
    ("words", "has_strengths"),
    [
        ("[[A>>B]], [[A>B]], [[A=B]], [[A<B]] or [[A<<B]]", True),
        (r"\boxed{A \gg B}, \boxed{A>B}, \boxed{B>A} or \boxed{B \gg A}", True),
        ("Say A >> B, A > B, A = B, B > A or B >> A.", True),
        ("[[A>B]], [[A=B]] or [[B>A]]", False),
        ("Write [[your verdict]]: [[A]], [[B]], or [[C]] for a draw.", False),
        ("Write [[A]] or [[B]], in [[double brackets]].", False),
        ("Say A or B.", False),
    ],
)
def test_as_many_verdicts_are_told_apart_as_the_question_asks_for(
    tmp_path, words, has_strengths
):
    judge = PairJudge(
        "judge", Respondent(lambda _: "[[A>>B]]"), question(tmp_path, words)
    )
    pairs = prefer(judge, 2)
    assert ("strength" in pairs) == has_strengths
    assert pairs["margin"].notna().all() == has_strengths
    assert set(pairs["verdict"]) == {"flip"}


@pytest.mark.parametrize(
    "words",
    [
        "[[1]] if the first answer is better, otherwise [[2]]",
        "[[A>>>B]], [[A>>B]], [[A>B]], [[A=B]], [[B>A]], [[B>>A]] or [[B>>>A]]",
        r"\boxed{X} or \boxed{Y}",
    ],
)
def test_verdicts_that_nothing_can_read_are_refused_when_the_judge_is_made(
    tmp_path, words
):
    """Every reply to such a question was unparsable, after the whole run was paid."""
    question(tmp_path, words)
    with pytest.raises(DataError, match=r"question\.txt"):
        rmlab.judge("m", URL, template=tmp_path / "question.txt")


def test_missing_answers_are_counted_apart_and_refused_unless_allowed():
    answers = itertools.cycle(["[[A]]", "[[B]]", "nothing", "[[A]]", None, "[[A]]"])
    pairs = prefer(pair_judge(lambda *_: next(answers)), 6, allow_missing=True)
    provenance = pairs.attrs["provenance"]["judge"]
    assert provenance["verdicts"] == {"win": 2, "unparsable": 2, "failed": 2}
    assert provenance["failed"] == provenance["unscored"]["status 500"] == 2
    assert "no verdict in 'nothing'" in provenance["unscored"]
    assert rmlab.accuracy(pairs)[["n_pairs", "missing"]].to_numpy().tolist() == [[2, 4]]
    with pytest.raises(DataError, match=r"id 1.*nothing.*status 500"):
        prefer(pair_judge(lambda *_: next(answers)), 6)


@pytest.mark.parametrize("mode", ["rating", "ranking"])
def test_ties_are_rated_by_the_callers_rating_and_after_a_list_by_the_default(
    mode, tmp_path
):
    file = tmp_path / "own.txt"
    file.write_text("{prompt} {answer} {answers}")
    own = {"template": file, "reader": "boxed", "scale": (0, 100)}
    apart = rmlab.judge("m", URL, mode=mode, **own).by_subset["Ties"]
    expected = ("rating-ties", "letter", (1, 10))
    if mode == "rating":
        expected = (str(file), "boxed", (0, 100))
    assert (apart.template.name, apart.reader.name, apart.scale) == expected


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "pairwise", "reader": "yes-no"},
        {"mode": "logprob", "reader": "letter"},
    ],
)
def test_a_reader_that_the_question_does_not_fit_is_refused(options):
    with pytest.raises(DataError, match=options["reader"]):
        rmlab.judge("m", URL, **options)


def odds(a, b):
    top = {"A": np.log(a), " A": np.log(a), "B": np.log(b), "The": -1.0}
    return Completion("A", "length", top=top)


# A letter that the server does not name is at most as likely as the least likely token.
HALF_NAMED = Completion("A", top={"A": -0.1, "x": -3.0})
UNNAMED = Completion("x", top={"x": -0.1})


@pytest.mark.parametrize(
    ("first", "second", "margin", "verdict"),
    [
        # P(chosen) is 0.8 / 0.9 where it is shown first, 0.3 / 0.5 where it is second.
        (
            odds(0.4, 0.1),
            odds(0.1, 0.3),
            np.log((8 / 9 + 3 / 5) / (1 / 9 + 2 / 5)),
            "win",
        ),
        (odds(0.4, 0.1), odds(0.4, 0.1), 0.0, "flip"),
        (HALF_NAMED, HALF_NAMED, 0.0, "flip"),
        (UNNAMED, UNNAMED, np.nan, "unparsable"),
    ],
)
def test_log_odds_of_the_letters(first, second, margin, verdict):
    def answer(shown_first, *_):
        return first if shown_first.startswith("chosen") else second

    judge = pair_judge(answer, template="letter", letters=True)
    pairs = prefer(judge, 2, allow_missing=True)
    np.testing.assert_allclose(pairs["margin"], [margin] * 2, atol=1e-12)
    assert set(pairs["verdict"]) == {verdict}
    alone = replace(judge, one_order=True)
    shown = rmlab.prefer(responses(1), alone, progress=False, allow_missing=True)
    if first is HALF_NAMED:
        assert shown["margin"].abs().tolist() == [pytest.approx(2.9)]


def test_both_orders_are_asked_and_equal_questions_once():
    judge = pair_judge(longer)
    table = pd.concat(
        [responses(5), responses(5).assign(id=lambda frame: frame["id"] + " again")]
    )
    assert len(rmlab.prefer(table, judge, progress=False)) == 10
    shown = [
        [side.split()[0] for side in shown_answers(question.messages)]
        for question in judge.respondent.asked
    ]
    assert sorted(shown) == [["chosen", "rejected"]] * 5 + [["rejected", "chosen"]] * 5


def test_one_order_is_a_coin_that_does_not_know_which_answer_is_right():
    def is_win(labels=None, **options):
        judge = pair_judge(
            lambda *_: "[[A]]", one_order=True, template="two", **options
        )
        pairs = rmlab.prefer(
            responses(400).replace({"label": labels or {}}), judge, progress=False
        )
        assert len(judge.respondent.asked) == 400
        return (pairs["outcome"] == "win").to_numpy()

    assert 160 < is_win().sum() < 240
    assert (is_win({"chosen": "rejected", "rejected": "chosen"}) != is_win()).all()


def focus(n):
    """One right and three wrong answers to each prompt."""
    table = responses(n, answers=3).assign(
        benchmark="reward-bench-2", domain="Focus", subset="Focus"
    )
    return table[(table["label"] == "rejected") | (table["slot"] == 0)]


def ties():
    """A pair of Ties prompts."""
    counts = [
        ("ref", "chosen", 1),
        ("ref", "rejected", 2),
        ("tied", "chosen", 3),
        ("tied", "rejected", 2),
    ]
    rows = [
        (f"{kind}:0", label, slot, f"{label} {slot} {kind}")
        for kind, label, n in counts
        for slot in range(n)
    ]
    table = pd.DataFrame(rows, columns=["id", "label", "slot", "response"])
    return table.assign(
        benchmark="reward-bench-2",
        domain="Ties",
        subset="Ties",
        prompt="Name a colour.",
    )


def choose(question):
    """The letter of the right answer; a rating where the question wants one."""
    rights = [
        answer.startswith("chosen") for answer in shown_answers(question.messages)
    ]
    return (
        f"[[{'ABCD'[rights.index(True)]}]]"
        if len(rights) > 1
        else "[[9]]"
        if rights[0]
        else "[[2]]"
    )


def rater(answer, template="rating", **options):
    return AnswerJudge(
        "judge", Respondent(answer), load_template(template, "answer"), **options
    )


def lister(answer, published=False, **options):
    """A judge of lists; Ties are rated."""
    ties_options = {}
    if published:
        ties_options = {"reader": PUBLISHED_RATING, "unread": -1.0}
        options |= {"reader": PUBLISHED_LETTER, "unread": 0.0}
    apart = rater(answer, "rating-ties", **ties_options)
    ranking = load_template("ranking", "list")
    by_subset = {"Ties": apart}
    return ListJudge("judge", apart.respondent, ranking, by_subset=by_subset, **options)


def test_best_of_four_and_ties_by_ratings(tmp_path):
    """Ties were not counted, and a run on Ties alone replaced the table of all
    subsets.
    """
    judge = lister(choose)
    table = pd.concat([focus(8), ties()])
    scores = score(judge, table, store=tmp_path)
    provenance = scores.attrs["provenance"]["judge"]
    assert provenance["asked"] == provenance["questions"] == 16
    assert provenance["scored"] == provenance["texts"] == len(table)
    score(judge, ties(), store=tmp_path)
    assert len(rmlab.read_scores(tmp_path)) == len(table)

    assert best_of(scores[scores["domain"] == "Focus"])["credit"].tolist() == [1.0] * 8
    (row,) = rmlab.metrics.ties_score(scores[scores["domain"] == "Ties"]).itertuples()
    assert row.accuracy_tied == row.accuracy_ref == 1.0
    assert set(scores["verdict"]) == {"ranked", "rated"}
    scores = score(lister(lambda _: "[[A]]"), focus(400))
    assert 0.18 < best_of(scores)["credit"].mean() < 0.32, (
        "a fixed letter earns a quarter"
    )
    with pytest.raises(DataError, match=r"28 .*26"):
        score(judge, responses(1, answers=14).assign(domain="Focus"))


def test_ratings_and_their_mean():
    answers = itertools.cycle(["[[2]]", "[[4]]", "none", "[[7]]", "none", "none"])
    judge = rater(lambda _: next(answers), samples=2)
    scores = score(judge, responses(3).iloc[::2], allow_missing=True)
    np.testing.assert_equal(scores["score"].to_numpy(), [3.0, 7.0, np.nan])
    assert scores["verdict"].tolist() == ["rated", "rated", "unparsable"]


def test_what_cannot_be_read_counts_as_the_runners_count_it():
    options = {
        "one_order": True,
        "reader": PUBLISHED_LETTER,
        "unread": 0.0,
        "template": "two",
    }
    pairs = prefer(pair_judge(lambda *_: "no idea", **options), 10)
    assert set(pairs["verdict"]) == {"unparsable"}
    assert rmlab.accuracy(pairs, ties="half")["accuracy"].tolist() == [0.5]
    list_judge = lister(lambda _: "no idea", published=True)
    assert best_of(score(list_judge, focus(5)))["credit"].tolist() == [0.25] * 5
    assert set(score(list_judge, ties())["score"]) == {-1.0}
    failed = prefer(pair_judge(lambda *_: None, **options), 2, allow_missing=True)
    assert failed["outcome"].isna().all(), "no answer is asked for again, not counted"


@pytest.mark.parametrize(
    ("convention", "reader", "unread"),
    [
        ("reward-bench", PUBLISHED_LETTER, 0.0),
        ("reward-bench-2", PUBLISHED_LETTER, 0.0),
        ("reward-bench-2-ratings", PUBLISHED_RATING, -1.0),
    ],
)
def test_a_convention_reads_as_its_runner_does(convention, reader, unread):
    judge = rmlab.judge("m", URL, convention=convention)
    assert (judge.reader, judge.unread) == (reader, unread)
    for ties_judge in judge.by_subset.values():
        assert (ties_judge.reader, ties_judge.unread) == (PUBLISHED_RATING, -1.0)
        # The question asks for what is read.
        assert "brackets" not in ties_judge.template.text
    for fixed in ({"reader": "letter"}, {"scale": (1, 5)}, {"temperature": 1}):
        with pytest.raises(DataError, match=convention):
            rmlab.judge("m", URL, convention=convention, **fixed)
