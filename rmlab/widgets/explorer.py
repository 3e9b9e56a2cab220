"""The explorer in Jupyter: one widget, whose selection can be read and set from code."""

from collections.abc import Callable
from dataclasses import asdict, fields, replace
from functools import cache, cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pandas as pd

from rmlab import metrics
from rmlab.scorers.base import PlainScorer
from rmlab.tables import PROMPT, DataError, nearest
from rmlab.widgets.comparisons import Comparisons
from rmlab.widgets.selection import Selection, check_selection, in_subset, matching_prompts
from rmlab.widgets.tokens import token_rewards

if TYPE_CHECKING:
    from anywidget import AnyWidget
    from ipywidgets import HTML

Field = str | tuple[object, ...] | None


def explore(
    scores: pd.DataFrame,
    responses: pd.DataFrame,
    *,
    selection: Selection | None = None,
    scorer: PlainScorer | None = None,
) -> "View":
    """Look at the answers behind the scores: a widget for JupyterLab.

    Parameters
    ----------
    scores : DataFrame
        Scores or pairs of one benchmark, of one model or many.
    responses : DataFrame
        The texts that were scored.
    selection : Selection, optional
        What to show first.
    scorer : callable, optional
        A model to ask for token rewards of the open prompt.

    Returns
    -------
    View
        Shows itself as the last line of a cell. `selection` can be read and set, `frame` is the list of prompts shown.

    Raises
    ------
    DataError
        Where scores have no matching responses.

    Examples
    --------
    >>> import rmlab
    >>> responses = rmlab.load("mini")
    >>> view = explore(rmlab.score(responses, "longest"), responses)
    >>> len(view.select(domain="math", outcome="loss").frame)
    16
    """
    if scorer is not None and not callable(scorer):
        raise TypeError(f"scorer: {scorer!r} cannot be called. Give a scorer such as rmlab.classifier(...).")
    return View(Comparisons(scores, responses), Selection() if selection is None else selection, scorer)


class View:
    """The explorer that `explore` returns.

    Attributes
    ----------
    data : Comparisons
        Everything that was compared.
    widget : AnyWidget
        The widget on the page.
    """

    def __init__(self, data: Comparisons, selection: Selection, scorer: PlainScorer | None = None) -> None:
        self.data = data
        self._scorer = scorer
        self._selection = check_selection(data, selection)

    @property
    def selection(self) -> Selection:
        """What is shown. Set it, or use `select`, to show something else."""
        shown = self.frame
        if self._selection.prompt is None and len(shown):
            return replace(self._selection, prompt=tuple(shown[PROMPT].iloc[0]))
        return self._selection

    @selection.setter
    def selection(self, selection: Selection) -> None:
        self._selection = check_selection(self.data, selection)
        if "widget" in self.__dict__:
            self.widget.selection = _as_state(self._selection)

    def select(self, **changes: Field) -> "View":
        """Change some fields of the selection; the first prompt of the new list is opened.

        Parameters
        ----------
        **changes
            Fields of `Selection`. None or "all" takes a filter away.

        Returns
        -------
        View
            The view itself.
        """
        names = [field.name for field in fields(Selection)]
        for name in changes:
            if name not in names:
                raise DataError(f"selection: no field {name!r}; {nearest(name, names)}")
        self.selection = replace(self._selection, **({"prompt": None} | changes))  # type: ignore[arg-type]
        return self

    @property
    def frame(self) -> pd.DataFrame:
        """Prompts that fit, in the order shown: benchmark, domain, id, subset, prompt, n_pairs, lost, margin.

        n_pairs: comparisons that fit; lost: comparisons that the first model gets wrong; margin: their mean. With two
        models also other (the second one's mean margin) and flips (comparisons on which the two disagree).
        """
        return matching_prompts(self.data, self._selection).reset_index(drop=True)

    @property
    def matrix(self) -> pd.DataFrame:
        """The 3x3 shown: `rmlab.matrix` of the first model in the domain and subset of the selection."""
        table, selection = self.data.table, self._selection
        table = table[table["model"] == selection.models[0]]
        table = table if selection.domain is None else table[table["domain"] == selection.domain]
        return metrics.matrix(
            table if selection.subset is None else table[in_subset(self.data, table, selection.subset)]
        )

    @property
    def annotations(self) -> pd.DataFrame:
        """Notes that were written on the page, one row each: benchmark, domain, id, annotation."""
        notes = self.widget.annotations if "widget" in self.__dict__ else {}
        numbers = sorted(int(number) for number, note in notes.items() if note.strip())
        frame = self.data.prompts[PROMPT].iloc[numbers].reset_index(drop=True)
        return frame.assign(annotation=pd.Series([notes[str(number)] for number in numbers], dtype="str"))

    @property
    def code(self) -> str:
        """The line that shows this selection again in another cell."""
        return f"rmlab.explore(scores, responses).select{repr(self.selection).removeprefix('Selection')}"

    @cached_property
    def widget(self) -> "AnyWidget":
        """The widget on the page; made when it is first shown."""
        widget = _widget_class()(
            data=self.data.payload() | {"hasTokens": self._scorer is not None}, selection=_as_state(self._selection)
        )
        widget.on_msg(self.answer_page)
        widget.observe(self._selected_on_page, "selection")
        return widget

    def _selected_on_page(self, change: dict[str, dict[str, object]]) -> None:
        self._selection = check_selection(self.data, Selection(**change["new"]))  # type: ignore[arg-type]

    def answer_page(self, widget: "AnyWidget", message: dict[str, object], buffers: list[bytes]) -> None:
        """Answer a question of the page; an error is shown there, since nobody reads a callback's traceback."""
        answers: dict[str, Callable[[], object]] = {
            "texts": lambda: self.data.texts(int(str(message["prompt"]))),
            "search": lambda: self.data.find(str(message["text"])).nonzero()[0].tolist(),
            "tokens": lambda: self._token_rewards(int(str(message["answer"]))),
        }
        try:
            widget.send({"id": message["id"], "answer": answers[str(message["kind"])]()})
        except Exception as error:
            widget.send({"id": message["id"], "error": f"{type(error).__name__}: {error}"})

    def _token_rewards(self, answer: int) -> dict[str, list[object]]:
        if self._scorer is None or self.data.responses is None:
            return {}
        row = self.data.responses.iloc[answer]
        table = token_rewards(self._scorer, row["prompt"], row["response"]).astype(object)
        return {str(name): values.where(values.notna(), None).tolist() for name, values in table.items()}

    def __repr__(self) -> str:
        return f"explore: {len(self.frame)} of {len(self.data.prompts)} prompts, {self.selection!r}"

    def _repr_mimebundle_(self, **options: object) -> dict[str, object]:
        return with_plain_text(self.widget, repr(self), options)


def _as_state(selection: Selection) -> dict[str, object]:
    """The selection as the page has it: JSON knows no tuples."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(selection).items()}


def with_plain_text(widget: Any, text: str, options: dict[str, object]) -> dict[str, object]:
    """What Jupyter shows of a widget, with a text that stays the same for pages without widgets."""
    bundle = widget._repr_mimebundle_(**options)
    return {**(bundle[0] if isinstance(bundle, tuple) else bundle), "text/plain": text}


def stylesheet() -> "HTML":
    """The style sheet of the page, as a widget that shows nothing."""
    from ipywidgets import HTML

    return HTML(f"<style>{files('rmlab.widgets').joinpath('explorer.css').read_text('utf-8')}</style>")


@cache
def _widget_class() -> "type[AnyWidget]":
    import anywidget
    import traitlets

    folder = files("rmlab.widgets")

    class Explorer(anywidget.AnyWidget):
        """The data once, and the selection and the annotations of page and kernel alike."""

        _esm = folder.joinpath("explorer.js").read_text("utf-8")
        _css = folder.joinpath("explorer.css").read_text("utf-8")
        data = traitlets.Dict().tag(sync=True)
        selection = traitlets.Dict().tag(sync=True)
        annotations = traitlets.Dict().tag(sync=True)

    return Explorer
