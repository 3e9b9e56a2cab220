"""Preference for style at fixed correctness: the fancier against the plainer version of the same answer."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.bias import regression
from rmlab.metrics.estimate import group_means
from rmlab.metrics.items import FloatArray, Ties, credit
from rmlab.tables import PROMPT, STYLE, STYLES, DataError, copy_provenance, group_codes


def style_preference(
    scores: pd.DataFrame,
    by: str | Sequence[str] = ("model", "plainer", "fancier"),
    *,
    ties: Ties = "half",
    cluster: str | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Measure how often the fancier of two versions of the same answer scores higher.

    Chosen answers meet chosen answers of the same prompt and rejected ones rejected ones, in another style, so that
    correctness is held fixed.

    Parameters
    ----------
    scores : DataFrame
        A table of scores whose answers have styles.
    by : str or sequence of str
        Columns that define the rows: model, benchmark, domain, subset, label, plainer, fancier. "model" gives one
        number per model.
    ties : {"half", "loss", "drop"}
        What a tie earns. Neither answer is the right one, so the default is half.
    cluster : str, optional
        Column that names a family of prompts which stand or fall together; default: the prompt.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    DataFrame
        One row per combination of the `by` columns: these, preference (share of comparisons that the fancier wins; 0.5
        is no preference), se, low, high, difference (mean of fancier minus plainer in standard deviations of the
        model's scores within a prompt; NaN where its scores do not vary), n_pairs, n_prompts, n_ties, missing, reason.

    Raises
    ------
    DataError
        Where no score has a style.
    """
    scores = tables.check_scores(scores, allow_missing=True)
    if scores["style"].isna().all():
        raise DataError("scores: style is missing in every row. A preference needs a benchmark with styles.")
    rows = _cross_styles(scores, [] if cluster is None else [cluster])
    columns, cluster_columns = regression.group_columns(rows, by, cluster)
    group, first_rows = group_codes(rows, columns)
    n_groups = len(first_rows)
    earned = credit(rows, ties=ties)
    share = group_means(earned, group, group_codes(rows, cluster_columns)[0], n_groups, confidence=confidence)
    prompt = pd.Series(group_codes(rows, PROMPT)[0]).where(~np.isnan(earned))
    difference = rows.groupby(group)["difference"].mean().to_numpy()
    still = np.where(np.isnan(difference), "scores do not vary within a prompt", "")
    reason = np.where(share.n_pairs == 0, "no outcome", np.where(share.reason != "", share.reason, still))
    frame = rows[columns].iloc[first_rows].reset_index(drop=True)
    frame = frame.assign(
        preference=share.value,
        se=share.se,
        low=share.low,
        high=share.high,
        difference=difference,
        n_pairs=share.n_pairs,
        n_prompts=prompt.groupby(group).nunique().to_numpy(),
        n_ties=np.bincount(group, rows["outcome"] == "tie", n_groups).astype(int),
        missing=np.bincount(group, rows["outcome"].isna(), n_groups).astype(int),
        reason=pd.Series(reason, dtype="str"),
    )
    return copy_provenance(scores, frame)


def _cross_styles(scores: pd.DataFrame, extra: list[str]) -> pd.DataFrame:
    """One row per two answers of a prompt with the same label and different styles."""
    key = ["model", *PROMPT, "label"]
    units = regression.standardize_models(scores)
    # Units of a model without spread are all 0: a difference of 0 there would be a number that nobody measured.
    scores = scores.assign(
        unit=np.where(pd.Series(units != 0).groupby(scores["model"]).transform("any"), units, np.nan)
    )
    sides = {style: scores.loc[scores["style"] == style, [*key, "subset", *extra, "score", "unit"]] for style in STYLES}
    frames = []
    for plainer, fancier in combinations(STYLES, 2):
        # On the label too: right meets right and wrong meets wrong, so correctness cannot decide.
        fancier_side = sides[fancier].drop(columns=["subset", *extra])
        merged = sides[plainer].merge(fancier_side, on=key, suffixes=("_plainer", "_fancier"))
        frames.append(merged.assign(plainer=plainer, fancier=fancier))
    crossed = pd.concat(frames, ignore_index=True)
    difference: FloatArray = (crossed["score_fancier"] - crossed["score_plainer"]).to_numpy()
    return crossed[[*key, "subset", *extra]].assign(
        plainer=pd.Categorical(crossed["plainer"], dtype=STYLE),
        fancier=pd.Categorical(crossed["fancier"], dtype=STYLE),
        outcome=tables.outcome(difference),
        difference=crossed["unit_fancier"] - crossed["unit_plainer"],
    )
