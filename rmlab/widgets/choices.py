"""The one widget that ipywidgets lacks: buttons in a grid or a list, at most one of them pressed."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from anywidget import AnyWidget

__all__ = ["Choice", "choices"]


class Choice(TypedDict):
    """One button. `label`: tooltip, and what a screen reader says; `tint`: from -1, red, to 1, blue."""

    text: str
    value: NotRequired[str]
    note: NotRequired[str]
    label: NotRequired[str]
    tint: NotRequired[float]
    disabled: NotRequired[bool]


def choices(
    caption: str,
    *,
    columns: int = 1,
    row_names: Sequence[str] = (),
    column_names: Sequence[str] = (),
    corner: str = "",
    may_clear: bool = True,
) -> "AnyWidget":
    """A widget of buttons; `value` is the number of the pressed one, -1 for none.

    Its trait `items` is a list of `Choice`, row by row. `columns` above 1 makes a grid, with `row_names`,
    `column_names` and what stands in the `corner` between them. Arrow keys move between buttons, Enter or Space
    presses, pressing again clears (`may_clear`).
    """
    return _widget_class()(
        caption=caption,
        columns=columns,
        row_names=list(row_names),
        column_names=list(column_names),
        corner=corner,
        may_clear=may_clear,
    )


@cache
def _widget_class() -> "type[AnyWidget]":
    import anywidget
    import traitlets

    class Choices(anywidget.AnyWidget):
        """Buttons in a grid or a list."""

        _esm = (Path(__file__).parent / "choices.js").read_text(encoding="utf-8")
        items = traitlets.List(traitlets.Dict()).tag(sync=True)
        columns = traitlets.Int(1).tag(sync=True)
        row_names = traitlets.List(traitlets.Unicode()).tag(sync=True)
        column_names = traitlets.List(traitlets.Unicode()).tag(sync=True)
        corner = traitlets.Unicode().tag(sync=True)
        caption = traitlets.Unicode().tag(sync=True)
        value = traitlets.Int(-1).tag(sync=True)
        may_clear = traitlets.Bool(True).tag(sync=True)

    return Choices
