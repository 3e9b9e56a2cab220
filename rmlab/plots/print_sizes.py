"""Finished figures at the sizes of print and of slides.

A copy is fitted, so that a figure from anywhere can be printed at several widths; a
style set before drawing would need it drawn again for each.
"""

import copy
import math
from typing import TYPE_CHECKING, Literal

import numpy as np

from rmlab.plots.canvas import (
    arrange_panels,
    describe_values,
    escape_name,
    shorten_names,
)
from rmlab.tables import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Width = Literal["column", "text", "slide"]

# Inches, as in the two-column styles of the field's conferences.
WIDTHS = {"column": 3.25, "text": 6.75}
# Inches, sixteen by nine: texts of 10 points are of 21 on a slide of 13.3 inches.
_SLIDE_WIDTH = 6.4
_SLIDE_HEIGHT = 3.6
SMALLEST = 6.0  # points; smaller print is not read
_SCALE = 0.75  # a text of 10 points on the screen is one of 7.5 points in print
_PANEL = 1.3  # inches that a panel needs
_NAME_SHARE = 0.46  # of the width: the names of rows take no more
_DATA_SHARE = 0.7  # of the width: the names of columns have so much
_LETTER = 0.55  # width, of the size of a font
_LINE = 1.2  # height, of the size of a font


def resize(figure: "Figure", width: Width) -> "Figure":
    """A copy of the figure at a printed `width`: its page, its type and marks, and the
    panels that fit in a row.

    A slide is the smallest page of sixteen by nine that holds the figure, and at least
    6.4 inches wide.
    """
    import matplotlib.pyplot as plt

    if width not in (*WIDTHS, "slide"):
        allowed = "'column' (3.25 in), 'text' (6.75 in) and 'slide' (16:9)"
        raise DataError(f"width: {width!r}", f"allowed are {allowed}")
    page = copy.deepcopy(figure)
    plt.close(page)  # pyplot would show it as a figure of its own
    if width == "slide":
        _fit_slide(page)
    else:
        _fit_print(page, WIDTHS[width])
    return page


def _fit_slide(page: "Figure") -> None:
    width, height = page.get_size_inches()
    slide_width = max(_SLIDE_WIDTH, width, height * _SLIDE_WIDTH / _SLIDE_HEIGHT)
    page.set_size_inches(slide_width, slide_width * _SLIDE_HEIGHT / _SLIDE_WIDTH)


def _fit_print(page: "Figure", width: float) -> None:
    _scale_marks(page)
    _scale_type(page)
    height = _SCALE * page.get_size_inches()[1]
    page.set_size_inches(width, height * _fit_panels(page, width))
    for ax in page.axes:
        _fit_names(ax, width)
        # A label that was set by hand may be longer than the page.
        label = ax.xaxis.label
        label.set_text(describe_values(label.get_text()))
    page.draw_without_rendering()

    # Squares leave room above or below them.
    if any(ax.get_aspect() != "auto" for ax in page.axes):
        page.set_size_inches(width, page.get_tightbbox().height + 0.1)
        page.draw_without_rendering()


def _fit_names(ax: "Axes", width: float) -> None:
    """Shorten the names of rows, and of columns keep so many as have room."""
    from matplotlib.ticker import FixedFormatter, FuncFormatter

    for axis in (ax.yaxis, ax.xaxis):
        labels = axis.get_ticklabels()
        formatter = axis.get_major_formatter()
        if not labels or not isinstance(formatter, FixedFormatter | FuncFormatter):
            continue
        size = float(labels[0].get_fontsize())
        names = [label.get_text().replace(r"\$", "$") for label in labels]
        step = 1
        if axis is ax.yaxis:
            letters = 72 * _NAME_SHARE * width / (_LETTER * size)
            names = shorten_names(names, int(letters))
        else:
            room = 72 * _DATA_SHARE * width
            step = math.ceil(_LINE * size * len(names) / room)
        texts = [escape_name(name) for name in names[::step]]
        axis.set_ticks(axis.get_ticklocs()[::step], texts)


def _scale_marks(figure: "Figure") -> None:
    """Shrink marks with the rows, which come closer and would bring them to overlap."""
    from matplotlib.collections import PathCollection

    for marks in figure.findobj(PathCollection):
        areas = _SCALE**2 * marks.get_sizes()
        line_widths = _SCALE * np.asarray(marks.get_linewidth())
        marks.set(sizes=areas, linewidths=line_widths)


def _scale_type(figure: "Figure") -> None:
    from matplotlib.axis import Axis
    from matplotlib.text import Text

    sizes = [(text, float(text.get_fontsize())) for text in figure.findobj(Text)]

    # Another width may bring other ticks, which take their size from the axis.
    for axis in figure.findobj(Axis):
        tick_sizes = [float(text.get_fontsize()) for text in axis.get_ticklabels()]
        tick_size = max(tick_sizes, default=10.0)
        axis.set_tick_params(labelsize=max(_SCALE * tick_size, SMALLEST))

    for text, size in sizes:
        text.set_fontsize(max(_SCALE * size, SMALLEST))


def _fit_panels(figure: "Figure", width: float) -> float:
    """Set as many panels in a row as have room, and return how many times the rows they
    then are.
    """
    panels = []
    first_rows = set()
    first_columns = set()
    for ax in figure.axes:
        spec = ax.get_subplotspec()
        if spec is not None:
            panels.append(ax)
            first_rows.add(spec.rowspan.start)
            first_columns.add(spec.colspan.start)
    n_columns = len(first_columns)

    # Beside its text, which is scaled too, a panel keeps at least half of its width.
    half_panel = _SCALE / 2 * figure.get_size_inches()[0] / n_columns
    fitting = max(1, int((width - 0.4) // max(_PANEL, half_panel)))
    if fitting >= n_columns:
        return 1.0
    arrange_panels(panels, fitting)
    return math.ceil(len(panels) / fitting) / len(first_rows)
