"""The three tables (responses, scores, pairs): their columns, their vocabularies and
the checks at the border.
"""

import json
from bisect import bisect_left
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.text import short

__all__ = ["DataError", "check_pairs", "check_responses", "check_scores"]

STYLES = ("concise", "plain", "markdown")
LEVELS = ("easy", "normal", "hard")
LABELS = ("chosen", "rejected")
OUTCOMES = ("loss", "tie", "win")

STYLE = pd.CategoricalDtype([*STYLES], ordered=True)
LEVEL = pd.CategoricalDtype([*LEVELS], ordered=True)
LABEL = pd.CategoricalDtype([*LABELS])
OUTCOME = pd.CategoricalDtype([*OUTCOMES], ordered=True)

KEY = ["benchmark", "domain", "id", "label", "slot"]
PROMPT = ["benchmark", "domain", "id"]
FAMILY = "family"
"""Column of custom data in which prompt texts repeat: their default cluster."""

RESPONSES = [*KEY, "subset", "style", "prompt", "response"]
SCORES = ["model", *KEY, "subset", "style", "score"]
ITEM = [*PROMPT, "chosen_slot", "rejected_slot"]
PAIR_KEY = ["model", *ITEM]
PAIRS = [
    *PAIR_KEY,
    "subset",
    "chosen_style",
    "rejected_style",
    "level",
    "margin",
    "outcome",
]

CLOSED = dict.fromkeys(("style", "chosen_style", "rejected_style"), STYLE)
CLOSED |= {"label": LABEL, "level": LEVEL, "outcome": OUTCOME}


class _Contract(NamedTuple):
    """The columns that a table needs, all that it has, and those of its key."""

    needed: list[str]
    columns: list[str]
    key: list[str]


_CONTRACT = {
    "responses": _Contract([*KEY, "prompt", "response"], RESPONSES, KEY),
    "scores": _Contract(["model", *KEY, "score"], SCORES, ["model", *KEY]),
    "pairs": _Contract(PAIR_KEY, PAIRS, PAIR_KEY),
}
_SOURCE = {
    "responses": "rmlab.load(...) or rmlab.load_preferences(...)",
    "scores": "rmlab.score(responses, ...) or rmlab.read_scores(...)",
    "pairs": "rmlab.pairs(scores)",
    "answers": "your own file: name its columns by prompt= and response=",
    "table": "rmlab.papers.published('rm-bench')",
}
_STRINGS = ("model", "benchmark", "domain", "id", "subset")
_MAX_SLOT = 10**9
_MOST_NAMES = 30  # that a message lists

IntArray = NDArray[np.intp]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class DataError(ValueError):
    """Data that rmlab cannot use.

    Parameters
    ----------
    problem : str
        The place, the value and what is allowed.
    remedy : str, optional
        The next step.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        if not self.remedy:
            return self.problem
        return f"{self.problem}; {self.remedy}"


def check_responses(frame: pd.DataFrame) -> pd.DataFrame:
    """Check a table of responses, one row per response text.

    Parameters
    ----------
    frame : DataFrame
        Key: benchmark, domain, id, label, slot. Also prompt (a string, or a list of
        messages with role and content) and response (a text; one message of the
        assistant, where it has more than its text; or a list of texts, the steps of a
        process model); subset (default: the domain) and style (default: missing) may be
        left out.

    Returns
    -------
    DataFrame
        A new frame with the columns in their order and types; extra columns follow.

    Raises
    ------
    DataError
        Naming the row, the column and the value.
    """
    frame = _check_columns(frame, "responses")
    is_text = [is_response(response) for response in frame["response"]]
    allowed = "a text, a message of the assistant, or a list of steps"
    _require(frame, is_text, "responses", "response", allowed)
    prompts = frame["prompt"]
    is_prompt = [
        isinstance(prompt, str) or is_conversation(prompt) for prompt in prompts
    ]
    allowed = "a string or a list of messages with 'role' and 'content'"
    _require(frame, is_prompt, "responses", "prompt", allowed)
    return frame


def check_scores(frame: pd.DataFrame, *, allow_missing: bool = False) -> pd.DataFrame:
    """Check a table of scores, one row per scored response of a model.

    Parameters
    ----------
    frame : DataFrame
        Key: model, benchmark, domain, id, label, slot. Also score; subset and style may
        be left out.
    allow_missing : bool
        Whether NaN scores pass. They are counted as missing later, never as a loss.

    Returns
    -------
    DataFrame
        A new frame with the columns in their order and types; extra columns follow.

    Raises
    ------
    DataError
        Naming the row, the column and the value. An infinite score always raises.
    """
    frame = _check_columns(frame, "scores")
    score = _numbers(frame, "score", "scores")
    _require(frame, ~np.isinf(score), "scores", "score", "a finite number")
    if not allow_missing:
        remedy = (
            "score these texts again, "
            "or pass allow_missing=True to count them as missing"
        )
        is_known = ~np.isnan(score)
        _require(frame, is_known, "scores", "score", "a finite number", remedy)
    return frame.assign(score=score)


def check_pairs(frame: pd.DataFrame) -> pd.DataFrame:
    """Check a table of pairs, one row per comparison of a chosen with a rejected answer
    by one model.

    Parameters
    ----------
    frame : DataFrame
        Key: model, benchmark, domain, id, chosen_slot, rejected_slot. Also margin (may
        be missing) or outcome (win, tie, loss or missing; taken from the margin where
        there is no such column); subset, chosen_style, rejected_style and level may be
        left out. The level follows from the styles where both are known.

    Returns
    -------
    DataFrame
        A new frame with the columns in their order and types; extra columns follow.

    Raises
    ------
    DataError
        Naming the row, the column and the value.
    """
    require_columns(frame, PAIR_KEY, "pairs")
    if "outcome" not in frame and "margin" not in frame:
        problem = "pairs: neither a column 'outcome' nor 'margin'"
        raise DataError(problem, "a comparison needs one of them")
    if "margin" in frame:
        margin = _numbers(frame, "margin", "pairs")
    else:
        margin = np.full(len(frame), np.nan)
    _require(frame, ~np.isinf(margin), "pairs", "margin", "a finite number")

    outcomes = frame.get("outcome", outcome(margin))
    frame = frame.assign(margin=margin, outcome=outcomes)
    frame = _check_columns(frame, "pairs")
    of_styles = level(frame["chosen_style"], frame["rejected_style"])
    from_styles = pd.Series(of_styles, index=frame.index)
    return frame.assign(level=from_styles.where(from_styles.notna(), frame["level"]))


def answer_index(frame: pd.DataFrame) -> pd.MultiIndex:
    """The keys of answers; labels as strings, as each table may have categories of its
    own.
    """
    return pd.MultiIndex.from_frame(frame[KEY].astype({"label": "str"}))


def check_match(scores: pd.DataFrame, responses: pd.DataFrame) -> None:
    """Raise unless every scored text is in `responses`.

    Parameters
    ----------
    scores, responses : DataFrame
        Tables that `check_scores` and `check_responses` have returned.

    Raises
    ------
    DataError
        Naming the first key (benchmark, domain, id, label, slot) without a text.
    """
    is_unmatched = ~answer_index(scores).isin(answer_index(responses))
    if is_unmatched.any():
        first = _values(scores, KEY, int(is_unmatched.argmax()))
        counts = f"{is_unmatched.sum()} of {len(scores)} rows"
        problem = f"scores: {counts} have no text in responses, first {first}"
        raise DataError(problem, "pass the responses that were scored")


def level(
    chosen_style: pd.Series | pd.Categorical, rejected_style: pd.Series | pd.Categorical
) -> pd.Categorical:
    """Difficulty of comparisons: hard where the chosen answer is plainer than the
    rejected one, easy where fancier.

    Parameters
    ----------
    chosen_style, rejected_style : Series or Categorical
        Styles of the two answers, one entry per comparison.

    Returns
    -------
    Categorical
        easy, normal or hard; missing where either style is missing.

    References
    ----------
    RM-Bench (arXiv 2410.16184), section 3; `scripts/utils.py` of its repository.

    Examples
    --------
    >>> styles = pd.Series(["concise", "plain", "markdown"], dtype=STYLE)
    >>> list(level(styles, styles[::-1]))
    ['hard', 'normal', 'easy']
    """
    chosen = pd.Categorical(chosen_style, dtype=STYLE).codes
    rejected = pd.Categorical(rejected_style, dtype=STYLE).codes
    codes = 1 + np.sign(rejected - chosen)
    codes[(chosen < 0) | (rejected < 0)] = -1
    return pd.Categorical.from_codes(codes, dtype=LEVEL)


def outcome(margin: NDArray[np.float64]) -> pd.Categorical:
    """Outcome of comparisons: win above zero, tie at zero, loss below, missing where
    NaN.
    """
    codes = 1 + (margin > 0).astype(np.int8) - (margin < 0).astype(np.int8)
    codes[np.isnan(margin)] = -1
    return pd.Categorical.from_codes(codes, dtype=OUTCOME)


def group_codes(
    frame: pd.DataFrame, columns: Sequence[str]
) -> tuple[IntArray, IntArray]:
    """Number the distinct combinations of values of some columns in order of
    appearance.

    Returns the number of each row, and the first row of each combination. A missing
    value is a value.

    >>> frame = pd.DataFrame({"domain": ["chat", "chat", "math", "chat"]})
    >>> group_codes(frame, ["domain"])
    (array([0, 0, 1, 0]), array([0, 2]))
    """
    distinct_rows = frame
    if "model" in frame and "model" not in columns:
        distinct_rows = first_copy(frame, columns)
    codes = pd.factorize(_combine_codes(distinct_rows, columns))[0]
    # Where the highest number so far rises, a combination appears.
    highest = np.maximum.accumulate(codes)
    first_rows = np.flatnonzero(np.diff(highest, prepend=-1))
    return np.resize(codes, len(frame)), first_rows


def first_copy(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The rows of the first model where all models have the same values of the columns
    in the same order, else all rows.

    In most tables all models have the same rows, and a check or a number of the first
    model's rows then holds for all models.
    """
    model = frame["model"].array
    if frame.empty or model[0] == model[-1]:
        return frame

    n_rows = bisect_left(
        range(len(frame)), True, lo=1, key=lambda row: bool(model[row] != model[0])
    )
    first_rows = np.arange(0, len(frame), n_rows)
    for column in columns:
        values = frame[column].array
        if column != "model" and not values[n_rows:].equals(values[:-n_rows]):
            return frame
    has_equal_blocks = model.equals(model.take(np.repeat(first_rows, n_rows)))
    if has_equal_blocks and frame["model"].iloc[first_rows].is_unique:
        return frame[:n_rows]
    return frame


def _combine_codes(
    frame: pd.DataFrame, columns: Sequence[str], codes: IntArray | None = None
) -> IntArray:
    """A number of each row, the same where `codes` and the values of the columns are
    the same.
    """
    codes = np.zeros(len(frame), np.intp) if codes is None else codes
    size = int(codes.max(initial=0)) + 1
    for column in columns:
        values, distinct = pd.factorize(frame[column], use_na_sentinel=False)
        if size * len(distinct) > np.iinfo(np.intp).max:
            codes, groups = pd.factorize(codes)
            size = len(groups)
        codes = codes * len(distinct) + values
        size *= len(distinct)
    return codes


def prompt_columns(frame: pd.DataFrame, contract: Sequence[str]) -> list[str]:
    """Columns beyond the contract's whose value is the same for all rows of a prompt
    (of each model).
    """
    candidates = frame.columns.difference([*contract, *RESPONSES], sort=False)
    if candidates.empty:
        return []
    prompt = [name for name in ("model", *PROMPT) if name in frame.columns]
    number = frame.groupby(prompt, sort=False, observed=True).ngroup()
    codes = np.asarray(number, np.intp)
    n_prompts = codes.max(initial=-1) + 1
    names = []
    for name in candidates:
        values = frame[name]
        if values.dtype == object and _is_nested(values):
            continue
        combinations = pd.unique(_combine_codes(frame, [name], codes))
        if len(combinations) == n_prompts:
            names.append(name)
    return names


def _is_nested(values: pd.Series) -> bool:
    return any(isinstance(value, list | dict | set) for value in values)


def default_cluster(frame: pd.DataFrame) -> list[str]:
    """Columns that name a cluster: the family, where custom data repeat their prompts,
    else the prompt.
    """
    return [FAMILY] if FAMILY in frame else PROMPT


def nearest(word: object, allowed: Sequence[str]) -> str:
    """List the allowed values for a message, with the nearest one where `word` looks
    like a slip.

    Parameters
    ----------
    word : object
        The value that is not allowed.
    allowed : sequence of str
        The values that are.

    Returns
    -------
    str
        Half a sentence.

    Examples
    --------
    >>> nearest("los", ["loss", "half"])
    "allowed: 'loss', 'half' (did you mean 'loss'?)"
    """
    listed = ", ".join(short(name) for name in allowed[:_MOST_NAMES])
    if len(allowed) > _MOST_NAMES:
        listed = f"{listed} and {len(allowed) - _MOST_NAMES} more"
    close = get_close_matches(str(word), list(allowed), n=1)
    if close:
        return f"allowed: {listed} (did you mean {short(close[0])}?)"
    return f"allowed: {listed}"


def check_option(argument: str, value: object, allowed: Sequence[str]) -> None:
    """Raise ValueError unless `value` is one of the allowed ones."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{argument}: {value!r}; {nearest(value, allowed)}")


def copy_provenance(source: pd.DataFrame, target: pd.DataFrame) -> pd.DataFrame:
    """Return `target` with the provenance of the scores or pairs in `source`, where
    they have one.
    """
    if "provenance" in source.attrs:
        target.attrs["provenance"] = source.attrs["provenance"]
    return target


def require_columns(frame: pd.DataFrame, columns: Sequence[str], table: str) -> None:
    """Raise unless `frame` is a DataFrame with the columns.

    Parameters
    ----------
    frame : DataFrame
        The table to look at.
    columns : sequence of str
        Columns that it must have.
    table : str
        "responses", "scores", "pairs" or "table" (a leaderboard of RM-Bench), for the
        message.

    Raises
    ------
    TypeError
        If `frame` is not a DataFrame.
    DataError
        Naming the missing columns.
    """
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(
            f"{table}: expected a pandas DataFrame, got {type(frame).__name__}"
        )
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        present = ", ".join(str(name) for name in frame.columns[:20])
        problem = f"{table}: missing columns {missing}; present: {present}"
        raise DataError(problem, f"it comes from {_SOURCE[table]}")


def is_conversation(prompt: object) -> bool:
    """Whether a prompt is a non-empty list of messages."""
    if not isinstance(prompt, list) or not prompt:
        return False
    return all(is_message(message) for message in prompt)


def is_message(message: object) -> bool:
    """Whether a value is a message: a role and a content, which may be None beside
    other fields, such as tool calls.
    """
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return False
    content = message.get("content")
    if content is None:
        return len(message.keys() - {"role", "content"}) > 0
    return isinstance(content, str)


def is_response(response: object) -> bool:
    """Whether a value is a response: a text that is not blank, the steps of one, or a
    message of the assistant that holds more than its text.
    """
    if isinstance(response, str):
        return response.strip() != ""
    if isinstance(response, list):
        return bool(response) and all(
            isinstance(step, str) and step.strip() for step in response
        )
    if not isinstance(response, dict):
        return False
    return is_message(response) and response["role"] == "assistant"


def response_text(response: object) -> str:
    """The text of a response: of a message its content, of steps all of them.

    >>> response_text({"role": "assistant", "content": None, "tool_calls": []})
    ''
    >>> response_text(["One.", "Two."]).split()
    ['One.', 'Two.']
    """
    if isinstance(response, list):
        return "\n\n".join(response)
    if isinstance(response, dict):
        return response.get("content") or ""
    return str(response)


def require_text(argument: str, value: object) -> None:
    """Raise DataError for a name that UTF-8 cannot hold."""
    if is_broken(value):
        problem = f"{argument}: {short(value)} holds half of a surrogate pair"
        raise DataError(problem, "repair the text")


def is_broken(value: object) -> bool:
    """Whether UTF-8 cannot hold a text, or the texts inside lists and mappings: half of
    a surrogate pair.
    """
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return True
    return False


def refuse_repeats(frame: pd.DataFrame, key: list[str], table: str) -> None:
    """Raise DataError where rows repeat a key."""
    if len(group_codes(frame, key)[1]) < len(frame):
        is_repeat = frame.duplicated(key).to_numpy()
        first = _values(frame, key, int(is_repeat.argmax()))
        problem = f"{table}: {is_repeat.sum()} rows repeat a key, first {first}"
        raise DataError(problem, "number the slots or drop copies")


def _check_columns(frame: pd.DataFrame, table: str) -> pd.DataFrame:
    """New frame with the contract's order and types of columns; DataError where rows
    repeat a key.
    """
    needed, columns, key = _CONTRACT[table]
    require_columns(frame, needed, table)
    unknown = pd.Series(pd.NA, index=frame.index)
    absent = {}
    for column in columns:
        if column not in frame:
            absent[column] = frame["domain"] if column == "subset" else unknown
    extra = [column for column in frame if column not in columns]
    frame = frame.assign(**absent)[[*columns, *extra]].reset_index(drop=True)
    typed = {column: _type_column(frame, column, table) for column in columns}
    frame = frame.assign(**typed)

    rows = frame
    if "model" in key:
        numbers = {"score", "margin", "outcome"}
        rows = first_copy(frame, [name for name in columns if name not in numbers])
    codes = np.sort(_combine_codes(rows, key), kind="stable")
    if (codes[1:] == codes[:-1]).any():
        refuse_repeats(frame, key, table)
    return frame


def _type_column(frame: pd.DataFrame, column: str, table: str) -> pd.Series:
    """A column of a contract as its type; DataError names its first wrong value."""
    values = frame[column]
    is_object = values.dtype == object
    if is_object and (column in CLOSED or column in _STRINGS):
        is_scalar = [pd.api.types.is_scalar(value) for value in values]
        _require(frame, is_scalar, table, column, "a text or a number")
    if is_object and column not in CLOSED and is_broken(values.tolist()):
        is_text = [not is_broken(value) for value in values]
        _require(frame, is_text, table, column, "text that UTF-8 can hold")

    if column in CLOSED:
        return _type_closed(frame, column, table)
    if column.endswith("slot"):
        slots = _numbers(frame, column, table)
        is_slot = (slots >= 0) & (slots <= _MAX_SLOT) & (slots == np.floor(slots))
        _require(frame, is_slot, table, column, "a whole number from 0")
        return pd.Series(slots.astype("int64"), index=frame.index)
    if column in _STRINGS and (values.dtype != "str" or values.hasnans):
        _require(frame, values.notna().to_numpy(), table, column, "given")
        return values.astype("str")
    return values


def _type_closed(frame: pd.DataFrame, column: str, table: str) -> pd.Series:
    """A column of a closed vocabulary as its categorical type; a label is never
    missing.
    """
    values = frame[column]
    dtype = CLOSED[column]
    if column == "label":
        has_order = values.dtype == LABEL and list(values.cat.categories) == [*LABELS]
        if has_order and not values.hasnans:
            return values
    elif values.dtype == dtype:
        return values

    codes = dtype.categories.get_indexer(pd.Index(values))
    is_allowed = codes >= 0
    if column != "label":
        is_allowed |= values.isna().to_numpy()
    allowed = f"one of {', '.join(dtype.categories)}"
    _require(frame, is_allowed, table, column, allowed)
    return pd.Series(pd.Categorical.from_codes(codes, dtype=dtype), index=frame.index)


def _numbers(frame: pd.DataFrame, column: str, table: str) -> FloatArray:
    """A column as floats, NaN where missing; DataError where it is not a number."""
    values = frame[column]
    if not pd.api.types.is_numeric_dtype(values.dtype):
        # As texts, since integers beyond the floats would raise OverflowError.
        texts = values.astype("str").where(values.notna()).str.strip()
        numbers = pd.to_numeric(texts, errors="coerce")
        is_number = numbers.notna() | texts.isna() | (texts.str.lower() == "nan")
        _require(frame, is_number.to_numpy(bool), table, column, "a number")
        # Not `numbers`: pandas 3.0 rounds their last digit.
        values = texts.where(numbers.notna())
    return np.asarray(values.astype("float64"), np.float64)


def _require(
    frame: pd.DataFrame,
    is_good: BoolArray | Sequence[bool],
    table: str,
    column: str,
    allowed: str,
    remedy: str = "repair it",
) -> None:
    """Raise DataError naming the first row that is not good by its key."""
    is_bad = ~np.asarray(is_good, bool)
    if not is_bad.any():
        return
    row = int(is_bad.argmax())
    key = [name for name in ("model", *KEY) if name in frame.columns and name != column]
    place = f"first row {row} {_values(frame, key, row)}"
    value = short(_values(frame, [column], row)[column])
    counts = f"{is_bad.sum()} of {len(frame)} rows"
    problem = f"{table}: {column} is not {allowed} in {counts}, {place}"
    raise DataError(f"{problem}, which has {value}", remedy)


def _values(frame: pd.DataFrame, columns: Sequence[str], row: int) -> dict[str, object]:
    """Values of one row as plain Python objects, for messages."""
    values: dict[str, object] = {}
    for column in columns:
        value = frame[column].iloc[row]
        values[column] = value.item() if isinstance(value, np.generic) else value
    return values
