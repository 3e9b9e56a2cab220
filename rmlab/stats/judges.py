"""How reliable a judge is: what moves its verdicts that should not, each with an interval, a test, and what the run
could have found."""

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.items.grid import LOSS, TIE, WIN, spread
from rmlab.items.weighting import Number
from rmlab.metrics.estimate import estimate
from rmlab.stats.difference import differences, holm
from rmlab.stats.power import exact_power
from rmlab.tables import PROMPT, DataError

__all__ = ["judge_report"]

Floats = NDArray[np.float64]

_COLUMNS = ["model", *PROMPT, "condition", "order", "sample", "vote", "status"]
_HALVINGS = 20  # of the effects from 0 to 1: to 1e-6
_ALONE = "alone"  # the order of a judge that is shown one answer at a time


class _Effect(NamedTuple):
    """An effect, prompt by prompt: `value` minus `baseline`, both from 0 to 1, NaN where a prompt says nothing.

    `share`: the plain share that people quote. `reason`: why there is none.
    """

    value: pd.Series
    baseline: pd.Series
    share: float
    reason: str = ""


def judge_report(
    judgements: pd.DataFrame, *, confidence: float = 0.95, alpha: float = 0.05, power: float = 0.8
) -> pd.DataFrame:
    """How far a judge can be trusted: one row per model and probe.

    `judgements`: what `rmlab.judges.examine` returns. Columns: model, probe, share (the plain share, see below), effect
    (what is tested: 0 for a judge without this fault), se, low, high (clustered by prompt), p, p_holm (adjusted over
    the probes of a model), detectable (the smallest effect that this run would have found with probability `power` at
    alpha over the number of probes), n_prompts, missing (prompts without a verdict that the probe needs), reason.

    - position: share and effect are how much more often an answer wins where it is shown first (1: the order decides
      alone; negative: the second place is favoured).
    - swap: share of comparisons whose winner changes with the order. The effect counts the changes that neither a lean
      to one place nor chance explains: those towards the less favoured place, minus half the share of contradictions
      between samples.
    - samples: share of contradictions between two answers to the same question.
    - cycles: share of triples of answers in which A beats B, B beats C and C beats A, among those whose three verdicts
      hold in both orders.
    - padding, markdown: how much more often an answer wins where it, and not the other one, is padded or marked up.
    - wording: share of comparisons whose winner changes with the words of the question; the effect is what goes beyond
      contradictions between samples.
    - unreadable: share of answers without a verdict.

    A judge that rates answers one by one has no position, swap and cycles, and the reason says so; its verdict is which
    of two answers it rates higher, unreadable where one of the ratings is.

    A test is that of `compare`: McNemar's, or Student's t with CR2 errors where several answers make up a prompt's
    number; the interval excludes 0 exactly where p < 1 - confidence. Raises DataError for a table that lacks columns.
    """
    missing = [column for column in _COLUMNS if column not in judgements.columns]
    if missing:
        raise DataError(
            f"judgements: missing columns {missing}; such a table comes from rmlab.judges.examine(judge, ...)"
        )
    parts = [
        _of_model(str(model), own, confidence, alpha, power)
        for model, own in judgements.groupby("model", sort=False, observed=True)
    ]
    if not parts:
        raise DataError("judgements: no rows; give what rmlab.judges.examine(judge, responses) returned")
    return pd.concat(parts, ignore_index=True)


def _of_model(model: str, table: pd.DataFrame, confidence: float, alpha: float, power: float) -> pd.DataFrame:
    asked = _Asked(table)
    # `detectable` is planned at the first and hardest step of Holm's adjustment over the probes.
    rows = [_row(make(asked), confidence, alpha / len(_PROBES), power) for make in _PROBES.values()]
    frame = pd.DataFrame(rows)
    frame = frame.assign(p_holm=holm(frame["p"].to_numpy(float)), model=model, probe=list(_PROBES))
    order = ["model", "probe", "share", "effect", "se", "low", "high", "p", "p_holm", "detectable", "n_prompts"]
    return frame[[*order, "missing", "reason"]].astype({"model": "str", "probe": "str", "reason": "str"})


class _Asked:
    """The votes of one model: one column per condition, order and sample, one row per prompt."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.status = table.assign(silent=(table["status"] != "read").astype(float)).groupby(PROMPT, sort=False)[
            "silent"
        ]
        key = [table[column] for column in PROMPT]
        # Votes are 1 for the left answer, -1 for the right one, 0 for a draw; one per key, so "first" chooses nothing.
        wide = table.pivot_table(
            index=PROMPT, columns=["condition", "order", "sample"], values="vote", aggfunc="first", dropna=False,
            observed=True, sort=False,
        )  # fmt: skip
        self.prompts = pd.MultiIndex.from_arrays(key, names=PROMPT).unique()
        # A pivot has every combination; only those that were asked are columns of their own.
        asked = pd.MultiIndex.from_frame(table[["condition", "order", "sample"]]).unique()
        self.votes = wide.reindex(self.prompts)[wide.columns[wide.columns.isin(asked)]]
        self.orders = ("first", "second") if set(table["order"]) != {_ALONE} else (_ALONE,)

    def each(self, condition: str, order: str) -> list[pd.Series]:
        """Votes of every sample of a condition in one order."""
        found = self.votes.columns[
            (self.votes.columns.get_level_values("condition") == condition)
            & (self.votes.columns.get_level_values("order") == order)
        ]
        return [self.votes[column] for column in found]

    def mean(self, condition: str, order: str | None = None) -> pd.Series:
        """Mean vote of a condition in one order, or over both; missing where either has none."""
        if order is None:
            every = [self.mean(condition, one) for one in self.orders]
            # A sum, not a mean that skips: over both orders only where both have a vote.
            return sum(every[1:], start=every[0]) / len(every)
        found = self.each(condition, order)
        if not found:
            return pd.Series(np.nan, index=self.prompts)
        return pd.concat(found, axis=1).mean(axis=1)

    def noise(self) -> pd.Series:
        """How often two answers to one question contradict one another; 0 where each was answered once."""
        both = [self.each("as is", order) for order in self.orders]
        pairs = [_against(one, other) for every in both for one, other in combinations(every, 2)]
        return pd.concat(pairs, axis=1).mean(axis=1) if pairs else pd.Series(0.0, index=self.prompts)


def _against(one: pd.Series, other: pd.Series) -> pd.Series:
    """1 where two votes name different winners, 0 where they do not, missing where either is."""
    return (one * other < 0).astype(float).where(one.notna() & other.notna())  # a draw contradicts nothing


_NO_ORDER = "does not apply: answers are rated one by one, and none is shown first"


def _position(asked: _Asked) -> _Effect:
    if asked.orders == (_ALONE,):
        return _nothing(asked, _NO_ORDER)
    first, second = (_credit(asked.mean("as is", order)) for order in ("first", "second"))
    return _Effect(first, second, float((first - second).mean()))


def _swap(asked: _Asked) -> _Effect:
    if asked.orders == (_ALONE,):
        return _nothing(asked, _NO_ORDER)
    # The left answer shown first: a vote for it is a vote for the first place; shown second, one against it is.
    pairs = [(a, b) for a in asked.each("as is", "first") for b in asked.each("as is", "second")]
    if not pairs:
        return _nothing(asked, "not asked")
    # (prompts, pairs of samples): the winner went with the place.
    to_first = pd.concat([((a > 0) & (b < 0)).astype(float).where(a.notna() & b.notna()) for a, b in pairs], axis=1)
    to_second = pd.concat([((a < 0) & (b > 0)).astype(float).where(a.notna() & b.notna()) for a, b in pairs], axis=1)
    first, second = to_first.mean(axis=1), to_second.mean(axis=1)
    # A lean to one place makes only changes towards it. What goes the other way must be chance, and of chance half goes
    # each way: half of the contradictions between samples is the baseline.
    rarer = second if first.mean() >= second.mean() else first
    return _Effect(rarer, asked.noise() / 2, float((first + second).mean()))


def _samples(asked: _Asked) -> _Effect:
    if len(asked.each("as is", asked.orders[0])) < 2:
        return _nothing(asked, "each question was answered once; ask with samples=2 or more")
    noise = asked.noise()
    return _Effect(noise, noise * 0, float(noise.mean()))  # a baseline of 0, missing where the value is


def _cycles(asked: _Asked) -> _Effect:
    if asked.orders == (_ALONE,):
        return _nothing(asked, "does not apply: answers are rated, and numbers do not run in a circle")
    edges = []
    for condition in ("as is", "cycle, 2-3", "cycle, 3-1"):
        every = asked.each(condition, "first") + asked.each(condition, "second")
        if not every or (condition == "as is" and len(every) < 2):
            return _nothing(asked, "no prompt has three different answers")
        signs = pd.concat(every, axis=1)
        # A verdict that changes with the order or from sample to sample is not a preference, so it closes no circle.
        edges.append(signs.iloc[:, 0].where(signs.nunique(axis=1, dropna=False).eq(1) & signs.iloc[:, 0].ne(0)))
    # 1 over 2, 2 over 3, 3 over 1, or all three the other way round.
    total = sum(edges[1:], start=edges[0])
    cyclic = (total.abs() == 3).astype(float).where(total.notna())
    return _Effect(cyclic, cyclic * 0, float(cyclic.mean()))


def _moved(name: str) -> Callable[[_Asked], _Effect]:
    def effect(asked: _Asked) -> _Effect:
        # The left answer with the change, then the right one; what is wanted is how much its own side gains.
        left, right = (_credit(asked.mean(f"{name}, {side}")) for side in ("left", "right"))
        return _Effect(left, right, float((left - right).mean()))

    return effect


def _wording(asked: _Asked) -> _Effect:
    pairs = [
        _against(one, other)
        for order in asked.orders
        for one in asked.each("as is", order)
        for other in asked.each("reworded", order)
    ]
    if not pairs:
        return _nothing(asked, "not asked in other words")
    changed = pd.concat(pairs, axis=1).mean(axis=1)
    return _Effect(changed, asked.noise(), float(changed.mean()))


def _unreadable(asked: _Asked) -> _Effect:
    silent = asked.status.mean().reindex(asked.prompts)
    # Over answers, as people quote it; the effect is the mean over prompts, the independent units.
    total = asked.status.sum().sum() / max(asked.status.count().sum(), 1)
    return _Effect(silent, silent * 0, float(total))


_PROBES: dict[str, Callable[[_Asked], _Effect]] = {
    "position": _position,
    "swap": _swap,
    "samples": _samples,
    "cycles": _cycles,
    "padding": _moved("padding"),
    "markdown": _moved("markdown"),
    "wording": _wording,
    "unreadable": _unreadable,
}


def _nothing(asked: _Asked, reason: str) -> _Effect:
    missing = pd.Series(np.nan, index=asked.prompts)
    return _Effect(missing, missing, float("nan"), reason)


def _credit(vote: pd.Series) -> pd.Series:
    """A mean vote from -1 to 1 as a share of wins."""
    return (vote + 1) / 2


def _row(effect: _Effect, confidence: float, alpha: float, power: float) -> dict[str, object]:
    """The columns of one probe."""
    known = (effect.value.notna() & effect.baseline.notna()).to_numpy()
    counts = {"share": effect.share, "n_prompts": int(known.sum()), "missing": int((~known).sum())}
    nothing = dict.fromkeys(("effect", "se", "low", "high", "p", "detectable"), np.nan)
    if not known.any():
        return counts | nothing | {"reason": effect.reason or "no prompt has the verdicts that this needs"}
    value, baseline = effect.value.to_numpy(float)[known], effect.baseline.to_numpy(float)[known]
    credit = np.concatenate([value, baseline])
    prompts = effect.value.index[known].to_frame(index=False)
    # Two models of one item a prompt, so that errors and test are those of `compare` and not a second set of formulas.
    rows = pd.concat([prompts.assign(model="with"), prompts.assign(model="without")], ignore_index=True)
    outcome = np.where(credit >= 1, WIN, np.where(credit <= 0, LOSS, TIE)).astype(np.int8)
    items = spread(rows, key=PROMPT, outcome=outcome, credit=credit)
    pool = Number(np.zeros(len(prompts), np.intp), np.ones((2, 1)), ["all"], ["", ""])
    one = estimate(items, pool, confidence=confidence)
    found = differences(one, np.array([0]), np.array([1]), confidence=confidence)
    return counts | {
        "effect": float(found.value[0]),
        "se": float(found.se[0]),
        "low": float(found.low[0]),
        "high": float(found.high[0]),
        "p": float(found.p[0]),
        "detectable": _detectable(np.abs(value - baseline), alpha, power),
        "reason": found.reason[0],
    }


def _detectable(apart: Floats, alpha: float, power: float) -> float:
    """The smallest effect that McNemar's test finds with this power, where as many prompts differ as do here.

    NaN where no effect would be found: below six or so prompts none is.
    """
    n, differing = len(apart), float(apart.mean())

    def enough(effect: float) -> bool:
        # An effect cannot be larger than the share of prompts that differ, so more must differ for a large one.
        return exact_power(n, effect, 1 - max(differing, effect), alpha) >= power

    low, high = 0.0, 1.0 - 1e-9
    if not enough(high):
        return float("nan")
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
