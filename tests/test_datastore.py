"""Files for the datastore of Every Eval Ever: its schemas, its own validator, and our numbers in them."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from benchmark_worlds import reward_bench_2_scores, reward_bench_pairs
from jsonschema import Draft7Validator

from rmlab import benchmarks, metrics, report, scoring
from rmlab.tables import DataError

ROOT = Path(__file__).parents[1]
# The schemas of the package every-eval-ever 0.3.0 (MIT), as it brings them.
SCHEMAS = Path(__file__).parent / "recorded" / "every_eval_ever"


def schema(name):
    return Draft7Validator(json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8")))


def texts(table):
    """A text for every answer of a table of scores."""
    return table.drop(columns=["model", "score"]).drop_duplicates().assign(prompt="<script>?</script>", response="x")


@pytest.fixture(scope="module")
def mini():
    responses = benchmarks.load("mini")
    return scoring.score(responses, ["longest", "constant"], progress=False), responses


@pytest.fixture(scope="module")
def written(mini, tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    four = reward_bench_2_scores(models=("owner/model:1", "b"))
    report.write_datastore(*mini, folder, organization="rmlab")
    report.write_datastore(four, texts(four), folder, organization="rmlab", developer="me")
    return folder


def test_files_fit_the_documented_schemas(written):
    wholes, samples = sorted(written.rglob("*.json")), sorted(written.rglob("*.jsonl"))
    assert len(wholes) == len(samples) == 4
    for path in wholes:
        assert list(schema("eval").iter_errors(json.loads(path.read_text(encoding="utf-8")))) == []
    for path in samples:
        for line in path.read_text(encoding="utf-8").splitlines()[::20]:
            assert list(schema("instance_level_eval").iter_errors(json.loads(line))) == []


def test_numbers_are_those_of_estimates(written, mini):
    (path,) = written.glob("data/mini/rmlab/longest/*.json")
    whole = json.loads(path.read_text(encoding="utf-8"))
    numbers = metrics.estimates(mini[0])
    numbers = numbers[(numbers["model"] == "longest") & (numbers["quantity"] != "cell")]
    assert len(whole["evaluation_results"]) == len(numbers)
    for result, (_, row) in zip(whole["evaluation_results"], numbers.iterrows(), strict=True):
        score = result["score_details"]
        assert result["evaluation_name"] == f"mini: {row['name']}"
        assert score["score"] == pytest.approx(row["value"], abs=1e-8)
        sure = score["uncertainty"]
        assert sure["confidence_interval"]["lower"] == pytest.approx(row["low"], abs=1e-8)
        assert sure["confidence_interval"]["upper"] == pytest.approx(row["high"], abs=1e-8)
        assert score["details"]["n_ties"] == str(row["n_ties"])
    detail = whole["detailed_evaluation_results"]
    samples = (written / detail["file_path"]).read_bytes()
    assert detail["checksum"] == hashlib.sha256(samples).hexdigest()
    lines = [json.loads(line) for line in samples.decode().splitlines()]
    assert detail["total_rows"] == len(lines)
    assert {line["evaluation_id"] for line in lines} == {whole["evaluation_id"]}


def test_the_same_results_have_the_same_names(written, mini, tmp_path):
    files = report.write_datastore(metrics.pairs(mini[0]), mini[1], tmp_path, organization="rmlab")
    assert all((written / file.relative_to(tmp_path)).exists() for file in files)


def test_names_stay_inside_the_folder(tmp_path):
    four = reward_bench_2_scores(models=("../..", "a/../../b"))
    files = report.write_datastore(four, texts(four), tmp_path / "in", organization="rmlab", developer="..")
    assert all(file.resolve().is_relative_to(tmp_path / "in" / "data") for file in files)
    assert {path.name for path in tmp_path.iterdir()} == {"in"}


def test_what_is_not_known_is_asked_for(mini, tmp_path):
    pairs = reward_bench_pairs(models=("b",))
    with pytest.raises(DataError, match="developer: 'b' has no owner in its name"):
        report.write_datastore(pairs, mini[1], tmp_path, organization="rmlab")
    with pytest.raises(DataError, match="relationship: 'friend'; allowed: first_party"):
        report.write_datastore(*mini, tmp_path, organization="rmlab", relationship="friend")
    assert not list(tmp_path.iterdir())


def test_its_own_validator_passes_every_file(written):
    command = ROOT / ".venv" / "every_eval_ever" / "bin" / "every_eval_ever"
    found = str(command) if command.exists() else shutil.which("every_eval_ever")
    if found is None:
        pytest.skip("every-eval-ever is not there: make test-long installs it where there is Python 3.12 or later")
    paths = [str(path.relative_to(written)) for path in sorted(written.rglob("*.json*"))]
    done = subprocess.run(
        [found, "validate", "--format", "json", *paths], cwd=written, capture_output=True, text=True, check=False
    )
    reports = json.loads(done.stdout)
    assert [Path(one["file"]).name for one in reports if one["valid"]] == [Path(path).name for path in paths]
    assert [one["errors"] for one in reports if one["errors"]] == []
    warned = [warning for one in reports for warning in one["warnings"]]
    assert len(warned) <= 1, "of a name that no folder can have"
    assert done.returncode == 0
