"""Columns that others read, and numbers of a model that do not depend on the company it is in."""

import types

import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import reward_bench_2_scores, reward_bench_pairs
from scipy.stats import t

import rmlab
from rmlab import metrics, stats, tables

SIZES = {"chat": 5, "math": 6, "code": 5, "safety-refuse": 5, "safety-response": 6}
COUNTS = "n_prompts n_ties missing average reason"
LOSSES = "brier brier_low brier_high log_loss log_loss_low log_loss_high"
COMPARED = "value_a value_b difference se low high p p_holm agreement n_prompts n_pairs n_ties_a n_ties_b missing"
COLUMNS = f"""
summary: model chat math code safety easy normal hard overall se low high {COUNTS}
estimates: model quantity name value se low high n_prompts n_pairs n_ties missing chance average reason
accuracy: model domain accuracy se low high n_prompts n_pairs n_ties missing average reason
compare: model_a model_b domain {COMPARED} average reason
compare_all: model_a model_b {COMPARED} average reason
equivalence: model_a model_b difference low high margin equivalent smallest_margin n_prompts average reason
rank: model value se low high rank rank_low rank_high group {COUNTS}
power: model_a model_b difference agreement n_prompts detectable alpha adjust average reason
flips: {" ".join(tables.PAIRS[1:-2])} outcome_a outcome_b margin_a margin_b
calibration: model bin left right predicted accuracy se low high n_pairs n_prompts missing ece ece_low ece_high
calibration_error: model ece ece_low ece_high {LOSSES} n_pairs n_prompts n_ties missing reason
margins: model level n_pairs n_prompts missing mean sd q05 q25 q50 q75 q95 positive
item_difficulty: benchmark domain id chosen_slot rejected_slot level subset n_models missing difficulty discrimination \
none_right all_right
best_of: model benchmark domain id subset n_answers above level credit reciprocal_rank
style_gap: model easy hard gap se low high {COUNTS}
"""
COLUMNS = {name: columns.split() for name, columns in (line.split(":") for line in COLUMNS.strip().splitlines())}
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
    assert "object" not in {str(dtype) for dtype in table.dtypes}
    if name in {"summary", "estimates", "accuracy", "compare", "compare_all", "rank", "style_gap"}:
        assert table.attrs["provenance"] == scores.attrs["provenance"]


def arrow(frame):
    """Every column in pyarrow's dtype; it has no ordered categories, so those become strings."""
    plain = {c: "str" for c in frame.columns if isinstance(frame[c].dtype, pd.CategoricalDtype)}
    return frame.astype(plain).convert_dtypes(dtype_backend="pyarrow")


@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "best_of"])
def test_scores_pairs_and_columns_of_pyarrow_alike(name, make_scores):
    scores = make_scores(SIZES, seed=2)
    scores.loc[5, "score"] = np.nan
    pairs = rmlab.pairs(scores)
    expected, from_scores, from_arrow = (call(name, table) for table in (pairs, scores, arrow(pairs)))
    assert len(expected)
    pd.testing.assert_frame_equal(from_arrow, expected, check_dtype=False, check_categorical=False)
    from_scores.attrs, expected.attrs = {}, {}
    pd.testing.assert_frame_equal(from_scores, expected)


TABLES = {  # of two models, one of them without the prior sets of RewardBench 1
    "rm-bench": lambda make_scores: make_scores(SIZES),
    "reward-bench": lambda _: pd.concat(
        [reward_bench_pairs(models=("a",), prior_sets=True), reward_bench_pairs(models=("b",), seed=1)]
    ),
    "reward-bench-2": lambda _: reward_bench_2_scores(),
}


@pytest.mark.parametrize("benchmark", TABLES)
def test_a_models_numbers_are_its_own(benchmark, make_scores):
    table = TABLES[benchmark](make_scores)
    key = ["model", "quantity", "name"]  # the chance of a subset that a model lacks is known from the others
    shared = rmlab.estimates(table).drop(columns="chance").set_index(key)
    for model in "ab":
        alone = rmlab.estimates(table[table["model"] == model]).drop(columns="chance").set_index(key)
        pd.testing.assert_frame_equal(shared.loc[alone.index], alone)


@pytest.mark.parametrize("name", ["summary", "accuracy", "compare", "rank", "style_gap"])
def test_common_items_are_those_left_after_dropping_the_others(name, make_scores):
    pairs = metrics.pairs(make_scores({**SIZES, "chat": 8}, models=("a", "b", "c")))
    is_lost = (pairs["domain"] == "chat") & pairs["id"].isin(["chat/1", "chat/6"])
    partial = pairs[~(is_lost & (pairs["model"] == "b"))]
    pd.testing.assert_frame_equal(call(name, partial, common=True), call(name, pairs[~is_lost]))


def test_options_of_the_benchmark_reach_every_table(make_scores):
    scores = make_scores(SIZES)
    split = rmlab.summary(scores, safety="split").set_index("model")["overall"]
    assert (split != rmlab.summary(scores).set_index("model")["overall"]).all()
    gap = split["a"] - split["b"]
    with pytest.raises(ValueError, match=r"alpha: 0\.5"):
        stats.equivalence(scores, "a", "b", margin=0.1, alpha=0.5)
    equivalence = stats.equivalence(scores, "a", "b", margin=0.1, safety="split")
    compared = [rmlab.compare(scores, "a", "b", safety="split"), stats.compare_all(scores, safety="split"), equivalence]
    for table in (*compared, stats.power(scores, "a", "b", safety="split")):
        assert table["difference"].item() == pytest.approx(gap, abs=1e-15)
    assert rmlab.rank(scores, safety="split").set_index("model")["value"].to_dict() == split.to_dict()


def test_a_missing_score_is_no_loss_in_best_of_n():
    scores = reward_bench_2_scores(models=("a",))
    is_prompt = (scores["domain"] == "Focus") & (scores["id"] == "2")
    gaps = scores.assign(score=scores["score"].where(~is_prompt | (scores["slot"] != 1)))
    curve, rest = (metrics.best_of_curve(table).query("domain == 'Focus'") for table in (gaps, scores[~is_prompt]))
    assert curve["missing"].tolist() == [1, 1, 1]
    pd.testing.assert_frame_equal(curve.drop(columns="missing"), rest.drop(columns="missing"))


def test_one_step_in_each_of_several_domains_counts_the_steps():
    """Four equal steps in four domains: three degrees of freedom, as few as in one domain."""
    rows = [(m, "own", f"d{d}", str(i), m == "b" and not i) for m in "ab" for d in range(4) for i in range(50)]
    frame = pd.DataFrame(rows, columns=["model", "benchmark", "domain", "id", "lost"])
    outcome = np.where(frame.pop("lost"), "loss", "win")
    pairs = tables.check_pairs(frame.assign(chosen_slot=0, rejected_slot=0, outcome=outcome))
    row = rmlab.compare(pairs, "a", "b", average="domains").iloc[0]
    assert row["p"] == pytest.approx(2 * t.sf(row["difference"] / row["se"], 3))


def test_public_names_exist_and_are_at_most_120():
    """Of the package and of the modules one dot deeper; a name that is in both counts once."""
    public = {}
    deeper = (metrics, stats, tables, rmlab.bias, rmlab.styles, rmlab.plots, rmlab.scorers, rmlab.papers, rmlab.widgets)
    for module in (rmlab, *deeper, rmlab.report, rmlab.io, rmlab.toy):
        assert len(module.__all__) == len(set(module.__all__))
        for name in module.__all__:
            value = getattr(module, name)
            if not isinstance(value, types.ModuleType):
                public[id(value) if callable(value) else f"{module.__name__}.{name}"] = name
    assert len(public) <= 120, sorted(public.values())


def test_rows_without_columns_are_one_group():
    for n in (0, 1, 3):
        codes, first_rows = tables.group_codes(pd.DataFrame(index=range(n)), [])
        assert codes.tolist() == [0] * n
        assert first_rows.tolist() == [0] * min(n, 1)
