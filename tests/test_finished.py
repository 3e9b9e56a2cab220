"""Names of finished tables: no two names share a file, on any file system, and every name comes back."""

import re
import unicodedata
from pathlib import Path

import pandas as pd
import pytest
from fakes import Streaming
from hypothesis import example, given
from hypothesis import strategies as st

import rmlab
from rmlab.io.native import holds_pairs
from rmlab.scoring.stores import file_name
from rmlab.tables import DataError

CONFUSABLE = ["org/model", "org--model", "Org/Model", "gpt:4", "gpt_4", "caf\u00e9", "cafe\u0301"]
ALPHABET = "aAbB0/-_.%~: +é\u0301K\u212a\ud83d\0\n'\"<>|?*\\ßſ"
NAMES = st.text(st.sampled_from(ALPHABET), max_size=8) | st.text(max_size=8)


def seen_by_any_system(file):
    """What the least careful file system keeps of a name."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKD", file.casefold()).casefold()).rstrip(". ")


@given(st.tuples(NAMES, NAMES), st.tuples(NAMES, NAMES))
@example(("a-/b", "a--b"), ("a/-b", "a/b"))
@example(("con", ""), ("CON", "%"))
@example(("/a", "b"), ("--a", "b"))
@example(("a.b", "c"), ("a", "b.c"))
@example(("a", "b.pairs"), ("a", "b"))
@example(("a", "pairs"), ("a.pairs", ""))
def test_different_names_have_different_files_and_where_the_model_ends_is_never_in_doubt(first, second):
    (model, benchmark), (other_model, other_benchmark) = first, second
    names = {first, second, (other_model, benchmark), (model, other_benchmark), (benchmark, model)}
    files = {seen_by_any_system(file_name(*name, pairs=pairs)) for name in names for pairs in (False, True)}
    assert len(files) == 2 * len(names)


@given(NAMES, NAMES)
@example("-rf", "a.b")
@example("x" * 300, "pairs")
@example("Skywork/Skywork-Reward-V2-Qwen3-0.6B", "rm-bench")
def test_a_file_is_allowed_everywhere_and_says_what_it_holds(model, benchmark):
    for pairs in (False, True):
        file = file_name(model, benchmark, pairs=pairs)
        assert re.fullmatch(r"[A-Za-z0-9_~][A-Za-z0-9_.~-]*\.csv", file)
        assert len(file) < 200
        assert holds_pairs(Path(file)) == pairs


def test_confusable_names_and_benchmarks_are_read_back(tmp_path):
    responses, tables = rmlab.load("mini").head(12), []
    for number, name in enumerate([*CONFUSABLE, "other"]):
        scorer = Streaming(name)
        scorer.fingerprint = f"f{number}"
        frame = responses.assign(benchmark="mine.pairs") if name == "other" else responses
        tables.append(rmlab.score(frame, scorer, store=tmp_path))
    order = ["model", *rmlab.tables.KEY]
    scores = pd.concat(tables, ignore_index=True).sort_values(order, ignore_index=True)
    for source in (tmp_path, str(tmp_path / "*.csv"), sorted(tmp_path.glob("*.csv"))):
        pd.testing.assert_frame_equal(rmlab.read_scores(source).sort_values(order, ignore_index=True), scores)


def test_two_checkpoints_of_one_name_do_not_replace_one_another(zoo, tmp_path):
    """Two checkpoints of two runs, both in a folder called final."""
    responses, folders = rmlab.load("mini").head(6), [zoo(name="final", seed=seed) for seed in range(2)]
    first = rmlab.score(responses, folders[0], store=tmp_path, dtype="float32")
    with pytest.raises(DataError, match=r"'final'.*--name"):
        rmlab.score(responses, folders[1], store=tmp_path, dtype="float32")
    pd.testing.assert_frame_equal(rmlab.read_scores(tmp_path), first)
    rmlab.score(responses, folders[1], store=tmp_path, name="second")
    assert set(rmlab.read_scores(tmp_path)["model"]) == {"final", "second"}
