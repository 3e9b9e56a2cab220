"""Reports on a judge: what moves its verdicts that should not."""

from collections.abc import Callable
from functools import partial
from itertools import combinations, product
from typing import NamedTuple

import pandas as pd
from scipy.optimize import brentq

from rmlab.estimation.difference import holm, mean_difference
from rmlab.estimation.items import cluster_codes, cluster_columns
from rmlab.stats.study_size import exact_power
from rmlab.tables import PROMPT, DataError

_COLUMNS = ["model", *PROMPT, "condition", "order", "sample", "vote", "status"]
_RESULTS = [
    *("share", "effect", "se", "low", "high", "p", "p_holm", "detectable"),
    *("n_prompts", "missing", "reason"),
]
_SMALLEST_EFFECT = 1e-6
_SINGLE = "alone"  # the order of a judge that is shown one answer at a time
_NO_ORDER = "does not apply: answers are rated one by one, and none is shown first"


class _Effect(NamedTuple):
    """An effect by prompt: `value` minus `baseline`, NaN where a prompt says nothing.

    `share` is the number that people quote, where it is not the effect.
    """

    value: pd.Series
    baseline: pd.Series | float = 0.0
    share: float | None = None


def judge_report(
    judgements: pd.DataFrame,
    *,
    cluster: str | None = None,
    confidence: float = 0.95,
    alpha: float = 0.05,
    power: float = 0.8,
) -> pd.DataFrame:
    """Report how far a judge can be trusted.

    Parameters
    ----------
    judgements : DataFrame
        The result of `rmlab.judges.examine`.
    cluster : str, optional
        Column whose values the prompts of a cluster share; default: the prompt.
    confidence : float
        Coverage of the intervals.
    alpha, power : float
        Level of the tests and probability for the column `detectable`.

    Returns
    -------
    DataFrame
        One row per model and probe, with the columns

        - model, probe;
        - share: the number that people quote;
        - effect: 0 for a judge without this fault;
        - se, low, high: clustered by prompt;
        - p, and p_holm: adjusted over the probes of a model;
        - detectable: the smallest effect that the run would have found with probability
          `power`;
        - n_prompts, and missing: prompts without a verdict that the probe needs;
        - reason: why a number is missing.

        The probes:

        - position: how much more often an answer wins where it is shown first (1: the
          order decides alone).
        - swap: share of comparisons whose winner changes with the order. The effect
          counts the changes that neither a lean to one place nor chance explains.
        - samples: share of contradictions between two answers to the same question.
        - cycles: share of triples in which A beats B, B beats C and C beats A, where
          all three verdicts hold in both orders.
        - padding, markdown: how much more often an answer wins where it, and not its
          rival, is padded or marked up.
        - wording: share of comparisons whose winner changes with the words of the
          question; the effect is the part beyond contradictions between samples.
        - unreadable: share of answers without a verdict.

    Raises
    ------
    DataError
        For a table without rows or columns that it needs.
    """
    missing = [column for column in _COLUMNS if column not in judgements.columns]
    if missing or judgements.empty:
        problem = f"judgements: {len(judgements)} rows, no {missing}"
        raise DataError(problem, "give what rmlab.judges.examine returns")
    clusters_by = cluster_columns(judgements, cluster)
    # `detectable` is planned at the first and hardest step of Holm's method.
    level = alpha / len(_PROBES)
    frames = []
    for model, rows in judgements.groupby("model", sort=False, observed=True):
        votes = _Votes(rows)
        codes = cluster_codes(rows.drop_duplicates(PROMPT), clusters_by, PROMPT)
        cluster_of_prompt = pd.Series(codes, index=votes.prompts)
        tests = []
        for name, probe in _PROBES.items():
            test = _test_effect(
                probe(votes), cluster_of_prompt, confidence, level, power
            )
            tests.append({"model": model, "probe": name, **test})
        frame = pd.DataFrame(tests, columns=["model", "probe", *_RESULTS])
        frame["p_holm"] = holm(frame["p"].to_numpy(float))
        frames.append(frame)
    report = pd.concat(frames, ignore_index=True)
    return report.astype(dict.fromkeys(("model", "probe", "reason"), "str"))


class _Votes:
    """The votes of one model, prompts by conditions, orders and samples.

    Attributes
    ----------
    prompts : MultiIndex
        The prompts.
    table : DataFrame
        A row per prompt, a column per condition, order and sample: 1 for the left
        answer, -1 for the right one, 0 for a draw.
    shares : DataFrame
        Share of wins of the left answer, a column per condition and order.
    orders : tuple of str
        The orders in which answers were shown.
    unreadable : Series
        Share of answers without a verdict, by prompt.
    unreadable_share : float
        The same of all answers.
    """

    def __init__(self, rows: pd.DataFrame) -> None:
        self.prompts = pd.MultiIndex.from_frame(rows[PROMPT]).unique()
        key = ["condition", "order", "sample"]
        votes = rows.set_index([*PROMPT, *key])["vote"]
        self.table = votes.unstack(key).reindex(self.prompts)
        mean_vote = self.table.T.groupby(level=["condition", "order"]).mean().T
        self.shares = (mean_vote + 1) / 2
        self.orders: tuple[str, ...] = ("first", "second")
        if set(rows["order"]) == {_SINGLE}:
            self.orders = (_SINGLE,)

        is_unreadable = (rows["status"] != "read").astype(float)
        by_prompt = is_unreadable.groupby([rows[name] for name in PROMPT], sort=False)
        self.unreadable = by_prompt.mean().reindex(self.prompts)
        self.unreadable_share = float(is_unreadable.mean())

    def samples(self, condition: str, order: str) -> list[pd.Series]:
        """Votes of every sample of a condition in one order."""
        samples = []
        for key, votes in self.table.items():
            if isinstance(key, tuple) and key[:2] == (condition, order):
                samples.append(votes)
        return samples

    def win_share(self, condition: str, order: str | None = None) -> pd.Series:
        """Share of wins of the left answer, in one order or over both.

        Missing where an order has no vote.
        """
        orders = self.orders if order is None else (order,)
        shares = self.shares.reindex(columns=[(condition, name) for name in orders])
        return shares.mean(axis=1, skipna=False)

    def noise(self) -> pd.Series:
        """How often two answers to one question contradict each other.

        0 where each question was answered once.
        """
        pairs: list[tuple[pd.Series, pd.Series]] = []
        for order in self.orders:
            pairs += combinations(self.samples("as is", order), 2)
        if not pairs:
            return pd.Series(0.0, index=self.prompts)
        return _mean_contradiction(pairs)


def _mean_contradiction(
    pairs: list[tuple[pd.Series, pd.Series]], winner: int = 0
) -> pd.Series:
    """Share of pairs of votes that name different winners, the first one `winner`.

    A draw contradicts nothing.
    """
    columns = []
    for first, second in pairs:
        is_opposed = (first * second < 0) & (first * winner >= 0)
        has_both = first.notna() & second.notna()
        columns.append(is_opposed.astype(float).where(has_both))
    contradictions = pd.concat(columns, axis=1)
    return contradictions.mean(axis=1)


def _probe_position(votes: _Votes) -> _Effect | str:
    if votes.orders == (_SINGLE,):
        return _NO_ORDER
    shown_first = votes.win_share("as is", "first")
    shown_second = votes.win_share("as is", "second")
    return _Effect(shown_first, shown_second)


def _probe_swap(votes: _Votes) -> _Effect | str:
    if votes.orders == (_SINGLE,):
        return _NO_ORDER
    first = votes.samples("as is", "first")
    second = votes.samples("as is", "second")
    pairs = list(product(first, second))
    if not pairs:
        return "not asked"
    # The left answer shown first: a vote for it is a vote for the first place; shown
    # second, one against it is.
    to_first = _mean_contradiction(pairs, winner=1)
    to_second = _mean_contradiction(pairs, winner=-1)
    changed = to_first + to_second

    # A lean to one place makes only changes towards it. Those the other way are chance,
    # and half of chance goes each way: half of the contradictions between samples is
    # the baseline.
    rarer = to_second if to_first.mean() >= to_second.mean() else to_first
    return _Effect(rarer, votes.noise() / 2, float(changed.mean()))


def _probe_samples(votes: _Votes) -> _Effect | str:
    if len(votes.samples("as is", votes.orders[0])) < 2:
        return "each question was answered once; ask with samples=2 or more"
    return _Effect(votes.noise())


def _probe_cycles(votes: _Votes) -> _Effect | str:
    if votes.orders == (_SINGLE,):
        return "does not apply: answers are rated, and numbers do not run in a circle"
    edges = []
    for condition in ("as is", "cycle, 2-3", "cycle, 3-1"):
        samples = votes.samples(condition, "first") + votes.samples(condition, "second")
        if not samples or (condition == "as is" and len(samples) < 2):
            return "no prompt has three different answers"
        verdicts = pd.concat(samples, axis=1)
        # A verdict that changes with the order or from sample to sample is no
        # preference, so it closes no circle.
        is_unanimous = verdicts.nunique(axis=1, dropna=False).eq(1)
        verdict = verdicts.iloc[:, 0]
        edges.append(verdict.where(is_unanimous & (verdict != 0)))
    total = pd.concat(edges, axis=1).sum(axis=1, skipna=False)
    is_cycle = (total.abs() == 3).astype(float)
    return _Effect(is_cycle.where(total.notna()))


def _probe_change(votes: _Votes, change: str) -> _Effect | str:
    # The left answer with the change, then the right one: how much its own side gains.
    left_changed = votes.win_share(f"{change}, left")
    right_changed = votes.win_share(f"{change}, right")
    return _Effect(left_changed, right_changed)


def _probe_wording(votes: _Votes) -> _Effect | str:
    pairs: list[tuple[pd.Series, pd.Series]] = []
    for order in votes.orders:
        as_is = votes.samples("as is", order)
        reworded = votes.samples("reworded", order)
        pairs += product(as_is, reworded)
    if not pairs:
        return "not asked in other words"
    changed = _mean_contradiction(pairs)
    return _Effect(changed, votes.noise(), float(changed.mean()))


def _probe_unreadable(votes: _Votes) -> _Effect | str:
    return _Effect(votes.unreadable, share=votes.unreadable_share)


_PROBES: dict[str, Callable[[_Votes], _Effect | str]] = {
    "position": _probe_position,
    "swap": _probe_swap,
    "samples": _probe_samples,
    "cycles": _probe_cycles,
    "padding": partial(_probe_change, change="padding"),
    "markdown": partial(_probe_change, change="markdown"),
    "wording": _probe_wording,
    "unreadable": _probe_unreadable,
}


def _test_effect(
    effect: _Effect | str,
    cluster: pd.Series,
    confidence: float,
    alpha: float,
    power: float,
) -> dict[str, object]:
    """The columns of one probe: a paired test of prompts with and without the change.

    `cluster` has the number of each prompt's cluster.
    """
    if isinstance(effect, str):
        return {"n_prompts": 0, "missing": len(cluster), "reason": effect}
    sides = pd.DataFrame(
        {"with": effect.value, "without": effect.baseline}, index=cluster.index
    )
    differences = (sides["with"] - sides["without"]).dropna()
    columns: dict[str, object] = {
        "share": float(differences.mean()) if effect.share is None else effect.share,
        "n_prompts": len(differences),
        "missing": len(sides) - len(differences),
    }
    if differences.empty:
        return columns | {"reason": "no prompt has the verdicts that this needs"}

    test = mean_difference(
        differences.to_numpy(),
        cluster[differences.index].to_numpy(),
        confidence,
    )
    detectable = _detectable_effect(
        float(differences.abs().mean()), len(differences), alpha, power
    )
    return columns | {
        "effect": test.value[0],
        "se": test.se[0],
        "low": test.low[0],
        "high": test.high[0],
        "p": test.p[0],
        "detectable": detectable,
        "reason": test.reason[0],
    }


def _detectable_effect(differing: float, n: int, alpha: float, power: float) -> float:
    """The smallest effect that the paired t finds with this power.

    As many prompts differ as do here. NaN where no effect would be found: below six or
    so prompts none is.
    """

    def excess_power(effect: float) -> float:
        # An effect is at most the share of prompts that differ, so more must differ for
        # a large one.
        agreement = 1 - max(differing, effect)
        return exact_power(n, effect, agreement, alpha) - power

    if excess_power(1.0) < 0:
        return float("nan")
    return float(brentq(excess_power, _SMALLEST_EFFECT, 1.0))
