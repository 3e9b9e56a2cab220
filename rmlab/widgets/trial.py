"""The same change of style on more prompts: a button, and the distribution of what it does."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab.scorers.base import PlainScorer
from rmlab.text import escape_html as escape
from rmlab.widgets import charts
from rmlab.widgets.detail import numbers
from rmlab.widgets.style_sliders import restyled

if TYPE_CHECKING:
    import ipywidgets as w
    from numpy.typing import NDArray

__all__ = ["Trial"]


class Trial:
    """How many prompts, the button, and the result; `pressed` is called with the number of prompts."""

    def __init__(self, responses: pd.DataFrame | None, pressed: Callable[[int], None]) -> None:
        import ipywidgets as w

        self._responses = responses
        self.result = w.HTML()
        self.prompts = w.BoundedIntText(20, 2, 5000, description="Prompts")
        self.button = w.Button(description="Try on more prompts")
        self.button.on_click(lambda _: pressed(self.prompts.value))
        self._row = w.HBox([self.prompts, self.button])
        self._row.add_class("rmlab-try")

    @property
    def widgets(self) -> "list[w.DOMWidget]":
        """What stands on the page, from top to bottom."""
        return [self._row, self.result]

    def wait(self) -> None:
        """Say that scores are being computed."""
        self.result.value = '<p class="rmlab-quiet" role="status">Scoring…</p>'

    def clear(self) -> None:
        """Take an old result away."""
        self.result.value = ""

    def run(self, scorer: PlainScorer, steps: dict[str, int], n: int) -> pd.DataFrame:
        """Make the changes to all answers of `n` prompts: one row, the columns of `rmlab.probe`; shown on the page."""
        from rmlab.bias.probe import probe, probe_changes

        def change(text: str) -> str:
            return restyled(text, steps)

        change.__name__ = " + ".join(f"{name} {step}" for name, step in steps.items())
        sample = _sample(self._some_responses(), n)
        changes = probe_changes(sample, scorer, [change])
        table = probe(sample, scorer, [change], by="transform")
        self._show(table.iloc[0], changes["change"].dropna().to_numpy())
        return table

    def _show(self, row: pd.Series, values: "NDArray[np.float64]") -> None:
        if not len(values):
            self.result.value = '<p class="rmlab-quiet">No answer of the sample has a place for this change.</p>'
            return
        mean, low, high = numbers(row[["change", "low", "high"]])
        interval = f", 95 % interval {low} to {high}" if np.isfinite(row["low"]) else f" ({row['reason']})"
        said = f"mean change {mean}{interval}; {row['n']} answers of {row['n_prompts']} prompts"
        chart = charts.histogram(
            values, mean=row["change"], low=row["low"], high=row["high"], title=said, across="change of the reward"
        )
        self.result.value = f'<h4>{escape(row["transform"])}</h4><p role="status">{escape(said)}</p>{chart}'

    def _some_responses(self) -> pd.DataFrame:
        if self._responses is None:
            from rmlab.benchmarks import load

            self._responses = load("mini")
        return self._responses


def _sample(responses: pd.DataFrame, n: int) -> pd.DataFrame:
    """All answers of `n` prompts, spread evenly over the benchmark."""
    group = responses.groupby(["benchmark", "domain", "id"], sort=False).ngroup().to_numpy()
    size = int(group.max()) + 1
    wanted = np.unique(np.linspace(0, size - 1, min(n, size)).round().astype(int))
    return responses[np.isin(group, wanted)].reset_index(drop=True)
