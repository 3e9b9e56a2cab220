"""Files of hub datasets at a revision, downloaded once and verified by checksum."""

import hashlib
from pathlib import Path

from rmlab.benchmarks.layout import Layout, match_files
from rmlab.tables import DataError
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
    from huggingface_hub import constants, snapshot_download

    paths = []
    for repo in layout.hub:
        try:
            folder = snapshot_download(
                repo,
                repo_type="dataset",
                revision=layout.revision,
                allow_patterns=[*layout.files] or None,
            )
            paths += match_files(Path(folder), layout.files)
        # Errors of the client, of its HTTP library, and an empty folder.
        except Exception as error:
            place = f"{constants.ENDPOINT}/datasets/{repo} at {layout.revision[:12]}"
            problem = f"{place}: {type(error).__name__}: {short(str(error), 100)}"
            remedy = "check the name and `hf auth login`, or download the files"
            raise DataError(problem, f"{remedy} and give their path") from error
    for path in paths:
        _verify(path)
    return paths


def _verify(path: Path) -> None:
    """Delete a file with other bytes than the hub lists, so that the next call
    downloads it afresh, and raise DataError.
    """
    # The cache names a file's content by its SHA-256, or by git's id of it.
    content = path.resolve()
    expected = content.name
    if content != path and expected not in file_checksums(content):
        content.unlink()
        problem = f"{path.name}: not the checksum {expected} that the hub lists"
        raise DataError(problem, "run again, to download the file afresh")


def file_checksums(path: Path) -> list[str]:
    """Return the SHA-256 of a file, and git's id of it."""
    content = path.read_bytes()
    git = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
    return [hashlib.sha256(content).hexdigest(), git.hexdigest()]
