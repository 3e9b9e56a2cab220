"""The speed scripts, as far as they can be wrong without a measurement."""

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "performance"


@pytest.fixture
def scoring(monkeypatch, tmp_path):
    """The module performance/scoring.py, where sentence-transformers is missing and a
    tokenizer takes longer than anybody waits.
    """
    monkeypatch.syspath_prepend(str(FOLDER))
    import scoring

    monkeypatch.setattr(scoring, "find_spec", lambda name: None)
    monkeypatch.setattr(scoring, "load", lambda *place: pytest.fail("data were read"))
    return scoring


@pytest.mark.parametrize("ways", [[], ["--ways", "rmlab", "CrossEncoder, batch 32"]])
def test_a_missing_extra_is_named_before_any_model_is_made(
    scoring, monkeypatch, capsys, ways
):
    """It ended in a BrokenPipeError after all models had been made."""
    monkeypatch.setattr(sys, "argv", ["scoring.py", *ways])
    with pytest.raises(SystemExit) as caught:
        scoring.main()
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "[bench]" in said
    assert "--ways" in said


def test_a_way_that_needs_no_extra_needs_none(scoring):
    assert scoring.missing_package(["rmlab", "pipeline, batch 8"]) == ""
