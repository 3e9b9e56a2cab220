"""Replies in the forms that judges write, read by name, by an expression and by a
function; questions with roles, and criteria.
"""

import re

import numpy as np
import pytest
from faulty_server import FaultyServer
from judge_fakes import Respondent, completion, responses

import rmlab
from rmlab.judges import load_template
from rmlab.judges.kinds import AnswerJudge, ListJudge, PairJudge
from rmlab.judges.questions import Completion
from rmlab.judges.readers import (
    PUBLISHED_LETTER,
    PUBLISHED_RATING,
    Reader,
    choose_reader,
)
from rmlab.scorers.base import Text
from rmlab.tables import DataError

URL = "http://127.0.0.1:9/v1"
TEMPLATES = {
    "two": (PairJudge, "pair"),
    "three": (PairJudge, "pair"),
    "ranking": (ListJudge, "list"),
    "rating": (AnswerJudge, "answer"),
}
SEVEN = {7: ["whatever"]}
NOTHING = {None: ["whatever"]}

# Question, reader and scale: what replies say, a vote for the first answer, a score, or
# 1 where the first of four answers is chosen.
READINGS = [
    (
        ("two", None),
        {
            2: [
                "[[A>>B]]",
                "[[B<<A]]",
                "[[A≫B]]",
                r"$\boxed{A \gg B}$",
                "Verdict: A>>B",
            ],
            1: [
                "[[A>B]]",
                "[[ A > B ]]",
                "[[A&gt;B]]",
                r"So \boxed{A>B}",
                "[[A]]",
                "A",
                "［［A］］",
                "【【A】】",
                "【A】",
                "[A]",
                "[[a>b]]",
                "[[model_a]]",
            ],
            0: ["[[A=B]]", r"\boxed{[[A=B]]}", "[[tie]]", "[[Tie]]"],
            -1: [
                "[[B>A]]",
                "[[A<B]]",
                r"\boxed{\text{B>A}}",
                "[[B]]",
                "**B**",
                "[[Assistant B]]",
                "Talk.\n\nVerdict: **B**",
                "[[A]] at first.\n\nB",
                "The verdict is B.",
                "Better: B",
                "[[A]]\nAnswer: b",
            ],
            -2: ["[[B>>A]]", "[[A>>B]] at first, then [[B>>A]]. See [[1]], [[note]]."],
            None: [
                "",
                "A is better.",
                "[[A>A]]",
                "[[C]]",
                "[[]]",
                "[[A>>>B]]",
                "[[A",
                "[[A]",
                "<answer>A",
                "[[yes]]",
                r"\boxed{}",
                "A or B",
                "A is better than B, so B",
                "[[A>B>A]]",
                "[[Neither]]",
            ],
        },
    ),
    (("three", None), {0: ["[[C]]"]}),
    (
        ("rating", None),
        {
            7: ["[[7]]", "[[7/10]]"],
            7.5: ["[[7.5]]", "**Score: 7.5**"],
            8: ["[[3]] no, [[8]]"],
            9: [
                "Rating: 9/10",
                "Good.\n\n9",
                r"\boxed{9}",
                "Rating: **9**",
                "Fine.\n**Rating**: 9/10",
            ],
            10: ["[[10]]"],
            None: [
                "[[0]]",
                "[[11]]",
                "[[100]]",
                "[[-3]]",
                "7 of 10",
                "[[seven]]",
                "in 1998",
                "[[7]] at first; no, [[11]]",
                "Rating: 7/",
            ],
        },
    ),
    (("rating", None, (-3, 3)), {2: ["[[+2]]"]}),
    (("rating", None, (0, 100)), {49: ["[[ 49 / 100 ]]"], None: ["Response 2: 6"]}),
    (("rating", None, (0, 100)), {None: ["[[4, 9]]"]}),
    (
        ("ranking", None),
        {1: ["[[A]]"], 0: ["[[B]]", r"[[A]] but \boxed{D}"], None: ["[[E]]", "[[AB]]"]},
    ),
    # RM-R1, and JudgeLRM's two scores
    (
        ("two", "tag"),
        {
            -1: [
                "<think>[[A]]</think>e <answer>[[B]]</answer>",
                "<answer>Assistant 1: 8, Assistant 2: 9</answer>",
                "<answer>score of A: 6, score of B: 7</answer>",
                "<answer>[[A]] at first.\nThen [[B]] is right.</answer>",
                "<answer>It is clear.\nB</answer>",
            ],
            1.5: ["<think>...</think>\n<answer>8 6.5</answer>"],
            -5: ["<answer>3</answer><answer>8</answer>"],
            2: ["<answer>Model 1: 8\nModel 2: 6</answer>"],
            None: ["<answer>8 12</answer>", "I say [[A]], but without an answer"],
        },
    ),
    # Skywork-Critic, CompassJudger-2, RISE; OffsetBias
    (
        ("two", "letter"),
        {
            1: ["Both are polite, and A is right. [[A]]", "Output (a)"],
            -1: [
                "**B**",
                "<think>[[A]]</think>Final Answer: B\nDone.",
                "Output (b)",
                "I take Output (b). Output (b) is short.",
                "[[A]] at first ... \nAnswer: B",
                "Answer: A\nNo: [[B]], all in all.",
                "The answer is B\nIt is short.",
                "Answer: [B]\nIt is short.",
                "Answer - b\nIt is short.",
            ],
            None: [
                "A is better than B",
                "Answer: A or B",
                "Output (a) is better than Output (b).",
            ],
        },
    ),
    (
        ("two", "json:Choice"),
        {
            1: ['```json\n{"Choice": "Model A"}\n```'],
            -1: ['So {"why": "x {y}", "Choice": "B"} it is'],
            None: ['{"Choice": "neither of 2 is 1"}'],
        },
    ),
    (("two", "strength"), {-2: ["[[A>B]] at first, then [[B>>A]]"]}),
    # Selene and Prometheus 2
    (
        ("two", "result"),
        {
            1: ["Fine. [RESULT] A", "Result: A", "[result] a"],
            -1: ["**Reasoning:** [RESULT] A at first\n\n**Result:** B"],
            None: ["[RESULT] A or B"],
        },
    ),
    (
        ("rating", "result", (1, 5)),
        {
            4: [
                "Feedback: clear. [RESULT] 4",
                "[RESULT] Score: 4",
                "[RESULT] 4 out of 5",
            ],
            2: ["**Reasoning:** good\n\n**Result:** 2"],
            None: ["Feedback: clear. [RESULT] 6", "**Result:** -4"],
        },
    ),
    # R3, LMUnit
    (
        ("rating", "json:score", (1, 5)),
        {
            4: ['<think>2?</think>{"why": "one\ntwo", "score": 4}'],
            4.5: ['{"score": "4.5"}'],
            None: ['{"score": 4'],
        },
    ),
    (
        ("two", "json:score", (0, 100)),
        {-1: ['{"score": "Response 2"}'], None: ['{"score": 85}']},
    ),
    # NVIDIA's GenRM: scores of both answers, then a score of the ranking
    (
        ("two", "boxed", (1, 5)),
        {
            2: [
                r"Scores \boxed{4, 2} Ranking \boxed{1}",
                r"\boxed{4 \text{ and } 2}",
                r"\boxed{4,\ 2}",
            ],
            None: [r"\boxed{4, 7}", r"\boxed{4} and \boxed{2}"],
        },
    ),
    (
        ("two", "boxed"),
        {
            1: [r"\boxed{\text{A}}"],
            None: [r"\boxed{42}", r"\boxed{8, 6} or \boxed{80, 60}"],
        },
    ),
    (
        ("rating", "boxed"),
        {7: [r"\boxed{7}"], None: [r"\boxed{5} ... Score: \boxed{11}"]},
    ),
    (("rating", "boxed", (-3, 3)), {-2.5: [r"\boxed{-2.5}"]}),
    # Ratings in words
    (
        ("rating", "scores"),
        {
            8: ["I give it 8 out of 10, for 3 reasons.", "It took 3 tries.\n\n**8**"],
            9: ["It says\n4\nwhich is right. **Score: 9**", "Score of 9"],
            None: [
                "Score: 80",
                "Score: 8/5",
                "It took 3 tries of 10 minutes",
                "Score: 5\nRather: Score: 11",
            ],
        },
    ),
    (("rating", "scores", (0, 100)), {80: ["Score: 80"]}),
    (("rating", "scores", (-3, 3)), {2: ["**+2**"]}),
    (
        ("two", "scores"),
        {
            # Two lines, of which each names its answer
            2: [
                "8 6\nThe first has 2 examples and 3 sources.",
                "Assistant 1: 8\nAssistant 2: 6",
                "**Assistant 1**: 8\n**Assistant 2**: 6",
                "Assistant 1: 8/10\nAssistant 2: 6/10",
                "Assistant 2: 6\nAssistant 1: 8",
                "1: 8\n2: 6",
                "8, 6",
                "8\n6",
                "| A | 8 |\n| B | 6 |",
                "# Verdict\n<answer>8, 6</answer>",
                "<answer>[[8, 6]]</answer>",
            ],
            -2: ["> 7 9", "Assistant A: 6/10\nAssistant B: 8/10"],
            5: ["Response 1: 9\nResponse 2: 4"],
            1: ["Assistant A: 8\n\nAssistant B: 7", "8 7"],
            -6: ["1 7"],
            -8: ["2, 10"],
            0.25: ["7.5 7.25"],
            # One number, or one that is none; letters in prose
            None: [
                "Assistant 2: 6",
                "2: 6",
                "A: 6, A: 7",
                "85",
                "7.55",
                "1. 7.5",
                "I thought of [[A]] at first.\n[RESULT] 4",
            ],
        },
    ),
    # Expressions and functions
    (("rating", r"Judgement: (\d)"), {3: ["Judgement: 2. No: Judgement: 3."]}),
    (("two", r"A=(\d+) B=(\d+)"), {-2: ["A=3 B=5"]}),
    (("rating", lambda reply: np.float32(7)), SEVEN),
    (("rating", lambda reply: np.int64(7)), SEVEN),
    (("rating", lambda reply: float("nan")), NOTHING),
    (("rating", lambda reply: None), NOTHING),
    (("two", lambda reply: np.float32(7)), SEVEN),
    (("two", lambda reply: [8, 1]), SEVEN),
    (("two", lambda reply: np.array([8, 1])), SEVEN),
    (("two", lambda reply: [7, float("nan")]), NOTHING),
    (("two", lambda reply: float("nan")), NOTHING),
    (("two", lambda reply: 85), NOTHING),
    (("two", lambda reply: "B"), {-1: ["whatever"]}),
]


def judge_of(template, answer, reader, scale=(1, 10), **options):
    """A judge that is always answered the same, or by a function of the question."""
    kind, shows = TEMPLATES[template]
    respondent = Respondent(answer if callable(answer) else lambda _: answer)
    question = load_template(template, shows)
    if not isinstance(reader, Reader):
        reader = choose_reader(reader)
    return kind("judge", respondent, question, reader=reader, scale=scale, **options)


def read(judge, reply):
    """What a reply, or a Completion, says of the first of four answers."""
    answer = reply if isinstance(reply, Completion) else Completion(reply)
    answers = ("x", "y") if isinstance(judge, PairJudge) else tuple("xyzw")
    (question,) = judge.questions(Text("p", answers))
    value = judge.read_answer(answer, question)
    if isinstance(judge, ListJudge) and value is not None:
        # The answers are shuffled.
        letters = re.findall(r"\b([A-D])\b", reply)
        return float(letters[-1] == "A")
    return getattr(value, "value", value)


@pytest.mark.parametrize(("how", "expected"), READINGS)
def test_the_last_verdict_is_read_and_nothing_where_none_is_said(how, expected):
    template, reader, *scale = how
    judge = judge_of(template, "", reader, *scale)
    for value, replies in expected.items():
        assert {reply: read(judge, reply) for reply in replies} == dict.fromkeys(
            replies, value
        )


@pytest.mark.parametrize("tag", ["<think>", "<thinking>", "<reasoning>", "[THINK]"])
def test_reasoning_is_no_verdict(tag):
    judge = judge_of("two", "", None)
    end = f"{tag[0]}/{tag[1:]}"
    assert read(judge, f"{tag}[[A>B]]{end}[[B>A]]") == -1
    # The opening tag stood in the template, or the reasoning never ended.
    assert read(judge, f"it seems [[A>B]]{end}\n[[B>A]]") == -1
    assert read(judge, f"{tag}[[A>B]]{end} I cannot say.") is None
    assert read(judge, f"{tag} I am sure: [[A>B]]") is None
    assert read(judge, f"{tag}a{end}{tag}[[A]]{end}[[B]]") == -1


def test_a_reply_that_was_cut_has_only_the_verdict_of_its_last_line():
    judge = judge_of("two", "", "tag")
    long_line = "<answer>[[A]]</answer> or rather, on second thoughts,"
    assert read(judge, Completion(long_line, "length")) is None
    assert read(judge, Completion("So:\n<answer>A</answer>", "length")) == 1


PUBLISHED = [
    f"{before}{number}{after}"
    for before in ("", "Sound.\n\n", "Rating: ", "**", "[[", "<think>3</think>", "7/")
    for number in (0, 1, 7, 10, 11)
    for after in ("", " \n", ".", "**", "]]", "/10", " out of 10", " of 12")
]


def test_ratings_by_convention_are_the_integer_at_the_end():
    """The expression is that of `get_single_rating` in RewardBench 2's runner."""
    judge = judge_of("rating", "", PUBLISHED_RATING)
    for reply in PUBLISHED:
        match = re.search(r"\b([1-9]|10)\b\s*$", reply.strip())
        assert read(judge, reply) == (int(match[1]) if match else None)


def test_letters_by_convention_are_the_first_of_the_alphabet_in_the_reply():
    """`process_judgement` of RewardBench's runners looks for [[A]], then for [[B]], and
    so on, in the whole reply.
    """
    judge = judge_of("two", "", PUBLISHED_LETTER)
    expected = {
        "[[B]] at first, then [[C]]": -1,
        "[[B]] or [[A]]": 1,
        "**B**": None,
        "<think>[[A]]</think>[[B]]": 1,
        "[[C]]": None,
    }
    assert {reply: read(judge, reply) for reply in expected} == expected
    assert read(judge, Completion("[[B]] is what I", "length")) == -1


LETTER_FORMS = {
    "boxed": r"\boxed{%s}",
    "tag": "<answer>%s</answer>",
    "result": "[RESULT] %s",
    "json:Choice": '{"Choice": "%s"}',
}


@pytest.mark.parametrize("reader", [*LETTER_FORMS, lambda text: text])
def test_a_reader_that_reads_letters_gives_votes_and_one_of_numbers_strengths(reader):
    """Samples A, A, A and A, A, B were a win with a margin."""
    form = "%s" if callable(reader) else LETTER_FORMS[reader]

    def ask(*samples):
        replies = iter([form % sample for sample in samples])
        return judge_of("two", lambda _: next(replies), reader, samples=3)

    pairs = rmlab.prefer(responses(1), ask(*"AAAAAB"))
    assert pairs["verdict"].tolist() == ["flip"]
    assert pairs["vote_second"].tolist() == [pytest.approx(-1 / 3)]
    assert pairs["margin"].isna().all()
    assert "strength" not in pairs

    # Shown first 3 better; shown second 1, 1 worse and 1 better.
    scores = ("7, 4", "7, 4", "7, 4", "6, 5", "6, 5", "4, 5")
    (row,) = rmlab.prefer(responses(1), ask(*scores)).to_dict("records")
    assert row["margin"] == row["strength"] == pytest.approx((3 - 1 / 3) / 2)
    assert row["verdict"] == "win"


@pytest.mark.parametrize(
    ("samples", "votes", "margin"),
    [
        (["A", "9, 2", "B", "B"], [1.0, 1.0], np.nan),
        (["9, 2", "A", "2, 9", "4, 8"], [4.0, 5.5], 4.75),
    ],
)
def test_what_most_replies_hold_decides_between_votes_and_strengths(
    samples, votes, margin
):
    replies = iter([rf"\boxed{{{sample}}}" for sample in samples])
    judge = judge_of("two", lambda _: next(replies), "boxed", samples=2)
    (row,) = rmlab.prefer(responses(1), judge).to_dict("records")
    assert [row["vote_first"], row["vote_second"]] == votes
    np.testing.assert_equal(row["margin"], margin)


@pytest.mark.parametrize("reader", ["lettr", "no group", "(", "json:", "(a)(b)(c)"])
def test_a_reader_that_cannot_be_one_is_refused(reader):
    with pytest.raises(DataError, match="reader"):
        rmlab.judge("m", URL, reader=reader)


def test_yes_and_no_are_read_from_log_probabilities(tmp_path):
    file = tmp_path / "question.txt"
    file.write_text("Is {answer} right for {prompt}? Yes or No.")
    top = [(" Yes", -0.5), ("no", -2.0), ("No", -3.0)]
    tokens = [{"token": token, "logprob": logprob} for token, logprob in top]
    choice = tokens[0] | {"top_logprobs": tokens}
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

    file.write_text("Answers:\n[first]\n{prompt}{answer_a}\n[second]\n{answer_b}")
    (message,) = load_template(file, "pair").messages("p", ["a", "b"])
    assert message["content"].startswith("Answers:\n[first]"), "words, not roles"


@pytest.mark.parametrize("template", ["two", "letter"])
def test_a_criterion_is_a_system_message_before_the_question(template):
    judge = rmlab.judge("m", URL, template=template, system="Prefer short answers.")
    first, second = judge.template.messages("p", ["a", "b"])
    assert first["role"] == "system"
    assert first["content"].startswith("Prefer short answers.")
    assert second["role"] == "user"


def test_a_chat_template_without_a_place_for_a_criterion_is_refused(tmp_path):
    folder = rmlab.toy.save_model(tmp_path / "model", task="causal")
    template = (
        "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}"
    )
    (folder / "chat_template.jinja").write_text(template)
    judge = rmlab.judge(folder, mode="logprob", system="Be strict.")
    with pytest.raises(DataError, match="system="):
        rmlab.prefer(responses(1), judge)
