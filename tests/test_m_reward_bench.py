"""M-RewardBench: files of languages, its numbers against plain loops, and the spread of
languages that was planted.
"""

import json
from collections import defaultdict

import numpy as np
import pandas as pd
import pytest

import rmlab
from rmlab.benchmarks import load
from rmlab.benchmarks.registry import benchmarks_by_name
from rmlab.benchmarks.m_reward_bench import _COUNTS
from rmlab.benchmarks.reward_bench import SECTIONS

LANGUAGES = {"arb_Arab": "ar", "deu_Latn": "de", "zho_Hans": "zh"}


def language_rows(language, seed):
    """Rows in the released layout: RewardBench's, with language, source and
    category.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for subset in _COUNTS:
        for number in range(6):
            row = {"id": len(rows), "prompt": f"{subset} {number} in {language}?"}
            row |= {"chosen": "c" * int(rng.integers(1, 6))}
            row |= {"rejected": "r" * int(rng.integers(1, 6))}
            row |= {"language": language, "chosen_model": "x", "rejected_model": "y"}
            rows.append(row | {"source": subset, "category": "Any"})
    return rows


@pytest.fixture
def folder(tmp_path):
    """Languages as Parquet, and files that are none of the benchmark's."""
    for seed, (name, language) in enumerate(LANGUAGES.items()):
        (tmp_path / name).mkdir()
        frame = pd.DataFrame(language_rows(language, seed))
        frame.to_parquet(tmp_path / name / "test-00000-of-00001.parquet")
        (tmp_path / name / "raw.json").write_text(json.dumps([{"id": "older"}]))
    (tmp_path / "translation").mkdir()
    (tmp_path / "translation" / "test-00000.json").write_text("[]")
    return tmp_path


def test_languages_are_read_and_counted_as_a_plain_loop_counts(folder):
    responses = load("m-reward-bench", path=folder)
    assert len(responses) == 2 * 3 * 6 * len(_COUNTS)
    scores = rmlab.score(responses, "longest")
    won = defaultdict(list)
    for seed, language in enumerate(LANGUAGES.values()):
        for row in language_rows(language, seed):
            is_won = len(row["chosen"]) > len(row["rejected"])
            won[language, row["source"]].append(is_won)

    sections = defaultdict(dict)
    for language in LANGUAGES.values():
        for section, subsets in SECTIONS.items():
            total = sum(_COUNTS[subset] for subset in subsets)
            shares = [np.mean(won[language, s]) * _COUNTS[s] / total for s in subsets]
            sections[section][language] = sum(shares)
    by_language = rmlab.accuracy(scores, by=["model", "language"])
    expected = pd.DataFrame(sections).mean(axis=1)
    assert by_language["language"].tolist() == list(LANGUAGES.values())
    assert by_language["accuracy"].tolist() == pytest.approx(expected.tolist())
    assert (by_language["low"] < by_language["accuracy"]).all()
    summary = rmlab.summary(scores).iloc[0]
    for section, values in sections.items():
        assert summary[section] == pytest.approx(np.mean(list(values.values())))
    assert summary["overall"] == pytest.approx(expected.mean())


def test_translations_of_a_task_are_one_cluster(folder):
    responses = load("m-reward-bench", path=folder)
    items = benchmarks_by_name()["m-reward-bench"].items(
        rmlab.pairs(rmlab.score(responses, "longest"))
    )
    assert len(np.unique(items.cluster)) == 6 * len(_COUNTS)

    released = [{"id": 1718, "source": "hep-go"}, {"id": 1554, "source": "hep-python"}]
    texts = {"prompt": "?", "chosen": "a", "rejected": "b", "language": "de"}
    rows = folder / "rows.json"
    rows.write_text(json.dumps([row | texts for row in released]))
    tasks = load("m-reward-bench", path=rows)["task"]
    assert set(tasks) == {"task 1554"}, "one problem in two programming languages"
