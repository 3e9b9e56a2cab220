"""Files of hub datasets at a revision, downloaded once and verified by checksum."""

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from rmlab.benchmarks.layout import Layout, list_names, match_files
from rmlab.tables import DataError, nearest
from rmlab.text import short


def fetch_benchmark(layout: Layout) -> list[Path]:
    """Download the files of a benchmark, or take them from the client's cache.

    Parameters
    ----------
    layout : Layout
        Names its datasets, their revision and the files.

    Returns
    -------
    list of Path
        The files in the cache, each with the checksum that the hub lists.

    Raises
    ------
    DataError
        If the hub and the cache have no such file, or its checksum is wrong.
    """

    def choose_files(repo: str, names: list[str]) -> list[str]:
        return match_files(repo, names, layout.files)

    paths = []
    for repo in layout.hub:
        paths += _download(repo, layout.revision, choose_files)
    return paths


def fetch_pairs(repo: str, split: str | None, revision: str | None) -> list[Path]:
    """Download the data files of one split of a dataset. A split is a file's name
    without its shard number.
    """

    def choose_files(repo: str, names: list[str]) -> list[str]:
        files_of_split: dict[str, list[str]] = {}
        for name in match_files(repo, names):
            files_of_split.setdefault(_split_of_file(name), []).append(name)
        chosen = choose_split(repo, list(files_of_split), split)
        return files_of_split[chosen]

    return _download(repo, revision or "main", choose_files)


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


def _download(
    repo: str, revision: str, choose: Callable[[str, list[str]], list[str]]
) -> list[Path]:
    """The chosen ones of a repository's files, verified; offline, of those that the
    cache holds.
    """
    from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download

    try:
        is_online = _reaches_hub()
        if is_online:
            names = HfApi().list_repo_files(
                repo, revision=revision, repo_type="dataset"
            )
        else:
            folder = snapshot_download(
                repo, revision=revision, repo_type="dataset", local_files_only=True
            )
            names = list_names(Path(folder))
        paths = []
        for name in choose(repo, names):
            file = hf_hub_download(
                repo,
                name,
                revision=revision,
                repo_type="dataset",
                local_files_only=not is_online,
            )
            paths.append(Path(file))
    except DataError:
        raise
    except Exception as error:
        place = f"{constants.ENDPOINT}/datasets/{repo} at {revision[:12]}"
        reason = short(str(error), 100)
        if not is_online:
            reason = "not in the cache, and the hub cannot be reached"
        problem = f"{place}: {type(error).__name__}: {reason}"
        remedy = "check the name and `hf auth login`, or download the files"
        raise DataError(problem, f"{remedy} and give their path") from error
    for path in paths:
        _verify(path)
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


def _verify(path: Path) -> None:
    """Raise DataError for other bytes than the hub lists, and put them aside, so that
    the next call downloads the file afresh.
    """
    # The cache names a file's content by its SHA-256, or by git's id of it.
    content = path.resolve()
    expected = content.name
    if content != path and expected not in file_checksums(content):
        damaged = content.replace(f"{content}.damaged")
        problem = f"{path.name}: not the checksum {expected} that the hub lists"
        raise DataError(f"{problem}; the file is kept at {damaged}", "run again")


def file_checksums(path: Path) -> list[str]:
    """Return the SHA-256 of a file, and git's id of it."""
    content = path.read_bytes()
    git = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
    return [hashlib.sha256(content).hexdigest(), git.hexdigest()]
