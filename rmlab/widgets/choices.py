"""The one widget that ipywidgets lacks: buttons in a grid or a list, at most one of them pressed."""

from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["choices"]


def choices(caption: str, *, columns: int = 1, may_clear: bool = True, **traits: Any) -> Any:
    """A widget of buttons; `value` is the number of the pressed one, -1 for none.

    `items`: a dictionary per button, row by row: text, and as wanted value, note, label (tooltip and what a screen
    reader says), tint (from -1 red to 1 blue) and disabled. `columns` above 1 makes a grid, with `row_names`,
    `column_names` and what stands in the `corner` between them. Arrow keys move between buttons, Enter or Space
    presses, pressing again clears (`may_clear`).
    """
    return _widget_class()(caption=caption, columns=columns, may_clear=may_clear, **traits)


@cache
def _widget_class() -> Any:
    import anywidget
    import traitlets

    here = Path(__file__).parent

    class Choices(anywidget.AnyWidget):  # type: ignore[misc]
        """Buttons in a grid or a list."""

        _esm = (here / "choices.js").read_text(encoding="utf-8")
        _css = (here / "explore.css").read_text(encoding="utf-8")
        items = traitlets.List(traitlets.Dict()).tag(sync=True)
        columns = traitlets.Int(1).tag(sync=True)
        row_names = traitlets.List(traitlets.Unicode()).tag(sync=True)
        column_names = traitlets.List(traitlets.Unicode()).tag(sync=True)
        corner = traitlets.Unicode().tag(sync=True)
        caption = traitlets.Unicode().tag(sync=True)
        value = traitlets.Int(-1).tag(sync=True)
        may_clear = traitlets.Bool(True).tag(sync=True)

    return Choices
