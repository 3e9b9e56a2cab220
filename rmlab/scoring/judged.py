"""Tables of judges: the texts that a judge is shown together, and its verdicts as
columns.
"""

import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.scorers.base import Ints, Judge, Judged, Provenance, Text
from rmlab.scoring.cluster import Ray
from rmlab.scoring.run import RunOptions, count_texts, open_bar
from rmlab.scoring.streaming import describe_scorer
from rmlab.scoring.texts import Texts, unique_texts
from rmlab.scoring.workers import judge_block, map_blocks
from rmlab.tables import PROMPT, DataError, group_codes


class Assignment(NamedTuple):
    """The rows of a table that go to one judge, as texts of one, two or more answers.

    `position`: of each row's answer within its text.
    """

    judge: Judge
    rows: Ints
    texts: Texts
    position: Ints


def list_items(judge: Judge, responses: pd.DataFrame) -> list[Assignment]:
    """The single answers or the lists that the judge is shown; subsets of another judge
    go to that one.
    """
    subset = responses["subset"].to_numpy()
    rows_of = [(judge, ~np.isin(subset, list(judge.apart)))]
    for name, subset_judge in judge.apart.items():
        rows_of.append((subset_judge, subset == name))

    assignments = []
    for row_judge, is_shown in rows_of:
        rows = np.flatnonzero(is_shown)
        if len(rows):
            part = responses.iloc[rows]
            assignments.append(_assign_rows(row_judge, part, rows))
    return assignments


def _assign_rows(judge: Judge, responses: pd.DataFrame, rows: Ints) -> Assignment:
    prompt_number, first_rows = group_codes(responses, PROMPT)
    if judge.takes == "answer":
        columns = zip(responses["prompt"], responses["response"], strict=True)
        answers = [Text(prompt, (response,)) for prompt, response in columns]
        texts = unique_texts(responses[tables.KEY], prompt_number, answers)
        return Assignment(judge, rows, texts, np.zeros(len(rows), np.intp))

    answers_of = responses["response"].groupby(prompt_number)
    prompts = responses["prompt"].iloc[first_rows]
    lists = [
        Text(prompt, tuple(answers))
        for prompt, (_, answers) in zip(prompts, answers_of, strict=True)
    ]
    keys = responses[PROMPT].reset_index(drop=True)
    texts = Texts(lists, prompt_number, keys)
    return Assignment(judge, rows, texts, np.asarray(answers_of.cumcount(), np.intp))


def judge_pairs(
    judge: Judge, texts: Texts, options: RunOptions
) -> tuple[pd.DataFrame, Provenance]:
    """Columns of the pairs, one value per table row: margin, outcome, verdict and the
    judge's own.
    """
    rows = np.arange(len(texts.rows))
    everything = Assignment(judge, rows, texts, np.zeros_like(rows))
    (judged,), provenance = _judge_all(judge, [everything], options)

    decided = np.array([values[0] for values in judged.values], np.float64)
    columns = pd.DataFrame(
        {
            "margin": np.nan,
            **judged.columns,
            "verdict": pd.Series(judged.verdict, dtype="str"),
            "outcome": tables.outcome(decided),
        },
        index=range(len(decided)),
    )
    return columns.iloc[texts.rows].reset_index(drop=True), provenance


def judge_scores(
    judge: Judge, responses: pd.DataFrame, options: RunOptions
) -> tuple[pd.DataFrame, Provenance]:
    """Score and verdict of each response, and the provenance."""
    score = np.full(len(responses), np.nan)
    verdict = np.full(len(responses), "", object)

    assignments = list_items(judge, responses)
    results, provenance = _judge_all(judge, assignments, options)
    for part, judged in zip(assignments, results, strict=True):
        items = zip(part.rows, part.texts.rows, part.position, strict=True)
        for row, item, position in items:
            score[row] = judged.values[item][position]
            verdict[row] = judged.verdict[item]
    columns = {"score": score, "verdict": pd.Series(verdict, dtype="str")}
    return pd.DataFrame(columns), provenance


def _judge_all(
    judge: Judge, assignments: Sequence[Assignment], options: RunOptions
) -> tuple[list[Judged], Provenance]:
    """The verdicts on each part of a table, and the provenance with the counts of all.

    Raises DataError where items have no number and nobody allowed that, after
    everything was asked and stored.
    """
    start = time.perf_counter()
    results = []
    verdicts: Counter[str] = Counter()
    n_missing = 0
    for part in assignments:
        items = part.texts.distinct
        if options.engine is not None and part.judge.travels:
            judged = _judge_on_cluster(part.judge, items, options, options.engine)
        else:
            judged = part.judge.judge(
                items, store=options.store, progress=options.progress
            )
        is_missing = [bool(np.isnan(values).any()) for values in judged.values]
        missing = np.flatnonzero(is_missing)
        if len(missing) and not options.allow_missing:
            raise _no_verdicts(judge, judged, missing, part.texts)
        results.append(judged)
        verdicts.update(judged.verdict)
        n_missing += len(missing)

    n_items = verdicts.total()
    provenance = describe_scorer(judge)
    provenance |= count_texts(start, n_items, n_items - n_missing, n_missing)
    provenance |= _add_counts(results)
    provenance["verdicts"] = dict(verdicts)
    return results, provenance


def _no_verdicts(
    judge: Judge, judged: Judged, missing: Ints, texts: Texts
) -> DataError:
    verdicts = np.array(judged.verdict)[missing]
    n_failed = np.count_nonzero(verdicts == "failed")
    reason = ""
    failures = judged.about.get("failures")
    if isinstance(failures, dict) and failures:
        reason = f" ({max(failures, key=failures.__getitem__)})"

    outcome = (
        f"{n_failed} got no reply{reason} and {len(missing) - n_failed} no verdict"
    )
    place = f"of {len(judged.verdict)} {outcome}, first {texts.describe(missing[0])}"
    remedy = "run again with the same store=, or pass allow_missing=True"
    return DataError(f"judge {judge.name!r}: {place}", remedy)


def _judge_on_cluster(
    judge: Judge, items: Sequence[Text], options: RunOptions, engine: Ray
) -> Judged:
    """The verdicts of workers, each of which judges blocks of the items."""
    title = f"judge {judge.name!r}"
    work = partial(judge_block, judge, options.store)
    judged_from = {}
    with open_bar(judge.name, "item", len(items), 0, options.progress) as bar:
        for start, judged in map_blocks(title, engine, work, items):
            judged_from[start] = judged
            bar.update(len(judged.verdict))
    in_order = dict(sorted(judged_from.items()))
    return _join_blocks(list(in_order.values()))


def _join_blocks(blocks: Sequence[Judged]) -> Judged:
    """The verdicts on blocks of items as one."""
    values = []
    verdict = []
    for judged in blocks:
        values += judged.values
        verdict += judged.verdict
    columns = {}
    for name in blocks[0].columns:
        columns[name] = np.concatenate([judged.columns[name] for judged in blocks])
    return Judged(values, verdict, columns, _add_counts(blocks))


def _add_counts(results: Sequence[Judged]) -> Provenance:
    """Counts, and counts of reasons, summed over the results."""
    total: Provenance = {}
    for judged in results:
        for name, value in judged.about.items():
            if isinstance(value, dict):
                counts = Counter(total.get(name, {}))  # type: ignore[call-overload]
                total[name] = dict(counts + Counter(value))
            else:
                total[name] = total.get(name, 0) + value  # type: ignore[operator]
    return total
