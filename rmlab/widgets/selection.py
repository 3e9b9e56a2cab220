"""What the explorer shows: a plain object, and the prompts that fit it."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import pandas as pd

from rmlab.metrics.items import LOSS, MISSING, NO_ROW, TIE, WIN
from rmlab.tables import LEVELS, PROMPT, STYLES, DataError, nearest
from rmlab.widgets.comparisons import Comparisons

OUTCOMES = {"loss": LOSS, "tie": TIE, "win": WIN, "missing": MISSING}
ORDERS = ("worst", "best", "data")


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


def check_selection(data: Comparisons, selection: Selection) -> Selection:
    """The selection with its models filled in; DataError where it names something that the data does not have."""
    if not isinstance(selection, Selection):
        raise DataError(f"selection: {selection!r} is not a Selection. Write Selection(domain=...) or use view.select.")
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
    if selection.cell is not None and len(selection.cell) != 2:
        raise DataError(f"selection: cell={selection.cell!r}; give the chosen and the rejected style")
    if selection.prompt is not None and selection.prompt not in set(
        data.prompts[PROMPT].itertuples(index=False, name=None)
    ):
        raise DataError(f"selection: prompt={selection.prompt!r} is not in the scores; give (benchmark, domain, id)")
    return selection


def matching_prompts(data: Comparisons, selection: Selection) -> pd.DataFrame:
    """The prompts with a comparison that fits, in the selection's order: the table of `View.frame`."""
    first, second = (data.models.index(model) for model in (selection.models[0], selection.models[-1]))
    outcome, margin = data.outcome[[first, second]], data.margin[first]
    rows = pd.DataFrame({"n_pairs": 1, "lost": outcome[0] == LOSS, "margin": margin, "other": data.margin[second]})
    rows["flips"] = (outcome >= LOSS).all(axis=0) & (outcome[0] != outcome[1])
    items, fits = data.items, outcome[0] > NO_ROW
    filters = {"domain": selection.domain, "level": selection.level}
    filters |= dict(zip(("chosen_style", "rejected_style"), selection.cell or (), strict=False))
    for column, value in filters.items():
        if value is not None:
            fits &= (items[column] == value).to_numpy()
    if selection.subset is not None:
        fits &= in_subset(data, items, selection.subset)
    if selection.outcome is not None:
        fits &= rows["flips"] if selection.outcome == "flip" else outcome[0] == OUTCOMES[selection.outcome]
    low, high = selection.margin
    fits &= (True if low is None else margin >= low) & (True if high is None else margin <= high)
    if selection.text.strip():
        fits &= data.find(selection.text)[items["number"]]
    how = {"n_pairs": "sum", "lost": "sum", "margin": "mean", "other": "mean", "flips": "sum"}
    means = rows[fits].groupby(items["number"][fits]).agg(how)
    is_compared = len(selection.models) > 1
    distance = (means["margin"] - means["other"]).abs()
    key = pd.DataFrame({"flips": -means["flips"], "distance": -distance}) if is_compared else means[["margin"]]
    if selection.order != "data":
        key = key if selection.order == "worst" else -key
        means = means.loc[key.sort_values([*key.columns], kind="stable").index]
    frame: pd.DataFrame = data.prompts.loc[means.index].join(means)
    return frame if is_compared else frame.drop(columns=["other", "flips"])


def in_subset(data: Comparisons, frame: pd.DataFrame, subset: str) -> np.ndarray:
    """Whether each row is of a subset, or of one of the subsets that a section is made of."""
    return frame["subset"].isin([*data.benchmark.sections.get(subset, ()), subset]).to_numpy()
