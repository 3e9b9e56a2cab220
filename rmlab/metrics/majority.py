"""Elections among the final answers of n candidates: by votes, exactly, and by sums of
rewards, over draws.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, xlog1py, xlogy

from rmlab.tables import BoolArray, FloatArray, IntArray

_N_DRAWS = 256  # at least; every candidate comes equally often
_ROUNDING = 1e-12  # sums of rewards that differ by less are equal


class Ballot(NamedTuple):
    """The candidates of a prompt, (candidates,) each: their answers as codes from 0,
    whether they are right, and their weights.
    """

    answer: IntArray
    is_right: BoolArray
    weight: FloatArray


def majority_credit(ballot: Ballot, n: int) -> float:
    """How often the most frequent answer among n candidates is right; answers with as
    many votes share.

    Draws without replacement are independent binomials of the answers, given that they
    sum to n. An answer that ties with t others wins a share 1 / (t + 1), which is the
    integral of s^t from 0 to 1: a Gauss-Legendre sum over s is exact.
    """
    counts = np.bincount(ballot.answer)
    share_right = np.bincount(ballot.answer, ballot.is_right) / counts
    p = n / counts.sum()
    s, node_weights = _integration_nodes(len(counts) // 2 + 1)
    votes = np.arange(1, n + 1)

    credit = 0.0
    for winner in np.flatnonzero(share_right):
        # (votes, nodes, candidates drawn): no other answer has more than the winner.
        others = np.zeros((n, len(s), n + 1))
        others[:, :, 0] = 1.0
        for count in np.delete(counts, winner):
            others = _add_answer(others, _binomial(int(count), n, p), votes, s)
        rest = others[votes - 1, :, n - votes]
        share_of_ties = rest @ node_weights
        own = _binomial(int(counts[winner]), n, p)[1:]
        n_own = len(own)
        credit += share_right[winner] * float(own @ share_of_ties[:n_own])
    return credit / float(_binomial(int(counts.sum()), n, p)[n])


@cache
def _integration_nodes(n_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights from 0 to 1."""
    nodes, weights = np.polynomial.legendre.leggauss(n_nodes)
    return (nodes + 1) / 2, weights / 2


def _add_answer(
    others: FloatArray, mass: FloatArray, votes: IntArray, s: FloatArray
) -> FloatArray:
    """`others` with one more answer, which gets x votes with the probability `mass`."""
    total = np.zeros_like(others)
    n_drawn = others.shape[2]
    for x, probability in enumerate(mass):
        factor = np.where(votes[:, None] == x, s, votes[:, None] > x)
        total[:, :, x:] += (
            probability * factor[:, :, None] * others[:, :, : n_drawn - x]
        )
    return total


def _binomial(count: int, n: int, p: float) -> FloatArray:
    """Probabilities of 0 to min(count, n) successes."""
    x = np.arange(min(count, n) + 1)
    log_ways = gammaln(count + 1) - gammaln(x + 1) - gammaln(count - x + 1)
    return np.asarray(np.exp(log_ways + xlogy(x, p) + xlog1py(count - x, -p)))


def weighted_credit(ballot: Ballot, n: int) -> float:
    """How often the answer with the largest sum of weights among n candidates is right,
    over at least 256 draws; exact for one candidate and for all.
    """
    counts = np.bincount(ballot.answer)
    share_right = np.bincount(ballot.answer, ballot.is_right) / counts
    n_candidates = len(ballot.answer)
    is_answer = np.eye(len(counts))[ballot.answer]

    is_drawn = (_list_draws(n_candidates) < n).astype(np.float64)
    total = is_drawn @ (is_answer * ballot.weight[:, None])
    total[is_drawn @ is_answer == 0] = -np.inf
    largest = total.max(axis=1, keepdims=True)
    has_won = total >= largest * (1 - _ROUNDING)
    return float((has_won @ share_right / has_won.sum(axis=1)).mean())


@cache
def _list_draws(n_candidates: int) -> IntArray:
    """(draws, candidates): places of the candidates in orders of a fixed seed; each
    order comes with all its rotations.
    """
    rng = np.random.default_rng(0)
    n_orders = -(-_N_DRAWS // n_candidates)
    order = np.tile(np.arange(n_candidates), (n_orders, 1))
    orders = rng.permuted(order, axis=1)
    rotated = orders[:, None, :] + np.arange(n_candidates)[:, None]
    return (rotated % n_candidates).reshape(-1, n_candidates)
