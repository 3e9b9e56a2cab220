"""Comparisons of a prompt's answers: scores to pairs."""

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.estimation.items import count_labels
from rmlab.tables import PROMPT, DataError, IntArray, group_codes

_NAMES = ["model", *PROMPT, "subset"]
_TYPES: dict[str, object] = {
    **dict.fromkeys(_NAMES, "str"),
    "chosen_slot": "int64",
    "rejected_slot": "int64",
    "chosen_style": tables.STYLE,
    "rejected_style": tables.STYLE,
    "level": tables.LEVEL,
    "margin": "float64",
    "outcome": tables.OUTCOME,
}


def pairs(scores: pd.DataFrame) -> pd.DataFrame:
    """Compare every chosen with every rejected answer of a prompt.

    Parameters
    ----------
    scores : DataFrame
        A table of scores; missing scores give comparisons with a missing outcome.

    Returns
    -------
    DataFrame
        One row per model, prompt, chosen and rejected answer, so n chosen and m
        rejected answers give n * m rows. Columns: model, benchmark, domain, id,
        chosen_slot, rejected_slot, subset, chosen_style, rejected_style, level, margin
        (score of the chosen minus score of the rejected answer), outcome (win, tie,
        loss, or missing), and the further columns of `scores` that are constant within
        a prompt, such as `source`.

    Raises
    ------
    DataError
        If a prompt of a model has answers of one label only.
    """
    scores = tables.check_scores(scores, allow_missing=True)
    # Models with the same answers in the same order have the same comparisons.
    answers = tables.first_copy(scores, [*tables.KEY, "subset", "style"])
    n_models = max(len(scores), 1) // max(len(answers), 1)
    prompt, _ = group_codes(answers, ["model", *PROMPT])
    chosen, rejected = cross_answers(answers, prompt)
    described = describe_pairs(answers, chosen, rejected)
    frame = pd.concat([described] * n_models, ignore_index=True)

    score = scores["score"].to_numpy().reshape(n_models, -1)
    margin = (score[:, chosen] - score[:, rejected]).ravel()
    first_row_of_model = len(answers) * np.arange(n_models)
    rows = (first_row_of_model[:, None] + chosen).ravel()
    further_columns = tables.prompt_columns(scores, [*tables.SCORES, *tables.PAIRS])
    further = {name: scores[name].array.take(rows) for name in further_columns}
    frame.insert(0, "model", scores["model"].array.take(rows))
    frame = frame.assign(margin=margin, outcome=tables.outcome(margin), **further)
    return tables.copy_provenance(scores, frame)


def describe_pairs(
    answers: pd.DataFrame, chosen: IntArray, rejected: IntArray
) -> pd.DataFrame:
    """Key, subset, styles and level of comparisons of a row with another one."""
    of_chosen = answers.iloc[chosen].reset_index(drop=True)
    of_rejected = answers.iloc[rejected].reset_index(drop=True)
    return pd.DataFrame(
        {
            "benchmark": of_chosen["benchmark"],
            "domain": of_chosen["domain"],
            "id": of_chosen["id"],
            "chosen_slot": of_chosen["slot"],
            "rejected_slot": of_rejected["slot"],
            "subset": of_chosen["subset"],
            "chosen_style": of_chosen["style"],
            "rejected_style": of_rejected["style"],
            "level": tables.level(of_chosen["style"], of_rejected["style"]),
        }
    )


def cross_answers(answers: pd.DataFrame, prompt: IntArray) -> tuple[IntArray, IntArray]:
    """Rows of the chosen and of the rejected answer of every comparison.

    Each chosen answer meets every rejected answer of its prompt. DataError where a
    prompt has answers of one label only.
    """
    _, n_rejected = count_labels(answers, prompt)
    first_rejected = np.cumsum(n_rejected) - n_rejected

    is_chosen = (answers["label"] == "chosen").to_numpy()
    chosen = np.flatnonzero(is_chosen)
    rejected = np.flatnonzero(~is_chosen)
    rejected = rejected[np.argsort(prompt[rejected], kind="stable")]  # prompt by prompt

    n_partners = n_rejected[prompt[chosen]]
    chosen_rows = np.repeat(chosen, n_partners)
    first_row = np.cumsum(n_partners) - n_partners
    partner = np.arange(len(chosen_rows)) - np.repeat(first_row, n_partners)
    rejected_rows = rejected[first_rejected[prompt[chosen_rows]] + partner]
    return chosen_rows, rejected_rows


def as_pairs(table: pd.DataFrame) -> pd.DataFrame:
    """A table of scores or pairs as checked pairs; DataError where it has no rows."""
    columns = set(table.columns) if isinstance(table, pd.DataFrame) else set()
    if "score" in columns and "outcome" not in columns:
        table = pairs(table)
    elif not _is_checked(table, columns):
        table = tables.check_pairs(table)
    if table.empty:
        raise DataError("table: no rows", "look at the selection that it comes from")
    return table


def unique_pairs(table: pd.DataFrame) -> pd.DataFrame:
    """`as_pairs`; DataError where a model has a comparison twice."""
    table = as_pairs(table)
    tables.refuse_repeats(table, tables.PAIR_KEY, "table")
    return table


def _is_checked(table: pd.DataFrame, columns: set[str]) -> bool:
    """Whether the columns are those that `pairs` gives, and no name is missing."""
    if not set(tables.PAIRS) <= columns:
        return False
    if any(table[name].dtype != dtype for name, dtype in _TYPES.items()):
        return False
    return not any(table[name].hasnans for name in _NAMES)
