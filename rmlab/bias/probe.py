"""Counterfactual probes: what another style does to the score of the same answer."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd
from scipy.special import stdtr

from rmlab import tables
from rmlab.bias import regression
from rmlab.estimation.clustered import Measured, group_means
from rmlab.estimation.difference import holm
from rmlab.estimation.items import cluster_columns
from rmlab.scorers.base import PlainScorer, Prompt, name_of
from rmlab.styles.transforms import TRANSFORMS, Transform
from rmlab.tables import (
    PROMPT,
    DataError,
    FloatArray,
    default_cluster,
    group_codes,
    nearest,
)

Change = Callable[[str], str]
_Changes: TypeAlias = Sequence[str | Transform | Change]


def probe(
    responses: pd.DataFrame,
    scorer: PlainScorer,
    transforms: _Changes | None = None,
    *,
    by: str | Sequence[str] = ("transform", "domain"),
    steps: int | None = None,
    cluster: str | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Measure what changes of style do to the score of the same answers.

    Every answer is scored as it is and after each change; only answers that the change
    alters count.

    Parameters
    ----------
    responses : DataFrame
        A table of responses.
    scorer : callable
        Takes prompts and responses and returns their scores.
    transforms : sequence, optional
        Names of `rmlab.styles.TRANSFORMS`, or functions from text to text; default: all
        names, controls among them.
    by : str or sequence of str
        Columns that define the rows: transform, domain, subset, label, style.
    steps : int, optional
        How many steps of each change; default: as many as it takes.
    cluster : str, optional
        Column whose values the prompts of a cluster share; default: the prompt.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    DataFrame
        One row per combination of the `by` columns: model, these, null (a control,
        which should do nothing), change (mean of after minus before), se (clustered by
        prompt), low, high (Student's t), standardised (change in standard deviations of
        the model's scores within a prompt), p (two-sided), p_holm (over the rows that
        are not controls), n (answers altered), untouched (answers without a place for
        the change), n_prompts, reason.

    Raises
    ------
    DataError
        For an unknown name, and for a change that leaves no text.

    Notes
    -----
    A change in meaning that comes with a change in style is in the numbers too: read
    the controls beside them.

    Examples
    --------
    >>> import rmlab
    >>> responses = rmlab.load("mini")
    >>> longest = rmlab.baselines.longest
    >>> table = rmlab.probe(responses, longest, ["padding"], by="transform")
    >>> table[["transform", "null", "n"]].to_numpy().tolist()
    [['padding', False, 384]]
    """
    responses = tables.check_responses(responses)
    clusters_by = cluster_columns(responses, cluster)
    changes, spread = _score_changes(responses, scorer, transforms, steps)
    columns, _ = regression.group_columns(changes, by, results=("null", "change"))
    group, first_rows = group_codes(changes, columns)

    # The rows of `changes` are the responses, once per transform.
    n_transforms = len(changes) // len(responses)
    clusters = np.tile(group_codes(responses, clusters_by)[0], n_transforms)
    mean = group_means(
        changes["change"].to_numpy(),
        group,
        clusters,
        len(first_rows),
        bounds=(-np.inf, np.inf),
        confidence=confidence,
    )
    p = _two_sided_p(mean)
    is_null = changes["null"].groupby(group).all().to_numpy()
    reason = np.where(mean.n_values == 0, "no answer was altered", mean.reason)

    keys = changes[columns].iloc[first_rows].reset_index(drop=True)
    keys.insert(0, "model", name_of(scorer))
    results = pd.DataFrame(
        {
            "null": is_null,
            "change": mean.value,
            "se": mean.se,
            "low": mean.low,
            "high": mean.high,
            "standardised": mean.value / (spread or np.nan),
            "p": p,
            # Controls are no hypotheses: they are read, not tested.
            "p_holm": holm(np.where(is_null, np.nan, p)),
            "n": mean.n_values,
            "untouched": np.bincount(group) - mean.n_values,
            "n_prompts": mean.n_clusters,
            "reason": pd.Series(reason, dtype="str"),
        }
    )
    return pd.concat([keys, results], axis=1)


def _two_sided_p(mean: Measured) -> FloatArray:
    """p of the test whether each mean is zero; NaN without degrees of freedom."""
    # Where all answers moved alike the error is 0 and p with it.
    with np.errstate(invalid="ignore", divide="ignore"):
        t = np.abs(mean.value) / mean.se
    # Where none moved at all, 0 / 0 is no effect: p = 1.
    t[(mean.se == 0) & (mean.value == 0)] = 0.0
    p = 2 * stdtr(np.maximum(mean.df, 1.0), -t)
    return np.asarray(np.minimum(p, 1.0))


def _score_changes(
    responses: pd.DataFrame,
    scorer: PlainScorer,
    transforms: _Changes | None,
    steps: int | None,
) -> tuple[pd.DataFrame, float]:
    """One row per transform and answer, and the scores' spread within a prompt before.

    The column `change` is NaN where the transform left the answer as it was: a change
    that had nothing to do says nothing about the scorer.
    """
    if not callable(scorer):
        raise TypeError(
            f"scorer: {scorer!r} cannot be called."
            " Give a scorer such as rmlab.baselines.longest."
        )
    changes = _resolve_transforms(transforms)
    texts = list(responses["response"])
    prompts = list(responses["prompt"])
    changed_texts = [_apply(change, texts, steps) for change in changes]
    before, *scores_after = _score_versions(scorer, prompts, [texts, *changed_texts])

    # Without the texts, which every transform would repeat.
    columns = [*tables.KEY, "subset", "style", *default_cluster(responses)]
    answers = responses[[*dict.fromkeys(columns)]]
    frames = []
    for change, changed, after in zip(
        changes, changed_texts, scores_after, strict=True
    ):
        is_altered = [new != old for new, old in zip(changed, texts, strict=True)]
        frame = answers.assign(
            transform=change.name,
            null=change.null,
            change=np.where(is_altered, after - before, np.nan),
        )
        frames.append(frame)
    spread = regression.within_spread(before, group_codes(responses, PROMPT)[0])
    return pd.concat(frames, ignore_index=True).astype({"transform": "str"}), spread


def _resolve_transforms(transforms: _Changes | None) -> list[Transform]:
    if transforms is None:
        return list(TRANSFORMS.values())
    if isinstance(transforms, str) or not len(transforms):
        remedy = "give a list of names or functions, or leave it out for all"
        raise DataError(f"transforms: {transforms!r}", remedy)
    changes = [_as_transform(item) for item in transforms]
    names = [change.name for change in changes]
    if len(set(names)) < len(names):
        raise DataError(f"transforms: {names} repeats a name", "leave one of them out")
    return changes


def _as_transform(item: str | Transform | Change) -> Transform:
    if isinstance(item, Transform):
        return item
    if callable(item):
        name = getattr(item, "__name__", type(item).__name__)
        return Transform(name, lambda text, steps: item(text), steps=1)
    if item not in TRANSFORMS:
        allowed = nearest(item, list(TRANSFORMS))
        remedy = f"{allowed}, or a function from text to text"
        raise DataError(f"transforms: {item!r}", remedy)
    return TRANSFORMS[item]


def _apply(change: Transform, texts: list[str], steps: int | None) -> list[str]:
    n_steps = change.steps if steps is None else min(steps, change.steps)
    changed = [change(text, n_steps) for text in texts]
    for old, new in zip(texts, changed, strict=True):
        if not isinstance(new, str) or not new:
            problem = f"transforms: {change.name} made {new!r} of {old[:60]!r}"
            raise DataError(problem, "it must give a non-empty string")
    return changed


def _score_versions(
    scorer: PlainScorer, prompts: list[Prompt], versions: list[list[str]]
) -> list[FloatArray]:
    """Scores of every version of the texts, each different text scored once."""
    # By the text of the prompt, as it may be a list of messages.
    prompt_texts = [repr(prompt) for prompt in prompts]
    keys = [list(zip(prompt_texts, texts, strict=True)) for texts in versions]
    prompt_of: dict[tuple[str, str], Prompt] = {}
    for version_keys in keys:
        prompt_of.update(zip(version_keys, prompts, strict=True))

    # One call with all texts: a scorer that shares beginnings then forwards each prompt
    # once for all versions.
    distinct_texts = [text for _, text in prompt_of]
    scores = np.asarray(scorer(list(prompt_of.values()), distinct_texts), float)
    if scores.shape != (len(prompt_of),):
        problem = f"scorer: {len(prompt_of)} texts gave shape {scores.shape}"
        raise DataError(problem, "return one score each")
    score_of = dict(zip(prompt_of, scores.tolist(), strict=True))
    version_scores = []
    for version_keys in keys:
        version_scores.append(np.array([score_of[key] for key in version_keys]))
    return version_scores
