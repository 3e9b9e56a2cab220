"""`rmlab.parity`: two runs that should give the same scores, how far apart they are, and why."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import metrics, scoring, tables
from rmlab.checks import causes
from rmlab.checks.causes import EXACT, half_precision, is_constant, numeric_causes
from rmlab.checks.findings import Finding, check_rate, findings_table
from rmlab.scorers import Classifier
from rmlab.scorers.base import PlainScorer, Scorer
from rmlab.servers import Remote
from rmlab.tables import KEY, DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["parity", "parity_items"]

Floats = NDArray[np.float64]
Run: TypeAlias = pd.DataFrame | str | Path | PlainScorer | Scorer
"""A scores table of one model, or what `rmlab.score` takes as a model."""

_MIN_TEXTS = 4
_TRIED = 16  # texts that each cause is tried on: half of them those with the largest errors


def parity(
    a: Run,
    b: Run,
    responses: pd.DataFrame | None = None,
    *,
    model: str | Path | Classifier | None = None,
    tokenizers: "Sequence[PreTrainedTokenizerBase]" = (),
) -> pd.DataFrame:
    """Compare two runs of what should be one reward model, and look for the cause of a difference.

    Parameters
    ----------
    a, b : DataFrame or scorer
        The run that is thought to be right, and the other one: a scores table of one model, or a scorer, which scores
        `responses` first.
    responses : DataFrame, optional
        The texts. With them and the reward model, misreadings of the texts are tried as causes.
    model : str, Path or Classifier, optional
        The reward model on this machine; not needed where `a` or `b` is one.
    tokenizers : sequence of transformers tokenizers
        Further tokenizers that may have been used.

    Returns
    -------
    DataFrame
        One row per check, with columns check, status (pass < warn < fail), value, found, remedy: `texts` (how many both
        have), `error` (the largest, in standard deviations of `a`), `line` (slope of b on a), `flips` (comparisons of a
        chosen with a rejected answer that come out otherwise), `near_ties` (comparisons nearer to a tie than the errors
        are large) and `cause` (what it leaves unexplained, in standard deviations). `found` of `cause` begins with
        none, unknown, a cause that the numbers show (sigmoid, softmax, half precision, scale, order), or one that was
        reproduced by reading the texts in that way (double bos, missing bos, eos, truncation, template, tokenizer).

    Raises
    ------
    DataError
        If a table has several models or missing scores, or if fewer than four texts are in both.
    """
    left, right = (_score_run(run, responses) for run in (a, b))
    items = parity_items(left, right)
    if isinstance(model, str | Path):
        from rmlab.scorers import classifier

        model = classifier(model, dtype="float32")
    local = next((run for run in (model, a, b) if isinstance(run, Classifier)), None)
    findings = [_check_texts(items, left, right), *_check_scores(items), *_check_comparisons(items)]
    return findings_table([*findings, _check_cause(items, responses, local, tokenizers)])


def parity_items(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """List the texts that two scores tables have in common.

    Parameters
    ----------
    a, b : DataFrame
        Scores of one model.

    Returns
    -------
    DataFrame
        One row per text: its key, score_a, score_b, and error, (b - a) in standard deviations of a; missing where a
        gives every text the same score.

    Raises
    ------
    DataError
        If a table has several models or missing scores, or if fewer than four texts are in both.
    """
    for name, table in zip("ab", (a, b), strict=True):
        models = tables.check_scores(table)["model"].unique()
        if len(models) != 1:
            raise DataError(f"{name}: has the models {sorted(models)}; give the rows of one model to compare")
    columns = [*KEY, "score"]
    items = tables.check_scores(a)[columns].merge(tables.check_scores(b)[columns], on=KEY, suffixes=("_a", "_b"))
    if len(items) < _MIN_TEXTS:
        raise DataError(f"a and b: {len(items)} texts in common; score the same responses in both, at least 4")
    first, second = _scores(items)
    return items.assign(error=(second - first) / (np.nan if is_constant(first) else first.std()))


def _score_run(run: Run, responses: pd.DataFrame | None) -> pd.DataFrame:
    if isinstance(run, pd.DataFrame):
        return run
    if responses is None:
        raise DataError("responses: a scorer needs texts to score; pass the responses, or two scores tables")
    # A server that has changed since it was accepted is compared all the same: here its differences are looked for.
    return scoring.score(responses, replace(run, known=None) if isinstance(run, Remote) else run)


def _scores(items: pd.DataFrame) -> tuple[Floats, Floats]:
    return items["score_a"].to_numpy(np.float64), items["score_b"].to_numpy(np.float64)


def _check_texts(items: pd.DataFrame, a: pd.DataFrame, b: pd.DataFrame) -> Finding:
    n = len(items)
    if len(a) == len(b) == n:
        return Finding("texts", "pass", f"{n} texts, the same in both", value=n)
    detail = f"{n} texts in both; {len(a) - n} only in a, {len(b) - n} only in b"
    return Finding("texts", "warn", detail, "score the same responses in both", n)


def _check_scores(items: pd.DataFrame) -> list[Finding]:
    """The rows error and line."""
    first, second = _scores(items)
    if is_constant(first) or is_constant(second):
        name = "a" if is_constant(first) else "b"
        detail = f"{name} gives every text the same score, so that errors have no scale"
        return [Finding(check, "fail", detail, "see the row cause") for check in ("error", "line")]
    size = items["error"].abs()
    mean, median, high, largest = size.mean(), size.median(), size.quantile(0.95), size.max()
    detail = f"mean {mean:.2g}, median {median:.2g}, 95 % below {high:.2g}, largest {largest:.2g}"
    status = "pass" if largest <= EXACT else "warn" if largest <= 0.1 else "fail"
    remedy = "" if status == "pass" else "see the rows flips and cause"
    error = Finding("error", status, f"{detail} standard deviations of a", remedy, largest)
    slope, offset, residual = causes.fit_line(first, second)
    detail = f"slope {slope:.4g}, offset {offset:.3g}; points lie up to {residual:.2g} standard deviations off the line"
    if abs(slope - 1) <= 0.01 and abs(offset) <= 0.01 * first.std():
        return [error, Finding("line", "pass", detail, value=slope)]
    return [error, Finding("line", "warn", detail, "margins and thresholds do not carry over", slope)]


def _check_comparisons(items: pd.DataFrame) -> list[Finding]:
    """The rows flips and near_ties."""
    comparable = items[items.groupby(tables.PROMPT)["label"].transform("nunique") == 2]
    if comparable.empty:
        detail = "no prompt has both labels, so there are no comparisons"
        return [Finding(check, "pass", detail, value=0) for check in ("flips", "near_ties")]
    before, after = (
        metrics.pairs(comparable[KEY].assign(model="x", score=scores))["margin"].to_numpy(np.float64)
        for scores in _scores(comparable)
    )
    n, high_change = len(before), float(np.quantile(np.abs(after - before), 0.95))
    n_ties = int(((after == 0) & (before != 0)).sum())
    n_flips, n_near = int((np.sign(before) != np.sign(after)).sum()), int((np.abs(before) < high_change).sum())
    flips = f"comparisons ({n_flips / n:.1%}) come out otherwise; {n_ties} of them become ties"
    near = f"comparisons ({n_near / n:.1%}) have a margin below {high_change:.2g}, which 95 % of the changes are"
    remedy = "do not compare accuracies of the two runs"
    return [
        check_rate("flips", n_flips, n, flips, remedy, warn=0, fail=0.01),
        check_rate("near_ties", n_near, n, near, "", warn=0.05, fail=np.inf),
    ]


def _check_cause(
    items: pd.DataFrame,
    responses: pd.DataFrame | None,
    model: Classifier | None,
    tokenizers: "Sequence[PreTrainedTokenizerBase]",
) -> Finding:
    first, second = _scores(items)
    error = float(items["error"].abs().max())
    if is_constant(first) and is_constant(second):
        detail = "unknown: both runs give every text the same score"
        return Finding("cause", "fail", detail, causes.REMEDIES["softmax"])
    if error <= EXACT:
        return Finding("cause", "pass", "none: the runs agree", value=error)
    candidates = [*numeric_causes(first, second), *numeric_causes(second, first)]
    if candidates:
        return min(candidates, key=lambda cause: cause.value)
    if model is None or responses is None:
        remedy = "pass responses= and the reward model (model=folder): the texts are then read in other ways"
        return Finding("cause", "fail", "unknown: the numbers alone do not show it", remedy)
    if set(model.looks) <= {"last", "first", "mean"}:  # positions that the number of tokens tells
        worst_first = items.reindex(items["error"].abs().sort_values(ascending=False).index)
        # The largest errors, and some texts with small ones: a cause has to explain both.
        large, small = worst_first.iloc[: _TRIED // 2], worst_first.iloc[_TRIED // 2 :]
        sample = pd.concat([large, small.iloc[:: max(1, len(small) // (_TRIED // 2))]])
        rows = sample.merge(tables.check_responses(responses)[[*KEY, "prompt", "response"]], on=KEY)
        if (cause := causes.misreading_cause(model, rows, tokenizers)) is not None:
            return cause
    kinds = sorted({kind for kind in (half_precision(first), half_precision(second)) if kind})
    detail = "unknown: no known way of reading the texts explains it"
    detail += f"; the scores are {' and '.join(kinds)} numbers" if kinds else ""
    if error <= 0.2:
        return Finding(
            "cause", "warn", f"{detail}; half precision of a whole model is this large", "run both in float32"
        )
    return Finding("cause", "fail", detail, "compare the weights, and the token ids of one text")
