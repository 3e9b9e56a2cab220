"""The self-check before a long run."""

import numpy as np
import pytest
from fakes import Difference, Streaming, Term, responses, truth

from rmlab.scoring import score
from rmlab.scoring.self_check import LONG, apart
from rmlab.tables import DataError


class Checked(Streaming):
    """A fake that can score texts alone, in `dtype`, with an error of `off`."""

    def __init__(self, dtype="float32", off=0.0, **options):
        super().__init__(**options)
        self.dtype, self.off, self.checked = dtype, off, 0

    def provenance(self):
        return {"dtype": self.dtype}

    def alone(self, prepared, wanted):
        self.checked += len(wanted)
        return np.array([truth(*prepared.texts[i]) + self.off for i in wanted])


class CheckedTerm(Term):
    """One of two models, that scores texts alone with an error of `off`."""

    off = 0.0

    def alone(self, prepared, wanted):
        return np.array([self.value(prepared.texts[i]) + self.off for i in wanted])


def difference(*off):
    """Policy minus reference, off by so much."""
    scorer = Difference()
    scorer.models = [CheckedTerm(name) for name in ("policy", "reference")]
    for model, error in zip(scorer.models, off, strict=True):
        model.off = error
    return scorer


LONG_RUN = responses(LONG // 6 + 1)


def test_a_long_run_begins_with_a_check_that_provenance_keeps(tmp_path):
    scorer = Checked(off=1e-6)
    scores = score(LONG_RUN, scorer, store=tmp_path)
    check = scores.attrs["provenance"]["fake"]["self_check"]
    assert check["texts"] == scorer.checked == 6
    assert 0 < check["apart"] < 1e-5
    assert len(set(scorer.forwarded)) == len(LONG_RUN)
    assert len(scorer.forwarded) == len(LONG_RUN) + 6


def test_short_runs_and_reruns_are_not_checked(tmp_path):
    scorer = Checked(off=9.0)
    score(LONG_RUN.head(60), scorer)
    score(LONG_RUN, Checked(), store=tmp_path)
    score(LONG_RUN, scorer, store=tmp_path)
    assert scorer.checked == 0


def test_a_difference_stops_the_run_before_a_score_is_kept(tmp_path):
    with pytest.raises(DataError, match=r"scorer 'fake': texts scored alone and together differ .* rmlab.doctor"):
        score(LONG_RUN, Checked(off=0.1), store=tmp_path)
    score(LONG_RUN, Checked(off=0.1, dtype="bfloat16"))
    with pytest.raises(DataError, match="differ by nan"):
        score(LONG_RUN, Checked(off=np.nan))
    assert score(LONG_RUN, Checked(), store=tmp_path).attrs["provenance"]["fake"]["scored"] == len(LONG_RUN)


def test_a_later_model_that_fails_says_that_the_earlier_sums_are_kept(tmp_path):
    kept = r"the store already holds the sums of the models before this one.*another store=, or dtype='float32'"
    with pytest.raises(DataError, match=kept):
        score(LONG_RUN, difference(0.0, 9.0), store=tmp_path / "later")
    rerun = difference(9.0, 0.0)
    score(LONG_RUN, rerun, store=tmp_path / "later")
    assert rerun.models[0].forwarded == [], "as the message says: it is not checked again"
    for scorer, store in ((difference(9.0, 0.0), tmp_path / "first"), (difference(0.0, 9.0), None)):
        with pytest.raises(DataError, match=r"differ by .* standard deviations") as raised:
            score(LONG_RUN, scorer, store=store)
        assert "already holds" not in str(raised.value)


def test_a_text_without_a_score_is_no_difference():
    class Blind(Checked):
        def alone(self, prepared, wanted):
            return np.where(
                [prepared.texts[i][-1] in self.nan for i in wanted], np.nan, super().alone(prepared, wanted)
            )

    answers = LONG_RUN["response"].tolist()
    quarter = answers[len(answers) // 4 : len(answers) // 4 + 3]
    scores = score(LONG_RUN, Blind(nan=quarter), allow_missing=True)
    assert scores.attrs["provenance"]["fake"]["self_check"]["apart"] == 0
    assert scores["score"].isna().sum() == 3
    score(LONG_RUN, Blind(nan=answers), allow_missing=True)
    with pytest.raises(DataError, match="differ by nan"):
        score(LONG_RUN, Checked(nan=quarter), allow_missing=True)


def test_distance_is_in_standard_deviations_and_survives_constant_scores():
    values = np.array([1.0, 3.0])
    assert apart(values, values + 0.5) == pytest.approx(0.5)
    assert apart(np.zeros(3), np.zeros(3)) == 0
    assert apart(np.full(3, 1e4), np.full(3, 1e4) + 1e-3) == pytest.approx(1e-4)
