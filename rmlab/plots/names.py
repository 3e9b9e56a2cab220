"""Names from data as they stand in figures."""

import re

from rmlab.escapes import line

__all__ = ["plain", "short"]

# What `line` shows control characters as: Matplotlib's font has none of these.
_PICTURES = re.compile("[\u2400-\u2421]")


def plain(name: object) -> str:
    r"""A name on one line; dollar signs are no formulas, and control characters are shown.

    >>> plain("a$b$")
    'a\\$b\\$'
    """
    return _PICTURES.sub("\ufffd", line(name)).replace("$", r"\$")


def short(model: object) -> str:
    """At most 40 characters, the end kept, where models of a family differ."""
    name = line(model)
    return plain(name if len(name) <= 40 else "…" + name[-39:])
