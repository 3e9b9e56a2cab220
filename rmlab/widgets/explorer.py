"""The explorer in Jupyter: one widget, whose selection can be read and set from code."""

from dataclasses import asdict, dataclass, fields, replace
from importlib.resources import files
from numbers import Real
from typing import TYPE_CHECKING, Any

import pandas as pd

from rmlab.estimation.items import LOSS, NO_ROW
from rmlab.scorers.base import PlainScorer
from rmlab.tables import PROMPT, DataError, nearest
from rmlab.widgets.comparisons import OUTCOMES, Comparisons
from rmlab.widgets.tokens import token_rewards

if TYPE_CHECKING:
    from anywidget import AnyWidget

FOLDER = files("rmlab.widgets")


@dataclass(frozen=True)
class Selection:
    """Which comparisons to look at.

    Parameters
    ----------
    models : tuple of str
        One or two names; the second model is compared with the first. Default: the
        first of the table.
    domain, subset : str, optional
        A domain; a subset, or a section of the benchmark.
    cell : tuple of str, optional
        Chosen style and rejected style.
    level : {"easy", "normal", "hard"}, optional
    outcome : {"win", "tie", "loss", "missing", "flip"}, optional
        Of the first model; flip: the two models disagree.
    margin : tuple of float or None
        Lowest and highest margin of the first model; None for no limit.
    text : str
        Stands in the prompt, its id or an answer, whatever the case.
    order : {"worst", "best", "data"}
        Lowest or highest margin first, or as in the data. With two models: most
        disagreement or most agreement first.
    prompt : tuple of str, optional
        Benchmark, domain and id of the prompt that is open; by default the first of the
        list.

    Examples
    --------
    >>> Selection(models=("longest",), cell=("concise", "markdown"))
    Selection(models=('longest',), cell=('concise', 'markdown'))
    """

    models: tuple[str, ...] = ()
    domain: str | None = None
    subset: str | None = None
    cell: tuple[str, ...] | None = None
    level: str | None = None
    outcome: str | None = None
    margin: tuple[float | None, float | None] = (None, None)
    text: str = ""
    order: str = "worst"
    prompt: tuple[str, str, str] | None = None

    def __post_init__(self) -> None:
        for name in ("models", "cell", "margin", "prompt"):
            if (value := getattr(self, name)) is not None:
                values = tuple(value) if isinstance(value, list | tuple) else (value,)
                object.__setattr__(self, name, values)

    def __repr__(self) -> str:
        values = [
            (field.name, getattr(self, field.name), field.default)
            for field in fields(self)
        ]
        return f"Selection({', '.join(f'{name}={value!r}' for name, value, default in values if value != default)})"


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
        Shows itself as the last line of a cell. `selection` can be read and set,
        `frame` is the list of prompts shown.

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
        raise TypeError(
            f"scorer: {scorer!r} cannot be called. Give a scorer such as rmlab.classifier(...)."
        )
    return View(
        Comparisons(scores, responses),
        Selection() if selection is None else selection,
        scorer,
    )


class WidgetDisplay:
    """Display an object in Jupyter as its widget, and on pages without widgets as its
    text.
    """

    widget: Any

    def _repr_mimebundle_(self, **options: object) -> dict[str, object]:
        bundle = self.widget._repr_mimebundle_(**options)
        return {
            **(bundle[0] if isinstance(bundle, tuple) else bundle),
            "text/plain": repr(self),
        }


class View(WidgetDisplay):
    """The explorer that `explore` returns.

    Attributes
    ----------
    data : Comparisons
        Everything that was compared.
    widget : AnyWidget
        The widget on the page, which holds the selection and the annotations.
    """

    def __init__(
        self, data: Comparisons, selection: Selection, scorer: PlainScorer | None = None
    ) -> None:
        self.data, self._scorer = data, scorer
        payload = data.payload() | {"hasTokens": scorer is not None}
        self.widget = _explorer_widget(
            payload, asdict(check_selection(data, selection))
        )
        self.widget.on_msg(self.answer_page)

    @property
    def selection(self) -> Selection:
        """The filters on the page, and the prompt that was opened. Set it, or use
        `select`, to show something else.
        """
        return check_selection(self.data, Selection(**self.widget.selection))

    @selection.setter
    def selection(self, selection: Selection) -> None:
        self.widget.selection = asdict(check_selection(self.data, selection))

    def select(self, **changes: Any) -> "View":
        """Change some fields of the selection; the first prompt of the new list is
        opened.

        Parameters
        ----------
        **changes
            Fields of `Selection`. None takes a filter away.

        Returns
        -------
        View
            The view itself.
        """
        self.selection = replace(self.selection, **({"prompt": None} | changes))
        return self

    @property
    def frame(self) -> pd.DataFrame:
        """Prompts that fit, in the order shown: benchmark, domain, id, subset, prompt,
        n_pairs, lost, margin.

        n_pairs: comparisons that fit; lost: comparisons that the first model gets
        wrong; margin: their mean. With two models also other (the second one's mean
        margin) and flips (comparisons on which the two disagree).
        """
        return matching_prompts(self.data, self.selection).reset_index(drop=True)

    @property
    def annotations(self) -> pd.DataFrame:
        """Notes that were written on the page, one row each: benchmark, domain, id,
        annotation.
        """
        notes = {
            int(number): note
            for number, note in self.widget.annotations.items()
            if note.strip()
        }
        column = pd.Series(notes, dtype="str", name="annotation").sort_index()
        return (
            self.data.prompts[PROMPT].join(column, how="right").reset_index(drop=True)
        )

    def answer_page(
        self, widget: "AnyWidget", message: dict[str, Any], buffers: list[bytes]
    ) -> None:
        """Answer a question of the page; an error is shown there, since nobody reads a
        callback's traceback.
        """
        answers: Any = {
            "texts": self.data.texts,
            "search": self.data.find,
            "tokens": self._token_rewards,
        }
        try:
            widget.send(
                {
                    "id": message["id"],
                    "answer": answers[message["kind"]](message["about"]),
                }
            )
        except Exception as error:
            widget.send(
                {"id": message["id"], "error": f"{type(error).__name__}: {error}"}
            )

    def _token_rewards(self, answer: int) -> object:
        if self._scorer is None or self.data.responses is None:
            return None
        row = self.data.responses.iloc[answer]
        table = token_rewards(self._scorer, row["prompt"], row["response"]).astype(
            object
        )
        return table.where(table.notna(), None).to_dict("list")

    def __repr__(self) -> str:
        return f"explore: {len(self.frame)} of {len(self.data.prompts)} prompts, {self.selection!r}"


def _explorer_widget(
    payload: dict[str, object], selection: dict[str, object]
) -> "AnyWidget":
    """A widget with the data, which never changes, and the selection and annotations of
    page and kernel alike.
    """
    from anywidget import AnyWidget
    from traitlets import Dict

    class Explorer(AnyWidget):
        _esm, _css = (
            (FOLDER / f"explorer.{kind}").read_text("utf-8") for kind in ("js", "css")
        )
        data, selection, annotations = (Dict().tag(sync=True) for _ in range(3))

    return Explorer(data=payload, selection=selection)


def check_selection(data: Comparisons, selection: Selection) -> Selection:
    """The selection with its models filled in; DataError where it names something that
    the data does not have.
    """
    selection = replace(selection, models=selection.models or tuple(data.models[:1]))
    n_models = len(selection.models)
    for name, choices in data.choices.items():
        if name == "outcome" and n_models < 2:
            choices = [*OUTCOMES]
        values = getattr(selection, name)
        for value in values if isinstance(values, tuple) else (values,):
            if value not in (None, *choices):
                raise DataError(
                    f"selection: {name}={value!r}; {nearest(value, choices)}"
                )

    problem = None
    if len({*selection.models}) < n_models or n_models > 2:
        problem = f"models={selection.models!r}; give one model or two different ones"
    elif selection.cell is not None and len(selection.cell) != 2:
        problem = f"cell={selection.cell!r}; give the chosen and the rejected style"
    elif not _is_range(selection.margin):
        problem = f"margin={selection.margin!r}; give the lowest and the highest, or None for no limit"
    elif selection.prompt not in {
        None,
        *data.prompts[PROMPT].itertuples(index=False, name=None),
    }:
        problem = (
            f"prompt={selection.prompt!r}; give benchmark, domain and id of a prompt"
        )
    if problem:
        raise DataError(f"selection: {problem}")
    return selection


def _is_range(margin: tuple[Any, ...]) -> bool:
    if len(margin) != 2:
        return False
    low, high = margin
    if not all(limit is None or isinstance(limit, Real) for limit in margin):
        return False
    return low is None or high is None or bool(low <= high)


def matching_prompts(data: Comparisons, selection: Selection) -> pd.DataFrame:
    """The prompts with a comparison that fits, in the selection's order: the table of
    `View.frame`.
    """
    models = [
        data.models.index(model)
        for model in (selection.models[0], selection.models[-1])
    ]
    outcome, (margin, other) = data.outcome[models], data.margin[models]
    rows = data.items.assign(
        outcome=outcome[0], lost=outcome[0] == LOSS, margin=margin, other=other
    )
    rows["flips"] = (outcome >= LOSS).all(axis=0) & (outcome[0] != outcome[1])
    fits = rows["outcome"] > NO_ROW
    if selection.subset is not None:
        fits &= rows["subset"].isin(
            [selection.subset, *data.benchmark.sections.get(selection.subset, ())]
        )
    required = {
        "domain": selection.domain,
        "level": selection.level,
        "outcome": OUTCOMES.get(selection.outcome or ""),
    }
    required |= dict(
        zip(("chosen_style", "rejected_style"), selection.cell or (), strict=False)
    )
    required |= {"flips": True} if selection.outcome == "flip" else {}
    for column, value in required.items():
        fits &= value is None or rows[column] == value
    low, high = selection.margin
    fits &= (low is None or rows["margin"] >= low) & (
        high is None or rows["margin"] <= high
    )
    if selection.text.strip():
        fits &= rows["number"].isin(data.find(selection.text))
    by_prompt = rows[fits].groupby("number")
    means = (
        by_prompt[["margin", "other"]].mean().join(by_prompt[["lost", "flips"]].sum())
    )
    means = means.assign(
        n_pairs=by_prompt.size(), apart=(means["margin"] - means["other"]).abs()
    )
    is_compared = len(selection.models) > 1
    if selection.order != "data":
        order = (
            ["flips", "apart"] if is_compared else ["margin"]
        )  # the least margin, or the most disagreement first
        means = means.sort_values(
            order, ascending=(selection.order == "worst") != is_compared, kind="stable"
        )
    columns = [
        "n_pairs",
        "lost",
        "margin",
        *(["other", "flips"] if is_compared else []),
    ]
    return data.prompts.loc[means.index].join(means[columns])
