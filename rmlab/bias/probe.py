"""Probes: what another style does to the score of the same answer."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeAlias

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.bias.answers import measure_spread
from rmlab.estimation.clustered import estimate_mean
from rmlab.estimation.difference import holm
from rmlab.estimation.groups import (
    Group,
    Numbers,
    fit_groups,
    list_names,
)
from rmlab.scorers.base import PlainScorer, as_scorer, name_of
from rmlab.styles.transforms import TRANSFORMS, Transform
from rmlab.tables import PROMPT, DataError, FloatArray, group_codes, nearest

Change: TypeAlias = Transform | Callable[[str], str]


def probe(
    responses: pd.DataFrame,
    scorer: "PlainScorer",
    transforms: str | Sequence[str | Change] | None = None,
    *,
    by: str | Sequence[str] = ("transform", "domain"),
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
    transforms : str or sequence, optional
        Functions from text to text, or names: strip_markdown, headings, bold, bullets,
        padding, hedging, confidence, emoji, and the controls synonyms, spacing,
        final_newline. Default: all names.
    by : str or sequence of str
        Columns that define the rows: transform, domain, subset, label, style.
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
    changes = _resolve_transforms(transforms)
    original = responses["response"].tolist()
    versions = [original]
    for change in changes:
        versions.append([_change_text(text, change) for text in original])
    before, *scores_after = _score_versions(scorer, responses["prompt"], versions)

    # Without the texts, which every transform would repeat.
    answers = responses.drop(columns=["prompt", "response"])
    frames = []
    for change, texts, after in zip(changes, versions[1:], scores_after, strict=True):
        is_altered = np.array(texts, object) != np.array(original, object)
        frame = answers.assign(
            transform=change.name,
            null=change.null,
            # A change that had nothing to do says nothing about the scorer.
            change=np.where(is_altered, after - before, np.nan),
        )
        frames.append(frame)

    prompt = group_codes(responses, PROMPT)[0]
    spread = measure_spread(before, prompt, prompt).value
    frame = pd.concat(frames, ignore_index=True).astype({"transform": "str"})
    table = _tabulate_changes(frame, by, cluster, spread, confidence)
    table.insert(0, "model", name_of(scorer))
    return table


def _resolve_transforms(
    transforms: str | Sequence[str | Change] | None,
) -> list[Transform]:
    """Transforms from names and functions; default: all known ones."""
    if transforms is None:
        return list(TRANSFORMS.values())
    changes = []
    for item in [transforms] if isinstance(transforms, str) else transforms:
        if isinstance(item, Transform):
            changes.append(item)
        elif callable(item):
            changes.append(Transform(getattr(item, "__name__", repr(item)), item))
        elif item in TRANSFORMS:
            changes.append(TRANSFORMS[item])
        else:
            allowed = nearest(item, list(TRANSFORMS))
            remedy = f"{allowed}, or a function from text to text"
            raise DataError(f"transforms: {item!r}", remedy)
    list_names("transforms", [change.name for change in changes])
    return changes


def _change_text(text: str, change: Transform) -> str:
    changed = change(text)
    if not isinstance(changed, str) or not changed:
        problem = f"transforms: {change.name} made {changed!r} of {text[:60]!r}"
        raise DataError(problem, "it must give a non-empty string")
    return changed


def _score_versions(
    scorer: PlainScorer, prompts: pd.Series, versions: list[list[str]]
) -> FloatArray:
    """Scores (versions, responses); each different prompt and text is scored once."""
    texts = list(chain.from_iterable(versions))
    entries = pd.DataFrame({"prompt": prompts.tolist() * len(versions), "text": texts})
    # By the text of the prompt, as it may be a list of messages.
    key = entries.assign(prompt=entries["prompt"].map(repr))
    number, first = group_codes(key, ["prompt", "text"])
    # One call with all texts: a scorer that shares prefixes then forwards each prompt
    # once for all versions.
    distinct = entries.iloc[first]
    scores = as_scorer(scorer)(distinct["prompt"].tolist(), distinct["text"].tolist())
    return scores[number].reshape(len(versions), -1)


def _tabulate_changes(
    changes: pd.DataFrame,
    by: str | Sequence[str],
    cluster: str | None,
    spread: float,
    confidence: float,
) -> pd.DataFrame:
    """One row per group: the mean change with its test."""

    def fit(group: Group) -> Numbers:
        rows = changes.iloc[group.rows]
        change = rows["change"].to_numpy()
        altered = group.select(~np.isnan(change))
        mean = estimate_mean(change, group.cluster, confidence, (-np.inf, np.inf))
        return {
            "null": rows["null"].all(),
            "change": mean.value,
            "se": mean.se,
            "low": mean.low,
            "high": mean.high,
            "standardised": mean.value / spread,
            "p": mean.p,
            "p_holm": np.nan,
            "n": len(altered.rows),
            "untouched": len(group.rows) - len(altered.rows),
            "n_prompts": altered.n_prompts,
            "reason": mean.reason if len(altered.rows) else "nothing was altered",
        }

    table = fit_groups(changes, by, cluster, fit)
    # Controls are no hypotheses: they are read, not tested.
    table["p_holm"] = holm(np.where(table["null"], np.nan, table["p"]))
    return table
