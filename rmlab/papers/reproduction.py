"""Published numbers beside computed ones, and the rules that explain differences."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from rmlab.benchmarks import Benchmark, benchmark_of, benchmarks_by_name
from rmlab.metrics import pairs, summary
from rmlab.papers.printed import TABLES, read_shares
from rmlab.tables import LEVELS, PAIR_KEY, DataError, check_pairs

_HEADERS = dict.fromkeys(["score", "average", "avg", "total"], "overall")
_MOST_DECIMALS = 9
_EXACT = 1e-9  # what floating-point numbers may differ by
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
        One row per model and published number. Models that are not in both tables are
        in `attrs["only_ours"]` and `attrs["only_published"]`. Columns:

        - model, quantity
        - published
        - computed: by the benchmark's own rules
        - difference: published minus computed
        - rule: what explains the number
        - by_rule: the value that `rule` gives
        - agreement: share of the comparisons behind the number that have the same
          outcome in both; missing with printed numbers only
        - n_pairs: how many comparisons those are

        Explanations:

        - "equal", or "rounding": within half a unit of the last digit; "cut off": the
          digits agree before rounding;
        - another rule of counting: the tie policy, safety averaged over its two files,
          section weights, and so on. Of several that fit a number, the one that
          explains most of the model's numbers;
        - "math and code are swapped", and the like for any two columns;
        - empty: nothing known explains it.

    Raises
    ------
    DataError
        Where the two are of different benchmarks, have no model in common, or hold
        anything but shares.
    """
    benchmark = benchmark_of(ours)
    _check_published(published, benchmark)
    has_items = _has_items(published)
    if has_items:
        numbers = _count_numbers(published, benchmark, {})
    else:
        numbers = _read_numbers(published, benchmark)

    our_names: dict[str, str] = {}
    for model in ours["model"].unique():
        their_name = (names or {}).get(model, model)
        our_names[their_name] = model
    printed = _match_models(numbers, our_names)
    if decimals is None:
        decimals = _count_decimals(printed)
    frame = _explain_differences(ours, printed, benchmark, 0.5 * 10.0**-decimals)

    if has_items:
        agreement = _agree_by_number(ours, published, our_names, benchmark)
        frame = frame.join(agreement, on=["quantity", "model"])
        frame["n_pairs"] = frame["n_pairs"].fillna(0).astype("int64")
    else:
        frame["agreement"] = np.nan
        frame["n_pairs"] = 0
    only_published = numbers.index[~numbers.index.isin(list(our_names))]
    frame.attrs = {
        "only_ours": [
            our_names[name] for name in our_names if name not in numbers.index
        ],
        "only_published": [str(model) for model in only_published],
    }
    return frame


def _check_published(published: pd.DataFrame, benchmark: Benchmark) -> None:
    """Raise if there is nothing to compare, or the two are of different benchmarks."""
    if benchmark.name not in TABLES:
        known = benchmarks_by_name().values()
        with_tables = [b.title for b in known if b.name in TABLES]
        problem = f"ours: nothing is published of {benchmark.title}"
        remedy = f"pass scores or pairs of one of {', '.join(with_tables)}"
        raise DataError(problem, remedy)
    if not isinstance(published, pd.DataFrame):
        raise TypeError(
            f"published: a {type(published).__name__}; "
            f"pass rmlab.papers.published({benchmark.name!r})"
        )
    if _has_items(published):
        theirs = benchmark_of(published)
        if theirs != benchmark:
            names = f"{theirs.name}, ours are of {benchmark.name}"
            problem = f"published: results of {names}"
            raise DataError(problem, "pass results of one benchmark")


def _has_items(published: pd.DataFrame) -> bool:
    """Whether a table holds somebody's scores or pairs, not printed numbers."""
    return "id" in published and "domain" in published


def _match_models(numbers: pd.DataFrame, our_names: Mapping[str, str]) -> pd.DataFrame:
    """The numbers of the models that are ours, too, under our names."""
    is_ours = numbers.index.isin(list(our_names))
    if not is_ours.any():
        our_examples = ", ".join(list(our_names)[:3])
        their_examples = ", ".join(map(str, numbers.index[:3]))
        problem = "published: none of our models is in it"
        examples = f"ours: {our_examples}; theirs: {their_examples}"
        raise DataError(f"{problem}; {examples}", "pass names={ours: theirs}")
    return numbers[is_ours].rename(index=our_names)


def _count_numbers(
    table: pd.DataFrame, benchmark: Benchmark, options: Mapping[str, str]
) -> pd.DataFrame:
    """The numbers that leaderboards print, by one rule: one row per model (index)."""
    numbers = summary(table, **options).set_index("model")  # type: ignore[arg-type]
    if benchmark.styles:
        numbers["domain_avg"] = numbers["overall"]
        numbers["difficulty_avg"] = numbers["overall"]
    return numbers.reindex(columns=_quantities(benchmark))


def _quantities(benchmark: Benchmark) -> list[str]:
    quantities = [*benchmark.columns, "overall"]
    if benchmark.styles:
        quantities += ["domain_avg", "difficulty_avg"]
    return quantities


def _read_numbers(published: pd.DataFrame, benchmark: Benchmark) -> pd.DataFrame:
    """The benchmark's numbers in somebody else's table: one row per model (index)."""
    names = {}
    for column in published.columns:
        header = str(column).split("(")[0].strip().lower().replace(" ", "_")
        names[column] = _HEADERS.get(header, header)
    table = published.rename(columns=names)
    table = table.loc[:, ~table.columns.duplicated()]

    quantities = _quantities(benchmark)
    columns = [name for name in quantities if name in table]
    if "model" not in table or not columns:
        problem = f"published: no column 'model', or none of {', '.join(quantities)}"
        headers = ", ".join(map(str, published.columns))
        raise DataError(f"{problem}; found: {headers[:200]}", "rename the columns")
    for b in benchmarks_by_name().values():
        shared = table.columns.intersection(_quantities(b))
        if b.name in TABLES and len(shared) > len(columns):
            fault = f"it looks like a table of {b.name}"
            problem = f"published: {fault}, ours are results of {benchmark.name}"
            raise DataError(problem, "pass the table of one benchmark")
    repeated = table.loc[table["model"].duplicated(), "model"].tolist()
    if repeated:
        problem = f"published: {repeated[0]!r} has several rows"
        raise DataError(problem, "keep one version of the table")
    return read_shares(table.set_index("model"), columns, "published")


def _count_decimals(numbers: pd.DataFrame) -> int:
    """Digits after the point of the most precise number, up to nine."""
    values = numbers.to_numpy(float)
    for n in range(_MOST_DECIMALS):
        rounded = values.round(n)
        if np.allclose(values, rounded, rtol=0, atol=1e-11, equal_nan=True):
            return n
    return _MOST_DECIMALS


def _explain_differences(
    ours: pd.DataFrame, printed: pd.DataFrame, benchmark: Benchmark, tolerance: float
) -> pd.DataFrame:
    """One row per model and printed number: both values, and the rule that explains."""
    rules: dict[str, Mapping[str, str]] = {_OWN: {}, **benchmark.variants}
    by_rule = {}
    for rule, options in rules.items():
        by_rule[rule] = _count_numbers(ours, benchmark, options).to_dict("index")

    rows = []
    for model, printed_numbers in printed.iterrows():
        computed = {rule: numbers[model] for rule, numbers in by_rule.items()}
        of_model = _Numbers(printed_numbers.dropna().to_dict(), computed, tolerance)
        for quantity, number in of_model.printed.items():
            value = computed[_OWN][quantity]
            explanation = of_model.explain(quantity)
            rows.append(
                {
                    "model": model,
                    "quantity": quantity,
                    "published": number,
                    "computed": value,
                    "difference": number - value,
                    "rule": explanation.rule,
                    "by_rule": explanation.value,
                }
            )
    return pd.DataFrame(rows, columns=_COLUMNS).astype({"model": "str"})


class _Explanation(NamedTuple):
    """What gives a printed number, and the value that it gives."""

    rule: str
    value: float


@dataclass(frozen=True)
class _Numbers:
    """The numbers of one model: printed, and computed by each rule of counting."""

    printed: Mapping[Hashable, float]
    computed: Mapping[str, Mapping[Hashable, float]]
    tolerance: float

    def explain(self, quantity: Hashable) -> _Explanation:
        """Find what explains the printed number; no rule where nothing known does."""
        printed = self.printed[quantity]
        computed = self.computed[_OWN][quantity]
        if abs(computed - printed) <= _EXACT:
            return _Explanation("equal", computed)
        if self._is_close(computed, printed):
            return _Explanation("rounding", computed)

        if quantity == "overall":
            with_prior_sets = self._overall_with_printed_prior_sets()
            # The prior sets are themselves rounded.
            if abs(with_prior_sets - printed) <= self.tolerance * 4 / 3 + _EXACT:
                return _Explanation("with the prior sets as printed", with_prior_sets)
        if np.isnan(computed):
            return _Explanation("not computed: items are missing", computed)
        if 0 <= computed - printed < 2 * self.tolerance:
            return _Explanation("cut off", computed)

        if self._fitting_rules[quantity]:
            rule = max(self._fitting_rules[quantity], key=self._count_explained)
            return _Explanation(rule, self.computed[rule][quantity])
        for other in self.printed:
            if self._are_swapped(quantity, other):
                swapped = (quantity, other)
                names = [str(name) for name in self.printed if name in swapped]
                rule = f"{' and '.join(names)} are swapped"
                return _Explanation(rule, self.computed[_OWN][other])
        return _Explanation("", np.nan)

    @cached_property
    def _fitting_rules(self) -> dict[Hashable, list[str]]:
        """The rules that give each printed number."""
        fitting: dict[Hashable, list[str]] = {quantity: [] for quantity in self.printed}
        for rule, numbers in self.computed.items():
            for quantity, printed in self.printed.items():
                if self._is_close(numbers[quantity], printed):
                    fitting[quantity].append(rule)
        return fitting

    def _is_close(self, computed: float, printed: float) -> bool:
        return abs(computed - printed) <= self.tolerance + _EXACT

    def _count_explained(self, rule: str) -> int:
        """How many numbers a rule explains that the benchmark's own does not."""
        fitting = self._fitting_rules.values()
        return sum(rule in rules and _OWN not in rules for rules in fitting)

    def _are_swapped(self, quantity: Hashable, other: Hashable) -> bool:
        """Whether each is printed where the other belongs, and no rule explains it."""
        if self._fitting_rules[other]:
            return False
        computed = self.computed[_OWN]
        is_there = self._is_close(computed[other], self.printed[quantity])
        is_here = self._is_close(computed[quantity], self.printed[other])
        return is_there and is_here

    def _overall_with_printed_prior_sets(self) -> float:
        """RewardBench 1's overall, where the items of the prior sets are missing."""
        computed = self.computed[_OWN]
        if "prior_sets" not in self.printed or not np.isnan(computed["prior_sets"]):
            return np.nan
        sections = [*benchmarks_by_name()["reward-bench"].columns]
        sections.remove("prior_sets")
        total = sum(computed[section] for section in sections)
        return (total + 0.5 * self.printed["prior_sets"]) / 4.5


def _agree_by_number(
    ours: pd.DataFrame,
    theirs: pd.DataFrame,
    our_names: Mapping[str, str],
    benchmark: Benchmark,
) -> pd.DataFrame:
    """Agreement on the comparisons behind each number: one row per number and model."""
    our_pairs = _as_pairs(ours)
    their_pairs = _as_pairs(theirs)[[*PAIR_KEY, "outcome"]]
    their_pairs["model"] = their_pairs["model"].replace(our_names)
    matched = our_pairs.merge(their_pairs, on=PAIR_KEY, suffixes=("", "_theirs"))
    matched = matched.dropna(subset=["outcome", "outcome_theirs"])
    matched["agrees"] = matched["outcome"] == matched["outcome_theirs"]

    parts: dict[str, pd.DataFrame] = {}
    for quantity in _quantities(benchmark):
        behind = _select_pairs(matched, quantity, benchmark)
        agrees = behind.groupby("model")["agrees"]
        parts[quantity] = pd.DataFrame(
            {"agreement": agrees.mean(), "n_pairs": agrees.size()}
        )
    return pd.concat(parts, names=["quantity"])


def _as_pairs(table: pd.DataFrame) -> pd.DataFrame:
    return pairs(table) if "score" in table else check_pairs(table)


def _select_pairs(
    table: pd.DataFrame, quantity: str, benchmark: Benchmark
) -> pd.DataFrame:
    """The comparisons behind a number: of a section, domain, subset or level."""
    subsets = set(benchmark.sections.get(quantity, ()))
    for subset, domain in benchmark.subsets.items():
        if quantity in (subset, domain, benchmark.subset_names.get(subset)):
            subsets.add(subset)

    if subsets:
        return table[table["subset"].isin(subsets)]
    if quantity in LEVELS:
        return table[table["level"] == quantity]
    return table
