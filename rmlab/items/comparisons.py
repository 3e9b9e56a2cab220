"""Comparisons as items: scores to pairs, and what each comparison earns."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import keys, tables
from rmlab.items.columns import allowed, codes
from rmlab.items.grid import MISSING, Items, spread
from rmlab.tables import PAIR_KEY, PROMPT, DataError

__all__ = ["ITEM", "Ties", "comparison_items", "credit", "pairs"]

Ties = Literal["loss", "half", "drop"]

ITEM = [*PROMPT, "chosen_slot", "rejected_slot"]
_STRINGS = ["model", *PROMPT, "subset"]
_CREDIT = {"loss": 0.0, "half": 0.5, "drop": np.nan}
_DESCRIBING = ["subset", "chosen_style", "rejected_style", "level"]


def pairs(scores: pd.DataFrame) -> pd.DataFrame:
    """Compare every chosen with every rejected answer of a prompt: one row per model, prompt, chosen and rejected.

    Columns: model, benchmark, domain, id, chosen_slot, rejected_slot, subset, chosen_style, rejected_style, level,
    margin (score of the chosen minus score of the rejected) and outcome (win, tie, loss; missing where a score is).
    A prompt with n chosen and m rejected answers gives n * m rows. Raises DataError where a prompt of a model has
    answers of one label only.
    """
    compared = _compared(tables.check_scores(scores, allow_missing=True))
    starts = keys.starts_of(compared["model"].cat.codes.to_numpy())  # one model's ids are mostly the next one's, too
    strings = {c: keys.decoded(keys.coded(compared[c]), starts) for c in _STRINGS}
    return compared.assign(**strings)


def _compared(scores: pd.DataFrame) -> pd.DataFrame:
    """`pairs` of checked scores with their strings as categoricals: 28 bytes a comparison instead of 108."""
    group, _ = keys.number(scores, ["model", *PROMPT])
    chosen = (scores["label"].cat.codes == tables.LABELS.index("chosen")).to_numpy()
    left, right = _cross(group, chosen, scores)
    slot, score = (scores[c].to_numpy() for c in ("slot", "score"))
    style = scores["style"].array
    with np.errstate(over="ignore"):  # finite scores may lie further apart than a float reaches: refused below
        margin = score[left]
        margin -= score[right]
    sides = {f"{label}_style": style[rows] for label, rows in (("chosen", left), ("rejected", right))}
    columns: dict[str, object] = {c: keys.packed(keys.coded(scores[c]), left) for c in ("model", *PROMPT, "subset")}
    columns |= {"chosen_slot": slot[left], "rejected_slot": slot[right]} | sides | {"margin": margin}
    columns |= {"level": tables.level(sides["chosen_style"], sides["rejected_style"])}
    columns |= {"outcome": tables.outcome(margin)}
    frame = pd.DataFrame({c: columns[c] for c in tables.PAIRS}, copy=False)  # assigned one by one they would be copied
    _refuse_infinite(frame, margin)
    return frame


def credit(pairs: pd.DataFrame, *, ties: Ties = "loss") -> NDArray[np.float64]:
    """What each comparison earns: win 1, loss 0, tie by policy ("loss" 0, "half" 0.5, "drop" NaN), missing NaN."""
    return _earned(ties)[codes(pairs, "outcome", tables.OUTCOME, allow_missing=True)]


def comparison_items(
    table: pd.DataFrame, credit: str = "loss", *, describing: Sequence[str] = (), cluster: Sequence[str] = PROMPT
) -> Items:
    """Items that are comparisons, from scores or pairs: credit 1 for a win, 0 for a loss, a tie as `credit` says.

    `describing` names further columns of the pairs that every model has alike, such as `source`.
    """
    compared = _compared(tables.check_scores(table, allow_missing=True)) if _has_scores(table) else as_pairs(table)
    _refuse_empty(compared)
    outcome = codes(compared, "outcome", tables.OUTCOME, allow_missing=True).astype(np.int8)
    return spread(
        compared,
        key=ITEM,
        outcome=outcome,
        credit=_earned(credit)[outcome],
        cluster=cluster,
        describing=[*_DESCRIBING, *describing],
    )


def as_pairs(table: pd.DataFrame) -> pd.DataFrame:
    """A table of scores or pairs as pairs; raises DataError where it has no rows."""
    if _has_scores(table):
        table = pairs(table)
    elif not _is_typed(table):
        table = tables.check_pairs(table)
    _refuse_empty(table)
    return table


def _has_scores(table: pd.DataFrame) -> bool:
    return isinstance(table, pd.DataFrame) and "score" in table.columns and "outcome" not in table.columns


def _refuse_empty(table: pd.DataFrame) -> None:
    if table.empty:
        raise DataError("table: no rows, so there is nothing to measure; look at what the rows were selected by")


def _is_typed(table: pd.DataFrame) -> bool:
    """Whether a table has the columns and types that `pairs` gives, so that its checks need not run again."""
    if not isinstance(table, pd.DataFrame) or not {*tables.PAIRS} <= set(table.columns):
        return False
    closed = all(table[c].dtype == tables.CLOSED[c] for c in tables.PAIRS if c in tables.CLOSED)
    strings = all(table[c].dtype == "str" and not table[c].hasnans for c in ("model", *PROMPT, "subset"))
    return (
        closed and strings and all(table[c].dtype == "int64" for c in PAIR_KEY[4:]) and table["margin"].dtype == float
    )


def _refuse_infinite(frame: pd.DataFrame, margin: NDArray[np.float64]) -> None:
    infinite = np.isinf(margin)
    if infinite.any():
        row = frame.loc[int(infinite.argmax()), [*PAIR_KEY]].to_dict()
        raise DataError(
            f"scores: {int(infinite.sum())} margins are beyond 1.8e308, first {row}; such scores are as good as "
            "infinite: score these texts again, or divide all scores of the model by one number"
        )


def _earned(ties: str) -> NDArray[np.float64]:
    """Credit of an outcome's code: loss, tie, win, and at -1 missing."""
    earned = np.array([0.0, _CREDIT[allowed("ties", ties, tuple(_CREDIT))], 1.0, 0.0])
    earned[MISSING] = np.nan
    return earned


def _cross(
    group: NDArray[np.intp], chosen: NDArray[np.bool_], scores: pd.DataFrame
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Row numbers (chosen, rejected) of every chosen x rejected within a group, in the order of the scores."""
    left, right = np.flatnonzero(chosen), np.flatnonzero(~chosen)
    right = right[np.argsort(group[right], kind="stable")]
    size = int(group.max(initial=-1)) + 1
    n_chosen, n_rejected = np.bincount(group[left], minlength=size), np.bincount(group[right], minlength=size)
    lonely = (n_chosen == 0) | (n_rejected == 0)
    if lonely.any():
        row = scores.loc[lonely[group], ["model", *PROMPT, "label"]].iloc[0].to_dict()
        raise DataError(
            f"scores: {int(lonely.sum())} prompts have answers of one label only, first {row}; "
            "a comparison needs a chosen and a rejected answer: score both"
        )
    start = (np.cumsum(n_rejected) - n_rejected)[group[left]]
    repeats = n_rejected[group[left]]
    most = int(repeats.max(initial=0))
    if (repeats == most).all():  # as nearly always: a rectangle, in half the time
        return np.repeat(left, most), right[(start[:, None] + np.arange(most)).ravel()]
    # The place of each comparison's rejected answer: the prompt's first one, and on from there.
    place = np.repeat(start - (np.cumsum(repeats) - repeats), repeats)
    place += np.arange(len(place))
    return np.repeat(left, repeats), right[place]
