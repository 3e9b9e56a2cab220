"""The one walk behind `rmlab.score` and `rmlab.prefer`: each model over the rows of a
table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from rmlab import baselines, tables
from rmlab.scorers.base import Judge, PairScorer, Provenance, Scorer, Text
from rmlab.scoring.judged import judge_pairs, judge_scores
from rmlab.scoring.open_models import Models, open_models
from rmlab.scoring.run import RunOptions, score_texts
from rmlab.scoring.stores import check_tables, write_tables
from rmlab.scoring.texts import Texts, both_orders, unique_texts
from rmlab.tables import DataError


@dataclass(frozen=True)
class SingleAnswers:
    """Responses, each of which gets a score. `rows`: their table. `key_columns`: what
    messages call a row by.
    """

    rows: pd.DataFrame
    key_columns: tuple[str, ...] = tuple(tables.KEY)
    is_pairwise = False

    @cached_property
    def texts(self) -> Texts:
        """The distinct texts."""
        columns = zip(self.rows["prompt"], self.rows["response"], strict=True)
        texts = [Text(prompt, (response,)) for prompt, response in columns]
        prompt_number, _ = tables.group_codes(self.rows, tables.PROMPT)
        return unique_texts(self.rows[[*self.key_columns]], prompt_number, texts)

    def score_rows(
        self, scorer: Scorer | Judge, run: RunOptions
    ) -> tuple[pd.DataFrame, Provenance]:
        """The rows with the numbers of one model, and their provenance.

        Behind the score follow the scorer's columns, then those of the prompt.
        """
        if isinstance(scorer, Judge):
            columns, provenance = judge_scores(scorer, self.rows, run)
        else:
            if isinstance(getattr(scorer, "model", None), baselines.Baseline):
                # It costs nothing: it is computed anew, and here.
                run = replace(run, store=None, engine=None)
            taken = [name for name in scorer.columns if name in tables.SCORES]
            if taken:
                problem = f"scorer {scorer.name!r}: columns {taken} are of every table"
                raise DataError(problem, "give its columns other names")
            scores, provenance = score_texts(scorer, self.texts, run)
            names = ["score", *scorer.columns]
            columns = pd.DataFrame(scores[self.texts.rows], columns=names)

        further = tables.prompt_columns(self.rows, tables.SCORES)
        order = dict.fromkeys([*tables.SCORES, *columns, *further])
        return self.rows.assign(model="", **columns)[[*order]], provenance


@dataclass(frozen=True)
class ComparedAnswers:
    """Every chosen with every rejected answer of a prompt, each of which gets a margin
    or a verdict. `rows`: the table, without a model's name.
    """

    rows: pd.DataFrame
    texts: Texts
    is_pairwise = True

    def score_rows(
        self, scorer: Scorer | Judge, run: RunOptions
    ) -> tuple[pd.DataFrame, Provenance]:
        """The rows with margin and outcome, or with a judge's columns, and their
        provenance.
        """
        if isinstance(scorer, Judge):
            columns, provenance = judge_pairs(scorer, self.texts, run)
            return self.rows.assign(**columns), provenance

        assert isinstance(scorer, PairScorer)
        texts = both_orders(self.texts) if scorer.both_orders else self.texts
        scores, provenance = score_texts(scorer, texts, run)
        margin = scores[texts.rows, 0]
        if scorer.both_orders:
            forward, exchanged = margin.reshape(2, -1)
            margin = scorer.average(forward, exchanged)
        outcome = tables.outcome(margin)
        return self.rows.assign(margin=margin, outcome=outcome), provenance


def score_table(
    task: SingleAnswers | ComparedAnswers,
    model: Models,
    options: Mapping[str, object],
    run: RunOptions,
) -> pd.DataFrame:
    """The table of all models, one after the other; a store gets it too, where it is
    not of a shard.
    """
    models = open_models(model, options, run, pairwise=task.is_pairwise)
    store = run.store if run.keeps_tables else None
    if store is not None:
        names = task.rows["benchmark"].unique()
        check_tables(store, models, names, pairs=task.is_pairwise)

    by_model = []
    provenance = {}
    for name, scorer in models.items():
        rows, provenance[name] = task.score_rows(scorer, run)
        by_model.append(rows.assign(model=name))
        if len(models) > 1 and isinstance(scorer, Scorer):
            scorer.free_memory()

    table = pd.concat(by_model, ignore_index=True)
    # Scorers and judges of others bring columns of their own.
    if task.is_pairwise:
        table = tables.check_pairs(table)
    else:
        table = tables.check_scores(table, allow_missing=run.allow_missing)
    table.attrs["provenance"] = provenance
    if store is not None:
        write_tables(table, store)
    return table
