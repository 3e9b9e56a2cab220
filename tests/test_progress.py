"""What a run says of itself: texts done, time left; a line before a long one."""

import logging

import numpy as np
import pytest
from fakes import Streaming, responses

from rmlab.scoring import score
from rmlab.scoring.run import LONG


class Slow(Streaming):
    """A fake whose six texts of the self-check take as long as `clock` says."""

    def __init__(self, clock, seconds, **options):
        super().__init__(**options)
        self.clock, self.seconds = clock, seconds

    def stream(self, texts):
        self.clock.now += self.seconds if len(texts) == 6 else 0.0
        yield from super().stream(texts)

    def score_alone(self, texts):
        return np.array([self.score_text(text) for text in texts])


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only when a test says so."""

    class Clock:
        now = 0.0

        def perf_counter(self):
            return self.now

        time = perf_counter

    clock = Clock()
    monkeypatch.setattr("rmlab.scoring.run.time", clock)
    return clock


def lines(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "rmlab.scoring.run"]


@pytest.mark.parametrize(
    ("seconds", "options", "announced"), [(1.0, {}, True), (0.01, {}, False), (1.0, {"progress": False}, False)]
)
def test_a_run_of_over_a_minute_says_so_before_it_starts(clock, caplog, seconds, options, announced):
    """Six texts in a second: 5,160 texts take a quarter of an hour."""
    with caplog.at_level(logging.WARNING):
        score(responses(LONG // 6 * 20 + 20), Slow(clock, seconds, size=500), **options)
    assert bool(lines(caplog)) == announced
    assert all("5,160 texts to go, about 14 minutes" in line for line in lines(caplog))


def test_what_is_stored_already_takes_no_time(clock, caplog, tmp_path):
    frame = responses(2 * LONG)
    score(frame.iloc[: 6 * LONG], Slow(clock, 0.0, size=500), store=tmp_path)
    with caplog.at_level(logging.WARNING):
        score(frame, Slow(clock, 10.0, size=500), store=tmp_path)
    (announced,) = lines(caplog)
    assert f"{6 * LONG:,} texts to go" in announced


def test_the_bar_counts_texts(capsys):
    score(responses(3), Streaming("model"), progress=True)
    bar = capsys.readouterr().err
    assert "model: 100%" in bar
    assert "18/18" in bar
