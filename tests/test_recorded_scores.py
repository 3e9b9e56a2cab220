"""A score that moves has another SCORING_VERSION, so that no store returns the old
one.
"""

import json

import numpy as np
import pytest
from recorded_scores import (
    HEAD_WEIGHTS,
    TABLE,
    TOLERANCE,
    difference,
    list_cases,
    score_case,
)

from rmlab.scorers.base import SCORING_VERSION
from rmlab.scorers.models.heads import HEADS

RECORDED = json.loads(TABLE.read_text())
REMEDY = "raise SCORING_VERSION and record anew: python tests/recorded_scores.py"


@pytest.mark.parametrize("name", list_cases())
def test_no_score_moves_under_the_same_version(tmp_path, name):
    assert name in RECORDED["scores"], "record it: python tests/recorded_scores.py"
    recorded = np.array(RECORDED["scores"][name])
    assert np.std(recorded) > 1e-3 * np.abs(recorded).max()
    assert difference(score_case(name, tmp_path / "m"), recorded) <= TOLERANCE, REMEDY


def test_the_table_is_that_of_this_version_and_whole():
    assert RECORDED["version"] == SCORING_VERSION, REMEDY
    assert set(RECORDED["scores"]) == set(list_cases())
    # Of process models tests/test_steps.py holds the scores.
    outcome_heads = {head.name for head in HEADS if head.steps is None}
    assert outcome_heads == {*HEAD_WEIGHTS, "first_logit", "labels"}
