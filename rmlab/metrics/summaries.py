"""A benchmark's own columns for every model, and every number with its interval."""

import numpy as np
import pandas as pd

from rmlab.metrics.estimate import Estimate, estimate
from rmlab.metrics.weights import Average, Prepared, Weights, prepare
from rmlab.tables import LEVELS, copy_provenance

_MAX_DOMAINS = 8
_UNCERTAINTY = ["se", "low", "high", "n_prompts", "n_ties", "missing"]
_RESERVED = {
    *("model", "overall", *_UNCERTAINTY, "average", "reason", *LEVELS),
    *("rank", "kind", "rank_low", "rank_high", "group"),
}


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
        How the parts combine: the benchmark's own way, all domains alike, all prompts alike, or weights of domains.
    ties : str, optional
        What a tie earns: "loss", "half" or "drop"; RewardBench 2: "share", "loss" or "win". Default: the benchmark's
        rule.
    common : bool
        Whether to keep only the items that all models have.
    cluster : str, optional
        Column that names a family of prompts which stand or fall together (templates, variants, sources). Default: the
        prompt; RewardBench 1: the task.
    confidence : float
        Coverage of the interval.
    **options : str
        Choices of the benchmark: `safety="split"` (RM-Bench), `weights=`, `prior_sets=` (RewardBench 1), `overall=`
        (RewardBench 2).

    Returns
    -------
    DataFrame
        One row per model, in the order of the table: model; the benchmark's columns (RM-Bench: chat, math, code,
        safety, easy, normal, hard; RewardBench 1: its sections and prior_sets; RewardBench 2: its six subsets; other
        data: up to eight domains, and the levels where answers have styles); overall; se, low, high (of overall);
        n_prompts, n_ties, missing (items without a score or verdict: counted, never lost); average; reason (why overall
        or its interval is missing). Shares from 0 to 1 (Ties: -0.01 to 1.01). A number that lacks one of its parts is
        missing. A domain whose name is that of another column is called, for example, "domain hard".

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


def summary_columns(prepared: Prepared, confidence: float, *, contrasts: bool = False) -> tuple[pd.DataFrame, Estimate]:
    """The table of `summary` and its estimate, whose first number is the overall score."""
    weights = prepared.weights()
    numbers = weights.numbers
    is_named = ~numbers["quantity"].isin(["overall", "cell"])
    places = [int((is_named & (numbers["name"] == name)).argmax()) for name in prepared.benchmark.columns]
    for quantity in ("domain", "level") if not places else ():
        rows = np.flatnonzero(numbers["quantity"] == quantity).tolist()
        places += rows if 1 < len(rows) <= _MAX_DOMAINS else []
    places.insert(0, 0)
    selected = Weights(numbers.iloc[places], [weights.means[place] for place in places], weights.label)
    result = estimate(prepared.items, selected, confidence, contrasts=[0] if contrasts else [])
    frame = pd.DataFrame({"model": pd.Series(result.models, dtype="str")})
    for number, (quantity, name) in enumerate(selected.numbers.itertuples(index=False)):
        while quantity == "domain" and (name in _RESERVED or name in frame):
            name = f"domain {name}"
        frame[name] = result.value[:, number]
    frame["overall"] = frame.pop("overall")  # behind its parts
    uncertainty = {name: getattr(result, name)[:, 0] for name in _UNCERTAINTY}
    label = pd.Series([weights.label] * len(frame), dtype="str")
    return frame.assign(**uncertainty, average=label, reason=pd.Series(result.reason[:, 0], dtype="str")), result


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
        One row per model, quantity and name. Quantities: overall, section (RewardBench 1), domain, subset, level (easy,
        normal, hard) and cell ("concise > markdown": chosen against rejected style); levels and cells where all answers
        have styles. Columns: model, quantity, name, value, se (clustered by prompt, CR2), low, high, n_prompts, n_pairs
        (items counted), n_ties, missing, chance (what random scores earn; missing where it is not known), average,
        reason (why there is no value or no interval, else empty). Fewer than five prompts in a part that counts give no
        interval.

    Notes
    -----
    Intervals add one cluster that wins everything and one that loses everything, then take a clustered t; see
    `rmlab.metrics.estimate`.

    References
    ----------
    Agresti and Coull (1998); Agresti and Caffo (2000); Miller (arXiv 2411.00640) for the clusters.
    """
    prepared = prepare(table, average, ties, common, options, cluster=cluster)
    weights = prepared.weights()
    frame = estimate_frame(estimate(prepared.items, weights, confidence), "value")
    chance = np.tile(prepared.chance(weights), len(prepared.items.models))
    frame.insert(list(frame.columns).index("average"), "chance", chance)
    return copy_provenance(table, frame)


def estimate_frame(result: Estimate, value: str) -> pd.DataFrame:
    """One row per model and number: model, the number's name, its value in the column `value`, errors and counts."""
    n_models, n_numbers = result.value.shape
    frame = result.numbers.iloc[np.tile(np.arange(n_numbers), n_models)].reset_index(drop=True)
    frame.insert(0, "model", pd.Series(np.repeat(np.array(result.models, object), n_numbers), dtype="str"))
    names = {
        value: "value",
        **{name: name for name in ("se", "low", "high", "n_prompts", "n_pairs", "n_ties", "missing")},
    }
    frame = frame.assign(**{column: getattr(result, name).ravel() for column, name in names.items()})
    reason = pd.Series(result.reason.ravel(), dtype="str")
    return frame.assign(average=pd.Series([result.label] * len(frame), dtype="str"), reason=reason)
