"""Counterfactual probes: what another style does to the score of the same answer, and
another wording of the prompt to its comparisons.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.bias import regression
from rmlab.bias.versions import (
    Changes,
    apply_transform,
    find_altered,
    resolve_transforms,
    score_versions,
    tabulate_changes,
)
from rmlab.bias.wording import probe_prompts
from rmlab.estimation.items import cluster_columns
from rmlab.scorers.base import PlainScorer, name_of
from rmlab.styles.transforms import TRANSFORMS
from rmlab.tables import PROMPT, default_cluster, group_codes


def probe(
    responses: pd.DataFrame,
    scorer: PlainScorer,
    transforms: Changes | None = None,
    *,
    target: Literal["response", "prompt"] = "response",
    by: str | Sequence[str] = ("transform", "domain"),
    steps: int | None = None,
    cluster: str | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Measure what changes of style do to the score of the same answers, or changes of
    the prompt's wording to their comparisons.

    Every answer is scored as it is and after each change; only answers (or prompts)
    that the change alters count.

    Parameters
    ----------
    responses : DataFrame
        A table of responses.
    scorer : callable
        Takes prompts and responses and returns their scores.
    transforms : sequence, optional
        Names of `rmlab.styles.TRANSFORMS`, for prompts of
        `rmlab.styles.PROMPT_TRANSFORMS`, or functions from text to text; default: all
        names, controls among them.
    target : {"response", "prompt"}
        What is changed; of a conversation the last user's message.
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

        For prompts, the unit is a comparison in place of an answer: change is that of
        the margin, and further columns with their limits (accuracy_low and so on) are
        accuracy (before), accuracy_change, and flips (share of comparisons with another
        outcome). A tie is not won. The control "again" scores the same texts a second
        time; "neutral_sentence" is as long as the url and the greeting.

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
    tables.check_option("target", target, ("response", "prompt"))
    responses = tables.check_responses(responses)
    if target == "prompt":
        return probe_prompts(
            responses,
            scorer,
            transforms,
            by=by,
            steps=steps,
            cluster=cluster,
            confidence=confidence,
        )
    clusters_by = cluster_columns(responses, cluster)
    changes, spread = _score_changes(responses, scorer, transforms, clusters_by, steps)
    return tabulate_changes(
        changes,
        by,
        clusters_by,
        model=name_of(scorer),
        spread=spread,
        unaltered="no answer was altered",
        further={},
        confidence=confidence,
    )


def _score_changes(
    responses: pd.DataFrame,
    scorer: PlainScorer,
    transforms: Changes | None,
    clusters_by: list[str],
    steps: int | None,
) -> tuple[pd.DataFrame, float]:
    """One row per transform and answer, and the scores' spread within a prompt before.

    The column `change` is NaN where the transform left the answer as it was: a change
    that had nothing to do says nothing about the scorer.
    """
    changes = resolve_transforms(transforms, TRANSFORMS)
    prompts = list(responses["prompt"])
    original = list(zip(prompts, responses["response"], strict=True))
    versions = [original]
    for change in changes:
        texts = [apply_transform(change, text, steps) for text in responses["response"]]
        versions.append(list(zip(prompts, texts, strict=True)))
    before, *scores_after = score_versions(scorer, versions)

    # Without the texts, which every transform would repeat.
    columns = [*tables.KEY, "subset", "style", *default_cluster(responses)]
    answers = responses[[*dict.fromkeys([*columns, *clusters_by])]]
    frames = []
    for change, version, after in zip(changes, versions[1:], scores_after, strict=True):
        is_altered = find_altered(version, original)
        frame = answers.assign(
            transform=change.name,
            null=change.null,
            change=np.where(is_altered, after - before, np.nan),
        )
        frames.append(frame)
    spread = regression.within_spread(before, group_codes(responses, PROMPT)[0])
    return pd.concat(frames, ignore_index=True).astype({"transform": "str"}), spread
