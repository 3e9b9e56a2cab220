"""Plain tables of scores joined to the responses that they are of."""

from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import records, tables
from rmlab.io.results import Columns, rename_columns
from rmlab.tables import DataError
from rmlab.text import short

_KEY = (*tables.KEY, "subset", "style", "response")
_NAMES = ("model", *_KEY, "score")


def join(
    responses: pd.DataFrame,
    scores: pd.DataFrame | str | PathLike[str],
    *,
    model: str | None = None,
    columns: Columns | None = None,
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
    >>> responses = pd.DataFrame({"benchmark": "b", "domain": "chat", "id": "7", "label": ["chosen", "rejected"],
    ...     "slot": 0, "prompt": "Hi", "response": ["Hello there.", "No."]})
    >>> plain = pd.DataFrame({"id": [7, 7], "label": ["rejected", "chosen"], "score": [-1.5, 2.0]})
    >>> join(responses, plain, model="mine")[["model", "id", "label", "score"]]
      model id     label  score
    0  mine  7    chosen    2.0
    1  mine  7  rejected   -1.5
    """
    responses = tables.check_responses(responses)
    if isinstance(scores, pd.DataFrame):
        place, plain = Path("scores"), scores
    else:
        place = records.expand_path(scores)
        plain = pd.DataFrame(records.read_rows(place))
    plain = rename_columns(plain, columns or {}, _NAMES)
    key = [name for name in _KEY if name in plain]
    if "score" not in plain or not {"id", "response"} & {*key}:
        needed = "'score'" if "score" not in plain else "'id' or 'response'"
        raise DataError(
            f"scores: no column {needed}; found: {short([*plain])}; name it: columns={{'score': ...}}"
        )
    if model is not None or "model" not in plain:
        plain = plain.assign(model=model or place.stem)
    plain = plain.assign(
        **{name: _to_text(name, plain[name]) for name in key}
    ).reset_index(drop=True)
    parts = [
        _join_model(responses, part, key)
        for _, part in plain.groupby("model", sort=False)
    ]
    return tables.check_scores(
        pd.concat(parts, ignore_index=True), allow_missing=allow_missing
    )


def _to_text(column: str, values: pd.Series) -> pd.Series:
    """Keys as text: 7 and 7.0 are "7"."""
    tables.require_text(f"scores: {column}", values.tolist())
    numbers = values.astype(object)
    numbers = numbers.map(
        lambda value: (
            int(value) if isinstance(value, float) and value.is_integer() else value
        )
    )
    return numbers.where(values.notna(), "").astype("str")


def _join_model(
    responses: pd.DataFrame, plain: pd.DataFrame, key: list[str]
) -> pd.DataFrame:
    names = [
        name for name in tables.SCORES if name in responses
    ] + tables.prompt_columns(responses, tables.SCORES)
    scored = responses[names].assign(model=plain["model"].iloc[0])
    answers = pd.DataFrame({name: _to_text(name, responses[name]) for name in key})
    if (
        len(plain) == len(answers)
        and (plain[key].to_numpy() == answers[key].to_numpy()).all()
    ):
        return scored.assign(score=plain["score"].to_numpy())
    prompt = responses.groupby([*tables.PROMPT, "label"], observed=True).ngroup()
    is_shared = (
        answers.assign(prompt=prompt).groupby(key)["prompt"].transform("nunique") > 1
    )
    missing = [name for name in ("domain", "subset", "id", "label") if name not in key]
    fault = f"answers share their names with those of other prompts or labels; add a column {short(missing)}"
    _refuse(answers, is_shared.to_numpy(), fault)
    if (
        "response" not in key
        # equal texts of one prompt are one text to a model: a score by text goes to all of
        # them
    ):
        plain, answers = (
            frame.assign(place=frame.groupby(key).cumcount())
            for frame in (plain, answers)
        )
        key = [*key, "place"]
    keys, answer_keys = (
        pd.MultiIndex.from_frame(frame[key]) for frame in (plain, answers)
    )
    _refuse(
        plain[key],
        keys.duplicated() | ~keys.isin(answer_keys),
        "scores belong to no answer, or to a scored one",
    )
    return scored.assign(
        score=pd.Series(plain["score"].to_numpy(), keys).reindex(answer_keys).to_numpy()
    )


def _refuse(rows: pd.DataFrame, wrong: NDArray[np.bool_], fault: str) -> None:
    if wrong.any():
        first = short(rows[wrong].iloc[0].to_dict(), 200)
        raise DataError(
            f"scores: {int(wrong.sum())} of {len(rows)} {fault}, first {first}"
        )
