"""A judge on this machine: greedy and drawn answers as transformers writes them, letters as its logits say."""

from dataclasses import replace

import numpy as np
import pytest
from judge_fakes import responses

import rmlab
from rmlab import toy
from rmlab.judges.questions import Question, Template
from rmlab.tables import DataError

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return toy.save_model(tmp_path_factory.mktemp("judge"), task="causal", max_position_embeddings=1024)


def made(folder, **options):
    return rmlab.judge(folder, device="cpu", dtype="float32", name="local", **options)


def questions(n):
    words = " ".join(toy.models.TEXTS).split()
    return [question(" ".join(words[: 3 + 5 * i]), i) for i in range(n)]


def question(text, number=0):
    return Question(number, (0,), 0, Template("plain", "", "{prompt}"), text, ("",), base_seed=number)


def answers(respondent, asked):
    """Answers of a respondent by the number of the question."""
    return {question.item: answer for question, answer in respondent.respond(asked)}


def test_batches_say_what_each_question_gets_alone(folder):
    respondent = made(folder, answer_tokens=12, batch=4).respondent
    together = answers(respondent, questions(7))
    alone = made(folder, answer_tokens=12, batch=1).respondent
    assert together == answers(alone, questions(7))
    assert all(0 < answer.answer_tokens <= 12 for answer in together.values())


def test_a_drawn_answer_depends_on_its_seed_alone(folder):
    def drawn(asked, **options):
        respondent = made(folder, answer_tokens=12, temperature=1.5, **options).respondent
        return {number: answer.text for number, answer in answers(respondent, asked).items()}

    asked = questions(6)
    whole = drawn(asked, batch=3)
    assert whole == drawn(asked[::-1], batch=2)
    other = drawn([replace(one, base_seed=one.base_seed + 100) for one in asked])
    assert sum(whole[i] != other[i] for i in whole) >= 5


def test_drawn_tokens_have_the_probabilities_of_the_model(folder):
    import torch

    respondent = made(folder, answer_tokens=1, temperature=0.8, batch=64).respondent
    one = questions(2)[1]
    texts = [answer.text for _, answer in respondent.respond(replace(one, base_seed=i) for i in range(1500))]
    ids = torch.tensor([respondent.ids(one)])
    with torch.no_grad():
        p = torch.softmax(respondent.model(ids).logits[0, -1] / 0.8, -1)
    likely = int(p.argmax())
    word = respondent.tokenizer.decode([likely], skip_special_tokens=True)
    same = [i for i in range(len(p)) if respondent.tokenizer.decode([i], skip_special_tokens=True) == word]
    expected = float(p[same].sum())
    assert abs(texts.count(word) / 1500 - expected) < 4 * np.sqrt(expected * (1 - expected) / 1500) + 1e-9


def test_letters_are_the_logits_of_the_first_token(folder):
    import torch

    respondent = made(folder, mode="logprob", batch=3).respondent
    asked = questions(5)
    for one, answer in respondent.respond(asked):
        ids = torch.tensor([respondent.ids(one)])
        with torch.no_grad():
            expected = torch.log_softmax(respondent.model(ids).logits[0, -1].float(), -1)
        for token, number in ((text, number) for number, text in respondent.letter_tokens.items()):
            assert answer.top[token] == pytest.approx(expected[number].item(), abs=1e-5)
        assert {token.strip() for token in answer.top} >= {"A", "B"}


def test_the_tables_of_a_local_judge(folder, tmp_path):
    table = responses(2)
    pairs = rmlab.prefer(table, made(folder, mode="logprob"), store=tmp_path, progress=False)
    assert pairs["margin"].notna().all()
    assert pairs.attrs["provenance"]["local"]["content"]
    again = rmlab.prefer(table, made(folder, mode="logprob"), store=tmp_path, progress=False)
    assert again.attrs["provenance"]["local"]["asked"] == 0
    assert again["margin"].tolist() == pairs["margin"].tolist()
    rated = rmlab.score(table, made(folder, mode="rating", answer_tokens=5), allow_missing=True, progress=False)
    assert set(rated["verdict"]) <= {"rated", "unparsable"}


@pytest.mark.parametrize(("clock", "date"), [("{{ strftime_now('%Y') }}", "26 Jul 2024"), ("", None)])
def test_the_day_that_a_template_writes_is_recorded(tmp_path, clock, date):
    words = toy.tokenizer(chat_template=clock + toy.models.CHAT_TEMPLATES["chatml"])
    judge = made(toy.save_model(tmp_path / "m", task="causal", words=words), mode="logprob")
    assert judge.provenance()["date_string"] == date
    text = judge.respondent.tokenizer.decode(judge.respondent.ids(questions(1)[0]))
    assert text.startswith("2024") == (date is not None)


def test_a_question_that_does_not_fit(folder):
    long = question(" ".join(toy.models.TEXTS) * 60)
    with pytest.raises(DataError, match=r"do not fit into its window of 1024; lower answer_tokens="):
        list(made(folder, answer_tokens=8).respondent.respond([long]))


def test_the_fingerprint_knows_the_weights_and_the_sampling(folder, tmp_path):
    other = toy.save_model(tmp_path / "other", task="causal", seed=3, max_position_embeddings=1024)
    prints = [made(folder).fingerprint, made(other).fingerprint, made(folder, answer_tokens=9).fingerprint]
    prints += [made(folder, temperature=1.0).fingerprint, made(folder, mode="logprob").fingerprint]
    assert len(set(prints)) == 5
    assert made(folder).fingerprint == made(folder, batch=1).fingerprint
