"""Item analysis against plain loops."""

import numpy as np
import pytest
from outcome_tables import responses_of

from rmlab import metrics, stats


@pytest.fixture
def won():
    rng = np.random.default_rng(0)
    square = (rng.random((12, 40)) < np.linspace(0.3, 0.9, 12)[:, None]).astype(float)
    square[:, 0], square[:, 1] = 0, 1
    square[3, 5] = square[4, 5] = square[3, 6] = np.nan
    return square


def test_items_equal_plain_loops(won):
    table = stats.item_difficulty(responses_of(won))
    assert list(table["id"]) == [str(i) for i in range(40)]
    for item, row in table.iterrows():
        answered = [m for m in range(12) if not np.isnan(won[m, item])]
        earned = [won[m, item] for m in answered]
        rest = [np.nanmean(np.delete(won[m], item)) for m in answered]
        assert row["n_models"] == len(answered)
        assert row["missing"] == 12 - len(answered)
        assert row["difficulty"] == pytest.approx(1 - np.mean(earned))
        if np.std(earned) == 0:
            assert np.isnan(row["discrimination"])
        else:
            assert row["discrimination"] == pytest.approx(np.corrcoef(earned, rest)[0, 1])
    assert table.query("none_right")["id"].tolist() == ["0"]
    assert "1" in table.query("all_right")["id"].tolist()


def test_items_of_prompts_are_means_of_their_comparisons(make_scores):
    pairs = metrics.pairs(make_scores(models=("a", "b", "c")))
    whole, parts = stats.item_difficulty(pairs, unit="prompt"), stats.item_difficulty(pairs)
    assert len(whole) == 18
    mean = parts.groupby(["domain", "id"])["difficulty"].mean()
    np.testing.assert_allclose(
        whole.set_index(["domain", "id"])["difficulty"], mean[whole.set_index(["domain", "id"]).index]
    )
    with pytest.raises(ValueError, match="unit: 'prompts'; allowed: 'comparison', 'prompt'"):
        stats.item_difficulty(pairs, unit="prompts")
