"""The identity of a checkpoint: the bytes of every file that decides a score, wherever they lie, and nothing else."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rmlab import toy
from rmlab.scorers.checkpoints.checkpoint import find
from rmlab.scorers.classifier import classifier


@pytest.fixture
def folder(zoo, tmp_path):
    return Path(shutil.copytree(zoo(), tmp_path.resolve() / "m"))


@pytest.fixture
def files_read(monkeypatch):
    """The files that were read to be hashed, as they are, links followed."""
    files, whole = [], hashlib.file_digest

    def recorded(file, kind):
        files.append(Path(file.name).resolve())
        return whole(file, kind)

    monkeypatch.setattr(hashlib, "file_digest", recorded)
    return files


def flip(path, place):
    """Change one byte of a file, and none of the rest."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def snapshot(folder, cache, blob_name=None):
    """The files of a folder as the hub's client keeps them: links to blobs, large ones named by their SHA-256."""
    home = cache / "models--owner--model"
    place = home / "snapshots" / ("0123456789" * 4)
    place.mkdir(parents=True)
    (home / "blobs").mkdir()
    for path in folder.iterdir():
        kind = hashlib.sha256 if path.suffix == ".safetensors" else hashlib.sha1
        blob = (path.suffix == ".safetensors" and blob_name) or kind(path.read_bytes()).hexdigest()
        shutil.copy(path, home / "blobs" / blob)
        (place / path.name).symlink_to(f"../../blobs/{blob}")
    return place


@pytest.mark.parametrize("pickled", [False, True])
def test_one_byte_in_the_middle_of_a_large_matrix_counts(tmp_path, pickled):
    folder = toy.save_model(tmp_path / "m", vocab_size=40_000)
    path = folder / "model.safetensors"
    weights = load_file(path)
    rows = max(weights.values(), key=torch.numel)
    assert rows.nbytes > 4 << 20
    if pickled:
        path.unlink()
        path = folder / "pytorch_model.bin"
        torch.save(weights, path)
    contents = {find(folder, allow_pickle=pickled).content}
    middle = path.read_bytes().index(rows[20_000].numpy().tobytes())
    for place in (middle, middle + 1, middle + 99_999):
        flip(path, place)
        contents.add(find(folder, allow_pickle=pickled).content)
        flip(path, place)
    assert len(contents) == 4
    assert find(folder, allow_pickle=pickled).content in contents


def test_a_copy_another_name_and_another_time_do_not_count(folder, tmp_path):
    content = find(folder).content
    assert find(shutil.copytree(folder, tmp_path / "copy")).content == content
    assert find(folder, base=tmp_path / "copy").content == content
    moved = folder.rename(tmp_path / "a name before all others")
    os.utime(moved / "model.safetensors", (1, 1))
    (tmp_path / "link").symlink_to(moved)
    assert find(moved).content == find(tmp_path / "link").content == content


def test_every_file_of_weights_that_may_be_loaded_counts(folder):
    """Which of two files with the same weights is loaded is for transformers to say."""
    contents = [find(folder).content]
    for name in ("a.safetensors", "z.safetensors"):
        shutil.copy(folder / "model.safetensors", folder / name)
        contents.append(find(folder).content)
    for name in ("a.safetensors", "model.safetensors"):
        flip(folder / name, -1)
        contents.append(find(folder).content)
    for name, new_name in (("a", "b"), ("z", "a"), ("b", "z")):  # two files exchange their names
        (folder / f"{name}.safetensors").rename(folder / f"{new_name}.safetensors")
    contents.append(find(folder).content)
    for name in ("model.safetensors.index.json", "adapter_config.json"):
        (folder / name).write_text('{"weight_map": {}}')
        contents.append(find(folder).content)
    (folder / "config.json").write_text((folder / "config.json").read_text() + "\n")
    contents.append(find(folder).content)
    assert len(set(contents)) == len(contents)
    (folder / "README.md").write_text("no weights")
    assert find(folder).content == contents[-1]


@pytest.mark.parametrize("in_store", [False, True], ids=["blobs", "a store whose names are another hash"])
def test_a_snapshot_of_the_hub_is_what_its_copy_is(folder, tmp_path, files_read, in_store):
    """Large files are not read, also where several models share the store in which their blobs lie."""
    place = snapshot(folder, tmp_path / "hub")
    if in_store:
        blob, store = (place / "model.safetensors").resolve(), tmp_path / "hub" / "blobs" / "00"
        store.mkdir(parents=True)
        shutil.move(blob, store / ("0" * 64))
        blob.symlink_to(f"../../blobs/00/{'0' * 64}")
    content = find(place).content
    assert files_read == [(place / "config.json").resolve()], "its blob has git's name, which is not a SHA-256"
    (tmp_path / "short").symlink_to(place)
    for copy in (folder, tmp_path / "short", shutil.copytree(place, tmp_path / "copy")):
        assert find(copy).content == content


def test_a_blob_s_name_is_believed_in_the_hub_s_cache_only(folder, tmp_path):
    content = find(folder).content
    assert find(snapshot(folder, tmp_path / "hub", "0" * 64)).content != content
    for name in ("0" * 40, "0" * 64 + ".part"):
        assert find(snapshot(folder, tmp_path / name, name)).content == content
    # A folder called blobs elsewhere, and a link from elsewhere into a cache.
    for blobs in (tmp_path / "blobs", tmp_path / "hub/models--owner--model/blobs"):
        blobs.mkdir(exist_ok=True)
        shutil.copy(folder / "model.safetensors", blobs / ("1" * 64))
        linked = shutil.copytree(folder, tmp_path / f"linked {blobs.parent.name}")
        (linked / "model.safetensors").unlink()
        (linked / "model.safetensors").symlink_to(blobs / ("1" * 64))
        assert find(linked).content == content


def test_trusted_code_counts_and_other_code_does_not(folder, tmp_path):
    base = shutil.copytree(folder, tmp_path / "base")
    plain, contents = find(folder).content, []
    assert find(folder, trust_remote_code=True).content == plain
    for home, name, code in [
        (folder, "a.py", "a = 1"),
        (folder, "a.py", "a = 2"),
        (folder, "b.py", ""),
        (base, "c.py", ""),
    ]:
        (home / name).write_text(code)
        contents.append(find(folder, base=base, trust_remote_code=True).content)
    assert len({plain, *contents}) == 5
    assert find(folder).content == plain
    assert classifier(folder, trust_remote_code=True).fingerprint != classifier(folder).fingerprint
