"""The identity of a checkpoint: the bytes of every file that decides a score, wherever they lie, and nothing else."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rmlab import toy
from rmlab.scorers.checkpoints.checkpoint import find
from rmlab.scorers.classifier import classifier
from rmlab.tables import DataError

torch.set_num_threads(1)

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def folder(tmp_path):
    return toy.save_model(tmp_path.resolve() / "m")


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
    contents = {first}
    middle = path.read_bytes().index(rows[20_000].numpy().tobytes())
    for place in (middle, middle + 1, middle + 99_999):
        flip(path, place)
        contents.add(find(folder, allow_pickle=pickled).content)
        flip(path, place)
    assert len(contents) == 4
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
    contents = [find(folder).content]
    for name in ("a.safetensors", "z.safetensors"):
        shutil.copy(folder / "model.safetensors", folder / name)
        contents.append(find(folder).content)
    for name in ("a.safetensors", "model.safetensors"):
        flip(folder / name, (folder / name).stat().st_size - 1)
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


@pytest.mark.parametrize("cached", [False, True])
def test_a_missing_file_raises(folder, tmp_path, cached):
    place = snapshot(folder, tmp_path / "hub") if cached else folder
    model = find(place)
    (place / "model.safetensors").resolve().unlink()
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


def name_code(folder, reference="own.Model", file="config.json", key="AutoModel"):
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": {key: reference}}))


def trusted_content(folder, **options):
    return find(folder, trust_remote_code=True, **options).content


def test_each_change_of_trusted_code_is_seen(folder):
    name_code(folder)
    contents = []
    for name, text in [("own.py", "a = 1"), ("own.py", "a = 2"), ("part.py", "a = 2"), ("part.py", "")]:
        (folder / name).write_text(text)
        contents.append(trusted_content(folder))
    assert len(set(contents)) == 4
    (folder / "part.py").unlink()
    (folder / "README.md").write_text("not code")
    assert trusted_content(folder) == contents[1]
    name_code(folder, file="tokenizer_config.json", key="AutoTokenizer", reference=["own.Tokenizer", None])
    (folder / "config.json").write_text((folder / "config.json").read_text().replace("auto_map", "other"))
    before = trusted_content(folder)
    (folder / "own.py").write_text("a = 3")
    assert trusted_content(folder) != before, "a tokenizer's own code counts too"


def test_code_that_is_not_run_does_not_count(folder):
    plain = find(folder).content
    (folder / "train.py").write_text("a = 1")
    assert trusted_content(folder) == plain, "no file names it, so transformers never runs it"
    assert classifier(folder, trust_remote_code=True).fingerprint == classifier(folder).fingerprint
    name_code(folder)
    untrusted = find(folder).content
    (folder / "train.py").write_text("a = 2")
    assert find(folder).content == untrusted != trusted_content(folder)


def test_code_beside_the_configuration_counts(folder, tmp_path):
    base = toy.save_model(tmp_path / "base", seed=1)
    name_code(base)
    (base / "own.py").write_text("a = 1")
    first = trusted_content(folder, base=base)
    (base / "own.py").write_text("a = 2")
    assert trusted_content(folder, base=base) != first
    (folder / "own.py").write_text("a = 1")
    beside_weights = trusted_content(folder, base=base)
    (folder / "own.py").write_text("a = 2")
    (base / "own.py").write_text("a = 1")
    assert trusted_content(folder, base=base) != beside_weights, "which of the two is run counts"


def test_code_of_another_repository_counts_by_its_bytes_or_its_commit(folder, tmp_path, monkeypatch):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "own.py").write_text("a = 1")
    name_code(folder, f"{tmp_path / 'code'}--own.Model")
    first = trusted_content(folder)
    (tmp_path / "code" / "own.py").write_text("a = 2")
    assert trusted_content(folder) != first
    name_code(folder, "owner/code--own.Model")
    contents = []
    for commit in ("first", "first", "second"):
        path = str(tmp_path / commit / "own.py")
        monkeypatch.setattr("transformers.utils.hub.cached_file", lambda *names, path=path: path)
        contents.append(trusted_content(folder))
    assert contents[0] == contents[1] != contents[2]

    def unreachable(*_):
        raise OSError("no network")

    monkeypatch.setattr("transformers.utils.hub.cached_file", unreachable)
    with pytest.raises(DataError, match="'owner/code'"):
        trusted_content(folder)
