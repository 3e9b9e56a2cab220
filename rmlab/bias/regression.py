"""What the regressions share: groups of rows, means of prompts taken off, features of
answers as regressors.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab.benchmarks.registry import adopt_name
from rmlab.estimation.clustered import MIN_PROMPTS, TOO_FEW, t_quantile
from rmlab.estimation.items import refuse_result_names, require_item_columns
from rmlab.tables import (
    KEY,
    LABELS,
    PROMPT,
    STYLE,
    DataError,
    FloatArray,
    IntArray,
    default_cluster,
    group_codes,
    nearest,
    refuse_repeats,
)

_DEPENDENT = (
    1e-7  # share of a column's length below which it is a sum of the columns before it
)


def group_columns(
    frame: pd.DataFrame,
    by: str | Sequence[str],
    cluster: str | None = None,
    *,
    results: Collection[str],
) -> tuple[list[str], list[str]]:
    """`by` and `cluster` (default: `default_cluster`) as columns of `frame`.

    Raises DataError for a column that `frame` lacks, and for one of `by` that is named
    like a column of the result.
    """
    columns = [by] if isinstance(by, str) else list(dict.fromkeys(by))
    cluster_columns = default_cluster(frame) if cluster is None else [cluster]
    if not columns:
        raise ValueError("by: []; name at least one column, for example 'model'")
    if frame.empty:
        raise DataError("table: no rows. Look at the selection that it comes from.")
    require_item_columns(frame, columns, cluster_columns)
    refuse_result_names(columns, results)
    return columns, cluster_columns


def group_rows(frame: pd.DataFrame, by: Sequence[str]) -> list[IntArray]:
    """Rows of each combination of values, in order of appearance."""
    codes, first_rows = group_codes(frame, by)
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.searchsorted(codes[order], np.arange(1, len(first_rows))))


def few_prompts(n_prompts: int) -> str:
    """Why a group of so many prompts has no interval, else ""."""
    return TOO_FEW if n_prompts < MIN_PROMPTS else ""


def t_limit(confidence: float, n_prompts: int) -> float:
    """Student's t of a two-sided interval over prompts; NaN where they are too few."""
    return float(
        t_quantile(
            np.array(n_prompts - 1 if n_prompts >= MIN_PROMPTS else 0.0), confidence
        )
    )


def demean(values: FloatArray, prompt: IntArray) -> FloatArray:
    """Values (rows, or rows by columns) less the mean of their prompt."""
    means: FloatArray = (
        pd.DataFrame(values)
        .groupby(prompt)
        .transform("mean")
        .to_numpy()
        .reshape(values.shape)
    )
    return values - means


def within_spread(score: FloatArray, prompt: IntArray) -> float:
    """Standard deviation of scores around the mean of their prompt, pooled over
    prompts: the unit of effects.

    Zero where scores differ in no prompt, NaN without a prompt that has two scores.
    """
    observed = ~np.isnan(score)
    score, prompt = score[observed], prompt[observed]
    df = len(score) - len(np.unique(prompt))
    deviation = demean(score, prompt)
    # Means of equal scores may miss them by a last digit.
    is_rounding = np.abs(deviation).max(initial=0.0) <= 1e-12 * np.abs(score).max(
        initial=0.0
    )
    return (
        float(np.sqrt((0.0 if is_rounding else (deviation**2).sum()) / df))
        if df
        else float("nan")
    )


def standardize_models(scores: pd.DataFrame) -> FloatArray:
    """Scores in units of their model's `within_spread`; all zero where there is none."""
    score, prompt = scores["score"].to_numpy(), group_codes(scores, PROMPT)[0]
    units = np.full(len(score), np.nan)
    for rows in group_rows(scores, ["model"]):
        spread = within_spread(score[rows], prompt[rows])
        units[rows] = score[rows] / spread if spread > 0 else score[rows] * 0
    return units


def count_columns(features: pd.DataFrame) -> list[str]:
    """Columns of `features` with numbers that are not part of the key."""
    return [
        column
        for column in features.select_dtypes("number").columns
        if column not in KEY
    ]


def look_up(
    keys: pd.DataFrame,
    features: pd.DataFrame | None,
    columns: Sequence[str],
    table: str,
) -> FloatArray:
    """Features of the answers in `keys`, (rows, columns); DataError where an answer or
    a column is not there.
    """
    if features is None:
        raise DataError(
            f"features: None, but {list(columns)} need them. Pass rmlab.styles.features(responses)."
        )
    allowed = count_columns(features)
    for column in [
        *(c for c in KEY if c not in features),
        *(c for c in columns if c not in allowed),
    ]:
        names = nearest(column, [*KEY, *allowed])
        raise DataError(
            f"features: no counts {column!r}; {names}. Use rmlab.styles.features(responses)."
        )
    features = adopt_name(features, keys)
    refuse_repeats(features, KEY, "features")
    # Labels as strings: the two tables may have categories of their own.
    index, wanted_index = (
        pd.MultiIndex.from_frame(frame[KEY].astype({"label": "str"}))
        for frame in (features, keys)
    )
    row = index.get_indexer(wanted_index)
    if (row < 0).any():
        message = f"features: no row for {(row < 0).sum()} of {len(keys)} texts of {table}, first"
        raise DataError(
            f"{message} {wanted_index[int((row < 0).argmax())]}. Count the responses that were scored."
        )
    values = features[list(columns)].to_numpy(dtype=np.float64)[row]
    if not np.isfinite(values).all():
        raise DataError(
            f"features: {list(columns)} hold a value that is not finite. Fill it in or name other columns."
        )
    return values


def look_up_sides(
    pairs: pd.DataFrame, features: pd.DataFrame | None, columns: Sequence[str]
) -> tuple[FloatArray, FloatArray]:
    """Features of the chosen and of the rejected answer of each comparison, (rows,
    columns).
    """
    chosen, rejected = (
        look_up(
            pairs[PROMPT].assign(label=label, slot=pairs[f"{label}_slot"]),
            features,
            columns,
            "pairs",
        )
        for label in LABELS
    )
    return chosen, rejected


def answer_column(
    scores: pd.DataFrame, features: pd.DataFrame | None, name: str
) -> FloatArray:
    """Regressor of each answer: "step" (concise 0, plain 1, markdown 2), or log2 of a
    column of `features`.
    """
    if name == "step":
        steps = pd.Categorical(scores["style"], dtype=STYLE).codes.astype(np.float64)
        if steps.min(initial=0) < 0:
            raise DataError(
                "'step' needs styles, but style is missing in some scores. Name columns of features."
            )
        return steps
    count = look_up(scores, features, [name], "scores")[:, 0]
    # One rule for the whole column, or equal counts would differ.
    return np.log2(count) if count.min(initial=1.0) >= 1 else np.log2(1 + count)


def dependence_reasons(
    x: FloatArray, names: Sequence[str], *, scale: FloatArray, where: str = ""
) -> list[str]:
    """Why each column of `x` has no effect of its own, else "".

    A column does not vary if its length is nothing beside `scale`; it repeats if it is
    a sum of the columns before it.
    """
    reasons: list[str] = []
    for place, name in enumerate(names):
        length = float(np.linalg.norm(x[:, place]))
        before = x[:, [i for i, reason in enumerate(reasons) if not reason]]
        residual = x[:, place] - before @ np.linalg.lstsq(before, x[:, place])[0]
        if length <= _DEPENDENT * max(float(scale[place]), 1e-300):
            reasons.append(f"{name} does not vary {where}".rstrip())
        elif np.linalg.norm(residual) <= _DEPENDENT * length:
            reasons.append(f"{name} cannot be told from the terms before it")
        else:
            reasons.append("")
    return reasons


class ClusteredFit(NamedTuple):
    """Least squares: effects (k,), their covariance (k, k), and degrees of freedom
    (k,).
    """

    effect: FloatArray
    covariance: FloatArray
    df: FloatArray


def fit_clustered(y: FloatArray, x: FloatArray, cluster: IntArray) -> ClusteredFit:
    """Least squares with CR2 errors by cluster and Satterthwaite's degrees of freedom.

    Columns without the means of groups that lie inside the clusters give the same as a
    column for each group (Pustejovsky and Tipton 2018, section 2.4). A cluster that
    alone decides an effect adds no error: it has no residual there.
    """
    # In an orthonormal basis of the columns, the clusters' leverages (G, k, k) sum to
    # the identity.
    basis, triangle = np.linalg.qr(x)
    coordinates = basis.T @ y
    residual = y - basis @ coordinates
    leverage = _products_by_cluster(basis, cluster)
    value, vector = np.linalg.eigh(leverage)
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.where(value < 1 - _DEPENDENT, 1 / np.sqrt(1 - value), 0.0)
    adjust = (vector * root[:, None, :]) @ vector.transpose(0, 2, 1)

    n_clusters = len(leverage)
    residual_sums = [
        np.bincount(cluster, column * residual, n_clusters) for column in basis.T
    ]
    score = (adjust @ np.column_stack(residual_sums)[:, :, None])[:, :, 0]
    to_effects = np.linalg.inv(triangle)
    effect = to_effects @ coordinates
    covariance = to_effects @ (score.T @ score) @ to_effects.T

    # Bell and McCaffrey (2002): the clusters' contributions to the error have
    # covariances P = diag(own) - shared shared', for independent and equally noisy
    # answers; df = tr(P)^2 / sum of P^2.
    direction = adjust @ to_effects.T
    shared = leverage @ direction
    own = (direction * shared).sum(axis=1)
    explained = (shared**2).sum(axis=1)
    gram = np.einsum("gia,gja->aij", shared, shared)
    trace = (own - explained).sum(axis=0)
    squares = (own**2 - 2 * own * explained).sum(axis=0) + (gram**2).sum(axis=(1, 2))
    return ClusteredFit(effect, covariance, trace**2 / np.maximum(squares, 1e-300))


def _products_by_cluster(columns: FloatArray, cluster: IntArray) -> FloatArray:
    """Sums of products of every two columns in each cluster, (clusters, k, k)."""
    n_clusters = int(cluster.max()) + 1
    n_columns = columns.shape[1]
    products = np.empty((n_clusters, n_columns, n_columns))
    for i in range(n_columns):
        for j in range(i + 1):
            product = np.bincount(cluster, columns[:, i] * columns[:, j], n_clusters)
            products[:, i, j] = product
            products[:, j, i] = product
    return products
