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


def body(mode, said, url="", **options):
    """The body of a judge's first request."""
    with FaultyServer(lambda path, body, headers: said) as server:
        made = rmlab.judge("m", server.url + url, mode=mode, **options)
        go = rmlab.prefer if mode in ("pairwise", "logprob") else rmlab.score
        go(responses(1), made, allow_missing=True, progress=False)
        assert {seen.path for seen in server.log} == {f"{url}/chat/completions"}
        return server.log[0].body


def test_what_a_request_says():
    sent = body(
        "pairwise", completion("[[A]]"), "/v1", answer_tokens=99, seed=3, extra={"top_p": 0.9, "temperature": None}
    )
    assert {name: sent[name] for name in ("model", "max_tokens", "top_p")} == {
        "model": "m",
        "max_tokens": 99,
        "top_p": 0.9,
    }
    assert "temperature" not in sent
    assert "logprobs" not in sent
    assert isinstance(sent["seed"], int)
    assert body("rating", completion("[[4]]"))["temperature"] == 0.0
    assert body("rating", completion("[[4]]"), samples=2)["temperature"] == 0.7


def test_log_probabilities_from_a_server():
    top = [{"token": "B", "logprob": -0.2}, {"token": " A", "logprob": -2.0}]
    said = completion("B", "length", logprobs={"content": [{"token": "B", "logprob": -0.2, "top_logprobs": top}]})
    sent = body("logprob", said)
    assert (sent["max_tokens"], sent["logprobs"], sent["top_logprobs"]) == (1, True, 20)
    with FaultyServer(lambda *_: said) as server:
        pairs = rmlab.prefer(responses(2), rmlab.judge("m", server.url, mode="logprob"), progress=False)
    assert pairs["margin"].abs().max() < 1e-12
    assert set(pairs["verdict"]) == {"flip"}
    with (
        FaultyServer(lambda *_: completion("B")) as server,
        pytest.raises(DataError, match="gives no log-probabilities"),
    ):
        rmlab.prefer(responses(2), rmlab.judge("m", server.url, mode="logprob"), progress=False)


def test_replies_that_are_unlike_the_others():
    parts = completion([{"type": "text", "text": "[[A"}, {"type": "text", "text": ">B]]"}])
    silent = completion(None, reasoning_content="I think [[A]]")
    refused = completion(None, refusal="I cannot do that.")
    for said, verdict in ((parts, "flip"), (silent, "unparsable"), (refused, "unparsable")):
        with FaultyServer(lambda *_, said=said: said) as server:
            pairs = rmlab.prefer(responses(1), rmlab.judge("m", server.url), allow_missing=True, progress=False)
        assert pairs["verdict"].tolist() == [verdict]


def test_keys_go_to_openai_by_themselves_and_to_others_by_name_only():
    assert rmlab.judge("gpt", "https://api.openai.com/v1").respondent.client.key == "OPENAI_API_KEY"
    assert rmlab.judge("gpt", "https://example.org/v1").respondent.client.key is None
    assert rmlab.judge("gpt", "https://example.org/v1", key="MY_KEY").respondent.client.key == "MY_KEY"
    assert "max_completion_tokens" in rmlab.judge("gpt", "https://api.openai.com/v1").respondent.fields
    assert "max_tokens" in rmlab.judge("gpt", "https://example.org/v1").respondent.fields


def test_a_chosen_letter_without_alternatives_is_no_answer():
    for alternatives in ([], [{"token": "B", "logprob": -0.2}]):
        chosen = {"token": "B", "logprob": -0.2, "top_logprobs": alternatives}
        with FaultyServer(lambda *_, chosen=chosen: completion("B", logprobs={"content": [chosen]})) as server:
            judge = rmlab.judge("m", server.url, mode="logprob")
            with pytest.raises(DataError, match="top_logprobs"):
                rmlab.prefer(responses(2), judge, progress=False)


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
    others = [print_of("n"), print_of(url="http://host/v1"), print_of(version="2"), print_of(answer_tokens=5),
              print_of(temperature=0.1), print_of(extra={"top_p": 1}), print_of(mode="rating")]  # fmt: skip
    assert len({print_of(), *others}) == 8


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "pairs"}, "mode='pairs'; allowed: 'pairwise'"), ({"samples": 0}, "samples=0; allowed"),
        ({"template": "fiv"}, "did you mean 'five'"),
        ({"convention": "reward-bench-3"}, "did you mean 'reward-bench-2'"),
        ({"convention": "reward-bench", "mode": "rating"}, "mode='pairwise'"),
        ({"temperature": -1}, "temperature=-1"),
        ({"convention": "reward-bench", "samples": 3}, "samples=1"),
        ({"url": None}, "model='m'"),
        ({"mode": "logprob", "samples": 2}, "samples=2"), ({"concurrency": 0}, "concurrency=0"),
        ({"answer_tokens": 0}, "answer_tokens=0"), ({"url": "ftp://x"}, "url"),
        ({"url": None, "max_requests": 3}, "max_requests"), ({"template": "rating"}, r"lacks \{answer_a\}"),
    ],
)  # fmt: skip
def test_what_is_refused(options, says):
    with pytest.raises(DataError, match=says):
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
    asked = server.log[0].body["messages"]
    assert "brackets" not in json.dumps(asked), "the question asks for what is read"


@pytest.mark.parametrize(
    ("reply", "shown"),
    [("[[B]] at first, then [[C]]", 1), ("[[D]] or [[A]]", 0), ("**C**", None), ("<think>[[A]]</think>[[D]]", 0)],
)
def test_letters_by_convention_are_the_first_of_the_alphabet_in_the_reply(reply, shown):
    """`process_judgement` of RewardBench's runners looks for [[A]], then for [[B]], and so on, in the whole reply."""
    with FaultyServer(lambda *_: completion(reply)) as server:
        best = rmlab.judge("m", server.url, convention="reward-bench-2")
        table = responses(1, answers=2).assign(subset="Focus")
        scores = rmlab.score(table, best, progress=False)
        text = server.log[0].body["messages"][-1]["content"]
        pair = rmlab.judge("m", server.url, convention="reward-bench")
        votes = rmlab.prefer(responses(1), pair, progress=False)[["vote_first", "vote_second"]].iloc[0].dropna()
    places = [text.index(response) for response in table["response"]]
    expected = [0.0] * 4 if shown is None else [float(rank == shown) for rank in np.argsort(np.argsort(places))]
    assert scores["score"].tolist() == expected
    first = next((sign for letter, sign in (("A", 1), ("B", -1)) if f"[[{letter}]]" in reply), None)
    assert votes.abs().tolist() == ([] if first is None else [1.0])
