"""Files of hub datasets at pinned revisions, downloaded once and verified by checksum."""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rmlab.records import SUFFIXES
from rmlab.tables import DataError, nearest

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoFile

__all__ = ["Source", "check_rows", "checksum", "fetch", "fetch_pairs"]


@dataclass(frozen=True)
class Source:
    """Where a benchmark is, and how many prompts it holds (in each subset, or in all).

    Without `file`, the data files are found in the repository's listing at that revision: the first of `layouts` that
    is there whole, or else the only data file.
    """

    repo: str
    revision: str
    rows: Mapping[str, int] | int
    file: str | None = None
    checksum: str | None = None
    layouts: Sequence[Sequence[str]] = ()


def fetch(source: Source, advice: str) -> list[Path]:
    """The verified files of a benchmark, from the hub or from its cache. HF_ENDPOINT and HF_HUB_OFFLINE count.

    Raises DataError when the hub cannot be reached and the cache has no copy, when the file is not there, and when
    its checksum is another one; the damaged file is kept aside, so that the next call downloads it afresh.
    """
    if source.file is not None:
        wanted: dict[str, str | None] = {source.file: source.checksum}
    else:
        listing = _listing(source.repo, source.revision, advice)
        wanted = {file: listing[file] for file in _data_files(source, listing)}
    return [_download(source.repo, source.revision, file, digest, advice) for file, digest in wanted.items()]


def check_rows(name: str, source: Source, counts: dict[str, int]) -> None:
    """Raise DataError unless a downloaded benchmark has the known number of prompts (in each subset)."""
    found = counts if isinstance(source.rows, Mapping) else sum(counts.values())
    if found != source.rows:
        raise DataError(
            f"{name}: {source.repo} at {source.revision} holds {found} prompts, expected {source.rows}; "
            f"the repository's layout has changed: download the released files and use load({name!r}, path=...)"
        )


def fetch_pairs(repo: str, split: str | None, revision: str | None) -> list[Path]:
    """All data files of one split of a hub dataset. A split is a file's name without its shard number."""
    advice = "load_pairs('<file>')"
    listing = _listing(repo, revision or "main", advice)
    splits: dict[str, list[str]] = {}
    for file in sorted(listing):
        if file.lower().endswith(SUFFIXES) and "dataset_infos" not in file:
            splits.setdefault(_split(file), []).append(file)
    if not splits:
        raise DataError(f"{repo}: no file ending in {', '.join(SUFFIXES)}; found: {', '.join(sorted(listing)[:10])}")
    if split is None and len(splits) > 1:
        raise DataError(f"{repo}: several splits ({', '.join(splits)}); choose one: load_pairs({repo!r}, split=...)")
    chosen = next(iter(splits)) if split is None else split
    if chosen not in splits:
        raise DataError(f"{repo}: no split {chosen!r}; {nearest(chosen, list(splits))}")
    return [_download(repo, revision or "main", file, listing[file], advice) for file in splits[chosen]]


def checksum(path: Path, kind: str) -> str:
    """Checksum of a file, "sha256:<hex>" or "git:<hex>" (git's id of the content as a blob)."""
    if kind == "git":
        digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
        digest.update(path.read_bytes())
        return f"git:{digest.hexdigest()}"
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT") or "https://huggingface.co"


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def _knock() -> None:
    """Raise at once where the hub cannot be reached: the client itself tries for half a minute."""
    from huggingface_hub import get_session

    get_session().head(_endpoint(), timeout=10)


def _listing(repo: str, revision: str, advice: str) -> dict[str, str | None]:
    """Files of a repository and their checksums; offline, the files that the cache has, verified when they came."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.hf_api import RepoFile

    with _explained(repo, revision, None, advice):
        if _offline():
            folder = Path(snapshot_download(repo, repo_type="dataset", revision=revision, local_files_only=True))
            return {path.relative_to(folder).as_posix(): None for path in folder.rglob("*") if path.is_file()}
        _knock()
        api = HfApi(endpoint=_endpoint())
        entries = list(api.list_repo_tree(repo, recursive=True, revision=revision, repo_type="dataset"))
    return {entry.path: _listed_checksum(entry) for entry in entries if isinstance(entry, RepoFile)}


def _listed_checksum(entry: "RepoFile") -> str:
    return f"sha256:{entry.lfs.sha256}" if entry.lfs is not None else f"git:{entry.blob_id}"


def _data_files(source: Source, listing: dict[str, str | None]) -> list[str]:
    data = [file for file in listing if file.lower().endswith((".json", ".jsonl", ".parquet"))]
    data = [file for file in data if not file.endswith("dataset_infos.json")]
    by_name = {Path(file).name: file for file in data}
    for layout in source.layouts:
        if all(name in by_name for name in layout):
            return [by_name[name] for name in layout]
    if len(data) != 1:
        raise DataError(
            f"{source.repo} at {source.revision}: cannot tell which file is the benchmark; found: "
            f"{', '.join(sorted(listing)[:10]) or 'none'}; download it and use load(..., path='<folder>')"
        )
    return data


def _download(repo: str, revision: str, file: str, expected: str | None, advice: str) -> Path:
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    with _explained(repo, revision, file, advice):
        cached = try_to_load_from_cache(repo, file, repo_type="dataset", revision=revision)
        if not isinstance(cached, str) and not _offline():
            _knock()
        path = Path(
            hf_hub_download(
                repo, file, repo_type="dataset", revision=revision, endpoint=_endpoint(), local_files_only=_offline()
            )
        )
    if expected is not None:
        _verify(path, f"{repo}/{file}", expected, advice)
    return path


def _verify(path: Path, name: str, expected: str, advice: str) -> None:
    found = checksum(path, expected.split(":")[0])
    if found == expected:
        return
    content = path.resolve()
    aside = content.with_name(f"{content.name}.damaged")
    os.replace(content, aside)
    path.unlink(missing_ok=True)
    raise DataError(
        f"{name}: the file is not the expected one: checksum {found}, expected {expected}; it is kept at {aside}; "
        f"run again to download it afresh, or get the file elsewhere and use {advice}"
    )


@contextmanager
def _explained(repo: str, revision: str, file: str | None, advice: str) -> Iterator[None]:
    """The hub client's errors as DataError that says what to do."""
    from huggingface_hub import errors

    # The base class of the client's own error is the HTTP library's, whichever library this client is built on.
    network: type[BaseException] = errors.HfHubHTTPError.__mro__[1]
    what = f"hub dataset {repo} at {revision}" + (f", file {file}" if file else "")
    by_hand = f"download the file from {_endpoint()}/datasets/{repo}/tree/{revision} and use {advice}"
    try:
        yield
    except errors.GatedRepoError as error:
        raise DataError(
            f"{what}: access is restricted; accept its terms on the hub and log in, or {by_hand}"
        ) from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.RemoteEntryNotFoundError) as error:
        raise DataError(f"{what}: not on {_endpoint()}; check the names, or {by_hand}") from error
    except (network, errors.LocalEntryNotFoundError, ConnectionError, TimeoutError) as error:
        why = "HF_HUB_OFFLINE is set and the cache has no copy" if _offline() else f"cannot reach {_endpoint()}"
        raise DataError(f"{what}: {why}; go online once, or {by_hand}") from error


def _split(file: str) -> str:
    stem = re.sub(r"-\d{5}-of-\d{5}$", "", str(Path(file).with_suffix("").as_posix()))
    return stem.removeprefix("data/")
