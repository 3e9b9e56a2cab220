"""Some hundred damaged files by every reader; benchmarks/fuzz.py reads 20,000."""

import pytest
from mutated_files import run, seeds, verdict


def test_whole_files_are_accepted(tmp_path):
    for reader, path, columns in seeds(tmp_path):
        assert verdict(reader, path, path, columns) == "accepted", path.name


@pytest.mark.parametrize("seed", [11, 12])
def test_damaged_files_are_refused_or_read_as_they_stand(tmp_path, seed):
    found = run(250, tmp_path, seed)
    wrong = found[~found["verdict"].isin(["refused", "accepted"])]
    assert wrong.empty, wrong.to_string()
    assert found["verdict"].value_counts().min() > 20
