"""`rmlab.parity`: two runs that should give the same scores, how far apart they are,
and why.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rmlab import scorers, scoring, tables
from rmlab.checks.causes import (
    EXACT,
    HALF,
    RAW_SCORES,
    fit_line,
    is_constant,
    numeric_causes,
)
from rmlab.checks.misreadings import misreading_cause, reads_known_positions
from rmlab.checks.sampled_scores import label_margins
from rmlab.findings import Finding, check_rate, findings_table, grade
from rmlab.scorers import Classifier
from rmlab.scorers.base import Floats, PlainScorer, Scorer
from rmlab.servers import Remote
from rmlab.tables import KEY, DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["EXACT", "HALF", "parity", "parity_items"]

ScoresOrModel = pd.DataFrame | str | Path | PlainScorer | Scorer
"""A scores table of one model, or what `rmlab.score` takes as a model."""

_MIN_TEXTS = 4
# Texts that each misreading is tried on: half of them those with the largest errors.
_N_TRIED = 16


def parity(
    a: ScoresOrModel,
    b: ScoresOrModel,
    responses: pd.DataFrame | None = None,
    *,
    model: str | Path | Classifier | None = None,
    tokenizers: "Sequence[PreTrainedTokenizerBase]" = (),
) -> pd.DataFrame:
    """Compare two runs of what should be one reward model, and look for the cause of a
    difference.

    Parameters
    ----------
    a, b : DataFrame or scorer
        The run that is thought to be right, and the other one: a scores table of one
        model, or a scorer, which scores `responses` first.
    responses : DataFrame, optional
        The texts. With them and the reward model, misreadings of the texts are tried as
        causes.
    model : str, Path or Classifier, optional
        The reward model on this machine; not needed where `a` or `b` is one.
    tokenizers : sequence of transformers tokenizers
        Further tokenizers that may have been used.

    Returns
    -------
    DataFrame
        One row per check, with columns check, status (pass < warn < fail), value,
        found, remedy: `texts` (how many both have), `error` (the largest, in standard
        deviations of `a`), `line` (slope of b on a), `flips` (comparisons of a chosen
        with a rejected answer that come out otherwise), `near_ties` (comparisons nearer
        to a tie than the errors are large) and `cause` (what it leaves unexplained, in
        standard deviations). `found` of `cause` begins with none, unknown, a cause that
        the numbers show (sigmoid, softmax, half precision, scale, order), or one that
        was reproduced by reading the texts in that way (double bos, missing bos, eos,
        padding, truncation, template, tokenizer).

    Raises
    ------
    DataError
        If a table has several models or missing scores, or if fewer than four texts are
        in both.
    """
    left = _score_run(a, responses)
    right = _score_run(b, responses)
    items = parity_items(left, right)
    local = _find_local(model, a, b)
    cause = _find_cause(items, responses, local, tokenizers)
    findings = {
        "texts": _check_texts(items, left, right),
        **_check_scores(items),
        **_check_comparisons(items),
        "cause": cause,
    }
    return findings_table(findings.items())


def parity_items(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """List the texts that two scores tables have in common.

    Parameters
    ----------
    a, b : DataFrame
        Scores of one model.

    Returns
    -------
    DataFrame
        One row per text: its key, score_a, score_b, and error, (b - a) in standard
        deviations of a; missing where a gives every text the same score.

    Raises
    ------
    DataError
        If a table has several models or missing scores, or if fewer than four texts are
        in both.
    """
    left = _one_model("a", a)
    right = _one_model("b", b)
    items = left.merge(right, on=KEY, suffixes=("_a", "_b"))
    if len(items) < _MIN_TEXTS:
        problem = f"a and b: {len(items)} texts in common"
        remedy = f"score the same responses in both, at least {_MIN_TEXTS}"
        raise DataError(problem, remedy)

    first, second = _scores(items)
    scale = np.nan if is_constant(first) else first.std()
    return items.assign(error=(second - first) / scale)


def _one_model(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """Keys and scores of a table of one model."""
    scores = tables.check_scores(table)
    models = sorted(scores["model"].unique())
    if len(models) != 1:
        problem = f"{name}: has the models {models}"
        raise DataError(problem, "give the rows of one model to compare")
    return scores[[*KEY, "score"]]


def _score_run(run: ScoresOrModel, responses: pd.DataFrame | None) -> pd.DataFrame:
    if isinstance(run, pd.DataFrame):
        return run
    if responses is None:
        remedy = "pass the responses, or two scores tables"
        raise DataError("responses: a scorer needs texts to score", remedy)
    if isinstance(run, Remote):
        # A server that has changed since it was accepted is compared all the same:
        # here its differences are looked for.
        run = replace(run, known=None)
    return scoring.score(responses, run)


def _find_local(
    model: str | Path | Classifier | None, a: ScoresOrModel, b: ScoresOrModel
) -> Classifier | None:
    """The reward model on this machine; None where nobody gave one."""
    if isinstance(model, str | Path):
        return scorers.classifier(model, dtype="float32")
    for candidate in (model, a, b):
        if isinstance(candidate, Classifier):
            return candidate
    return None


def _scores(items: pd.DataFrame) -> tuple[Floats, Floats]:
    first = items["score_a"].to_numpy(np.float64)
    second = items["score_b"].to_numpy(np.float64)
    return first, second


def _check_texts(
    items: pd.DataFrame, left: pd.DataFrame, right: pd.DataFrame
) -> Finding:
    n = len(items)
    others = f"{len(left) - n} only in a, {len(right) - n} only in b"
    is_same = len(left) == len(right) == n
    remedy = "score the same responses in both"
    return Finding(grade(is_same, True), f"{n} texts in both; {others}", remedy, n)


def _check_scores(items: pd.DataFrame) -> dict[str, Finding]:
    """The rows error and line."""
    first, second = _scores(items)
    if is_constant(first) or is_constant(second):
        run = "a" if is_constant(first) else "b"
        detail = f"{run} gives every text the same score: errors have no scale"
        finding = Finding("fail", detail, "see the row cause")
        return {"error": finding, "line": finding}
    return {"error": _check_error(items), "line": _check_line(first, second)}


def _check_error(items: pd.DataFrame) -> Finding:
    size = items["error"].abs()
    largest = size.max()
    middle = f"mean {size.mean():.2g}, median {size.median():.2g}"
    tail = f"95 % below {size.quantile(0.95):.2g}, largest {largest:.2g}"
    detail = f"{middle}, {tail} standard deviations of a"
    status = grade(largest <= EXACT, largest <= 0.1)
    return Finding(status, detail, "see the rows flips and cause", largest)


def _check_line(first: Floats, second: Floats) -> Finding:
    slope, offset, residual = fit_line(first, second)
    line = f"slope {slope:.4g}, offset {offset:.3g}"
    points = f"points lie up to {residual:.2g} standard deviations off the line"
    is_same = abs(slope - 1) <= 0.01 and abs(offset) <= 0.01 * first.std()
    remedy = "margins and thresholds do not carry over"
    return Finding(grade(is_same, True), f"{line}; {points}", remedy, slope)


def _check_comparisons(items: pd.DataFrame) -> dict[str, Finding]:
    """The rows flips and near_ties."""
    before = label_margins(items, items["score_a"])
    after = label_margins(items, items["score_b"])
    n = len(before)
    if not n:
        detail = "no prompt has both labels, so there are no comparisons"
        finding = Finding("pass", detail, value=0)
        return {"flips": finding, "near_ties": finding}

    n_ties = int(((after == 0) & (before != 0)).sum())
    n_flips = int((np.sign(before) != np.sign(after)).sum())
    share = f"comparisons ({n_flips / n:.1%}) come out otherwise"
    flips = check_rate(
        n_flips, n, f"{share}; {n_ties} of them become ties", warn=0, fail=0.01
    )

    high_change = float(np.quantile(np.abs(after - before), 0.95))
    n_near = int((np.abs(before) < high_change).sum())
    share = f"comparisons ({n_near / n:.1%}) have a margin below {high_change:.2g}"
    near_ties = check_rate(
        n_near, n, f"{share}, which 95 % of the changes are", warn=0.05, fail=np.inf
    )
    remedy = "do not compare accuracies of the two runs"
    return {"flips": flips._replace(remedy=remedy), "near_ties": near_ties}


def _find_cause(
    items: pd.DataFrame,
    responses: pd.DataFrame | None,
    model: Classifier | None,
    tokenizers: "Sequence[PreTrainedTokenizerBase]",
) -> Finding:
    """The row cause: the numbers alone first, then misreadings of the texts."""
    first, second = _scores(items)
    error = float(items["error"].abs().max())
    if is_constant(first) and is_constant(second):
        detail = "unknown: both runs give every text the same score"
        return Finding("fail", detail, RAW_SCORES)
    if error <= EXACT:
        return Finding("pass", "none: the runs agree", value=error)

    causes = [*numeric_causes(first, second), *numeric_causes(second, first)]
    if causes:
        return min(causes, key=lambda cause: cause.value)
    if model is None or responses is None:
        arguments = "pass responses= and the reward model (model=folder)"
        remedy = f"{arguments}: the texts are then read in other ways"
        return Finding("fail", "unknown: the numbers alone do not show it", remedy)
    if reads_known_positions(model):
        rows = _sample_rows(items, responses)
        cause = misreading_cause(model, rows, tokenizers)
        if cause is not None:
            return cause

    detail = "unknown: no known way of reading the texts explains it"
    if error <= 0.2:
        detail += "; half precision of a whole model is this large"
        return Finding("warn", detail, "run both in float32")
    return Finding("fail", detail, "compare the weights, and token ids")


def _sample_rows(items: pd.DataFrame, responses: pd.DataFrame) -> pd.DataFrame:
    """The texts with the largest errors first, then some with small ones: a cause has
    to explain both.
    """
    worst_first = items.sort_values("error", key=np.abs, ascending=False)
    half = _N_TRIED // 2
    large = worst_first.iloc[:half]
    small = worst_first.iloc[half:]
    step = max(1, len(small) // half)
    sample = pd.concat([large, small.iloc[::step]])

    texts = tables.check_responses(responses)[[*KEY, "prompt", "response"]]
    return sample.merge(texts, on=KEY)
