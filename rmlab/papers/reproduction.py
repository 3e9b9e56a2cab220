"""Published numbers beside computed ones: the difference, and the rule of counting that
explains it.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping

import numpy as np
import pandas as pd

from rmlab.benchmarks import Benchmark, benchmark_of, benchmarks_by_name
from rmlab.metrics import pairs, summary
from rmlab.papers.printed import read_shares
from rmlab.tables import LEVELS, PAIR_KEY, DataError, check_pairs

_HEADERS = dict.fromkeys(["score", "average", "avg", "total"], "overall")
_MOST_DECIMALS = 9
_OWN = ""  # the benchmark's own rule of counting
_COLUMNS = [
    "model",
    "quantity",
    "published",
    "computed",
    "difference",
    "rule",
    "by_rule",
]


def reproduce(
    ours: pd.DataFrame,
    published: pd.DataFrame,
    *,
    names: Mapping[str, str] | None = None,
    decimals: int | None = None,
) -> pd.DataFrame:
    """Compare published numbers with those computed from scores or pairs.

    Parameters
    ----------
    ours : DataFrame
        Scores or pairs of RM-Bench or RewardBench 1, scores of RewardBench 2.
    published : DataFrame
        A table with `model` and columns such as chat, math, overall, in shares (as
        `rmlab.papers.published` gives, or a leaderboard's own with "Chat Hard" and
        "Score"); or somebody else's scores or pairs.
    names : mapping, optional
        Our names of models to theirs.
    decimals : int, optional
        Digits behind the point of the published shares; by default as many as the most
        precise of them has.

    Returns
    -------
    DataFrame
        One row per model and published number: model, quantity, published, computed (by
        the benchmark's own rules), difference (published minus computed), rule,
        by_rule, agreement, n_pairs. Models that are not in both tables are in
        `attrs["only_ours"]` and `attrs["only_published"]`.

        `by_rule` is the value that `rule` gives, and `rule` says what explains the
        number:

        - "equal", or "rounding": within half a unit of the last digit; "cut off": the
          digits agree before rounding;
        - another rule of counting: the tie policy, safety averaged over its two files,
          section weights, and so on. Of several that fit a number, the one that
          explains most of the model's numbers;
        - "math and code are swapped", and the like for any two columns;
        - empty: nothing known explains it.

        `agreement` is the share of the comparisons behind a number that have the same
        outcome in both, and `n_pairs` how many those are; with printed numbers only it
        is missing.

    Raises
    ------
    DataError
        Where the two are of different benchmarks, have no model in common, or hold
        anything but shares.
    """
    benchmark = benchmark_of(ours)
    if not benchmark.published:
        titles = ", ".join(
            b.title for b in benchmarks_by_name().values() if b.published
        )
        raise DataError(
            f"ours: nothing is published of {benchmark.title}; pass scores or pairs of one of {titles}"
        )
    if not isinstance(published, pd.DataFrame):
        raise TypeError(
            f"published: a {type(published).__name__}; pass rmlab.papers.published({benchmark.name!r})"
        )
    has_items = {"id", "domain"} <= set(published.columns)
    if has_items and benchmark_of(published) != benchmark:
        raise DataError(
            f"published: results of {benchmark_of(published).name}, ours are of {benchmark.name}"
        )
    numbers = (
        _count_numbers(published, benchmark, {})
        if has_items
        else _read_numbers(published, benchmark)
    )
    our_names = {
        (names or {}).get(model, model): model for model in ours["model"].unique()
    }
    printed = numbers[numbers.index.isin(list(our_names))].rename(index=our_names)
    if printed.empty:
        examples = f"ours: {', '.join(list(our_names)[:3])}; theirs: {', '.join(map(str, numbers.index[:3]))}"
        raise DataError(
            f"published: none of our models is in it; {examples}; pass names={{ours: theirs}}"
        )
    tolerance = 0.5 * 10.0 ** -(
        _count_decimals(printed) if decimals is None else decimals
    )
    rules: dict[str, Mapping[str, str]] = {_OWN: {}, **benchmark.variants}
    computed = pd.concat(
        {
            rule: _count_numbers(ours, benchmark, rules[rule]).reindex(printed.index)
            for rule in rules
        }
    )
    rows = [
        (model, *explained)
        for model, row in printed.iterrows()
        for explained in _explain_numbers(
            row.dropna().to_dict(), computed.xs(model, level=1).T.to_dict(), tolerance
        )
    ]
    frame = pd.DataFrame(rows, columns=_COLUMNS).astype({"model": "str"})
    frame[["agreement", "n_pairs"]] = np.nan, 0
    if has_items:
        agreement = _agree_by_number(ours, published, our_names, benchmark)
        frame.update(
            frame[["quantity", "model"]].join(agreement, on=["quantity", "model"])
        )
    frame.attrs = {
        "only_ours": [
            model for name, model in our_names.items() if name not in numbers.index
        ],
        "only_published": [
            str(model) for model in numbers.index if model not in our_names
        ],
    }
    return frame.astype({"n_pairs": "int64"})


def _count_numbers(
    table: pd.DataFrame, benchmark: Benchmark, options: Mapping[str, str]
) -> pd.DataFrame:
    """The numbers that leaderboards print, counted by one rule: one row per model
    (index).
    """
    numbers = summary(table, **options).set_index("model")  # type: ignore[arg-type]
    if benchmark.styles:
        numbers = numbers.assign(
            domain_avg=numbers["overall"], difficulty_avg=numbers["overall"]
        )
    return numbers.reindex(columns=_quantities(benchmark))


def _quantities(benchmark: Benchmark) -> list[str]:
    return [
        *benchmark.columns,
        "overall",
        *(["domain_avg", "difficulty_avg"] if benchmark.styles else []),
    ]


def _read_numbers(published: pd.DataFrame, benchmark: Benchmark) -> pd.DataFrame:
    """The benchmark's numbers in a table of somebody else's headers: one row per model
    (index).
    """
    headers = {
        c: str(c).split("(")[0].strip().lower().replace(" ", "_")
        for c in published.columns
    }
    table = published.rename(
        columns={c: _HEADERS.get(header, header) for c, header in headers.items()}
    )
    table = table.loc[:, ~table.columns.duplicated()]
    columns = [name for name in _quantities(benchmark) if name in table]
    if "model" not in table or not columns:
        allowed, present = (
            ", ".join(_quantities(benchmark)),
            ", ".join(map(str, published.columns))[:200],
        )
        raise DataError(
            f"published: no column 'model', or none of {allowed}; found: {present}; rename the columns"
        )
    for b in benchmarks_by_name().values():
        if b.published and sum(name in table for name in _quantities(b)) > len(columns):
            raise DataError(
                f"published: it looks like a table of {b.name}, ours are results of {benchmark.name}"
            )
    repeated = table.loc[table["model"].duplicated(), "model"].tolist()
    if repeated:
        raise DataError(
            f"published: {repeated[0]!r} has several rows; keep one version of the table"
        )
    return read_shares(table.set_index("model"), columns, "published")


def _count_decimals(numbers: pd.DataFrame) -> int:
    """Digits after the point of the most precise number, up to nine."""
    values = numbers.to_numpy(float)
    digits = range(_MOST_DECIMALS)
    fitting = (
        n
        for n in digits
        if np.allclose(values, values.round(n), rtol=0, atol=1e-11, equal_nan=True)
    )
    return next(fitting, _MOST_DECIMALS)


def _explain_numbers(
    printed: Mapping[Hashable, float],
    computed: Mapping[Hashable, Mapping[Hashable, float]],
    tolerance: float,
) -> Iterator[tuple[object, ...]]:
    """The columns from quantity to by_rule of a model's numbers; `computed` holds these
    by each rule of counting.
    """
    close = tolerance + 1e-9
    by_own_rule = computed[_OWN]
    rules = {
        q: [rule for rule in computed if abs(computed[rule][q] - printed[q]) <= close]
        for q in printed
    }
    n_explained = Counter(
        rule for fitting in rules.values() if _OWN not in fitting for rule in fitting
    )
    unexplained = [q for q in printed if not rules[q]]
    for quantity, number in printed.items():
        value, fitting = by_own_rule[quantity], rules[quantity]
        with_prior_sets = (
            _count_printed_prior_sets(printed, by_own_rule)
            if quantity == "overall"
            else np.nan
        )
        swapped = [
            q
            for q in unexplained
            if abs(number - by_own_rule[q]) <= close
            and abs(printed[q] - value) <= close
        ]
        by_rule = value
        if _OWN in fitting:
            words = "equal" if abs(value - number) <= 1e-9 else "rounding"
        elif (
            abs(with_prior_sets - number) <= tolerance * 4 / 3 + 1e-9
        ):  # the prior sets are themselves rounded
            words, by_rule = "with the prior sets as printed", with_prior_sets
        elif np.isnan(value):
            words = "not computed: items are missing"
        elif 0 <= value - number < 2 * tolerance:
            words = "cut off"
        elif fitting:
            rule = max(fitting, key=n_explained.__getitem__)
            words, by_rule = str(rule), computed[rule][quantity]
        elif swapped:
            words = (
                " and ".join(str(q) for q in printed if q in (quantity, swapped[0]))
                + " are swapped"
            )
            by_rule = by_own_rule[swapped[0]]
        else:
            words, by_rule = "", np.nan
        yield quantity, number, value, number - value, words, by_rule


def _count_printed_prior_sets(
    printed: Mapping[Hashable, float], computed: Mapping[Hashable, float]
) -> float:
    """The overall score of RewardBench 1 with the prior sets as printed, where their
    items are not at hand.
    """
    if "prior_sets" not in printed or not np.isnan(computed["prior_sets"]):
        return np.nan
    sections = [
        computed[column]
        for column in benchmarks_by_name()["reward-bench"].columns
        if column != "prior_sets"
    ]
    return (sum(sections) + 0.5 * printed["prior_sets"]) / 4.5


def _agree_by_number(
    ours: pd.DataFrame,
    theirs: pd.DataFrame,
    our_names: Mapping[str, str],
    benchmark: Benchmark,
) -> pd.DataFrame:
    """Share of the comparisons behind each model's numbers that end alike, and how many
    there are.
    """
    a, b = (
        pairs(table) if "score" in table else check_pairs(table)
        for table in (ours, theirs)
    )
    b = b.assign(model=b["model"].replace(our_names))[[*PAIR_KEY, "outcome"]]
    matched = a.merge(b, on=PAIR_KEY, suffixes=("", "_theirs")).dropna(
        subset=["outcome", "outcome_theirs"]
    )
    matched = matched.assign(agrees=matched["outcome"] == matched["outcome_theirs"])
    parts: dict[str, pd.DataFrame] = {}
    for quantity in _quantities(benchmark):
        subsets = {
            s
            for s, d in benchmark.subsets.items()
            if quantity in (s, d, benchmark.subset_names.get(s))
        }
        subsets |= set(benchmark.sections.get(quantity, ()))
        if subsets:
            behind = matched[matched["subset"].isin(subsets)]
        else:
            behind = (
                matched[matched["level"] == quantity] if quantity in LEVELS else matched
            )
        agrees = behind.groupby("model")["agrees"]
        parts[quantity] = pd.DataFrame(
            {"agreement": agrees.mean(), "n_pairs": agrees.size()}
        )
    return pd.concat(parts, names=["quantity"])
