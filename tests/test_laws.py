"""One estimate: rank, leaderboard, summary, compare and estimates say the same number,
on every benchmark; every measure widens with clusters and names what it cannot do.
"""

import re

import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import reward_bench_2_scores
from statsmodels.stats.multitest import multipletests
from style_worlds import world

import rmlab
from rmlab import metrics, stats, tables
from rmlab.bias import length_controlled, style_controlled, style_preference
from rmlab.estimation.estimate import estimate
from rmlab.metrics.prepare import overall_number, prepare


def own_data(models=8, n=70):
    """Three domains, one to four comparisons a prompt; later models are better."""
    rng = np.random.default_rng(0)
    prompt = np.repeat(np.arange(n), 1 + np.arange(n) % 4)
    keys = {"benchmark": "own", "domain": np.char.add("d", (prompt % 3).astype(str))}
    frame = pd.DataFrame(keys | {"id": prompt.astype(str), "chosen_slot": 0})
    frame["rejected_slot"] = frame.groupby("id").cumcount()
    parts = []
    for model in range(models):
        margin = rng.normal(0.1 * model, 1, len(frame))
        parts.append(frame.assign(model=f"m{model}", margin=margin))
    return tables.check_pairs(pd.concat(parts))


def rm_bench_toys(make_scores, models=50):
    sizes = {"chat": 6, "math": 7, "code": 5, "safety-refuse": 5, "safety-response": 6}
    names = [str(model) for model in range(models)]
    scores = make_scores(sizes, models=names, seed=5, levels=9)
    better = scores["model"].astype(int) / models * 4 * (scores["label"] == "chosen")
    return metrics.pairs(scores.assign(score=np.round(scores["score"] + better)))


def with_gaps(table, share=0.04):
    """The same table with some scores, or outcomes, left out at random."""
    is_gone = np.random.default_rng(1).random(len(table)) < share
    column = "score" if "score" in table else "outcome"
    return table.assign(**{column: table[column].mask(is_gone)})


def every_pair(table, common=False, ties=None, average="benchmark"):
    """The test of `compare` for every two models, with Holm over the pairs."""
    _, items = prepare(table, average, ties, common, min_models=2)
    first, second = np.triu_indices(len(items.models), 1)
    pairs = items.subtract(first, second)
    test = estimate(pairs, [overall_number(pairs)])
    names = np.array(items.models)
    columns = {"model_a": names[first], "model_b": names[second]}
    p_holm = np.full(len(first), np.nan)
    is_known = ~np.isnan(test.p[:, 0])
    p_holm[is_known] = multipletests(test.p[is_known, 0], method="holm")[1]
    columns |= {"difference": test.value[:, 0], "p_holm": p_holm}
    columns |= {name: getattr(test, name)[:, 0] for name in ("se", "low", "high", "p")}
    return pd.DataFrame(columns)


def check_laws(table, **options):
    """Order and values of all tables of a field, and every pair."""
    summary = rmlab.summary(table, **options).set_index("model")["overall"]
    ranks = stats.rank(table, **options).set_index("model")
    board = rmlab.leaderboard(table, **options).query("kind == 'model'")
    board = board.set_index("model")
    numbers = rmlab.estimates(table, **options).query("quantity == 'overall'")
    values = numbers.set_index("model")["value"]
    for column in (ranks["value"], board["overall"], values):
        np.testing.assert_array_equal(column[summary.index], summary)
    order = summary.sort_values(ascending=False, kind="stable").index.tolist()
    assert ranks.index.tolist() == board.index.tolist() == order
    shared = ["rank", "rank_low", "rank_high", "group"]
    pd.testing.assert_frame_equal(ranks[shared], board[shared])

    contests = every_pair(table, **options)
    known = contests[contests["p"].notna()]
    is_out = (known["low"] > 0) | (known["high"] < 0)
    np.testing.assert_array_equal(is_out, known["p"] < 0.05)
    check_letters(ranks, known)
    columns = ["difference", "se", "low", "high", "p"]
    for _, row in contests.iloc[[0, len(contests) // 2, -1]].iterrows():
        one = stats.compare(table, row["model_a"], row["model_b"], **options).iloc[0]
        expected = row[columns].astype(float)
        np.testing.assert_allclose(one[columns].astype(float), expected, atol=1e-12)


def check_letters(ranks, contests):
    """Two models share a letter exactly unless their p_holm is below 0.05, and the
    ranks count these decisions.
    """
    letters = {m: set(re.findall(r"[a-zA-Z]\d*", g)) for m, g in ranks["group"].items()}
    n_better = dict.fromkeys(ranks.index, 0)
    n_worse = dict.fromkeys(ranks.index, 0)
    for row in contests.itertuples():
        is_clear = row.p_holm < 0.05
        assert is_clear == (not letters[row.model_a] & letters[row.model_b])
        if is_clear:
            sides = (row.model_a, row.model_b)
            n_worse[sides[row.difference < 0]] += 1
            n_better[sides[row.difference > 0]] += 1
    n_ranked = ranks["rank"].count()
    for model, row in ranks.dropna(subset="rank_low").iterrows():
        assert row["rank_low"] == 1 + n_better[model]
        assert row["rank_high"] == n_ranked - n_worse[model]


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
    assert rmlab.summary(table)["overall"].isna().sum() == 16
    check_laws(table)


def test_equivalence_follows_the_same_estimate():
    table = own_data()
    row = stats.compare(table, "m0", "m7", confidence=0.9).iloc[0]
    for margin in (row["high"] - row["low"], 0.001, 0.9):
        same = stats.equivalence(table, "m0", "m7", margin=margin).iloc[0]
        assert same["equivalent"] == (-margin < row["low"] and row["high"] < margin)
        assert [same["low"], same["high"]] == [row["low"], row["high"]]
    with pytest.raises(ValueError, match="margin: 2"):
        stats.equivalence(table, "m0", "m7", margin=2)


BY_TABLES = {
    "accuracy": rmlab.accuracy,
    "style_gap": rmlab.style_gap,
    "compare": lambda scores, by: rmlab.compare(scores, "longest", "random", by=by[1:]),
    "equivalence": lambda scores, by: stats.equivalence(
        scores, "longest", "random", margin=0.1, by=by[1:]
    ),
    "style_preference": style_preference,
    "style_effects": rmlab.style_effects,
    "exchange_rate": rmlab.exchange_rate,
    "length_controlled": lambda scores, by: length_controlled(
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
    numbers = table_of(scores, by=["model", "domain"]).columns
    numbers = numbers.difference(scores.columns)
    assert len(numbers) > 5
    kind = pd.Series(np.where(scores["domain"] < "d", "x", "y"), dtype="str")
    for number in numbers.difference(tables.PAIRS):
        with pytest.raises(rmlab.DataError, match=repr(number)):
            table_of(scores.assign(**{number: kind}), by=["model", number])


FEATURES = world(80, seed=3)[1]
CLUSTERED = {
    "accuracy": rmlab.accuracy,
    "compare": lambda s, **o: rmlab.compare(s, "m", "n", **o),
    "gap": rmlab.style_gap,
    "preference": lambda s, **o: style_preference(s, by="model", **o),
    "effect": lambda s, **o: rmlab.style_effects(s, terms=["step"], **o),
    "length": lambda s, **o: length_controlled(s, FEATURES, **o),
    "style": lambda s, **o: style_controlled(s, controls="style", **o),
    "calibration": lambda s, **o: stats.calibration(s, bins=2, **o),
    "brier": stats.calibration_error,
    "best": lambda s, **o: metrics.best_of_curve(s, sizes=[2], by="model", **o),
}


@pytest.mark.parametrize("name", CLUSTERED)
def test_families_of_prompts_widen_the_interval_and_few_prompts_have_none(name):
    """A family shares its merit and its taste for style."""
    measure = CLUSTERED[name]
    rng = np.random.default_rng(0)
    parts = []
    for model in "mn":
        scores, _ = world(80, seed=3, model=model)
        family = scores["id"].astype(int) // 8
        taste = rng.normal(0, 2, 10)[family] * scores["slot"]
        merit = rng.normal(0, 3, 10)[family] * (scores["label"] == "chosen")
        shifted = scores.assign(score=scores["score"] + taste + merit)
        parts.append(shifted.assign(template=family.astype(str)))
    scores = pd.concat(parts, ignore_index=True)

    apart = measure(scores)
    together = measure(scores, cluster="template")
    prefix = "brier_" if name == "brier" else ""
    low, high = f"{prefix}low", f"{prefix}high"
    width = (together[high] - together[low]) / (apart[high] - apart[low])
    assert width.mean() > 1.2
    # A curve of fewer clusters has fewer columns, so that its values differ.
    values = ["accuracy", "difference", "gap", "preference", "brier", "n_prompts"]
    values += ["effect"] if name == "effect" else []
    values = apart.columns.intersection(values)
    pd.testing.assert_frame_equal(together[values], apart[values])

    few = measure(scores[scores["id"].astype(int) < 4])
    assert few[[low, high]].isna().all(axis=None)
    is_named = few.get("reason", pd.Series(["fewer than 5"])).str.contains(
        "fewer than 5"
    )
    assert is_named.all()
    with pytest.raises(rmlab.DataError, match=r"template.* missing"):
        measure(scores.assign(template=np.nan), cluster="template")
    with pytest.raises(rmlab.DataError, match="famly"):
        measure(scores, cluster="famly")
