"""The self-check before a long run."""

import numpy as np
import pytest
from fakes import Difference, Streaming, responses

from rmlab.scoring import score
from rmlab.scoring.run import LONG
from rmlab.tables import DataError


class Checked(Streaming):
    """A fake that can score texts alone, in `dtype`, with an error of `off`."""

    def __init__(self, dtype="float32", off=0.0, **options):
        super().__init__(**options)
        self.dtype, self.off, self.checked = dtype, off, 0

    def provenance(self):
        return {"dtype": self.dtype}

    def score_alone(self, texts):
        self.checked += len(texts)
        return np.array([self.value((text.prompt, *text.answers)) + self.off for text in texts])


class CheckedDifference(Difference):
    """Policy minus reference, off by so much where a text is alone."""

    off = 0.0

    def stream(self, texts):
        assert len(texts) == 6, "the self-check: in a run its terms are streamed, one after the other"
        yield range(6), self.score_alone(texts) - self.off

    def score_alone(self, texts):
        return np.array([self.value((text.prompt, *text.answers)) + self.off for text in texts])


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


def test_a_sum_of_models_is_checked_as_a_whole_before_anything_is_stored(tmp_path):
    scorer = CheckedDifference()
    assert score(LONG_RUN, scorer).attrs["provenance"]["fake"]["self_check"]["apart"] < 1e-9
    scorer.off = 0.1
    with pytest.raises(DataError, match="scorer 'fake'"):
        score(LONG_RUN, scorer, store=tmp_path)
    assert not list(tmp_path.glob("*/*.records"))


def test_a_text_without_a_score_is_no_difference():
    class Blind(Checked):
        def score_alone(self, texts):
            return np.where([text.answers[0] in self.nan for text in texts], np.nan, super().score_alone(texts))

    answers = LONG_RUN["response"].tolist()
    quarter = answers[len(answers) // 4 : len(answers) // 4 + 3]
    scores = score(LONG_RUN, Blind(nan=quarter), allow_missing=True)
    assert scores.attrs["provenance"]["fake"]["self_check"]["apart"] == 0
    assert scores["score"].isna().sum() == 3
    score(LONG_RUN, Blind(nan=answers), allow_missing=True)
    with pytest.raises(DataError, match="differ by nan"):
        score(LONG_RUN, Checked(nan=quarter), allow_missing=True)
