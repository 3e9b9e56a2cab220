"""The cost of a judge's run before it begins."""

from pathlib import Path
from typing import cast

import pandas as pd

from rmlab import tables
from rmlab.judges.kinds import Judge, PairJudge
from rmlab.judges.questions import Question, count_tokens
from rmlab.scorers.base import Text
from rmlab.scoring.texts import comparisons
from rmlab.scoring.walk import list_parts
from rmlab.store import Store


def texts_by_judge(
    judge: Judge, responses: pd.DataFrame
) -> list[tuple[Judge, list[Text]]]:
    """Return the texts of a run with the judge that is asked about them: the judge
    itself, or that of a subset.
    """
    responses = tables.check_responses(responses)
    if isinstance(judge, PairJudge):
        _, texts = comparisons(responses, both_orders=judge.both_orders)
        return [(judge, texts.distinct)]
    parts = list_parts(judge, responses)
    return [(cast("Judge", part.scorer), part.texts.distinct) for part in parts]


def cost(
    judge: Judge, responses: pd.DataFrame, *, store: str | Path | None = None
) -> pd.DataFrame:
    """Count what judging `responses` would take; nothing is asked.

    Parameters
    ----------
    judge : judge
        A judge, as `rmlab.judge` makes it.
    responses : DataFrame
        A table of responses.
    store : str or Path, optional
        Where earlier answers are.

    Returns
    -------
    DataFrame
        One row: judge, questions (each different one once), answered (by the store),
        to_ask, prompt_tokens (of those to ask, at four bytes a token) and answer_tokens
        (at most).
    """
    questions: dict[str, Question] = {}
    answered: set[str] = set()
    for asked, texts in texts_by_judge(judge, responses):
        stored: set[str] = set()
        if store is not None:
            stored.update(Store(store).read(asked.fingerprint))
        for text in texts:
            for question in asked.questions(text):
                questions[question.key] = question
                if text.key in stored:
                    answered.add(question.key)

    pending = [question for key, question in questions.items() if key not in answered]
    answer_tokens = judge.respondent.sampling.answer_tokens
    return pd.DataFrame(
        {
            "judge": [judge.name],
            "questions": len(questions),
            "answered": len(answered),
            "to_ask": len(pending),
            "prompt_tokens": count_tokens(pending),
            "answer_tokens": answer_tokens * len(pending),
        }
    )
