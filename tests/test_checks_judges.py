"""The doctor on judges: each fault in its own row, with what to do about it."""

import pytest
from judge_fakes import Respondent, longer, pair_judge, responses

import rmlab
from rmlab.judges.modes import AnswerJudge
from rmlab.judges.questions import Answer, load_template


def rows(judge, n=20):
    return rmlab.doctor(judge, responses(n), sample=20).set_index("check")


def test_a_sound_judge_passes():
    found = rows(pair_judge(longer))
    assert found.index.tolist() == ["answers", "model", "verdict", "length", "position", "cost"]
    assert set(found["status"]) == {"pass"}
    assert "40 questions in all" in found.loc["cost", "found"]
    assert found.loc["answers", "found"].startswith("0 of 20 "), "ten of twenty prompts, both orders"


def some(share, bad):
    """A rule that answers in the `bad` way to a share of the questions."""
    return lambda first, second, question: bad if question.seed // 7 % 100 < 100 * share else longer(first, second)


@pytest.mark.parametrize(
    ("choose", "check", "status"),
    [
        (some(0.2, None), "answers", "warn"),
        (some(0.95, None), "answers", "fail"),
        (some(0.2, "hm"), "verdict", "warn"),
        (some(0.95, "hm"), "verdict", "fail"),
        (lambda *_: "[[A]]", "position", "fail"),
        (some(0.4, Answer("[[A>B]]", "length")), "length", "warn"),
        (lambda *_: Answer("[[A=B]]", model="another"), "model", "warn"),
        (some(0.5, Answer("[[A=B]]", model="another")), "model", "warn"),
    ],
)
def test_each_fault_is_named(choose, check, status):
    found = rows(pair_judge(choose))
    assert found.loc[check, "status"] == status
    assert found.loc[check, "remedy"]


def test_nothing_more_is_said_of_a_judge_that_never_answers():
    assert rows(pair_judge(lambda *_: None)).index.tolist() == ["answers"]


def test_a_judge_that_rates_is_not_asked_about_positions():
    judge = AnswerJudge("rater", Respondent(lambda _: "[[8]]"), load_template("rating", "answer"))
    assert rows(judge).index.tolist() == ["answers", "model", "verdict", "length", "cost"]


def test_no_question_is_asked_twice():
    asked = []
    rows(pair_judge(lambda first, second, question: asked.append((first, second)) or "[[A=B]]"))
    assert len(asked) == len(set(asked)) == 20
