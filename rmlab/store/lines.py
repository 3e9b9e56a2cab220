"""The text of a store's file: a header line, then one line per record, each with a checksum of its own.

A line is `key <tab> value <tab> checksum`. A score is the shortest decimal that reads back to the same float64; an
answer is one line of JSON. The checksum is the CRC-32 of the rest, begun from the fingerprint's, so that a line in the
wrong folder is refused as well.
"""

import math
import re
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from rmlab.tables import DataError

__all__ = [
    "ANSWERS",
    "SCORES",
    "SUFFIX",
    "VERSION",
    "Format",
    "Parsed",
    "check_fingerprint",
    "column_key",
    "header",
    "line",
    "parse",
    "text_key",
    "texts",
]

SUFFIX = ".scores"
VERSION = 1

V = TypeVar("V")


@dataclass(frozen=True)
class Format(Generic[V]):
    """What the records of a file hold. `noun`: for people; `suffix`, `magic`: name and first word of such a file.

    `write` makes a value one line without tabs; `read` makes it a value again, and raises ValueError for a line that
    `write` did not write.
    """

    noun: str
    suffix: str
    magic: str
    write: Callable[[V], str]
    read: Callable[[str, str], V]


# No scorer's own key holds it.
_COLUMN = "\x1f"


class Parsed(NamedTuple, Generic[V]):
    """Good records (`lines`: as they stand there), bad lines, and what stands behind the last line end."""

    good: dict[str, V]
    bad: list[bytes]
    torn: bytes
    lines: dict[str, bytes]


def _score(key: str, text: str) -> float:
    """The score of a line; ValueError for one that is not finite, or not written as the shortest decimal."""
    number = float(text)
    if not math.isfinite(number) or repr(number) != text:
        raise ValueError(f"{text!r} is not the shortest decimal of a finite score")
    return number


def _text(key: str, text: str) -> str:
    return text


SCORES: Format[float] = Format("scores", SUFFIX, "rmlab-scores", repr, _score)

ANSWERS: Format[str] = Format("answers", ".answers", "rmlab-answers", str, _text)
"""Answers of judges, as one line of text each: what they mean is told by who asked."""


def header(fingerprint: str, format: Format[Any] = SCORES) -> bytes:
    """First line of a file: what it is, format version, fingerprint, checksum."""
    body = f"{format.magic}\t{VERSION}\t{fingerprint}".encode()
    return body + b"\t" + checksum(body, 0) + b"\n"


def line(fingerprint: str, key: str, value: str) -> bytes:
    """Line of one record; `value`: as its format writes it."""
    if not key or "\t" in key or "\n" in key:
        raise DataError(f"store: {key!r} cannot be a key; allowed: non-empty text without tab and line break")
    body = f"{key}\t{value}".encode()
    return body + b"\t" + checksum(body, _seed(fingerprint)) + b"\n"


def parse(path: Path, data: bytes, fingerprint: str, *, from_start: bool, format: Format[Any] = SCORES) -> Parsed[Any]:
    """Take bytes of a file apart. The first of two records of one key counts.

    Raises DataError for a file of another format version or another fingerprint, and for a line that is not a
    record though its checksum is right: that is not damage.
    """
    *rows, torn = data.split(b"\n")
    if from_start and rows and _is_header(path, rows[0], fingerprint, format):
        rows = rows[1:]
    seed = _seed(fingerprint)
    good: dict[str, Any] = {}
    held: dict[str, bytes] = {}
    bad = []
    for row in rows:
        body, _, check = row.rpartition(b"\t")
        key, _, value = body.partition(b"\t")
        if key and check == checksum(body, seed):
            name, read = _record(path, key, value, format)
            good.setdefault(name, read)
            held.setdefault(name, row)
        else:
            bad.append(row)
    return Parsed(good, bad, torn, held)


def _record(path: Path, key: bytes, value: bytes, format: Format[V]) -> tuple[str, V]:
    """Key and value of a line; what `line` did not write was written by somebody else."""
    try:
        name = key.decode()
        return name, format.read(name, value.decode())
    except (ValueError, RecursionError):
        found = b"\t".join([key, value])
        kind = "finite score" if format.suffix == SUFFIX else "answer"
        raise DataError(
            f"store: {path} has the line {found!r:.120} with a right checksum and no {kind}; rmlab did not write "
            "it: delete the file, and ask where it came from"
        ) from None


def column_key(key: str, name: str) -> str:
    """Key of a further value of a text, such as an attribute, beside its score."""
    return f"{key}{_COLUMN}{name}"


def text_key(key: str) -> str:
    """Key of the text that a record is of."""
    return key.partition(_COLUMN)[0]


def texts(keys: Iterable[str]) -> int:
    """How many of the keys are those of texts, and not of further values."""
    return sum(_COLUMN not in key for key in keys)


def check_fingerprint(fingerprint: str) -> str:
    """Return the fingerprint, or raise DataError where it cannot name a folder."""
    if not isinstance(fingerprint, str) or not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}", fingerprint):
        raise DataError(
            f"fingerprint: {fingerprint!r} cannot name a folder; allowed: letters, digits, '.', '_', '-', at most "
            "128 characters; a hash in hexadecimal will do"
        )
    return fingerprint


def _is_header(path: Path, row: bytes, fingerprint: str, format: Format[V]) -> bool:
    body, _, check = row.rpartition(b"\t")
    fields = body.decode(errors="replace").split("\t")
    if fields[0] != format.magic or len(fields) < 3 or check != checksum(body, 0):
        return False
    if fields[1] != str(VERSION):
        raise DataError(
            f"store: {path} has format version {fields[1]}, this rmlab reads version {VERSION}; "
            "update rmlab, or point store= at another folder"
        )
    if fields[2] != fingerprint:
        raise DataError(
            f"store: {path} holds {format.noun} of fingerprint {fields[2]}, its folder says {fingerprint}; "
            "move the file back to the folder of its fingerprint"
        )
    return True


def _seed(fingerprint: str) -> int:
    return zlib.crc32(fingerprint.encode())


def checksum(body: bytes, seed: int) -> bytes:
    """CRC-32 of a line, begun from `seed`, in eight hexadecimal digits."""
    return b"%08x" % zlib.crc32(body, seed)
