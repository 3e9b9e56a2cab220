"""The explorer: filters, the matrix, the prompts that fit, and one prompt's answers."""

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pandas as pd

from rmlab.escapes import html as escape
from rmlab.escapes import visible
from rmlab.scorers.protocol import PlainScorer, is_plain
from rmlab.tables import STYLES, DataError, nearest
from rmlab.widgets import detail
from rmlab.widgets import selection as select
from rmlab.widgets.choices import choices
from rmlab.widgets.controls import Controls
from rmlab.widgets.index import Index, build, prompt_text
from rmlab.widgets.selection import Selection

__all__ = ["View", "explore"]

PAGE = 20
_LEVELS = ("normal", "hard", "hard", "easy", "normal", "hard", "easy", "easy", "normal")
_SHOWS = ["Rendered", "Raw", "Differences", "Style"]


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
    if scorer is not None and not is_plain(scorer):
        raise TypeError(f"scorer: {scorer!r} cannot be called; give a scorer such as rmlab.classifier(...)")
    return View(build(scores, responses), Selection() if selection is None else selection, scorer)


class View:
    """What `explore` returns; shows itself as the last line of a cell. `select(domain="math")` shows something else."""

    def __init__(
        self, index: Index, selection: Selection, scorer: PlainScorer | None = None, *, linked: bool = False
    ) -> None:
        self.index = index
        self._linked = linked
        self._scorer = scorer
        self._page = 0
        self._quiet = False
        self._selection = select.check(index, selection)
        self._build()
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
        self._page = self._page_of(number)
        self._problem.value = ""
        self._show(number)

    def select(self, **changes: Any) -> "View":
        """Change some fields of the selection, leave the others (the open prompt is chosen anew); returns the view."""
        known = [field.name for field in fields(Selection)]
        for name in changes:
            if name not in known:
                raise DataError(f"selection: no field {name!r}; {nearest(name, known)}")
        self.selection = replace(self._selection, **({"prompt": None} | changes))
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
        self._problem.value = f'<div class="rmlab-problem" role="alert">{escape(error)}</div>'

    def __repr__(self) -> str:
        return f"explore: {len(self._found.prompts)} of {len(self.index.prompts)} prompts, {self._selection!r}"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        bundle = self.widget._repr_mimebundle_(**options)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        return {**data, "text/plain": repr(self)}

    def _build(self) -> None:
        import ipywidgets as w

        self._controls = Controls(self.index, self._filtered)
        self._matrices = [self._matrix(), self._matrix()]
        self._list = choices("prompts that fit", may_clear=False)
        self._list.observe(self._opened, "value")
        self._before, self._after = w.Button(description="← Previous"), w.Button(description="Next →")
        self._before.on_click(lambda _: self._turn(-1))
        self._after.on_click(lambda _: self._turn(1))
        self._titles = [w.HTML(), w.HTML()]
        self._count, self._heading, self._answers, self._link, self._problem = (w.HTML() for _ in range(5))
        shows = [*_SHOWS, "Tokens"] if self._scorer is not None else _SHOWS
        self._shows = w.ToggleButtons(options=shows, tooltips=[f"show: {name.lower()}" for name in shows])
        self._shows.observe(lambda _: self._detail(), "value")
        self._answer = w.Dropdown(description="Answer", layout=w.Layout(display="none"))
        self._answer.observe(lambda _: None if self._quiet else self._detail(), "value")
        pager = w.HBox([self._before, self._count, self._after])
        pager.add_class("rmlab-pager")
        grids = [part for pair in zip(self._titles, self._matrices, strict=True) for part in pair]
        side = w.VBox([*(grids if self.index.has_styles else self._titles), self._list, pager])
        main = w.VBox([self._heading, self._shows, self._answer, self._answers, self._link])
        side.add_class("rmlab-side")
        main.add_class("rmlab-main")
        columns = w.Box([side, main])
        columns.add_class("rmlab-columns")
        self.widget = w.VBox([self._controls.widget, self._problem, columns])
        self.widget.add_class("rmlab")

    def _matrix(self) -> Any:
        made = choices("matrix: chosen style by rejected style", columns=3, row_names=list(STYLES))
        made.column_names = list(STYLES)
        made.corner = "rejected →\nchosen ↓"
        made.observe(self._cell_pressed, "value")
        return made

    def _filtered(self) -> None:
        self._try(**self._controls.read(self._selection), prompt=None)

    def _cell_pressed(self, change: Any) -> None:
        if not self._quiet:
            cell = None if change["new"] < 0 else (STYLES[change["new"] // 3], STYLES[change["new"] % 3])
            self._try(cell=cell, prompt=None)

    def _try(self, **changes: Any) -> None:
        """As `select`, with the problem on the page: a widget's callback has nowhere else to say it."""
        try:
            self.select(**changes)
        except DataError as error:
            self.complain(error)

    def _turn(self, step: int) -> None:
        self._page = min(max(self._page + step, 0), self._pages() - 1)
        self._show(None)

    def _opened(self, change: Any) -> None:
        if self._quiet or change["new"] < 0:
            return
        self._open(int(self._found.prompts[self._page * PAGE + change["new"]]))

    def _open(self, number: int | None) -> None:
        """Show one prompt (None: none fits), without filtering again."""
        self._number_open = number
        self._quiet = True
        if number is not None:
            self._list.value = int(np.flatnonzero(self._on_page() == number)[0]) if number in self._on_page() else -1
            self._selection = replace(self._selection, prompt=self._key(number))
            self._answer.options = self._answer_names(number)
            self._answer.value = self.index.rows(number).start
        self._quiet = False
        again = f"?{self._selection.query()}" if self._linked else self.code
        shown = f'<a href="{escape(again)}">{escape(again)}</a>' if self._linked else escape(again)
        self._link.value = (
            "<h4>Code for this view</h4>"
            f'<div class="rmlab-code" tabindex="0" aria-label="code for this view">{shown}</div>'
        )
        self._detail()

    def _show(self, number: int | None) -> None:
        """Bring every widget in line with the selection; `number`: the prompt to open, by default the page's first."""
        self._quiet = True
        self._controls.show(self._selection)
        self._show_matrices()
        page = self._on_page()
        self._list.value = -1
        self._list.items = self._items()
        self._quiet = False
        self._before.disabled, self._after.disabled = self._page == 0, self._page >= self._pages() - 1
        total, first = len(self._found.prompts), self._page * PAGE
        shown = f"{first + 1}–{first + len(page)} of {total:,}" if total else "no prompt fits"
        self._count.value = f'<span class="rmlab-quiet" role="status">{shown}</span>'
        self._open(number if number is not None else int(page[0]) if total else None)

    def _show_matrices(self) -> None:
        models = self._selection.models
        cell = self._selection.cell
        for model, title, matrix in zip([*models, None][:2], self._titles, self._matrices, strict=True):
            title.layout.display = matrix.layout.display = None if model else "none"
            if model is None:
                continue
            none = "" if self.index.has_styles else "<br>These responses have no styles: no matrix."
            title.value = f'<h4>{escape(model)}</h4><span class="rmlab-quiet">{self._share(model)}{none}</span>'
            if self.index.has_styles:
                matrix.items = self._cells(model)
                matrix.caption = f"{visible(model)}: share won, chosen style (rows) by rejected style (columns)"
                matrix.value = -1 if cell is None else 3 * STYLES.index(cell[0]) + STYLES.index(cell[1])

    def _share(self, model: str) -> str:
        share, n = select.share_won(self.index, self._selection, model)
        alike = ", domains alike" if self.index.domains_alike else ""
        return f"wins {share:.1%} of {n:,} comparisons{alike}" if n else "no scores"

    def _cells(self, model: str) -> list[dict[str, Any]]:
        share, n = select.cell_shares(self.index, self._selection, model)
        made: list[dict[str, Any]] = []
        for number, (value, count) in enumerate(zip(share.ravel(), n.ravel(), strict=True)):
            chosen, rejected = STYLES[number // 3], STYLES[number % 3]
            known = not np.isnan(value)
            label = f"chosen {chosen} against rejected {rejected}, {_LEVELS[number]}: " + (
                f"{value:.0%} of {count} won" if known else "no comparison"
            )
            item: dict[str, Any] = {"text": f"{value:.2f}" if known else "–", "note": _LEVELS[number], "label": label}
            made.append(item | ({"tint": float(2 * value - 1)} if known else {"disabled": True}))
        return made

    def _items(self) -> list[dict[str, Any]]:
        first = self._page * PAGE
        return [self._item(k) for k in range(first, first + len(self._on_page()))]

    def _item(self, k: int) -> dict[str, Any]:
        found = self._found
        row = self.index.prompts.iloc[int(found.prompts[k])]
        text = " ".join(visible(prompt_text(row["prompt"])[:300]).split())
        both = len(self._selection.models) > 1
        margin, other = float(found.margin[k]), float(found.other[k])
        value = detail.number(margin) + (f" / {detail.number(other)}" if both else "")
        counts = f"{found.lost[k]} of {found.n[k]} lost" + (f" · {found.flips[k]} flips" if both else "")
        place = f"{visible(row['subset'])} · {visible(row['id'])}"
        tint = {} if math.isnan(margin) or margin == 0 else {"tint": float(np.sign(margin))}
        return {"text": text, "value": value, "note": f"{place} · {counts}", "label": f"{text}: margin {value}"} | tint

    def _detail(self) -> None:
        show = self._shows.value
        self._answer.layout.display = None if show == "Tokens" else "none"
        number = self._number_open
        if number is None:
            self._heading.value = '<p class="rmlab-quiet">No prompt fits this selection; widen one of the filters.</p>'
            self._answers.value = ""
            return
        index, models = self.index, self._selection.models
        self._heading.value = detail.heading(index, number, as_raw=show == "Raw")
        if show == "Differences":
            body = detail.differences(index, number, models)
        elif show == "Style":
            body = detail.features(index, number)
        elif show == "Tokens":
            body = self._tokens(number)
        else:
            body = detail.answers(index, number, models, as_raw=show == "Raw")
        self._answers.value = detail.margins(index, number, models) + body

    def _tokens(self, number: int) -> str:
        from rmlab.widgets.tokens import token_rewards, tokens_html

        if self._scorer is None:
            return ""
        row = int(self._answer.value)
        try:
            table = token_rewards(self._scorer, self.index.prompts["prompt"][number], self.index.texts["response"][row])
        except Exception as error:  # the scorer is somebody's code: its error belongs on the page
            return f'<div class="rmlab-problem" role="alert">{escape(f"{type(error).__name__}: {error}")}</div>'
        return tokens_html(table)

    def _answer_names(self, number: int) -> Sequence[tuple[str, int]]:
        where = self.index.rows(number)
        texts = self.index.texts.iloc[where]
        names = texts["style"].astype("object").where(texts["style"].notna(), texts["slot"])
        return [
            (f"{label} {name}", row)
            for row, label, name in zip(range(where.start, where.stop), texts["label"], names, strict=True)
        ]

    def _on_page(self) -> Any:
        return self._found.prompts[self._page * PAGE : (self._page + 1) * PAGE]

    def _pages(self) -> int:
        return max(1, -(-len(self._found.prompts) // PAGE))

    def _page_of(self, number: int | None) -> int:
        where = [] if number is None else np.flatnonzero(self._found.prompts == number).tolist()
        return where[0] // PAGE if where else 0

    def _key(self, number: int) -> tuple[str, str, str]:
        row = self.index.prompts.iloc[number]
        return str(row["benchmark"]), str(row["domain"]), str(row["id"])

    def _number(self, key: tuple[str, str, str]) -> int:
        prompts = self.index.prompts
        same = (prompts[["benchmark", "domain", "id"]] == list(key)).all(axis=1).to_numpy()
        if not same.any():
            raise DataError(f"selection: prompt={key!r} is not in the scores; give (benchmark, domain, id)")
        return int(same.argmax())
