"""What identifies a checkpoint: the bytes of every file that decides a score, wherever they lie, and nothing else."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rmlab import toy
from rmlab.scorers.checkpoints import digest
from rmlab.scorers.checkpoints.checkpoint import find

torch.set_num_threads(1)

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def folder(tmp_path):
    return toy.save_model(tmp_path.resolve() / "m")


@pytest.fixture
def settled(monkeypatch):
    """Files count as written long ago."""
    monkeypatch.setattr(digest, "SETTLED", 0)


@pytest.fixture
def read(monkeypatch):
    """The files that were read to be hashed, as they are, links followed."""
    files, whole = [], hashlib.file_digest

    def recorded(file, kind):
        files.append(Path(file.name).resolve())
        return whole(file, kind)

    monkeypatch.setattr(hashlib, "file_digest", recorded)
    return files


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def flip(path, place):
    """Change one byte of a file, and none of the rest."""
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1]))


def snapshot(folder, cache, name=sha256):
    """The files of a folder as the hub's client keeps them: links to blobs, large ones named by their SHA-256."""
    home = cache / "models--owner--model"
    place = home / "snapshots" / COMMIT
    place.mkdir(parents=True)
    (home / "blobs").mkdir()
    for path in folder.iterdir():
        blob = name(path) if path.suffix == ".safetensors" else hashlib.sha1(path.read_bytes()).hexdigest()
        shutil.copy(path, home / "blobs" / blob)
        (place / path.name).symlink_to(f"../../blobs/{blob}")
    return place


@pytest.mark.parametrize("pickled", [False, True])
def test_one_byte_in_the_middle_of_a_large_matrix_counts(tmp_path, pickled):
    folder = toy.save_model(tmp_path / "m", vocab_size=40_000)
    weights = load_file(folder / "model.safetensors")
    rows = max(weights.values(), key=torch.numel)
    assert rows.nbytes > 4 << 20
    path = folder / "model.safetensors"
    if pickled:
        path.unlink()
        path = folder / "pytorch_model.bin"
        torch.save(weights, path)
    first = find(folder, allow_pickle=pickled).content
    found = {first}
    middle = path.read_bytes().index(rows[20_000].numpy().tobytes())
    for place in (middle, middle + 1, middle + 99_999):
        flip(path, place)
        found.add(find(folder, allow_pickle=pickled).content)
        flip(path, place)
    assert len(found) == 4
    assert find(folder, allow_pickle=pickled).content == first


def test_a_copy_another_name_and_another_time_do_not_count(folder, tmp_path):
    first = find(folder).content
    assert find(shutil.copytree(folder, tmp_path / "copy")).content == first
    assert find(folder, base=tmp_path / "copy").content == first
    moved = folder.rename(tmp_path / "a name before all others")
    assert find(moved).content == first
    os.utime(moved / "model.safetensors", (1, 1))
    (moved / "config.json").touch()
    assert find(moved).content == first
    (tmp_path / "link").symlink_to(moved)
    assert find(tmp_path / "link").content == first


def test_every_file_of_weights_that_may_be_loaded_counts(folder):
    """Which of two files with the same weights is loaded is for transformers to say."""
    found = [find(folder).content]
    for name in ("a.safetensors", "z.safetensors"):
        shutil.copy(folder / "model.safetensors", folder / name)
        found.append(find(folder).content)
    for name in ("a.safetensors", "model.safetensors", "z.safetensors"):
        flip(folder / name, (folder / name).stat().st_size - 1)
        found.append(find(folder).content)
    for name in ("model.safetensors.index.json", "adapter_config.json"):
        (folder / name).write_text('{"weight_map": {}}')
        found.append(find(folder).content)
    (folder / "config.json").write_text((folder / "config.json").read_text() + "\n")
    found.append(find(folder).content)
    assert len(set(found)) == len(found)
    (folder / "README.md").write_text("no weights")
    assert find(folder).content == found[-1]


def test_two_files_that_exchange_their_names_count(folder):
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    (folder / "model.safetensors").unlink()
    for part, held in (("1", names[:3]), ("2", names[3:])):
        save_file({name: weights[name] for name in held}, folder / f"{part}.safetensors", metadata={"format": "pt"})
    first = find(folder).content
    (folder / "1.safetensors").rename(folder / "3.safetensors")
    (folder / "2.safetensors").rename(folder / "1.safetensors")
    (folder / "3.safetensors").rename(folder / "2.safetensors")
    assert find(folder).content != first


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
@pytest.mark.parametrize("cached", [False, True])
def test_a_missing_file_raises(folder, tmp_path, name, cached):
    place = snapshot(folder, tmp_path / "hub") if cached else folder
    model = find(place)
    (place / name).resolve().unlink()
    with pytest.raises(FileNotFoundError):
        _ = model.content


def test_a_snapshot_of_the_hub_is_what_its_copy_is_and_its_large_files_are_not_read(folder, tmp_path, read):
    place = snapshot(folder, tmp_path / "hub")
    cached = find(place).content
    assert read == [(place / "config.json").resolve()], "its blob has git's name, which is not a SHA-256"
    assert find(folder).content == cached
    assert folder / "model.safetensors" in read
    (tmp_path / "short").symlink_to(place)
    assert find(tmp_path / "short").content == cached
    assert find(shutil.copytree(place, tmp_path / "copy")).content == cached


def test_a_blob_s_name_is_believed_in_the_hub_s_cache_only(folder, tmp_path):
    true = find(folder).content
    assert find(snapshot(folder, tmp_path / "hub", lambda _: "0" * 64)).content != true
    for other in ("0" * 40, "0" * 63, "g" * 64, "0" * 64 + ".part"):
        assert find(snapshot(folder, tmp_path / other, lambda _, other=other: other)).content == true
    # A folder called blobs elsewhere, and a link from elsewhere into a cache.
    for blobs in (tmp_path / "blobs", tmp_path / "hub/models--owner--model/blobs"):
        blobs.mkdir(exist_ok=True)
        shutil.copy(folder / "model.safetensors", blobs / ("1" * 64))
        linked = shutil.copytree(folder, tmp_path / f"linked {blobs.parent.name}")
        (linked / "model.safetensors").unlink()
        (linked / "model.safetensors").symlink_to(blobs / ("1" * 64))
        assert find(linked).content == true


def test_a_blob_may_lie_in_a_store_that_several_models_share(folder, tmp_path, read):
    """The store's names have 64 digits too, and are another hash."""
    place = snapshot(folder, tmp_path / "hub")
    blob = (place / "model.safetensors").resolve()
    store = tmp_path / "hub" / "blobs" / "00"
    store.mkdir(parents=True)
    shutil.move(blob, store / ("0" * 64))
    blob.symlink_to(f"../../blobs/00/{'0' * 64}")
    cached = find(place).content
    assert read == [(place / "config.json").resolve()]
    assert find(folder).content == cached


@pytest.mark.usefixtures("settled")
def test_a_file_that_stays_as_it_is_is_read_once(folder, read):
    first = find(folder).content
    assert sorted(read) == [folder / "config.json", folder / "model.safetensors"]
    assert find(folder).content == find(folder / ".." / folder.name).content == first
    assert len(read) == 2
    os.utime(folder / "model.safetensors", (1, 1))
    assert find(folder).content == first
    assert len(read) == 3


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """The folder of notes on large files, which all files are here; a new process finds only these."""
    monkeypatch.setattr(digest, "LARGE", 0)
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name, appauthor: tmp_path / "cache" / name)
    digest.remembered.cache_clear()
    return tmp_path / "cache" / "rmlab" / "sha256"


@pytest.mark.usefixtures("settled")
def test_the_next_process_does_not_read_a_large_file_again(folder, read, notes):
    first = find(folder).content
    assert len(read) == len(list(notes.iterdir())) == 2
    digest.remembered.cache_clear()
    assert find(folder).content == first
    assert len(read) == 2
    flip(folder / "model.safetensors", (folder / "model.safetensors").stat().st_size - 1)
    digest.remembered.cache_clear()
    assert find(folder).content != first
    assert len(read) == 3


@pytest.mark.usefixtures("settled")
def test_a_small_file_leaves_no_note(folder, notes, monkeypatch):
    monkeypatch.setattr(digest, "LARGE", (folder / "model.safetensors").stat().st_size)
    _ = find(folder).content
    assert len(list(notes.iterdir())) == 1


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("damage", ["a folder where notes should be", "half", "no text"])
def test_a_note_that_is_no_digest_is_not_believed(folder, read, notes, damage):
    if damage.startswith("a folder"):
        notes.parent.mkdir(parents=True)
        notes.write_text("")
    first = find(folder).content
    for note in notes.iterdir() if notes.is_dir() else ():
        note.write_bytes(note.read_bytes()[:20] if damage == "half" else b"\xff")
    digest.remembered.cache_clear()
    assert find(folder).content == first
    assert len(read) == 4


def test_an_edit_at_once_counts_even_with_the_old_time(folder, read, monkeypatch):
    """The file system's clock may not have ticked between the two writes."""
    path = folder / "model.safetensors"
    os.utime(path, (1, 1))
    monkeypatch.setattr(digest, "SETTLED", 10**18)
    first = find(folder).content
    flip(path, path.stat().st_size - 1)
    os.utime(path, (1, 1))
    assert find(folder).content != first
    assert read.count(path) == 2
    assert find(folder).content != first
    assert read.count(path) == 3, "no clock can tell this state from the one before"
