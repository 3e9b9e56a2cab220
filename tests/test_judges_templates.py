"""Questions: shipped ones and a caller's own, places filled once, nothing in an answer mistaken for a place."""

import pytest

from rmlab.judges import load_template, shipped
from rmlab.judges.questions import reworded
from rmlab.tables import DataError

SHOWS = {"ranking": "list"} | {name: "answer" for name in shipped() if name.startswith("rating")}


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_question_shows_what_it_asks_about(name):
    template = load_template(name, SHOWS.get(name, "pair"))
    answers = ["first answer"] if SHOWS.get(name) == "answer" else ["first answer", "second answer"]
    text = "\n".join(part["content"] for part in template.messages("What is blue?", answers))
    assert text.count("What is blue?") == 1
    assert all(text.count(answer) == 1 for answer in answers)
    assert "{" not in text.replace(r"\boxed{", "")
    if len(answers) == 2:
        assert text.index("first answer") < text.index("second answer")


def test_what_an_answer_holds_is_no_place():
    template = load_template("five", "pair")
    text = template.messages("{answer_b} and {x}", ["{prompt}", r"\1 {answer_a}"])[-1]["content"]
    assert "{answer_b} and {x}" in text
    assert "<answer_a>\n{prompt}\n</answer_a>" in text
    assert "<answer_b>\n\\1 {answer_a}\n</answer_b>" in text


def test_a_file_of_ones_own(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("[system]\nBe strict.\n[user]\nQ {prompt} A {answer_a} B {answer_b}\n")
    messages = load_template(file, "pair").messages("q", ["a", "b"])
    assert messages == [{"role": "system", "content": "Be strict."}, {"role": "user", "content": "Q q A a B b"}]
    file.write_text("{prompt}: {answer_a} {answer_b} {answer_c} {answer_d}")
    assert load_template(file, "list").messages("q", list("wxyz")) == [{"role": "user", "content": "q: w x y z"}]


@pytest.mark.parametrize("text", ["{prompt} {answer_a}", "[user]\n{prompt}\n[user]\n", "x\n[user]\n"])
def test_a_file_that_cannot_be_a_question(tmp_path, text):
    (tmp_path / "bad.txt").write_text(text)
    with pytest.raises(DataError, match=r"bad\.txt"):
        load_template(tmp_path / "bad.txt", "pair")


def test_unknown_names():
    with pytest.raises(DataError, match="'rating'"):
        load_template("ratng", "answer")
    assert reworded(load_template("two", "pair"), "pair").name == "two-reworded"
    with pytest.raises(DataError, match="reworded_template"):
        reworded(load_template("ranking", "list"), "list")
