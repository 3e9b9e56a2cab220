"""Results for a model's repository on the hub: the file, its notes, and what is
refused.
"""

import re
import sys
import types

import huggingface_hub
import pytest
import yaml
from benchmark_worlds import reward_bench_2_scores

import rmlab
from rmlab.report import to_hub
from rmlab.tables import DataError

writes_results = pytest.mark.skipif(
    not hasattr(huggingface_hub, "eval_result_entries_to_yaml"),
    reason="huggingface_hub before 1.4 does not write files of results",
)


def entries(text):
    """What the hub's own client reads in the file."""
    return huggingface_hub.parse_eval_result_entries(yaml.safe_load(text))


def intervals(entry):
    """The numbers of the interval in the notes."""
    return [float(number) for number in re.findall(r"-?\d\.\d{4}", entry.notes)]


@writes_results
def test_the_hubs_client_reads_every_number_of_the_summary(make_scores, tmp_path):
    sizes = dict.fromkeys(["chat", "math", "code"], 7)
    sizes |= {"safety-refuse": 5, "safety-response": 5}
    scores = make_scores(sizes, models=["owner/m"])
    path = tmp_path / ".eval_results" / "rm-bench.yaml"
    text = to_hub(scores, path, source="https://example.org/traces")
    assert path.read_text("utf-8") == text

    read = entries(text)
    summary = rmlab.summary(scores).iloc[0]
    levels = ["chat", "math", "code", "safety", "easy", "normal", "hard"]
    assert [entry.task_id for entry in read] == ["overall", *levels]
    numbers = rmlab.estimates(scores).drop_duplicates("name").set_index("name")
    for entry in read:
        number = numbers.loc[entry.task_id]
        assert entry.dataset_id == "THU-KEG/RM-Bench"
        assert re.fullmatch("[0-9a-f]{40}", entry.dataset_revision)
        assert entry.value == round(summary[entry.task_id], 4)
        assert intervals(entry) == [round(number["low"], 4), round(number["high"], 4)]
        assert f"{number['n_prompts']} prompts" in entry.notes
        assert entry.source_url == "https://example.org/traces"


@writes_results
def test_the_subsets_of_reward_bench_2_have_the_names_of_the_summary():
    scores = reward_bench_2_scores()
    model = scores["model"].iloc[0]
    one = scores[scores["model"] == model]
    read = entries(to_hub(one))
    summary = rmlab.summary(one).iloc[0]
    assert {entry.dataset_id for entry in read} == {"allenai/reward-bench-2"}
    found = {entry.task_id: entry.value for entry in read}
    assert found == {
        name: round(float(summary[name]), 4)
        for name in ("overall", *rmlab.benchmarks.named("reward-bench-2").columns)
    }


@writes_results
def test_a_number_that_is_missing_is_not_in_the_file(make_scores):
    scores = make_scores(models=["m"])
    names = [
        entry.task_id for entry in entries(to_hub(scores[scores.domain == "chat"]))
    ]
    assert names == ["chat"]


@writes_results
def test_few_prompts_have_a_number_and_no_interval(make_scores):
    scores = make_scores(models=["m"])
    first = scores[scores["id"].isin(scores["id"].unique()[:2])]
    for entry in entries(to_hub(first)):
        assert intervals(entry) == []
        assert "nan" not in entry.notes


@writes_results
def test_what_has_no_place_on_the_hub_needs_one(mini):
    scores = rmlab.score(mini, "longest")
    with pytest.raises(DataError, match="dataset="):
        to_hub(scores)
    read = entries(to_hub(scores, dataset="owner/name"))
    assert {entry.dataset_id for entry in read} == {"owner/name"}
    assert {entry.dataset_revision for entry in read} == {None}


def test_a_file_is_about_one_model(make_scores):
    with pytest.raises(DataError, match=r"2 models.*'a'"):
        to_hub(make_scores(models=["a", "b"]))


def test_an_older_client_is_told_which_version_it_needs(make_scores, monkeypatch):
    older = types.ModuleType("huggingface_hub")
    older.__version__ = "1.3.7"
    monkeypatch.setitem(sys.modules, "huggingface_hub", older)
    with pytest.raises(DataError, match=r"1\.3\.7.*>=1\.4"):
        to_hub(make_scores(models=["a"]))
