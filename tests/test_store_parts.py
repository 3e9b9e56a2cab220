"""Stores on object storage, and by URL: an object per flush, read by everybody; killed writers."""

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from fakes import Streaming, responses

import rmlab
from rmlab.scoring import merge, score
from rmlab.store import Store
from rmlab.tables import DataError

KEYS = [f"{i:032x}" for i in range(12)]
VALUES = np.random.default_rng(0).normal(size=12).tolist()
TRUE = dict(zip(KEYS, VALUES, strict=True))


@pytest.fixture(params=["file", "memory"])
def url(request, tmp_path):
    if request.param == "file":
        return (tmp_path / "scores").as_uri()
    return f"memory://{tmp_path}"


@pytest.fixture
def objects(tmp_path):
    """The address of a store on object storage."""
    return f"memory://{tmp_path}"


def files(url):
    store = Store(url)
    return [name for name in store.list_files("f1") if name.endswith(".records")]


def read(url):
    return Store(url).read("f1")


def some(start, stop):
    return {key: TRUE[key] for key in KEYS[start:stop]}


def test_a_flush_is_an_object(objects):
    store = Store(objects)
    store.append("f1", some(0, 5))
    assert read(objects) == {}, "it waits"
    store.append("f1", some(5, 8))
    store.flush()
    assert len(files(objects)) == 1
    store.append("f1", some(8, 12))
    store.flush()
    store.flush()
    assert len(files(objects)) == 2
    assert read(objects) == TRUE
    assert Store(objects).fingerprints() == ["f1"]


def test_an_object_is_written_after_some_seconds(objects, monkeypatch):
    monkeypatch.setattr("rmlab.store.FLUSH_SECONDS", 0.0)
    Store(objects).append("f1", TRUE)
    assert read(objects) == TRUE


def test_what_was_not_written_is_written_with_the_next_flush(objects, monkeypatch):
    store = Store(objects)
    with monkeypatch.context() as patch:
        patch.setattr(type(store.fs), "pipe_file", lambda *args: (_ for _ in ()).throw(OSError(5, "no route")))
        store.append("f1", some(0, 5))
        with pytest.raises(OSError, match="no route"):
            store.flush()
    store.append("f1", some(5, 12))
    store.flush()
    assert read(objects) == TRUE


def test_writers_see_one_another_and_believe_the_first(url):
    one, two = Store(url), Store(url)
    one.append("f1", {KEYS[0]: 1.0})
    two.append("f1", {KEYS[0]: 2.0, KEYS[1]: 3.0})
    one.flush()
    two.flush()
    first = 1.0 if one.writer < two.writer else 2.0
    assert one.read("f1") == two.read("f1") == read(url) == {KEYS[0]: first, KEYS[1]: 3.0}


def test_half_an_object_keeps_its_whole_lines(objects):
    store = Store(objects)
    store.append("f1", TRUE)
    store.flush()
    path = f"{store.root}/f1/{files(objects)[0]}"
    whole = store.fs.cat_file(path)
    for size in (30, len(whole) // 2, len(whole) - 1):
        store.fs.pipe_file(path, whole[:size])
        with pytest.warns(UserWarning, match="1 unreadable"):
            found = read(objects)
        assert len(found) == max(whole[:size].count(b"\n") - 1, 0)
        assert found.items() <= TRUE.items()


def test_a_folder_is_one_store_under_both_names(tmp_path):
    Store(tmp_path).append("f1", some(0, 4))
    Store(tmp_path.as_uri()).append("f1", some(4, 12))
    assert read(tmp_path) == read(tmp_path.as_uri()) == TRUE


def test_a_run_resumes_and_leaves_its_table(url):
    frame = responses(10)
    rest = Streaming()
    found = score(frame, Streaming(), store=url)
    again = score(frame, rest, store=url)
    assert rest.forwarded == []
    assert found["score"].tolist() == again["score"].tolist() == score(frame, Streaming())["score"].tolist()
    table = Store(url).read_table("fake.fake.csv")
    assert table.count(b"\n") == len(frame) + 1


def test_shards_without_a_table_merge_between_all_kinds_of_places(url, tmp_path):
    frame = responses(10)
    for part in (1, 2):
        score(frame, Streaming(), store=url, shard=(part, 2))
    assert merge(url, tmp_path / "here")["added"].tolist() == [60]
    assert merge(tmp_path / "here", f"{url}-copy")["added"].tolist() == [60]
    assert merge([url, f"{url}-copy"], url)["added"].sum() == 0
    assert score(frame, Streaming(before=pytest.fail), store=f"{url}-copy").equals(score(frame, Streaming()))
    with pytest.raises(DataError, match="-absent is not there"):
        merge(f"{url}-absent", tmp_path / "here")


def test_merging_makes_few_objects_of_many(objects):
    store = Store(objects)
    for start in range(0, 12, 2):
        store.append("f1", some(start, start + 2))
        store.flush()
    assert len(files(objects)) == 6
    merge(objects, f"{objects}-copy")
    assert len(files(f"{objects}-copy")) == 1
    assert read(f"{objects}-copy") == TRUE


@pytest.mark.parametrize("kind", ["objects", "folder"])
def test_a_shard_keeps_its_own_keys_in_memory(tmp_path, kind):
    """A hundred thousand records, of which a worker wants a hundred: a few MB pass by, and a hundred records stay."""
    store = Store(tmp_path if kind == "folder" else f"memory://{tmp_path}")
    keys, size = [f"{i:032x}" for i in range(100_000)], 2000
    for start in range(0, len(keys), size):
        store.append("f1", dict(zip(keys[start : start + size], (np.arange(size) + 0.5).tolist(), strict=True)))
        store.flush()
    held, peaks = {}, {}
    for wanted in (keys[::1000], None):
        tracemalloc.start()
        values = store.read("f1", wanted)
        held[wanted is None], peaks[wanted is None] = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert sorted(values) == (wanted or keys)
    assert held[False] < held[True] / 50, held
    assert peaks[False] < peaks[True] / 3, peaks


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere://scores", "'nowhere://scores' cannot be used .*s3://bucket/folder"),
        ("simplecache::memory://scores", "'simplecache::memory://scores' goes through a cache"),
        ("memory://", "names no single folder"),
        ("memory://a/*", "names no single folder"),
    ],
)
def test_addresses_that_cannot_be_used_are_refused(place, message):
    with pytest.raises(DataError, match=f"store: {message}|store: .*{message}"):
        Store(place)


def test_the_command_line_takes_a_url(main, tmp_path):
    url = (tmp_path / "scores").as_uri()
    scorer = Streaming(name="toy")
    score(rmlab.load("mini"), scorer, store=url)
    code, out, err = main("merge", url, "--into", tmp_path / "here")
    assert (code, err) == (0, "")
    assert out.splitlines()[1].split(",")[1:3] == ["toy", url]


@pytest.mark.skipif(os.name == "nt", reason="links and pipes of POSIX")
@pytest.mark.parametrize("trap", ["link", "pipe", "folder"])
def test_nothing_in_a_store_leads_elsewhere(tmp_path, trap):
    mine = tmp_path / "home"
    mine.mkdir()
    (mine / "0.records").write_text("secret\n")
    url = (tmp_path / "scores").as_uri()
    Store(url).append("f1", TRUE)
    folder = tmp_path / "scores" / "f1"
    if trap == "link":
        (folder / "0.records").symlink_to(mine / "0.records")
    elif trap == "pipe":
        os.mkfifo(folder / "0.records")
    else:
        folder.rename(tmp_path / "away")
        folder.symlink_to(mine)
    with pytest.raises(DataError, match=r"is a link|is a pipe"):
        read(url)
    if trap == "folder":
        with pytest.raises(DataError, match="is a link"):
            Store(url).append("f1", TRUE)
    assert [path.name for path in mine.iterdir()] == ["0.records"]


# Children are forked from a process that has imported rmlab once, so that they start at once.
DRIVER = f"""
import json, os, random, signal, sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from fakes import Streaming, responses
from rmlab.scorers import Text
from rmlab.scoring import score
from rmlab.store import Store
url, seed = sys.argv[1:]
frame, chance, truth = responses(240), random.Random(int(seed)), Streaming()
texts = [Text(prompt, (response,)) for prompt, response in zip(frame["prompt"], frame["response"])]
true = {{text.key: truth.score_text(text) for text in texts}}

def start(number):
    child = os.fork()
    if child == 0:
        try:
            shard = (number % 4 + 1, 4) if number % 2 else None
            score(frame, Streaming(seed=number, before=lambda keys: time.sleep(0.004)), store=url, shard=shard)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return child

seen, killed, midway = set(), 0, 0
reader = Store(url)
for turn in range(20):
    children = [start(number) for number in range(8)]
    chance.shuffle(children)
    for child in children:
        time.sleep(chance.uniform(0, 0.02))
        if chance.random() < 0.3:
            found = reader.read("fake-1")
            assert all(true[key] == value for key, value in found.items()), "read by halves"
            assert seen <= set(found), "lost"
            midway += len(seen) < len(found) < len(true)
            seen = set(found)
        os.kill(child, signal.SIGKILL)
        killed += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
print(json.dumps([killed, midway, len(reader.read("fake-1"))]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_eight_writers_killed_twenty_times(tmp_path):
    url = (tmp_path / "scores").as_uri()
    command = [sys.executable, "-W", "error", "-c", DRIVER, url, "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    killed, midway, seen = json.loads(done.stdout)
    assert killed > 60
    assert midway > 0, "looked at while it grew"
    frame, rest = responses(240), Streaming()
    found = score(frame, rest, store=url)
    assert len(rest.forwarded) == len(frame) - seen, "nothing that was written is scored again"
    assert found["score"].tolist() == score(frame, Streaming())["score"].tolist()
    assert not found.duplicated(rmlab.tables.KEY).any()
