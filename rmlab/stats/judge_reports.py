"""How reliable a judge is: what moves its verdicts that should not, each with an
interval and a test.
"""

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab.estimation.difference import holm, mean_difference
from rmlab.estimation.items import cluster_codes, cluster_columns
from rmlab.stats.planning import exact_power
from rmlab.tables import PROMPT, DataError

_COLUMNS = ["model", *PROMPT, "condition", "order", "sample", "vote", "status"]
_HALVINGS = 20  # of the effects from 0 to 1: to 1e-6
_SINGLE = "alone"  # the order of a judge that is shown one answer at a time
_NO_ORDER = "does not apply: answers are rated one by one, and none is shown first"


class _Effect(NamedTuple):
    """An effect by prompt: `value` minus `baseline`, from 0 to 1, NaN where a prompt
    says nothing; the quoted share.
    """

    value: pd.Series
    baseline: pd.Series | float = 0.0
    share: float | None = None  # where it is not the effect


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
        One row per model and probe: model, probe, share (as people quote it), effect (0
        for a judge without this fault), se, low, high (clustered by prompt), p, p_holm
        (over the probes of a model), detectable (the smallest effect that the run would
        have found with probability `power`), n_prompts, missing (prompts without a
        verdict that the probe needs), reason. The probes:

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
        raise DataError(
            f"judgements: {len(judgements)} rows, no {missing}. Give what rmlab.judges.examine returns."
        )
    clusters_by = cluster_columns(judgements, cluster)
    frames = []
    for model, rows in judgements.groupby("model", sort=False, observed=True):
        votes = _Votes(rows)
        # `detectable` is planned at the first and hardest step of Holm's adjustment
        # over the probes.
        columns = [
            "share",
            "effect",
            "se",
            "low",
            "high",
            "p",
            "detectable",
            "n_prompts",
            "missing",
            "reason",
        ]
        level = alpha / len(_PROBES)
        codes = cluster_codes(rows.drop_duplicates(PROMPT), clusters_by, PROMPT)
        cluster_of_prompt = pd.Series(codes, index=votes.prompts)
        tests = [
            _test_effect(probe(votes), cluster_of_prompt, confidence, level, power)
            for probe in _PROBES.values()
        ]
        frame = pd.DataFrame(tests, columns=columns)
        frame.insert(
            columns.index("detectable"), "p_holm", holm(frame["p"].to_numpy(float))
        )
        frames.append(pd.DataFrame({"model": model, "probe": [*_PROBES]}).join(frame))
    return pd.concat(frames, ignore_index=True).astype(
        {"model": "str", "probe": "str", "reason": "str"}
    )


class _Votes:
    """The votes of one model: one column per condition, order and sample, one row per
    prompt.
    """

    def __init__(self, rows: pd.DataFrame) -> None:
        self.is_unreadable = (
            (rows["status"] != "read")
            .astype(float)
            .groupby([rows[c] for c in PROMPT], sort=False)
        )
        self.prompts = pd.MultiIndex.from_frame(rows[PROMPT]).unique()
        key = ["condition", "order", "sample"]
        # Votes are 1 for the left answer, -1 for the right one, 0 for a draw; one per
        # key.
        self.table = (
            rows.set_index([*PROMPT, *key])["vote"].unstack(key).reindex(self.prompts)
        )
        self.shares = (self.table.T.groupby(level=key[:2]).mean().T + 1) / 2
        self.orders = (
            ("first", "second") if set(rows["order"]) != {_SINGLE} else (_SINGLE,)
        )

    def samples(self, condition: str, order: str) -> list[pd.Series]:
        """Votes of every sample of a condition in one order."""
        return [
            votes
            for key, votes in self.table.items()
            if isinstance(key, tuple) and key[:2] == (condition, order)
        ]

    def win_share(self, condition: str, order: str | None = None) -> pd.Series:
        """Share of wins of the left answer, in one order or over both; missing where an
        order has no vote.
        """
        orders = self.orders if order is None else (order,)
        shares = self.shares.reindex(columns=[(condition, name) for name in orders])
        return shares.mean(axis=1, skipna=False)

    def noise(self) -> pd.Series:
        """How often two answers to one question contradict each other; 0 where each was
        answered once.
        """
        pairs = [
            pair
            for order in self.orders
            for pair in combinations(self.samples("as is", order), 2)
        ]
        return (
            _mean_contradiction(pairs) if pairs else pd.Series(0.0, index=self.prompts)
        )


def _mean_contradiction(
    pairs: list[tuple[pd.Series, pd.Series]], winner: int = 0
) -> pd.Series:
    """Share of pairs of votes that name different winners, the first one `winner`; a
    draw contradicts nothing.
    """
    is_opposed = [
        ((a * b < 0) & (a * winner >= 0)).astype(float).where(a.notna() & b.notna())
        for a, b in pairs
    ]
    return pd.concat(is_opposed, axis=1).mean(axis=1)


def _probe_position(votes: _Votes) -> _Effect | str:
    if votes.orders == (_SINGLE,):
        return _NO_ORDER
    return _Effect(
        votes.win_share("as is", "first"), votes.win_share("as is", "second")
    )


def _probe_swap(votes: _Votes) -> _Effect | str:
    pairs = [
        *product(votes.samples("as is", "first"), votes.samples("as is", "second"))
    ]
    if not pairs:
        return _NO_ORDER if votes.orders == (_SINGLE,) else "not asked"
    # The left answer shown first: a vote for it is a vote for the first place; shown
    # second, one against it is.
    to_first, to_second = (_mean_contradiction(pairs, winner) for winner in (1, -1))
    # A lean to one place makes only changes towards it. Those the other way are chance,
    # and half of chance goes each way: half of the contradictions between samples is
    # the baseline.
    rarer = to_second if to_first.mean() >= to_second.mean() else to_first
    return _Effect(rarer, votes.noise() / 2, float((to_first + to_second).mean()))


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
        signs = pd.concat(samples, axis=1)
        # A verdict that changes with the order or from sample to sample is no
        # preference, so it closes no circle.
        edges.append(
            signs.iloc[:, 0].where(
                signs.nunique(axis=1, dropna=False).eq(1) & signs.iloc[:, 0].ne(0)
            )
        )
    total = sum(edges[1:], start=edges[0])
    return _Effect((total.abs() == 3).astype(float).where(total.notna()))


def _probe_change(votes: _Votes, change: str) -> _Effect | str:
    # The left answer with the change, then the right one: how much its own side gains.
    return _Effect(
        votes.win_share(f"{change}, left"), votes.win_share(f"{change}, right")
    )


def _probe_wording(votes: _Votes) -> _Effect | str:
    pairs = [
        pair
        for o in votes.orders
        for pair in product(votes.samples("as is", o), votes.samples("reworded", o))
    ]
    if not pairs:
        return "not asked in other words"
    changed = _mean_contradiction(pairs)
    return _Effect(changed, votes.noise(), float(changed.mean()))


def _probe_unreadable(votes: _Votes) -> _Effect | str:
    total = votes.is_unreadable.sum().sum() / max(votes.is_unreadable.count().sum(), 1)
    return _Effect(
        votes.is_unreadable.mean().reindex(votes.prompts), share=float(total)
    )


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
    """The smallest effect that the paired t finds with this power, where as many
    prompts differ as do here.

    NaN where no effect would be found: below six or so prompts none is.
    """
    effects = np.arange(2**_HALVINGS) / 2**_HALVINGS
    # An effect is at most the share of prompts that differ, so more must differ for a
    # large one.
    place = bisect_left(
        effects,
        power,
        lo=1,
        key=lambda delta: exact_power(n, delta, 1 - max(differing, delta), alpha),
    )
    return float(effects[place]) if place < len(effects) else float("nan")
