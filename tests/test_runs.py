"""A run before, while and after it scores: the self-check, what it says of itself, and what an interrupted one left."""

import numpy as np
import pytest
from fakes import Difference, Streaming, responses

from rmlab.scoring import score
from rmlab.scoring.run import LONG
from rmlab.tables import DataError

LONG_RUN = responses(LONG // 6 + 1)


class Checked(Streaming):
    """A fake that can score texts alone, in `dtype`, with an error of `off`."""

    def __init__(self, dtype="float32", off=0.0, **options):
        super().__init__(**options)
        self.dtype, self.off, self.checked = dtype, off, 0

    def provenance(self):
        return {"dtype": self.dtype}

    def score_alone(self, texts):
        self.checked += len(texts)
        return np.array([self.score_text(text) + self.off for text in texts])


class CheckedDifference(Difference):
    """Policy minus reference, off by so much where a text is alone."""

    off = 0.0

    def stream(self, texts):
        assert len(texts) == 6, "the self-check: in a run its terms are streamed, one after the other"
        yield range(6), self.score_alone(texts) - self.off

    def score_alone(self, texts):
        return np.array([self.score_text(text) + self.off for text in texts])


def test_a_long_run_begins_with_a_check_that_provenance_keeps(tmp_path):
    scorer = Checked(off=1e-6)
    check = score(LONG_RUN, scorer, store=tmp_path).attrs["provenance"]["fake"]["self_check"]
    assert check["texts"] == scorer.checked == 6
    assert 0 < check["apart"] < 1e-5
    assert len(set(scorer.forwarded)) == len(scorer.forwarded) - 6 == len(LONG_RUN)
    unchecked = Checked(off=9.0)
    score(LONG_RUN.head(60), unchecked)
    score(LONG_RUN, unchecked, store=tmp_path)
    assert unchecked.checked == 0, "a short run, and a rerun"


def test_a_difference_stops_the_run_before_a_score_is_kept(tmp_path):
    with pytest.raises(DataError, match=r"scorer 'fake'.* differ by"):
        score(LONG_RUN, Checked(off=0.1), store=tmp_path)
    score(LONG_RUN, Checked(off=0.1, dtype="bfloat16"))
    with pytest.raises(DataError, match="nan"):
        score(LONG_RUN, Checked(off=np.nan))
    scorer = CheckedDifference()
    assert score(LONG_RUN, scorer).attrs["provenance"]["fake"]["self_check"]["apart"] < 1e-9
    scorer.off = 0.1
    with pytest.raises(DataError, match="scorer 'fake'"):
        score(LONG_RUN, scorer, store=tmp_path)
    assert not list(tmp_path.glob("*/*.records"))


def test_a_text_without_a_score_is_no_difference():
    answers = LONG_RUN["response"].tolist()
    quarter = answers[len(answers) // 4 : len(answers) // 4 + 3]
    scores = score(LONG_RUN, Checked(nan=quarter), allow_missing=True)
    assert scores.attrs["provenance"]["fake"]["self_check"]["apart"] == 0
    assert scores["score"].isna().sum() == 3
    half_blind = Checked(nan=quarter)
    half_blind.score_alone = lambda texts: np.zeros(len(texts))
    with pytest.raises(DataError, match="nan"):
        score(LONG_RUN, half_blind, allow_missing=True)


def test_the_bar_counts_texts(capsys):
    score(responses(3), Streaming("model"), progress=True)
    bar = capsys.readouterr().err
    assert "model: 100%" in bar
    assert "18/18" in bar


def test_an_interrupted_run_has_scored_what_is_in_the_store(tmp_path):
    texts, calls = responses(20), iter(range(100))

    def interrupt(keys):
        if next(calls) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score(texts, Streaming(size=7, before=interrupt), store=tmp_path)
    runs = score(texts, Streaming(), store=tmp_path).attrs["provenance"]["fake"]["runs"]
    assert sorted(run["scored"] for run in runs) == [28, len(texts) - 28]


def test_a_store_without_a_name_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("", " "):
        with pytest.raises(DataError, match=r"store: '\s?'"):
            score(responses(2), "longest", store=folder)
    assert list(tmp_path.iterdir()) == []
