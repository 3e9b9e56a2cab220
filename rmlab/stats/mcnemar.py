"""McNemar's exact test of two models on the same prompts, and the interval that agrees with it."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["mcnemar", "melded_interval"]

Floats = NDArray[np.float64]
Counts = NDArray[np.intp]

_POINTS, _WEIGHT = np.polynomial.legendre.leggauss(48)
_WEIGHT = _WEIGHT / 2  # over the quantiles of the share of differing prompts: tails right to 1e-4
_STEPS = 20  # of Newton's method, at most


def mcnemar(only_a: Counts, only_b: Counts) -> Floats:
    """Exact two-sided p from the comparisons that only one of two models wins.

    Twice the binomial tail of the smaller count at one half, at most 1 (as statsmodels' `mcnemar(exact=True)`).

    >>> mcnemar(np.array([1, 5, 0]), np.array([9, 5, 0])).round(4).tolist()
    [0.0215, 1.0, 1.0]
    """
    from scipy.stats import binom

    p: Floats = np.minimum(2 * binom.cdf(np.minimum(only_a, only_b), only_a + only_b, 0.5), 1.0)
    return p


def melded_interval(only_a: Counts, only_b: Counts, n: Counts, *, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Interval of the difference of two paired shares that excludes zero exactly where McNemar's p < 1 - confidence.

    With m = only_a + only_b of n prompts differing, the difference is T (2 B - 1): T the share of prompts that differ,
    B the share of those that a wins. Each is given its two exact confidence distributions (Betas), and the limits are
    the extreme quantiles of the product, T integrated over by quadrature. Fay and Lumbard (2021), as R's
    `exact2x2::mcnemarExactDP`.

    >>> low, high = melded_interval(np.array([10]), np.array([1]), np.array([50]))
    >>> low.round(3).item() > 0, high.round(3).item() < 0.5
    (True, True)
    """
    # Thousands of pairs of models have few different counts, and each is integrated once.
    keys, back = np.unique(np.stack([only_a, only_b, n], axis=1), axis=0, return_inverse=True)
    a, b, size = keys.T.astype(float)
    tail = (1 - confidence) / 2
    low = _lower(a, b, size, tail)
    high = -_lower(b, a, size, tail)  # the upper limit of a's lead is minus the lower one of b's
    back = back.ravel()
    return low[back], high[back]


def _lower(a: Floats, b: Floats, n: Floats, tail: float) -> Floats:
    """The lower limit: the smaller of the two quantiles that the lower and upper share of differing prompts give."""
    from scipy.special import betaincinv

    m = a + b
    shares = []
    for alpha, beta, edge, at in ((m, n - m + 1, m == 0, 0.0), (m + 1, n - m, m == n, 1.0)):
        # A Beta with a parameter of 0 is a point: `edge` puts it in place of the stand-in that is computed.
        found = betaincinv(np.maximum(alpha, 1)[:, None], np.maximum(beta, 1)[:, None], (_POINTS + 1) / 2)
        shares.append(np.where(edge[:, None], at, found))
    low = np.minimum(*(_product_quantile(share, np.maximum(a, 1), b + 1, tail) for share in shares))
    # Without a win of a, B is 0 and the difference is -T: its quantile needs no integration.
    none = np.where(m < n, -betaincinv(m + 1, np.maximum(n - m, 1), 1 - tail), -1.0)
    return np.where(a == 0, none, low)


def _product_quantile(share: Floats, alpha: Floats, beta: Floats, tail: float) -> Floats:
    """Quantile of T (2 B - 1) for B a Beta and T at the nodes with their weights: (rows, nodes) to (rows,).

    Newton's steps inside a bracket: halved where a step would leave it.
    """
    from scipy.special import betainc, betaln

    # P(T (2 B - 1) <= 0) is P(B <= 1/2) whatever T, so the limit's sign is McNemar's verdict: bracket on that side.
    positive = betainc(alpha, beta, 0.5) < tail
    low, high = np.where(positive, 0.0, -1.0), np.where(positive, 1.0, 0.0)
    a, b, scale = alpha[:, None], beta[:, None], -betaln(alpha, beta)[:, None] - np.log(2)
    shares = share.mean(axis=1)
    guess = shares * ((alpha - beta) / (alpha + beta) - 2 / np.sqrt(alpha + beta))  # near the limit, to begin with
    x = np.where((guess > low) & (guess < high), guess, (low + high) / 2)
    for _ in range(_STEPS):
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            edge = np.where(share > 0, (x[:, None] / share + 1) / 2, x[:, None] >= 0)
            inside = (edge > 0) & (edge < 1)
            density = (a - 1) * np.log(edge) + (b - 1) * np.log1p(-edge) + scale - np.log(share)
            slope = np.where(inside, np.exp(density), 0.0) @ _WEIGHT
            excess = betainc(a, b, np.clip(edge, 0, 1)) @ _WEIGHT - tail
            low, high = np.where(excess < 0, x, low), np.where(excess < 0, high, x)
            step = x - excess / slope
        if np.abs(excess).max(initial=0.0) < 1e-12:
            break
        x = np.where((step > low) & (step < high), step, (low + high) / 2)
    # Rounding must not put a limit on zero where p excludes it.
    return np.where(positive, np.maximum(x, np.finfo(float).tiny), np.minimum(x, 0.0))
