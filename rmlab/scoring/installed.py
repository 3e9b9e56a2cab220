"""Scorers of other packages, which `rmlab.score` and `rmlab.prefer` take by name."""

from functools import cache
from typing import Any

from rmlab import baselines
from rmlab.plug_ins import load_plug_ins

GROUP = "rmlab.scorers"
"""Entry points of this group are scorers from other packages: what `rmlab.score` or
`rmlab.prefer` takes.
"""


@cache
def installed_scorers() -> dict[str, Any]:
    """The scorers of installed packages by the names of their entry points."""
    scorers: dict[str, Any] = {}

    def add(name: str, scorer: object) -> None:
        is_scorer = callable(scorer) or hasattr(scorer, "prefer")
        if not is_scorer or name in baselines.ALL or "/" in name:
            raise TypeError("no scorer, or its name is taken or has a slash")
        scorers[name] = scorer

    load_plug_ins(GROUP, add)
    return scorers


def has_name(model: str) -> bool:
    """Whether a string names a scorer that takes no options, and not a folder or a
    model on the hub.
    """
    return model in baselines.ALL or model in installed_scorers()
