"""Files of hub datasets at a revision, downloaded once and verified by checksum."""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rmlab.records import SUFFIXES
from rmlab.tables import DataError, nearest
from rmlab.text import short


@dataclass(frozen=True)
class Source:
    """Place of a benchmark on the hub.

    Parameters
    ----------
    repo, revision : str
        The dataset's name and the commit.
    rows : mapping or int
        Number of prompts, in each subset or in all.
    file : str, optional
        The data file; where the repository has none of that name, all its data files.
    checksum : str, optional
        SHA-256 of the file, in hexadecimal.
    """

    repo: str
    revision: str
    rows: Mapping[str, int] | int
    file: str | None = None
    checksum: str | None = None


def fetch_benchmark(source: Source, remedy: str) -> list[Path]:
    """Download the files of a benchmark, or take them from the client's cache.

    Each file must have the checksum that is pinned here or listed by the hub.

    Parameters
    ----------
    source : Source
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
        return [name for name in names if name == source.file] or names

    return _download(source.repo, source.revision, remedy, choose_file, source.checksum)


def check_row_counts(name: str, source: Source, responses: pd.DataFrame) -> None:
    """Raise DataError unless a downloaded benchmark has the expected number of prompts."""
    prompts = responses.drop_duplicates(["subset", "id"])
    n_prompts = (
        prompts["subset"].value_counts().to_dict()
        if isinstance(source.rows, Mapping)
        else len(prompts)
    )
    if n_prompts != source.rows:
        problem = f"{source.repo} at {source.revision} holds {n_prompts} prompts, expected {source.rows}"
        raise DataError(
            f"{name}: {problem}; download the released files and use load({name!r}, path=...)"
        )


def fetch_pairs(repo: str, split: str | None, revision: str | None) -> list[Path]:
    """Download the data files of one split of a dataset. A split is a file's name
    without its shard number.
    """

    def choose_split(names: list[str]) -> list[str]:
        stems = {
            name: re.sub(r"(-\d{5}-of-\d{5})?\.\w+$", "", name).removeprefix("data/")
            for name in names
        }
        splits = list(dict.fromkeys(stems.values()))
        chosen = splits[0] if split is None and len(splits) == 1 else split
        if chosen not in splits:
            problem = "several splits" if split is None else f"no split {split!r}"
            raise DataError(
                f"{repo}: {problem}; {nearest(split or '', splits)}; choose with split="
            )
        return [name for name, stem in stems.items() if stem == chosen]

    return _download(repo, revision or "main", "load_pairs('<file>')", choose_split)


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
    from huggingface_hub import constants, errors, get_session, hf_hub_download

    try:
        # the client itself retries for 23 seconds before it looks into its cache
        # (huggingface_hub 2.4)
        try:
            get_session().head(constants.ENDPOINT, timeout=5)
            is_online = True
        # the errors of the HTTP library that this client is built on, or HF_HUB_OFFLINE
        except Exception:
            is_online = False
        listed = _list_checksums(repo, revision, is_online)
        names = [
            name
            for name in sorted(listed)
            if name.lower().endswith(SUFFIXES) and "dataset_infos" not in name
        ]
        if not names:
            raise DataError(
                f"{repo} at {revision}: no file ending in {', '.join(SUFFIXES)}; use {remedy}"
            )
        paths = []
        for name in choose(names):
            path = Path(
                hf_hub_download(
                    repo,
                    name,
                    revision=revision,
                    repo_type="dataset",
                    local_files_only=not is_online,
                )
            )
            if expected := checksum or listed[name]:
                _verify(path, f"{repo}/{name}", expected)
            paths.append(path)
    except DataError:
        raise
    except Exception as error:
        if constants.HF_HUB_OFFLINE:
            problem = "not in the cache, and HF_HUB_OFFLINE is set"
        elif isinstance(error, errors.LocalEntryNotFoundError):
            problem = f"{constants.ENDPOINT} cannot be reached"
        elif isinstance(error, errors.GatedRepoError):
            problem = (
                "access is restricted; accept its terms there and run `hf auth login`"
            )
        else:
            problem = (
                f"{type(error).__name__}: {short(str(error), 100)}; check the names"
            )
        where = f"{constants.ENDPOINT}/datasets/{repo} at {revision[:12]}"
        raise DataError(
            f"{where}: {problem}; or download the files and use {remedy}"
        ) from error
    return paths


def _list_checksums(repo: str, revision: str, is_online: bool) -> dict[str, str | None]:
    """Checksums by the names of a repository's files; None for those of the cache,
    which were verified as they came.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.hf_api import RepoFile

    if not is_online:
        folder = Path(
            snapshot_download(
                repo, revision=revision, repo_type="dataset", local_files_only=True
            )
        )
        return {
            path.relative_to(folder).as_posix(): None
            for path in folder.rglob("*")
            if path.is_file()
        }
    checksums: dict[str, str | None] = {}
    for entry in HfApi().list_repo_tree(
        repo, recursive=True, revision=revision, repo_type="dataset"
    ):
        if isinstance(entry, RepoFile):
            checksums[entry.path] = (
                entry.blob_id if entry.lfs is None else entry.lfs.sha256
            )
    return checksums


def _verify(path: Path, name: str, expected: str) -> None:
    """Raise DataError for other bytes, and put them aside, so that the next call
    downloads the file afresh.
    """
    checksums = file_checksums(path)
    if expected not in checksums:
        damaged = path.resolve().rename(f"{path.resolve()}.damaged")
        problem = f"checksum {' or '.join(checksums)}, expected {expected}; the file is kept at {damaged}"
        raise DataError(f"{name}: {problem}; run again")
