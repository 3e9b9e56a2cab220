"""One estimate: rank, leaderboard, summary, compare and estimates say the same number,
on every benchmark.
"""

import re

import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import reward_bench_2_scores

import rmlab
from rmlab import metrics, stats, tables
from rmlab.estimation.difference import holm
from rmlab.estimation.estimate import estimate
from rmlab.metrics.prepare import overall_number, prepare


def own_data(models=8, n=70, seed=0):
    rng = np.random.default_rng(seed)
    rows = [
        (f"m{k}", "own", f"d{i % 3}", str(i), 0, j, float(rng.normal(0.1 * k)))
        for k in range(models) for i in range(n) for j in range(1 + i % 4)
    ]  # fmt: skip
    columns = ["model", *tables.PROMPT, "chosen_slot", "rejected_slot", "margin"]
    return tables.check_pairs(pd.DataFrame(rows, columns=columns))


def rm_bench_toys(make_scores, models=50):
    sizes = {"chat": 6, "math": 7, "code": 5, "safety-refuse": 5, "safety-response": 6}
    scores = make_scores(
        sizes, models=tuple(f"toy {k}" for k in range(models)), seed=5, levels=9
    )
    better = (
        scores["model"].str.split().str[1].astype(int)
        / models
        * 4
        * (scores["label"] == "chosen")
    )
    return metrics.pairs(scores.assign(score=np.round(scores["score"] + better)))


def with_gaps(table, share=0.04, seed=1):
    """The same table with some scores, or outcomes, left out at random."""
    gone = np.random.default_rng(seed).random(len(table)) < share
    if "score" in table:
        return table.assign(score=table["score"].where(~gone))
    return table.assign(
        outcome=table["outcome"].where(~gone), margin=table["margin"].where(~gone)
    )


def every_pair(table, common=False, **options):
    """The test of `compare` for every two models, with Holm over the pairs."""
    ties = options.pop("ties", None)
    average = options.pop("average", "benchmark")
    _, items = prepare(table, average, ties, common, options, min_models=2)
    first, second = np.triu_indices(len(items.models), 1)
    pairs = items.subtract(first, second)
    test = estimate(pairs, [overall_number(pairs)])
    names = np.array(items.models)
    columns = {"model_a": names[first], "model_b": names[second]}
    columns |= {"difference": test.value[:, 0], "p_holm": holm(test.p[:, 0])}
    columns |= {name: getattr(test, name)[:, 0] for name in ("se", "low", "high", "p")}
    return pd.DataFrame(columns)


def check_laws(table, **options):
    """Order and values of all tables of a field, and every pair."""
    summary = rmlab.summary(table, **options).set_index("model")["overall"]
    ranks = stats.rank(table, **options)
    board = rmlab.leaderboard(table, **options).query("kind == 'model'")
    numbers = (
        rmlab.estimates(table, **options)
        .query("quantity == 'overall'")
        .set_index("model")
    )
    for found in (
        ranks.set_index("model")["value"],
        board.set_index("model")["overall"],
        numbers["value"],
    ):
        pd.testing.assert_series_equal(
            found[summary.index], summary, check_names=False, check_exact=True
        )
    order = summary.sort_values(
        ascending=False, kind="stable", na_position="last"
    ).index.tolist()
    assert ranks["model"].tolist() == board["model"].tolist() == order
    np.testing.assert_array_equal(ranks["rank"].fillna(0), board["rank"].fillna(0))
    for name in ("rank_low", "rank_high", "group"):
        assert ranks[name].fillna(0).tolist() == board[name].fillna(0).tolist(), name
    contests = every_pair(table, **options)
    known = contests["p"].notna()
    out = (contests["low"] > 0) | (contests["high"] < 0)
    np.testing.assert_array_equal(out[known], (contests["p"] < 0.05)[known])
    check_letters(ranks.set_index("model"), contests)
    some = contests.iloc[[0, len(contests) // 2, -1]]
    for row in some.itertuples():
        one = stats.compare(table, row.model_a, row.model_b, **options).iloc[0]
        for column in ("difference", "se", "low", "high", "p"):
            np.testing.assert_allclose(
                one[column], getattr(row, column), rtol=1e-9, atol=1e-15
            )


def check_letters(ranks, contests):
    """Two models share a letter exactly unless their p_holm is below 0.05, and the
    ranks count these decisions.
    """
    letters = {m: set(re.findall(r"[a-zA-Z]\d*", g)) for m, g in ranks["group"].items()}
    n_better = dict.fromkeys(ranks.index, 0)
    for row in contests[contests["p"].notna()].itertuples():
        is_clear = row.p_holm < 0.05
        assert is_clear == (not letters[row.model_a] & letters[row.model_b])
        assert row.p_holm >= row.p
        if is_clear:
            n_better[row.model_b if row.difference > 0 else row.model_a] += 1
    known = ranks["rank_low"].notna()
    assert ranks.loc[known, "rank_low"].tolist() == [
        1 + n_better[model] for model in ranks.index[known]
    ]


@pytest.mark.parametrize("average", ["benchmark", "domains", "prompts"])
@pytest.mark.parametrize("whole", [True, False])
def test_own_data(average, whole):
    table = own_data()
    check_laws(table if whole else with_gaps(table), average=average)


@pytest.mark.parametrize("whole", [True, False])
def test_rm_bench_with_fifty_toys(make_scores, whole):
    table = rm_bench_toys(make_scores)
    check_laws(table if whole else with_gaps(table), ties="half" if whole else "loss")


@pytest.mark.parametrize("whole", [True, False])
def test_reward_bench_2_simulations(whole):
    table = reward_bench_2_scores(seed=2, models=tuple("abcdef"), n=9)
    check_laws(table if whole else with_gaps(table, share=0.01))


def test_common_items_are_the_same_for_all():
    table = own_data()
    check_laws(table.drop(table.sample(frac=0.05, random_state=0).index), common=True)


def test_the_real_response_matrix(shared_data):
    path = shared_data / "rewardbench/response_matrix.torch_measure.csv"
    table = rmlab.read_pairs(path, benchmark="reward-bench")
    summary = rmlab.summary(table).set_index("model")["overall"]
    assert summary.isna().sum() == 16
    check_laws(table)


def test_equivalence_follows_the_same_estimate():
    table = own_data()
    row = stats.compare(table, "m0", "m7", confidence=0.9).iloc[0]
    for margin in (row["high"] - row["low"], 0.001, 0.9):
        found = stats.equivalence(table, "m0", "m7", margin=margin).iloc[0]
        assert found["equivalent"] == (-margin < row["low"] and row["high"] < margin)
        assert [found["low"], found["high"]] == [row["low"], row["high"]]
    with pytest.raises(ValueError, match="margin: 2"):
        stats.equivalence(table, "m0", "m7", margin=2)


BY_TABLES = {
    "accuracy": rmlab.accuracy,
    "style_gap": rmlab.style_gap,
    "compare": lambda scores, by: rmlab.compare(scores, "longest", "random", by=by[1:]),
    "equivalence": lambda scores, by: stats.equivalence(
        scores, "longest", "random", margin=0.1, by=by[1:]
    ),
    "style_preference": rmlab.bias.style_preference,
    "style_effects": rmlab.style_effects,
    "exchange_rate": rmlab.exchange_rate,
    "length_controlled": lambda scores, by: rmlab.bias.length_controlled(
        scores, rmlab.styles.features(rmlab.load("mini")), by=by
    ),
}


@pytest.mark.filterwarnings("ignore:form")
@pytest.mark.parametrize("name", BY_TABLES)
def test_no_column_of_by_is_overwritten_or_doubled_by_a_number_of_the_result(
    name, mini
):
    table_of = BY_TABLES[name]
    scores = rmlab.score(mini, ["longest", "random"])
    numbers = table_of(scores, by=["model", "domain"]).columns.difference(
        scores.columns
    )
    assert len(numbers) > 5
    kind = pd.Series(np.where(scores["domain"] < "d", "x", "y"), dtype="str")
    for number in numbers.difference(tables.PAIRS):
        with pytest.raises(rmlab.DataError, match=repr(number)):
            table_of(scores.assign(**{number: kind}), by=["model", number])
