"""Numbers of every model: a benchmark's own columns, all estimates, accuracies by any
columns, the style matrix.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.benchmarks.prepare import Prepared, prepare
from rmlab.estimation.estimate import Estimate, estimate
from rmlab.estimation.items import NO_STYLE, as_pairs, refuse_result_names
from rmlab.estimation.weights import Average, Weights, weighted_mean
from rmlab.tables import ITEM, LEVELS, STYLES, DataError, copy_provenance, group_codes

_MAX_DOMAINS = 8
_UNCERTAINTY = ["se", "low", "high", "n_prompts", "n_ties", "missing"]
_RESERVED = {
    *("model", "overall", *_UNCERTAINTY, "average", "reason", *LEVELS),
    *("rank", "kind", "rank_low", "rank_high", "group"),
}
_RESULTS = {
    *(
        "accuracy",
        "value",
        "value_a",
        "value_b",
        "difference",
        "p",
        "p_holm",
        "agreement",
        "n_pairs",
        "n_ties_a",
    ),
    *("n_ties_b", "model", "model_a", "model_b", *_UNCERTAINTY, "average", "reason"),
}
_STYLE_COLUMNS = ("level", "chosen_style", "rejected_style")


def summary(
    table: pd.DataFrame,
    *,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    cluster: str | None = None,
    confidence: float = 0.95,
    **options: str,
) -> pd.DataFrame:
    """Summarise a benchmark: its own columns, one row per model.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs of one benchmark.
    average : {"benchmark", "domains", "prompts"} or mapping
        How the parts combine: the benchmark's own way, all domains alike, all prompts
        alike, or weights of domains.
    ties : str, optional
        What a tie earns: "loss", "half" or "drop"; RewardBench 2: "share", "loss" or
        "win". Default: the benchmark's rule.
    common : bool
        Whether to keep only the items that all models have.
    cluster : str, optional
        Column that names a family of prompts which stand or fall together (templates,
        variants, sources). Default: the prompt; RewardBench 1: the task.
    confidence : float
        Coverage of the interval.
    **options : str
        Choices of the benchmark: `safety="split"` (RM-Bench), `weights=`, `prior_sets=`
        (RewardBench 1), `overall=` (RewardBench 2).

    Returns
    -------
    DataFrame
        One row per model, in the order of the table: model; the benchmark's columns
        (RM-Bench: chat, math, code, safety, easy, normal, hard; RewardBench 1: its
        sections and prior_sets; RewardBench 2: its six subsets; other data: up to eight
        domains, and the levels where answers have styles); overall; se, low, high (of
        overall); n_prompts, n_ties, missing (items without a score or verdict: counted,
        never lost); average; reason (why overall or its interval is missing). Shares
        from 0 to 1 (Ties: -0.01 to 1.01). A number that lacks one of its parts is
        missing. A domain whose name is that of another column is called, for example,
        "domain hard".

    Raises
    ------
    DataError
        For several benchmarks in one table.
    TypeError
        For an option that the benchmark does not have.

    See Also
    --------
    estimates : all numbers with intervals.

    Examples
    --------
    >>> import rmlab
    >>> scores = rmlab.score(rmlab.load("mini"), "longest")
    >>> rmlab.summary(scores)[["model", "easy", "normal", "hard"]].round(2).to_numpy().tolist()
    [['longest', 0.78, 0.51, 0.2]]
    """
    prepared = prepare(table, average, ties, common, options, cluster=cluster)
    return copy_provenance(table, summary_columns(prepared, confidence)[0])


def summary_columns(
    prepared: Prepared, confidence: float, *, contrasts: bool = False
) -> tuple[pd.DataFrame, Estimate]:
    """The table of `summary` and its estimate, whose first number is the overall score."""
    weights = prepared.weights()
    numbers = weights.numbers
    is_named = ~numbers["quantity"].isin(["overall", "cell"])
    places = [
        int((is_named & (numbers["name"] == name)).argmax())
        for name in prepared.benchmark.columns
    ]
    for quantity in ("domain", "level") if not places else ():
        rows = np.flatnonzero(numbers["quantity"] == quantity).tolist()
        places += rows if 1 < len(rows) <= _MAX_DOMAINS else []
    places.insert(0, 0)
    selected = Weights(
        numbers.iloc[places], [weights.means[place] for place in places], weights.label
    )
    result = estimate(
        prepared.items, selected, confidence, contrasts=[0] if contrasts else []
    )
    frame = pd.DataFrame({"model": pd.Series(result.models, dtype="str")})
    for number, (quantity, name) in enumerate(selected.numbers.itertuples(index=False)):
        while quantity == "domain" and (name in _RESERVED or name in frame):
            name = f"domain {name}"
        frame[name] = result.value[:, number]
    frame["overall"] = frame.pop("overall")  # behind its parts
    uncertainty = {name: getattr(result, name)[:, 0] for name in _UNCERTAINTY}
    label = pd.Series([weights.label] * len(frame), dtype="str")
    return frame.assign(
        **uncertainty, average=label, reason=pd.Series(result.reason[:, 0], dtype="str")
    ), result


def estimates(
    table: pd.DataFrame,
    *,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    cluster: str | None = None,
    confidence: float = 0.95,
    **options: str,
) -> pd.DataFrame:
    """Estimate every number of a benchmark with its interval.

    Parameters
    ----------
    table, average, ties, common, cluster, confidence, **options
        As in `summary`.

    Returns
    -------
    DataFrame
        One row per model, quantity and name. Quantities: overall, section (RewardBench
        1), domain, subset, level (easy, normal, hard) and cell ("concise > markdown":
        chosen against rejected style); levels and cells where all answers have styles.
        Columns: model, quantity, name, value, se (clustered by prompt, CR2), low, high,
        n_prompts, n_pairs (items counted), n_ties, missing, chance (what random scores
        earn; missing where it is not known), average, reason (why there is no value or
        no interval, else empty). Fewer than five prompts in a part that counts give no
        interval.

    Notes
    -----
    Intervals add one cluster that wins everything and one that loses everything, then
    take a clustered t; see `rmlab.estimation.estimate`.

    References
    ----------
    Agresti and Coull (1998); Agresti and Caffo (2000); Miller (arXiv 2411.00640) for
    the clusters.
    """
    prepared = prepare(table, average, ties, common, options, cluster=cluster)
    weights = prepared.weights()
    frame = estimate_frame(estimate(prepared.items, weights, confidence), "value")
    chance = np.tile(prepared.chance(weights), len(prepared.items.models))
    frame.insert(list(frame.columns).index("average"), "chance", chance)
    return copy_provenance(table, frame)


def accuracy(
    table: pd.DataFrame,
    by: str | Sequence[str] = "model",
    *,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    cluster: str | None = None,
    confidence: float = 0.95,
    **options: str,
) -> pd.DataFrame:
    """Share of comparisons won, by any columns.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs.
    by : str or sequence of str
        Columns that define the rows: model, domain, subset, level, chosen_style,
        rejected_style and any further column, such as `source`. Must hold "model" if
        there are several.
    average, ties, common, cluster, confidence, **options
        As in `summary`.

    Returns
    -------
    DataFrame
        One row per combination of the `by` columns: these, accuracy, se (clustered by
        prompt), low, high, n_prompts, n_pairs (comparisons counted), n_ties, missing,
        average, reason. by="model" is the overall score, by=["model", "level"] are
        easy, normal and hard. A row inside one domain or subset needs that alone, and
        so does a table of one domain; the others need all parts of the benchmark.
        Style, level and other ordered categorical columns come on their full grid: a
        hole is NaN with n = 0.

    Raises
    ------
    DataError
        For a column that the table does not have, or that is missing in some
        comparisons.
    """
    by = [by] if isinstance(by, str) else list(dict.fromkeys(by))
    columns = [column for column in by if column != "model"]
    frames = []
    for rows in _split_models(table, columns):
        prepared = prepare(
            rows,
            average,
            ties,
            common,
            options,
            by=columns,
            cluster=cluster,
            require_complete=False,
        )
        weights = group_weights(prepared, columns)
        frames.append(
            estimate_frame(estimate(prepared.items, weights, confidence), "accuracy")
        )
    frame = pd.concat(frames, ignore_index=True)
    models = frame["model"].unique()
    if "model" not in by and len(models) > 1:
        raise DataError(
            f"by: {by} has no 'model', but the table has {len(models)}. Add 'model' or keep one of them."
        )
    frame = frame[
        [*by, *(column for column in frame.columns if column not in {"model", *by})]
    ]
    return copy_provenance(table, frame)


def group_weights(prepared: Prepared, columns: Sequence[str]) -> Weights:
    """The mean of each group of items that the columns define, as a number.

    Closed and ordered columns come on their full grid, others as they occur. A group
    inside one domain, subset or other open column requires the parts of its own items,
    the others all parts.
    """
    refuse_result_names(columns, _RESULTS)
    items, parts = prepared.items, prepared.parts
    categories = {}  # of closed and ordered columns
    for column in columns:
        values, dtype = (
            items.frame[column],
            tables.CLOSED.get(column, items.frame[column].dtype),
        )
        if isinstance(dtype, pd.CategoricalDtype) and dtype.ordered:
            categories[column] = dtype
            if n := values.isna().sum():
                raise DataError(
                    f"by: {column!r} is missing in {n} of {len(values)} comparisons. Group by domain."
                )
    open_columns = [column for column in columns if column not in categories]
    group_of_cell, first_cells = group_codes(items.cells, open_columns)
    for column, dtype in categories.items():
        group_of_cell = (
            group_of_cell * len(dtype.categories)
            + items.cells[column].astype(dtype).cat.codes.to_numpy()
        )
    open_values = (
        items.cells[open_columns].iloc[first_cells].itertuples(index=False, name=None)
    )
    grid = product(
        open_values if open_columns else [()],
        *(dtype.categories for dtype in categories.values()),
    )
    groups = pd.DataFrame(
        [(*first, *others) for first, *others in grid],
        columns=[*open_columns, *categories],
    )
    groups = groups[[*columns]].astype(
        {name: categories.get(name, items.cells[name].dtype) for name in columns}
    )
    required = (
        np.arange(len(parts.names)) if set(columns) <= set(_STYLE_COLUMNS) else None
    )
    means = [
        weighted_mean(items, parts, group_of_cell == group, required)
        for group in range(len(groups))
    ]
    return Weights(groups, means, parts.label)


def _split_models(table: pd.DataFrame, columns: list[str]) -> list[pd.DataFrame]:
    """The table, or its models one by one where a column differs between models, such
    as bins of margins.
    """
    contract = {*ITEM, "subset", *_STYLE_COLUMNS}
    if (
        not isinstance(table, pd.DataFrame)
        or set(columns) <= contract
        or not {*ITEM, "model"} <= set(table.columns)
    ):
        return [table]
    table = as_pairs(table)
    extra = [
        column
        for column in columns
        if column in table.columns and column not in contract
    ]
    n_values = table.groupby(ITEM, sort=False, observed=True)[extra].nunique(
        dropna=False
    )
    if (n_values <= 1).all(axis=None):
        return [table]
    return [table[table["model"] == model] for model in table["model"].unique()]


def matrix(
    table: pd.DataFrame,
    *,
    average: Average = "benchmark",
    ties: str | None = None,
    common: bool = False,
    cluster: str | None = None,
    **options: str,
) -> pd.DataFrame:
    """Style-substance matrix of one model: share of comparisons that the chosen answer
    wins.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs of one model.
    average, ties, common, cluster, **options
        As in `summary`. A table of one domain gives that domain's matrix.

    Returns
    -------
    DataFrame
        3x3, rows the chosen style, columns the rejected style, both concise, plain,
        markdown. The upper triangle is hard, the diagonal normal, the lower triangle
        easy; the mean of a triangle is that level in `summary`. `attrs["cells"]` has
        the same nine numbers row by row with intervals and counts (accuracy, low, high,
        n_pairs, n_ties). A model that lacks one of several domains has a matrix of NaN,
        with the way out in `attrs["reason"]`.

    Raises
    ------
    DataError
        With several models, or without styles.

    References
    ----------
    RM-Bench (arXiv 2410.16184), section 3 and figure 2.

    Examples
    --------
    >>> margins = pd.DataFrame({"model": "m", "benchmark": "b", "domain": "chat", "id": ["0", "1"], "chosen_slot": 0,
    ...     "rejected_slot": 2, "chosen_style": "concise", "rejected_style": "markdown", "margin": [0.5, -1.0]})
    >>> matrix(tables.check_pairs(margins)).loc["concise", "markdown"].item()
    0.5
    """
    prepared = prepare(
        table, average, ties, common, options, cluster=cluster, require_complete=False
    )
    items, parts = prepared.items, prepared.parts
    if len(items.models) != 1:
        raise DataError(
            f"table: a matrix shows one model, not {items.models[:5]}. Keep one of them."
        )
    style_code = items.cells["style_code"].to_numpy()
    if (style_code >= NO_STYLE).any():
        raise DataError(
            "table: level is missing in some comparisons. A matrix needs answers in styles."
        )
    codes, required = range(len(STYLES) ** 2), np.arange(len(parts.names))
    means = [
        weighted_mean(items, parts, style_code == code, required) for code in codes
    ]
    result = estimate(items, Weights(pd.DataFrame(index=codes), means, parts.label))
    columns = {
        "accuracy": "value",
        "low": "low",
        "high": "high",
        "n_pairs": "n_pairs",
        "n_ties": "n_ties",
    }
    axes = [pd.Index(STYLES, name=f"{label}_style") for label in tables.LABELS]
    frame = pd.DataFrame(
        result.value[0].reshape(len(STYLES), len(STYLES)),
        index=axes[0],
        columns=axes[1],
    )
    frame.attrs = {"average": result.label}
    frame.attrs["cells"] = {
        name: getattr(result, attribute)[0].tolist()
        for name, attribute in columns.items()
    }
    reasons = result.reason[0][np.isnan(result.value[0])]
    if len(reasons):
        frame.attrs["reason"] = (
            f"{reasons[0]}; average='domains' or 'prompts' takes the parts that are there"
        )
    return frame


def estimate_frame(result: Estimate, value: str) -> pd.DataFrame:
    """One row per model and number: model, the number's name, its value in the column
    `value`, errors and counts.
    """
    n_models, n_numbers = result.value.shape
    frame = result.numbers.iloc[np.tile(np.arange(n_numbers), n_models)].reset_index(
        drop=True
    )
    frame.insert(
        0,
        "model",
        pd.Series(np.repeat(np.array(result.models, object), n_numbers), dtype="str"),
    )
    frame[value] = result.value.ravel()
    for name in ("se", "low", "high", "n_prompts", "n_pairs", "n_ties", "missing"):
        frame[name] = getattr(result, name).ravel()
    label = pd.Series([result.label] * len(frame), dtype="str")
    return frame.assign(
        average=label, reason=pd.Series(result.reason.ravel(), dtype="str")
    )
