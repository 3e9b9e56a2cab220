"""What answers say: formats, reasoning taken off, the last verdict, and nothing read where nothing is said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmlab.judges.verdicts import read_letter, read_pair, read_rating, without_reasoning


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[[A>>B]]", 2), ("[[A>B]]", 1), ("[[A=B]]", 0), ("[[B>A]]", -1), ("[[B>>A]]", -2),
        ("[[ A > B ]]", 1), ("[[A<B]]", -1), ("[[B<<A]]", 2), ("[[A≫B]]", 2), ("[[A&gt;B]]", 1),
        (r"So \boxed{A>B}", 1), (r"$$\boxed{A \gg B}$$", 2), (r"\boxed{\text{B>A}}", -1), (r"\boxed{[[A=B]]}", 0),
        ("[[A]]", 1), ("[[B]]", -1), ("[[Assistant B]]", -1), ("[[tie]]", 0), ("[[Tie]]", 0),
        ("A", 1), ("**B**", -1), ("B.", -1), ("Verdict: A>>B", 2), ("Long talk.\n\nFinal verdict: **B**", -1),
    ],
)  # fmt: skip
def test_verdicts_on_two_answers(text, found):
    assert read_pair(text) == found


@pytest.mark.parametrize(
    "text",
    ["", "  \n", "A is better.", "[[A>A]]", "[[C]]", "[[]]", "[[A>>>B]]", "[[yes]]", r"\boxed{}", "[[A", "A or B"]
)  # fmt: skip
def test_what_says_nothing_is_nothing(text):
    assert read_pair(text) is None


def test_a_letter_for_a_draw_only_where_the_question_offers_one():
    assert read_pair("[[C]]", draw="C") == 0
    assert read_pair("[[C]]") is None


def test_the_last_verdict_counts():
    assert read_pair("[[A>>B]] at first, then [[B>A]]. See [[1]] and [[note]].") == -1
    assert read_rating("[[3]] no, [[8]]") == 8
    assert read_letter(r"[[A]] but \boxed{D}", 4) == 3


@pytest.mark.parametrize("tag", ["think", "thinking", "reasoning", "THINK"])
def test_reasoning_is_no_verdict(tag):
    opened, closed = (f"<{tag}>", f"</{tag}>") if tag != "THINK" else ("[THINK]", "[/THINK]")
    assert read_pair(f"{opened}[[A>B]]{closed}[[B>A]]") == -1
    assert read_pair(f"it seems [[A>B]]{closed}\n[[B>A]]") == -1, "the opening tag stood in the template"
    assert read_pair(f"{opened}[[A>B]]{closed} I cannot say.") is None
    assert read_pair(f"{opened} I am sure: [[A>B]]") is None, "it never ended"
    assert read_pair(f"{opened}a{closed}{opened}[[A]]{closed}[[B]]") == -1


@pytest.mark.parametrize(
    ("text", "found"),
    [("[[7]]", 7), ("[[10]]", 10), ("[[1]]", 1), ("[[7/10]]", 7), ("[[7.5]]", 7.5), ("Good.\n\n8", 8),
     ("Rating: 9/10", 9), (r"\boxed{4}", 4),
     ("[[0]]", None), ("[[11]]", None), ("[[100]]", None), ("[[-3]]", None), ("7 of 10", None),
     ("[[seven]]", None), ("in 1998", None)],
)  # fmt: skip
def test_ratings(text, found):
    assert read_rating(text) == found


def test_letters_that_were_not_shown_are_no_choice():
    assert [read_letter(f"[[{letter}]]", 4) for letter in "ABCDE"] == [0, 1, 2, 3, None]
    assert read_letter("[[AB]]", 4) is None


@given(st.text(max_size=200), st.sampled_from(["[[A>>B]]", "[[A>B]]", "[[A=B]]", "[[B>A]]", "[[B>>A]]"]))
def test_a_verdict_at_the_end_is_read_whatever_stands_before(text, verdict):
    if not without_reasoning(text + "x"):
        return
    values = {"[[A>>B]]": 2, "[[A>B]]": 1, "[[A=B]]": 0, "[[B>A]]": -1, "[[B>>A]]": -2}
    assert read_pair(f"{text}\n{verdict}") == values[verdict]


@given(st.text(max_size=300))
def test_any_text_is_read_without_an_error(text):
    read_pair(text, draw="C")
    read_letter(text, 4)
    assert read_rating(text) is None or 1 <= read_rating(text) <= 10
