"""Figure of the reward along an answer."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab.plots.canvas import bare, canvas
from rmlab.tables import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_token_rewards"]

_RISE, _FALL = "#2166ac", "#b2182b"
_LABELS = 60  # more pieces than this leave no room for their text


def plot_token_rewards(table: pd.DataFrame, *, ax: "Axes | None" = None) -> "Axes":
    """Reward after every piece of an answer, from `rmlab.widgets.token_rewards`; returns the Axes.

    The line is the reward, the bars from it are the changes: blue up, red down. The last point is the score. Pieces
    are named below the axis while there are at most 60 of them.
    """
    missing = [column for column in ("text", "reward", "change", "method") if column not in table]
    if missing:
        raise DataError(
            f"table: no column {missing[0]!r}; make it with rmlab.widgets.token_rewards(scorer, prompt, response)"
        )
    named = len(table) <= _LABELS
    ax = canvas(ax, (min(max(0.24 * len(table) + 1.5, 5.0), 14.0), 3.4))
    x, reward = np.arange(len(table)), table["reward"].to_numpy(float)
    change = np.nan_to_num(table["change"].to_numpy(float))
    colours = np.where(change >= 0, _RISE, _FALL)
    ax.bar(x, change, bottom=reward - change, color=colours, alpha=0.45, width=0.8)
    ax.plot(x, reward, color="#333333", lw=1.2, marker="o", ms=3)
    ax.annotate(
        f"{reward[-1]:.2f}".replace("-", "\N{MINUS SIGN}"),
        (x[-1], reward[-1]),
        (6, 0),
        textcoords="offset points",
        va="center",
    )
    unit = "token" if (table["method"] == "token").all() else "sentence"
    ax.set(ylabel="reward", xlabel=unit, xlim=(-0.8, len(table) + 0.9))
    if named:
        ax.set_xticks(x, [_shown(text) for text in table["text"]], rotation=90, fontsize="small", parse_math=False)
    ax.use_sticky_edges = False  # bars would end at the frame, and the marks of the extremes would be cut by it
    ax.margins(y=0.08)
    ax.autoscale_view(scalex=False)
    bare(ax)
    return ax


def _shown(text: str) -> str:
    text = text.replace("\n", "⏎").strip()
    return text if len(text) <= 24 else f"{text[:23]}…"
