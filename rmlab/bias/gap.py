"""Style gap, and preference for the fancier of two versions of an answer."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.bias.answers import measure_spread
from rmlab.estimation.clustered import estimate_mean, indicator
from rmlab.estimation.estimate import estimate
from rmlab.estimation.groups import (
    Group,
    Numbers,
    count_outcomes,
    fit_groups,
    require_model,
    split_rows,
)
from rmlab.estimation.items import (
    MISSING,
    Ties,
    credit,
    refuse_result_names,
)
from rmlab.estimation.weights import Average, subtract
from rmlab.metrics.prepare import prepare
from rmlab.metrics.summaries import estimate_frame, group_numbers
from rmlab.tables import (
    LEVELS,
    PROMPT,
    DataError,
    copy_provenance,
    group_codes,
)

_GAP_RESULTS = (
    "easy",
    "hard",
    "gap",
    "se",
    "low",
    "high",
    "n_prompts",
    "n_ties",
    "missing",
    "average",
    "reason",
)


def style_gap(
    table: pd.DataFrame,
    by: str | Sequence[str] = "model",
    *,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    cluster: str | None = None,
    confidence: float = 0.95,
    **options: str,
) -> pd.DataFrame:
    """Measure how much of the accuracy is style: easy minus hard.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs of one benchmark whose answers have styles.
    by : str or sequence of str
        Columns that define the rows, as in `rmlab.accuracy`.
    average, ties, common, cluster, confidence, **options
        As in `rmlab.summary`.

    Returns
    -------
    DataFrame
        One row per combination of the `by` columns: these, easy, hard (those of
        `summary`), gap (-1 to 1), its se (clustered by prompt), low, high, n_prompts
        and n_ties, missing (of the easy and hard comparisons), average, reason. A model
        that style does not move has a gap of 0, one that only looks at style a gap of
        1.

    Raises
    ------
    DataError
        Where comparisons have no level.

    Notes
    -----
    The gap is one number of `rmlab.estimation.estimate`: a prompt's easy and hard
    comparisons are in one cluster, so that what makes a whole prompt hard drops out of
    the error. A prompt with a missing comparison of a model is left out of its gap, not
    of easy and hard: where comparisons are missing, the gap is not their difference.

    Examples
    --------
    >>> import rmlab
    >>> scores = rmlab.score(rmlab.load("mini"), "longest")
    >>> rmlab.style_gap(scores)[["easy", "hard", "gap"]].round(2).to_numpy().tolist()
    [[0.78, 0.2, 0.58]]
    """
    by = [by] if isinstance(by, str) else list(dict.fromkeys(by))
    columns = [column for column in by if column != "model"]
    refuse_result_names(columns, ("level", "easy", "hard", "gap"))
    _, items = prepare(
        table,
        average,
        ties,
        common,
        options,
        by=columns,
        cluster=cluster,
        require_complete=False,
    )
    if not items.has_levels:
        remedy = "easy and hard need a benchmark whose answers have styles"
        raise DataError("table: level is missing", remedy)
    require_model(by, items.models)

    # One mean per group and level; the levels of a group stand next to each other.
    groups, levels = group_numbers(items, [*columns, "level"])
    easy = levels[LEVELS.index("easy") :: len(LEVELS)]
    hard = levels[LEVELS.index("hard") :: len(LEVELS)]
    gaps = [subtract(*sides) for sides in zip(easy, hard, strict=True)]
    groups = groups[columns].iloc[:: len(LEVELS)].reset_index(drop=True)

    # Prompts of which a model lacks some comparisons are left out of its gap.
    of_prompt = indicator(items.prompt, int(items.prompt.max()) + 1)
    lacks = (items.outcome <= MISSING) & items.counts
    is_complete = lacks @ of_prompt == 0
    complete = items.keep(is_complete[:, items.prompt])
    frame = estimate_frame(items, groups, estimate(complete, gaps, confidence), "gap")
    frame["easy"] = estimate(items, easy).value.ravel()
    frame["hard"] = estimate(items, hard).value.ravel()
    frame["missing"] = estimate(items, gaps).missing.ravel()
    return copy_provenance(table, frame[[*by, *_GAP_RESULTS]])


def style_preference(
    scores: pd.DataFrame,
    by: str | Sequence[str] = ("model", "plainer", "fancier"),
    *,
    ties: Ties = "half",
    cluster: str | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Measure how often the fancier of two versions of the same answer scores higher.

    Chosen answers meet chosen answers of the same prompt and rejected ones rejected
    ones, in another style, so that correctness is held fixed.

    Parameters
    ----------
    scores : DataFrame
        A table of scores whose answers have styles.
    by : str or sequence of str
        Columns that define the rows: model, benchmark, domain, subset, label, plainer,
        fancier. "model" gives one number per model.
    ties : {"half", "loss", "drop"}
        What a tie earns. Neither answer is the right one, so the default is half.
    cluster : str, optional
        Column that names a cluster of prompts; default: the prompt.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    DataFrame
        One row per combination of the `by` columns: these, preference (share of
        comparisons that the fancier wins; 0.5 is no preference), se, low, high,
        difference (mean of fancier minus plainer in standard deviations of the model's
        scores within a prompt; NaN where its scores do not vary), n_pairs, n_prompts,
        n_ties, missing, reason.

    Raises
    ------
    DataError
        Where no score has a style.
    """
    scores = tables.check_scores(scores, allow_missing=True)
    if scores["style"].isna().all():
        remedy = "a preference needs a benchmark with styles"
        raise DataError("scores: style is missing in every row", remedy)
    versions = _cross_styles(scores)
    earned = credit(versions, ties=ties)

    def fit(group: Group) -> Numbers:
        rows = versions.iloc[group.rows]
        won = earned[group.rows]
        share = estimate_mean(won, group.cluster, confidence)
        difference = rows["difference"].mean()
        flat = "scores do not vary within a prompt" if np.isnan(difference) else ""
        return {
            "preference": share.value,
            "se": share.se,
            "low": share.low,
            "high": share.high,
            "difference": difference,
            **count_outcomes(rows["outcome"], group.select(~np.isnan(won))),
            "reason": share.reason.item() or flat,
        }

    return copy_provenance(scores, fit_groups(versions, by, cluster, fit))


def _cross_styles(scores: pd.DataFrame) -> pd.DataFrame:
    """One row per two answers of a prompt with the same label and different styles: the
    plainer one with all its columns, and the fancier one's style.
    """
    prompt = group_codes(scores, PROMPT)[0]
    score = scores["score"].to_numpy()
    unit = np.full(len(scores), np.nan)
    for rows in split_rows(scores, ["model"]):
        spread = measure_spread(score[rows], prompt[rows], prompt[rows])
        unit[rows] = score[rows] / spread.value

    # The label is in the key: right meets right and wrong meets wrong, so correctness
    # cannot decide.
    key = ["model", *PROMPT, "label"]
    plainer = scores.assign(unit=unit).dropna(subset="style")
    plainer = plainer.rename(columns={"style": "plainer"})
    fancier = plainer[[*key, "plainer", "score", "unit"]]
    fancier = fancier.rename(columns={"plainer": "fancier"})
    crossed = plainer.merge(fancier, on=key, suffixes=("", "_fancier"))
    crossed = crossed[crossed["plainer"] < crossed["fancier"]]
    crossed = crossed.sort_values(
        ["plainer", "fancier"], kind="stable", ignore_index=True
    )
    margin = crossed["score_fancier"] - crossed["score"]
    crossed["outcome"] = tables.outcome(margin.to_numpy())
    crossed["difference"] = crossed["unit_fancier"] - crossed["unit"]
    return crossed
