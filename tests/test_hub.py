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
from benchmark_worlds import NINE, TRANSLATED, write
from faulty_server import FaultyServer

from rmlab.benchmarks import load
from rmlab.benchmarks.hub import file_checksums
from rmlab.benchmarks.registry import benchmarks_by_name
from rmlab.benchmarks.rm_bench import SUBSETS as RM_BENCH
from rmlab.tables import DataError

REVISION = "0123456789abcdef0123456789abcdef01234567"


def git_id(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Hub:
    """The commit, listing, head and download of dataset files, by name.

    `lfs`: files with a SHA-256. `damaged`: files that arrive with other bytes than the
    listing says. `refusal`: the hub's word for why it lists nothing.
    """

    def __init__(self):
        self.files, self.lfs, self.damaged, self.refusal = {}, set(), set(), None
        self.server = FaultyServer(self.respond)

    def downloads(self):
        asked = [seen.path for seen in self.server.log if seen.method == "GET"]
        return [path for path in asked if "resolve" in path]

    def respond(self, path, body, headers):
        path = unquote(urlsplit(path).path)
        if path.startswith("/api/"):
            if self.refusal:
                return 403, {"X-Error-Code": self.refusal}, b""
            if "/tree/" in path:
                return [self.list_file(name) for name in self.files]
            names = [{"rfilename": name} for name in self.files]
            commit = {"id": "x/y", "sha": path.rpartition("/")[2]}
            if len(commit["sha"]) != 40:
                commit["sha"] = REVISION
            return commit | {"siblings": names}
        revision, _, name = path.partition("/resolve/")[2].partition("/")
        content = self.files[name]
        etag = git_id(content)
        if name in self.lfs:
            etag = hashlib.sha256(content).hexdigest()
        if name in self.damaged:
            content = content.replace(b"chosen", b"chasen")
        return 200, {"X-Repo-Commit": revision, "ETag": f'"{etag}"'}, content

    def list_file(self, name):
        content = self.files[name]
        size = len(content)
        row = {"type": "file", "path": name, "size": size, "oid": git_id(content)}
        if name in self.lfs:
            sha256 = hashlib.sha256(content).hexdigest()
            row["lfs"] = {"oid": sha256, "size": size, "pointerSize": 130}
        return row


@pytest.fixture
def point_client(tmp_path, monkeypatch):
    """What HF_ENDPOINT does before the client is imported."""

    def point(endpoint, offline=False):
        constants = huggingface_hub.constants
        template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
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
def total(monkeypatch):
    """RM-Bench's total file with two prompts of each subset."""
    expect(monkeypatch, "rm-bench", 10)
    names = [*RM_BENCH] * 2
    rows = [NINE | {"id": n, "domain": name} for n, name in enumerate(names)]
    return json.dumps(rows).encode()


@pytest.mark.parametrize("name", ["total_dataset.json", "data/anything.json"])
def test_rm_bench_is_downloaded_once_at_its_revision(
    server, point_client, tmp_path, total, name
):
    server.files = {"README.md": b"# a card", name: total}
    downloaded = load("rm-bench")
    path = write(tmp_path / "total_dataset.json", json.loads(total))
    pd.testing.assert_frame_equal(downloaded, load("rm-bench", path=path))
    (asked,) = server.downloads()
    assert benchmarks_by_name()["rm-bench"].layout.revision in asked
    for offline in (False, True):
        point_client(server.server.url, offline=offline)
        pd.testing.assert_frame_equal(load("rm-bench"), downloaded)
    assert server.downloads() == [asked]


@pytest.mark.parametrize("is_lfs", [False, True])
def test_bytes_that_the_hub_does_not_list_are_deleted_and_not_read(
    server, tmp_path, total, is_lfs
):
    server.files = {"total_dataset.json": total}
    server.damaged = {"total_dataset.json"}
    server.lfs = server.damaged if is_lfs else set()
    listed = hashlib.sha256(total).hexdigest() if is_lfs else git_id(total)
    with pytest.raises(DataError, match=listed):
        load("rm-bench")
    server.damaged = set()
    assert len(load("rm-bench")) == 5 * 2 * 6


def test_prompts_that_rm_bench_does_not_have_are_counted(server, total, monkeypatch):
    server.files = {"total_dataset.json": total}
    expect(monkeypatch, "rm-bench", 1327)
    with pytest.raises(DataError, match=r"10 prompts, expected 1327"):
        load("rm-bench")


def test_git_s_id_of_a_file_and_its_sha256(tmp_path):
    # `printf 'hello\n' | git hash-object --stdin` and `sha256sum`
    (tmp_path / "file").write_bytes(b"hello\n")
    assert file_checksums(tmp_path / "file") == [
        "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
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
        path = shared_data / "rm-bench" / f"{subset}_filtered.json"
        assert checksum in file_checksums(path)


@pytest.mark.parametrize("fault", ["GatedRepo", "RepoNotFound", "no file", "offline"])
def test_what_the_hub_does_not_give_is_named_with_a_remedy(server, point_client, fault):
    server.files = {"README.md": b"nothing else"}
    server.refusal = None if fault == "no file" else fault
    point_client(server.server.url, offline=fault == "offline")
    url = f"{server.server.url}/datasets/allenai/reward-bench"
    with pytest.raises(DataError, match=rf"{url}.*hf auth login"):
        load("reward-bench")


def test_m_reward_bench_takes_the_files_of_languages_and_says_that_none_is_verified(
    server, monkeypatch, caplog
):
    expect(monkeypatch, "m-reward-bench", 2)
    for folder, language in (("deu_Latn", "de"), ("zho_Hans", "zh")):
        content = pd.DataFrame([TRANSLATED | {"language": language}]).to_parquet()
        server.files[f"{folder}/test-00000-of-00001.parquet"] = content
        server.files[f"{folder}/raw.json"] = b"[{}]"
    server.files["translation/test-00000-of-00001.parquet"] = content
    responses = load("m-reward-bench")
    assert responses["id"].unique().tolist() == ["de/1718", "zh/1718"]
    assert len(server.downloads()) == 2
    assert "not verified" in caplog.text
