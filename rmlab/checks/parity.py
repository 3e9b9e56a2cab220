"""`rmlab.parity`: two runs that should give the same scores, how far apart they are,
and in what they differ.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab import scoring, tables
from rmlab.findings import Finding, check_rate, findings_table, grade
from rmlab.inference.planning import common_length
from rmlab.scorers.base import Ids, PlainScorer, Scorer, Text
from rmlab.scorers.score_checks import label_margins
from rmlab.tables import KEY, DataError

EXACT = 1e-3
"""Standard deviations within which two runs of one model on the same tokens agree in
float32, on any server.
"""

ScoresOrModel = pd.DataFrame | str | Path | PlainScorer | Scorer
"""A scores table of one model, or what `rmlab.score` takes as a model."""

_MIN_TEXTS = 4
# Texts whose tokens are compared: those with the largest errors.
_N_COMPARED = 24
_N_SHOWN = 5

# What decides a score beside tokens and weights, as the provenance has it.
_SETTINGS = (
    "template_hash",
    "bos",
    "eos",
    "convention",
    "truncate",
    "max_length",
    "pooling",
    "dtype",
    "attention",
)


class _Run(NamedTuple):
    """A scores table, what its provenance says, and what scored it, if it is here."""

    scores: pd.DataFrame
    provenance: Mapping[str, object]
    scorer: object


def parity(
    a: "ScoresOrModel", b: "ScoresOrModel", responses: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Compare two runs of what should be one reward model, and say in what they differ.

    Parameters
    ----------
    a, b : DataFrame or scorer
        The run that is thought to be right, and the other one: a scores table of one
        model, or a scorer, which scores `responses` first.
    responses : DataFrame, optional
        The texts; needed for a scorer.

    Returns
    -------
    DataFrame
        One row per check, with columns check, status (pass < warn < fail), value,
        found, remedy: `texts` (how many both have), `error` (the largest, in standard
        deviations of `a`), `line` (slope of b on a), `flips` (comparisons of a chosen
        with a rejected answer that come out otherwise), `ids` (texts whose tokens
        differ, of those with the largest errors, and the first place where they do; of
        two scorers that write tokens on this machine), `settings` (template, special
        tokens, truncation, pooling, number type and attention, as the provenance has
        them, and an activation, as the scores show it) and, where scores differ and
        neither of the two explains it, `excluded`: what is the same.

    Raises
    ------
    DataError
        If a table has several models or missing scores, or if fewer than four texts are
        in both.

    Examples
    --------
    >>> import rmlab
    >>> scores = rmlab.score(rmlab.load("mini"), "longest", progress=False)
    >>> twice = scores.assign(score=2 * scores["score"])
    >>> rmlab.parity(scores, twice)[["check", "status"]]
          check status
    0     texts   pass
    1     error   fail
    2      line   warn
    3     flips   pass
    4  settings   pass
    5  excluded   fail
    """
    left = _score_run("a", a, responses)
    right = _score_run("b", b, responses)
    items = _join(left, right)
    n_left = len(left.scores) - len(items)
    n_right = len(right.scores) - len(items)
    detail = f"{len(items)} texts in both; {n_left} only in a, {n_right} only in b"
    remedy = "score the same responses in both"
    status = grade(n_left == n_right == 0, True)
    findings = {
        "texts": Finding(status, detail, remedy, len(items)),
        **_check_scores(items),
        "flips": _check_flips(items),
    }
    explanations = {"settings": _check_settings(items, left, right)}
    if responses is not None:
        ids = _check_ids(items, responses, left, right)
        if ids is not None:
            explanations = {"ids": ids, **explanations}
    findings |= explanations

    statuses = {finding.status for finding in explanations.values()}
    if findings["error"].status != "pass" and statuses == {"pass"}:
        same = "; ".join(finding.detail for finding in explanations.values())
        remedy = "compare weights, number types, and the versions of both programs"
        findings["excluded"] = Finding("fail", same, remedy)
    return findings_table(findings.items())


def _score_run(name: str, run: ScoresOrModel, responses: pd.DataFrame | None) -> _Run:
    """The run called `name`; a scorer scores the responses first."""
    if isinstance(run, pd.DataFrame):
        scores = run
    elif responses is None:
        remedy = "pass the responses, or two scores tables"
        raise DataError("responses: a scorer needs texts to score", remedy)
    else:
        scores = scoring.score(responses, run)
    models = sorted(tables.check_scores(scores)["model"].unique())
    if len(models) != 1:
        problem = f"{name}: has the models {models}"
        raise DataError(problem, "give the rows of one model to compare")
    provenance = scores.attrs.get("provenance", {}).get(models[0], {})
    return _Run(scores[[*KEY, "score"]], provenance, run)


def _join(left: _Run, right: _Run) -> pd.DataFrame:
    """The texts that both runs have: key, score_a, score_b, and error, (b - a) in
    standard deviations of a.
    """
    items = left.scores.merge(right.scores, on=KEY, suffixes=("_a", "_b"))
    if len(items) < _MIN_TEXTS:
        problem = f"a and b: {len(items)} texts in common"
        remedy = f"score the same responses in both, at least {_MIN_TEXTS}"
        raise DataError(problem, remedy)
    scores = items[["score_a", "score_b"]].astype(np.float64)
    difference = scores["score_b"] - scores["score_a"]
    return items.assign(error=difference / scores["score_a"].std(ddof=0))


def _is_constant(scores: pd.Series) -> bool:
    """Whether every text has the same score, up to rounding."""
    largest = float(scores.abs().max())
    return bool(np.ptp(scores) <= 1e-9 * max(largest, 1e-12))


def _check_scores(items: pd.DataFrame) -> dict[str, Finding]:
    """The rows error and line."""
    first = items["score_a"]
    second = items["score_b"]
    if _is_constant(first) or _is_constant(second):
        run = "a" if _is_constant(first) else "b"
        detail = f"{run} gives every text the same score: errors have no scale"
        remedy = "ask for raw scores: a softmax over one label gives 1 for everything"
        finding = Finding("fail", detail, remedy)
        return {"error": finding, "line": finding}

    size = items["error"].abs()
    largest = size.max()
    tail = f"95 % below {size.quantile(0.95):.2g}, largest {largest:.2g}"
    detail = f"median {size.median():.2g}, {tail} standard deviations of a"
    status = grade(largest <= EXACT, largest <= 0.1)
    error = Finding(status, detail, "see the rows below", largest)

    slope, offset = np.polyfit(first, second, 1)
    is_same = abs(slope - 1) <= 0.01 and abs(offset) <= 0.01 * first.std()
    remedy = "margins and thresholds do not carry over"
    detail = f"slope {slope:.4g}, offset {offset:.3g}"
    return {
        "error": error,
        "line": Finding(grade(is_same, True), detail, remedy, slope),
    }


def _check_flips(items: pd.DataFrame) -> Finding:
    before = label_margins(items, items["score_a"])
    after = label_margins(items, items["score_b"])
    n = len(before)
    if not n:
        detail = "no prompt has both labels, so there are no comparisons"
        return Finding("pass", detail, value=0)
    n_ties = int(((after == 0) & (before != 0)).sum())
    n_flips = int((np.sign(before) != np.sign(after)).sum())
    share = f"comparisons ({n_flips / n:.1%}) come out otherwise"
    finding = check_rate(
        n_flips, n, f"{share}; {n_ties} of them become ties", warn=0, fail=0.01
    )
    return finding._replace(remedy="do not compare accuracies of the two runs")


def _check_ids(
    items: pd.DataFrame, responses: pd.DataFrame, left: _Run, right: _Run
) -> Finding | None:
    """The tokens of the texts with the largest errors; None where a run's are not
    written on this machine.
    """
    worst_first = items.sort_values("error", key=np.abs, ascending=False)
    worst = worst_first.head(_N_COMPARED).sort_index()
    rows = worst.merge(tables.check_responses(responses), on=KEY)
    columns = zip(rows["prompt"], rows["response"], strict=True)
    texts = [Text(prompt, (response,)) for prompt, response in columns]
    left_ids = _token_ids(left, texts)
    right_ids = _token_ids(right, texts)
    if left_ids is None or right_ids is None:
        return None

    different = []
    for row, (ids, other_ids) in enumerate(zip(left_ids, right_ids, strict=True)):
        if not np.array_equal(ids, other_ids):
            different.append(row)
    if not different:
        return Finding("pass", f"token ids of {len(texts)} texts are equal", value=0)
    row = different[0]
    key = " ".join(map(str, rows.loc[row, KEY[1:]]))
    ids = left_ids[row]
    other_ids = right_ids[row]
    place = common_length(ids, other_ids)
    detail = (
        f"{len(different)} of {len(texts)} texts have other ids; first, {key}: from "
        f"token {place} of {len(ids)} and {len(other_ids)}, "
        f"{ids[place:][:_N_SHOWN].tolist()} and {other_ids[place:][:_N_SHOWN].tolist()}"
    )
    remedy = "see the row settings; write texts with the same template and tokenizer"
    return Finding("fail", detail, remedy, len(different))


def _token_ids(run: _Run, texts: list[Text]) -> list[Ids] | None:
    if not isinstance(run.scorer, Scorer):
        return None
    return run.scorer.token_ids(texts)


def _check_settings(items: pd.DataFrame, left: _Run, right: _Run) -> Finding:
    """What decides a score beside tokens and weights, where both runs say it."""
    same = []
    different = []
    unknown = []
    for name in _SETTINGS:
        if name not in left.provenance or name not in right.provenance:
            unknown.append(name)
        elif left.provenance[name] == right.provenance[name]:
            same.append(name)
        else:
            values = f"{left.provenance[name]!r} and {right.provenance[name]!r}"
            different.append(f"{name} {values}")

    is_share = items[["score_a", "score_b"]].apply(lambda scores: scores.between(0, 1))
    squashed = is_share.all().to_numpy()
    if squashed[0] != squashed[1]:
        run = "a" if squashed[0] else "b"
        different.append(f"activation (all scores of {run} lie between 0 and 1)")
    else:
        same.append("activation")

    parts = []
    if different:
        parts.append(f"other {', '.join(different)}")
    parts.append(f"the same {', '.join(same)}")
    if unknown:
        parts.append(f"not known of both: {', '.join(unknown)}")
    remedy = "set these alike in both runs"
    return Finding(grade(not different), "; ".join(parts), remedy, len(different))
