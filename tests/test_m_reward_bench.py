"""M-RewardBench: files of languages, and its numbers against plain loops."""

from collections import defaultdict

import numpy as np
import pandas as pd
import pytest
from benchmark_worlds import TRANSLATED, write

import rmlab
from rmlab.benchmarks import load
from rmlab.benchmarks.m_reward_bench import _COUNTS
from rmlab.benchmarks.registry import benchmarks_by_name
from rmlab.benchmarks.reward_bench import SECTIONS

LANGUAGES = {"arb_Arab": "ar", "deu_Latn": "de", "zho_Hans": "zh"}


def language_rows(language, seed):
    """Rows in the released layout: RewardBench's, with language and source."""
    rng = np.random.default_rng(seed)
    rows = []
    for subset in _COUNTS:
        for number in range(6):
            row = {"id": len(rows), "prompt": f"{subset} {number} in {language}?"}
            row |= {"chosen": "c" * int(rng.integers(1, 6)), "language": language}
            row |= {"rejected": "r" * int(rng.integers(1, 6)), "source": subset}
            rows.append(row)
    return rows


@pytest.fixture
def folder(tmp_path):
    """Languages as Parquet, and files that are none of the benchmark's."""
    for seed, (name, language) in enumerate(LANGUAGES.items()):
        write(tmp_path / name / "raw.json", [{"id": "older"}])
        frame = pd.DataFrame(language_rows(language, seed))
        frame.to_parquet(tmp_path / name / "test-00000-of-00001.parquet")
    write(tmp_path / "translation" / "test-00000.json", [])
    return tmp_path


def test_languages_are_read_and_counted_as_a_plain_loop_counts(folder):
    scores = rmlab.score(load("m-reward-bench", path=folder), "longest")
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
    assert by_language["accuracy"].tolist() == pytest.approx(expected.tolist())
    summary = rmlab.summary(scores).iloc[0]
    for section, values in sections.items():
        assert summary[section] == pytest.approx(np.mean(list(values.values())))
    assert summary["overall"] == pytest.approx(expected.mean())

    # Translations of a task are one cluster.
    items = benchmarks_by_name()["m-reward-bench"].items(rmlab.pairs(scores))
    assert len(np.unique(items.cluster)) == 6 * len(_COUNTS)


def test_a_problem_in_two_programming_languages_is_one_task(tmp_path):
    python = TRANSLATED | {"id": 1554, "source": "hep-python"}
    path = write(tmp_path / "rows.json", [TRANSLATED, python])
    assert set(load("m-reward-bench", path=path)["task"]) == {"task 1554"}
