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
from rmlab.tables import KEY, DataError, check_pairs, check_scores

sys.path.insert(0, str(Path(__file__).parents[1] / "performance"))
import length_worlds


def many_worlds(count, n, **settings):
    """Many models in one table, each with lengths of its own, so one domain per
    model.
    """
    parts = [
        world(n, seed=seed, model=f"m{seed}", domain=f"d{seed}", **settings)
        for seed in range(count)
    ]
    return [pd.concat(frames) for frames in zip(*parts, strict=True)]


def test_gap_is_easy_minus_hard_of_the_accuracies_and_of_the_summary(make_scores):
    pairs = metrics.pairs(make_scores(seed=2))
    for ties in ("loss", "half", "drop"):
        for by in (["model"], ["model", "domain"]):
            table = style_gap(pairs, by, ties=ties).set_index(by)
            levels = (
                metrics.accuracy(pairs, [*by, "level"], ties=ties)
                .set_index([*by, "level"])["accuracy"]
                .unstack()
            )
            expected = levels["easy"] - levels["hard"]
            pd.testing.assert_series_equal(
                table["gap"], expected.loc[table.index], check_names=False
            )
    summary, table = (
        function(pairs).set_index("model") for function in (metrics.summary, style_gap)
    )
    np.testing.assert_allclose(
        table["gap"], (summary["easy"] - summary["hard"])[table.index], atol=1e-15
    )
    partial = style_gap(
        pairs[~((pairs["model"] == "a") & (pairs["domain"] == "math"))]
    ).set_index("model")
    assert np.isnan(partial.loc["a", "gap"])
    assert "math" in partial.loc["a", "reason"]
    assert partial.loc["b", "gap"] == pytest.approx(table.loc["b", "gap"])


def test_error_of_the_gap_is_that_of_the_prompts_differences():
    scores, _ = world(40, seed=1)
    pairs = metrics.pairs(scores)
    won = (
        pairs.assign(won=credit(pairs))
        .groupby(["id", "level"], observed=True)["won"]
        .mean()
        .unstack()
    )
    difference = won["easy"] - won["hard"]
    row = style_gap(pairs).iloc[0]
    np.testing.assert_allclose(
        [row["gap"], row["se"]], [difference.mean(), difference.sem()], rtol=1e-12
    )


@pytest.mark.parametrize("by", ["model", ["model", "domain"]])
def test_a_gap_without_hard_comparisons_has_no_value_and_no_interval(by, make_scores):
    """A domain without hard comparisons had the interval of the easy ones."""
    pairs = metrics.pairs(make_scores(seed=2))
    table = style_gap(pairs[pairs["level"] != "hard"], by, average="prompts")
    assert table[["gap", "se", "low", "high"]].isna().all(axis=None)
    assert table["reason"].ne("").all()
    assert table["easy"].notna().all()


def test_preference_equals_the_nested_loops(make_scores):
    scores = make_scores(seed=6)
    score = scores.set_index(["model", "domain", "id", "label", "style"])["score"]
    table = style_preference(scores, ["model", "label", "plainer", "fancier"])
    assert len(table) == 2 * 2 * 3
    prompts = [
        *scores[["domain", "id"]].drop_duplicates().itertuples(index=False, name=None)
    ]
    for row in table.itertuples():
        names = [
            [
                (row.model, d, i, row.label, style)
                for style in (row.plainer, row.fancier)
            ]
            for d, i in prompts
        ]
        sides = [(score[plainer], score[fancier]) for plainer, fancier in names]
        assert row.preference == pytest.approx(
            np.mean([(b > a) + 0.5 * (b == a) for a, b in sides])
        )
        assert row.n_ties == sum(a == b for a, b in sides)
        assert row.n_pairs == row.n_prompts == len(prompts)
    turned = style_preference(
        scores.assign(score=-scores["score"]), ["model", "label", "plainer", "fancier"]
    )
    np.testing.assert_allclose(
        turned[["preference", "low", "high"]], 1 - table[["preference", "high", "low"]]
    )


@pytest.mark.parametrize(
    ("function", "value", "options"),
    [
        (style_gap, "gap", {}),
        (style_preference, "preference", {"by": "model"}),
        (style_effects, "effect", {"terms": ["step"]}),
    ],
)
def test_families_of_prompts_widen_the_interval(function, value, options):
    scores, _ = world(60, seed=3)
    family = scores["id"].astype(int) // 4
    # Style is worth the same in a family.
    shift = np.random.default_rng(0).normal(0, 2, 15)[family] * scores["slot"]
    scores = scores.assign(score=scores["score"] + shift, template=family.astype(str))
    apart = function(scores, **options)
    together = function(scores, cluster="template", **options)
    assert together["se"].item() > 1.3 * apart["se"].item()
    assert together[value].item() == pytest.approx(apart[value].item())
    with pytest.raises(DataError, match="families"):
        function(scores, cluster="families", **options)


def test_few_prompts_and_ties_have_a_reason():
    few, flat = world(4)[0], world(20)[0].assign(score=1.0)
    assert style_gap(few)["reason"].item() == "fewer than 5 prompts"
    assert style_preference(few)[["se", "low", "high"]].isna().all(axis=None)
    table = style_preference(flat)
    assert (table["preference"] == 0.5).all()
    assert (table["high"] > table["low"]).all()
    assert table["reason"].str.contains("do not vary").all()


def test_effects_equal_a_regression_with_one_dummy_per_prompt():
    import statsmodels.formula.api as smf

    scores, features = world(30, length=0.3, seed=5)
    table = style_effects(scores, features, terms=["correct", "step", "characters"])
    data = scores.assign(
        right=(scores["label"] == "chosen").astype(float),
        long=np.log2(features["characters"]),
    )
    inside = data["score"] - data.groupby("id")["score"].transform("mean")
    data["y"] = data["score"] / np.sqrt((inside**2).sum() / (len(data) - 30))
    names = ["right", "slot", "long"]
    fit = smf.ols("y ~ right + slot + long + C(id)", data).fit()
    np.testing.assert_allclose(table["effect"], fit.params[names], rtol=1e-9)


def test_the_error_of_an_effect_is_the_jackknife_of_whole_tables():
    """Every prompt is left out of the table in turn."""
    scores, features = world(12, length=0.3, seed=5)
    terms = ["correct", "step", "characters"]
    table = style_effects(scores, features, terms=terms)
    rates = exchange_rate(scores, features, terms=terms)
    left_out = []
    for prompt in scores["id"].unique():
        rest = style_effects(scores[scores["id"] != prompt], features, terms=terms)
        left_out.append(rest["effect"].to_numpy())
    deviation = np.array(left_out) - table["effect"].to_numpy()
    se = np.sqrt(11 / 12 * (deviation**2).sum(axis=0))
    np.testing.assert_allclose(table["se"], se, rtol=1e-9)
    assert rates["rate"].tolist() == pytest.approx(
        (table["effect"] / table["effect"][0])[1:].tolist()
    )


def test_effects_of_parts_have_the_unit_of_their_model():
    scores, features = many_worlds(2, 30)
    one = scores.assign(model="m")
    whole = style_effects(one, features, terms=["correct"])
    parts = style_effects(one, features, terms=["correct"], by=["model", "domain"])
    assert parts["effect"].mean() == pytest.approx(whole["effect"].item())
    with pytest.raises(DataError, match="'model'"):
        style_effects(scores, features, by="domain")


def test_a_count_that_varies_in_six_prompts_is_covered():
    """Prompt-clustered CR1 with 99 degrees of freedom covered in 80 % of draws."""
    scores, features = many_worlds(80, 100, style=0.3)
    features["markdown"] *= features["id"].astype(int) < 6
    table = style_effects(scores, features, terms=["correct", "step", "markdown"])
    rows = table[table["term"] == "markdown"]
    assert ((rows["low"] <= 0) & (rows["high"] >= 0)).mean() > 0.9


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
    mixed = style_effects(
        scores.sample(frac=1, random_state=0), features.sample(frac=1, random_state=1)
    )
    pd.testing.assert_frame_equal(mixed, expected)
    moved = scores.assign(score=3 * scores["score"] + 50 * scores["id"].astype(int))
    pd.testing.assert_frame_equal(style_effects(moved, features), expected)
    arrow = [
        frame.convert_dtypes(dtype_backend="pyarrow") for frame in (scores, features)
    ]
    pd.testing.assert_frame_equal(style_effects(*arrow), expected, check_dtype=False)


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
    ignorant = exchange_rate(
        world(50, skill=0.0, style=1.0, seed=2)[0], terms=["correct", "step"]
    ).iloc[0]
    assert (ignorant["low"], ignorant["high"]) == (-np.inf, np.inf)


def test_correct_without_length_has_a_caveat_where_length_tells_the_label():
    scores, features = world(500, skill=0.0, style=0.0, length=1.0, seed=9)
    longer = np.where(
        features["label"] == "rejected", 2, 1
    )  # wrong answers are twice as long, and longer is better
    scores = scores.assign(score=scores["score"] + np.log2(longer))
    features = features.assign(characters=features["characters"] * longer)
    with_length, without = (
        style_effects(scores, counts).set_index("term") for counts in (features, None)
    )
    assert with_length.loc["correct", "effect"] == pytest.approx(0, abs=0.06)
    assert without.loc["correct", "effect"] < -0.3
    assert [with_length["caveat"].any(), without["caveat"].ne("").tolist()] == [
        False,
        [True, False, False],
    ]


def test_labels_are_never_read():
    scores, features = world(40, length=0.5, seed=4)
    swap = {"chosen": "rejected", "rejected": "chosen"}
    swapped = [
        frame.assign(label=frame["label"].map(swap)) for frame in (scores, features)
    ]
    turned = debias(*swapped)
    np.testing.assert_allclose(turned["score"], debias(scores, features)["score"])


def test_a_prompts_own_scores_never_calibrate_it():
    scores, features = world(40, length=0.5, seed=5)
    wild = scores.assign(
        score=scores["score"].where(scores["id"] != "7", 1e4 * scores["slot"])
    )
    tame, wild = debias(scores, features), debias(wild, features)
    is_wild = (scores["id"] == "7").to_numpy()
    np.testing.assert_allclose(
        tame["removed"][is_wild], wild["removed"][is_wild], rtol=1e-9
    )
    assert not np.allclose(tame["removed"][~is_wild], wild["removed"][~is_wild])


def test_a_planted_effect_of_length_is_taken_off_whole():
    scores, features = world(400, style=0.0, length=0.8, seed=1)
    removed = debias(scores, features)["removed"]
    slope = np.polyfit(np.log2(features["characters"]), removed, 1)[0]
    assert slope == pytest.approx(0.8, rel=0.05)


def test_a_single_step_of_style_is_taken_off_alone():
    scores, _ = world(400, style=0.0, seed=1)
    scores["score"] += 0.8 * (scores["style"] == "markdown")
    removed = debias(scores, on="step_markdown").groupby("style")["removed"].mean()
    assert removed.tolist() == pytest.approx([0, 0, 0.8], abs=0.1)


def test_what_debiasing_changes_is_the_comparison_of_two_models():
    scores, features = world(60, length=0.6, style=0.0, seed=9)
    scores = check_scores(scores)
    debiased = debias(scores, features)
    both = pd.concat([scores, debiased])
    table = rmlab.compare(both, "m debiased", "m", by="level").set_index("level")
    before, after = (
        metrics.accuracy(frame, by=["model", "level"]).set_index("level")["accuracy"]
        for frame in (scores, debiased)
    )
    pd.testing.assert_series_equal(
        table["difference"], after - before, check_names=False, check_index=False
    )


def pairs_and_features(margin, lengths, *, model="m", domain="chat"):
    """Margins (prompts, comparisons) as pairs, and lengths (2, prompts, comparisons) as
    their features.
    """
    n, per_prompt = margin.shape
    slots, ids = (
        np.tile(np.arange(per_prompt), n),
        np.repeat(np.arange(n), per_prompt).astype(str),
    )
    keys = pd.DataFrame({"benchmark": "b", "domain": domain, "id": ids})
    pairs = check_pairs(
        keys.assign(
            model=model, chosen_slot=slots, rejected_slot=slots, margin=margin.ravel()
        )
    )
    sides = zip(("chosen", "rejected"), lengths, strict=True)
    return pairs, pd.concat(
        [
            keys.assign(label=label, slot=slots, characters=side.ravel())
            for label, side in sides
        ]
    )


def planted(n, at_zero, effect, seed=0, per_prompt=1, shift=400.0, **names):
    """Outcomes that follow the logistic model with a tanh of the difference, with
    longer chosen answers.
    """
    rng = np.random.default_rng(seed)
    lengths = (
        rng.normal(3000, 500, (2, n, per_prompt)).round()
        + np.array([shift, 0.0])[:, None, None]
    )
    difference = lengths[0] - lengths[1]
    chance = expit(
        np.log(at_zero / (1 - at_zero))
        + effect * np.tanh(difference / difference.std())
    )
    return pairs_and_features(
        np.where(rng.random(chance.shape) < chance, 1.0, -1.0), lengths, **names
    )


def test_planted_accuracy_at_equal_length_comes_back():
    parts = [
        planted(400, 0.7, 1.5, seed=seed, model=f"m{seed}", domain=f"d{seed}")
        for seed in range(60)
    ]
    table = length_controlled(
        *(pd.concat(frames) for frames in zip(*parts, strict=True))
    )
    assert table["controlled"].mean() == pytest.approx(0.7, rel=0.05)
    assert (
        table["accuracy"].mean() > 0.75
    )  # what length adds, as the chosen answers are longer
    assert ((table["low"] <= 0.7) & (table["high"] >= 0.7)).mean() >= 0.88


def test_style_control_takes_the_style_out():
    scores = world(400, style=2.0, skill=1.0, seed=5)[0]
    pairs = metrics.pairs(scores)
    tilted = pairs[pairs["level"] != "hard"]  # fancier answers are mostly right here
    raw, level = (
        style_controlled(tilted, controls=["style"]).iloc[0],
        style_controlled(pairs, controls="style").iloc[0],
    )
    normal = metrics.accuracy(pairs[pairs["level"] == "normal"])["accuracy"].item()
    assert raw["accuracy"] > normal + 0.08
    assert [raw["controlled"], level["controlled"]] == pytest.approx(
        [normal, normal], abs=0.03
    )


def test_what_cannot_be_fitted_has_its_reason():
    scores, features = world(30, seed=4)
    longest = scores.assign(score=features["characters"])
    won = np.array([1.0, -1.0] * 10)[:, None]
    longer_by_two = np.stack([np.arange(20.0) + 5, np.arange(20.0) + 3])[..., None]
    for table, lengths, reason in (
        (longest, features, "separation"),
        (scores.assign(score=1.0), features, "ends alike"),
        (scores, features.assign(characters=100), "characters does not vary"),
        (*planted(200, 0.7, 1.0, seed=4, shift=6000.0), "characters differs"),
        (*pairs_and_features(won, longer_by_two), "characters differs"),
    ):
        for function, options in (
            (length_controlled, {}),
            (style_controlled, {"controls": "characters"}),
        ):
            row = function(table, lengths, **options).iloc[0]
            assert reason in row["reason"]
            varies = "vary" not in reason
            assert row[["controlled", "se", "low", "high"]].isna().all() == varies
            assert np.isnan(row.filter(regex="effect").astype(float)).all()


def test_a_control_that_always_differs_by_the_same_has_no_accuracy_at_none():
    """The accuracy of concise over plain stood as that at equal style."""
    pairs = metrics.pairs(world(40, style=1.0, seed=5)[0])
    is_one_step = (pairs["chosen_style"] == "concise") & (pairs["level"] == "hard")
    is_one_step &= pairs["rejected_style"] == "plain"
    row = style_controlled(pairs[is_one_step], controls="style").iloc[0]
    assert np.isnan(row["controlled"])
    assert "style differs the same way" in row["reason"]


def with_headings(won, chosen, rejected, seed=0):
    """Single comparisons with these outcomes, headings of both answers, and lengths
    that tell nothing.
    """
    lengths = np.random.default_rng(seed).normal(3000, 500, (2, len(won), 1)).round()
    pairs, features = pairs_and_features(np.where(won, 1.0, -1.0)[:, None], lengths)
    return pairs, features.assign(headings=np.concatenate([chosen, rejected]))


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


def test_an_effect_of_few_prompts_has_no_interval():
    rng = np.random.default_rng(1)
    headings = np.where(np.arange(200) < 3, [[1.0], [0.0]], 0.0)
    headings[:, 2] = [0.0, 1.0]
    tables = with_headings(rng.random(200) < 0.5, *headings)
    row = style_controlled(
        *tables, controls=["characters", "headings"], form="linear"
    ).iloc[0]
    assert "effect_headings" in row["reason"]
    assert np.isnan(
        row[["effect_headings_low", "effect_headings_high"]].astype(float)
    ).all()
    assert row["low"] < row["controlled"] < row["high"]


def test_equal_length_that_is_hardly_observed_is_named():
    """Two of 200 prompts near equal length: 0.80 without a word."""
    rng = np.random.default_rng(2)
    length = rng.normal(3000, 300, 200).round()
    ratio = 2.0 ** (rng.choice([-1, 1], 200) * rng.uniform(0.5, 1.5, 200))
    won = np.where(rng.random(200) < expit(0.5 * np.log2(ratio)), 1.0, -1.0)
    for n_equal, is_rare in ((2, True), (40, False)):
        ratio[:n_equal] = 1.1
        row = length_controlled(
            *pairs_and_features(
                won[:, None], np.stack([length * ratio, length])[..., None]
            )
        ).iloc[0]
        assert ("equal length" in row["reason"]) == is_rare
        assert row["n_near"] == n_equal
        assert row["near"] == pytest.approx((won[:n_equal] > 0).mean())


def test_a_bump_at_equal_length_is_named():
    """The curve is smooth: its interval held the truth in 64 % of tables."""
    rng = np.random.default_rng(0)
    lengths = length_worlds.drawn_lengths(1000, rng)
    is_near = np.abs(np.log(lengths[:, 0] / lengths[:, 1])) < np.log(1.25)
    for elsewhere, is_named in ((0.35, True), (0.7, False)):
        chance = np.where(is_near, 0.7, elsewhere)
        margin = np.where(rng.random(1000) < chance, 1.0, -1.0)
        tables = length_worlds.tables_of(margin[None, :, None], lengths)
        row = length_controlled(*tables).iloc[0]
        assert ("disagree" in row["reason"]) == is_named


def test_a_curve_of_the_lengths_themselves_is_part_of_the_fit():
    """Middle lengths are worst: no curve in the difference of two answers shows
    that.
    """
    rng = np.random.default_rng(0)
    lengths = length_worlds.drawn_lengths(1000, rng)
    tables = length_worlds.tables_of(
        length_worlds.margins("middle length", lengths, 8, rng), lengths
    )
    curve = length_controlled(*tables)
    assert abs(curve["controlled"].mean() - length_worlds.TRUTH) < 0.02
    assert curve["reason"].eq("").sum() >= 7


def test_form_linear_is_one_slope_for_each_control():
    import statsmodels.api as sm

    scores, features = world(400, style=1.0, seed=6)
    pairs = metrics.pairs(scores)
    row = style_controlled(
        pairs, features, controls=["characters", "markdown"], form="linear"
    ).iloc[0]
    keys = ["id", "slot"]
    sides = [
        features[features["label"] == label].set_index(keys)
        for label in ("chosen", "rejected")
    ]
    counts = [
        side.loc[
            list(zip(pairs["id"], pairs[f"{label}_slot"], strict=True)),
            ["characters", "markdown"],
        ].to_numpy()
        for side, label in zip(sides, ("chosen", "rejected"), strict=True)
    ]
    x = (counts[0] - counts[1]) / (counts[0] + counts[1] + 1)
    fit = sm.Logit((pairs["outcome"] == "win").to_numpy(float), sm.add_constant(x)).fit(
        disp=0
    )
    effects = row[["effect_characters", "effect_markdown"]].astype(float)
    np.testing.assert_allclose(
        effects, fit.params[1:] * x.std(axis=0), rtol=0.01
    )  # the penalty is small here
    assert row["controlled"] == pytest.approx(expit(fit.params[0]), abs=0.002)


SCORES, FEATURES = world(20, seed=10)
FEW, NO_STYLE, GAPS = (
    world(4),
    SCORES.drop(columns="style"),
    FEATURES[FEATURES["id"] != "3"],
)
PLAIN = metrics.pairs(SCORES).drop(columns=["chosen_style", "rejected_style"])
BAD = [
    (style_gap, (NO_STYLE,), {}, DataError, "style"),
    (style_effects, (SCORES, GAPS), {}, DataError, "6 of 120"),
    (
        style_effects,
        (SCORES, FEATURES),
        {"terms": ["correct", "charcters"]},
        DataError,
        "'charcters'",
    ),
    (exchange_rate, (SCORES,), {"terms": ["step"]}, ValueError, "terms"),
    (
        style_effects,
        (SCORES.assign(template=np.nan),),
        {"cluster": "template"},
        DataError,
        "template.* missing",
    ),
    (debias, FEW, {}, DataError, "4 prompts"),
    (debias, (SCORES, None), {}, DataError, "'characters'"),
    (
        length_controlled,
        (PLAIN, FEATURES),
        {"confidence": 95},
        ValueError,
        "confidence: 95",
    ),
    (
        style_controlled,
        (PLAIN, FEATURES),
        {"controls": ["style"]},
        DataError,
        "style",
    ),
]


@pytest.mark.parametrize(("function", "tables", "options", "error", "message"), BAD)
def test_bad_input_is_named(function, tables, options, error, message):
    with pytest.raises(error, match=message):
        function(*tables, **options)


def test_responses_in_place_of_features_are_counted():
    """Length was left out without a word."""
    responses = rmlab.load("mini")
    scores = rmlab.score(responses, "longest")
    features = rmlab.styles.features(responses)
    with_tokens = responses.assign(tokens=features["characters"] // 4)
    for function, options in (
        (style_effects, {}),
        (exchange_rate, {}),
        (length_controlled, {}),
        (style_controlled, {"controls": "markdown"}),
        (debias, {"on": "words"}),
    ):
        expected = function(scores, features, **options)
        for table in (responses, with_tokens):
            pd.testing.assert_frame_equal(function(scores, table, **options), expected)
    assert style_effects(scores, with_tokens, terms=["tokens"])["effect"].item() > 0


def test_a_rate_needs_a_term_beside_correctness():
    """Without styles and features the table was empty."""
    with pytest.raises(DataError, match="features"):
        exchange_rate(NO_STYLE)


def test_features_without_counts_are_told_what_is_needed():
    """Keys alone were answered with "allowed: ;"."""
    with pytest.raises(DataError, match="'characters'") as error:
        length_controlled(SCORES, FEATURES[KEY])
    assert "allowed: ;" not in str(error.value)


def test_a_gap_compares_easy_and_hard_of_the_same_prompts():
    """Prompts without their hard comparisons gave their easy ones to the gap."""
    scores, _ = world(40, seed=1)
    pairs = metrics.pairs(scores)
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


def test_scores_that_vary_in_one_prompt_only_have_no_interval():
    scores, features = world(30, seed=7)
    scores["score"] = scores["score"].where(scores["id"] == "4", 0.25)
    for function in (style_effects, exchange_rate):
        table = function(scores, features)
        assert table[["low", "high"]].isna().all(axis=None)
        assert (table["reason"] == "scores vary in one prompt only").all()


def test_a_term_that_one_prompt_alone_decides_has_no_interval():
    scores, features = world(60, seed=7)
    is_rare = (features["id"] == "4") & (features["slot"] == 0)
    features["rare"] = np.where(is_rare & (features["label"] == "chosen"), 3, 0)
    table = style_effects(scores, features, terms=["correct", "rare"])
    rows = table.set_index("term")
    assert rows.loc["rare", "reason"] == "one prompt alone decides it"
    assert rows.loc["rare", ["se", "low", "high", "p"]].isna().all()
    assert np.isfinite(rows.loc["rare", "effect"])
    assert rows.loc["correct", "reason"] == ""
    assert np.isfinite(rows.loc["correct", "low"])
    rate = exchange_rate(scores, features, terms=["correct", "rare"]).iloc[0]
    assert rate["reason"] == "one prompt alone decides it"
    assert np.isnan(rate["low"])


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
