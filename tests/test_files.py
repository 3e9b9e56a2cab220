"""Files: written whole or not at all and never through a link; damaged ones are refused
or read as they stand.
"""

import errno
import os
import re
import warnings
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import strange_files
from test_own_files import PUBLIC

import rmlab
from rmlab import io, report
from rmlab.scoring import stores
from rmlab.store import Store
from rmlab.tables import DataError


@pytest.fixture(scope="module")
def scores():
    return rmlab.score(
        rmlab.load("mini").head(60), ["random", "longest"], progress=False
    )


# a function of each way to write a file for people, by the name of the file
WRITERS = {
    "figure.png": lambda path, scores: report.save_figure(plt.figure(), path),
    "report.html": lambda path, scores: report.write_report(scores, path),
    "scores.parquet": lambda path, scores: io.write_scores(scores, path),
    "pairs.jsonl": lambda path, scores: io.write_pairs(rmlab.pairs(scores), path),
    "longest.mini.csv": lambda path, scores: stores.write_tables(
        scores.query("model == 'longest'"), Store(path.parent)
    ),
}


def fail(*args, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.skipif(os.name == "nt", reason="needs links")
@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_the_old_file_and_a_link_in_the_way_is_replaced_not_followed(
    name, tmp_path, monkeypatch, scores
):
    (tmp_path / "out").mkdir()
    path, linked = tmp_path / "out" / name, tmp_path / "mine"
    linked.write_bytes(b"old")
    path.symlink_to(linked)
    for step in ((Path, "write_bytes"), (os, "replace")):
        with monkeypatch.context() as patch:
            patch.setattr(*step, fail)
            with pytest.raises(OSError, match="No space left on device") as caught:
                WRITERS[name](path, scores)
        assert (caught.value.errno, Path(caught.value.filename).name) == (
            errno.ENOSPC,
            name,
        )
        assert path.read_bytes() == b"old"
        assert [p.name for p in path.parent.iterdir()] == [name]
    WRITERS[name](path, scores)
    assert linked.read_bytes() == b"old"
    assert path.read_bytes() != b"old"
    assert not path.is_symlink()


@pytest.fixture(scope="module")
def whole_files(tmp_path_factory):
    """A reader and a valid file of each kind."""
    return strange_files.write_whole(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize(
    "n_files", [2_000, pytest.param(20_000, marks=pytest.mark.long)]
)
def test_damaged_files_are_refused_or_read_as_they_stand(
    whole_files, tmp_path, caplog, n_files
):
    """Rows without a field, lists in place of numbers, and deep nesting gave errors
    that named neither file nor row.
    """
    caplog.set_level("ERROR")
    rng, verdicts, raw_errors = np.random.default_rng(11), Counter(), []
    for number in range(n_files):
        read, original = whole_files[number % len(whole_files)]
        path = tmp_path / original.name
        if original.name == "sidecar.json":
            path = original.with_name("damaged.json")
        path.write_bytes(strange_files.damage(original.read_bytes(), rng))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                table = read(path)
        except (DataError, OSError) as error:
            str(error).encode()
            verdicts["refused"] += 1
            continue
        except Exception as error:
            raw_errors.append(
                f"{original.parent.name}/{path.name}, file {number}: {error!r:.200}"
            )
            continue
        verdicts["accepted"] += 1
        if read in (rmlab.read_scores, rmlab.read_pairs) and path.suffix != ".parquet":
            column = "score" if read is rmlab.read_scores else "margin"
            text = path.read_text(encoding="utf-8-sig")
            numbers = {
                float(x)
                for x in re.findall(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", text)
                if len(x) < 300
            }
            assert {*table[column].dropna().astype(float)} <= numbers, text
    assert not raw_errors
    assert min(verdicts.values()) > 0.08 * n_files


POOL = [
    {"prompt": p, "response": f"r{n}", "correct": n % 2, "model": m, "score": float(n)}
    for p in "pq"
    for m in "ab"
    for n in range(3)
]
CONTEXT = [
    {
        "id": str(n),
        "prompt": f"p{n}",
        "chosen": "a",
        "rejected": ["b", "c"],
        "system": "x",
        "tools": [{"n": 1}],
        "history": [["a", "b"]],
        "source": "s",
    }
    for n in range(3)
]
IN_MEMORY = [
    lambda rows: rmlab.load_preferences(rows, on_bad_rows="drop"),
    lambda rows: rmlab.load_preferences(pd.DataFrame(rows, dtype=object)),
    rmlab.load_pool,
    lambda rows: rmlab.rewards(pd.DataFrame(rows, dtype=object), "longest"),
]


@pytest.mark.parametrize("n_rows", [300, pytest.param(5_000, marks=pytest.mark.long)])
def test_strange_rows_in_memory_are_refused_or_read(n_rows, caplog):
    """Lists as ids, halves of surrogates and columns named twice gave raw errors."""
    caplog.set_level("CRITICAL")
    rng = np.random.default_rng(5)
    kinds = [*PUBLIC.values(), POOL, CONTEXT]
    raw_errors = []
    for number in range(n_rows):
        rows = strange_files.damage_rows(kinds[number % len(kinds)], rng)
        try:
            IN_MEMORY[int(rng.integers(len(IN_MEMORY)))](rows)
        except DataError as error:
            str(error).encode()
        except Exception as error:
            raw_errors.append(f"rows {number}: {error!r:.200}")
    assert not raw_errors
