"""What probes share: changes by name, scores of several versions of the texts, and the
table of what the changes do.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd
from scipy.special import stdtr

from rmlab.bias import regression
from rmlab.estimation.clustered import Estimate, group_means
from rmlab.estimation.difference import holm
from rmlab.scorers.base import PlainScorer, Prompt
from rmlab.styles.transforms import Transform
from rmlab.tables import BoolArray, DataError, FloatArray, group_codes, nearest

Change = Callable[[str], str]
Changes: TypeAlias = Sequence[str | Transform | Change]
Version: TypeAlias = list[tuple[Prompt, str]]
"""Prompts with their answers, one entry per row of the responses."""


def resolve_transforms(
    transforms: Changes | None, known: Mapping[str, Transform]
) -> list[Transform]:
    """Transforms from names and functions; default: all known ones."""
    if transforms is None:
        return list(known.values())
    if isinstance(transforms, str) or not len(transforms):
        remedy = "give a list of names or functions, or leave it out for all"
        raise DataError(f"transforms: {transforms!r}", remedy)
    changes = [_as_transform(item, known) for item in transforms]
    names = [change.name for change in changes]
    if len(set(names)) < len(names):
        raise DataError(f"transforms: {names} repeats a name", "leave one of them out")
    return changes


def _as_transform(
    item: str | Transform | Change, known: Mapping[str, Transform]
) -> Transform:
    if isinstance(item, Transform):
        return item
    if callable(item):
        name = getattr(item, "__name__", type(item).__name__)
        return Transform(name, lambda text, steps: item(text), steps=1)
    if item not in known:
        allowed = nearest(item, list(known))
        remedy = f"{allowed}, or a function from text to text"
        raise DataError(f"transforms: {item!r}", remedy)
    return known[item]


def apply_transform(change: Transform, text: str, steps: int | None) -> str:
    """The changed text; DataError where it is none."""
    n_steps = change.steps if steps is None else min(steps, change.steps)
    changed = change(text, n_steps)
    if not isinstance(changed, str) or not changed:
        problem = f"transforms: {change.name} made {changed!r} of {text[:60]!r}"
        raise DataError(problem, "it must give a non-empty string")
    return changed


def find_altered(version: Version, original: Version) -> BoolArray:
    """Which entries differ from the original's."""
    pairs = zip(version, original, strict=True)
    return np.array([changed != before for changed, before in pairs])


def score_versions(scorer: PlainScorer, versions: list[Version]) -> list[FloatArray]:
    """Scores of every version, each different prompt and text scored once."""
    if not callable(scorer):
        raise TypeError(
            f"scorer: {scorer!r} cannot be called."
            " Give a scorer such as rmlab.baselines.longest."
        )
    prompt_of: dict[tuple[str, str], Prompt] = {}
    keys_of_version = []
    for version in versions:
        # By the text of the prompt, as it may be a list of messages.
        keys = [(repr(prompt), text) for prompt, text in version]
        for key, (prompt, _) in zip(keys, version, strict=True):
            prompt_of[key] = prompt
        keys_of_version.append(keys)

    # One call with all texts: a scorer that shares beginnings then forwards each prompt
    # once for all versions.
    distinct_texts = [text for _, text in prompt_of]
    scores = np.asarray(scorer(list(prompt_of.values()), distinct_texts), float)
    if scores.shape != (len(prompt_of),):
        problem = f"scorer: {len(prompt_of)} texts gave shape {scores.shape}"
        raise DataError(problem, "return one score each")
    score_of = dict(zip(prompt_of, scores.tolist(), strict=True))
    version_scores = []
    for keys in keys_of_version:
        version_scores.append(np.array([score_of[key] for key in keys]))
    return version_scores


def tabulate_changes(
    changes: pd.DataFrame,
    by: str | Sequence[str],
    cluster: Sequence[str],
    *,
    model: str,
    spread: float,
    unaltered: str,
    further: Mapping[str, tuple[float, float]],
    confidence: float,
) -> pd.DataFrame:
    """One row per combination of the `by` columns: the mean of the column change, with
    its test, and of `further` columns, which are named with their bounds.

    NaN is what a transform left as it was; `unaltered` says so where all is. `spread`
    is the unit of the standardised change.
    """
    results = ("null", "change", *further)
    columns, _ = regression.group_columns(changes, by, results=results)
    group, first_rows = group_codes(changes, columns)
    clusters = group_codes(changes, cluster)[0]
    means = {}
    for name, bounds in {"change": (-np.inf, np.inf), **further}.items():
        means[name] = group_means(
            changes[name].to_numpy(),
            group,
            clusters,
            len(first_rows),
            bounds=bounds,
            confidence=confidence,
        )

    change = means.pop("change")
    p = _two_sided_p(change)
    is_null = changes["null"].groupby(group).all().to_numpy()
    reason = np.where(change.n_pairs == 0, unaltered, change.reason)
    table: dict[str, object] = {
        "null": is_null,
        "change": change.value,
        "se": change.se,
        "low": change.low,
        "high": change.high,
        "standardised": change.value / (spread or np.nan),
        "p": p,
        # Controls are no hypotheses: they are read, not tested.
        "p_holm": holm(np.where(is_null, np.nan, p)),
    }
    for name, mean in means.items():
        table[name] = mean.value
        table[f"{name}_low"] = mean.low
        table[f"{name}_high"] = mean.high
    table["n"] = change.n_pairs
    table["untouched"] = np.bincount(group) - change.n_pairs
    table["n_prompts"] = change.n_prompts
    table["reason"] = pd.Series(reason, dtype="str")
    keys = changes[columns].iloc[first_rows].reset_index(drop=True)
    keys.insert(0, "model", model)
    return pd.concat([keys, pd.DataFrame(table)], axis=1)


def _two_sided_p(mean: Estimate) -> FloatArray:
    """p of the test whether each mean is zero; NaN without degrees of freedom."""
    # Where all answers moved alike the error is 0 and p with it.
    with np.errstate(invalid="ignore", divide="ignore"):
        t = np.abs(mean.value) / mean.se
    # Where none moved at all, 0 / 0 is no effect: p = 1.
    t[(mean.se == 0) & (mean.value == 0)] = 0.0
    p = 2 * stdtr(np.maximum(mean.df, 1.0), -t)
    return np.asarray(np.minimum(p, 1.0))
