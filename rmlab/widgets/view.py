"""The explorer: filters, the matrix, the prompts that fit, and one prompt's answers."""

from dataclasses import fields, replace

import pandas as pd

from rmlab.scorers.base import PlainScorer
from rmlab.tables import STYLES, DataError, nearest
from rmlab.text import escape_html as escape
from rmlab.widgets import selection as select
from rmlab.widgets.access import access
from rmlab.widgets.controls import Controls
from rmlab.widgets.index import Index, build
from rmlab.widgets.matrices import Matrices
from rmlab.widgets.prompt_list import PromptList
from rmlab.widgets.prompt_panel import PromptPanel
from rmlab.widgets.selection import Field, Selection

__all__ = ["View", "explore"]


def explore(
    scores: pd.DataFrame,
    responses: pd.DataFrame,
    *,
    selection: Selection | None = None,
    scorer: PlainScorer | None = None,
) -> "View":
    """Look at the answers behind the scores: a widget for JupyterLab.

    `scores` and `responses` are the two tables (any benchmark, one model or many). `selection`: what to show first.
    `scorer`: a model to ask for token rewards of the open prompt. The result's `selection` can be read and set from
    code, `frame` is the table of the prompts that fit it, and the page shows the line of code that brings the same
    view back. Raises DataError where scores have no matching responses.
    """
    if scorer is not None and not callable(scorer):
        raise TypeError(f"scorer: {scorer!r} cannot be called; give a scorer such as rmlab.classifier(...)")
    return View(build(scores, responses), Selection() if selection is None else selection, scorer)


class View:
    """What `explore` returns; shows itself as the last line of a cell. `select(domain="math")` shows something else.

    Its parts, for pages of one's own: `controls`, `matrices`, `prompt_list`, `panel` (the open prompt), `link` (the
    code for this view), `problem` (what went wrong, empty otherwise) and, all together, `widget`.
    """

    def __init__(
        self, index: Index, selection: Selection, scorer: PlainScorer | None = None, *, linked: bool = False
    ) -> None:
        self.index = index
        self._linked = linked
        self._selection = select.check(index, selection)
        self._build(scorer)
        self.selection = selection

    @property
    def selection(self) -> Selection:
        """What is shown. Set it, or use `select`, to show something else; raises DataError for a name not there."""
        return self._selection

    @selection.setter
    def selection(self, wanted: Selection) -> None:
        wanted = select.check(self.index, wanted)
        number = None if wanted.prompt is None else self._number(wanted.prompt)
        self._selection = wanted
        self._found = select.match(self.index, wanted)
        self.problem.value = ""
        self._show(number)

    def select(self, **changes: Field) -> "View":
        """Change some fields of the selection, leave the others (the open prompt is chosen anew); returns the view.

        None takes a filter away; so does "all" for domain, subset and outcome, as on the page.
        """
        known = [field.name for field in fields(Selection)]
        for name in changes:
            if name not in known:
                raise DataError(f"selection: no field {name!r}; {nearest(name, known)}")
        self.selection = replace(self._selection, **({"prompt": None} | changes))  # type: ignore[arg-type]
        return self

    @property
    def frame(self) -> pd.DataFrame:
        """Prompts that fit the selection, one row each, in the order shown: key, subset, prompt, n_pairs, lost, margin.

        n_pairs: comparisons that fit; lost: those the first model gets wrong; margin: their mean. With two models also
        other (the second one's mean margin) and flips (comparisons on which the two disagree).
        """
        return select.frame(self.index, self._selection, self._found)

    @property
    def matrix(self) -> pd.DataFrame:
        """The 3x3 shown: share of comparisons won by the first model under the domain, subset and search of now."""
        share, _ = select.cell_shares(self.index, self._selection, self._selection.models[0])
        return pd.DataFrame(
            share, index=pd.Index(STYLES, name="chosen_style"), columns=pd.Index(STYLES, name="rejected_style")
        )

    @property
    def code(self) -> str:
        """The line that shows this selection again in another cell."""
        fields = repr(self._selection).removeprefix("Selection")
        return f"rmlab.explore(scores, responses).select{fields}"

    def complain(self, error: Exception) -> None:
        """Show an error above the page; the next selection that works takes it away."""
        self.problem.value = f'<div class="rmlab-problem" role="alert">{escape(error)}</div>'

    def __repr__(self) -> str:
        return f"explore: {len(self._found.prompts)} of {len(self.index.prompts)} prompts, {self._selection!r}"

    def _repr_mimebundle_(self, **options: object) -> dict[str, object]:
        bundle = self.widget._repr_mimebundle_(**options)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        return {**data, "text/plain": repr(self)}

    def _build(self, scorer: PlainScorer | None) -> None:
        import ipywidgets as w

        self.controls = Controls(self.index, self._filtered)
        self.matrices = Matrices(self.index, lambda cell: self._try(cell=cell, prompt=None))
        self.prompt_list = PromptList(self.index, self._open)
        self.panel = PromptPanel(self.index, scorer, self.step)
        self.link, self.problem = w.HTML(), w.HTML()
        side = w.VBox([*self.matrices.widgets, *self.prompt_list.widgets])
        main = w.VBox([*self.panel.widgets, self.link])
        side.add_class("rmlab-side")
        main.add_class("rmlab-main")
        columns = w.Box([side, main])
        columns.add_class("rmlab-columns")
        self.widget = w.VBox([self.controls.widget, self.problem, columns, access()])
        self.widget.add_class("rmlab")

    def _filtered(self) -> None:
        self._try(**self.controls.read(self._selection), prompt=None)

    def _try(self, **changes: Field) -> None:
        """As `select`, with the problem on the page: a widget's callback has nowhere else to say it."""
        try:
            self.select(**changes)
        except DataError as error:
            self.complain(error)

    def step(self, by: int) -> None:
        """Open the next prompt of the list (`by` 1) or the one before (-1); at its ends nothing happens."""
        number = self.prompt_list.step(self._number_open, by)
        if number is not None:
            self._open(number)

    def _show(self, number: int | None) -> None:
        """Bring every widget in line with the selection; `number`: the prompt to open, by default the first."""
        self.controls.show(self._selection)
        self.matrices.show(self._selection)
        self._open(self.prompt_list.show(self._found, number, both=len(self._selection.models) > 1))

    def _open(self, number: int | None) -> None:
        """Show one prompt (None: none fits), without filtering again."""
        self._number_open = number
        self.prompt_list.press(number)
        if number is not None:
            self._selection = replace(self._selection, prompt=self._key(number))
        again = f"?{self._selection.query()}" if self._linked else self.code
        shown = f'<a href="{escape(again)}">{escape(again)}</a>' if self._linked else escape(again)
        self.link.value = (
            f"<h4>{'Address of' if self._linked else 'Code for'} this view</h4>"
            f'<div class="rmlab-code" tabindex="0" role="region" aria-label="code for this view">{shown}</div>'
        )
        total = len(self._found.prompts)
        self.panel.show(number, self._selection.models, place=self.prompt_list.place(number), total=total)

    def _key(self, number: int) -> tuple[str, str, str]:
        row = self.index.prompts.iloc[number]
        return str(row["benchmark"]), str(row["domain"]), str(row["id"])

    def _number(self, key: tuple[str, str, str]) -> int:
        prompts = self.index.prompts
        same = (prompts[["benchmark", "domain", "id"]] == list(key)).all(axis=1).to_numpy()
        if not same.any():
            raise DataError(f"selection: prompt={key!r} is not in the scores; give (benchmark, domain, id)")
        return int(same.argmax())
