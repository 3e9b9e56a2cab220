"""What is done with texts beyond a model's window: refused, or cut at one end."""

import copy
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmlab.scorers.base import PlainScorer
from rmlab.scorers.local import EncodeOptions, LocalScorer

if TYPE_CHECKING:
    pass

__all__ = ["LongTexts"]

_ADVICE = re.compile(r"(?:pass|use) truncate=.*", re.DOTALL)
_LABEL = "Long texts"
_CUTS = {"refuse": None, "cut the prompt": "left", "cut the answer": "right"}


class LongTexts:
    """A dropdown for a model that can cut, hidden for every other scorer; `changed` is called after a choice.

    The scorer itself stays as it is: what cuts is a copy that shares its weights.
    """

    def __init__(self, scorer: PlainScorer, changed: Callable[[], None]) -> None:
        import ipywidgets as w

        self._scorer = scorer
        self._cut: dict[str, PlainScorer] = {}
        given = _truncate(scorer)
        label = next((name for name, how in _CUTS.items() if how == given), "refuse")
        self._original = label
        self.widget: w.Dropdown = w.Dropdown(options=list(_CUTS), value=label, description=_LABEL)
        self.widget.layout.display = None if _can_cut(scorer) else "none"
        self.widget.observe(lambda _: changed(), "value")

    @property
    def scorer(self) -> PlainScorer:
        """The scorer with the choice applied."""
        label = self.widget.value
        if label == self._original:
            return self._scorer
        if label not in self._cut:
            self._cut[label] = self._cutting(_CUTS[label])
        return self._cut[label]

    def _cutting(self, how: str | None) -> PlainScorer:
        options: EncodeOptions = {"truncate": how}
        if isinstance(self._scorer, LocalScorer):
            _ = self._scorer.backbone  # the weights are loaded before they are shared
            options = {**self._scorer.encode_options, "truncate": how}
        made = copy.copy(self._scorer)
        vars(made)["encode_options"] = options
        return made

    def advise(self, message: str) -> str:
        """An error's message with the words for code replaced by those for this dropdown."""
        if not _can_cut(self._scorer):
            return message
        return _ADVICE.sub(f'choose "cut the prompt" (keeps the answer) under "{_LABEL}", or shorten them', message)


def _can_cut(scorer: PlainScorer) -> bool:
    return isinstance(scorer, LocalScorer) and scorer.longest is not None


def _truncate(scorer: PlainScorer) -> str | None:
    return scorer.encode_options.get("truncate") if isinstance(scorer, LocalScorer) else None
