"""What the regressions share: groups of rows, centering, features as regressors."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab.benchmarks.registry import adopt_name
from rmlab.estimation.clustered import MIN_PROMPTS, TOO_FEW, t_quantile
from rmlab.estimation.items import refuse_result_names, require_item_columns
from rmlab.tables import (
    KEY,
    PROMPT,
    STYLE,
    DataError,
    FloatArray,
    IntArray,
    answer_index,
    default_cluster,
    group_codes,
    nearest,
    refuse_repeats,
)

# Share of a column's length below which it is a sum of the columns before it.
_DEPENDENT = 1e-7
_NO_STYLE = DataError(
    "'step' needs styles, but style is missing in some scores",
    "name columns of features",
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
        raise DataError("table: no rows", "look at the selection that it comes from")
    require_item_columns(frame, columns, cluster_columns)
    refuse_result_names(columns, results)
    return columns, cluster_columns


def group_rows(frame: pd.DataFrame, by: Sequence[str]) -> list[IntArray]:
    """Rows of each combination of values, in order of appearance."""
    codes, first_rows = group_codes(frame, by)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(1, len(first_rows)))
    return np.split(order, starts)


def few_prompts(n_prompts: int) -> str:
    """Why a group of so many prompts has no interval, else ""."""
    return TOO_FEW if n_prompts < MIN_PROMPTS else ""


def t_limit(confidence: float, n_prompts: int) -> float:
    """Student's t of a two-sided interval over prompts; NaN where they are too few."""
    df = n_prompts - 1 if n_prompts >= MIN_PROMPTS else 0
    return float(t_quantile(np.array(df), confidence))


def demean(values: FloatArray, prompt: IntArray) -> FloatArray:
    """Values (rows, or rows by columns) less the mean of their prompt."""
    groups = pd.DataFrame(values).groupby(prompt)
    means: FloatArray = groups.transform("mean").to_numpy()
    return values - means.reshape(values.shape)


def within_spread(score: FloatArray, prompt: IntArray) -> float:
    """Standard deviation of scores around their prompt's mean: the unit of effects.

    Pooled over prompts. Zero where scores differ in no prompt, NaN without a prompt
    that has two scores.
    """
    observed = ~np.isnan(score)
    score = score[observed]
    prompt = prompt[observed]

    df = len(score) - len(np.unique(prompt))
    if df == 0:
        return float("nan")
    deviation = demean(score, prompt)
    # Means of equal scores may miss them by a last digit.
    if np.abs(deviation).max() <= 1e-12 * np.abs(score).max():
        return 0.0
    return float(np.sqrt((deviation**2).sum() / df))


def standardize_models(scores: pd.DataFrame) -> FloatArray:
    """Scores in units of their model's `within_spread`; zero where there is none."""
    score = scores["score"].to_numpy()
    prompt = group_codes(scores, PROMPT)[0]
    units = np.full(len(score), np.nan)
    for rows in group_rows(scores, ["model"]):
        spread = within_spread(score[rows], prompt[rows])
        if spread > 0:
            units[rows] = score[rows] / spread
        else:
            units[rows] = score[rows] * 0  # a missing score stays missing
    return units


def count_columns(features: pd.DataFrame) -> list[str]:
    """Columns of `features` with numbers that are not part of the key."""
    numeric = features.select_dtypes("number").columns
    return [column for column in numeric if column not in KEY]


def look_up(
    keys: pd.DataFrame,
    features: pd.DataFrame | None,
    columns: Sequence[str],
    table: str,
) -> FloatArray:
    """Features of the answers in `keys`, (rows, columns).

    Raises DataError where an answer or a column is not there.
    """
    if features is None:
        problem = f"features: None, but {list(columns)} need them"
        raise DataError(problem, "pass rmlab.styles.features(responses)")
    _require_counts(features, columns)
    features = adopt_name(features, keys)
    refuse_repeats(features, KEY, "features")

    index = answer_index(features)
    wanted_index = answer_index(keys)
    row = index.get_indexer(wanted_index)
    is_absent = row < 0
    if is_absent.any():
        first_absent = wanted_index[int(is_absent.argmax())]
        n_absent = f"{is_absent.sum()} of {len(keys)} texts of {table}"
        problem = f"features: no row for {n_absent}, first {first_absent}"
        raise DataError(problem, "count the responses that were scored")

    values = features[list(columns)].to_numpy(dtype=np.float64)[row]
    if not np.isfinite(values).all():
        problem = f"features: {list(columns)} hold a value that is not finite"
        raise DataError(problem, "fill it in or name other columns")
    return values


def _require_counts(features: pd.DataFrame, columns: Sequence[str]) -> None:
    counts = count_columns(features)
    missing = [name for name in KEY if name not in features]
    missing += [name for name in columns if name not in counts]
    if missing:
        allowed = nearest(missing[0], [*KEY, *counts])
        problem = f"features: no counts {missing[0]!r}; {allowed}"
        raise DataError(problem, "use rmlab.styles.features(responses)")


def look_up_sides(
    pairs: pd.DataFrame, features: pd.DataFrame | None, columns: Sequence[str]
) -> tuple[FloatArray, FloatArray]:
    """Features of the chosen and the rejected answer of each pair, (rows, columns)."""
    chosen = look_up(_side_keys(pairs, "chosen"), features, columns, "pairs")
    rejected = look_up(_side_keys(pairs, "rejected"), features, columns, "pairs")
    return chosen, rejected


def _side_keys(pairs: pd.DataFrame, label: str) -> pd.DataFrame:
    return pairs[PROMPT].assign(label=label, slot=pairs[f"{label}_slot"])


def answer_column(
    scores: pd.DataFrame, features: pd.DataFrame | None, name: str
) -> FloatArray:
    """Regressor of each answer.

    "step" (concise 0, plain 1, markdown 2), or log2 of a column of `features`.
    """
    if name == "step":
        return style_steps(scores["style"], _NO_STYLE)
    count = look_up(scores, features, [name], "scores")[:, 0]
    # One rule for the whole column, or equal counts would differ.
    if count.min(initial=1.0) < 1:
        count = 1 + count
    return np.log2(count)


def style_steps(style: pd.Series, error: DataError) -> FloatArray:
    """Concise 0, plain 1, markdown 2; `error` is raised where one is missing."""
    steps = pd.Categorical(style, dtype=STYLE).codes.astype(np.float64)
    if steps.min(initial=0) < 0:
        raise error
    return steps


def dependence_reasons(
    x: FloatArray, names: Sequence[str], *, scale: FloatArray, where: str = ""
) -> list[str]:
    """Why each column of `x` has no effect of its own, else "".

    A column does not vary if its length is nothing beside `scale`; it repeats if it is
    a sum of the columns before it.
    """
    reasons: list[str] = []
    independent: list[int] = []
    for place, name in enumerate(names):
        column = x[:, place]
        basis = x[:, independent]
        residual = column - basis @ np.linalg.lstsq(basis, column)[0]
        length = float(np.linalg.norm(column))
        if length <= _DEPENDENT * max(float(scale[place]), 1e-300):
            reasons.append(f"{name} does not vary {where}".rstrip())
        elif np.linalg.norm(residual) <= _DEPENDENT * length:
            reasons.append(f"{name} cannot be told from the terms before it")
        else:
            reasons.append("")
            independent.append(place)
    return reasons


class ClusteredFit(NamedTuple):
    """Least squares: effects (k,), covariance (k, k), degrees of freedom (k,)."""

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
    to_effects = np.linalg.inv(triangle)

    # CR2: each cluster's sums of residuals, divided by the root of 1 - leverage.
    adjust = _inverse_root(leverage)
    n_clusters = len(leverage)
    residual_sums = np.empty((n_clusters, len(coordinates), 1))
    for place, column in enumerate(basis.T):
        residual_sums[:, place, 0] = np.bincount(cluster, column * residual, n_clusters)
    score = (adjust @ residual_sums)[:, :, 0]

    return ClusteredFit(
        effect=to_effects @ coordinates,
        covariance=to_effects @ (score.T @ score) @ to_effects.T,
        df=_satterthwaite_df(leverage, adjust @ to_effects.T),
    )


def _inverse_root(leverage: FloatArray) -> FloatArray:
    """(1 - leverage) to the power of -1/2, (clusters, k, k).

    Zero in a direction that a cluster alone decides.
    """
    value, vector = np.linalg.eigh(leverage)
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.where(value < 1 - _DEPENDENT, 1 / np.sqrt(1 - value), 0.0)
    scaled = vector * root[:, None, :]
    return np.asarray(scaled @ vector.transpose(0, 2, 1))


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


def _products_by_cluster(columns: FloatArray, cluster: IntArray) -> FloatArray:
    """Sums of products of every two columns in each cluster, (clusters, k, k)."""
    n_clusters = int(cluster.max()) + 1
    n_columns = columns.shape[1]
    products = np.empty((n_clusters, n_columns, n_columns))
    for i in range(n_columns):
        for j in range(i + 1):
            product = columns[:, i] * columns[:, j]
            sums = np.bincount(cluster, product, n_clusters)
            products[:, i, j] = sums
            products[:, j, i] = sums
    return products
