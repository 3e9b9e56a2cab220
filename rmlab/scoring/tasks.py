"""The one walk behind `rmlab.score` and `rmlab.prefer`: each model over the rows of a
table.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np
import pandas as pd

from rmlab import baselines, tables
from rmlab.scorers.base import Judge, PairScorer, Provenance, Scorer, Text
from rmlab.scoring.judged import judge_pairs, judge_scores
from rmlab.scoring.run import RunOptions, score_texts
from rmlab.scoring.spread import spread_scorer
from rmlab.scoring.stores import check_tables, write_tables
from rmlab.scoring.texts import Shard, Texts, both_orders, comparisons, unique_texts

Columns = dict[str, np.ndarray]


class Task(ABC):
    """A table to be scored: single answers, or comparisons.

    `rows`: the table without the columns of a model. `is_pairwise`: whether its rows
    are comparisons.
    """

    rows: pd.DataFrame
    is_pairwise: bool

    @abstractmethod
    def score_rows(
        self, scorer: Scorer | Judge, options: RunOptions
    ) -> tuple[pd.DataFrame, Provenance]:
        """The rows with the numbers of one model, and their provenance."""

    @abstractmethod
    def check(self, table: pd.DataFrame, options: RunOptions) -> pd.DataFrame:
        """The whole table in its order and types of columns."""


def score_table(
    task: Task,
    models: Mapping[str, Scorer | Judge],
    options: RunOptions,
    shard: Shard | None,
) -> pd.DataFrame:
    """The table of all models, one after the other; a store gets it too, where it is
    whole.
    """
    # The table of a shard is a part of one.
    store = options.store if shard is None else None
    if store is not None:
        names = task.rows["benchmark"].unique()
        check_tables(store, models, names, pairs=task.is_pairwise)

    by_model = []
    provenance = {}
    for name, scorer in models.items():
        rows, provenance[name] = task.score_rows(scorer, options)
        by_model.append(rows.assign(model=name))
        if len(models) > 1 and isinstance(scorer, Scorer):
            scorer.free_memory()

    table = task.check(pd.concat(by_model, ignore_index=True), options)
    table.attrs["provenance"] = provenance
    if store is not None:
        write_tables(table, store)
    return table


class SingleAnswers(Task):
    """Responses, each of which gets a score."""

    is_pairwise = False

    def __init__(self, responses: pd.DataFrame) -> None:
        self.prompt_number, _ = tables.group_codes(responses, tables.PROMPT)
        self.further = tables.prompt_columns(responses, tables.SCORES)
        self.rows = responses

    @cached_property
    def texts(self) -> Texts:
        """The distinct texts."""
        columns = zip(self.rows["prompt"], self.rows["response"], strict=True)
        texts = [Text(prompt, (response,)) for prompt, response in columns]
        return unique_texts(self.rows[tables.KEY], self.prompt_number, texts)

    def score_rows(
        self, scorer: Scorer | Judge, options: RunOptions
    ) -> tuple[pd.DataFrame, Provenance]:
        """Score, then the scorer's columns, then columns of the prompt."""
        columns: pd.DataFrame | Columns
        if isinstance(scorer, Judge):
            columns, provenance = judge_scores(scorer, self.rows, options)
        else:
            columns, provenance = self._score_texts(scorer, options)
        scored = self.rows.assign(**columns)

        own = [name for name in columns if name != "score"]
        further = [name for name in self.further if name not in own]
        return scored[[*tables.SCORES[1:], *own, *further]], provenance

    def _score_texts(
        self, scorer: Scorer, options: RunOptions
    ) -> tuple[Columns, Provenance]:
        if _is_baseline(scorer):
            # It costs nothing: it is computed anew, and here.
            options = replace(options, store=None, engine=None)
        scores, provenance = run_scorer(scorer, self.texts, options)
        by_row = scores[self.texts.rows]
        names = ["score", *scorer.columns]
        return {name: by_row[:, i] for i, name in enumerate(names)}, provenance

    def check(self, table: pd.DataFrame, options: RunOptions) -> pd.DataFrame:
        """A table of scores."""
        return tables.check_scores(table, allow_missing=options.allow_missing)


class Comparisons(Task):
    """Every chosen with every rejected answer of a prompt, each of which gets a margin
    or a verdict.
    """

    is_pairwise = True

    def __init__(self, responses: pd.DataFrame) -> None:
        self.rows, self.texts = comparisons(responses)

    def score_rows(
        self, scorer: Scorer | Judge, options: RunOptions
    ) -> tuple[pd.DataFrame, Provenance]:
        """Margin and outcome, and a judge's columns."""
        if isinstance(scorer, Judge):
            columns, provenance = judge_pairs(scorer, self.texts, options)
            undecided = self.rows.drop(columns=["margin", "outcome"])
            return pd.concat([undecided, columns], axis=1), provenance

        assert isinstance(scorer, PairScorer)
        texts = both_orders(self.texts) if scorer.both_orders else self.texts
        scores, provenance = run_scorer(scorer, texts, options)
        margin = scores[texts.rows, 0]
        if scorer.both_orders:
            forward, exchanged = margin.reshape(2, -1)
            margin = scorer.average(forward, exchanged)
        outcome = tables.outcome(margin)
        return self.rows.assign(margin=margin, outcome=outcome), provenance

    def check(self, table: pd.DataFrame, options: RunOptions) -> pd.DataFrame:
        """A table of pairs."""
        return tables.check_pairs(table)


def _is_baseline(scorer: Scorer) -> bool:
    return isinstance(getattr(scorer, "model", None), baselines.Baseline)


def run_scorer(
    scorer: Scorer, texts: Texts, options: RunOptions
) -> tuple[np.ndarray, Provenance]:
    """Score texts here, or on the cluster where there is one and the scorer can go."""
    if options.engine is not None and scorer.travels:
        scorer = spread_scorer(scorer, options.engine, options.store)
    return score_texts(scorer, texts, options)
