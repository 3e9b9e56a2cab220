"""The sizes of figures in print: as wide as a column or the text of a paper, or a slide."""

import copy
from typing import TYPE_CHECKING, Literal

from rmlab.plots.canvas import arrange_panels
from rmlab.tables import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Width = Literal["column", "text", "slide"]

WIDTHS = {"column": 3.25, "text": 6.75}  # inches, as in the two-column styles of the field's conferences
SLIDE = (6.4, 3.6)  # inches, sixteen by nine: texts of 10 points are of 21 on a slide of 13.3 inches
SMALLEST = 6.0  # points; smaller print is not read
_SCALE = 0.75  # a text of 10 points on the screen is one of 7.5 points in print
_PANEL = 1.3  # inches that a panel needs


def resize(figure: "Figure", width: Width) -> "Figure":
    """A copy of the figure at a printed `width`: its page, its type, and the panels that fit in a row.

    A slide is the smallest page of sixteen by nine that holds the figure, and at least 6.4 inches wide.
    """
    import matplotlib.pyplot as plt

    if width not in (*WIDTHS, "slide"):
        raise DataError(f"width: {width!r}. Allowed are 'column' (3.25 in), 'text' (6.75 in) and 'slide' (16:9).")
    page = copy.deepcopy(figure)
    plt.close(page)  # pyplot would show it as a figure of its own
    wide, high = page.get_size_inches()
    if width == "slide":
        inches = max(SLIDE[0], wide, high * SLIDE[0] / SLIDE[1])
        page.set_size_inches(inches, inches * SLIDE[1] / SLIDE[0])
        return page
    _scale_type(page)
    page.set_size_inches(WIDTHS[width], _SCALE * high * _fit_panels(page, WIDTHS[width]))
    page.draw_without_rendering()
    if any(ax.get_aspect() != "auto" for ax in page.axes):  # squares leave room above or below them
        page.set_size_inches(WIDTHS[width], page.get_tightbbox().height + 0.1)
        page.draw_without_rendering()
    for ax in page.axes:
        cell = ax.transData.transform((1, 0))[0] - ax.transData.transform((0, 0))[0]
        numbers = [text for text in ax.texts if text.get_gid() == "cell"]
        if any(text.get_window_extent().width > cell for text in numbers):
            for text in numbers:  # one that is wider than its cell would hide its neighbours
                text.set_visible(False)
    return page


def _scale_type(figure: "Figure") -> None:
    from matplotlib.text import Text

    sizes = [(text, float(text.get_fontsize())) for text in figure.findobj(Text)]
    for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
        # Another width may bring other ticks, which take their size from here.
        size = max((float(label.get_fontsize()) for label in axis.get_ticklabels()), default=10.0)
        axis.set_tick_params(labelsize=max(_SCALE * size, SMALLEST))
    for text, size in sizes:
        text.set_fontsize(max(_SCALE * size, SMALLEST))


def _fit_panels(figure: "Figure", width: float) -> float:
    """Set as many panels in a row as have room, and return how many times the rows they then are."""
    axes = [ax for ax in figure.axes if ax.get_subplotspec()]
    specs = [spec for ax in axes if (spec := ax.get_subplotspec()) is not None]
    n_rows, n_columns = (len({spec.rowspan.start for spec in specs}), len({spec.colspan.start for spec in specs}))
    fitting = max(1, int((width - 0.4) // _PANEL))
    if fitting >= n_columns:
        return 1.0
    arrange_panels(axes, fitting)
    return -(-len(axes) // fitting) / n_rows
