"""Bias: gaps, preferences, effects, accuracies at equal length, scores debiased;
oracles, laws, planted values.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.stats
from scipy.special import expit
from style_worlds import world

import rmlab
from rmlab import metrics
from rmlab.bias import debias, length_controlled, style_controlled
from rmlab.bias.answers import demean
from rmlab.bias.effects import exchange_rate, style_effects
from rmlab.bias.firth import fit_curve
from rmlab.bias.gap import style_gap, style_preference
from rmlab.bias.least_squares import fit_without_clusters
from rmlab.estimation.items import credit
from rmlab.tables import KEY, DataError, check_pairs

sys.path.insert(0, str(Path(__file__).parents[1] / "performance"))
import length_worlds

# The gap.


@pytest.mark.parametrize("ties", ["loss", "half", "drop"])
@pytest.mark.parametrize("by", [["model"], ["model", "domain"]])
def test_gap_is_easy_minus_hard_of_the_accuracies(ties, by, make_scores):
    pairs = metrics.pairs(make_scores(seed=2))
    table = style_gap(pairs, by, ties=ties).set_index(by)
    levels = metrics.accuracy(pairs, [*by, "level"], ties=ties)
    levels = levels.pivot(index=by, columns="level", values="accuracy").loc[table.index]
    expected = levels["easy"] - levels["hard"]
    np.testing.assert_allclose(table["gap"], expected, atol=1e-15)


def test_error_of_the_gap_is_that_of_the_prompts_differences():
    pairs = metrics.pairs(world(40, seed=1)[0])
    won = pairs.assign(won=credit(pairs))
    won = won.groupby(["id", "level"], observed=True)["won"].mean().unstack()
    difference = won["easy"] - won["hard"]
    row = style_gap(pairs).iloc[0]
    assert row["gap"] == pytest.approx(difference.mean(), rel=1e-12)
    assert row["se"] == pytest.approx(difference.sem(), rel=1e-12)


def test_a_gap_compares_easy_and_hard_of_the_same_prompts():
    """Prompts without their hard comparisons gave their easy ones to the gap."""
    pairs = metrics.pairs(world(40, seed=1)[0])
    lacks = pairs["id"].astype(int).lt(10) & (pairs["chosen_style"] == "markdown")
    partial = pairs.copy()
    partial.loc[lacks, ["margin", "outcome"]] = [np.nan, None]
    gap = style_gap(partial).iloc[0]
    whole = style_gap(pairs[pairs["id"].astype(int) >= 10]).iloc[0]
    names = ["gap", "se", "low", "high", "n_prompts", "n_ties"]
    assert gap[names].tolist() == pytest.approx(whole[names].tolist())
    # Easy and hard were those of the whole prompts: not the summary's.
    summary = metrics.summary(partial).iloc[0]
    assert gap[["easy", "hard"]].tolist() == summary[["easy", "hard"]].tolist()
    assert gap["missing"] == 10 * 2

    table = style_gap(pairs[pairs["level"] != "hard"], average="prompts")
    assert table[["gap", "se", "low", "high"]].isna().all(axis=None)
    assert table["reason"].ne("").all()
    assert table["easy"].notna().all()


# The preference.


def test_preference_equals_the_nested_loops(make_scores):
    scores = make_scores(seed=6)
    score = scores.set_index(["model", "domain", "id", "label", "style"])["score"]
    by = ["model", "label", "plainer", "fancier"]
    table = style_preference(scores, by)
    assert len(table) == 2 * 2 * 3
    prompts = list(set(zip(scores["domain"], scores["id"], strict=True)))
    for row in table.itertuples():
        earned = []
        for prompt in prompts:
            plainer = score[(row.model, *prompt, row.label, row.plainer)]
            fancier = score[(row.model, *prompt, row.label, row.fancier)]
            earned.append((fancier > plainer) + 0.5 * (fancier == plainer))
        assert row.preference == pytest.approx(np.mean(earned))
        assert row.n_ties == earned.count(0.5)
        assert row.n_pairs == row.n_prompts == len(prompts)
    turned = style_preference(scores.assign(score=-scores["score"]), by)
    mirrored = 1 - table[["preference", "high", "low"]].to_numpy()
    np.testing.assert_allclose(turned[["preference", "low", "high"]], mirrored)

    # It failed: the column stood there twice.
    assert len(style_preference(scores, "model", cluster="subset")) == 2

    flat = style_preference(world(20)[0].assign(score=1.0))
    assert (flat["preference"] == 0.5).all()
    assert (flat["high"] > flat["low"]).all()
    assert flat["reason"].str.contains("do not vary").all()


# Effects and rates.


def test_effects_equal_a_regression_with_one_dummy_per_prompt():
    import statsmodels.formula.api as smf

    scores, features = world(30, length=0.3, seed=5)
    table = style_effects(scores, features, terms=["correct", "step", "characters"])
    right = (scores["label"] == "chosen").astype(float)
    data = scores.assign(right=right, long=np.log2(features["characters"]))
    inside = data["score"] - data.groupby("id")["score"].transform("mean")
    data["y"] = data["score"] / np.sqrt((inside**2).sum() / (len(data) - 30))
    fit = smf.ols("y ~ right + slot + long + C(id)", data).fit()
    expected = fit.params[["right", "slot", "long"]]
    np.testing.assert_allclose(table["effect"], expected, rtol=1e-9)


def test_the_error_of_an_effect_is_the_jackknife_of_whole_tables():
    """Every prompt is left out of the table in turn."""
    scores, features = world(12, length=0.3, seed=5)
    terms = ["correct", "step", "characters"]
    table = style_effects(scores, features, terms=terms)
    left_out = []
    for prompt in scores["id"].unique():
        rest = style_effects(scores[scores["id"] != prompt], features, terms=terms)
        left_out.append(rest["effect"].to_numpy())
    deviation = np.array(left_out) - table["effect"].to_numpy()
    se = np.sqrt(11 / 12 * (deviation**2).sum(axis=0))
    np.testing.assert_allclose(table["se"], se, rtol=1e-9)
    rates = exchange_rate(scores, features, terms=terms)["rate"]
    np.testing.assert_allclose(rates, table["effect"][1:] / table["effect"][0])


def test_effects_of_parts_have_the_unit_of_their_model():
    scores, _ = world(30)
    scores["source"] = np.where(scores["id"].astype(int) < 15, "x", "y")
    whole = style_effects(scores, terms=["correct"])
    parts = style_effects(scores, terms=["correct"], by=["model", "source"])
    assert parts["effect"].mean() == pytest.approx(whole["effect"].item())
    both = pd.concat([scores, scores.assign(model="n")])
    with pytest.raises(DataError, match="'model'"):
        style_effects(both, by="source")


@pytest.mark.parametrize("n_right", [25, 8])
def test_the_limits_of_a_rate_are_where_the_test_of_its_contrast_is_at_the_edge(
    n_right,
):
    """y = e0 (right + r step) + (e1 - r e0) step: at a limit r the last effect is just
    not significant, with the fewer degrees of freedom of the two: here those of "right"
    where right and wrong answers meet in eight prompts only.
    """
    scores, _ = world(25, skill=3.0, style=0.6, seed=12)
    has_both = scores["id"].astype(int) < n_right
    scores = scores[has_both | (scores["label"] == "chosen")]
    row = exchange_rate(scores, terms=["correct", "step"]).iloc[0]
    prompt = scores["id"].astype(int).to_numpy()
    right = (scores["label"] == "chosen").to_numpy().astype(float)
    steps = scores["slot"].to_numpy().astype(float)
    y = demean(scores["score"].to_numpy(), prompt)
    both = demean(np.column_stack([right, steps]), prompt)
    df = fit_without_clusters(y, both, prompt, 25).df
    assert n_right == 25 or df[0] < 8 < df[1]
    for rate in (row["low"], row["high"]):
        columns = both + rate * both[:, 1:] * [1, 0]
        fit = fit_without_clusters(y, columns, prompt, 25)
        deviation = fit.without[:, 1] - fit.effect[1]
        t = fit.effect[1] / np.sqrt(24 / 25 * (deviation**2).sum())
        assert abs(t) == pytest.approx(scipy.stats.t.ppf(0.975, df.min()), rel=1e-6)


def test_effects_know_neither_row_order_nor_scale_nor_level_nor_backend():
    scores, features = world(40, seed=6)
    expected = style_effects(scores, features)
    moved = scores.assign(score=3 * scores["score"] + 50 * scores["id"].astype(int))
    arrow = {"dtype_backend": "pyarrow"}
    for changed in (
        (scores.sample(frac=1, random_state=0), features.sample(frac=1)),
        (moved, features),
        (scores.convert_dtypes(**arrow), features.convert_dtypes(**arrow)),
    ):
        table = style_effects(*changed)
        pd.testing.assert_frame_equal(table, expected, check_dtype=False)


def test_no_estimate_comes_with_its_reason():
    scores, features = world(30, seed=7)
    flat = style_effects(scores.assign(score=scores["id"].astype(float) / 3), features)
    assert flat["effect"].isna().all()
    assert flat["reason"].str.contains("do not vary").all()
    still = style_effects(scores, features.assign(markdown=4)).set_index("term")
    assert "markdown does not vary" in still.loc["markdown", "reason"]
    assert still.drop("markdown")["effect"].notna().all()
    is_missing = (scores["id"] == "3") | ((scores["id"] == "5") & (scores["slot"] > 0))
    gaps = style_effects(scores.assign(score=scores["score"].where(~is_missing)))
    assert (gaps[["missing", "n_prompts", "n"]] == [10, 29, 170]).all(axis=None)
    ignorant, _ = world(50, skill=0.0, style=1.0, seed=2)
    rate = exchange_rate(ignorant, terms=["correct", "step"]).iloc[0]
    assert (rate["low"], rate["high"]) == (-np.inf, np.inf)

    lone = scores.assign(score=scores["score"].where(scores["id"] == "4", 0.25))
    table = style_effects(lone, features)
    assert table[["low", "high"]].isna().all(axis=None)
    assert (table["reason"] == "scores vary in one prompt only").all()
    is_rare = (features["id"] == "4") & (features["slot"] == 0)
    features["rare"] = np.where(is_rare & (features["label"] == "chosen"), 3, 0)
    for function in (style_effects, exchange_rate):
        rare = function(scores, features, terms=["correct", "rare"]).iloc[-1]
        assert rare["reason"] == "one prompt alone decides it"
        assert np.isnan(rare["low"])


def test_correct_without_length_has_a_caveat_where_length_tells_the_label():
    scores, features = world(500, skill=0.0, style=0.0, length=1.0, seed=9)
    # Wrong answers are twice as long, and longer is better.
    longer = np.where(features["label"] == "rejected", 2, 1)
    scores = scores.assign(score=scores["score"] + np.log2(longer))
    features = features.assign(characters=features["characters"] * longer)
    without = style_effects(scores)
    assert without["effect"][0] < -0.3
    assert without["caveat"].ne("").tolist() == [True, False, False]
    assert not style_effects(scores, features)["caveat"].any()


# Scores debiased.


def test_debias_reads_no_labels_and_not_the_prompts_own_scores():
    scores, features = world(40, length=0.5, seed=4)
    tame = debias(scores, features)
    swap = {"chosen": "rejected", "rejected": "chosen"}
    swapped = [
        frame.assign(label=frame["label"].map(swap)) for frame in (scores, features)
    ]
    np.testing.assert_allclose(debias(*swapped)["score"], tame["score"])

    is_wild = scores["id"] == "7"
    wild = scores.assign(score=scores["score"].mask(is_wild, 1e4 * scores["slot"]))
    removed = debias(wild, features)["removed"]
    is_same = np.isclose(removed, tame["removed"], rtol=1e-9)
    assert is_same[is_wild].all()
    assert not is_same[~is_wild].all()


def test_a_planted_effect_is_taken_off_whole_and_alone():
    scores, features = world(400, style=0.0, length=0.8, seed=1)
    removed = debias(scores, features)["removed"]
    slope = np.polyfit(np.log2(features["characters"]), removed, 1)[0]
    assert slope == pytest.approx(0.8, rel=0.05)

    scores, _ = world(400, style=0.0, seed=1)
    scores["score"] += 0.8 * (scores["style"] == "markdown")
    removed = debias(scores, on="step_markdown").groupby("style")["removed"].mean()
    assert removed.tolist() == pytest.approx([0, 0, 0.8], abs=0.1)


# Accuracies at equal length and style.


def pairs_and_features(won, lengths, **counts):
    """Single comparisons with these outcomes, and lengths (2, prompts) and further
    counts of their two answers.
    """
    ids = np.arange(len(won)).astype(str)
    keys = pd.DataFrame({"benchmark": "b", "domain": "chat", "id": ids})
    margin = np.where(won, 1.0, -1.0)
    names = {"model": "m", "chosen_slot": 0, "rejected_slot": 0}
    sides = [keys.assign(label=label, slot=0) for label in ("chosen", "rejected")]
    features = pd.concat(sides).assign(characters=np.ravel(lengths))
    for name, count in counts.items():
        features[name] = np.ravel(count)
    return check_pairs(keys.assign(margin=margin, **names)), features


def test_style_control_takes_the_style_out():
    pairs = metrics.pairs(world(400, style=2.0, skill=1.0, seed=5)[0])
    normal = metrics.accuracy(pairs[pairs["level"] == "normal"])["accuracy"].item()
    tilted = pairs[pairs["level"] != "hard"]  # fancier answers are mostly right here
    assert metrics.accuracy(tilted)["accuracy"].item() > normal + 0.08
    for table in (tilted, pairs):
        row = style_controlled(table, controls="style").iloc[0]
        assert row["controlled"] == pytest.approx(normal, abs=0.03)


def test_what_cannot_be_fitted_has_its_reason():
    scores, features = world(30, seed=4)
    longest = scores.assign(score=features["characters"])
    longer_by_two = np.stack([np.arange(20.0) + 5, np.arange(20.0) + 3])
    for table, lengths, reason in (
        (longest, features, "separation"),
        (scores.assign(score=1.0), features, "ends alike"),
        (scores, features.assign(characters=100), "characters does not vary"),
        (*pairs_and_features(np.arange(20) % 2 == 0, longer_by_two), "differs the"),
    ):
        for function, options in (
            (length_controlled, {}),
            (style_controlled, {"controls": "characters"}),
        ):
            row = function(table, lengths, **options).iloc[0]
            assert reason in row["reason"]
            varies = "vary" not in reason
            assert row[["controlled", "se", "low", "high"]].isna().all() == varies

    # The accuracy of concise over plain stood as that at equal style.
    pairs = metrics.pairs(world(40, style=1.0, seed=5)[0])
    is_one_step = (pairs["chosen_slot"] == 0) & (pairs["rejected_slot"] == 1)
    row = style_controlled(pairs[is_one_step], controls="style").iloc[0]
    assert np.isnan(row["controlled"])
    assert "style differs the same way" in row["reason"]

    # Headings all but decide; a few of one family tell of pairs without.
    won = np.arange(200) % 3 > 0
    differs = np.arange(200) >= 12
    headings = np.stack([won & differs, ~won & differs]).astype(int)
    tables = pairs_and_features(won, headings + 100, headings=headings)
    pairs = tables[0].assign(family=np.where(differs, tables[0]["id"], "few"))
    options = {"controls": "headings", "cluster": "family"}
    row = style_controlled(pairs, tables[1], **options).iloc[0]
    assert "fewer than 4 effective prompts" in row["reason"]
    assert np.isfinite(row["controlled"])
    assert np.isnan(row["low"])


def test_the_penalised_fit_is_the_maximum_of_the_penalised_likelihood():
    rng = np.random.default_rng(3)
    columns = rng.normal(size=(40, 2))
    y = (rng.random(40) < expit(columns[:, 0])).astype(float)
    x = np.column_stack([np.ones(40), columns])

    def penalised(coefficients):
        p = expit(x @ coefficients)
        information = (x * (p * (1 - p))[:, None]).T @ x
        log_likelihood = np.log(np.where(y > 0, p, 1 - p)).sum()
        return -log_likelihood - 0.5 * np.linalg.slogdet(information)[1]

    best = scipy.optimize.minimize(penalised, np.zeros(3), tol=1e-10)
    np.testing.assert_allclose(fit_curve(y, columns).coefficients, best.x, atol=1e-4)


@pytest.mark.parametrize("seed", [3, 42, 53, 61, 62, 92, 106, 143])
def test_newtons_steps_never_go_to_and_fro(seed):
    """A step too long left the next one as long, and the fit 2 below the maximum."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=60)
    columns = np.column_stack([values, values**2, values**3])
    y = (5 * values + rng.logistic(size=60) > 1).astype(float)
    curve = fit_curve(y, columns)
    p = expit(curve.log_odds)
    weight = p * (1 - p)
    inverse = np.linalg.inv((curve.x * weight[:, None]).T @ curve.x)
    leverage = weight * ((curve.x @ inverse) * curve.x).sum(axis=1)
    step = inverse @ (curve.x.T @ (y - p + leverage * (0.5 - p)))
    assert np.abs(curve.x @ step).max() < 0.02


def test_equal_length_that_is_hardly_observed_is_named():
    """Two of 200 prompts near equal length: 0.80 without a word."""
    rng = np.random.default_rng(2)
    length = rng.normal(3000, 300, 200).round()
    ratio = 2.0 ** (rng.choice([-1, 1], 200) * rng.uniform(0.5, 1.5, 200))
    won = rng.random(200) < expit(0.5 * np.log2(ratio))
    for n_equal, is_rare in ((2, True), (40, False)):
        ratio[:n_equal] = 1.1
        tables = pairs_and_features(won, [length * ratio, length])
        row = length_controlled(*tables).iloc[0]
        assert ("equal length" in row["reason"]) == is_rare
        assert row["n_near"] == n_equal
        assert row["near"] == pytest.approx(won[:n_equal].mean())


@pytest.mark.parametrize(("elsewhere", "is_named"), [(0.35, True), (0.7, False)])
def test_a_bump_at_equal_length_is_named(elsewhere, is_named):
    """The curve is smooth: its interval held the truth in 64 % of tables."""
    rng = np.random.default_rng(0)
    lengths = length_worlds.drawn_lengths(1000, rng)
    is_near = np.abs(np.log(lengths[:, 0] / lengths[:, 1])) < np.log(1.25)
    won = rng.random(1000) < np.where(is_near, 0.7, elsewhere)
    row = length_controlled(*pairs_and_features(won, lengths.T)).iloc[0]
    assert ("disagree" in row["reason"]) == is_named


def test_a_curve_of_the_lengths_themselves_is_part_of_the_fit():
    """Middle lengths are worst: no curve in the difference of two answers shows
    that.
    """
    rng = np.random.default_rng(0)
    lengths = length_worlds.drawn_lengths(1000, rng)
    margins = length_worlds.margins("middle length", lengths, 8, rng)
    curve = length_controlled(*length_worlds.tables_of(margins, lengths))
    assert abs(curve["controlled"].mean() - length_worlds.TRUTH) < 0.02
    assert curve["reason"].eq("").sum() >= 7


def test_form_linear_is_one_slope_for_each_control():
    """A logistic regression of statsmodels, where the penalty is small."""
    import statsmodels.api as sm

    scores, features = world(400, style=1.0, seed=6)
    pairs = metrics.pairs(scores)
    controls = ["characters", "markdown"]
    row = style_controlled(pairs, features, controls=controls, form="linear").iloc[0]
    counts = features.set_index(["id", "label", "slot"])[controls]
    sides = []
    for label in ("chosen", "rejected"):
        keys = pd.MultiIndex.from_arrays(
            [pairs["id"], [label] * len(pairs), pairs[f"{label}_slot"]]
        )
        sides.append(counts.loc[keys].to_numpy())
    x = (sides[0] - sides[1]) / (sides[0] + sides[1] + 1)
    y = (pairs["outcome"] == "win").to_numpy(float)
    fit = sm.Logit(y, sm.add_constant(x)).fit(disp=0)
    assert row["controlled"] == pytest.approx(expit(fit.params[0]), abs=0.002)


# What all of them do.


def test_responses_in_place_of_features_are_counted():
    """Length was left out without a word."""
    responses = rmlab.load("mini")
    scores = rmlab.score(responses, "longest")
    features = rmlab.styles.features(responses)
    with_tokens = responses.assign(tokens=features["characters"] // 4)
    for function in (style_effects, length_controlled, debias):
        expected = function(scores, features)
        pd.testing.assert_frame_equal(function(scores, with_tokens), expected)
    assert style_effects(scores, with_tokens, terms=["tokens"])["effect"].item() > 0


SCORES, FEATURES = world(20, seed=10)
NO_STYLE = SCORES.drop(columns="style")
PLAIN = metrics.pairs(SCORES).drop(columns=["chosen_style", "rejected_style"])
BAD = [
    (style_gap, (NO_STYLE,), {}, DataError, "style"),
    (style_effects, (SCORES, FEATURES[FEATURES["id"] != "3"]), {}, DataError, "6 of"),
    (style_effects, (SCORES, FEATURES), {"terms": ["lenth"]}, DataError, "'lenth'"),
    (exchange_rate, (SCORES,), {"terms": ["step"]}, ValueError, "terms"),
    (exchange_rate, (NO_STYLE,), {}, DataError, "features"),
    (debias, world(4), {}, DataError, "4 prompts"),
    (debias, (SCORES, None), {}, DataError, "'characters'"),
    (length_controlled, (PLAIN, FEATURES[KEY]), {}, DataError, "'characters'"),
    (length_controlled, (PLAIN, FEATURES), {"confidence": 95}, ValueError, "95"),
    (style_controlled, (PLAIN,), {"controls": ["style"]}, DataError, "style"),
]


@pytest.mark.parametrize(("function", "tables", "options", "error", "message"), BAD)
def test_bad_input_is_named(function, tables, options, error, message):
    with pytest.raises(error, match=message):
        function(*tables, **options)
