"""What the explorer shows: a plain object, and the prompts that fit it."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.metrics.items import LOSS, MISSING, NO_ROW, TIE, WIN
from rmlab.tables import LEVELS, PROMPT, STYLES, DataError, nearest
from rmlab.widgets.comparisons import Comparisons

OUTCOMES = {"loss": LOSS, "tie": TIE, "win": WIN, "missing": MISSING, "flip": None}
ORDERS = ("worst", "best", "data")
_LEVEL_OF_CELL = np.array([1 + np.sign(rejected - chosen) for chosen in range(3) for rejected in range(3)])


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
            if isinstance(value, str):
                raise DataError(f"selection: {name} is the string {value!r}; write a tuple: ({value!r},)")
            object.__setattr__(self, name, value if value is None else tuple(value))

    def __repr__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        changed = [f"{f.name}={values[f.name]!r}" for f in fields(self) if values[f.name] != f.default]
        return f"Selection({', '.join(changed)})"


def check_selection(data: Comparisons, selection: Selection) -> Selection:
    """The selection with its models filled in; DataError where it names something that the data does not have."""
    if not isinstance(selection, Selection):
        raise DataError(f"selection: {selection!r} is not a Selection. Write Selection(domain=...) or use view.select.")
    selection = replace(selection, models=selection.models or tuple(data.models[:1]))
    allowed: dict[str, Sequence[str]] = {
        "models": data.models,
        "domain": list(data.prompts["domain"].unique()),
        "subset": [*data.prompts["subset"].unique(), *data.benchmark.sections],
        "cell": STYLES if (data.cell >= 0).any() else (),
        "level": LEVELS if (data.cell >= 0).any() else (),
        "outcome": [name for name in OUTCOMES if name != "flip" or len(selection.models) > 1],
        "order": ORDERS,
    }
    for name, choices in allowed.items():
        value = getattr(selection, name)
        if value == "all" and name != "order" and "all" not in choices:
            selection, value = replace(selection, **{name: None}), None  # type: ignore[arg-type]
        for choice in value if isinstance(value, tuple) else (value,):
            if choice is not None and choice not in choices:
                raise DataError(f"selection: {name}={choice!r}; {nearest(choice, choices)}")
    for name, lengths in (("models", (1, 2)), ("cell", (2,)), ("prompt", (3,)), ("margin", (2,))):
        value = getattr(selection, name)
        if value is not None and (len(value) not in lengths or (name == "models" and len(set(value)) < len(value))):
            raise DataError(f"selection: {name}={value!r}; give {' or '.join(map(str, lengths))} different values")
    limits = [limit for limit in selection.margin if limit is not None]
    if not all(isinstance(limit, int | float) and limit == limit for limit in limits) or limits != sorted(limits):
        raise DataError(f"selection: margin={selection.margin!r}; give (lowest, highest), None for no limit")
    if not isinstance(selection.text, str):
        raise DataError(f"selection: text={selection.text!r}; give a string, '' for all prompts")
    if selection.prompt is not None and not (data.prompts[PROMPT] == list(selection.prompt)).all(axis=1).any():
        raise DataError(f"selection: prompt={selection.prompt!r} is not in the scores; give (benchmark, domain, id)")
    return selection


def matching_prompts(data: Comparisons, selection: Selection) -> pd.DataFrame:
    """The prompts with a comparison that fits, in the selection's order: the table of `View.frame`."""
    first, second = (data.models.index(model) for model in (selection.models[0], selection.models[-1]))
    is_compared = len(selection.models) > 1
    outcome, other = data.outcome[first], data.outcome[second]
    flips = (outcome >= LOSS) & (other >= LOSS) & (outcome != other)
    rows = {"prompt": data.prompt, "lost": outcome == LOSS, "margin": data.margin[first], "other": data.margin[second]}
    fits = _fitting_comparisons(data, selection, outcome, data.margin[first], flips)
    means = (
        pd.DataFrame(rows | {"flips": flips})[fits]
        .groupby("prompt", as_index=True)
        .agg(
            n_pairs=("lost", "size"),
            lost=("lost", "sum"),
            margin=("margin", "mean"),
            other=("other", "mean"),
            flips=("flips", "sum"),
        )
    )
    distance = (means["margin"] - means["other"]).abs()
    key = pd.DataFrame({"flips": -means["flips"], "distance": -distance}) if is_compared else means[["margin"]]
    if selection.order != "data":
        key = key if selection.order == "worst" else -key
        means = means.loc[key.sort_values([*key.columns], kind="stable").index]
    frame = data.prompts.loc[means.index].join(means)
    if data.responses is not None:
        values = [data.prompt_values[number] for number in means.index]
        frame.insert(4, "prompt", pd.Series(values, index=frame.index, dtype=object))
    return frame if is_compared else frame.drop(columns=["other", "flips"])


def _fitting_comparisons(
    data: Comparisons,
    selection: Selection,
    outcome: NDArray[np.int8],
    margin: NDArray[np.float64],
    flips: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    low, high = selection.margin
    prompts = data.find(selection.text) if selection.text.strip() else np.ones(len(data.prompts), bool)
    if selection.domain is not None:
        prompts &= (data.prompts["domain"] == selection.domain).to_numpy()
    if selection.subset is not None:
        prompts &= in_subset(data, data.prompts, selection.subset)
    fits = (outcome > NO_ROW) & prompts[data.prompt]
    if selection.cell is not None:
        fits &= data.cell == 3 * STYLES.index(selection.cell[0]) + STYLES.index(selection.cell[1])
    if selection.level is not None:
        fits &= (data.cell >= 0) & (_LEVEL_OF_CELL[data.cell] == LEVELS.index(selection.level))
    if selection.outcome is not None:
        fits &= flips if selection.outcome == "flip" else outcome == OUTCOMES[selection.outcome]
    return fits & (True if low is None else margin >= low) & (True if high is None else margin <= high)


def in_subset(data: Comparisons, frame: pd.DataFrame, subset: str) -> NDArray[np.bool_]:
    """Whether each row is of a subset, or of one of the subsets that a section is made of."""
    return frame["subset"].isin([*data.benchmark.sections.get(subset, ()), subset]).to_numpy()
