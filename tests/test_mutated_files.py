"""Some hundred damaged files by every reader; benchmarks/fuzz.py reads 20,000."""

import numpy as np
import pytest
from mutated_files import run, seeds, verdict

import rmlab


def test_whole_files_are_accepted(tmp_path):
    for reader, path, columns in seeds(tmp_path):
        assert verdict(reader, path, path, columns) == "accepted", path.name


def moved(column, roll):
    """A reader that gives every row the value of another."""

    def read(path):
        frame = (rmlab.read_pairs if column in ("margin", "outcome") else rmlab.read_scores)(path)
        return frame.assign(**{column: roll(frame[column].to_numpy())})

    return read


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "tsv"])
@pytest.mark.parametrize("column", ["score", "slot", "label"])
def test_a_value_in_another_row_would_be_found(tmp_path, suffix, column):
    (path,) = (path for _, path, _ in seeds(tmp_path) if path.name == f"scores.{suffix}")
    said = verdict(moved(column, lambda values: np.roll(values, 1)), path, path, ("score",))
    assert "stands in no record of the file" in said
    assert verdict(moved(column, lambda values: values), path, path, ("score",)) == "accepted"


@pytest.mark.parametrize(
    ("name", "columns"), [("pairs.csv", ("margin",)), ("pairs.jsonl", ("margin",)), ("matrix.csv", ())]
)
def test_an_outcome_in_another_row_would_be_found(tmp_path, name, columns):
    (path,) = (path for _, path, _ in seeds(tmp_path) if path.name == name)
    said = verdict(moved("outcome", lambda values: np.roll(values, 1)), path, path, columns)
    assert "of the file" in said or "in the file" in said


@pytest.mark.parametrize("seed", [11, 12])
def test_damaged_files_are_refused_or_read_as_they_stand(tmp_path, seed):
    found = run(250, tmp_path, seed)
    wrong = found[~found["verdict"].isin(["refused", "accepted"])]
    assert wrong.empty, wrong.to_string()
    assert found["verdict"].value_counts().min() > 20
