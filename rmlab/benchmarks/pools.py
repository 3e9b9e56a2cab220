"""Pools of candidates: tables of any number of right and wrong answers to a prompt."""

import json

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.estimation.best_of import N_CANDIDATES
from rmlab.tables import PROMPT, BoolArray, DataError
from rmlab.text import short

_RIGHT = ("true", "1", "1.0")
_WRONG = ("false", "0", "0.0")


def load_pool(
    frame: pd.DataFrame,
    *,
    prompt: str = "prompt",
    response: str = "response",
    correct: str = "correct",
    name: str = "pool",
    allow_missing: bool = False,
) -> pd.DataFrame:
    """Load the candidates of many prompts, for best of n.

    Parameters
    ----------
    frame : DataFrame
        One row per candidate: the columns below, and where they are there `id`,
        `domain`, `subset`, `benchmark`, and with scores `model` and `score`. A prompt
        may have any number of right and wrong candidates, also none of one kind.
    prompt : str
        The column of the prompt: its text or messages, or its name where the frame has
        no texts.
    response : str
        The column of the candidates' texts; it may be missing where there are scores.
    correct : str
        The column that says whether a candidate is right: true or false, 1 or 0.
    name : str
        Name of the benchmark and of its domain, where the frame does not say them.
    allow_missing : bool
        Whether missing scores pass. They are counted as missing later.

    Returns
    -------
    DataFrame
        Scores, where the frame has a column `score`, else responses to score. Right
        candidates are `chosen`, wrong ones `rejected`; `n_candidates` counts those of
        the prompt. Other columns stay, such as `answer`, `n_steps` and `characters`,
        which `best_of_curve` compares with; of scored texts only the length stays,
        as `characters`.

    Raises
    ------
    DataError
        For a column that is not there, and a candidate without prompt, correctness or
        score.

    Examples
    --------
    >>> frame = pd.DataFrame({"question": ["2 + 2?"] * 3, "text": ["4", "four", "5"]})
    >>> frame["right"] = [True, True, False]
    >>> pool = load_pool(frame, prompt="question", response="text", correct="right")
    >>> pool[["id", "label", "slot", "response", "n_candidates"]]
      id     label  slot response  n_candidates
    0  0    chosen     0        4             3
    1  0    chosen     1     four             3
    2  0  rejected     0        5             3
    """
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(
            f"frame: expected a pandas DataFrame, got {type(frame).__name__}"
        )
    is_scored = "score" in frame
    has_texts = response in frame
    _require_columns(frame, prompt, response, correct)

    frame = frame.reset_index(drop=True)
    is_right = _read_correct(frame[correct], correct)
    prompts = _name_prompts(frame[prompt], prompt)
    read = [column for column in (prompt, response, correct) if column != "id"]
    pool = frame.drop(columns=read, errors="ignore")
    pool["prompt"] = frame[prompt]
    pool["label"] = np.where(is_right, "chosen", "rejected")
    if has_texts:
        pool["response"] = frame[response]
    if "id" not in pool:
        numbers = pd.Series(pd.factorize(prompts)[0], dtype="str")
        pool["id"] = numbers if has_texts else prompts
    for column in ("benchmark", "domain"):
        if column not in pool:
            pool[column] = name

    key = [column for column in ("model", *PROMPT) if column in pool]
    pool["slot"] = pool.groupby([*key, "label"], sort=False).cumcount()
    pool[N_CANDIDATES] = pool.groupby(key, sort=False)["slot"].transform("size")
    if not is_scored:
        return tables.check_responses(pool)

    if has_texts:
        pool["characters"] = pool["response"].str.len()
    pool = pool.drop(columns=["prompt", "response"], errors="ignore")
    return tables.check_scores(pool, allow_missing=allow_missing)


def _require_columns(
    frame: pd.DataFrame, prompt: str, response: str, correct: str
) -> None:
    """DataError for a column that is not there."""
    needed = [prompt, correct]
    if "score" not in frame:
        needed.append(response)
    missing = [column for column in needed if column not in frame]
    present = ", ".join(str(name) for name in frame.columns[:20])
    if missing:
        problem = f"frame: no columns {missing}; columns: {present}"
        remedy = "name yours with prompt=, correct= and response=, or add a score"
        raise DataError(problem, remedy)
    if "score" in frame and "model" not in frame:
        problem = f"frame: scores without a column 'model'; columns: {present}"
        raise DataError(problem, "name it: frame['model'] = 'my-rm'")


def _read_correct(values: pd.Series, column: str) -> BoolArray:
    """Whether each candidate is right; DataError for a value that does not say so."""
    words = values.astype("str").str.strip().str.lower()
    is_right = words.isin(_RIGHT)
    is_unread = ~(is_right | words.isin(_WRONG)).to_numpy()
    if is_unread.any():
        row = int(is_unread.argmax())
        value = short(values.tolist()[row])
        count = f"{is_unread.sum()} of {len(values)} rows"
        problem = f"correct: {column!r} is not true or false in {count}"
        remedy = "write true or false, or 1 or 0"
        raise DataError(f"{problem}, first row {row}: {value}", remedy)
    return is_right.to_numpy()


def _name_prompts(prompts: pd.Series, column: str) -> pd.Series:
    """The prompts as strings; DataError where one is missing."""
    is_missing = prompts.isna().to_numpy()
    if is_missing.any():
        problem = f"prompt: {column!r} is missing in row {int(is_missing.argmax())}"
        raise DataError(problem, "fill it in")
    # Before pandas 3 columns of text are objects too.
    if pd.api.types.infer_dtype(prompts) == "string" or prompts.dtype != object:
        return prompts.astype("str")
    return prompts.map(lambda prompt: json.dumps(prompt, default=str)).astype("str")
