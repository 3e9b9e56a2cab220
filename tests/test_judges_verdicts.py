"""What answers say: formats, reasoning taken off, the last verdict, and nothing read where nothing is said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmlab.judges.verdicts import read_letter, read_pair, read_rating, without_reasoning

VERDICTS = {
    2: ["[[A>>B]]", "[[B<<A]]", "[[A≫B]]", r"$$\boxed{A \gg B}$$", "Verdict: A>>B"],
    1: ["[[A>B]]", "[[ A > B ]]", "[[A&gt;B]]", r"So \boxed{A>B}", "[[A]]", "A"],
    0: ["[[A=B]]", r"\boxed{[[A=B]]}", "[[tie]]", "[[Tie]]"],
    -1: ["[[B>A]]", "[[A<B]]", r"\boxed{\text{B>A}}", "[[B]]", "[[Assistant B]]", "**B**", "Talk.\n\nVerdict: **B**"],
    -2: ["[[B>>A]]"],
    None: ["", "A is better.", "[[A>A]]", "[[C]]", "[[]]", "[[A>>>B]]", "[[yes]]", r"\boxed{}", "[[A", "A or B"],
}
RATINGS = {
    7: ["[[7]]", "[[7/10]]"],
    7.5: ["[[7.5]]"],
    9: ["Rating: 9/10", "Good.\n\n9", r"\boxed{9}"],
    10: ["[[10]]"],
    None: ["[[0]]", "[[11]]", "[[100]]", "[[-3]]", "7 of 10", "[[seven]]", "in 1998"],
}


@pytest.mark.parametrize(("read", "table"), [(read_pair, VERDICTS), (read_rating, RATINGS)])
def test_verdicts_and_ratings(read, table):
    for value, texts in table.items():
        assert {text: read(text) for text in texts} == dict.fromkeys(texts, value)


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
