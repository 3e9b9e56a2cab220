"""`rmlab.judge`: modes, conventions, what each request says, and what is refused before anything is asked."""

import json
import re

import numpy as np
import pytest
from faulty_server import FaultyServer
from judge_fakes import completion, responses

import rmlab
from rmlab.tables import DataError

URL = "http://127.0.0.1:9/v1"


def first_body(mode, answer, path="", **options):
    """The body of a judge's first request."""
    with FaultyServer(lambda *_: answer) as server:
        judge = rmlab.judge("m", server.url + path, mode=mode, **options)
        ask = rmlab.prefer if mode in ("pairwise", "logprob") else rmlab.score
        ask(responses(1), judge, allow_missing=True, progress=False)
        assert {request.path for request in server.log} == {f"{path}/chat/completions"}
        return server.log[0].body


def test_what_a_request_says():
    options = {"answer_tokens": 99, "seed": 3, "extra": {"top_p": 0.9, "temperature": None}}
    sent = first_body("pairwise", completion("[[A]]"), "/v1", **options)
    assert [sent[name] for name in ("model", "max_tokens", "top_p")] == ["m", 99, 0.9]
    assert not {"temperature", "logprobs"} & set(sent)
    assert isinstance(sent["seed"], int)
    assert first_body("rating", completion("[[4]]"))["temperature"] == 0.0
    assert first_body("rating", completion("[[4]]"), samples=2)["temperature"] == 0.7


def test_log_probabilities_from_a_server_that_gives_alternatives():
    chosen = {"token": "B", "logprob": -0.2}
    top = [chosen, {"token": " A", "logprob": -2.0}]
    answer = completion("B", "length", logprobs={"content": [chosen | {"top_logprobs": top}]})
    sent = first_body("logprob", answer)
    assert (sent["max_tokens"], sent["logprobs"], sent["top_logprobs"]) == (1, True, 20)
    with FaultyServer(lambda *_: answer) as server:
        pairs = rmlab.prefer(responses(2), rmlab.judge("m", server.url, mode="logprob"), progress=False)
    assert pairs["margin"].abs().max() < 1e-12
    assert set(pairs["verdict"]) == {"flip"}
    contents = [{"logprobs": {"content": [chosen | {"top_logprobs": others}]}} for others in ([], [chosen])]
    for logprobs in ({}, *contents):
        with FaultyServer(lambda *_, logprobs=logprobs: completion("B", **logprobs)) as server:
            judge = rmlab.judge("m", server.url, mode="logprob")
            with pytest.raises(DataError, match=r"log-probabilities|top_logprobs"):
                rmlab.prefer(responses(2), judge, progress=False)


def test_replies_that_are_unlike_the_others():
    parts = completion([{"type": "text", "text": "[[A"}, {"type": "text", "text": ">B]]"}])
    silent = completion(None, reasoning_content="I think [[A]]")
    refused = completion(None, refusal="I cannot do that.")
    for answer, verdict in ((parts, "flip"), (silent, "unparsable"), (refused, "unparsable")):
        with FaultyServer(lambda *_, answer=answer: answer) as server:
            pairs = rmlab.prefer(responses(1), rmlab.judge("m", server.url), allow_missing=True, progress=False)
        assert pairs["verdict"].tolist() == [verdict]


def test_keys_go_to_openai_by_themselves_and_to_others_by_name_only():
    assert rmlab.judge("gpt", "https://api.openai.com/v1").respondent.client.key == "OPENAI_API_KEY"
    assert rmlab.judge("gpt", "https://example.org/v1").respondent.client.key is None
    assert rmlab.judge("gpt", "https://example.org/v1", key="MY_KEY").respondent.client.key == "MY_KEY"
    assert "max_completion_tokens" in rmlab.judge("gpt", "https://api.openai.com/v1").respondent.fields
    assert "max_tokens" in rmlab.judge("gpt", "https://example.org/v1").respondent.fields


def test_two_servers_of_one_model_name_share_no_answers(tmp_path):
    for reply in ("[[A>B]]", "[[B>A]]"):
        with FaultyServer(lambda *_, reply=reply: completion(reply)) as server:
            rmlab.prefer(responses(2), rmlab.judge("m", server.url, name="one"), store=tmp_path, progress=False)
            assert len(server.log) == 4
    urls = (URL, "http://127.0.0.1:8000/other/v1", "http://127.0.0.1:8001/v1", "https://127.0.0.1:8000/v1")
    assert len({rmlab.judge("m", url).fingerprint for url in urls}) == 4


def test_models_that_servers_name_are_counted_and_several_are_warned_of(tmp_path):
    names = ["m-1"]

    def respond(path, body, headers):
        return completion("[[A>B]]") | {"model": names[-1]}

    with FaultyServer(respond) as server:
        judge = rmlab.judge("m", server.url, name="one", concurrency=1)
        pairs = rmlab.prefer(responses(2), judge, store=tmp_path, progress=False)
        assert pairs.attrs["provenance"]["one"]["models"] == {"m-1": 4}
        names.append("m-2")
        with pytest.warns(UserWarning, match="2 models: m-1, m-2"):
            rmlab.prefer(responses(3), judge, store=tmp_path, progress=False)
    assert len(server.log) == 6


def test_the_fingerprint_knows_model_address_and_sampling():
    def print_of(model="m", url=URL, **options):
        return rmlab.judge(model, url, **options).fingerprint

    assert print_of() == print_of(key="SOME_KEY") == print_of(concurrency=1, retries=0, max_requests=5)
    changes = [{"model": "n"}, {"url": "http://host/v1"}, {"version": "2"}, {"answer_tokens": 5}, {"temperature": 0.1}]
    changes += [{"extra": {"top_p": 1}}, {"mode": "rating"}]
    assert len({print_of(), *(print_of(**change) for change in changes)}) == 8


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
    with FaultyServer(lambda *_: completion(reply)) as server:
        best = rmlab.judge("m", server.url, convention="reward-bench-2")
        table = responses(1, answers=2).assign(subset="Focus")
        scores = rmlab.score(table, best, progress=False)
        text = server.log[0].body["messages"][-1]["content"]
        pair = rmlab.judge("m", server.url, convention="reward-bench")
        votes = rmlab.prefer(responses(1), pair, progress=False)[["vote_first", "vote_second"]].iloc[0].dropna()
    places = [text.index(response) for response in table["response"]]
    expected = [0.0] * 4 if place is None else [float(rank == place) for rank in np.argsort(np.argsort(places))]
    assert scores["score"].tolist() == expected
    first = next((sign for letter, sign in (("A", 1), ("B", -1)) if f"[[{letter}]]" in reply), None)
    assert votes.abs().tolist() == ([] if first is None else [1.0])
