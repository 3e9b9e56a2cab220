"""The explorer in Jupyter: a widget whose selection is read and set from code."""

from dataclasses import asdict, dataclass, fields, replace
from importlib.resources import files
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
            value = getattr(self, name)
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(value))
            elif value is not None and not isinstance(value, tuple):
                object.__setattr__(self, name, (value,))

    def __repr__(self) -> str:
        changes = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                changes.append(f"{field.name}={value!r}")
        return f"Selection({', '.join(changes)})"


def explore(
    scores: pd.DataFrame,
    responses: pd.DataFrame,
    *,
    scorer: "PlainScorer | None" = None,
) -> "View":
    """Look at the answers behind the scores: a widget for JupyterLab.

    Parameters
    ----------
    scores : DataFrame
        Scores or pairs of one benchmark, of one model or many.
    responses : DataFrame
        The texts that were scored.
    scorer : callable, optional
        A model to ask for token rewards of the open prompt.

    Returns
    -------
    View
        Shows itself as the last line of a cell. `select` changes what is shown,
        `selection` says it, and `frame` is the list of prompts shown.

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
    return View(Comparisons(scores, responses), scorer)


class View:
    """The explorer that `explore` returns.

    Attributes
    ----------
    data : Comparisons
        Everything that was compared.
    widget : AnyWidget
        The widget on the page, which holds the selection and the annotations.
    """

    def __init__(self, data: Comparisons, scorer: PlainScorer | None = None) -> None:
        self.data = data
        self._scorer = scorer
        payload = data.payload() | {"hasTokens": scorer is not None}
        selection = check_selection(data, Selection())
        self.widget = _explorer_widget(payload, asdict(selection))
        self.widget.on_msg(self.answer_page)

    @property
    def selection(self) -> Selection:
        """The filters on the page, and the prompt that was opened.

        Set it, or use `select`, to show something else.
        """
        return Selection(**self.widget.selection)

    @selection.setter
    def selection(self, selection: Selection) -> None:
        self.widget.selection = asdict(check_selection(self.data, selection))

    def select(self, **changes: Any) -> "View":
        """Change some fields of the selection, and open the new list's first prompt.

        Parameters
        ----------
        **changes
            Fields of `Selection`. None takes a filter away.

        Returns
        -------
        View
            The view itself.
        """
        changes = {"prompt": None} | changes
        self.selection = replace(self.selection, **changes)
        return self

    @property
    def frame(self) -> pd.DataFrame:
        """Prompts that fit, in the order shown.

        - benchmark, domain, id, subset, prompt;
        - n_pairs: comparisons that fit;
        - lost: comparisons that the first model gets wrong;
        - margin: their mean;
        - other, flips: with two models, the mean margin of the second one, and the
          comparisons on which the two disagree.
        """
        prompts = matching_prompts(self.data, self.selection)
        return prompts.reset_index(drop=True)

    @property
    def annotations(self) -> pd.DataFrame:
        """Notes that were written on the page: benchmark, domain, id, annotation."""
        notes = pd.Series(self.widget.annotations, dtype="str", name="annotation")
        notes = notes[notes.str.strip() != ""]
        notes.index = notes.index.astype(int)
        prompts = self.data.prompts[PROMPT]
        return prompts.join(notes.sort_index(), how="right").reset_index(drop=True)

    def answer_page(
        self, widget: "AnyWidget", message: dict[str, Any], buffers: list[bytes]
    ) -> None:
        """Answer a question of the page.

        An error is shown there, since nobody reads a callback's traceback.
        """
        answers: Any = {
            "texts": self.data.texts,
            "search": self.data.find,
            "tokens": self._token_rewards,
        }
        try:
            reply = {"answer": answers[message["kind"]](message["about"])}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        widget.send({"id": message["id"], **reply})

    def _token_rewards(self, answer: int) -> object:
        assert self._scorer is not None
        assert self.data.responses is not None
        row = self.data.responses.iloc[answer]
        rewards = token_rewards(self._scorer, row["prompt"], row["response"])
        return rewards.astype(object).where(rewards.notna(), None).to_dict("list")

    def _repr_mimebundle_(self, **options: Any) -> dict[str, object]:
        bundle: Any = self.widget._repr_mimebundle_(**options)
        return {**bundle[0], "text/plain": repr(self)}

    def __repr__(self) -> str:
        n_prompts = f"{len(self.frame)} of {len(self.data.prompts)} prompts"
        return f"explore: {n_prompts}, {self.selection!r}"


def _explorer_widget(
    payload: dict[str, object], selection: dict[str, object]
) -> "AnyWidget":
    """A widget with data that never change, and a selection and annotations.

    Page and kernel share these two.
    """
    from anywidget import AnyWidget
    from traitlets import Dict

    class Explorer(AnyWidget):
        _esm = (FOLDER / "explorer.js").read_text("utf-8")
        _css = (FOLDER / "explorer.css").read_text("utf-8")
        data = Dict().tag(sync=True)
        selection = Dict().tag(sync=True)
        annotations = Dict().tag(sync=True)

    return Explorer(data=payload, selection=selection)


def check_selection(data: Comparisons, selection: Selection) -> Selection:
    """The selection with its models filled in; DataError if the data lack a value."""
    if not selection.models:
        selection = replace(selection, models=tuple(data.models[:1]))
    _check_choices(data, selection)
    _check_shapes(data, selection)
    return selection


def _check_choices(data: Comparisons, selection: Selection) -> None:
    """Whether each field has one of its values."""
    for name, choices in data.choices.items():
        values = getattr(selection, name)
        if not isinstance(values, tuple):
            values = (values,)
        for value in values:
            if value not in (None, *choices):
                problem = f"selection: {name}={value!r}"
                raise DataError(problem, nearest(value, choices))


def _check_shapes(data: Comparisons, selection: Selection) -> None:
    """Whether models, cell, margin and prompt have as many parts as they need."""
    models = selection.models
    if len(models) > 2 or len({*models}) < len(models):
        remedy = "give one model or two different ones"
        raise DataError(f"selection: models={models!r}", remedy)
    if selection.cell is not None and len(selection.cell) != 2:
        remedy = "give the chosen and the rejected style"
        raise DataError(f"selection: cell={selection.cell!r}", remedy)
    if not _is_range(selection.margin):
        remedy = "give the lowest and the highest, or None for no limit"
        raise DataError(f"selection: margin={selection.margin!r}", remedy)

    prompts = data.prompts[PROMPT].itertuples(index=False, name=None)
    if selection.prompt not in {None, *prompts}:
        remedy = "give benchmark, domain and id of a prompt"
        raise DataError(f"selection: prompt={selection.prompt!r}", remedy)


def _is_range(margin: tuple[Any, ...]) -> bool:
    limits = [limit for limit in margin if limit is not None]
    return len(margin) == 2 and limits == sorted(limits)


def matching_prompts(data: Comparisons, selection: Selection) -> pd.DataFrame:
    """The prompts with a comparison that fits, in the selection's order."""
    first = data.models.index(selection.models[0])
    second = data.models.index(selection.models[-1])
    outcome = data.outcome[first]
    other_outcome = data.outcome[second]
    has_both = (outcome >= LOSS) & (other_outcome >= LOSS)
    rows = data.items.assign(
        outcome=outcome,
        lost=outcome == LOSS,
        margin=data.margin[first],
        other=data.margin[second],
        flips=has_both & (outcome != other_outcome),
    )
    by_prompt = rows[_fits(data, selection, rows)].groupby("number")
    means = by_prompt[["margin", "other"]].mean()
    counts = by_prompt[["lost", "flips"]].sum()
    prompts = means.join(counts).assign(n_pairs=by_prompt.size())

    columns = ["n_pairs", "lost", "margin"]
    order = ["margin"]
    is_ascending = selection.order == "worst"
    if len(selection.models) > 1:
        # The worst order of two models begins with the most disagreement.
        prompts["apart"] = (means["margin"] - means["other"]).abs()
        columns += ["other", "flips"]
        order = ["flips", "apart"]
        is_ascending = not is_ascending
    if selection.order != "data":
        prompts = prompts.sort_values(order, ascending=is_ascending, kind="stable")
    return data.prompts.loc[prompts.index].join(prompts[columns])


def _fits(data: Comparisons, selection: Selection, rows: pd.DataFrame) -> pd.Series:
    """Whether each comparison is one of those that the selection asks for."""
    fits = rows["outcome"] > NO_ROW
    required: dict[str, object] = {
        "domain": selection.domain,
        "level": selection.level,
        "outcome": OUTCOMES.get(selection.outcome or ""),
    }
    if selection.cell is not None:
        required["chosen_style"], required["rejected_style"] = selection.cell
    if selection.outcome == "flip":
        required["flips"] = True
    for column, value in required.items():
        if value is not None:
            fits &= rows[column] == value

    if selection.subset is not None:
        members = data.benchmark.sections.get(selection.subset, ())
        fits &= rows["subset"].isin([selection.subset, *members])
    low, high = selection.margin
    if low is not None:
        fits &= rows["margin"] >= low
    if high is not None:
        fits &= rows["margin"] <= high
    if selection.text.strip():
        fits &= rows["number"].isin(data.find(selection.text))
    return fits
