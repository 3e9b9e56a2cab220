"""Files of hub datasets at a revision, downloaded once and verified by checksum."""

import fnmatch
import hashlib
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rmlab.records import SUFFIXES
from rmlab.tables import DataError, nearest
from rmlab.text import short


@dataclass(frozen=True)
class HubPlace:
    """Place of a benchmark on the hub.

    Parameters
    ----------
    repo : str or sequence of str
        The dataset's name, or those of its parts.
    revision : str
        The commit.
    rows : mapping or int, optional
        Number of prompts, in each subset or in all.
    file : str, optional
        The data file, or a pattern of several; where the repository has none of that
        name, all its data files.
    checksum : str, optional
        SHA-256 of the file, in hexadecimal.
    """

    repo: str | Sequence[str]
    revision: str
    rows: Mapping[str, int] | int | None = None
    file: str | None = None
    checksum: str | None = None


def fetch_benchmark(place: HubPlace, remedy: str) -> list[Path]:
    """Download the files of a benchmark, or take them from the client's cache.

    Each file must have the checksum that is pinned here or listed by the hub.

    Parameters
    ----------
    place : HubPlace
        The place on the hub.
    remedy : str
        The call that reads files instead, for messages.

    Returns
    -------
    list of Path
        The files in the cache.

    Raises
    ------
    DataError
        If the hub and the cache have no such file, or its checksum is wrong.
    """

    def choose_file(names: list[str]) -> list[str]:
        return fnmatch.filter(names, place.file or "") or names

    repos = [place.repo] if isinstance(place.repo, str) else place.repo
    paths = []
    for repo in repos:
        revision = place.revision
        paths += _download(repo, revision, remedy, choose_file, place.checksum)
    return paths


def check_row_counts(name: str, place: HubPlace, responses: pd.DataFrame) -> None:
    """Raise DataError unless a download has the expected number of prompts, where that
    is known.
    """
    if place.rows is None:
        return
    prompts = responses.drop_duplicates(["subset", "id"])
    n_prompts: Mapping[Hashable, int] | int = len(prompts)
    if isinstance(place.rows, Mapping):
        n_prompts = prompts["subset"].value_counts().to_dict()
    if n_prompts != place.rows:
        counts = f"{n_prompts} prompts, expected {place.rows}"
        problem = f"{name}: {place.repo} at {place.revision} holds {counts}"
        remedy = f"download the released files and use load({name!r}, path=...)"
        raise DataError(problem, remedy)


def fetch_pairs(repo: str, split: str | None, revision: str | None) -> list[Path]:
    """Download the data files of one split of a dataset. A split is a file's name
    without its shard number.
    """

    def choose_files(names: list[str]) -> list[str]:
        files_of_split: dict[str, list[str]] = {}
        for name in names:
            files_of_split.setdefault(_split_of_file(name), []).append(name)
        chosen = choose_split(repo, list(files_of_split), split)
        return files_of_split[chosen]

    return _download(
        repo, revision or "main", "load_preferences('<file>')", choose_files
    )


def choose_split(place: object, splits: Sequence[str], split: str | None) -> str:
    """The split that is chosen, or the only one; DataError names them."""
    if split is None and len(splits) == 1:
        return splits[0]
    if split is None or split not in splits:
        problem = "several splits" if split is None else f"no split {split!r}"
        problem = f"{place}: {problem}; {nearest(split or '', splits)}"
        raise DataError(problem, "choose with split=")
    return split


def _split_of_file(name: str) -> str:
    return re.sub(r"(-\d{5}-of-\d{5})?\.\w+$", "", name).removeprefix("data/")


def file_checksums(path: Path) -> list[str]:
    """Return the SHA-256 of a file, and git's id of it."""
    content = path.read_bytes()
    git = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
    return [hashlib.sha256(content).hexdigest(), git.hexdigest()]


def _download(
    repo: str,
    revision: str,
    remedy: str,
    choose: Callable[[list[str]], list[str]],
    checksum: str | None = None,
) -> list[Path]:
    """The chosen ones of a repository's data files, verified; offline, of those that
    the cache holds.
    """
    try:
        is_online = _reaches_hub()
        checksums = _list_checksums(repo, revision, is_online)
        names = choose(_list_data_files(checksums, repo, revision, remedy))
        paths = []
        for name in names:
            path = _download_file(repo, name, revision, is_online)
            expected = checksum or checksums[name]
            if expected:
                _verify(path, f"{repo}/{name}", expected)
            paths.append(path)
    except DataError:
        raise
    except Exception as error:
        raise _explain_failure(error, repo, revision, remedy) from error
    return paths


def _reaches_hub() -> bool:
    """Whether the hub answers.

    The client itself retries for 23 seconds before it looks into its cache
    (huggingface_hub 2.4).
    """
    from huggingface_hub import constants, get_session

    # An error of the HTTP library that this client is built on, or HF_HUB_OFFLINE.
    try:
        get_session().head(constants.ENDPOINT, timeout=5)
    except Exception:
        return False
    return True


def _list_data_files(
    names: Iterable[str], repo: str, revision: str, remedy: str
) -> list[str]:
    data_files = []
    for name in sorted(names):
        if name.lower().endswith(SUFFIXES) and "dataset_infos" not in name:
            data_files.append(name)
    if not data_files:
        problem = f"{repo} at {revision}: no file ending in {', '.join(SUFFIXES)}"
        raise DataError(problem, f"use {remedy}")
    return data_files


def _download_file(repo: str, name: str, revision: str, is_online: bool) -> Path:
    from huggingface_hub import hf_hub_download

    path = hf_hub_download(
        repo,
        name,
        revision=revision,
        repo_type="dataset",
        local_files_only=not is_online,
    )
    return Path(path)


def _explain_failure(
    error: Exception, repo: str, revision: str, remedy: str
) -> DataError:
    """The error of a download that failed: what the hub or its client says."""
    from huggingface_hub import constants, errors

    if constants.HF_HUB_OFFLINE:
        problem = "not in the cache, and HF_HUB_OFFLINE is set"
    elif isinstance(error, errors.LocalEntryNotFoundError):
        problem = f"{constants.ENDPOINT} cannot be reached"
    elif isinstance(error, errors.GatedRepoError):
        problem = "access is restricted; accept its terms there and run `hf auth login`"
    else:
        problem = f"{type(error).__name__}: {short(str(error), 100)}; check the names"
    place = f"{constants.ENDPOINT}/datasets/{repo} at {revision[:12]}"
    return DataError(f"{place}: {problem}", f"or download the files and use {remedy}")


def _list_checksums(repo: str, revision: str, is_online: bool) -> dict[str, str | None]:
    """Checksums by the names of a repository's files; None for those of the cache,
    which were verified as they came.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.hf_api import RepoFile

    if not is_online:
        folder = snapshot_download(
            repo, revision=revision, repo_type="dataset", local_files_only=True
        )
        return dict.fromkeys(_list_paths(Path(folder)))

    checksums: dict[str, str | None] = {}
    entries = HfApi().list_repo_tree(
        repo, recursive=True, revision=revision, repo_type="dataset"
    )
    for entry in entries:
        if not isinstance(entry, RepoFile):
            continue
        if entry.lfs is None:
            checksums[entry.path] = entry.blob_id
        else:
            checksums[entry.path] = entry.lfs.sha256
    return checksums


def _list_paths(folder: Path) -> list[str]:
    """Files of a folder and those inside, as paths in it."""
    names = []
    for path in filter(Path.is_file, folder.rglob("*")):
        names.append(path.relative_to(folder).as_posix())
    return names


def _verify(path: Path, name: str, expected: str) -> None:
    """Raise DataError for other bytes, and put them aside, so that the next call
    downloads the file afresh.
    """
    checksums = file_checksums(path)
    if expected not in checksums:
        damaged = path.resolve().replace(f"{path.resolve()}.damaged")
        difference = f"checksum {' or '.join(checksums)}, expected {expected}"
        problem = f"{name}: {difference}; the file is kept at {damaged}"
        raise DataError(problem, "run again")
