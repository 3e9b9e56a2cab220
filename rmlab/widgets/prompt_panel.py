"""One prompt on the page: its answers in the way chosen, and the way to its neighbours."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rmlab.scorers.base import PlainScorer
from rmlab.text import escape_html as escape
from rmlab.widgets import detail
from rmlab.widgets.index import Index

if TYPE_CHECKING:
    import ipywidgets as w

__all__ = ["PromptPanel"]

_SHOWS = ["Rendered", "Raw", "Differences", "Style"]


class PromptPanel:
    """Shows one prompt of the index; `step` is called with 1 or -1 for its neighbours."""

    def __init__(self, index: Index, scorer: PlainScorer | None, step: Callable[[int], None]) -> None:
        import ipywidgets as w

        self._index = index
        self._scorer = scorer
        self._quiet = False
        self._number: int | None = None
        self._models: tuple[str, ...] = ()
        self.previous = w.Button(description="← Previous prompt", tooltip="previous prompt (key p)")
        self.next = w.Button(description="Next prompt →", tooltip="next prompt (key n)")
        self.previous.add_class("rmlab-previous")
        self.next.add_class("rmlab-next")
        self.previous.on_click(lambda _: step(-1))
        self.next.on_click(lambda _: step(1))
        self.heading, self.answers, self.place = w.HTML(), w.HTML(), w.HTML()
        shows = [*_SHOWS, "Tokens"] if scorer is not None else _SHOWS
        self.shows = w.ToggleButtons(options=shows, tooltips=[f"show: {name.lower()}" for name in shows])
        self.shows.observe(lambda _: self._draw(), "value")
        self.answer = w.Dropdown(description="Answer", layout=w.Layout(display="none"))
        self.answer.observe(lambda _: None if self._quiet else self._draw(), "value")
        self._steps = w.HBox([self.previous, self.place, self.next])
        self._steps.add_class("rmlab-pager")

    @property
    def widgets(self) -> "list[w.DOMWidget]":
        """What stands on the page, from top to bottom."""
        return [self._steps, self.heading, self.shows, self.answer, self.answers]

    def show(self, number: int | None, models: tuple[str, ...], *, place: int | None, total: int) -> None:
        """Show prompt `number`, the one at `place` (from 0) of `total`; None says that no prompt fits."""
        self._number, self._models = number, models
        self.previous.disabled = not place
        self.next.disabled = number is None or place == total - 1 or not total
        said = "" if number is None else f"{place + 1:,} of {total:,}" if place is not None else "not in this selection"
        self.place.value = f'<span class="rmlab-quiet" role="status">{said}</span>'
        if number is not None:
            self._quiet = True
            self.answer.options = self._answer_names(number)
            self.answer.value = self._index.rows(number).start
            self._quiet = False
        self._draw()

    def _draw(self) -> None:
        show, number = self.shows.value, self._number
        self.answer.layout.display = None if show == "Tokens" else "none"
        if number is None:
            self.heading.value = '<p class="rmlab-quiet">No prompt fits this selection; widen one of the filters.</p>'
            self.answers.value = ""
            return
        self.heading.value = detail.heading(self._index, number, as_raw=show == "Raw")
        self.answers.value = detail.margins(self._index, number, self._models) + self._body(number, show)

    def _body(self, number: int, show: str) -> str:
        if show == "Differences":
            return detail.differences(self._index, number, self._models)
        if show == "Style":
            return detail.features(self._index, number)
        if show == "Tokens":
            return self._tokens(number)
        return detail.answers(self._index, number, self._models, as_raw=show == "Raw")

    def _tokens(self, number: int) -> str:
        from rmlab.widgets.tokens import token_rewards, tokens_html

        if self._scorer is None:
            return ""
        prompt, row = self._index.prompts["prompt"][number], int(self.answer.value)
        try:
            table = token_rewards(self._scorer, prompt, self._index.texts["response"][row])
        except Exception as error:  # the scorer is somebody's code: its error belongs on the page
            return f'<div class="rmlab-problem" role="alert">{escape(f"{type(error).__name__}: {error}")}</div>'
        return tokens_html(table)

    def _answer_names(self, number: int) -> Sequence[tuple[str, int]]:
        where = self._index.rows(number)
        texts = self._index.texts.iloc[where]
        names = texts["style"].astype("object").where(texts["style"].notna(), texts["slot"])
        return [
            (f"{label} {name}", row)
            for row, label, name in zip(range(where.start, where.stop), texts["label"], names, strict=True)
        ]
