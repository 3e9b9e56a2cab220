"""The text of a store's file: a header line, then one line per score, each with a checksum of its own.

A score's line is `key <tab> score <tab> checksum`. The score is the shortest decimal that reads back to the same
float64. The checksum is the CRC-32 of the rest, begun from the fingerprint's, so that a line in the wrong folder is
refused as well.
"""

import math
import re
import zlib
from pathlib import Path
from typing import NamedTuple

from rmlab.tables import DataError

__all__ = ["SUFFIX", "VERSION", "Parsed", "check_fingerprint", "header", "line", "parse"]

SUFFIX = ".scores"
VERSION = 1
_MAGIC = "rmlab-scores"


class Parsed(NamedTuple):
    """Good records, bad lines, and what stands behind the last line end."""

    good: dict[str, float]
    bad: list[bytes]
    torn: bytes


def header(fingerprint: str) -> bytes:
    """First line of a file: what it is, format version, fingerprint, checksum."""
    body = f"{_MAGIC}\t{VERSION}\t{fingerprint}".encode()
    return body + b"\t" + _check(body, 0) + b"\n"


def line(fingerprint: str, key: str, value: float) -> bytes:
    """Line of one score."""
    if not key or "\t" in key or "\n" in key:
        raise DataError(f"store: {key!r} cannot be a key; allowed: non-empty text without tab and line break")
    body = f"{key}\t{value!r}".encode()
    return body + b"\t" + _check(body, _seed(fingerprint)) + b"\n"


def parse(path: Path, data: bytes, fingerprint: str, *, from_start: bool) -> Parsed:
    """Take bytes of a file apart. The first of two records of one key counts.

    Raises DataError for a file of another format version or another fingerprint, and for a line that is no record
    though its checksum is right: that is no damage.
    """
    *rows, torn = data.split(b"\n")
    if from_start and rows and _is_header(path, rows[0], fingerprint):
        rows = rows[1:]
    seed = _seed(fingerprint)
    good: dict[str, float] = {}
    bad = []
    for row in rows:
        body, _, check = row.rpartition(b"\t")
        key, _, value = body.partition(b"\t")
        if key and check == _check(body, seed):
            good.setdefault(*_record(path, key, value))
        else:
            bad.append(row)
    return Parsed(good, bad, torn)


def _record(path: Path, key: bytes, value: bytes) -> tuple[str, float]:
    """Key and score of a line; what `line` did not write was written by somebody else."""
    try:
        name, number = key.decode(), float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or repr(number).encode() != value:
        found = b"\t".join([key, value])
        raise DataError(
            f"store: {path} has the line {found!r:.120} with a right checksum and no finite score; rmlab did not write "
            "it: delete the file, and ask where it came from"
        )
    return name, number


def check_fingerprint(fingerprint: str) -> str:
    """Return the fingerprint, or raise DataError where it cannot name a folder."""
    if not isinstance(fingerprint, str) or not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}", fingerprint):
        raise DataError(
            f"fingerprint: {fingerprint!r} cannot name a folder; allowed: letters, digits, '.', '_', '-', at most "
            "128 characters; a hash in hexadecimal will do"
        )
    return fingerprint


def _is_header(path: Path, row: bytes, fingerprint: str) -> bool:
    body, _, check = row.rpartition(b"\t")
    fields = body.decode(errors="replace").split("\t")
    if fields[0] != _MAGIC or len(fields) < 3 or check != _check(body, 0):
        return False
    if fields[1] != str(VERSION):
        raise DataError(
            f"store: {path} has format version {fields[1]}, this rmlab reads version {VERSION}; "
            "update rmlab, or point store= at another folder"
        )
    if fields[2] != fingerprint:
        raise DataError(
            f"store: {path} holds scores of fingerprint {fields[2]}, its folder says {fingerprint}; "
            "move the file back to the folder of its fingerprint"
        )
    return True


def _seed(fingerprint: str) -> int:
    return zlib.crc32(fingerprint.encode())


def _check(body: bytes, seed: int) -> bytes:
    return b"%08x" % zlib.crc32(body, seed)
