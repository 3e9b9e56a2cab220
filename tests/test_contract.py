"""Columns that others read and columns of one's own; a model's numbers do not depend on
its company.
"""

import inspect
import re

import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import reward_bench_2_scores, reward_bench_pairs
from scipy.stats import t

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
    if name in {
        "summary",
        "estimates",
        "accuracy",
        "compare",
        "rank",
        "style_gap",
    }:
        assert table.attrs["provenance"] == scores.attrs["provenance"]


def arrow(frame):
    """Every column in pyarrow's dtype; it has no ordered categories, so those become
    strings.
    """
    plain = {
        c: "string"
        for c in frame.columns
        if isinstance(frame[c].dtype, pd.CategoricalDtype)
    }
    return frame.astype(plain).convert_dtypes(dtype_backend="pyarrow")


@pytest.mark.parametrize("name", COLUMNS)
def test_scores_pairs_and_columns_of_pyarrow_alike(name, make_scores):
    scores = make_scores(SIZES, seed=2)
    scores.loc[5, "score"] = np.nan
    pairs = rmlab.pairs(scores)
    expected, from_scores, from_arrow = (
        call(name, table) for table in (pairs, scores, arrow(pairs))
    )
    assert len(expected)
    pd.testing.assert_frame_equal(
        from_arrow, expected, check_dtype=False, check_categorical=False
    )
    from_scores.attrs, expected.attrs = {}, {}
    pd.testing.assert_frame_equal(from_scores, expected)


TABLES = {  # of two models, one of them without the prior sets of RewardBench 1
    "rm-bench": lambda make_scores: make_scores(SIZES),
    "reward-bench": lambda _: pd.concat(
        [
            reward_bench_pairs(models=("a",), prior_sets=True),
            reward_bench_pairs(models=("b",), seed=1),
        ]
    ),
    "reward-bench-2": lambda _: reward_bench_2_scores(),
}


@pytest.mark.parametrize("benchmark", TABLES)
def test_a_models_numbers_are_its_own(benchmark, make_scores):
    table = TABLES[benchmark](make_scores)
    key = [
        "model",
        "quantity",
        "name",
    ]  # the chance of a subset that a model lacks is known from the others
    shared = rmlab.estimates(table).drop(columns="chance").set_index(key)
    for model in "ab":
        alone = (
            rmlab.estimates(table[table["model"] == model])
            .drop(columns="chance")
            .set_index(key)
        )
        pd.testing.assert_frame_equal(shared.loc[alone.index], alone)


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
    summary = rmlab.summary(scores, safety="split").set_index("model")
    split = summary["overall"]
    np.testing.assert_allclose(
        split, summary[["chat", "math", "code", "safety"]].mean(axis=1)
    )
    assert (split != rmlab.summary(scores).set_index("model")["overall"]).all()
    gap = split["a"] - split["b"]
    with pytest.raises(ValueError, match=r"alpha: 0\.5"):
        stats.equivalence(scores, "a", "b", margin=0.1, alpha=0.5)
    equivalence = stats.equivalence(scores, "a", "b", margin=0.1, safety="split")
    compared = [
        rmlab.compare(scores, "a", "b", safety="split"),
        equivalence,
    ]
    for table in (*compared, stats.power(scores, "a", "b", safety="split")):
        assert table["difference"].item() == pytest.approx(gap, abs=1e-15)
    assert (
        rmlab.rank(scores, safety="split").set_index("model")["value"].to_dict()
        == split.to_dict()
    )


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


def test_one_step_in_each_of_several_domains_counts_the_steps():
    """Four equal steps in four domains of 50: by hand, with a prompt won and one lost
    added to one of the domains.
    """
    rows = [
        (m, "own", f"d{d}", str(i), m == "b" and not i)
        for m in "ab"
        for d in range(4)
        for i in range(50)
    ]
    frame = pd.DataFrame(rows, columns=["model", "benchmark", "domain", "id", "lost"])
    outcome = np.where(frame.pop("lost"), "loss", "win")
    pairs = tables.check_pairs(
        frame.assign(chosen_slot=0, rejected_slot=0, outcome=outcome)
    )
    row = rmlab.compare(pairs, "a", "b", average="domains").iloc[0]
    center = 1 / 52
    added = ((1 - center) ** 2 + (-1 - center) ** 2) / 52**2 / 16
    own = (200 / 202) ** 2 * 4 * (50 / 49 * (1 - 1 / 50) / 50**2) / 16
    assert row["p"] == pytest.approx(2 * t.sf(4 / 202 / np.sqrt(own + added), 4 * 49))


def families(n=12, size=4, models=("a", "b"), seed=0):
    """Scores of families of prompts that mostly stand or fall together; `source`
    differs between families.
    """
    rng = np.random.default_rng(seed)
    keys = [
        (m, "own", "all", f"{f}-{p}", 0, f"f{f}")
        for m in models
        for f in range(n)
        for p in range(size)
    ]
    frame = pd.DataFrame(
        keys, columns=["model", "benchmark", "domain", "id", "slot", "template"]
    )
    frame["source"] = np.where(
        frame["template"].str[1:].astype(int) % 3, "web", "books"
    )
    up = np.repeat(rng.normal(0.5, 2, n * len(models)), size) + rng.normal(
        size=len(frame)
    )
    return pd.concat(
        [
            frame.assign(label="chosen", score=up),
            frame.assign(label="rejected", score=0.0),
        ]
    )


def family_error(credit, family):
    """Error of a mean, clustered by families of equal size: by hand, from the families'
    means.
    """
    means = pd.Series(np.asarray(credit, float)).groupby(np.asarray(family)).mean()
    return means.std(ddof=1) / np.sqrt(len(means))


def test_the_error_of_a_family_of_prompts_is_that_of_its_sums():
    scores = families()
    pairs = rmlab.pairs(scores)
    gaps = scores.assign(template=scores["template"].where(scores["id"] != "3-1"))
    won = {
        model: rows["outcome"].eq("win").to_numpy(float)
        for model, rows in pairs.groupby("model")
    }
    family = pairs.loc[pairs["model"] == "a", "template"]
    for function in (
        rmlab.summary,
        rmlab.accuracy,
        rmlab.estimates,
        rmlab.rank,
        rmlab.leaderboard,
    ):
        for table in (scores, pairs):
            rows = (
                function(table, cluster="template")
                .drop_duplicates("model")
                .set_index("model")
            )
            assert rows.loc["a", "se"] == pytest.approx(
                family_error(won["a"], family)
            ), function
        with pytest.raises(DataError, match=r"cluster: .*'templte'.*'template'"):
            function(scores, cluster="templte")
        with pytest.raises(DataError, match=r"cluster: \['template'\].*'3-1'"):
            function(gaps, cluster="template")
    row, apart = (
        rmlab.summary(scores, cluster=cluster).set_index("model").loc["a"]
        for cluster in ("template", None)
    )
    assert row["se"] > 1.2 * apart["se"]
    assert row["n_prompts"] == 48
    difference = pytest.approx(family_error(won["a"] - won["b"], family))
    assert (
        rmlab.compare(scores, "a", "b", cluster="template")["se"].item() == difference
    )


def test_columns_of_a_prompt_go_into_pairs_and_others_do_not():
    scores = families()
    pairs = rmlab.pairs(scores.assign(tokens=np.arange(len(scores))))
    assert list(pairs.columns) == [*tables.PAIRS, "template", "source"]
    source = scores.drop_duplicates("id").set_index("id")["source"]
    assert (pairs["source"].to_numpy() == source[pairs["id"]].to_numpy()).all()


def test_accuracy_and_compare_reach_a_column_of_ones_own():
    scores = families()
    pairs = rmlab.pairs(scores)
    expected = (
        (pairs["outcome"] == "win")
        .groupby([pairs["source"], pairs["model"]])
        .mean()
        .unstack()
    )
    for table in (scores, pairs):
        accuracy = rmlab.accuracy(table, by=["model", "source"]).set_index(
            ["source", "model"]
        )["accuracy"]
        difference = rmlab.compare(table, "a", "b", by="source").set_index("source")
        np.testing.assert_allclose(accuracy.unstack().loc[expected.index], expected)
        np.testing.assert_allclose(
            difference[["value_a", "value_b"]].loc[expected.index], expected
        )
        np.testing.assert_allclose(
            difference["difference"], expected["a"] - expected["b"]
        )
        near = stats.equivalence(table, "a", "b", margin=0.5, by="source")
        assert difference.index.tolist() == near["source"].tolist() == ["books", "web"]
    with pytest.raises(DataError, match=r"by: .*'sorce'.*'source'"):
        rmlab.compare(pairs, "a", "b", by="sorce")


def test_a_column_that_differs_between_models_groups_one_model_at_a_time():
    pairs = rmlab.pairs(families())
    pairs["size"] = pd.cut(pairs["margin"].abs(), [0, 1, 2, 100])
    one = pairs[pairs["model"] == "a"].copy()
    won = one["outcome"].eq("win").groupby(one["size"], observed=True).mean()
    accuracy = rmlab.accuracy(one, by=["model", "size"]).set_index("size")["accuracy"]
    assert accuracy.to_dict() == pytest.approx(won.to_dict())
    for measure in (
        lambda: rmlab.accuracy(pairs, by=["model", "size"]),
        lambda: rmlab.compare(pairs, "a", "b", by="size"),
    ):
        with pytest.raises(DataError, match="'size' differs between the models"):
            measure()
    one["size"] = pd.cut(one["margin"].abs(), [0, 1])
    with pytest.raises(DataError, match="by: 'size' is missing"):
        rmlab.accuracy(one, by=["source", "size"])
    with pytest.raises(DataError, match="by: 'reason'"):  # a column of the result
        rmlab.accuracy(pairs.assign(reason=pairs["source"]), by=["model", "reason"])


NAMES = ["easy", "hard", "overall", "group", "rank", "model", "se"]


def test_a_domain_may_have_the_name_of_a_column(make_scores):
    """Of data with styles, which has a column "hard" of its own: both numbers stay."""
    sizes = dict(
        zip(
            ["chat", "math", "code", "safety-refuse", "safety-response"],
            range(8, 13),
            strict=True,
        )
    )
    scores = make_scores(sizes, seed=3)
    domain = np.array(NAMES)[
        scores["id"].str.split("/").str[1].astype(int) % len(NAMES)
    ]
    pairs = rmlab.pairs(scores.assign(benchmark="own", domain=domain, subset=domain))
    won = (pairs["outcome"] == "win").astype(float)
    functions = (rmlab.summary, rmlab.leaderboard, rmlab.rank)
    summary, board, rank = (
        function(pairs).set_index("model").loc[["a", "b"]] for function in functions
    )
    expected = {f"domain {name}": pairs["domain"] == name for name in NAMES}
    expected |= {level: pairs["level"] == level for level in ("easy", "hard")} | {
        "overall": won >= 0
    }
    for table in (summary, board):
        assert table.columns.is_unique
        for column, is_counted in expected.items():
            np.testing.assert_allclose(
                table[column],
                won[is_counted].groupby(pairs["model"]).mean()[table.index],
            )
    assert board[["group", "rank"]].to_dict() == rank[["group", "rank"]].to_dict()


def _mini(*models):
    return rmlab.score(rmlab.load("mini"), list(models))


MISUSES = {
    "ties": lambda: rmlab.bias.style_preference(_mini("longest"), ties="halve"),
    "sizes": lambda: rmlab.metrics.best_of_curve(_mini("longest"), sizes=2),
    "sizes: (0, 1)": lambda: rmlab.metrics.best_of_curve(
        _mini("longest"), sizes=(0, 1)
    ),
    "bins": lambda: rmlab.stats.calibration(_mini("longest"), bins=2.5),
    "confidence": lambda: rmlab.summary(_mini("longest"), confidence="0.9"),
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
    for function in (
        *(rmlab.summary, rmlab.estimates, rmlab.accuracy, rmlab.rank, rmlab.style_gap),
        *(stats.calibration, stats.calibration_error),
        lambda table: rmlab.bias.length_controlled(table, features),
        lambda table: rmlab.bias.style_controlled(table, features),
        lambda table: rmlab.compare(table, "longest", "random"),
        lambda table: stats.flips(table, "longest", "random"),
    ):
        with pytest.raises(DataError, match="repeat"):
            function(twice)


def test_a_misspelled_option_of_a_summary_names_the_nearest():
    with pytest.raises(TypeError, match="did you mean 'ties'"):
        rmlab.summary(_mini("longest"), tie="half")


def test_a_model_that_is_no_scorer_is_named_by_its_type_without_its_whole_text():
    class Network:
        def __repr__(self):
            return "Network(\n  (layers): ..."

    with pytest.raises(TypeError, match="Network") as error:
        rmlab.score(rmlab.load("mini"), Network())
    assert "layers" not in str(error.value)


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


def test_a_batch_size_is_answered_with_the_option_that_there_is():
    with pytest.raises(TypeError, match="max_batch_tokens"):
        rmlab.score(rmlab.load("mini"), "owner/name", batch_size=8)
