"""The explorer's filters: ipywidgets that show a selection and read one back."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from rmlab.widgets.index import Index
from rmlab.widgets.selection import Field, Selection

if TYPE_CHECKING:
    import ipywidgets as w
    from traitlets import Bunch

__all__ = ["Controls"]

_ANY = "all"
_NONE = "none"
_OUTCOMES = [
    (_ANY, ""), ("wrong (loss)", "loss"), ("tie", "tie"), ("right (win)", "win"), ("missing", "missing"),
    ("models disagree", "flip"),
]  # fmt: skip
_ORDERS = [("worst first", "worst"), ("best first", "best"), ("as in the data", "data")]


class Controls:
    """Dropdowns, a range and a search box; `changed` is called after a person moved one of them."""

    def __init__(self, index: Index, changed: Callable[[], None]) -> None:
        import ipywidgets as w

        self._index = index
        self._changed = changed
        self._quiet = False
        many = len(index.models) > 1
        names = list(index.models)
        self.model = w.Dropdown(options=names, description="Model")
        self.other = w.Dropdown(options=[_NONE, *names], description="Compare with", disabled=not many)
        self.domain = w.Dropdown(options=[(_ANY, ""), *zip(index.domain_names, index.domain_names, strict=True)])
        self.subset = w.Dropdown(options=[(_ANY, ""), *zip(index.subset_names, index.subset_names, strict=True)])
        self.domain.description, self.subset.description = "Domain", "Subset"
        self.outcome = w.Dropdown(options=_OUTCOMES if many else _OUTCOMES[:-1], description="Outcome")
        self.margin = w.FloatRangeSlider(description="Margin", continuous_update=False, readout_format=".2f")
        self.order = w.Dropdown(options=_ORDERS, description="Order")
        self.text = w.Text(description="Search", placeholder="word in prompt or answers")
        if not many:
            self.other.tooltip = "only one model was scored"
        self._bounds: dict[str, tuple[float, float]] = {}
        box = w.Box([w_ for w_ in self._all() if w_ is not self.subset or len(index.subset_names) > 1])
        box.add_class("rmlab-bar")
        self.widget = box
        for control in self._all():
            control.observe(self._moved, "value")

    def show(self, selection: Selection) -> None:
        """Set every control to the selection, without calling `changed`."""
        self._quiet = True
        try:
            first, *rest = selection.models
            self._fit_range(first)
            self.model.value, self.other.value = first, rest[0] if rest else _NONE
            self.domain.value, self.subset.value = selection.domain or "", selection.subset or ""
            self.outcome.value, self.order.value = selection.outcome or "", selection.order
            self.margin.value = self._clipped(first, selection.margin)
            if self.text.value.strip() != selection.text.strip():  # never under the fingers of who types
                self.text.value = selection.text
        finally:
            self._quiet = False

    def read(self, selection: Selection) -> dict[str, Field]:
        """What the controls say, as fields of a Selection. `selection`: the one now shown."""
        models: tuple[str, ...] = (self.model.value,)
        if self.other.value not in (_NONE, self.model.value):
            models += (self.other.value,)
        outcome = None if self.outcome.value == "flip" and len(models) < 2 else self.outcome.value or None
        return {
            "models": models,
            "domain": self.domain.value or None,
            "subset": self.subset.value or None,
            "outcome": outcome,
            "margin": self._limits(models[0]) if models[0] == selection.models[0] else (None, None),
            "order": self.order.value,
            "text": self.text.value,
        }

    def _all(self) -> "list[w.ValueWidget]":
        return [
            self.model, self.other, self.domain, self.subset, self.outcome, self.margin, self.order, self.text
        ]  # fmt: skip

    def _moved(self, change: "Bunch") -> None:
        if not self._quiet:
            self._changed()

    def _range(self, model: str) -> tuple[float, float]:
        if model not in self._bounds:
            margin = self._index.margin(model)
            known = margin[~np.isnan(margin)]
            low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
            if low == high:  # a slider needs somewhere to go
                room = max(abs(low) * 0.05, 0.5)
                low, high = low - room, high + room
            digits = 2 - int(np.floor(np.log10(max(high - low, 1e-9))))
            step = 10.0**-digits
            self._bounds[model] = (float(np.floor(low / step) * step), float(np.ceil(high / step) * step))
        return self._bounds[model]

    def _fit_range(self, model: str) -> None:
        low, high = self._range(model)
        with self.margin.hold_trait_notifications():
            self.margin.min, self.margin.max = low, high
            self.margin.step = (high - low) / 200
            self.margin.value = (low, high)

    def _clipped(self, model: str, margin: tuple[float | None, float | None]) -> tuple[float, float]:
        low, high = self._range(model)
        wanted = (low if margin[0] is None else margin[0], high if margin[1] is None else margin[1])
        return float(np.clip(wanted[0], low, high)), float(np.clip(wanted[1], low, high))

    def _limits(self, model: str) -> tuple[float | None, float | None]:
        low, high = self._range(model)
        left, right = self.margin.value
        slack = (high - low) / 400
        return (None if left <= low + slack else left), (None if right >= high - slack else right)
