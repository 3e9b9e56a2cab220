"""Model names as they stand in figures."""

import re

from rmlab.escapes import line

__all__ = ["short"]

# What `line` shows control characters as: Matplotlib's font has none of these.
_PICTURES = re.compile("[\u2400-\u2421]")


def short(model: object) -> str:
    r"""At most 40 characters, the end kept, where models of a family differ; dollar signs are no formulas.

    >>> short("a$b$")
    'a\\$b\\$'
    """
    name = _PICTURES.sub("\ufffd", line(model))
    return (name if len(name) <= 40 else "…" + name[-39:]).replace("$", r"\$")
