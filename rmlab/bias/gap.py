"""Style and verdicts: easy minus hard accuracy, fancier against plainer versions, pairs
by length and Markdown.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.benchmarks.prepare import prepare
from rmlab.bias import regression
from rmlab.estimation.clustered import group_means
from rmlab.estimation.estimate import estimate
from rmlab.estimation.items import (
    Ties,
    as_pairs,
    credit,
    refuse_result_names,
    require_item_columns,
)
from rmlab.estimation.weights import Average, Weights, contrast
from rmlab.metrics.summaries import estimate_frame, group_weights
from rmlab.styles import features
from rmlab.tables import (
    LABELS,
    LEVELS,
    PROMPT,
    STYLE,
    STYLES,
    DataError,
    copy_provenance,
    default_cluster,
    group_codes,
)

WITHIN_A_QUARTER = np.log(1.25)
_LENGTH = pd.CategoricalDtype(["shorter", "equal", "longer"], ordered=True)
_MARKDOWN = pd.CategoricalDtype(["less", "equal", "more"], ordered=True)


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
        `summary`), gap (-1 to 1), se (clustered by prompt), low, high, n_prompts,
        n_ties, missing (of the easy and hard comparisons), average, reason. A model
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
    the error.

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
    prepared = prepare(
        table,
        average,
        ties,
        common,
        options,
        by=columns,
        cluster=cluster,
        require_complete=False,
    )
    if not prepared.items.has_levels:
        raise DataError(
            "table: level is missing. Easy and hard need a benchmark whose answers have styles."
        )
    if "model" not in by and len(prepared.items.models) > 1:
        raise DataError(
            f"by: {by} has no 'model', but the table has {len(prepared.items.models)}. Add 'model'."
        )
    levels = group_weights(prepared, [*columns, "level"])
    easy, hard = (
        levels.means[LEVELS.index(name) :: len(LEVELS)] for name in ("easy", "hard")
    )
    keys = levels.numbers[columns].iloc[:: len(LEVELS)].reset_index(drop=True)
    gaps = [contrast(sides, (1, -1)) for sides in zip(easy, hard, strict=True)]
    weights = [Weights(keys, means, levels.label) for means in (easy, hard, gaps)]
    easy_result, hard_result, result = (
        estimate(prepared.items, numbers, confidence) for numbers in weights
    )
    frame = estimate_frame(result, "gap").assign(
        easy=easy_result.value.ravel(), hard=hard_result.value.ravel()
    )
    frame["gap"] = frame["easy"] - frame["hard"]
    uncertainty = [
        "se",
        "low",
        "high",
        "n_prompts",
        "n_ties",
        "missing",
        "average",
        "reason",
    ]
    return copy_provenance(table, frame[[*by, "easy", "hard", "gap", *uncertainty]])


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
        Column that names a family of prompts which stand or fall together; default: the
        prompt.
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
        raise DataError(
            "scores: style is missing in every row. A preference needs a benchmark with styles."
        )
    clusters = default_cluster(scores) if cluster is None else [cluster]
    extra = [name for name in clusters if name not in PROMPT]
    require_item_columns(scores, [], extra)
    rows = _cross_styles(scores, extra)
    # The other names of the result are no columns of `rows`.
    columns, cluster_columns = regression.group_columns(
        rows, by, cluster, results=("difference",)
    )
    group, first_rows = group_codes(rows, columns)
    n_groups = len(first_rows)
    earned = credit(rows, ties=ties)
    share = group_means(
        earned,
        group,
        group_codes(rows, cluster_columns)[0],
        n_groups,
        confidence=confidence,
    )
    prompt = pd.Series(group_codes(rows, default_cluster(rows))[0]).where(
        ~np.isnan(earned)
    )
    difference = rows.groupby(group)["difference"].mean().to_numpy()
    still = np.where(np.isnan(difference), "scores do not vary within a prompt", "")
    reason = np.where(
        share.n_pairs == 0,
        "no outcome",
        np.where(share.reason != "", share.reason, still),
    )
    frame = rows[columns].iloc[first_rows].reset_index(drop=True)
    frame = frame.assign(
        preference=share.value,
        se=share.se,
        low=share.low,
        high=share.high,
        difference=difference,
    )
    frame = frame.assign(
        n_pairs=share.n_pairs, n_prompts=prompt.groupby(group).nunique().to_numpy()
    )
    for name, is_counted in (
        ("n_ties", rows["outcome"] == "tie"),
        ("missing", rows["outcome"].isna()),
    ):
        frame[name] = np.bincount(group, is_counted, n_groups).astype(int)
    return copy_provenance(scores, frame.assign(reason=pd.Series(reason, dtype="str")))


def _cross_styles(scores: pd.DataFrame, extra: list[str]) -> pd.DataFrame:
    """One row per two answers of a prompt with the same label and different styles."""
    key = ["model", *PROMPT, "label"]
    units = pd.Series(regression.standardize_models(scores))
    # Units of a model without spread are all 0: a difference of 0 there would be a
    # number that nobody measured.
    scores = scores.assign(
        unit=units.where((units != 0).groupby(scores["model"]).transform("any"))
    )
    sides = {
        style: scores.loc[
            scores["style"] == style, [*key, "subset", *extra, "score", "unit"]
        ]
        for style in STYLES
    }
    frames = []
    for plainer, fancier in combinations(STYLES, 2):
        # On the label too: right meets right and wrong meets wrong, so correctness
        # cannot decide.
        fancier_side = sides[fancier].drop(columns=["subset", *extra])
        merged = sides[plainer].merge(
            fancier_side, on=key, suffixes=("_plainer", "_fancier")
        )
        frames.append(merged.assign(plainer=plainer, fancier=fancier))
    crossed = pd.concat(frames, ignore_index=True)
    outcome = tables.outcome(
        (crossed["score_fancier"] - crossed["score_plainer"]).to_numpy()
    )
    crossed = crossed.assign(
        outcome=outcome, difference=crossed["unit_fancier"] - crossed["unit_plainer"]
    )
    columns = [*key, "subset", *extra, "plainer", "fancier", "outcome", "difference"]
    return crossed[columns].astype({"plainer": STYLE, "fancier": STYLE})


def style_differences(table: pd.DataFrame, responses: pd.DataFrame) -> pd.DataFrame:
    """Add to each pair how its chosen answer differs from the rejected one in length
    and Markdown.

    The texts alone decide, so that pairs without style labels can be compared by style.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs.
    responses : DataFrame
        The responses that were scored.

    Returns
    -------
    DataFrame
        The pairs with `length` (shorter, equal, longer: the chosen answer's characters
        against the rejected one's; equal means within a quarter), `markdown` (less,
        equal, more marks), `log2_length` (1: the chosen answer is twice as long) and
        the counts chosen_characters, rejected_characters, chosen_markdown,
        rejected_markdown.

    Raises
    ------
    DataError
        For responses other than the scored ones.

    Notes
    -----
    *Shorter* is the hard case, as the chosen answer wins against length; *longer* is
    the easy one. These are different prompts, so that a difference between them is not
    the effect of length alone: `length_controlled` reads the accuracy at equal length,
    and `rmlab.probe` changes one text.

    Examples
    --------
    >>> import rmlab
    >>> responses = rmlab.load("mini")
    >>> pairs = rmlab.bias.style_differences(rmlab.score(responses, "longest"), responses)
    >>> rmlab.accuracy(pairs, by=["model", "length"])[["length", "accuracy"]].round(2).to_numpy().tolist()
    [['shorter', 0.0], ['equal', 0.5], ['longer', 1.0]]
    """
    pairs = as_pairs(table)
    measures = ["characters", "markdown"]
    chosen, rejected = regression.look_up_sides(pairs, features(responses), measures)
    log_ratio = np.log(chosen[:, 0] + 1) - np.log(rejected[:, 0] + 1)
    length = (np.sign(log_ratio) * (np.abs(log_ratio) > WITHIN_A_QUARTER)).astype(int)
    markdown = np.sign(chosen[:, 1] - rejected[:, 1]).astype(int)
    result = pairs.assign(length=pd.Categorical.from_codes(length + 1, dtype=_LENGTH))
    result = result.assign(
        markdown=pd.Categorical.from_codes(markdown + 1, dtype=_MARKDOWN)
    )
    result["log2_length"] = log_ratio / np.log(2)
    for place, measure in enumerate(measures):
        for label, side in zip(LABELS, (chosen, rejected), strict=True):
            result[f"{label}_{measure}"] = side[:, place].astype(np.int64)
    return copy_provenance(table, result)
