"""Objects of other packages, which their entry points name."""

import logging
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

_log = logging.getLogger(__name__)


def load_plug_ins(group: str, add: Callable[[str, Any], None]) -> None:
    """Load what installed packages have put into a group of entry points.

    Parameters
    ----------
    group : str
        The group's name, such as "rmlab.benchmarks".
    add : callable
        Takes the name of an entry point and its object, or raises. What fails is left
        out with a warning.
    """
    for entry in entry_points(group=group):
        try:
            add(entry.name, entry.load())
        # Another package's fault must not take rmlab down.
        except Exception as error:
            _log.warning(
                "%s: %r of %s is left out: %s", group, entry.name, entry.value, error
            )
