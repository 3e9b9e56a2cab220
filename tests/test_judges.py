"""Judges without a server: what answers say, outcomes and verdicts, votes, orders, best
of four, ratings.
"""

import itertools
from dataclasses import replace
from functools import partial

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
from rmlab.store import Store
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


def test_strengths_are_averaged_over_samples_and_one_order_has_its_own():
    answers = iter(["[[A>>B]]", "[[A>B]]", "[[A>B]]", "[[A=B]]"])
    pairs = prefer(pair_judge(lambda *_: next(answers), samples=2), 1)
    # Shown first: much and slightly better. Shown second: slightly worse, and a draw.
    assert pairs["margin"].tolist() == [(1.5 - 0.5) / 2]
    assert pairs["outcome"].tolist() == ["win"]
    pairs = prefer(pair_judge(lambda *_: "[[A>>B]]", one_order=True), 5)
    assert set(pairs["strength"]) == {2.0}
    assert set(pairs["verdict"]) <= {"win", "loss"}


def test_opposed_votes_of_several_samples_are_a_flip_and_a_tie():
    """Three samples an order: +1 where it is shown first, -1/3 where it is second."""
    said = ["AAAAAB", "AAABBB", "ABBBBB", "AABABB"]
    answers = (f"[[{letter}]]" for letter in "".join(said))
    judge = pair_judge(lambda *_: next(answers), template="three", samples=3)
    pairs = prefer(judge, len(said))
    votes = pairs[["vote_first", "vote_second"]].to_numpy()
    is_opposed = votes[:, 0] * votes[:, 1] < 0
    assert (pairs["verdict"] == "flip").tolist() == is_opposed.tolist()
    assert (pairs["outcome"] == "tie")[is_opposed].all()
    assert is_opposed.any()
    assert not is_opposed.all()


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


def test_a_convention_refuses_verdicts_that_its_runner_does_not_read(tmp_path):
    question(tmp_path, "[[A>>B]], [[A>B]], [[B>A]] or [[B>>A]]")
    with pytest.raises(DataError, match="A>>B"):
        rmlab.judge(
            "m", URL, template=tmp_path / "question.txt", convention="reward-bench"
        )


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


def test_ties_are_rated_by_the_callers_rating_and_after_a_list_by_the_default(tmp_path):
    file = tmp_path / "own.txt"
    file.write_text("{prompt} {answer}")
    own = {"template": file, "reader": "boxed", "scale": (0, 100)}
    judge = rmlab.judge("m", URL, mode="rating", **own)
    apart = judge.by_subset["Ties"]
    assert apart.template == judge.template
    assert (apart.reader, apart.scale) == (judge.reader, judge.scale)

    judge = rmlab.judge("m", URL, mode="ranking", reader="letter", scale=(0, 100))
    apart = judge.by_subset["Ties"]
    assert apart.template.name == "rating-ties"
    assert (apart.reader.name, apart.scale) == (DEFAULT.name, (1, 10))


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


def test_the_choices_whose_tokens_are_read_tell_stored_answers_apart():
    letters = rmlab.judge("m", URL, mode="logprob").respondent
    words = replace(letters, sampling=replace(letters.sampling, choices=("Yes", "No")))
    assert letters.fingerprint != words.fingerprint
    assert letters.fields == words.fields


def odds(a, b):
    return Completion(
        "A",
        "length",
        top={"A": np.log(a), " A": np.log(a), "B": np.log(b), "The": -1.0},
    )


def test_log_odds_of_the_letters():
    letters = partial(pair_judge, template="letter", letters=True)
    chosen_first = odds(0.4, 0.1)

    def answer(first, second, question):
        return chosen_first if first.startswith("chosen") else odds(0.1, 0.3)

    pairs = prefer(letters(answer), 3)
    # P(chosen) is 0.8 / 0.9 where it is shown first, 0.3 / 0.5 where it is shown
    # second.
    mean = (8 / 9 + 3 / 5) / 2
    assert pairs["margin"].tolist() == [pytest.approx(np.log(mean / (1 - mean)))] * 3
    assert pairs["outcome"].tolist() == pairs["verdict"].tolist() == ["win"] * 3
    pairs = prefer(letters(lambda *_: chosen_first), 3)
    assert pairs["margin"].abs().max() < 1e-12
    assert set(pairs["verdict"]) == {"flip"}
    # A letter that the server does not name is at most as likely as the least likely
    # token.
    one = Completion("A", top={"A": -0.1, "x": -3.0})
    pairs = prefer(letters(lambda *_: one, one_order=True), 1)
    assert pairs["margin"].abs().tolist() == [pytest.approx(2.9)]
    none = Completion("x", top={"x": -0.1})
    silent = prefer(letters(lambda *_: none), 1, allow_missing=True)
    assert silent["verdict"].tolist() == ["unparsable"]


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
    assert (is_win(seed=1) != is_win()).any()


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


def test_best_of_four_and_ties_by_ratings():
    judge = lister(choose)
    scores = score(judge, pd.concat([focus(8), ties()]))
    assert best_of(scores[scores["domain"] == "Focus"])["credit"].tolist() == [1.0] * 8
    (row,) = rmlab.metrics.ties_score(scores[scores["domain"] == "Ties"]).itertuples()
    assert row.accuracy_tied == row.accuracy_ref == 1.0
    assert set(scores["verdict"]) == {"ranked", "rated"}
    words = [question.template.name for question in judge.respondent.asked]
    assert (words.count("ranking"), words.count("rating-ties")) == (8, 8)
    scores = score(lister(lambda _: "[[A]]"), focus(400))
    assert 0.18 < best_of(scores)["credit"].mean() < 0.32, (
        "a fixed letter earns a quarter"
    )


def test_counts_are_of_the_whole_run_and_ties_alone_replace_no_table(tmp_path):
    """Ties were not counted, a store's header had the counts of a first batch, and a
    run on Ties alone replaced the table of all subsets.
    """
    table = pd.concat([focus(8), ties()])
    judge = lister(choose)
    about = score(judge, table, store=tmp_path).attrs["provenance"]["judge"]
    assert about["asked"] == about["questions"] == 16
    assert about["scored"] == about["texts"] == len(table)
    assert (
        about["subsets"]["Ties"]["fingerprint"] == judge.by_subset["Ties"].fingerprint
    )
    store = Store(tmp_path)
    for fingerprint in store.fingerprints():
        assert len(store.read(fingerprint)) in (8, len(focus(8)))
        (run,) = store.runs(fingerprint).values()
        assert not {"asked", "questions"} & set(run)

    again = score(judge, ties(), store=tmp_path).attrs["provenance"]["judge"]
    assert again["asked"] == 0
    assert len(rmlab.read_scores(tmp_path)) == len(table)


def test_ratings_and_their_mean():
    answers = itertools.cycle(["[[2]]", "[[4]]", "none", "[[7]]", "none", "none"])
    judge, table = (
        rater(lambda _: next(answers), samples=2),
        responses(3).query("label == 'chosen'"),
    )
    scores = score(judge, table, allow_missing=True)
    assert scores["score"].fillna(-9).tolist() == [3.0, 7.0, -9]
    assert scores["verdict"].tolist() == ["rated", "rated", "unparsable"]
    with pytest.raises(DataError, match=r"id 2.*none"):
        score(judge, table)


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


def test_judges_are_scorers():
    pair, single = pair_judge(longer), rater(choose)
    assert pair.prefer(["q"] * 2, ["long one", "x"], ["x", "long one"]).tolist() == [
        1,
        -1,
    ]
    assert single(["q"], ["chosen"]).tolist() == [9.0]
    with pytest.raises(DataError, match=r"28 .*26"):
        score(lister(choose), responses(1, answers=14).assign(domain="Focus"))
