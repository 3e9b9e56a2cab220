"""The explorer in Jupyter: one widget, whose selection can be read and set from code."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rmlab import metrics
from rmlab.metrics.items import LOSS, MISSING, NO_ROW, TIE, WIN
from rmlab.scorers.base import PlainScorer
from rmlab.tables import LEVELS, PROMPT, STYLES, DataError, nearest
from rmlab.widgets.comparisons import Comparisons
from rmlab.widgets.tokens import token_rewards

if TYPE_CHECKING:
    from anywidget import AnyWidget

OUTCOMES = {"loss": LOSS, "tie": TIE, "win": WIN, "missing": MISSING}
ORDERS = ("worst", "best", "data")
FOLDER = files("rmlab.widgets")


@dataclass(frozen=True)
class Selection:
    """Which comparisons to look at.

    Parameters
    ----------
    models : tuple of str
        One or two names; the second model is compared with the first. Default: the first of the table.
    domain, subset : str, optional
        A domain; a subset, or a section of the benchmark. None or "all": no filter.
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
        Lowest or highest margin first, or as in the data. With two models: most disagreement or most agreement first.
    prompt : tuple of str, optional
        Benchmark, domain and id of the prompt that is open; by default the first of the list.

    Examples
    --------
    >>> Selection(models=("longest",), cell=("concise", "markdown"))
    Selection(models=('longest',), cell=('concise', 'markdown'))
    """

    models: tuple[str, ...] = ()
    domain: str | None = None
    subset: str | None = None
    cell: tuple[str, str] | None = None
    level: str | None = None
    outcome: str | None = None
    margin: tuple[float | None, float | None] = (None, None)
    text: str = ""
    order: str = "worst"
    prompt: tuple[str, str, str] | None = None

    def __post_init__(self) -> None:
        for name in ("models", "cell", "margin", "prompt"):
            value = getattr(self, name)
            value = (value,) if isinstance(value, str) else value if value is None else tuple(value)
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        values = [(field.name, getattr(self, field.name), field.default) for field in fields(self)]
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
            self.widget.selection = asdict(self._selection)

    def select(self, **changes: Any) -> "View":
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
        self.selection = replace(self._selection, **({"prompt": None} | changes))
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
        table = self.data.table[self.data.table["model"] == self._selection.models[0]]
        return metrics.matrix(table[in_part(self.data, table, self._selection)])

    @property
    def annotations(self) -> pd.DataFrame:
        """Notes that were written on the page, one row each: benchmark, domain, id, annotation."""
        notes = self.widget.annotations if "widget" in self.__dict__ else {}
        written = pd.Series({int(number): note for number, note in notes.items() if note.strip()}, dtype="str")
        return self.data.prompts.loc[written.index, PROMPT].assign(annotation=written).sort_index(ignore_index=True)

    @property
    def code(self) -> str:
        """The line that shows this selection again in another cell."""
        return f"rmlab.explore(scores, responses).select{repr(self.selection).removeprefix('Selection')}"

    @cached_property
    def widget(self) -> "AnyWidget":
        """The widget on the page; made when it is first shown."""
        from anywidget import AnyWidget
        from traitlets import Dict

        class Explorer(AnyWidget):
            """The data once, and the selection and the annotations of page and kernel alike."""

            _esm, _css = ((FOLDER / f"explorer.{kind}").read_text("utf-8") for kind in ("js", "css"))
            data, selection, annotations = (Dict().tag(sync=True) for _ in range(3))

        data = self.data.payload() | {"hasTokens": self._scorer is not None}
        widget = Explorer(data=data, selection=asdict(self._selection))
        widget.on_msg(self.answer_page)
        widget.observe(self._selected_on_page, "selection")
        return widget

    def _selected_on_page(self, change: dict[str, dict[str, object]]) -> None:
        self._selection = check_selection(self.data, Selection(**change["new"]))  # type: ignore[arg-type]

    def answer_page(self, widget: "AnyWidget", message: dict[str, Any], buffers: list[bytes]) -> None:
        """Answer a question of the page; an error is shown there, since nobody reads a callback's traceback."""
        answers: dict[str, Callable[[Any], object]] = {
            "texts": self.data.texts,
            "search": self.data.find,
            "tokens": self._token_rewards,
        }
        try:
            widget.send({"id": message["id"], "answer": answers[message["kind"]](message["about"])})
        except Exception as error:
            widget.send({"id": message["id"], "error": f"{type(error).__name__}: {error}"})

    def _token_rewards(self, answer: int) -> object:
        if self._scorer is None or self.data.responses is None:
            return None
        row = self.data.responses.iloc[answer]
        table = token_rewards(self._scorer, row["prompt"], row["response"]).astype(object)
        return table.where(table.notna(), None).to_dict("list")

    def __repr__(self) -> str:
        return f"explore: {len(self.frame)} of {len(self.data.prompts)} prompts, {self.selection!r}"

    def _repr_mimebundle_(self, **options: object) -> dict[str, object]:
        return with_plain_text(self.widget, repr(self), options)


def with_plain_text(widget: Any, text: str, options: dict[str, object]) -> dict[str, object]:
    """What Jupyter shows of a widget, with a text that stays the same for pages without widgets."""
    bundle = widget._repr_mimebundle_(**options)
    return {**(bundle[0] if isinstance(bundle, tuple) else bundle), "text/plain": text}


def check_selection(data: Comparisons, selection: Selection) -> Selection:
    """The selection with its models filled in; DataError where it names something that the data does not have."""
    selection = replace(selection, models=selection.models or tuple(data.models[:1]))
    has_styles = data.items["level"].notna().any()
    allowed: dict[str, Sequence[str]] = {
        "models": data.models,
        "domain": list(data.prompts["domain"].unique()),
        "subset": [*data.prompts["subset"].unique(), *data.benchmark.sections],
        "cell": STYLES if has_styles else (),
        "level": LEVELS if has_styles else (),
        "outcome": [*OUTCOMES, *(["flip"] if len(selection.models) > 1 else [])],
        "order": ORDERS,
    }
    for name, choices in allowed.items():
        value = getattr(selection, name)
        if value == "all" and "all" not in choices:
            selection, value = replace(selection, **{name: None}), None  # type: ignore[arg-type]
        for choice in value if isinstance(value, tuple) else (value,):
            if choice is not None and choice not in choices:
                raise DataError(f"selection: {name}={choice!r}; {nearest(choice, choices)}")
    if len(set(selection.models)) < len(selection.models) or len(selection.models) > 2:
        raise DataError(f"selection: models={selection.models!r}; give one model or two different ones")
    return selection


def matching_prompts(data: Comparisons, selection: Selection) -> pd.DataFrame:
    """The prompts with a comparison that fits, in the selection's order: the table of `View.frame`."""
    models = [data.models.index(model) for model in (selection.models[0], selection.models[-1])]
    outcome, (margin, other) = data.outcome[models], data.margin[models]
    rows = data.items.assign(n_pairs=1, outcome=outcome[0], lost=outcome[0] == LOSS, margin=margin, other=other)
    rows["flips"] = (outcome >= LOSS).all(axis=0) & (outcome[0] != outcome[1])
    rows = rows[(rows["outcome"] > NO_ROW) & in_part(data, rows, selection)]
    wanted: dict[str, object] = dict(zip(("chosen_style", "rejected_style"), selection.cell or (), strict=False))
    wanted |= {"level": selection.level} if selection.level else {}
    if selection.outcome is not None:
        wanted |= {"flips": True} if selection.outcome == "flip" else {"outcome": OUTCOMES[selection.outcome]}
    for column, value in wanted.items():
        rows = rows[rows[column] == value]
    low, high = selection.margin
    rows = rows if low is None else rows[rows["margin"] >= low]
    rows = rows if high is None else rows[rows["margin"] <= high]
    if selection.text.strip():
        rows = rows[rows["number"].isin(data.find(selection.text))]
    means = rows.groupby("number")[["margin", "other"]].mean()
    means = means.join(rows.groupby("number")[["n_pairs", "lost", "flips"]].sum())
    is_compared = len(selection.models) > 1
    if selection.order != "data":
        order = ["flips", "apart"] if is_compared else ["margin"]  # the least margin, or the most disagreement first
        means["apart"] = (means["margin"] - means["other"]).abs()
        means = means.sort_values(order, ascending=(selection.order == "worst") != is_compared, kind="stable")
    columns = ["n_pairs", "lost", "margin", *(["other", "flips"] if is_compared else [])]
    frame: pd.DataFrame = data.prompts.loc[means.index].join(means[columns])
    return frame


def in_part(data: Comparisons, frame: pd.DataFrame, selection: Selection) -> np.ndarray:
    """Whether each row is of the selection's domain and of its subset, or of a subset of its section."""
    domain, subset = selection.domain or frame["domain"], selection.subset
    subsets = frame["subset"] if subset is None else [subset, *data.benchmark.sections.get(subset, ())]
    return ((frame["domain"] == domain) & frame["subset"].isin(subsets)).to_numpy()
