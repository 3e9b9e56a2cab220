"""What the kept simulations promise: intervals hold the truth in 93 % or more, and in more than 97.5 % only where
outcomes are rare or the test is exact."""

from pathlib import Path

import pandas as pd
import pytest

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
RARE = {  # worlds in which hardly a prompt fails, hardly one wins, or hardly one differs from the others
    "coverage.csv": {
        "near-perfect",
        "40 nearly perfect, 1 to 9 comparisons",
        "1,327 nearly equal, one comparison",
        "RewardBench 2, near-perfect",
        "a constant share, rarely off",
        "a constant share, rarely off, 200 prompts of three",
    },
    "coverage_held_out.csv": {
        "near-perfect, heavy tails",
        "near-perfect, style decides the rest",
        "near-perfect, 15 to 50 prompts a domain",
        "60 prompts near zero, 1 to 9 comparisons",
        "25 nearly perfect, 1 to 9 comparisons",
        "200 nearly perfect, one comparison",
    },
}
KEPT = ["what", "world", "share", "worst", "width", "draws"]


def intervals(name):
    """The rows of rmlab's own intervals; those that count every comparison by itself stand beside them."""
    table = pd.read_csv(RESULTS / name)
    return table[~table["what"].str.endswith("every comparison by itself")]


@pytest.mark.parametrize("name", RARE)
def test_every_kind_of_number_is_covered_in_every_world(name):
    table = intervals(name)
    assert table["share"].ge(0.93).all(), table.loc[table["share"] < 0.93, KEPT]
    assert table["worst"].ge(0.92).all(), table.loc[table["worst"] < 0.92, KEPT]
    assert table["draws"].ge(2000).all()


@pytest.mark.parametrize("name", RARE)
def test_more_than_they_should_hold_only_where_outcomes_are_rare(name):
    wide = intervals(name).query("share > 0.975")
    assert set(wide["world"]) <= RARE[name], wide.loc[~wide["world"].isin(RARE[name]), KEPT]
    assert wide["width"].gt(0).all()


@pytest.mark.parametrize("name", RARE)
def test_counting_every_comparison_by_itself_covers_too_little(name):
    table = pd.read_csv(RESULTS / name).query("what == 'coverage: overall, every comparison by itself'")
    several = table[~table["world"].str.contains("one comparison|constant share")]
    assert several["share"].lt(0.9).all()


def test_what_rank_compare_best_and_power_decide():
    decided = pd.read_csv(RESULTS / "decisions.csv")
    share = decided.set_index(["what", "world"])["share"]
    assert share.xs("interval excludes 0 exactly where p < alpha").eq(1).all()
    for what in ("sets for one model hold all places: mean", "sets for all models hold all places at once"):
        assert share.xs(what).ge(0.93).all()
    bounds = decided[decided["what"].str.startswith("compare_best")]
    assert len(bounds) == 6
    assert bounds["share"].ge(0.93).all()
    assert bounds["worst"].ge(0.92).all()
    power = pd.read_csv(RESULTS / "power.csv")
    asked = power[power["what"].str.contains("80 % asked")]
    off = 2 * asked["error"].fillna(0)
    assert ((asked["share"] + off >= 0.77) & (asked["share"] - off <= 0.83)).all(), asked
    assert power[power["what"].str.startswith("detectable_low")]["share"].between(0.93, 0.98).all()
