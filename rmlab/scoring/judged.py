"""Tables of judges: what they are shown together, and what becomes of answers that
cannot be read.
"""

import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.scorers.base import Floats, Ints, Judge, Judged, Provenance, Text
from rmlab.scoring.cluster import judge_block, map_blocks
from rmlab.scoring.run import RunOptions, count_texts, describe_scorer, open_bar
from rmlab.scoring.texts import Texts, unique_texts
from rmlab.tables import PROMPT, DataError, group_codes


class Items(NamedTuple):
    """What a judge is shown: some rows of a table, as texts of one, two or more
    answers.

    `place`: of each row's answer within its text.
    """

    judge: Judge
    rows: Ints
    texts: Texts
    place: Ints


def list_items(judge: Judge, responses: pd.DataFrame) -> list[Items]:
    """What the judge is shown of single answers or of lists; subsets of another judge
    go to that one.
    """
    subset = responses["subset"].to_numpy()
    parts = [(judge, np.flatnonzero(~np.isin(subset, list(judge.apart))))]
    parts += [
        (subset_judge, np.flatnonzero(subset == name))
        for name, subset_judge in judge.apart.items()
    ]
    return [
        _show_rows(part_judge, responses.iloc[rows], rows)
        for part_judge, rows in parts
        if len(rows)
    ]


def _show_rows(judge: Judge, part: pd.DataFrame, rows: Ints) -> Items:
    if judge.takes == "answer":
        texts = unique_texts(
            part[tables.KEY], part["prompt"].tolist(), part["response"].tolist()
        )
        return Items(judge, rows, texts, np.zeros(len(rows), np.intp))
    item, first_rows = group_codes(part, PROMPT)
    groups = part["response"].groupby(item)
    prompts = part["prompt"].iloc[first_rows]
    lists = [
        Text(prompt, tuple(answers))
        for prompt, (_, answers) in zip(prompts, groups, strict=True)
    ]
    texts = Texts(lists, item, part[PROMPT].reset_index(drop=True))
    return Items(judge, rows, texts, np.asarray(groups.cumcount(), np.intp))


def judge_pairs(
    judge: Judge, texts: Texts, options: RunOptions
) -> tuple[pd.DataFrame, Provenance]:
    """Columns of the pairs, one value per table row: margin, outcome, verdict and the
    judge's own.
    """
    everything = np.arange(len(texts.rows))
    (judged,), provenance = _judge_items(
        judge, [Items(judge, everything, texts, np.zeros_like(everything))], options
    )
    decided = np.array([values[0] for values in judged.values], np.float64)
    columns = pd.DataFrame(
        {"margin": np.nan} | judged.columns, index=range(len(decided))
    )
    columns = columns.assign(
        verdict=pd.Series(judged.verdict, dtype="str"), outcome=tables.outcome(decided)
    )
    return columns.iloc[texts.rows].reset_index(drop=True), provenance


def judge_scores(
    judge: Judge, responses: pd.DataFrame, options: RunOptions
) -> tuple[dict[str, Floats | pd.Series], Provenance]:
    """Score and verdict of each response, and the provenance."""
    score, verdict = (
        np.full(len(responses), np.nan),
        np.full(len(responses), "", object),
    )
    parts = list_items(judge, responses)
    results, provenance = _judge_items(judge, parts, options)
    for items, judged in zip(parts, results, strict=True):
        score[items.rows] = [
            judged.values[i][place]
            for i, place in zip(items.texts.rows, items.place, strict=True)
        ]
        verdict[items.rows] = [judged.verdict[i] for i in items.texts.rows]
    return {"score": score, "verdict": pd.Series(verdict, dtype="str")}, provenance


def _judge_items(
    judge: Judge, parts: Sequence[Items], options: RunOptions
) -> tuple[list[Judged], Provenance]:
    """The verdicts on each part, and the provenance with the counts of all.

    Raises DataError where items have no number and nobody allowed that, after
    everything was asked and kept.
    """
    start, results, n_missing = time.perf_counter(), [], 0
    for items in parts:
        judged = _ask_judge(items.judge, items.texts.distinct, options)
        silent = [
            number
            for number, values in enumerate(judged.values)
            if np.isnan(values).any()
        ]
        if silent and not options.allow_missing:
            failures = judged.about.get("failures")
            reason = (
                f" ({max(failures, key=failures.__getitem__)})"
                if isinstance(failures, dict) and failures
                else ""
            )
            n_failed = sum(judged.verdict[number] == "failed" for number in silent)
            outcome = f"{n_failed} got no reply{reason} and {len(silent) - n_failed} no verdict"
            where = f"judge {judge.name!r}: of {len(judged.verdict)} {outcome}, first {items.texts.describe(silent[0])}"
            raise DataError(
                f"{where}. Run again with the same store=, or pass allow_missing=True."
            )
        results.append(judged)
        n_missing += len(silent)
    verdicts = Counter(word for judged in results for word in judged.verdict)
    n_items = verdicts.total()
    counts = count_texts(start, n_items, n_items - n_missing, n_missing)
    return results, describe_scorer(judge) | counts | _add_counts(results) | {
        "verdicts": dict(verdicts)
    }


def _ask_judge(judge: Judge, items: Sequence[Text], options: RunOptions) -> Judged:
    """The verdicts, asked here or on the cluster."""
    if options.engine is None or not judge.travels:
        return judge.judge(items, store=options.store, progress=options.progress)
    work, blocks = partial(judge_block, judge, options.store), {}
    with open_bar(judge.name, "item", len(items), 0, options.progress) as bar:
        for first, judged in map_blocks(
            f"judge {judge.name!r}", options.engine, work, items
        ):
            blocks[first] = judged
            bar.update(len(judged.verdict))
    parts = [blocks[first] for first in sorted(blocks)]
    columns = {
        name: np.concatenate([part.columns[name] for part in parts])
        for name in parts[0].columns
    }
    values, verdict = (
        [v for part in parts for v in part.values],
        [v for part in parts for v in part.verdict],
    )
    return Judged(values, verdict, columns, _add_counts(parts))


def _add_counts(parts: Sequence[Judged]) -> Provenance:
    """Counts, and counts of reasons, summed over parts of a run."""
    total: Provenance = {}
    for name, value in (count for judged in parts for count in judged.about.items()):
        if isinstance(value, dict):
            total[name] = dict(Counter(total.get(name, {})) + Counter(value))  # type: ignore[call-overload]
        else:
            total[name] = total.get(name, 0) + value  # type: ignore[operator]
    return total
