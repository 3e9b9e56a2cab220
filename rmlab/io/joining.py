"""Plain tables of scores joined to the responses that they are of."""

from os import PathLike
from pathlib import Path

import pandas as pd

from rmlab import cells, records, tables
from rmlab.io.mapped import Columns, renamed
from rmlab.tables import DataError

__all__ = ["join"]

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
    """Scores of the responses from a plain table, such as a CSV of id, label and score: a whole scores table.

    `scores`: a frame or a file with `score` and what names the answer: `id`, `label`, `domain`, `subset`, `slot`,
    `style` or the text itself as `response`, as many of them as are needed. `columns` maps these names to yours. Where
    neither `slot` nor `style` nor `response` is there, the answers of one prompt and label are taken in the order of
    their slots; a table that names the same answers as `responses`, row by row, is taken in its order.
    `model` names the model (default: the column `model`, else the file's name).
    Each answer must have one score and each score an answer: DataError says how many do not, and the first of them.
    With `allow_missing` answers without a score are kept as missing, which later steps count.

    >>> responses = pd.DataFrame({"benchmark": "b", "domain": "chat", "id": "7", "label": ["chosen", "rejected"],
    ...     "slot": 0, "prompt": "Hi", "response": ["Hello there.", "No."]})
    >>> plain = pd.DataFrame({"id": [7, 7], "label": ["rejected", "chosen"], "score": [-1.5, 2.0]})
    >>> join(responses, plain, model="mine")[["model", "id", "label", "score"]]
      model id     label  score
    0  mine  7    chosen    2.0
    1  mine  7  rejected   -1.5
    """
    responses = tables.check_responses(responses)
    given, name = _given(scores, columns or {})
    if "score" not in given:
        raise DataError(f"scores: no column 'score'; found: {list(given.columns)}; say which: columns={{'score': ...}}")
    key = [c for c in _KEY if c in given]
    if not {"id", "response"} & {*key}:
        raise DataError(f"scores: neither 'id' nor 'response'; found: {list(given.columns)}; use columns={{...}}")
    if model is not None or "model" not in given:
        tables.require_text("model", model)
        given = given.assign(model=name if model is None else model)
    given = given.assign(**{c: _texts(c, given[c]) for c in key}).reset_index(drop=True)
    parts = [_joined(responses, part, key, allow_missing) for _, part in given.groupby("model", sort=False)]
    return tables.check_scores(pd.concat(parts, ignore_index=True), allow_missing=allow_missing)


def _given(scores: pd.DataFrame | str | PathLike[str], columns: Columns) -> tuple[pd.DataFrame, str]:
    if isinstance(scores, pd.DataFrame):
        return renamed(scores, columns, _NAMES), "scores"
    path = Path(scores).expanduser()
    return renamed(pd.DataFrame(records.read_rows(path)), columns, _NAMES), path.stem


def _texts(column: str, values: pd.Series) -> pd.Series:
    """Keys as text: 7 and 7.0 are "7"."""
    plain = values.astype(object)
    if (broken := cells.broken(plain)).any():
        tables.require_text(f"scores: row {int(broken.argmax())}: {column}", plain.iloc[int(broken.argmax())])
    whole = plain.map(lambda x: int(x) if isinstance(x, float) and x.is_integer() else x)
    return whole.map(lambda x: "" if x is None or x is pd.NA or x != x else str(x)).astype("str")


def _joined(responses: pd.DataFrame, given: pd.DataFrame, key: list[str], allow_missing: bool) -> pd.DataFrame:
    asked = pd.DataFrame({c: _texts(c, responses[c]) for c in key})
    if len(given) == len(asked) and (given[key].to_numpy() == asked[key].to_numpy()).all():
        scored = responses[[c for c in tables.SCORES if c in responses]]
        return scored.assign(model=given["model"].iloc[0], score=given["score"].to_numpy())
    _refuse_unclear(responses, asked, key)
    # Equal texts of one prompt are one text to a model: a score by text goes to all of them.
    by_text = "response" in key
    here = [*key] if by_text else [*key, "place"]
    asked = asked.assign(place=asked.groupby(key).cumcount(), row=range(len(asked)))
    given = given.assign(place=given.groupby(key).cumcount())
    found = given[[*here, "score", "model"]].merge(asked[[*here, "row"]], on=here, how="left")
    _refuse_unknown(given, found, key)
    if found["row"].duplicated().any():
        first = found.loc[found["row"].duplicated(), key].iloc[0].to_dict()
        raise DataError(f"scores: two scores of one answer, first {first}; add a column that tells them apart")
    scored = responses[[c for c in tables.SCORES if c in responses]].assign(model=given["model"].iloc[0])
    scored["score"] = pd.Series(found["score"].to_numpy(), index=found["row"].astype(int)).reindex(range(len(scored)))
    unscored = ~scored.index.isin(found["row"])
    if unscored.any() and not allow_missing:
        first = responses.loc[unscored, tables.KEY].iloc[0].to_dict()
        raise DataError(
            f"scores: {int(unscored.sum())} of {len(responses)} answers have no score, first {first}; score them too, "
            "or pass allow_missing=True to count them as missing"
        )
    return scored


def _refuse_unclear(responses: pd.DataFrame, asked: pd.DataFrame, key: list[str]) -> None:
    """Raise DataError where one key stands for answers of several prompts or labels: order must not decide there."""
    owners = responses[[*tables.PROMPT, "label"]].astype("str").agg("\x1f".join, axis=1)
    several = asked.assign(owner=owners).drop_duplicates([*key, "owner"]).duplicated(key)
    if several.any():
        first = asked.loc[several.index[several][0], key].to_list()
        missing = [c for c in ("domain", "subset", "id", "label") if c not in key]
        raise DataError(
            f"scores: {key} = {first!r:.120} names answers of several prompts or labels; "
            f"add a column {' or '.join(map(repr, missing)) or 'slot'} to the scores"
        )


def _refuse_unknown(given: pd.DataFrame, found: pd.DataFrame, key: list[str]) -> None:
    unknown = found["row"].isna()
    if unknown.any():
        first = found.loc[unknown, key].iloc[0].to_dict()
        raise DataError(
            f"scores: {int(unknown.sum())} of {len(given)} scores belong to no answer, first {first} (or to one "
            "that has its score already); pass the responses that were scored"
        )
