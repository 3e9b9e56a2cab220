"""McNemar's exact test of two models on the same prompts, and the interval that agrees with it."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["mcnemar", "melded_interval"]

Floats = NDArray[np.float64]
Counts = NDArray[np.intp]

_NODES = 64  # points at which the share of differing prompts is integrated over
_STEPS = 50  # halvings of the bracket: below 1e-15


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
    keys, back = np.unique(np.stack([only_a, only_b, n], axis=1), axis=0, return_inverse=True)
    a, b, size = keys.T.astype(float)
    tail = (1 - confidence) / 2
    low = _lower(a, b, size, tail)
    high = -_lower(b, a, size, tail)
    back = back.ravel()
    return low[back], high[back]


def _lower(a: Floats, b: Floats, n: Floats, tail: float) -> Floats:
    """The lower limit: the smaller of the two quantiles that the lower and upper share of differing prompts give."""
    m = a + b
    shares = _differing_share(m, n - m + 1, where_zero=m == 0), _differing_share(m + 1, n - m, where_one=m == n)
    return np.minimum(*(_product_quantile(share, a, b + 1, tail) for share in shares))


def _differing_share(
    alpha: Floats, beta: Floats, *, where_zero: NDArray[np.bool_] | None = None,
    where_one: NDArray[np.bool_] | None = None,
) -> Floats:  # fmt: skip
    """Quantiles of a Beta distribution at the nodes: (rows, nodes); a point at 0 or 1 where it has no spread."""
    from scipy.special import betaincinv

    points = (np.polynomial.legendre.leggauss(_NODES)[0] + 1) / 2
    found = betaincinv(np.maximum(alpha, 1e-9)[:, None], np.maximum(beta, 1e-9)[:, None], points)
    found = np.where((where_zero if where_zero is not None else np.zeros(len(alpha), bool))[:, None], 0.0, found)
    found = np.where((where_one if where_one is not None else np.zeros(len(alpha), bool))[:, None], 1.0, found)
    return np.asarray(found, np.float64)


def _product_quantile(share: Floats, alpha: Floats, beta: Floats, tail: float) -> Floats:
    """Quantile of T (2 B - 1), T at the nodes with their weights, B a Beta (0 where alpha is 0)."""
    from scipy.special import betainc

    weight = np.polynomial.legendre.leggauss(_NODES)[1] / 2
    point = alpha == 0
    alpha = np.where(point, 1.0, alpha)

    def below(x: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            edge = np.where(share > 0, (x[:, None] / share + 1) / 2, np.where(x[:, None] >= 0, 1.0, 0.0))
        edge = np.clip(edge, 0, 1)
        inside = np.where(point[:, None], 1.0 * (x[:, None] >= -share), betainc(alpha[:, None], beta[:, None], edge))
        return np.asarray(inside @ weight, np.float64)

    # P(T (2 B - 1) <= 0) is P(B <= 1/2) whatever T, so the limit's sign is McNemar's verdict: bracket on that side.
    positive = below(np.zeros(len(alpha))) < tail
    low, high = np.where(positive, 0.0, -1.0), np.where(positive, 1.0, 0.0)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        short = below(middle) < tail
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return np.where(positive, high, np.minimum(low, 0.0))
