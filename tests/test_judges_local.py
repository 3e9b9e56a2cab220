"""A judge on this machine: answers as transformers writes them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from judge_fakes import responses

import rmlab
from rmlab import toy
from rmlab.judges.questions import Question, Section, Template
from rmlab.scorers.base import Text
from rmlab.tables import DataError


@pytest.fixture(scope="module")
def folder(zoo):
    return zoo(task="causal", max_position_embeddings=1024)


def local_judge(folder, **options):
    return rmlab.judge(
        folder, device="cpu", dtype="float32", **{"name": "local"} | options
    )


def question(text, number=0):
    template = Template("plain", (Section("user", "{prompt}"),))
    return Question((0,), 0, template, Text(text, ("",)), base_seed=number)


def questions(n):
    words = " ".join(toy.models.TEXTS).split()
    return [question(" ".join(words[: 3 + 5 * i]), i) for i in range(n)]


def answers(respondent, questions):
    """Answers of a respondent by the number of the question."""
    pairs = respondent.respond(questions)
    return {question.base_seed % 100: answer for question, answer in pairs}


def test_batches_say_what_each_question_gets_alone(folder):
    respondents = [
        local_judge(folder, answer_tokens=12, batch=batch).respondent
        for batch in (4, 1)
    ]
    together, alone = (answers(respondent, questions(7)) for respondent in respondents)
    assert together == alone
    assert all(0 < answer.answer_tokens <= 12 for answer in together.values())


def test_a_drawn_answer_depends_on_its_seed_alone(folder):
    def draw_texts(questions, **options):
        respondent = local_judge(
            folder, answer_tokens=12, temperature=1.5, **options
        ).respondent
        return {
            number: answer.text
            for number, answer in answers(respondent, questions).items()
        }

    texts = draw_texts(questions(6), batch=3)
    assert texts == draw_texts(questions(6)[::-1], batch=2)
    reseeded = draw_texts(
        [
            replace(question, base_seed=question.base_seed + 100)
            for question in questions(6)
        ]
    )
    assert sum(texts[i] != reseeded[i] for i in texts) >= 5


def next_token_logits(respondent, question):
    """Logits of the token after the question, by the model's own forward."""
    import torch

    with torch.no_grad():
        return (
            respondent.model(torch.tensor([respondent.ids(question)]))
            .logits[0, -1]
            .float()
        )


def test_drawn_tokens_have_the_probabilities_of_the_model(folder):
    respondent = local_judge(
        folder, answer_tokens=1, temperature=0.8, batch=64
    ).respondent
    question = questions(2)[1]
    texts = [
        answer.text
        for _, answer in respondent.respond(
            [replace(question, base_seed=i) for i in range(400)]
        )
    ]
    p = (next_token_logits(respondent, question) / 0.8).softmax(-1)
    words = [
        respondent.tokenizer.decode([i], skip_special_tokens=True)
        for i in range(len(p))
    ]
    likely = words[int(p.argmax())]
    expected = sum(float(p[i]) for i, word in enumerate(words) if word == likely)
    assert (
        abs(texts.count(likely) / 400 - expected)
        < 4 * np.sqrt(expected * (1 - expected) / 400) + 1e-9
    )


def test_letters_are_the_logits_of_the_first_token(folder):
    respondent = local_judge(folder, mode="logprob", batch=3).respondent
    for question, answer in respondent.respond(questions(5)):
        expected = next_token_logits(respondent, question).log_softmax(-1)
        for number, token in respondent.choice_tokens.items():
            assert answer.top[token] == pytest.approx(expected[number].item(), abs=1e-5)
        assert {token.strip() for token in answer.top} >= {"A", "B"}


def test_the_fingerprint_knows_what_changes_an_answer(folder, tmp_path):
    """transformers takes the EOS tokens, and penalties too, from a file beside the
    weights.
    """
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    settings = json.loads((other / "generation_config.json").read_text())
    prints = [local_judge(other).fingerprint]
    for change in ({"eos_token_id": [2, 100]}, {"repetition_penalty": 1.3}):
        (other / "generation_config.json").write_text(json.dumps(settings | change))
        prints.append(local_judge(other).fingerprint)
    for change in ({"answer_tokens": 9}, {"temperature": 1.0}, {"mode": "logprob"}):
        prints.append(local_judge(folder, **change).fingerprint)
    trained = toy.save_model(tmp_path / "trained", task="causal", seed=3)
    prints.append(local_judge(trained).fingerprint)
    assert len(set(prints)) == len(prints)
    assert local_judge(folder).fingerprint == local_judge(folder, batch=1).fingerprint


def test_a_question_that_does_not_fit_is_missing_and_the_others_are_answered(
    folder, tmp_path
):
    table, judge = responses(3), local_judge(folder, mode="logprob")
    table.loc[table["id"] == "1", "prompt"] = " ".join(toy.models.TEXTS) * 60
    with pytest.raises(DataError, match=r"id 1.*1023.*answer_tokens=1"):
        rmlab.prefer(table, judge, store=tmp_path)
    pairs = rmlab.prefer(table, judge, store=tmp_path, allow_missing=True)
    assert (
        pairs["verdict"].eq("failed").tolist()
        == pairs["margin"].isna().tolist()
        == [False, True, False]
    )
    provenance = pairs.attrs["provenance"]["local"]
    counts = [provenance[name] for name in ("missing", "asked", "failed")]
    assert counts == [2, 0, 2]
