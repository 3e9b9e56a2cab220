"""What a scorer is: the Protocols, who satisfies them, and the how-to for a scorer of one's own."""

import importlib.util
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from fakes import BothOrders, Difference, Streaming, responses

import rmlab
from rmlab import baselines, toy
from rmlab.scorers import guards
from rmlab.scoring import score

ROOT = Path(__file__).parents[1]


def characters(prompts, answers):
    return [len(answer) for answer in answers]


class Judge:
    name = "judge"

    def prefer(self, prompts, first, second):
        return np.zeros(len(first))


def kinds(scorer):
    """The Protocols that a scorer satisfies, by the functions that ask."""
    asked = [name for name in guards.__all__ if name.startswith("is_")]
    return {name.removeprefix("is_") for name in asked if getattr(guards, name)(scorer)}


def test_every_scorer_is_known_by_its_members(tmp_path):
    folder = toy.save_model(tmp_path / "m")
    policy = toy.save_model(tmp_path / "p", task="causal")
    local = {"plain", "streaming", "checkable", "inspectable"}
    assert kinds(characters) == kinds(baselines.longest) == {"plain"}
    assert kinds(rmlab.classifier(folder)) == local | {"traceable"}
    assert kinds(rmlab.implicit_reward(policy)) == local | {"sum", "cumulative"}
    pairwise = {"streaming", "pairwise", "streaming_pairwise", "checkable", "inspectable_pairwise"}
    assert kinds(rmlab.pairwise(policy)) == pairwise
    assert kinds(Judge()) == {"pairwise"}
    assert kinds(BothOrders()) == {"plain", "streaming", "pairwise", "streaming_pairwise"}
    assert kinds(Difference()) == {"plain", "streaming", "sum"}
    assert kinds(3) == kinds("longest") == set()


def test_to_ask_for_a_member_loads_nothing(tmp_path):
    scorer = rmlab.classifier(toy.save_model(tmp_path))
    before = dict(scorer.__dict__)
    kinds(scorer)
    assert scorer.__dict__ == before


def test_only_the_guards_ask_scorers_for_their_members():
    """Elsewhere a scorer has a type; getattr is left to configurations, modules and tokenizers."""
    rooms = ("checks", "scoring", "bias", "widgets", "cli")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for room in rooms
        for path in sorted((ROOT / "rmlab" / room).glob("*.py"))
        for line in path.read_text("utf-8").splitlines()
        if re.search(r"(hasattr|getattr)\((scorer|self\._?scorer|term|one|model)\b|scorer: Any\b", line)
        or (room in ("checks", "scoring") and "hasattr" in line)
    ]
    assert found == []


def test_names_and_fingerprints():
    assert guards.name_of(characters) == "characters"
    assert guards.name_of(baselines.longest) == "longest"
    assert guards.fingerprint_of(characters) is None
    assert guards.fingerprint_of(Streaming()) == "fake-1"
    with pytest.raises(TypeError, match="int 3 is not a scorer"):
        guards.name_of(3)


def test_two_names_for_one_fingerprint_are_a_warning(tmp_path):
    frame = responses(3)
    with pytest.warns(UserWarning, match="'first' and 'second' have the same fingerprint") as caught:
        scores = score(frame, [Streaming("first"), Streaming("second")], store=tmp_path)
    assert [one.filename for one in caught] == [__file__], "the line of the caller is shown"
    assert scores["model"].unique().tolist() == ["first", "second"]
    folder = toy.save_model(tmp_path / "m")
    with pytest.warns(UserWarning, match="the same model"):
        score(frame, [rmlab.classifier(folder), rmlab.classifier(folder, name="again")])
    score(frame, ["longest", characters, Streaming()])


needs_docs = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="the how-to is not part of this copy")


@pytest.fixture
def server():
    """A server that answers with lengths, after the given statuses were used up."""
    statuses, asked = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = statuses.pop(0) if statuses else 200
            asked.append((status, len(body["responses"])))
            scores = {"scores": [float(len(text)) for text in body["responses"]]}
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(scores).encode() if status == 200 else b"not now")

        def log_message(self, *_):
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}/score", statuses, asked
    httpd.shutdown()
    thread.join()
    httpd.server_close()


@pytest.fixture(scope="module")
def http_scorer():
    """The class that the how-to shows."""
    found = importlib.util.spec_from_file_location("http_scorer", ROOT / "docs" / "http_scorer.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module.HttpScorer


@needs_docs
def test_the_http_scorer_of_the_how_to_tries_again(http_scorer, server, tmp_path):
    url, statuses, asked = server
    statuses += [503, 200, 429]
    frame = responses(5)
    scorer = http_scorer(url, name="served", version="1", pause=0.001)
    scores = score(frame, scorer, store=tmp_path)
    assert scores["score"].tolist() == frame["response"].str.len().tolist()
    assert [status for status, _ in asked] == [503, 200, 429, 200]
    about = scores.attrs["provenance"]["served"]
    assert (about["url"], about["version"]) == (url, "1")
    asked.clear()
    again = score(frame, http_scorer(url, name="served", version="1"), store=tmp_path)
    assert again["score"].tolist() == scores["score"].tolist()
    assert asked == [], "all of it was in the store"


@needs_docs
def test_the_http_scorer_of_the_how_to_gives_up(http_scorer, server):
    url, statuses, asked = server
    statuses += [400]
    with pytest.raises(RuntimeError, match="400 not now"):
        http_scorer(url, name="served", version="1")(["p"], ["r"])
    assert len(asked) == 1
    statuses += [500] * 3
    with pytest.raises(RuntimeError, match="500 not now"):
        http_scorer(url, name="served", version="1", tries=3, pause=0.001)(["p"], ["r"])
    with pytest.raises(RuntimeError, match="no answer after 2 tries"):
        http_scorer("http://127.0.0.1:9/", name="served", version="1", tries=2, pause=0.001)(["p"], ["r"])


@needs_docs
def test_the_examples_of_the_how_to_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "write_a_scorer.md").read_text("utf-8")
    blocks = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "HttpScorer" not in block]
    names = {}
    for block in blocks:
        exec(compile(block, "write_a_scorer.md", "exec"), names)
    mini = rmlab.load("mini")
    found = score(mini, [names["characters"], names["Brevity"](), names["LongestFirst"]()])
    wide = found["score"].to_numpy().reshape(3, -1)
    assert (wide[0] == -wide[1]).all()
    assert (wide[0] == wide[2]).all()
    assert set(names["pairs"]["model"]) == {"shorter"}
