"""`rmlab.judge`: its questions, what each request says, conventions, and what is refused before anything is asked."""

import json
import re
from contextlib import contextmanager

import numpy as np
import pytest
from faulty_server import FaultyServer
from judge_fakes import completion, responses

import rmlab
from rmlab.judges import load_template, shipped
from rmlab.tables import DataError

URL = "http://127.0.0.1:9/v1"
SHOWS = {"ranking": "list"} | {name: "answer" for name in shipped() if name.startswith("rating")}


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_question_shows_what_it_asks_about_as_it_is(name):
    """What a text holds is no place of the template."""
    template = load_template(name, SHOWS.get(name, "pair"))
    prompt, answers = "{answer_b} and {x}", ["{prompt}", r"\1 {answer_a}"][: 1 + (SHOWS.get(name) != "answer")]
    text = "\n".join(part["content"] for part in template.messages(prompt, answers))
    assert [text.count(part) for part in (prompt, *answers)] == [1] * (1 + len(answers))
    assert [text.index(answer) for answer in answers] == sorted(text.index(answer) for answer in answers)
    for part in (prompt, *answers):
        text = text.replace(part, "")
    assert "{" not in text.replace(r"\boxed{", "")


def test_a_file_of_ones_own(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("[system]\nBe strict.\n[user]\nQ {prompt} A {answer_a} B {answer_b}\n")
    messages = load_template(file, "pair").messages("q", ["a", "b"])
    assert messages == [{"role": "system", "content": "Be strict."}, {"role": "user", "content": "Q q A a B b"}]
    file.write_text("{prompt}: {answer_a} {answer_b} {answer_c} {answer_d}")
    assert load_template(file, "list").messages("q", list("wxyz")) == [{"role": "user", "content": "q: w x y z"}]
    for text in ("{prompt} {answer_a}", "[user]\n{prompt}\n[user]\n", "x\n[user]\n"):
        file.write_text(text)
        with pytest.raises(DataError, match=r"mine\.txt"):
            load_template(file, "pair")


@contextmanager
def served_judge(answer, path="", **options):
    """A judge of a server that always answers the same, and the server."""
    with FaultyServer(lambda *_: answer) as server:
        yield rmlab.judge("m", server.url + path, **options), server


def first_body(answer, path="", **options):
    """The body of a judge's first request."""
    with served_judge(answer, path, **options) as (judge, server):
        ask = rmlab.prefer if judge.takes == "pair" else rmlab.score
        ask(responses(1), judge, allow_missing=True, progress=False)
    assert {request.path for request in server.log} == {f"{path}/chat/completions"}
    return server.log[0].body


def test_what_a_request_says():
    options = {"answer_tokens": 99, "seed": 3, "extra": {"top_p": 0.9, "temperature": None}}
    body = first_body(completion("[[A]]"), "/v1", **options)
    assert [body[name] for name in ("model", "max_tokens", "top_p")] == ["m", 99, 0.9]
    assert not {"temperature", "logprobs"} & set(body)
    assert isinstance(body["seed"], int)
    assert first_body(completion("[[4]]"), mode="rating")["temperature"] == 0.0
    assert first_body(completion("[[4]]"), mode="rating", samples=2)["temperature"] == 0.7


CHOSEN = {"token": "B", "logprob": -0.2}


def test_log_probabilities_of_alternatives():
    top = [CHOSEN, {"token": " A", "logprob": -2.0}]
    answer = completion("B", "length", logprobs={"content": [CHOSEN | {"top_logprobs": top}]})
    body = first_body(answer, mode="logprob")
    assert (body["max_tokens"], body["logprobs"], body["top_logprobs"]) == (1, True, 20)
    with served_judge(answer, mode="logprob") as (judge, _):
        pairs = rmlab.prefer(responses(2), judge, progress=False)
    assert pairs["margin"].abs().max() < 1e-12
    assert set(pairs["verdict"]) == {"flip"}


@pytest.mark.parametrize("logprobs", [None, {"content": [CHOSEN]}, {"content": [CHOSEN | {"top_logprobs": [CHOSEN]}]}])
def test_a_server_without_alternatives_is_refused(logprobs):
    """A letter's log-probability alone made every comparison a tie."""
    with (
        served_judge(completion("B", logprobs=logprobs), mode="logprob") as (judge, _),
        pytest.raises(DataError, match="top_logprobs"),
    ):
        rmlab.prefer(responses(2), judge, progress=False)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (completion([{"type": "text", "text": "[[A"}, {"type": "text", "text": ">B]]"}]), "flip"),
        (completion(None, reasoning_content="I think [[A]]"), "unparsable"),
        (completion(None, refusal="I cannot do that."), "unparsable"),
        (completion("[[A]]") | {"usage": {"prompt_tokens": "many"}}, "failed"),
        (completion({"text": "[[A]]"}), "failed"),
    ],
)
def test_replies_that_are_unlike_the_others(answer, verdict):
    with served_judge(answer, retries=0) as (judge, _):
        pairs = rmlab.prefer(responses(1), judge, allow_missing=True, progress=False)
    assert pairs["verdict"].tolist() == [verdict]


def test_keys_go_to_openai_by_themselves_and_to_others_by_name_only():
    openai, plain = (rmlab.judge("gpt", f"https://{host}/v1").respondent for host in ("api.openai.com", "example.org"))
    assert (openai.client.key, plain.client.key) == ("OPENAI_API_KEY", None)
    assert "max_completion_tokens" in openai.fields


def test_two_servers_share_no_answers_and_several_models_behind_one_are_warned_of(tmp_path):
    """Two servers of one model name share no answers in a store; the models that servers name are counted."""
    names = ["m-1"]
    for reply in ("[[A>B]]", "[[B>A]]"):
        with FaultyServer(lambda *_, reply=reply: completion(reply) | {"model": names[-1]}) as server:
            judge = rmlab.judge("m", server.url, name="one", concurrency=1)
            pairs = rmlab.prefer(responses(2), judge, store=tmp_path, progress=False)
            assert len(server.log) == 4
            assert pairs.attrs["provenance"]["one"]["models"] == {names[-1]: 4}
            names.append("m-2")
            with pytest.warns(UserWarning, match="2 models: m-1, m-2"):
                rmlab.prefer(responses(3), judge, store=tmp_path, progress=False)
            assert len(server.log) == 6
            names.pop()


def test_the_fingerprint_knows_model_address_and_sampling():
    def print_of(model="m", url=URL, **options):
        return rmlab.judge(model, url, **options).fingerprint

    assert print_of() == print_of(key="SOME_KEY") == print_of(concurrency=1, retries=0, max_requests=5)
    urls = ("http://127.0.0.1:9/other/v1", "http://127.0.0.1:10/v1", "https://127.0.0.1:9/v1")
    changes = [{"url": url} for url in urls] + [{"model": "n"}, {"version": "2"}, {"answer_tokens": 5}, {"samples": 2}]
    changes += [{"temperature": 0.1}, {"extra": {"top_p": 1}}, {"mode": "rating"}, {"template": "three"}, {"seed": 1}]
    changes += [{"convention": "reward-bench"}]
    assert len({print_of(), *(print_of(**change) for change in changes)}) == 1 + len(changes)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"mode": "pairs"}, "mode='pairs'"),
        ({"samples": 0}, "samples=0"),
        ({"template": "fiv"}, "'five'"),
        ({"template": "rating"}, "answer_a"),
        ({"convention": "reward-bench-3"}, "'reward-bench-2'"),
        ({"convention": "reward-bench", "mode": "rating"}, "mode='pairwise'"),
        ({"convention": "reward-bench", "samples": 3}, "samples=3"),
        ({"mode": "logprob", "samples": 2}, "samples=2"),
        ({"temperature": -1}, "temperature=-1"),
        ({"answer_tokens": 0}, "answer_tokens=0"),
        ({"url": None}, "model='m'"),
    ],
)
def test_what_is_refused(options, named):
    with pytest.raises(DataError, match=named):
        rmlab.judge("m", **{"url": URL} | options)


PUBLISHED_RATING = re.compile(r"\b([1-9]|10)\b\s*$")
REPLIES = [
    f"{before}{number}{after}"
    for before in ("", "A sound answer.\n\n", "Rating: ", "**", "[[", "<think>3</think>", "-", "7/", "7.", "1")
    for number in (0, 1, 7, 10, 11)
    for after in ("", " \n", ".", "**", "]]", "/10", " out of 10", " of 12")
]


@pytest.mark.parametrize("subset", ["Focus", "Ties"])
def test_ratings_by_convention_are_the_integer_at_the_end(subset):
    """The expression is that of `get_single_rating` in RewardBench 2's runner, and -1 stands for no match."""
    table = responses(len(REPLIES)).query("label == 'chosen'").assign(subset=subset)

    def respond(path, body, headers):
        return completion(REPLIES[int(re.search(r"chosen 0 to (\d+)", body["messages"][-1]["content"])[1])])

    with FaultyServer(respond) as server:
        judge = rmlab.judge("m", server.url, convention="reward-bench-2-ratings")
        scores = rmlab.score(table, judge, progress=False)
    expected = [int(match[1]) if (match := PUBLISHED_RATING.search(reply.strip())) else -1 for reply in REPLIES]
    assert scores["score"].tolist() == expected
    assert "brackets" not in json.dumps(server.log[0].body["messages"]), "the question asks for what is read"


@pytest.mark.parametrize(
    ("reply", "place"),
    [("[[B]] at first, then [[C]]", 1), ("[[D]] or [[A]]", 0), ("**C**", None), ("<think>[[A]]</think>[[D]]", 0)],
)
def test_letters_by_convention_are_the_first_of_the_alphabet_in_the_reply(reply, place):
    """`process_judgement` of RewardBench's runners looks for [[A]], then for [[B]], and so on, in the whole reply."""
    table = responses(1, answers=2).assign(subset="Focus")
    with served_judge(completion(reply), convention="reward-bench-2") as (judge, server):
        scores = rmlab.score(table, judge, progress=False)
    with served_judge(completion(reply), convention="reward-bench") as (judge, _):
        votes = rmlab.prefer(responses(1), judge, progress=False)[["vote_first", "vote_second"]].iloc[0].dropna()
    places = [server.log[0].body["messages"][-1]["content"].index(response) for response in table["response"]]
    expected = [0.0] * 4 if place is None else [float(rank == place) for rank in np.argsort(np.argsort(places))]
    assert scores["score"].tolist() == expected
    assert votes.abs().tolist() == [1.0] * ("[[A]]" in reply or "[[B]]" in reply)
