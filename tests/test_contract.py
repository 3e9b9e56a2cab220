"""Columns that others read and columns of one's own; a model's numbers do not depend on
its company.
"""

import inspect
import re

import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import reward_bench_2_scores, reward_bench_pairs

import rmlab
from rmlab import metrics, stats, tables
from rmlab.tables import DataError

SIZES = {"chat": 5, "math": 6, "code": 5, "safety-refuse": 5, "safety-response": 6}
COUNTS = "n_prompts n_ties missing average reason"
LOSSES = "brier brier_low brier_high log_loss log_loss_low log_loss_high"
COMPARED = (
    "value_a value_b difference se low high p p_holm agreement n_prompts n_pairs "
    "n_ties_a n_ties_b missing"
)
COLUMNS = f"""
summary: model chat math code safety easy normal hard overall se low high {COUNTS}
estimates: model quantity name value se low high n_prompts n_pairs n_ties missing \
chance average reason
accuracy: model domain accuracy se low high n_prompts n_pairs n_ties missing average \
reason
compare: model_a model_b domain {COMPARED} average reason
equivalence: model_a model_b difference low high margin equivalent smallest_margin \
power n_prompts missing average reason
leaderboard: rank model overall low high kind chat math code safety easy normal hard \
se {COUNTS} rank_low rank_high group
rank: model value se low high rank rank_low rank_high group {COUNTS}
power: model_a model_b difference agreement n_prompts detectable alpha \
average reason
flips: {" ".join(tables.PAIRS[1:-2])} outcome_a outcome_b margin_a margin_b
calibration: model bin left right predicted accuracy se low high n_pairs n_prompts \
missing ece ece_low ece_high
calibration_error: model ece ece_low ece_high {LOSSES} n_pairs n_prompts n_ties \
missing reason
style_gap: model easy hard gap se low high {COUNTS}
"""
COLUMNS = {
    name: columns.split()
    for name, columns in (line.split(":") for line in COLUMNS.strip().splitlines())
}
TWO = {"a": "a", "b": "b"}
OPTIONS = {
    "accuracy": {"by": ["model", "domain"]},
    "compare": TWO | {"by": "domain"},
    "flips": TWO,
    "power": {"a": "a"},
}
OPTIONS |= {"equivalence": TWO | {"margin": 0.1}}


def call(name, table, **options):
    """The public function of this name, with the arguments that it needs."""
    module = next(module for module in (rmlab, stats, metrics) if hasattr(module, name))
    return getattr(module, name)(table, **OPTIONS.get(name, {}), **options)


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_and_their_types(name, make_scores):
    scores = make_scores(SIZES, models=("a", "b", "c"))
    scores.attrs["provenance"] = {"a": {"by": "hand"}}
    table = call(name, scores)
    assert list(table.columns) == COLUMNS[name]
    objects = [column for column in table if table[column].dtype == object]
    # Before pandas 3 text has no type of its own.
    assert pd.Series("text").dtype == object or not objects
    for column in objects:
        assert {type(value) for value in table[column].dropna()} <= {str}
    if hasattr(rmlab, name):
        assert table.attrs["provenance"] == scores.attrs["provenance"]


def arrow(frame):
    """Every column in pyarrow's dtype, which has no ordered categories."""
    ordered = frame.select_dtypes("category").columns
    text = frame.astype(dict.fromkeys(ordered, "string"))
    return text.convert_dtypes(dtype_backend="pyarrow")


# A leaderboard draws the scores of a baseline, of pairs other ones.
@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "leaderboard"])
def test_scores_pairs_and_columns_of_pyarrow_alike(name, make_scores):
    scores = make_scores(SIZES, seed=2)
    scores.loc[5, "score"] = np.nan
    pairs = rmlab.pairs(scores)
    expected = call(name, pairs)
    expected.attrs = {}
    for table, is_same_type in ((scores, True), (arrow(pairs), False)):
        result = call(name, table)
        result.attrs = {}
        pd.testing.assert_frame_equal(
            result, expected, check_dtype=is_same_type, check_categorical=is_same_type
        )


def one_without_prior_sets():
    first = reward_bench_pairs(models=("a",), prior_sets=True)
    return pd.concat([first, reward_bench_pairs(models=("b",), seed=1)])


@pytest.mark.parametrize("benchmark", [0, 1, 2])
def test_a_models_numbers_are_its_own(benchmark, make_scores):
    make = [lambda: make_scores(SIZES), one_without_prior_sets, reward_bench_2_scores]
    table = make[benchmark]()
    key = ["model", "quantity", "name"]
    estimates = rmlab.estimates(table).set_index(key)
    for model in "ab":
        alone = rmlab.estimates(table[table["model"] == model]).set_index(key)
        # The chance of a subset that a model lacks is known from the others.
        pd.testing.assert_frame_equal(
            estimates.loc[alone.index].drop(columns="chance"),
            alone.drop(columns="chance"),
        )


@pytest.mark.parametrize(
    "name", ["summary", "accuracy", "compare", "rank", "style_gap"]
)
def test_common_items_are_those_left_after_dropping_the_others(name, make_scores):
    pairs = metrics.pairs(make_scores({**SIZES, "chat": 8}, models=("a", "b", "c")))
    is_lost = (pairs["domain"] == "chat") & pairs["id"].isin(["chat/1", "chat/6"])
    partial = pairs[~(is_lost & (pairs["model"] == "b"))]
    common = call(name, partial, common=True)
    dropped = call(name, pairs[~is_lost])
    pd.testing.assert_frame_equal(
        common.drop(columns="missing"), dropped.drop(columns="missing")
    )
    assert common["missing"].max() > 0, "what is left out is counted"
    assert dropped["missing"].max() == 0


def test_options_of_the_benchmark_reach_every_table(make_scores):
    scores = make_scores(SIZES)
    option = {"safety": "split"}
    summary = rmlab.summary(scores, **option).set_index("model")
    split = summary["overall"]
    domains = summary[["chat", "math", "code", "safety"]]
    np.testing.assert_allclose(split, domains.mean(axis=1))
    assert (split != rmlab.summary(scores).set_index("model")["overall"]).all()
    gap = split["a"] - split["b"]
    for table in (
        rmlab.compare(scores, "a", "b", **option),
        stats.equivalence(scores, "a", "b", margin=0.1, **option),
        stats.power(scores, "a", "b", **option),
    ):
        assert table["difference"].item() == pytest.approx(gap, abs=1e-15)
    rank = rmlab.rank(scores, **option).set_index("model")["value"]
    assert rank.to_dict() == split.to_dict()


def test_a_missing_score_is_no_loss_in_best_of_n():
    scores = reward_bench_2_scores(models=("a",))
    is_prompt = (scores["domain"] == "Focus") & (scores["id"] == "2")
    gaps = scores.assign(
        score=scores["score"].where(~is_prompt | (scores["slot"] != 1))
    )
    curve, rest = (
        metrics.best_of_curve(table).query("domain == 'Focus'")
        for table in (gaps, scores[~is_prompt])
    )
    assert curve["missing"].tolist() == [1, 1, 1]
    pd.testing.assert_frame_equal(
        curve.drop(columns="missing"), rest.drop(columns="missing")
    )


def families():
    """Scores of twelve families of four prompts that mostly stand or fall together;
    `source` differs between families.
    """
    rng = np.random.default_rng(0)
    shared = dict(zip(range(24), rng.normal(0.5, 2, 24), strict=True))
    rows = [
        {
            "model": "ab"[m],
            "id": f"{f}-{p}",
            "template": f"f{f}",
            "score": shared[f + m],
        }
        for m in range(2)
        for f in range(0, 24, 2)
        for p in range(4)
    ]
    frame = pd.DataFrame(rows).assign(benchmark="own", domain="all", slot=0)
    frame["source"] = np.where(frame["template"].str.endswith("0"), "web", "books")
    frame["score"] += rng.normal(size=len(frame))
    chosen = frame.assign(label="chosen")
    return pd.concat([chosen, frame.assign(label="rejected", score=0.0)])


def test_the_error_of_a_family_of_prompts_is_that_of_its_sums():
    """By hand, from the means of families of equal size."""
    scores = families()
    pairs = rmlab.pairs(scores)
    won = pairs.assign(won=pairs["outcome"] == "win")
    means = won.pivot_table("won", "template", "model")
    error = means.std(ddof=1) / np.sqrt(len(means))
    for name in ("summary", "accuracy", "estimates", "rank", "leaderboard"):
        for table in (scores, pairs):
            result = call(name, table, cluster="template")
            rows = result.drop_duplicates("model").set_index("model")
            assert rows.loc["a", "se"] == pytest.approx(error["a"]), name
    clustered = rmlab.summary(scores, cluster="template").iloc[0]
    assert clustered["se"] > 1.2 * rmlab.summary(scores).iloc[0]["se"]
    assert clustered["n_prompts"] == 48
    difference = means["a"] - means["b"]
    compared = rmlab.compare(scores, "a", "b", cluster="template")["se"].item()
    assert compared == pytest.approx(difference.std(ddof=1) / np.sqrt(len(means)))
    gaps = scores.assign(template=scores["template"].where(scores["id"] != "2-1"))
    for table, column, message in (
        (scores, "templte", r"cluster: .*'templte'.*'template'"),
        (gaps, "template", r"cluster: \['template'\].*'2-1'"),
    ):
        with pytest.raises(DataError, match=message):
            rmlab.summary(table, cluster=column)


def test_columns_of_a_prompt_go_into_pairs_and_by_reaches_them():
    scores = families()
    pairs = rmlab.pairs(scores.assign(tokens=np.arange(len(scores))))
    assert list(pairs.columns) == [*tables.PAIRS, "template", "source"]
    won = pairs.assign(won=pairs["outcome"] == "win")
    expected = won.pivot_table("won", "source", "model")
    for table in (scores, pairs):
        accuracy = rmlab.accuracy(table, by=["model", "source"])
        shares = accuracy.pivot(index="source", columns="model", values="accuracy")
        np.testing.assert_allclose(shares, expected)
        difference = rmlab.compare(table, "a", "b", by="source").set_index("source")
        values = difference.loc[expected.index, ["value_a", "value_b"]]
        np.testing.assert_allclose(values, expected)
    with pytest.raises(DataError, match=r"by: .*'sorce'.*'source'"):
        rmlab.compare(pairs, "a", "b", by="sorce")


def test_a_column_that_differs_between_models_groups_one_model_at_a_time():
    pairs = rmlab.pairs(families())
    pairs["size"] = pd.cut(pairs["margin"].abs(), [0, 1, 2, 100])
    one = pairs[pairs["model"] == "a"]
    won = (one["outcome"] == "win").groupby(one["size"], observed=True).mean()
    accuracy = rmlab.accuracy(one, by=["model", "size"]).set_index("size")["accuracy"]
    assert accuracy.to_dict() == pytest.approx(won.to_dict())
    gaps = one.assign(size=pd.cut(one["margin"].abs(), [0, 1]))
    for table, column, message in (
        (pairs, "size", "'size' differs between the models"),
        (gaps, "size", "by: 'size' is missing"),
        (pairs.assign(reason=pairs["source"]), "reason", "by: 'reason'"),
    ):
        with pytest.raises(DataError, match=message):
            rmlab.accuracy(table, by=["model", column])


def test_a_domain_may_have_the_name_of_a_column(make_scores):
    """Of data with styles, which has a column "hard" of its own: both numbers stay."""
    names = ["easy", "hard", "overall", "group", "rank", "model", "se"]
    scores = make_scores(dict.fromkeys(SIZES, 14), seed=3)
    number = scores["id"].str.rpartition("/")[2].astype(int)
    domain = np.take(names, number % len(names))
    pairs = rmlab.pairs(scores.assign(benchmark="own", domain=domain, subset=domain))
    won = (pairs["outcome"] == "win").astype(float)
    summary, board, rank = (
        function(pairs).set_index("model").loc[["a", "b"]]
        for function in (rmlab.summary, rmlab.leaderboard, rmlab.rank)
    )
    expected = {f"domain {name}": pairs["domain"] == name for name in names}
    expected |= {level: pairs["level"] == level for level in ("easy", "hard")}
    expected |= {"overall": won >= 0}
    for table in (summary, board):
        assert table.columns.is_unique
        for column, is_counted in expected.items():
            shares = won[is_counted].groupby(pairs["model"]).mean()
            np.testing.assert_allclose(table[column], shares)
    assert board[["group", "rank"]].to_dict() == rank[["group", "rank"]].to_dict()


def _mini(*models):
    return rmlab.score(rmlab.load("mini"), list(models))


MISUSES = {
    "ties": lambda: rmlab.bias.style_preference(_mini("longest"), ties="halve"),
    "sizes": lambda: metrics.best_of_curve(_mini("longest"), sizes=2),
    "sizes: (0, 1)": lambda: metrics.best_of_curve(_mini("longest"), sizes=(0, 1)),
    "bins": lambda: stats.calibration(_mini("longest"), bins=2.5),
    "confidence": lambda: rmlab.summary(_mini("longest"), confidence="0.9"),
    "alpha: 0.5": lambda: stats.equivalence(
        _mini("longest", "random"), "longest", "random", margin=0.1, alpha=0.5
    ),
}


@pytest.mark.parametrize("argument", MISUSES)
def test_a_value_that_is_not_allowed_is_refused_by_its_name(argument):
    with pytest.raises(ValueError, match=f"^{re.escape(argument)}.*allowed"):
        MISUSES[argument]()


def test_a_model_that_stands_twice_is_refused():
    """Calibration and controlled accuracies counted both runs."""
    pairs = rmlab.pairs(_mini("longest", "random"))
    twice = pd.concat([pairs, pairs[pairs["model"] == "random"]])
    features = rmlab.styles.features(rmlab.load("mini"))
    controlled = (rmlab.bias.length_controlled, rmlab.bias.style_controlled)
    for function, *arguments in (
        *([getattr(rmlab, name)] for name in ("summary", "rank", "style_gap")),
        *([stats.calibration], [stats.calibration_error]),
        *([function, features] for function in controlled),
        *([f, "longest", "random"] for f in (rmlab.compare, stats.flips)),
    ):
        with pytest.raises(DataError, match="repeat"):
            function(twice, *arguments)


def test_an_unknown_option_is_answered_with_the_one_that_there_is():
    with pytest.raises(TypeError, match="did you mean 'ties'"):
        rmlab.summary(_mini("longest"), tie="half")
    with pytest.raises(TypeError, match="max_batch_tokens"):
        rmlab.score(rmlab.load("mini"), "owner/name", batch_size=8)


def test_help_begins_with_a_signature_that_a_person_reads():
    """A type was written out over ten lines."""
    for name in rmlab.__all__:
        thing = getattr(rmlab, name)
        if callable(thing):
            signature = str(inspect.signature(thing))
            assert "numpy._typing" not in signature, name
            assert len(signature) < 900, name
    options = inspect.signature(rmlab.score).parameters
    assert {"device", "dtype", "template", "max_batch_tokens"} <= {*options}
