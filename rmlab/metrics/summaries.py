"""Numbers of every model: a benchmark's own columns, all estimates, accuracies by any
columns, the style matrix.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.estimation.clustered import Estimate
from rmlab.estimation.estimate import estimate
from rmlab.estimation.items import NO_STYLE, Items, refuse_result_names
from rmlab.estimation.weights import Average, Number, weighted_mean
from rmlab.metrics.prepare import chance_of_numbers, list_numbers, prepare
from rmlab.tables import LEVELS, STYLES, DataError, copy_provenance, group_codes

_UNCERTAINTY = ["se", "low", "high", "n_prompts", "n_ties", "missing"]
_LABELS = ["average", "reason"]
_RANKING = ["rank", "kind", "rank_low", "rank_high", "group"]
_RESERVED = {"model", "overall", *LEVELS, *_UNCERTAINTY, *_LABELS, *_RANKING}
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
        Whether to keep only the items that all models have answered.
    cluster : str, optional
        Column that names a cluster of prompts (a template, variants of one text, a
        source). Default: the prompt; RewardBench 1: the task.
    confidence : float
        Coverage of the interval.
    **options : str
        Choices of the benchmark: `safety="split"` (RM-Bench), `weights=`, `prior_sets=`
        (RewardBench 1), `overall=` (RewardBench 2).

    Returns
    -------
    DataFrame
        One row per model, in the order of the table:

        - model;
        - the benchmark's columns (RM-Bench: chat, math, code, safety, easy, normal,
          hard; RewardBench 1: its sections and prior_sets; RewardBench 2: its six
          subsets; other data: up to eight domains, and the levels where answers have
          styles);
        - overall, and its se, low, high;
        - n_prompts, n_ties, missing (items without a score or verdict: counted, never
          lost);
        - average, reason (why overall or its interval is missing).

        Shares are from 0 to 1 (Ties: -0.01 to 1.01). A number that lacks one of its
        parts is missing. A domain whose name is that of another column is called, for
        example, "domain hard".

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
    >>> levels = rmlab.summary(scores)[["model", "easy", "normal", "hard"]]
    >>> levels.round(2).to_numpy().tolist()
    [['longest', 0.78, 0.51, 0.2]]
    """
    benchmark, items = prepare(table, average, ties, common, options, cluster=cluster)
    names, numbers = list_numbers(benchmark, items, of_summary=True)
    result = estimate(items, numbers, confidence)
    return copy_provenance(table, summary_frame(items, names, result))


def summary_frame(items: Items, names: pd.DataFrame, result: Estimate) -> pd.DataFrame:
    """The table of `summary` from the numbers of a summary and their names."""
    columns: dict[str, object] = {"model": items.models}
    for number, (quantity, name) in enumerate(names.itertuples(index=False)):
        while quantity == "domain" and (name in _RESERVED or name in columns):
            name = f"domain {name}"
        columns[name] = result.value[:, number]
    columns["overall"] = columns.pop("overall")  # behind its parts
    for name in _UNCERTAINTY:
        columns[name] = getattr(result, name)[:, 0]
    columns["average"] = items.parts.label
    columns["reason"] = result.reason[:, 0]
    return pd.DataFrame(columns).astype(dict.fromkeys(["model", *_LABELS], "str"))


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
        Columns:

        - model, quantity, name, value;
        - se (clustered by prompt, CR2), low, high: fewer than five prompts in a part
          that counts give none;
        - n_prompts, n_pairs (items counted), n_ties, missing;
        - chance: what random scores earn; missing where it is not known;
        - average, reason (why there is no value or no interval, else empty).

    Notes
    -----
    Intervals add one cluster that wins everything and one that loses everything, then
    take a clustered t; see "The interval of a number" in
    docs/statistics.md.

    References
    ----------
    Agresti and Coull (1998); Agresti and Caffo (2000); Miller (arXiv 2411.00640) for
    the clusters.
    """
    benchmark, items = prepare(table, average, ties, common, options, cluster=cluster)
    names, numbers = list_numbers(benchmark, items)
    frame = estimate_frame(items, names, estimate(items, numbers, confidence))
    chance = chance_of_numbers(benchmark, items, numbers) * len(items.models)
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
    _, items = prepare(
        table,
        average,
        ties,
        common,
        options,
        by=columns,
        cluster=cluster,
        require_complete=False,
    )
    if "model" not in by and len(items.models) > 1:
        problem = f"by: {by} has no 'model', but the table has {len(items.models)}"
        raise DataError(problem, "add 'model' or keep one of them")
    groups, numbers = group_numbers(items, columns)
    result = estimate(items, numbers, confidence)
    frame = estimate_frame(items, groups, result, "accuracy")
    measured = [name for name in frame.columns if name not in {"model", *by}]
    return copy_provenance(table, frame[[*by, *measured]])


def group_numbers(
    items: Items, columns: Sequence[str]
) -> tuple[pd.DataFrame, list[Number]]:
    """The groups of items that the columns define, and the mean of each as a number.

    Closed and ordered columns come on their full grid, others as they occur. A group
    inside one domain, subset or other open column requires the parts of its own items,
    the others all parts.
    """
    categories = _ordered_categories(items.frame, columns)
    open_columns = [column for column in columns if column not in categories]
    group_of_item, first_items = group_codes(items.frame, open_columns)
    shape = [len(first_items)]
    for column, dtype in categories.items():
        codes = items.frame[column].astype(dtype).cat.codes.to_numpy()
        group_of_item = group_of_item * len(dtype.categories) + codes
        shape.append(len(dtype.categories))

    open_code, *closed_codes = np.indices(shape).reshape(len(shape), -1)
    first_item = first_items[open_code]
    groups = items.frame[open_columns].iloc[first_item].reset_index(drop=True)
    for codes, (column, dtype) in zip(closed_codes, categories.items(), strict=True):
        groups[column] = pd.Categorical.from_codes(codes, dtype=dtype)

    has_styles_only = set(columns) <= set(_STYLE_COLUMNS)
    required = np.arange(len(items.parts.names)) if has_styles_only else None
    numbers = [
        weighted_mean(items, np.flatnonzero(group_of_item == group), required)
        for group in range(len(groups))
    ]
    return groups[[*columns]], numbers


def _ordered_categories(
    frame: pd.DataFrame, columns: Sequence[str]
) -> dict[str, pd.CategoricalDtype]:
    """Types of the closed and ordered columns; DataError where a value is missing."""
    categories = {}
    for column in columns:
        dtype = tables.CLOSED.get(column, frame[column].dtype)
        if not isinstance(dtype, pd.CategoricalDtype) or not dtype.ordered:
            continue
        n_missing = frame[column].isna().sum()
        if n_missing:
            problem = (
                f"by: {column!r} is missing in {n_missing} of {len(frame)} comparisons"
            )
            raise DataError(problem, "group by domain")
        categories[column] = dtype
    return categories


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
        Scores or pairs of one model. A table of one domain gives that domain's matrix.
    average, ties, common, cluster, **options
        As in `summary`.

    Returns
    -------
    DataFrame
        3x3, rows the chosen style, columns the rejected style, both concise, plain,
        markdown. The upper triangle is hard, the diagonal normal, the lower triangle
        easy; the mean of a triangle is that level in `summary`. Their intervals and
        counts are the rows of `estimates` whose quantity is "cell". A model that lacks
        one of several domains has a matrix of NaN; average="domains" takes those that
        are there.

    Raises
    ------
    DataError
        With several models, or without styles.

    References
    ----------
    RM-Bench (arXiv 2410.16184), section 3 and figure 2.

    Examples
    --------
    >>> pair = {"model": "m", "benchmark": "b", "domain": "chat"}
    >>> pair |= {"chosen_slot": 0, "chosen_style": "concise"}
    >>> pair |= {"rejected_slot": 2, "rejected_style": "markdown"}
    >>> margins = pd.DataFrame(pair | {"id": ["0", "1"], "margin": [0.5, -1.0]})
    >>> matrix(tables.check_pairs(margins)).loc["concise", "markdown"].item()
    0.5
    """
    benchmark, items = prepare(
        table, average, ties, common, options, cluster=cluster, require_complete=False
    )
    if len(items.models) != 1:
        problem = f"table: a matrix shows one model, not {items.models[:5]}"
        raise DataError(problem, "keep one of them")
    if (items.style_code >= NO_STYLE).any():
        problem = "table: level is missing in some comparisons"
        raise DataError(problem, "a matrix needs answers in styles")
    names, numbers = list_numbers(benchmark, items)
    cells = [numbers[place] for place in np.flatnonzero(names["quantity"] == "cell")]
    value = estimate(items, cells).value
    return pd.DataFrame(
        value.reshape(len(STYLES), len(STYLES)),
        index=pd.Index(STYLES, name="chosen_style"),
        columns=pd.Index(STYLES, name="rejected_style"),
    )


def estimate_frame(
    items: Items, names: pd.DataFrame, result: Estimate, value: str = "value"
) -> pd.DataFrame:
    """One row per model and number: model, the number's name, its value in the column
    `value`, errors and counts.
    """
    n_models, n_numbers = result.value.shape
    measured = pd.DataFrame({name: x.ravel() for name, x in result._asdict().items()})
    measured = measured.rename(columns={"value": value}).drop(columns=["df", "p"])
    measured.insert(len(measured.columns) - 1, "average", items.parts.label)
    refuse_result_names(names, measured)
    keys = names.iloc[np.tile(np.arange(n_numbers), n_models)].reset_index(drop=True)
    model = np.repeat(np.array(items.models, object), n_numbers)
    keys.insert(0, "model", pd.Series(model, dtype="str"))
    measured = measured.astype(dict.fromkeys(_LABELS, "str"))
    return pd.concat([keys, measured], axis=1)
