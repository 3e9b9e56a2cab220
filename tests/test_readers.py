"""Replies in the forms that published judges write, read by name, by an expression and
by a function; questions with roles, and criteria.
"""

import numpy as np
import pytest
from faulty_server import FaultyServer
from judge_fakes import Respondent, completion, responses, shown_answers

import rmlab
from rmlab.judges import load_template
from rmlab.judges.kinds import AnswerJudge, PairJudge
from rmlab.judges.questions import Completion
from rmlab.judges.readers import choose_reader
from rmlab.tables import DataError

URL = "http://127.0.0.1:9/v1"

# Mode, reader, scale, reply, and what it says: a vote for the first answer, or a score.
FORMS = [
    # RM-R1, and JudgeLRM's two scores
    ("pair", "tag", (1, 10), "<think>[[A]]</think>e <answer>[[B]]</answer>", -1),
    ("pair", "tag", (1, 10), "<think>...</think>\n<answer>8 6.5</answer>", 1.5),
    ("pair", "tag", (1, 10), "<answer>Assistant 1: 8, Assistant 2: 9</answer>", -1),
    ("pair", "tag", (1, 10), "<answer>8 12</answer>", None),
    ("pair", "tag", (1, 10), "I say [[A]], but without an answer", None),
    # Skywork-Critic, CompassJudger-2, RISE
    ("pair", "letter", (1, 10), "Both are polite, and A is right. [[A]]", 1),
    ("pair", "letter", (1, 10), "**B**", -1),
    ("pair", "letter", (1, 10), "<think>[[A]]</think>Final Answer: B\nDone.", -1),
    ("pair", "letter", (1, 10), "A is better than B", None),
    ("pair", "json:Choice", (1, 10), '```json\n{"Choice": "Model A"}\n```', 1),
    ("pair", "json:Choice", (1, 10), 'So {"why": "x {y}", "Choice": "B"} it is', -1),
    ("pair", "json:Choice", (1, 10), '{"Choice": "neither of 2 is 1"}', None),
    ("pair", "strength", (1, 10), "[[A>B]] at first, then [[B>>A]]", -2),
    # OffsetBias
    ("pair", "letter", (1, 10), "Output (a)", 1),
    ("pair", "letter", (1, 10), "Output (b)", -1),
    # Selene and Prometheus 2
    ("pair", "result", (1, 5), "**Reasoning:** good\n\n**Result:** B", -1),
    ("pair", "result", (1, 5), "Feedback: clear. [RESULT] A", 1),
    ("answer", "result", (1, 5), "Feedback: clear. [RESULT] 4", 4),
    ("answer", "result", (1, 5), "Feedback: clear. [RESULT] 6", None),
    ("answer", "result", (1, 5), "**Reasoning:** good\n\n**Result:** 2", 2),
    # R3, LMUnit
    ("answer", "json:score", (1, 5), '<think>2?</think>{"why": "e", "score": 4}', 4),
    ("answer", "json:score", (1, 5), '{"score": "4.5"}', 4.5),
    ("answer", "json:score", (1, 5), '{"score": 4', None),
    # NVIDIA's GenRM: scores of both answers, then a score of the ranking
    ("pair", "boxed", (1, 5), r"Scores \boxed{4, 2} Ranking \boxed{1}", 2),
    ("pair", "boxed", (1, 5), r"\boxed{4, 7}", None),
    ("pair", "boxed", (1, 10), r"\boxed{\text{A}}", 1),
    ("answer", "boxed", (1, 10), r"\boxed{7}", 7),
    ("answer", "boxed", (-3, 3), r"\boxed{-2.5}", -2.5),
    # Ratings in words
    ("answer", "scores", (1, 10), "I give it 8 out of 10, for 3 reasons.", 8),
    ("answer", "scores", (1, 10), "It took 3 tries.\n\n**8**", 8),
    ("answer", "scores", (0, 100), "Score: 80", 80),
    ("answer", "scores", (1, 10), "Score: 80", None),
    ("answer", "scores", (1, 10), "It took 3 tries of 10 minutes", None),
    ("pair", "scores", (1, 10), "8 6\nThe first has 2 examples and 3 sources.", 2),
    ("pair", "scores", (1, 10), "Assistant A: 6/10\nAssistant B: 8/10", -2),
    ("answer", "scores", (1, 10), "It says\n4\nwhich is right. **Score: 9**", 9),
    # Two lines, of which each names its answer
    ("pair", "scores", (1, 10), "Assistant 1: 8\nAssistant 2: 6", 2),
    ("pair", "scores", (1, 10), "Response 1: 9\nResponse 2: 4", 5),
    ("pair", "scores", (1, 10), "**Assistant 1**: 8\n**Assistant 2**: 6", 2),
    ("pair", "scores", (1, 10), "Assistant 1: 8/10\nAssistant 2: 6/10", 2),
    ("pair", "scores", (1, 10), "Assistant 2: 6\nAssistant 1: 8", 2),
    ("pair", "scores", (1, 10), "Assistant A: 8\n\nAssistant B: 7", 1),
    ("pair", "scores", (1, 10), "1: 8\n2: 6", 2),
    ("pair", "tag", (1, 10), "<answer>Model 1: 8\nModel 2: 6</answer>", 2),
    ("pair", "scores", (1, 10), "Assistant 2: 6", None),
    ("pair", "scores", (1, 10), "2: 6", None),
    ("pair", "scores", (1, 10), "A: 6, A: 7", None),
    # Two scores, and one number that is none
    ("pair", "scores", (1, 10), "8 7", 1),
    ("pair", "scores", (1, 10), "1 7", -6),
    ("pair", "scores", (1, 10), "2, 10", -8),
    ("pair", "scores", (1, 10), "8, 6", 2),
    ("pair", "scores", (1, 10), "8\n6", 2),
    ("pair", "scores", (1, 10), "7.5 7.25", 0.25),
    ("pair", "scores", (1, 10), "85", None),
    ("pair", "scores", (1, 10), "7.55", None),
    ("pair", "boxed", (1, 10), r"\boxed{42}", None),
    ("pair", "json:score", (0, 100), '{"score": 85}', None),
    # The last one counts, in whatever form
    ("pair", "letter", (1, 10), "[[A]] at first ... \nAnswer: B", -1),
    ("pair", "letter", (1, 10), "Answer: A\nNo: [[B]], all in all.", -1),
    ("pair", None, (1, 10), "[[A]] at first.\n\nB", -1),
    # Bold numbers
    ("answer", None, (1, 10), "Rating: **9**", 9),
    ("answer", None, (1, 10), "Fine.\n**Rating**: 9/10", 9),
    ("answer", None, (1, 10), "**Score: 7.5**", 7.5),
    # No verdict, though both are named
    ("pair", "letter", (1, 10), "Output (a) is better than Output (b).", None),
    ("pair", "letter", (1, 10), "I take Output (b). Output (b) is short.", -1),
    # The last one counts, and outside the scale it is none
    ("answer", None, (1, 10), "[[7]] at first; no, [[11]]", None),
    ("answer", "boxed", (1, 10), r"\boxed{5} ... Score: \boxed{11}", None),
    ("answer", "scores", (1, 10), "Score: 5\nRather: Score: 11", None),
    ("pair", "boxed", (1, 10), r"\boxed{8, 6} or \boxed{80, 60}", None),
    ("answer", "json:score", (1, 10), '{"why": "one\ntwo", "score": 4}', 4),
    ("answer", None, (-3, 3), "[[+2]]", 2),
    ("answer", "scores", (-3, 3), "**+2**", 2),
    # Two numbers are no rating
    ("answer", None, (0, 100), "Response 2: 6", None),
    ("answer", None, (0, 100), "[[4, 9]]", None),
    ("answer", None, (0, 100), "[[ 49 / 100 ]]", 49),
    # Expressions and functions
    ("answer", lambda reply: np.float32(7), (1, 10), "whatever", 7),
    ("answer", lambda reply: np.int64(7), (1, 10), "whatever", 7),
    ("answer", lambda reply: float("nan"), (1, 10), "whatever", None),
    ("pair", lambda reply: np.float32(-1), (1, 10), "whatever", -1),
    ("pair", lambda reply: [7, 4], (1, 10), "whatever", 3),
    ("pair", lambda reply: np.array([7, 4]), (1, 10), "whatever", 3),
    ("pair", lambda reply: [7, float("nan")], (1, 10), "whatever", None),
    ("pair", lambda reply: float("nan"), (1, 10), "whatever", None),
    ("pair", lambda reply: 85, (1, 10), "whatever", None),
    ("answer", r"Judgement: (\d)", (1, 5), "Judgement: 2. No: Judgement: 3.", 3),
    ("pair", r"A=(\d+) B=(\d+)", (1, 10), "A=3 B=5", -2),
    ("pair", lambda reply: (7, 4) if "seven" in reply else None, (1, 10), "seven", 3),
    ("pair", lambda reply: "B", (1, 10), "whatever", -1),
    ("answer", lambda reply: None, (1, 10), "whatever", None),
]


def judge_of(mode, reply, **options):
    kind, template = {"pair": (PairJudge, "two"), "answer": (AnswerJudge, "rating")}[
        mode
    ]
    question = load_template(template, mode)
    return kind("judge", Respondent(lambda _: reply), question, **options)


@pytest.mark.parametrize(("mode", "reader", "scale", "reply", "value"), FORMS)
def test_published_forms_are_read(mode, reader, scale, reply, value):
    judge = judge_of(mode, reply, reader=choose_reader(reader), scale=scale)
    ask = rmlab.prefer if mode == "pair" else rmlab.score
    table = ask(responses(1), judge, allow_missing=True)
    column = "vote_first" if mode == "pair" else "score"
    assert table[column].fillna(-99).iloc[0] == (-99 if value is None else value)
    assert (table["verdict"] == "unparsable").all() == (value is None)


def test_a_reply_that_was_cut_has_only_the_verdict_of_its_last_line():
    cut = Completion("<answer>[[A]]</answer> or rather, on second thoughts,", "length")
    judge = judge_of("pair", cut, reader=choose_reader("tag"))
    pairs = rmlab.prefer(responses(1), judge, allow_missing=True)
    assert pairs["verdict"].tolist() == ["unparsable"]
    assert "second thoughts" in str(pairs.attrs["provenance"]["judge"]["unscored"])


def test_two_scores_give_a_margin_in_both_orders():
    judge = judge_of("pair", r"\boxed{4, 2}", reader=choose_reader("boxed"))
    pairs = rmlab.prefer(responses(2), judge)
    columns = ["vote_first", "vote_second", "margin", "strength"]
    assert pairs[columns].to_numpy().tolist() == [[2.0, -2.0, 0.0, 0.0]] * 2
    assert set(pairs["verdict"]) == {"flip"}


def test_equal_differences_in_opposed_orders_are_a_flip():
    def reply(question):
        is_first = shown_answers(question.messages)[0] == responses(1)["response"][0]
        return "7.3 7.1" if is_first else "8.3 8.1"

    question = load_template("two", "pair")
    reader = choose_reader("scores")
    judge = PairJudge("judge", Respondent(reply), question, reader=reader)
    pairs = rmlab.prefer(responses(1), judge)
    assert pairs["verdict"].tolist() == ["flip"]
    assert pairs["margin"].tolist() == [0.0]


LETTER_READERS = {
    "boxed": r"\boxed{%s}",
    "tag": "<answer>%s</answer>",
    "result": "[RESULT] %s",
    "json:Choice": '{"Choice": "%s"}',
    "scores": "%s",
}


@pytest.mark.parametrize("reader", [*LETTER_READERS, None])
def test_a_reader_that_reads_letters_gives_votes_and_one_of_numbers_strengths(reader):
    """Samples A, A, A and A, A, B were a win with a margin."""
    form = LETTER_READERS.get(reader, "%s")

    def ask(*samples):
        replies = iter([form % sample for sample in samples])
        judge = judge_of(
            "pair", None, reader=choose_reader(reader or (lambda text: text)), samples=3
        )
        judge.respondent.answer = lambda _: next(replies)
        return judge, rmlab.prefer(responses(1), judge)

    if reader != "scores":
        judge, pairs = ask(*"AAA", *"AAB")
        assert pairs["verdict"].tolist() == ["flip"]
        assert pairs["vote_second"].tolist() == [pytest.approx(-1 / 3)]
        assert pairs["margin"].isna().all()
        assert "strength" not in pairs
        replies = iter([form % letter for letter in "AAAAAB"])
        judge.respondent.answer = lambda _: next(replies)
        assert judge.prefer(["p"], ["x"], ["y"]).tolist() == [0.0]

    judge, pairs = ask("7, 4", "7, 4", "7, 4", "6, 5", "6, 5", "4, 5")
    # Shown first 3 better; shown second 1, 1 worse and 1 better.
    assert pairs["margin"].tolist() == [pytest.approx((3 - 1 / 3) / 2)]
    assert pairs["verdict"].tolist() == ["win"]
    assert pairs["strength"].tolist() == pairs["margin"].tolist()


def test_what_most_replies_hold_decides_between_votes_and_strengths():
    def ask(*samples):
        replies = iter([rf"\boxed{{{sample}}}" for sample in samples])
        judge = judge_of("pair", None, reader=choose_reader("boxed"), samples=2)
        judge.respondent.answer = lambda _: next(replies)
        return rmlab.prefer(responses(1), judge).iloc[0]

    letters = ask("A", "9, 2", "B", "B")
    assert letters[["vote_first", "vote_second"]].tolist() == [1.0, 1.0]
    assert np.isnan(letters["margin"])
    scores = ask("9, 2", "A", "2, 9", "4, 8")
    assert scores[["vote_first", "vote_second"]].tolist() == [4.0, 5.5]
    assert scores["margin"] == 4.75


@pytest.mark.parametrize("reader", ["lettr", "no group", "(", "json:", "(a)(b)(c)"])
def test_a_reader_that_cannot_be_one_is_refused(reader):
    with pytest.raises(DataError, match="reader"):
        rmlab.judge("m", URL, reader=reader)


def test_yes_and_no_are_read_from_log_probabilities(tmp_path):
    file = tmp_path / "question.txt"
    file.write_text("Is {answer} right for {prompt}? Yes or No.")
    top = [
        {"token": " Yes", "logprob": -0.5},
        {"token": "no", "logprob": -2.0},
        {"token": "No", "logprob": -3.0},
    ]
    choice = {"token": " Yes", "logprob": -0.5, "top_logprobs": top}
    reply = completion("Yes", logprobs={"content": [choice]})
    with FaultyServer(lambda *_: reply) as server:
        options = {"mode": "rating", "reader": "yes-no", "template": file}
        judge = rmlab.judge("m", server.url, **options)
        scores = rmlab.score(responses(1), judge, progress=False)
    expected = -0.5 - np.logaddexp(-2.0, -3.0)
    assert scores["score"].tolist() == [pytest.approx(expected)] * 2


def test_a_question_may_have_roles_of_a_model_and_a_criterion(tmp_path):
    file = tmp_path / "principle.txt"
    file.write_text(
        "[prompt]\n[principle]\n{system}\n[response_1]\n{answer_a}\n"
        "[response_2]\n{answer_b}\n"
    )
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "{system}?"},
    ]
    judge = rmlab.judge("m", URL, template=file, system="Be brief.", reader="boxed")
    assert judge.template.messages(turns, ["a", "b"]) == [
        *turns,
        {"role": "principle", "content": "Be brief."},
        {"role": "response_1", "content": "a"},
        {"role": "response_2", "content": "b"},
    ]

    file.write_text("[user]\nQ\n[assistant]\nA\n[user]\n{prompt}{answer_a}{answer_b}")
    messages = load_template(file, "pair").messages("p", ["a", "b"])
    assert [turn["role"] for turn in messages] == ["user", "assistant", "user"]
    file.write_text("Answers:\n[first]\n{prompt}{answer_a}\n[second]\n{answer_b}")
    (message,) = load_template(file, "pair").messages("p", ["a", "b"])
    assert message["content"].startswith("Answers:\n[first]"), "words, not roles"


def test_a_criterion_is_a_system_message_before_the_question(tmp_path):
    with_own = rmlab.judge("m", URL, template="two", system="Prefer short answers.")
    without = rmlab.judge("m", URL, template="letter", system="Prefer short answers.")
    for judge in (with_own, without):
        first, second = judge.template.messages("p", ["a", "b"])
        assert first["role"] == "system"
        assert first["content"].startswith("Prefer short answers.")
        assert second["role"] == "user"

    extra = {"enable_thinking": False}
    options = {"template_options": extra, "retries": 0}
    with FaultyServer(lambda *_: completion("[[A]]")) as server:
        rmlab.prefer(responses(1), rmlab.judge("m", server.url, **options))
        assert server.log[0].body["chat_template_kwargs"] == extra


def test_a_chat_template_without_a_place_for_a_criterion_is_refused(tmp_path):
    folder = rmlab.toy.save_model(tmp_path / "model", task="causal")
    template = (
        "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}"
    )
    (folder / "chat_template.jinja").write_text(template)
    judge = rmlab.judge(folder, mode="logprob", system="Be strict.")
    with pytest.raises(DataError, match="system="):
        rmlab.prefer(responses(1), judge)
