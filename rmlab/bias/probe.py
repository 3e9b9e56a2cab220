"""Counterfactual probes: the same answer in another style, and what that does to its score."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import tables
from rmlab.bias.prompts import columns_of, groups_of, prompt_index, spread, too_few
from rmlab.metrics.means import clustered_mean, mean_interval
from rmlab.scorers.guards import is_plain, name_of
from rmlab.scorers.protocol import PlainScorer
from rmlab.scorers.types import Prompt
from rmlab.stats.difference import holm
from rmlab.styles.transforms import TRANSFORMS, Transform
from rmlab.tables import DataError, nearest

__all__ = ["probe", "probe_changes"]

Floats = NDArray[np.float64]
Change = Callable[[str], str]


def probe(
    responses: pd.DataFrame,
    scorer: PlainScorer,
    transforms: Sequence[str | Transform | Change] | None = None,
    *,
    by: str | Sequence[str] = ("transform", "domain"),
    steps: int | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """What changes of style do to the score of the same answers: one row per combination of the `by` columns.

    Every answer is scored as it is and after each change; only answers that the change alters count. `transforms`:
    names of `rmlab.styles.TRANSFORMS` (default: all, the controls among them), or functions from text to text.
    `steps`: how much of each, at most what it takes (default: all). `by`: transform, domain, subset, label, style.
    Columns: model, those of `by`, null (a control, which should do nothing), change (mean of after minus before), se
    (clustered by prompt), low, high (Student's t), standardised (change in standard deviations of the model's scores
    within a prompt), p (two-sided), p_holm (over the rows that are not controls), n (answers altered), untouched
    (answers without a place for the change), n_prompts, reason. Fewer than 5 prompts give no interval.
    A change in meaning that comes with a change in style is in the numbers, too: read the controls beside them.
    """
    changes = probe_changes(responses, scorer, transforms, steps=steps)
    by = columns_of(changes, by, "the changes")
    unit = changes.attrs["spread"]  # one unit for all rows: the spread before any change
    rows = [_row(changes.iloc[group], by, confidence) for group in groups_of(changes, by)]
    table = pd.DataFrame(rows)
    table["standardised"] = table["change"] / unit if unit > 0 else np.nan
    table["p_holm"] = _holm(table)
    columns = [*by, "null", "change", "se", "low", "high", "standardised", "p", "p_holm", "n", "untouched", "n_prompts"]
    table.insert(0, "model", changes.attrs["model"])
    return table[["model", *columns, "reason"]]


def probe_changes(
    responses: pd.DataFrame,
    scorer: PlainScorer,
    transforms: Sequence[str | Transform | Change] | None = None,
    *,
    steps: int | None = None,
) -> pd.DataFrame:
    """The changes behind `probe`: one row per transform and answer.

    Columns: transform, null, the key of the answer, subset, style, before, after, change (NaN where the transform left
    the answer as it was). Each different text is scored once. `attrs`: model, and spread, the standard deviation of
    the scores before around the mean of their prompt.
    """
    responses = tables.check_responses(responses)
    if not is_plain(scorer):
        raise TypeError(f"scorer: {scorer!r} cannot be called; give a scorer such as rmlab.baselines.longest")
    if transforms is not None and (isinstance(transforms, str) or not len(transforms)):
        raise DataError(f"transforms: {transforms!r}; give a list of names or functions, or leave it out for all")
    chosen = [_transform(item) for item in (TRANSFORMS if transforms is None else transforms)]
    if len({made.name for made in chosen}) < len(chosen):
        raise DataError(f"transforms: {[made.name for made in chosen]} repeats a name; leave one of them out")
    texts = [_changed(made, list(responses["response"]), steps) for made in chosen]
    before, *after = _scored(scorer, list(responses["prompt"]), [list(responses["response"]), *texts])
    # Without the texts, which every transform would repeat.
    kept = responses.drop(columns=["prompt", "response"])[[*tables.KEY, "subset", "style"]]
    frames = []
    for made, changed, scores in zip(chosen, texts, after, strict=True):
        # A change that found nothing to do says nothing about the scorer, so it does not count as a change of zero.
        altered = np.array([new != old for new, old in zip(changed, responses["response"], strict=True)])
        frame = kept.assign(transform=made.name, null=made.null, before=before, after=scores)
        frames.append(frame.assign(change=np.where(altered, scores - before, np.nan)))
    table = pd.concat(frames, ignore_index=True).astype({"transform": "str"})
    table = table[["transform", "null", *kept.columns, "before", "after", "change"]]
    # Numbers of the whole table, not of a row.
    table.attrs = {"model": name_of(scorer), "spread": spread(before, prompt_index(responses))}
    return table


def _row(rows: pd.DataFrame, by: list[str], confidence: float) -> dict[str, object]:
    from scipy.special import stdtr

    altered = rows[rows["change"].notna()]
    prompt = prompt_index(altered)
    size = int(prompt.max(initial=-1)) + 1
    found = clustered_mean(altered["change"].to_numpy(), np.zeros(len(altered), np.intp), prompt, 1)
    mean, se = found.mean, found.se
    low, high = mean_interval(found, confidence=confidence)
    with np.errstate(invalid="ignore", divide="ignore"):
        # Where no score moved at all 0 / 0 is no effect, p = 1; where all moved alike the error is 0 and p with it.
        t = np.where((se == 0) & (mean == 0), 0.0, np.abs(mean) / se)
    # Too few prompts have no degrees of freedom: any number serves, as their error is NaN and p with it.
    p = 2 * stdtr(np.nan_to_num(found.freedom, nan=1.0), -t)
    values = {"change": mean, "se": se, "low": low, "high": high, "p": p}
    return {
        **{column: rows[column].iloc[0] for column in by},
        "null": bool(rows["null"].all()),
        **{name: float(value[0]) for name, value in values.items()},
        "n": len(altered),
        "untouched": len(rows) - len(altered),
        "n_prompts": size,
        "reason": too_few(size),
    }


def _holm(table: pd.DataFrame) -> Floats:
    adjusted = np.full(len(table), np.nan)
    # Controls are no hypotheses: what they show is read, not tested for.
    real = (~table["null"] & table["p"].notna()).to_numpy()
    if real.any():
        adjusted[real] = holm(table.loc[real, "p"].to_numpy(float))
    return adjusted


def _transform(item: str | Transform | Change) -> Transform:
    if isinstance(item, Transform):
        return item
    if isinstance(item, str):
        if item not in TRANSFORMS:
            raise DataError(f"transforms: {item!r}; {nearest(item, list(TRANSFORMS))}, or a function from text to text")
        return TRANSFORMS[item]
    if not callable(item):
        raise TypeError(f"transforms: {item!r} is neither a name nor a function from text to text")
    name = getattr(item, "__name__", type(item).__name__)
    return Transform(name, lambda text, steps: item(text), steps=1)


def _changed(made: Transform, texts: list[str], steps: int | None) -> list[str]:
    wanted = made.steps if steps is None else min(steps, made.steps)
    changed = [made(text, wanted) for text in texts]
    for old, new in zip(texts, changed, strict=True):
        if not isinstance(new, str) or not new:
            raise DataError(f"transforms: {made.name} made {new!r} of {old[:60]!r}; it must give a non-empty string")
    return changed


def _scored(scorer: PlainScorer, prompts: list[Prompt], versions: list[list[str]]) -> list[Floats]:
    """Scores of every version of the texts, each different text scored once."""
    number: dict[tuple[str, str], int] = {}
    asked: list[tuple[Prompt, str]] = []
    wanted = np.empty((len(versions), len(prompts)), np.intp)  # number of the distinct text, by version and answer
    for row, texts in enumerate(versions):
        for column, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
            key = (repr(prompt), text)  # a prompt may be a list of messages
            if key not in number:
                number[key] = len(asked)
                asked.append((prompt, text))
            wanted[row, column] = number[key]
    # One call with all texts: a scorer that shares beginnings then forwards each prompt once for all versions.
    scores = np.asarray(scorer([prompt for prompt, _ in asked], [text for _, text in asked]), float)
    if scores.shape != (len(asked),):
        raise DataError(f"scorer: {len(asked)} texts gave an array of shape {scores.shape}; one score each is needed")
    return list(scores[wanted])
