"""Plain tables of scores joined to the responses that they are of."""

from collections.abc import Mapping
from os import PathLike

import pandas as pd

from rmlab import tables
from rmlab.benchmarks.roles import name_value
from rmlab.benchmarks.sources import Source, read_source
from rmlab.io.results import select_columns
from rmlab.tables import BoolArray, DataError, nearest
from rmlab.text import short

_KEY = (*tables.KEY, "subset", "style", "response")
_NAMES = ("model", *_KEY, "score")


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
        slots; a table that names the same answers as `responses`, row by row, is taken
        in its order.
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
    plain = _read_plain(data, columns)
    key = plain.columns.intersection([*_KEY], sort=False).tolist()
    for name in key:
        plain[name] = _to_text(name, plain[name])
    if model is not None or "model" not in plain:
        plain["model"] = model or data.place.stem
    is_unnamed = plain["model"].isna() | (plain["model"] == "")
    fault = "scores have no model"
    _refuse(plain, is_unnamed.to_numpy(), fault, "fill it in, or pass model=")
    parts = []
    for _, of_model in plain.groupby("model", sort=False):
        parts.append(_join_model(responses, of_model, key))
    joined = pd.concat(parts, ignore_index=True)
    return tables.check_scores(joined, allow_missing=allow_missing)


def _read_plain(data: Source, columns: Mapping[str, str] | None) -> pd.DataFrame:
    """The columns of a plain table under our names; DataError where there are no
    scores, or nothing that names answers.
    """
    for name in columns or ():
        if name not in _NAMES:
            problem = f"columns: {name!r} is not a name of rmlab"
            raise DataError(problem, nearest(name, _NAMES))
    plain = pd.DataFrame(dict(data.columns))
    if columns:
        plain = select_columns(data, columns)
    if "score" not in plain or {"id", "response"}.isdisjoint(plain):
        needed = "'score', and 'id' or 'response'"
        problem = (
            f"scores: the columns {needed} are needed; found: {short(list(plain))}"
        )
        raise DataError(problem, "name them: columns={'score': ...}")
    return plain


def _to_text(column: str, values: pd.Series) -> pd.Series:
    """Keys as text: 7 and 7.0 are "7"."""
    tables.require_text(f"scores: {column}", values.tolist())
    names = values.astype(object).map(name_value)
    return names.where(values.notna(), "").astype("str")


def _join_model(
    responses: pd.DataFrame, plain: pd.DataFrame, key: list[str]
) -> pd.DataFrame:
    own_names = responses.columns.intersection(tables.SCORES)
    names = [*own_names, *tables.prompt_columns(responses, tables.SCORES)]
    scored = responses[names].assign(model=plain["model"].iloc[0])
    answers = pd.DataFrame({name: _to_text(name, responses[name]) for name in key})
    has_length = len(plain) == len(answers)
    if has_length and (plain[key].to_numpy() == answers[key].to_numpy()).all():
        return scored.assign(score=plain["score"].to_numpy())

    _refuse_shared_names(responses, answers, key)
    plain_key = plain[key]
    answer_key = answers[key]
    # Equal texts of one prompt are one text to a model: a score by text goes to all.
    if "response" not in key:
        plain_key = plain_key.assign(place=plain.groupby(key).cumcount())
        answer_key = answer_key.assign(place=answers.groupby(key).cumcount())
    score_index = pd.MultiIndex.from_frame(plain_key)
    answer_index = pd.MultiIndex.from_frame(answer_key)
    is_unwanted = score_index.duplicated() | ~score_index.isin(answer_index)
    fault = "scores belong to no answer, or to a scored one"
    _refuse(plain_key, is_unwanted, fault)
    score_by_key = pd.Series(plain["score"].to_numpy(), score_index)
    return scored.assign(score=score_by_key.reindex(answer_index).to_numpy())


def _refuse_shared_names(
    responses: pd.DataFrame, answers: pd.DataFrame, key: list[str]
) -> None:
    """Raise DataError where the key names answers of several prompts or labels."""
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
