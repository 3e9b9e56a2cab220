"""Downloads through the real hub client from a small server on this machine."""

import hashlib
import json
from dataclasses import replace
from urllib.parse import unquote, urlsplit

import huggingface_hub
import huggingface_hub.constants
import huggingface_hub.file_download
import pandas as pd
import pytest
from faulty_server import FaultyServer

from rmlab.benchmarks import load, load_preferences
from rmlab.benchmarks.hub import file_checksums
from rmlab.benchmarks.registry import benchmarks_by_name
from rmlab.benchmarks.rm_bench import SUBSETS as RM_BENCH
from rmlab.tables import DataError

REVISION = "0123456789abcdef0123456789abcdef01234567"


def git_id(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Hub:
    """The listing, head and download of dataset files, by name.

    `lfs`: files with a SHA-256. `damaged`: files that arrive with other bytes than the
    listing says. `refusal`: the hub's word for why it lists nothing.
    """

    def __init__(self):
        self.files, self.lfs, self.damaged, self.refusal = {}, set(), set(), None
        self.server = FaultyServer(self.respond)

    @property
    def asked(self):
        return [f"{seen.method} {seen.path}" for seen in self.server.log]

    def respond(self, path, body, headers):
        path = unquote(urlsplit(path).path)
        if path.startswith("/api/") and "/tree/" in path:
            if self.refusal:
                return 403, {"X-Error-Code": self.refusal}, b""
            rows = [
                self.list_file(name, content) for name, content in self.files.items()
            ]
            return [
                *rows,
                {"type": "directory", "path": "data", "oid": "0" * 40, "size": 0},
            ]
        revision, _, name = path.partition("/resolve/")[2].partition("/")
        commit = {"X-Repo-Commit": revision if len(revision) == 40 else REVISION}
        if name not in self.files:
            return 404, commit | {"X-Error-Code": "EntryNotFound"}, b""
        content = self.files[name]
        etag = (
            hashlib.sha256(content).hexdigest() if name in self.lfs else git_id(content)
        )
        sent = (
            content.replace(b"chosen", b"chasen") if name in self.damaged else content
        )
        return 200, commit | {"ETag": f'"{etag}"'}, sent

    def list_file(self, name, content):
        size = len(content)
        row = {"type": "file", "path": name, "size": size, "oid": git_id(content)}
        lfs = {
            "oid": hashlib.sha256(content).hexdigest(),
            "size": size,
            "pointerSize": 130,
        }
        return row | ({"lfs": lfs} if name in self.lfs else {})


@pytest.fixture
def point_client(tmp_path, monkeypatch):
    """What HF_ENDPOINT does before the client is imported."""

    def point(endpoint, offline=False):
        template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        settings = {
            "ENDPOINT": endpoint,
            "HUGGINGFACE_CO_URL_TEMPLATE": template,
            "HF_HUB_OFFLINE": offline,
        }
        for name, value in (
            settings | {"HF_HUB_CACHE": str(tmp_path / "cache")}
        ).items():
            monkeypatch.setattr(huggingface_hub.constants, name, value)
        # Before huggingface_hub 1 the module has a copy.
        monkeypatch.setattr(
            huggingface_hub.file_download,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            template,
            raising=False,
        )
        # It also keeps sessions that were opened before.
        getattr(huggingface_hub.utils, "reset_sessions", list)()

    return point


@pytest.fixture
def server(point_client, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    hub = Hub()
    with hub.server:
        point_client(hub.server.url)
        yield hub


def expect(monkeypatch, name, n_prompts):
    """A benchmark of so many prompts."""
    benchmark = benchmarks_by_name()[name]
    layout = replace(benchmark.layout, n_prompts=n_prompts)
    monkeypatch.setitem(benchmarks_by_name(), name, replace(benchmark, layout=layout))


@pytest.fixture
def rm_bench(monkeypatch):
    """Two prompts in each of RM-Bench's files, by subset."""
    expect(monkeypatch, "rm-bench", 10)
    texts = {
        label: [f"{label[0]}", f"{label} it is", f"**{label}**"]
        for label in ("chosen", "rejected")
    }
    return {
        name: [
            {"id": i, "subset": f"from {name}", "prompt": f"{name} {i}?"} | texts
            for i in (3 + 10 * n, 20 * n)
        ]
        for n, name in enumerate(RM_BENCH, start=1)
    }


def total(rows):
    """The total file, its rows in another order."""
    pieces = [
        {**r, "id": f"{subset}/{r['id']}", "domain": subset}
        for subset in rows
        for r in rows[subset]
    ]
    return json.dumps(pieces).encode()


@pytest.mark.parametrize(
    "layout", ["total_dataset.json", "data/anything.json", "per domain"]
)
def test_rm_bench_from_the_hub_equals_rm_bench_from_files(
    server, tmp_path, rm_bench, layout
):
    per_domain = {
        f"{subset}_filtered.json": json.dumps(rm_bench[subset]).encode()
        for subset in RM_BENCH
    }
    server.files = {"README.md": b"# a card"} | (
        per_domain if layout == "per domain" else {layout: total(rm_bench)}
    )
    folder = tmp_path / "files"
    folder.mkdir()
    for name, content in per_domain.items():
        (folder / name).write_bytes(content)
    downloaded, from_files = load("rm-bench"), load("rm-bench", path=folder)
    pd.testing.assert_frame_equal(downloaded, from_files)
    revision = benchmarks_by_name()["rm-bench"].layout.revision
    assert all(revision in asked for asked in server.asked if "RM-Bench" in asked)


def test_the_cache_is_used_again_and_offline(server, point_client, rm_bench):
    server.files = {"total_dataset.json": total(rm_bench)}
    first = load("rm-bench")
    pd.testing.assert_frame_equal(load("rm-bench"), first)
    assert (
        len(
            [
                asked
                for asked in server.asked
                if asked.startswith("GET") and "resolve" in asked
            ]
        )
        == 1
    )
    n_asked = len(server.asked)
    point_client(server.server.url, offline=True)
    pd.testing.assert_frame_equal(load("rm-bench"), first)
    assert len(server.asked) == n_asked


@pytest.mark.parametrize("is_lfs", [False, True])
def test_bytes_that_the_hub_does_not_list_are_put_aside_and_not_read(
    server, tmp_path, rm_bench, is_lfs
):
    content = total(rm_bench)
    server.files, server.damaged = (
        {"total_dataset.json": content},
        {"total_dataset.json"},
    )
    server.lfs = server.damaged if is_lfs else set()
    listed = hashlib.sha256(content).hexdigest() if is_lfs else git_id(content)
    with pytest.raises(DataError, match=listed) as caught:
        load("rm-bench")
    (damaged,) = (tmp_path / "cache").rglob("*.damaged")
    assert damaged.read_bytes() != content
    assert str(damaged) in str(caught.value)
    server.damaged = set()
    assert len(load("rm-bench")) == 5 * 2 * 6


def test_prompts_that_rm_bench_does_not_have_are_counted(server, rm_bench, monkeypatch):
    server.files = {"total_dataset.json": total(rm_bench)}
    expect(monkeypatch, "rm-bench", 1327)
    with pytest.raises(DataError, match=r"10 prompts, expected 1327"):
        load("rm-bench")


def test_git_s_id_of_a_file_and_its_sha256(tmp_path):
    # `printf 'hello\n' | git hash-object --stdin` and `sha256sum`
    (tmp_path / "file").write_bytes(b"hello\n")
    sha256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
    assert file_checksums(tmp_path / "file") == [
        sha256,
        "ce013625030ba8dba906f756967f9e9ca394464a",
    ]


def test_the_released_files_have_the_published_ids(shared_data):
    published = {
        "chat": "af210df0642ce1da3c8ff3678bece786edb4ad3e",
        "code": "157b03af8afcacf880ce7cb4ba0ed907557112d2",
        "safety-refuse": "64ff3399ffb919a258c450708ff30f52ce6ff6f0",
        "safety-response": "7b04873a95dd8952bddd5ac3b5399732bd992c21",
    }
    for subset, checksum in published.items():
        assert checksum in file_checksums(
            shared_data / "rm-bench" / f"{subset}_filtered.json"
        )


@pytest.mark.parametrize(
    ("refusal", "hint"), [("GatedRepo", "hf auth login"), ("RepoNotFound", "check")]
)
def test_a_refusal_of_the_hub_says_where_and_what_to_do(server, refusal, hint):
    server.refusal = refusal
    url = f"{server.server.url}/datasets/THU-KEG/RM-Bench"
    with pytest.raises(DataError, match=rf"{url}.*{hint}|{hint}.*{url}"):
        load("rm-bench")


@pytest.mark.parametrize("fault", ["no file", "offline", "http://127.0.0.1:9"])
def test_a_hub_without_the_file_is_named(server, point_client, fault):
    server.files = {"README.md": b"nothing else"}
    url = fault if fault.startswith("http") else server.server.url
    point_client(url, offline=fault == "offline")
    with pytest.raises(DataError, match="allenai/reward-bench"):
        load("reward-bench")
    assert fault == "no file" or server.asked == []


def test_load_preferences_from_the_hub(server):
    rows = [
        json.dumps({"chosen": "yes", "rejected": "no", "prompt": f"{i}?"}).encode()
        for i in range(3)
    ]
    server.files = {f"data/train-0000{i}-of-00002.jsonl": rows[i] for i in range(2)} | {
        "README.md": b"x"
    }
    responses = load_preferences("someone/pairs")
    assert responses["prompt"].tolist() == ["0?", "0?", "1?", "1?"]
    assert set(responses["benchmark"]) == {"pairs"}
    server.files |= {"data/test-00000-of-00001.jsonl": rows[2]}
    assert len(load_preferences("someone/pairs", split="test")) == 2
    for split, message in ((None, r"'test', 'train'"), ("tets", r"'tets'; .*'test'")):
        with pytest.raises(DataError, match=message):
            load_preferences("someone/pairs", split=split)


def test_m_reward_bench_takes_the_files_of_languages_and_says_that_none_is_verified(
    server, monkeypatch, caplog
):
    expect(monkeypatch, "m-reward-bench", 2)
    texts = {"id": 0, "source": "math-prm", "prompt": "?", "chosen": "a"}
    for folder, language in (("deu_Latn", "de"), ("zho_Hans", "zh")):
        frame = pd.DataFrame([texts | {"rejected": "b", "language": language}])
        content = frame.to_parquet()
        server.files[f"{folder}/test-00000-of-00001.parquet"] = content
        server.files[f"{folder}/raw.json"] = b"[{}]"
    server.files["translation/test-00000-of-00001.parquet"] = content
    responses = load("m-reward-bench")
    assert responses["language"].unique().tolist() == ["de", "zh"]
    assert responses["id"].unique().tolist() == ["de/0", "zh/0"]
    assert "not verified" in caplog.text
