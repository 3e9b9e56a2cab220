"""Parameters that several functions share are described once, in the docstring of one
of them; the others say "As in `that function`". The reference shows the description.
"""

import inspect
import re
import sys
from functools import reduce
from itertools import groupby
from typing import NamedTuple

import rmlab

_SECTION = re.compile(
    r"(?<=^Parameters\n----------\n)(.*?)(?=^\w[\w ]*\n---|\Z)", re.M | re.S
)
_ENTRY = re.compile(r"^(?P<head>\S[^\n]*)\n(?P<text>(?:[ ]+[^\n]*\n?|\n)*)", re.M)
_SAME = re.compile(r"\s*As in `(?P<function>[\w.]+)`\.\s*(?P<more>.*)", re.S)


class Entry(NamedTuple):
    """Names with their type, and the lines below them."""

    names: list[str]
    kind: str
    text: str


def fill(obj: object, doc: str) -> str:
    """A docstring in which no parameter is described as that of another function."""
    return _SECTION.sub(lambda section: _fill_section(obj, section[0]), doc)


def _fill_section(obj: object, section: str) -> str:
    text = ""
    for entry in _entries(section):
        same = _SAME.fullmatch(entry.text)
        if same is None:
            text += _write(entry)
            continue
        described = _described(_find(obj, same["function"]))
        # Names that are described together stay together.
        for shared, names in groupby(entry.names, described.__getitem__):
            text += _write(shared._replace(names=list(names)))
            if same["more"]:
                text += f"    {same['more']}\n"
    return f"{text}\n"


def _described(function: object) -> dict[str, Entry]:
    """The parameters of a function by name, also those it has from others."""
    doc = fill(function, inspect.getdoc(function) or "")
    section = _SECTION.search(doc)
    described = {}
    for entry in _entries(section[0] if section else ""):
        described |= dict.fromkeys(entry.names, entry)
    return described


def _entries(section: str) -> list[Entry]:
    entries = []
    for match in _ENTRY.finditer(section):
        names, colon, kind = match["head"].partition(" : ")
        entries.append(Entry(names.split(", "), colon + kind, match["text"].rstrip()))
    return entries


def _write(entry: Entry) -> str:
    return f"{', '.join(entry.names)}{entry.kind}\n{entry.text}\n"


def _find(obj: object, name: str) -> object:
    """The function that a docstring of `obj` names, as in `summary`."""
    first, *rest = name.split(".")
    module = sys.modules[inspect.unwrap(obj).__module__]
    start = rmlab if first == "rmlab" else getattr(module, first)
    return reduce(getattr, rest, start)
