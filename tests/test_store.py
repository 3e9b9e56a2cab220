"""The store in a folder, by URL and on object storage: writers, torn and changed bytes,
full disks, killed writers.
"""

import io
import os
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fakes import Here, Streaming, responses
from hypothesis import given, settings
from hypothesis import strategies as st

import rmlab
from rmlab import store as store_module
from rmlab.baselines import longest
from rmlab.scorers.base import Text
from rmlab.scoring import merge_stores, score
from rmlab.store import Store
from rmlab.tables import DataError

KEYS = [f"{i:032x}" for i in range(12)]
VALUES = np.random.default_rng(0).normal(size=12).tolist()
TRUTH = dict(zip(KEYS, VALUES, strict=True))
PLACES = ["folder", "file", "memory"]


def place_of(kind, folder):
    """The address of a store: a folder, the same by URL, or object storage."""
    return {
        "folder": folder / "scores",
        "file": (folder / "scores").as_uri(),
        "memory": f"memory://{folder}",
    }[kind]


@pytest.fixture(params=PLACES)
def place(request, tmp_path):
    return place_of(request.param, tmp_path)


@pytest.fixture
def folder(tmp_path):
    return place_of("folder", tmp_path)


@pytest.fixture
def objects(tmp_path):
    return place_of("memory", tmp_path)


def files(place, fingerprint="f1"):
    """The paths of the files with records."""
    store = Store(place)
    names = [
        name for name in store.list_files(fingerprint) if name.endswith(".records")
    ]
    return [f"{store.root}/{fingerprint}/{name}" for name in names]


def fill(place, records=TRUTH, fingerprint="f1"):
    """The file system and the path of a file with these records, of a writer of its
    own.
    """
    writer = Store(place)
    writer.append(fingerprint, records)
    writer.flush()
    return writer.fs, next(
        path for path in files(place, fingerprint) if writer.writer in path
    )


def read(place, fingerprint="f1"):
    return Store(place).read(fingerprint)


def some(start, stop=None):
    return {key: TRUTH[key] for key in KEYS[start:stop]}


@given(
    st.text(),
    st.text()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.lists(st.floats(allow_nan=False, allow_infinity=False))
    | st.dictionaries(st.text(), st.text()),
)
def test_every_key_and_value_comes_back_bit_for_bit(key, value):
    line = store_module.encode_line({"key": key, "value": value}, "f")
    assert line.count(b"\n") == 1
    decoded = store_module.decode_line(line, "f")
    assert decoded == {"crc": line[8:16].decode(), "key": key, "value": value}
    if isinstance(value, float | list):
        assert (
            np.array(decoded["value"], float).tobytes()
            == np.array(value, float).tobytes()
        )


def test_append_then_read(place):
    store = Store(place)
    assert read(place) == {}
    assert not store.fs.exists(store.root), "reading makes nothing"
    fill(place)
    assert read(place) == TRUTH
    assert store.read("f1", [*KEYS[3:5], "absent"]) == some(3, 5)
    assert store.fingerprints() == ["f1"]


def test_writers_see_one_another_and_believe_the_first(place):
    one, two = Store(place), Store(place)
    one.append("f1", {KEYS[0]: 1.0})
    two.append("f1", {KEYS[0]: 2.0, KEYS[1]: 3.0})
    one.flush()
    two.flush()
    first = min(one, two, key=lambda store: store.writer)
    expected = {KEYS[0]: 1.0 if first is one else 2.0, KEYS[1]: 3.0}
    assert one.read("f1") == two.read("f1") == read(place) == expected
    one.append("f1", some(4, 6))
    one.flush()
    assert two.read("f1") == expected | some(4, 6)
    assert two.runs("f1") == {one.writer: {"scored": 3}, two.writer: {"scored": 2}}
    n_files = 2 if one.is_local else 3
    assert len(files(place)) == n_files, "folders get lines, object storage objects"


def test_some_seconds_are_an_object(objects, monkeypatch):
    store = Store(objects)
    store.append("f1", some(0, 5))
    assert read(objects) == {}, "it waits"
    store.append("f1", some(5))
    store.flush()
    store.flush()
    assert len(files(objects)) == 1
    assert read(objects) == TRUTH
    monkeypatch.setattr(store_module, "FLUSH_SECONDS", 0.0)
    Store(f"{objects}-copy").append("f1", TRUTH)
    assert read(f"{objects}-copy") == TRUTH


def test_lines_with_windows_line_ends_are_read_and_an_address_may_have_one(folder):
    fs, path = fill(folder)
    fs.pipe_file(path, fs.cat_file(path).replace(b"\n", b"\r\n"))
    assert read(f"{folder}\r") == TRUTH
    assert Store(f"{folder}\r").root == str(folder)


class AwayError(Exception):
    """An error of a client of object storage: neither OSError nor ValueError."""


@contextmanager
def away(fs, methods):
    def fail(*args, **options):
        raise AwayError("no route")

    with pytest.MonkeyPatch.context() as patch:
        for method in methods:
            patch.setattr(type(fs), method, fail)
        yield


def test_object_storage_that_is_away_is_one_error_and_loses_nothing(objects):
    """It was a raw error of its client, and the unwritten seconds were lost."""
    frame = responses(20)
    expected = score(frame, Streaming())
    fs = Store(objects).fs
    with away(fs, ["ls"]), pytest.raises(DataError, match=r"memory://.*no route"):
        score(frame, Streaming(), store=objects)
    with away(fs, ["pipe_file"]), pytest.raises(DataError, match="no route"):
        score(frame, Streaming(), store=objects)
    rest = Streaming()
    found = score(frame, rest, store=objects)
    assert rest.forwarded == [], "what was scored is written by the next run"
    assert found["score"].tolist() == expected["score"].tolist()
    assert len(Store(objects).read("fake-1")) == len(frame)


def test_scores_of_a_run_that_fails_are_written_while_its_error_is_kept(objects):
    """A notebook keeps the last error; what had been scored was never written."""
    frame = responses(20)
    broken = Streaming(nan=frame["response"].tail(1))
    with pytest.raises(DataError, match="is nan") as caught:
        score(frame, broken, store=objects)
    assert len(Store(objects).read("fake-1")) == len(broken.forwarded) - 1
    assert caught.traceback


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_torn_anywhere_keeps_every_whole_line(tmp_path, kind):
    place = place_of(kind, tmp_path)
    fs, path = fill(place)
    whole = fs.cat_file(path)
    for size in range(0, len(whole), 23):
        torn = whole[:size]
        fs.pipe_file(path, torn)
        is_clean = size == 0 or torn.endswith(b"\n")
        warned = nullcontext() if is_clean else pytest.warns(match="1 unreadable")
        with warned:
            assert read(place) == some(0, max(torn.count(b"\n") - 1, 0))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_changed_byte_never_becomes_a_score(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("scores")
    fs, path = fill(folder)
    content = bytearray(fs.cat_file(path))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] = data.draw(
        st.integers(0, 255).filter(lambda byte: byte != content[place])
    )
    fs.pipe_file(path, bytes(content))
    with pytest.warns(UserWarning, match="damaged"):
        found = read(folder)
    assert found.items() <= TRUTH.items()
    assert len(found) >= len(KEYS) - 2


def test_what_a_damaged_line_held_is_written_again(folder):
    fs, path = fill(folder)
    fs.pipe_file(path, fs.cat_file(path)[:-5])
    with pytest.warns(UserWarning, match="1 unreadable lines skipped, 11 records"):
        assert len(read(folder)) == 11
    fill(folder, some(11))
    with pytest.warns(UserWarning, match="1 unreadable"):
        assert read(folder) == TRUTH
    with pytest.warns(UserWarning, match="1 unreadable"):
        merge_stores(folder, f"{folder}-copy")
    assert read(f"{folder}-copy") == TRUTH


def test_lines_of_another_fingerprint_are_refused(folder):
    fs, path = fill(folder)
    fs.makedirs(f"{folder}/f2")
    fs.copy(path, f"{folder}/f2/w.records")
    with pytest.warns(UserWarning, match="13 unreadable"):
        assert read(folder, "f2") == {}


def test_bad_arguments_are_named(folder, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="is not a folder"):
        Store(tmp_path / "file")
    for bad in ("", "../up", "a b", "x" * 129):
        with pytest.raises(DataError, match="cannot name a folder"):
            fill(folder, {"key": 1.0}, bad)
    for value in (np.nan, [1.0, np.inf]):
        with pytest.raises(DataError, match="finite"):
            fill(folder, {"k": value})
    assert read(folder) == {}


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere://scores", "'nowhere://scores' cannot be used .*s3://bucket/folder"),
        ("simplecache::memory://scores", ".*cannot be a store"),
        ("https://example.org/scores", ".*cannot be a store"),
        ("zip://scores.zip", ".*cannot be a store"),
        ("github://org:repo@main/scores", ".*cannot be a store"),
        ("memory://", ".*names no single folder"),
        ("memory://a/*", ".*names no single folder"),
    ],
)
def test_addresses_that_cannot_be_used_are_refused(place, message):
    with pytest.raises(DataError, match=f"store: {message}"):
        Store(place)


def test_a_stored_value_that_is_no_score_of_the_scorer_is_refused(tmp_path):
    """A scorer that came to give another number of columns under its old fingerprint
    met a ValueError of NumPy.
    """
    table = responses(2, slots=1)
    prompt, answer = table.loc[0, ["prompt", "response"]]
    Store(tmp_path).append("fake-1", {Text(prompt, (answer,)).key: [1.0, 2.0]})
    with pytest.raises(DataError, match=r"fake-1.*fingerprint"):
        score(table, Streaming(), store=tmp_path)


FULL = """
import resource, signal, sys
from rmlab.store import Store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store, limit = Store(sys.argv[1]), int(sys.argv[2])
if limit:
    store.append("f1", {"a": 1.0, "b": 2.0})
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
try:
    store.append("f1", {f"key{i}": float(i) for i in range(100)})
except OSError as error:
    print(error)
unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
store.append("f1", {"c": 3.0})
"""


@pytest.mark.skipif(os.name == "nt", reason="needs file size limits")
@pytest.mark.parametrize(("limit", "before"), [(500, {"a": 1.0, "b": 2.0}), (0, {})])
def test_full_disk_is_said_and_loses_nothing(tmp_path, limit, before):
    """A limit on file size refuses a write in its middle, or the first one, as a full
    disk does.
    """
    command = [sys.executable, "-c", FULL, str(tmp_path), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "cannot write" in done.stdout
    assert "free the disk" in done.stdout
    with pytest.warns(UserWarning, match="1 unreadable") if limit else nullcontext():
        assert read(tmp_path) == before | {"c": 3.0} | {
            f"key{i}": float(i) for i in range(100)
        }


def test_merge_adds_once_and_counts_conflicts(folder, tmp_path):
    one, two, store = Store(tmp_path / "one"), tmp_path / "two", Store(folder)
    one.note("f1", {"name": "m"})
    one.append("f1", some(0, 8))
    fill(two, some(6) | {KEYS[6]: VALUES[6] + 0.5})
    fill(two, some(0, 3), "f2")
    table = merge_stores([one.root, two], folder)
    assert table["added"].tolist() == [8, 4, 3]
    assert table["model"].tolist() == ["m", "", ""]
    assert table["conflicts"].tolist() == [0, 1, 0]
    assert table["max_difference"].iloc[1] == pytest.approx(0.5)
    assert store.read("f1") == TRUTH
    assert {"name": "m", "scored": 8} in store.runs("f1").values()
    assert merge_stores([one.root, two, folder], folder)["added"].sum() == 0
    with pytest.raises(DataError, match="absent is not there"):
        merge_stores([tmp_path / "absent", folder], tmp_path / "into")
    assert not (tmp_path / "into").exists()


def test_a_merge_of_records_of_other_lengths_says_so(folder, tmp_path):
    """It was a ValueError of NumPy."""
    fill(folder, {"k": [1.0, 2.0]})
    fill(tmp_path / "two", {"k": 1.0, "l": 2.0})
    with pytest.raises(DataError, match=r"'f1' have 1 values .* 2 in the other"):
        merge_stores(tmp_path / "two", folder)
    assert read(folder) == {"k": [1.0, 2.0]}


@pytest.mark.parametrize("first", [2, 10])
def test_a_smaller_run_does_not_replace_a_larger_table(place, first):
    frame = responses(10)
    whole = score(frame, Streaming())
    n_first = first * 6
    score(frame[:n_first], Streaming(), store=place)
    score(frame[30:42], Streaming(), store=place)
    table = pd.read_csv(io.BytesIO(Store(place).read_table("fake.fake.csv")))
    key = ["domain", "id", "label", "slot"]
    ranges = {*range(n_first), *range(30, 42)}
    expected = whole.iloc[sorted(ranges)].set_index(key)["score"]
    found = table.astype({"id": str}).set_index(key)["score"]
    assert len(found) == len(expected)
    np.testing.assert_array_equal(found[expected.index], expected)


@pytest.mark.parametrize("entry", ["fingerprint", "reader", "scale", "subsets"])
def test_a_table_of_another_scorer_or_reading_is_replaced(tmp_path, entry):
    class Reading(Streaming):
        def provenance(self):
            return super().provenance() | {entry: self.about}

    frame = responses(4)
    for about, n_rows in (("one", 24), ("one", 6), ("other", 6)):
        scorer = Reading()
        scorer.about = about
        score(frame[:n_rows], scorer, store=tmp_path)
        n_expected = 24 if about == "one" else 6
        assert len(rmlab.read_scores(tmp_path / "fake.fake.csv")) == n_expected


def test_a_scorer_on_a_cluster_reads_what_is_stored_as_it_does_alone(tmp_path):
    class Restoring(Streaming):
        seen = None

        def require_like(self, runs):
            self.seen = list(runs)

        def restore(self, texts, rows):
            return [row + 1 for row in rows]

    first = score(responses(2), Streaming(), store=tmp_path)
    scorer = Restoring()
    again = score(responses(2), scorer, store=tmp_path, cluster=Here())
    assert len(scorer.seen) == 1
    assert again["score"].tolist() == (first["score"] + 1).tolist()


def test_merge_copies_tables_and_leaves_those_of_the_target_as_they_are(tmp_path):
    one, two, into = (Store(tmp_path / name) for name in ("one", "two", "into"))
    score(responses(2), longest, store=one.root)
    table = "longest.fake.csv"
    two.write_table(table, b"other")
    two.write_table("more.fake.csv", b"more")
    into.write_table("more.fake.csv", b"mine")
    assert merge_stores([one.root, two.root], into.root).empty
    for name in (table, f"{table}.provenance.json"):
        assert into.read_table(name) == one.read_table(name), "the first source's"
    assert into.read_table("more.fake.csv") == b"mine"
    merge_stores(one.root, two.root)
    assert two.tables() == [table, "more.fake.csv"], "no provenance of other bytes"
    assert two.read_table(table) == b"other"


def test_merging_makes_few_objects_of_many(objects):
    store = Store(objects)
    for start in range(0, 12, 2):
        store.append("f1", some(start, start + 2))
        store.flush()
    assert len(files(objects)) == 6
    merge_stores(objects, f"{objects}-copy")
    assert len(files(f"{objects}-copy")) == 1
    assert read(f"{objects}-copy") == TRUTH


def test_shards_without_a_table_merge_between_all_kinds_of_places(
    place, tmp_path, main
):
    frame = responses(10)
    for part in (1, 2):
        score(frame, Streaming(), store=place, shard=(part, 2))
    code, out, err = main("merge", place, "--into", tmp_path / "here")
    assert (code, err) == (0, "")
    assert out.splitlines()[1].split(",")[1:4] == ["fake", str(place), "60"]
    assert merge_stores(tmp_path / "here", f"{place}-copy")["added"].tolist() == [60]
    merged = score(frame, Streaming(before=pytest.fail), store=f"{place}-copy")
    assert merged.equals(score(frame, Streaming()))


SHARD = """
import sys
from fakes import Streaming, responses
from rmlab.scoring import score
score(responses(40), Streaming(), store=sys.argv[1], shard=sys.argv[2])
"""
ABSENT = find_spec("moto") is None or find_spec("s3fs") is None


@pytest.fixture
def bucket(monkeypatch):
    """The address of an empty bucket; the server and the keys to it are in the
    environment, as a cluster has them.
    """
    import fsspec
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    settings = {
        "ACCESS_KEY_ID": "key",
        "SECRET_ACCESS_KEY": "secret",
        "DEFAULT_REGION": "us-east-1",
    }
    settings["ENDPOINT_URL"] = "http://{}:{}".format(*server.get_host_and_port())
    for name, value in settings.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    fsspec.filesystem("s3").mkdir("lab")
    yield "s3://lab/scores"
    fsspec.filesystem("s3").clear_instance_cache()
    server.stop()


@pytest.mark.long
@pytest.mark.skipif(ABSENT, reason="needs moto[server] and s3fs: make test-long")
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_shards_share_a_bucket_of_a_real_s3_server(bucket, tmp_path):
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])
    }
    commands = [
        [sys.executable, "-c", SHARD, bucket, f"{part}/4"] for part in range(1, 5)
    ]
    shards = [
        subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    for shard in shards:
        errors = shard.communicate()[1]
        assert shard.returncode == 0, errors
    frame, rest = responses(40), Streaming()
    found = score(frame, rest, store=bucket)
    assert rest.forwarded == [], "the four parts are all there is"
    np.testing.assert_array_equal(found["score"], score(frame, Streaming())["score"])
    assert Store(bucket).fingerprints() == ["fake-1"]
    assert b"fake" in Store(bucket).read_table("fake.fake.csv")
    assert merge_stores(bucket, tmp_path / "here")["added"].tolist() == [240]
    assert merge_stores(tmp_path / "here", f"{bucket}-copy")["added"].tolist() == [240]
