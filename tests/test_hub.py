"""Downloads through the real hub client from a small server on this machine."""

import hashlib
import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import unquote, urlsplit

import huggingface_hub
import huggingface_hub.constants
import pandas as pd
import pytest

from rmlab.benchmarks import load, load_pairs
from rmlab.benchmarks.registry import known
from rmlab.benchmarks.rm_bench import SUBSETS as RM_BENCH
from rmlab.tables import DataError

REVISION = "0123456789abcdef0123456789abcdef01234567"


def git_id(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Hub(BaseHTTPRequestHandler):
    """The listing, head and download of dataset files."""

    files: ClassVar[dict[str, bytes]]
    lfs: ClassVar[set[str]]
    asked: ClassVar[list[str]]

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body):
        path = unquote(urlsplit(self.path).path)
        self.asked.append(f"{self.command} {path}")
        if path.startswith("/api/") and "/tree/" in path:
            return self.reply(200, json.dumps(self.listing()).encode(), {"Content-Type": "application/json"}, body)
        asked, _, name = path.partition("/resolve/")[2].partition("/")
        revision = asked if len(asked) == 40 else REVISION
        if name not in self.files:
            return self.reply(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": revision}, body)
        content = self.files[name]
        etag = hashlib.sha256(content).hexdigest() if name in self.lfs else git_id(content)
        return self.reply(200, content, {"ETag": f'"{etag}"', "X-Repo-Commit": revision}, body)

    def listing(self):
        rows = []
        for name, content in self.files.items():
            row = {"type": "file", "path": name, "size": len(content), "oid": git_id(content)}
            if name in self.lfs:
                row["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
            rows.append(row)
        return [*rows, {"type": "directory", "path": "data", "oid": "0" * 40, "size": 0}]

    def reply(self, status, content, headers, body):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *_):
        pass


def point_client(monkeypatch, endpoint):
    """What HF_ENDPOINT does before the client is imported."""
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


@pytest.fixture
def server(tmp_path, monkeypatch):
    handler = type("OneHub", (Hub,), {"files": {}, "lfs": set(), "asked": []})
    running = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    point_client(monkeypatch, f"http://127.0.0.1:{running.server_port}")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    yield handler
    running.shutdown()
    thread.join()
    running.server_close()


def rm_rows(subset, ids):
    return [
        {
            "id": i,
            "subset": f"from {subset}",
            "prompt": f"{subset} {i}?",
            "chosen": [f"a{i}", f"a {i}", f"**a** {i}"],
            "rejected": [f"b{i}", f"b {i}", f"**b** {i}"],
        }
        for i in ids
    ]


def change_source(monkeypatch, name, **changes):
    """A benchmark whose place on the hub is another."""
    benchmark = known()[name]
    monkeypatch.setitem(known(), name, replace(benchmark, hub=replace(benchmark.hub, **changes)))


def small_rm_bench(monkeypatch):
    rows = {subset: rm_rows(subset, [3 + 10 * place, 20 * place]) for place, subset in enumerate(RM_BENCH, start=1)}
    change_source(monkeypatch, "rm-bench", rows=dict.fromkeys(RM_BENCH, 2))
    return rows


def total(rows):
    made = [
        {**row, "id": f"{subset}/{row['id']}", "domain": subset} for subset in rows for row in reversed(rows[subset])
    ]
    return json.dumps(made).encode()


@pytest.mark.parametrize("layout", ["total_dataset.json", "data/anything.json", "per domain"])
@pytest.mark.parametrize("lfs", [False, True])
def test_rm_bench_from_the_hub_equals_rm_bench_from_files(server, tmp_path, monkeypatch, layout, lfs):
    rows = small_rm_bench(monkeypatch)
    per_domain = {f"{subset}_filtered.json": json.dumps(rows[subset]).encode() for subset in RM_BENCH}
    server.files = {"README.md": b"# a card"} | (per_domain if layout == "per domain" else {layout: total(rows)})
    server.lfs = set(server.files) if lfs else set()
    downloaded = load("rm-bench")

    folder = tmp_path / "files"
    folder.mkdir()
    for name, content in per_domain.items():
        (folder / name).write_bytes(content)
    from_files = load("rm-bench", path=folder)
    pd.testing.assert_frame_equal(downloaded, from_files)
    assert downloaded.attrs == from_files.attrs == {"missing_domains": []}
    revision = known()["rm-bench"].hub.revision
    assert all(revision in asked for asked in server.asked if "RM-Bench" in asked)


def test_the_cache_is_used_again_and_offline(server, monkeypatch):
    server.files = {"total_dataset.json": total(small_rm_bench(monkeypatch))}
    first = load("rm-bench")
    downloads = [asked for asked in server.asked if asked.startswith("GET") and "resolve" in asked]
    assert len(downloads) == 1
    pd.testing.assert_frame_equal(load("rm-bench"), first)
    assert [asked for asked in server.asked if asked.startswith("GET") and "resolve" in asked] == downloads
    server.asked.clear()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    pd.testing.assert_frame_equal(load("rm-bench"), first)
    assert server.asked == []


def test_offline_without_a_copy_says_how_to_point_at_a_folder(server, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for name in ("rm-bench", "reward-bench", "reward-bench-2"):
        with pytest.raises(DataError, match=r"HF_HUB_OFFLINE is set.*load\('" + name + r"', path='<folder>'\)"):
            load(name)
    assert server.asked == []


def test_unreachable_hub(server, monkeypatch):
    point_client(monkeypatch, "http://127.0.0.1:9")
    with pytest.raises(DataError, match=r"http://127.0.0.1:9.*path='<folder>'"):
        load("rm-bench")
    with pytest.raises(DataError, match=r"http://127.0.0.1:9"):
        load("reward-bench")


def test_missing_file(server):
    with pytest.raises(DataError, match=r"no file ending in .json.*load\('reward-bench-2', path="):
        load("reward-bench-2")
    server.files = {"README.md": b"nothing else"}
    with pytest.raises(DataError, match=r"no file ending in .json"):
        load("rm-bench")


def test_reward_bench_pins_a_sha256(server, monkeypatch, tmp_path):
    pytest.importorskip("pyarrow")
    row = {"id": 395, "subset": "llmbar-natural", "prompt": "Why?", "chosen": "Because.", "rejected": "No."}
    pd.DataFrame([row, {**row, "id": 396}]).to_parquet(tmp_path / "file.parquet")
    content = (tmp_path / "file.parquet").read_bytes()
    source = known()["reward-bench"].hub
    server.files = {source.file: content}
    with pytest.raises(DataError, match=source.checksum) as caught:
        load("reward-bench")
    (damaged,) = (tmp_path / "cache").rglob("*.damaged")
    assert damaged.read_bytes() == content
    assert str(damaged) in str(caught.value)
    right = hashlib.sha256(content).hexdigest()
    change_source(monkeypatch, "reward-bench", checksum=right)
    with pytest.raises(DataError, match=r"holds 2 prompts, expected 2985"):
        load("reward-bench")
    change_source(monkeypatch, "reward-bench", checksum=right, rows=2)
    responses = load("reward-bench")
    pd.testing.assert_frame_equal(responses, load("reward-bench", path=tmp_path / "file.parquet"))
    assert responses["response"].tolist() == ["Because.", "No."] * 2


def test_load_pairs_from_the_hub(server):
    one = json.dumps({"prompt": "1?", "chosen": "yes", "rejected": "no"}).encode()
    two = json.dumps({"prompt": "2?", "chosen": "yes", "rejected": "no"}).encode()
    server.files = {"data/train-00000-of-00002.jsonl": one, "data/train-00001-of-00002.jsonl": two, "README.md": b"x"}
    responses = load_pairs("someone/pairs")
    assert responses["prompt"].tolist() == ["1?", "1?", "2?", "2?"]
    assert set(responses["benchmark"]) == {"pairs"}
    server.files = {**server.files, "data/test-00000-of-00001.jsonl": one}
    with pytest.raises(DataError, match=r"several splits.*'test', 'train'"):
        load_pairs("someone/pairs")
    assert len(load_pairs("someone/pairs", split="test")) == 2
    with pytest.raises(DataError, match=r"no split 'tets'; .*did you mean 'test'"):
        load_pairs("someone/pairs", split="tets")
    server.files = {"README.md": b"x"}
    with pytest.raises(DataError, match=r"no file ending in .json"):
        load_pairs("someone/pairs")
