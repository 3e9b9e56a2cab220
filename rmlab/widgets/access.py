"""The style sheet of the page, and what ipywidgets leaves out for the keyboard, the screen reader and narrow pages."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anywidget import AnyWidget

__all__ = ["access"]


def access() -> "AnyWidget":
    """A widget that shows nothing; one stands in each explorer and playground.

    It names the handles of sliders, lets boxes follow the direction of what is typed, takes the keys n and p to the
    buttons of the next and previous prompt, and scrolls to the answers where they are out of sight.
    """
    made = _widget_class()()
    made.layout.display = "none"
    return made


@cache
def _widget_class() -> "type[AnyWidget]":
    import anywidget

    here = Path(__file__).parent

    class Access(anywidget.AnyWidget):
        """Names, keys and scrolling."""

        _esm = (here / "access.js").read_text(encoding="utf-8")
        _css = (here / "explore.css").read_text(encoding="utf-8")

    return Access
