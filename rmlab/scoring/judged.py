"""Tables of judges: what they are shown together, and what becomes of answers that cannot be read."""

import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.scorers.base import SILENT, Floats, Ints, Judge, Judged, Prompt, Provenance, Text
from rmlab.scoring.cluster import judge_block, map_blocks
from rmlab.scoring.run import RunOptions, count_texts, describe_scorer, open_bar
from rmlab.scoring.texts import Texts, unique_texts
from rmlab.tables import PROMPT, DataError, group_codes

J = TypeVar("J", bound=Judge)


def judge_pairs(judge: Judge, texts: Texts, options: RunOptions) -> tuple[pd.DataFrame, Provenance]:
    """Columns of the pairs, one value per table row: margin, outcome, verdict and the judge's own."""
    start = time.perf_counter()
    judged = _ask_judge(judge, texts.prompts, texts.answers, options)
    _refuse_silent(judge.name, judged, options, [texts.describe(i) for i in _silent_items(judged)[:1]])
    decided = np.array([values[0] for values in judged.values], np.float64)
    columns = pd.DataFrame({"margin": np.nan} | judged.columns, index=range(len(decided)))
    columns = columns.assign(verdict=pd.Series(judged.verdict, dtype="str"), outcome=tables.outcome(decided))
    return columns.iloc[texts.rows].reset_index(drop=True), _describe_judged(judge, [judged], start)


def judge_scores(
    judge: Judge, responses: pd.DataFrame, options: RunOptions
) -> tuple[dict[str, Floats | pd.Series], Provenance]:
    """Score and verdict of each response, and the provenance; subsets of another judge go to that one."""
    start = time.perf_counter()
    score, verdict = np.full(len(responses), np.nan), np.full(len(responses), "", object)
    parts = []
    for part_judge, rows in split_by_judge(judge, responses):
        prompts, candidates, item, place = show_items(part_judge, responses.iloc[rows])
        judged = _ask_judge(part_judge, prompts, candidates, options)
        first_rows = [responses.iloc[rows[int((item == i).argmax())]] for i in _silent_items(judged)[:1]]
        prompt_names = [", ".join(f"{column} {row[column]}" for column in PROMPT) for row in first_rows]
        _refuse_silent(judge.name, judged, options, prompt_names)
        score[rows] = [judged.values[i][p] for i, p in zip(item, place, strict=True)]
        verdict[rows] = [judged.verdict[i] for i in item]
        parts.append(judged)
    return {"score": score, "verdict": pd.Series(verdict, dtype="str")}, _describe_judged(judge, parts, start)


def show_items(judge: Judge, responses: pd.DataFrame) -> tuple[list[Prompt], list[tuple[str, ...]], Ints, Ints]:
    """What the judge is shown: prompts, and the answers shown together; item of each row, and its place in the item."""
    if judge.takes == "answer":
        unique = unique_texts(responses[tables.KEY], responses["prompt"].tolist(), responses["response"].tolist())
        return unique.prompts, unique.answers, unique.rows, np.zeros(len(unique.rows), np.intp)
    item, first_rows = group_codes(responses, PROMPT)
    groups = responses["response"].groupby(item)
    answers = [tuple(texts) for _, texts in groups]
    return responses["prompt"].iloc[first_rows].tolist(), answers, item, np.asarray(groups.cumcount(), np.intp)


def split_by_judge(judge: J, responses: pd.DataFrame) -> list[tuple[J, Ints]]:
    """Which rows each judge is for; those of no subset's judge go to the judge itself."""
    subset = responses["subset"].to_numpy()
    rows = np.flatnonzero(~np.isin(subset, list(judge.apart)))
    parts = [(judge, rows)] + [(other, np.flatnonzero(subset == name)) for name, other in judge.apart.items()]
    return [(part_judge, rows) for part_judge, rows in parts if len(rows)]  # type: ignore[misc]


def _ask_judge(judge: Judge, prompts: list[Prompt], candidates: list[tuple[str, ...]], options: RunOptions) -> Judged:
    """The verdicts, asked here or on the cluster."""
    if options.engine is None or not judge.travels:
        return judge.judge(prompts, candidates, store=options.store, progress=options.progress)
    items, work = (
        [Text(*item) for item in zip(prompts, candidates, strict=True)],
        partial(judge_block, judge, options.store),
    )
    blocks = {}
    with open_bar(judge.name, "item", len(items), 0, options.progress) as bar:
        for first, judged in map_blocks(f"judge {judge.name!r}", options.engine, work, items):
            blocks[first] = judged
            bar.update(len(judged.verdict))
    parts = [blocks[first] for first in sorted(blocks)]
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    values, verdict = [v for part in parts for v in part.values], [v for part in parts for v in part.verdict]
    return Judged(values, verdict, columns, _add_counts(parts))


def _silent_items(judged: Judged) -> list[int]:
    """Items without a number."""
    return [i for i, values in enumerate(judged.values) if np.isnan(values).any()]


def _refuse_silent(name: str, judged: Judged, options: RunOptions, first: Sequence[str]) -> None:
    """Raise DataError where some items have no number and nobody allowed that, after everything was asked and kept."""
    silent = _silent_items(judged)
    if options.allow_missing or not silent:
        return
    counts = {word: sum(judged.verdict[i] == word for i in silent) for word in SILENT}
    failures = judged.about.get("failures")
    reason = f" ({max(failures, key=failures.__getitem__)})" if isinstance(failures, dict) and failures else ""
    raise DataError(
        f"judge {name!r}: of {len(judged.values)} items {counts['failed']} got no reply{reason} and "
        f"{counts['unparsable']} no verdict, first {''.join(first)}. Run again with the same store= to ask the "
        "failed ones again, or pass allow_missing=True to count them as missing."
    )


def _describe_judged(judge: Judge, parts: Sequence[Judged], start: float) -> Provenance:
    """The judge's provenance, and the counts of its parts together."""
    verdicts = Counter(word for judged in parts for word in judged.verdict)
    n_items, n_missing = verdicts.total(), sum(len(_silent_items(judged)) for judged in parts)
    counts = count_texts(start, n_items, n_items - n_missing, n_missing)
    return describe_scorer(judge) | counts | _add_counts(parts) | {"verdicts": dict(verdicts)}


def _add_counts(parts: Sequence[Judged]) -> Provenance:
    """Counts, and counts of reasons, summed over parts of a run."""
    total: Provenance = {}
    for name, value in (count for judged in parts for count in judged.about.items()):
        if isinstance(value, dict):
            total[name] = dict(Counter(total.get(name, {})) + Counter(value))  # type: ignore[call-overload]
        else:
            total[name] = total.get(name, 0) + value  # type: ignore[operator]
    return total
