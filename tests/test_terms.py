"""Scores that are a weighted sum of terms: policy minus reference, one after the other, each with its own ledger."""

import numpy as np
import pandas as pd
import pytest
from fakes import Difference, responses

import rmlab
from rmlab.report import write_report
from rmlab.scoring import merge, score
from rmlab.tables import DataError


def expected(frame, scorer):
    return [scorer.value(text) for text in zip(frame["prompt"], frame["response"], strict=True)]


@pytest.mark.parametrize(("stored", "blind"), [(False, 0), (True, 1)])
def test_a_text_without_a_score_under_either_model_is_missing(tmp_path, stored, blind):
    frame = responses(10)
    store = tmp_path if stored else None
    scorer = Difference()
    scorer.models[blind].nan = set(frame["response"].iloc[[3, 30]])
    with pytest.raises(DataError, match=r"scorer 'fake.* not finite, first nan"):
        score(frame, scorer, store=store)
    assert not any(model.here for model in scorer.models), "a run that fails leaves no model behind"
    scores = score(frame, scorer, store=store, allow_missing=True)
    assert np.flatnonzero(scores["score"].isna()).tolist() == [3, 30]
    assert scores.attrs["provenance"]["fake"]["missing"] == 2


def test_shards_merge_and_terms_are_no_models_of_tables(tmp_path):
    frame = rmlab.load("mini").head(60)
    whole = score(frame, Difference(name="owner/dpo"))
    folders = [tmp_path / str(number) for number in (1, 2)]
    for number, folder in enumerate(folders):
        score(frame, Difference(name="owner/dpo"), store=folder, shard=(number + 1, 2))
    table = merge(folders, tmp_path / "all")
    assert table["model"].tolist() == ["policy", "reference"] * 2
    assert table["texts"].groupby(table["model"]).sum().tolist() == [60, 60]
    assert (table["conflicts"] == 0).all()
    merged = Difference(name="owner/dpo")
    pd.testing.assert_frame_equal(score(frame, merged, store=tmp_path / "all"), whole)
    assert merged.logged == []
    assert [path.name for path in (tmp_path / "all").glob("*.csv")] == ["owner--dpo.mini.csv"]
    assert rmlab.read_scores(tmp_path / "all")["model"].unique().tolist() == ["owner/dpo"]
    page = write_report(tmp_path / "all", tmp_path / "report.html").read_text(encoding="utf-8")
    assert "owner/dpo" in page
    assert ">reference<" not in page
