"""The three tables (responses, scores, pairs): their columns, their vocabularies and
the checks at the border.
"""

import json
from bisect import bisect_left
from collections.abc import Sequence
from difflib import get_close_matches

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
_CONTRACT = {  # needed columns, all columns, key
    "responses": ([*KEY, "prompt", "response"], RESPONSES, KEY),
    "scores": (["model", *KEY, "score"], SCORES, ["model", *KEY]),
    "pairs": (PAIR_KEY, PAIRS, PAIR_KEY),
}
_SOURCE = {
    "responses": "rmlab.load(...) or rmlab.load_pairs(...)",
    "scores": "rmlab.score(responses, ...) or rmlab.read_scores(...)",
    "pairs": "rmlab.pairs(scores)",
    "table": "rmlab.papers.published('rm-bench')",
}
_STRINGS = ("model", "benchmark", "domain", "id", "subset")
_MAX_SLOT = 10**9

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
        messages with role and content) and response (a non-empty string); subset
        (default: the domain) and style (default: missing) may be left out.

    Returns
    -------
    DataFrame
        A new frame with the columns in their order and types; extra columns follow.

    Raises
    ------
    DataError
        Naming the row, the column and the value.
    """
    frame, _ = _check_columns(frame, "responses")
    is_text = np.array(
        [isinstance(text, str) and text != "" for text in frame["response"]], bool
    )
    _refuse(frame, ~is_text, "responses", "response", "a non-empty string")
    is_prompt = np.array(
        [
            isinstance(prompt, str) or is_conversation(prompt)
            for prompt in frame["prompt"]
        ],
        bool,
    )
    _refuse(
        frame,
        ~is_prompt,
        "responses",
        "prompt",
        "a string or a list of messages with 'role' and 'content'",
    )
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
    return number_prompts(frame, allow_missing=allow_missing)[0]


def number_prompts(
    frame: pd.DataFrame, *, allow_missing: bool = False
) -> tuple[pd.DataFrame, IntArray]:
    """Check a table of scores as `check_scores` does, and number the prompts of the
    rows up to `rows_per_model`.
    """
    frame, prompt = _check_columns(frame, "scores")
    score = _numbers(frame, "score", "scores")
    _refuse(frame, np.isinf(score), "scores", "score", "a finite number")
    if not allow_missing:
        hint = "Score these texts again, or pass allow_missing=True to count them as missing."
        _refuse(frame, np.isnan(score), "scores", "score", "a finite number", hint)
    return frame.assign(score=score), pd.factorize(prompt)[0]


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
        raise DataError(
            "pairs: neither a column 'outcome' nor 'margin'. A comparison needs one of them."
        )
    margin = (
        _numbers(frame, "margin", "pairs")
        if "margin" in frame
        else np.full(len(frame), np.nan)
    )
    _refuse(frame, np.isinf(margin), "pairs", "margin", "a finite number")
    frame, _ = _check_columns(
        frame.assign(margin=margin, outcome=frame.get("outcome", outcome(margin))),
        "pairs",
    )
    from_styles = pd.Series(
        level(frame["chosen_style"], frame["rejected_style"]), index=frame.index
    )
    return frame.assign(level=from_styles.where(from_styles.notna(), frame["level"]))


def check_match(scores: pd.DataFrame, responses: pd.DataFrame) -> None:
    """Raise unless every scored text stands in `responses`.

    Parameters
    ----------
    scores, responses : DataFrame
        Tables that `check_scores` and `check_responses` have returned.

    Raises
    ------
    DataError
        Naming the first key (benchmark, domain, id, label, slot) without a text.
    """
    keys = [
        pd.MultiIndex.from_frame(table[KEY].astype({"label": "str"}))
        for table in (scores, responses)
    ]
    unmatched = ~keys[0].isin(keys[1])
    if unmatched.any():
        key = _values(scores, KEY, int(unmatched.argmax()))
        message = f"scores: {unmatched.sum()} of {len(scores)} rows have no text in responses, first {key}."
        raise DataError(f"{message} Pass the responses that were scored.")


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
    chosen, rejected = (
        pd.Categorical(styles, dtype=STYLE).codes
        for styles in (chosen_style, rejected_style)
    )
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

    >>> group_codes(pd.DataFrame({"domain": ["chat", "chat", "math", "chat"]}), ["domain"])
    (array([0, 0, 1, 0]), array([0, 2]))
    """
    n_rows = len(frame) if "model" in columns else rows_per_model(frame, columns)
    codes = pd.factorize(_combine_codes(frame[:n_rows], columns))[0]
    return np.resize(codes, len(frame)), np.flatnonzero(
        np.diff(np.maximum.accumulate(codes), prepend=-1)
    )


def rows_per_model(frame: pd.DataFrame, columns: Sequence[str]) -> int:
    """Rows of each model where all have the same values of the columns in the same
    order, else those of the table.

    Most tables are such, and what is checked or numbered in the first model's rows then
    holds for all models.
    """
    if (
        "model" not in frame
        or frame.empty
        or frame["model"].iloc[0] == frame["model"].iloc[-1]
    ):
        return max(len(frame), 1)
    model = frame["model"].array
    n_rows = bisect_left(
        range(len(frame)), True, lo=1, key=lambda row: bool(model[row] != model[0])
    )
    starts = np.arange(0, len(frame), n_rows)
    arrays = [frame[column].array for column in columns if column != "model"]
    is_repeated = all(values[n_rows:].equals(values[:-n_rows]) for values in arrays)
    is_repeated = is_repeated and model.equals(model.take(np.repeat(starts, n_rows)))
    return (
        n_rows if is_repeated and frame["model"].iloc[starts].is_unique else len(frame)
    )


def _combine_codes(
    frame: pd.DataFrame, columns: Sequence[str], codes: IntArray | None = None
) -> IntArray:
    """A number of each row, the same where `codes` and the values of the columns are
    the same.
    """
    codes = np.zeros(len(frame), np.intp) if codes is None else codes
    size = int(codes.max(initial=0)) + 1
    for column in columns:
        values, distinct = pd.factorize(frame[column].array, use_na_sentinel=False)
        if size * len(distinct) > np.iinfo(np.intp).max:
            codes, groups = pd.factorize(codes)
            size = len(groups)
        codes, size = codes * len(distinct) + values, size * len(distinct)
    return codes


def prompt_columns(frame: pd.DataFrame, contract: Sequence[str]) -> list[str]:
    """Columns beyond the contract's whose value is the same for all rows of a prompt
    (of each model).
    """
    candidates = frame.columns.difference([*contract, *RESPONSES], sort=False)
    if candidates.empty:
        return []
    codes, first_rows = group_codes(
        frame, [column for column in ("model", *PROMPT) if column in frame.columns]
    )
    names = []
    for name in candidates:
        values = frame[name]
        is_nested = (
            values.dtype == object
            and values.map(lambda value: isinstance(value, list | dict | set)).any()
        )
        if not is_nested and len(
            pd.unique(_combine_codes(frame, [name], codes))
        ) == len(first_rows):
            names.append(name)
    return names


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
    close = get_close_matches(str(word), list(allowed), n=1)
    listed = ", ".join(map(short, list(allowed)[:30])) + (
        f" and {len(allowed) - 30} more" if len(allowed) > 30 else ""
    )
    return f"allowed: {listed}" + (
        f" (did you mean {short(close[0])}?)" if close else ""
    )


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
    missing = [c for c in columns if c not in frame.columns]
    if missing:
        present = ", ".join(map(str, list(frame.columns)[:20]))
        raise DataError(
            f"{table}: missing columns {missing}; present: {present}. It comes from {_SOURCE[table]}."
        )


def is_conversation(prompt: object) -> bool:
    """Whether a prompt is a non-empty list of messages with a role and a content."""
    if not isinstance(prompt, list) or not prompt:
        return False
    return all(
        isinstance(m, dict)
        and all(isinstance(m.get(k), str) for k in ("role", "content"))
        for m in prompt
    )


def require_text(argument: str, value: object) -> None:
    """Raise DataError for a name that UTF-8 cannot hold."""
    if is_broken(value):
        raise DataError(
            f"{argument}: {short(value)} holds half of a surrogate pair. Repair the text."
        )


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
        repeated = frame.duplicated(key).to_numpy()
        first = _values(frame, key, int(repeated.argmax()))
        raise DataError(
            f"{table}: {repeated.sum()} rows repeat a key, first {first}. Number the slots or drop copies."
        )


def _check_columns(frame: pd.DataFrame, table: str) -> tuple[pd.DataFrame, IntArray]:
    """New frame with the contract's order and types of columns, and a code of each
    row's prompt and model.
    """
    needed, columns, key = _CONTRACT[table]
    require_columns(frame, needed, table)
    unknown = pd.Series(pd.NA, index=frame.index)  # styles and levels
    absent = {
        c: frame["domain"] if c == "subset" else unknown
        for c in columns
        if c not in frame
    }
    frame = frame.assign(**absent)[
        [*columns, *(c for c in frame if c not in columns)]
    ].reset_index(drop=True)
    typed: dict[str, pd.Series] = {}
    for column in columns:
        values = frame[column]
        is_label = (
            values.dtype == LABEL
            and tuple(values.cat.categories) == LABELS
            and not values.hasnans
        )
        if values.dtype == object and (column in CLOSED or column in _STRINGS):
            is_scalar = values.map(pd.api.types.is_scalar).to_numpy(bool)
            _refuse(frame, ~is_scalar, table, column, "a text or a number")
        if (
            values.dtype == object and column not in CLOSED
        ):  # columns of strings hold UTF-8 only
            _refuse(
                frame,
                values.map(is_broken).to_numpy(bool),
                table,
                column,
                "text that UTF-8 can hold",
            )
        if column in CLOSED and (
            values.dtype != CLOSED[column] or (column == "label" and not is_label)
        ):
            dtype = CLOSED[column]
            codes = dtype.categories.get_indexer(pd.Index(values))
            is_wrong = (codes < 0) & ((column == "label") | values.notna().to_numpy())
            _refuse(
                frame, is_wrong, table, column, f"one of {', '.join(dtype.categories)}"
            )
            typed[column] = pd.Series(
                pd.Categorical.from_codes(codes, dtype=dtype), index=frame.index
            )
        elif column in _STRINGS and (values.dtype != "str" or values.hasnans):
            _refuse(frame, values.isna().to_numpy(), table, column, "given")
            typed[column] = values.astype("str")
        elif column.endswith("slot"):
            slots = _numbers(frame, column, table)
            is_slot = (slots >= 0) & (slots <= _MAX_SLOT) & (slots == np.floor(slots))
            _refuse(frame, ~is_slot, table, column, "a whole number from 0")
            typed[column] = pd.Series(slots.astype("int64"), index=frame.index)
    frame = frame.assign(**typed)
    described = [
        column for column in columns if column not in ("score", "margin", "outcome")
    ]
    first_model = frame[: rows_per_model(frame, described)] if "model" in key else frame
    prompt = _combine_codes(first_model, key[:-2])
    in_order = np.sort(_combine_codes(first_model, key[-2:], prompt), kind="stable")
    if (in_order[1:] == in_order[:-1]).any():
        refuse_repeats(frame, key, table)
    return frame, prompt


def _numbers(frame: pd.DataFrame, column: str, table: str) -> NDArray[np.float64]:
    """A column as floats, NaN where missing; a value that is not a number is refused."""
    values = frame[column]
    if not pd.api.types.is_numeric_dtype(values.dtype):
        texts = values.astype(
            "str"
        ).str.strip()  # integers beyond the floats would raise OverflowError
        numbers = pd.to_numeric(
            texts, errors="coerce"
        )  # pandas 3.0 rounds the last digit
        is_number = numbers.notna() | texts.isna() | (texts.str.lower() == "nan")
        _refuse(frame, ~is_number.to_numpy(bool), table, column, "a number")
        values = texts.where(numbers.notna())
    return np.asarray(values.astype("float64"), np.float64)


def _refuse(
    frame: pd.DataFrame,
    bad: NDArray[np.bool_],
    table: str,
    column: str,
    allowed: str,
    hint: str = "Repair it.",
) -> None:
    """Raise DataError naming the first bad row by its key, unless no row is bad."""
    if not bad.any():
        return
    row = int(bad.argmax())
    key = _values(
        frame, [c for c in ("model", *KEY) if c in frame.columns and c != column], row
    )
    value = short(_values(frame, [column], row)[column])
    message = f"{table}: {column} is not {allowed} in {bad.sum()} of {len(frame)} rows, first row {row} {key}"
    raise DataError(f"{message}, which has {value}. {hint}")


def _values(frame: pd.DataFrame, columns: Sequence[str], row: int) -> dict[str, object]:
    """Values of one row as plain Python objects, for messages."""
    values = {c: frame[c].iloc[row] for c in columns}
    return {
        c: value.item() if isinstance(value, np.generic) else value
        for c, value in values.items()
    }
