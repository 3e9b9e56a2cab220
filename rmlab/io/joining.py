"""Plain tables of scores joined to the responses that they are of."""

from collections.abc import Mapping
from os import PathLike

import pandas as pd

from rmlab import tables
from rmlab.benchmarks.roles import name_value
from rmlab.benchmarks.sources import read_source
from rmlab.io.results import select_columns
from rmlab.tables import BoolArray, DataError
from rmlab.text import short

_KEY = (*tables.KEY, "subset", "style", "response")


def join(
    responses: pd.DataFrame,
    scores: pd.DataFrame | str | PathLike[str],
    *,
    model: str | None = None,
    columns: Mapping[str, str] | None = None,
    allow_missing: bool = False,
) -> pd.DataFrame:
    """Scores of the responses from a plain table, such as a CSV of id, label and score:
    a whole scores table.

    Parameters
    ----------
    responses
        The responses that were scored.
    scores
        A frame or a file with `score` and the columns that name the answer: `id`,
        `label`, `domain`, `subset`, `slot`, `style` or the text itself as `response`,
        as many of them as are needed. Where neither `slot` nor `style` nor `response`
        is there, the answers of one prompt and label are taken in the order of their
        slots.
    model
        Name of the model (default: the column `model`, else the file's name).
    columns
        Our names to those of `scores`.
    allow_missing
        Keep answers without a score as missing, which later steps count, instead of
        raising.

    Returns
    -------
    DataFrame
        A scores table: one row per model and response.

    Raises
    ------
    DataError
        Where an answer has no score or two, or a score no answer: how many, and the
        first of them.

    Examples
    --------
    >>> answers = {"label": ["chosen", "rejected"], "response": ["Hello there.", "No."]}
    >>> prompt = {"benchmark": "b", "domain": "chat", "id": "7", "prompt": "Hi"}
    >>> responses = pd.DataFrame({**prompt, **answers, "slot": 0})
    >>> plain = pd.DataFrame({"id": 7, "label": ["rejected", "chosen"]})
    >>> plain["score"] = [-1.5, 2.0]
    >>> join(responses, plain, model="mine")[["model", "id", "label", "score"]]
      model id     label  score
    0  mine  7    chosen    2.0
    1  mine  7  rejected   -1.5
    """
    responses = tables.check_responses(responses)
    data = read_source(scores)
    plain = pd.DataFrame(dict(data.columns))
    if columns:
        plain = select_columns(data, columns)
    if "score" not in plain or {"id", "response"}.isdisjoint(plain):
        needed = "'score', and 'id' or 'response'"
        found = short(list(plain))
        problem = f"scores: the columns {needed} are needed; found: {found}"
        raise DataError(problem, "name them: columns={'score': ...}")
    key = plain.columns.intersection([*_KEY], sort=False).tolist()
    answers = pd.DataFrame({name: _to_text(responses[name]) for name in key})
    _refuse_shared_names(responses, answers)
    for name in key:
        plain[name] = _to_text(plain[name])
    if model is not None or "model" not in plain:
        plain["model"] = model or data.place.stem
    # Equal texts of one prompt are one text to a model: a score by text goes to all.
    if "response" not in key:
        plain["place"] = plain.groupby(["model", *key], dropna=False).cumcount()
        answers["place"] = answers.groupby(key).cumcount()

    own_names = responses.columns.intersection(tables.SCORES)
    names = [*own_names, *tables.prompt_columns(responses, tables.SCORES)]
    parts = []
    for scorer, of_model in plain.groupby("model", sort=False, dropna=False):
        score = _find_scores(answers, of_model)
        parts.append(responses[names].assign(model=scorer, score=score.to_numpy()))
    joined = pd.concat(parts, ignore_index=True)
    return tables.check_scores(joined, allow_missing=allow_missing)


def _to_text(values: pd.Series) -> pd.Series:
    """Keys as text: 7 and 7.0 are "7"."""
    names = values.astype(object).map(name_value, na_action="ignore")
    return names.fillna("").astype("str")


def _find_scores(answers: pd.DataFrame, plain: pd.DataFrame) -> pd.Series:
    """The score of each answer, NaN where a model has none."""
    score_index = pd.MultiIndex.from_frame(plain[[*answers]])
    answer_index = pd.MultiIndex.from_frame(answers)
    is_unwanted = score_index.duplicated() | ~score_index.isin(answer_index)
    fault = "scores belong to no answer, or to a scored one"
    _refuse(plain[[*answers]], is_unwanted, fault)
    score_by_key = pd.Series(plain["score"].to_numpy(), score_index)
    return score_by_key.reindex(answer_index)


def _refuse_shared_names(responses: pd.DataFrame, answers: pd.DataFrame) -> None:
    """Raise DataError where the key names answers of several prompts or labels."""
    key = [*answers]
    prompt = responses.groupby([*tables.PROMPT, "label"], observed=True).ngroup()
    prompts_of_key = answers.assign(prompt=prompt).groupby(key)["prompt"]
    is_shared = prompts_of_key.transform("nunique") > 1
    missing = pd.Index(["domain", "subset", "id", "label"]).difference(key)
    fault = "answers share their names with those of other prompts or labels"
    remedy = f"add a column {short(missing.tolist())}"
    _refuse(answers, is_shared.to_numpy(), fault, remedy)


def _refuse(
    rows: pd.DataFrame, is_wrong: BoolArray, fault: str, remedy: str = ""
) -> None:
    if is_wrong.any():
        first = short(rows[is_wrong].iloc[0].to_dict(), 200)
        counts = f"{int(is_wrong.sum())} of {len(rows)} {fault}"
        raise DataError(f"scores: {counts}, first {first}", remedy)
