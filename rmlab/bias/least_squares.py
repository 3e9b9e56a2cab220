"""Least squares on all rows and without each cluster: effects, and how much each
cluster moves them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rmlab.estimation.clustered import indicator
from rmlab.tables import BoolArray, FloatArray, IntArray

# Share of a column's length below which it is a sum of the columns before it.
_DEPENDENT = 1e-7
# Share of an effect's largest weight below which a weight is rounding.
_ROUNDING = 1e-6


class Fit(NamedTuple):
    """Effects (k,), the same without each cluster (clusters, k), the effects' degrees
    of freedom (k,), and whether one cluster alone decides each (k,): df is 0 there.
    """

    effect: FloatArray
    without: FloatArray
    df: FloatArray
    is_decided: BoolArray


def fit_without_clusters(
    y: FloatArray, x: FloatArray, cluster: IntArray, n_clusters: int
) -> Fit:
    """Fit y = x effect on all rows, and anew without each cluster.

    A cluster that alone decides an effect leaves zero behind.
    """
    # In an orthonormal basis of the columns, the clusters' products sum to the
    # identity.
    basis, triangle = np.linalg.qr(x)
    to_effects = np.linalg.inv(triangle)
    products = _sum_products(basis, basis, cluster, n_clusters)
    targets = _sum_products(basis, y[:, None], cluster, n_clusters)
    total = targets.sum(axis=0)
    identity = np.eye(x.shape[1])
    left = identity - products
    rest = np.linalg.pinv(left, rcond=_DEPENDENT, hermitian=True)
    without = rest @ (total - targets)
    # What the others do not tell of, without each cluster.
    null = identity - rest @ left
    size = np.abs(to_effects).max(axis=1)[:, None]
    is_decided = (np.abs(to_effects @ null) > _ROUNDING * size).any(axis=(0, 2))
    df = _satterthwaite_df(products, np.asarray(rest @ to_effects.T))

    return Fit(
        effect=to_effects @ total[:, 0],
        without=without[:, :, 0] @ to_effects.T,
        df=np.where(is_decided, 0.0, df),
        is_decided=is_decided,
    )


def _satterthwaite_df(leverage: FloatArray, direction: FloatArray) -> FloatArray:
    """Degrees of freedom of each effect, (k,), after Bell and McCaffrey (2002).

    The clusters' contributions to the error have covariances P = diag(own) - shared
    shared', for independent and equally noisy answers; df = tr(P)^2 / sum of P^2.
    """
    shared = leverage @ direction
    own = (direction * shared).sum(axis=1)
    explained = (shared**2).sum(axis=1)
    trace = (own - explained).sum(axis=0)

    gram = np.einsum("gia,gja->aij", shared, shared)
    diagonal = (own**2 - 2 * own * explained).sum(axis=0)
    sum_of_squares = diagonal + (gram**2).sum(axis=(1, 2))
    return np.asarray(trace**2 / np.maximum(sum_of_squares, 1e-300))


def jackknife(without: FloatArray, value: FloatArray) -> FloatArray:
    """Covariance (k, k) of values from those without each cluster (Efron 1982)."""
    deviation = without - value
    n_clusters = len(without)
    return (n_clusters - 1) / n_clusters * (deviation.T @ deviation)


def dependence_reasons(
    x: FloatArray, names: Sequence[str], raw: FloatArray, where: str = ""
) -> list[str]:
    """Why each column of `x` has no effect of its own, else "".

    A column does not vary if its length is nothing beside that of `raw`, from which it
    was made; it repeats if it is a sum of the columns before it.
    """
    length = np.linalg.norm(x, axis=0)
    does_vary = length > _DEPENDENT * np.linalg.norm(raw, axis=0)
    reasons: list[str] = []
    independent: list[int] = []
    for place, name in enumerate(names):
        basis = x[:, independent]
        left = x[:, place] - basis @ np.linalg.lstsq(basis, x[:, place])[0]
        if not does_vary[place]:
            reasons.append(f"{name} does not vary {where}".rstrip())
        elif np.linalg.norm(left) <= _DEPENDENT * length[place]:
            reasons.append(f"{name} cannot be told from the terms before it")
        else:
            reasons.append("")
            independent.append(place)
    return reasons


def _sum_products(
    left: FloatArray, right: FloatArray, cluster: IntArray, n_clusters: int
) -> FloatArray:
    """Sums of left' right by cluster, (clusters, left's columns, right's columns)."""
    products = left[:, :, None] * right[:, None, :]
    in_cluster = indicator(cluster, n_clusters).T
    sums = in_cluster @ products.reshape(len(left), -1)
    return sums.reshape(n_clusters, left.shape[1], right.shape[1])
