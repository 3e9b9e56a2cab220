"""Damaged files by every reader: DataError, or a table whose every number stands in the file. Nothing else happens."""

import json
import re
import warnings
from collections import Counter

import numpy as np
import pandas as pd
import pytest

import rmlab
from rmlab.tables import DataError

PLANTED = [
    *rb"""1e400|NaN|Infinity|1_0|0x1f|1+2j|"\ud83d"|null|[]|{}|""|-0.0|2.5.1|1,5|"|'|;|[[1.5]]|PAR1""".split(b"|"),
    *b"\xff\xfe|\x00|\r|\t|\xed\xa0\x80|\xef\xbb\xbf".split(b"|"),
    *[b"1" * 400, b"[" * 3000, b'{"a":' * 3000],
]


@pytest.fixture(scope="module")
def whole_files(tmp_path_factory):
    """A reader and a valid file of each kind."""
    folder = tmp_path_factory.mktemp("whole")
    texts = rmlab.load("mini").groupby("domain").head(12).reset_index(drop=True)
    scores = rmlab.score(texts, ["longest", "random"])
    scores["score"] = np.random.default_rng(0).normal(size=len(scores)).round(6)
    scores.attrs = {}
    files = []
    for suffix in ("csv", "jsonl", "parquet"):
        files.append((rmlab.read_scores, rmlab.write_scores(scores, folder / f"scores.{suffix}")))
        files.append((rmlab.read_pairs, rmlab.write_pairs(rmlab.pairs(scores), folder / f"pairs.{suffix}")))
    numbers, ids = [[i / 7, -i / 3, i / 9] for i in range(12)], [*map(str, range(12))]
    sides = [{"domain": "chat", "score_chosen": n, "score_rejected": n[::-1]} for n in numbers]
    rows = {"random.json": [{"id": i} | side for i, side in enumerate(sides)]}
    rows["v2.json"] = {"id": ids, "subset": ["Math"] * 12, "model": "m", "scores": numbers, "num_correct": [1] * 12}
    for name, content in rows.items():
        (folder / name).write_text(json.dumps(content))
        files.append((rmlab.read_scores, folder / name))
    pd.DataFrame({"prompt": list("abcd"), "chosen": "yes", "rejected": "no"}).to_csv(folder / "own.csv", index=False)
    return [*files, (rmlab.load_pairs, folder / "own.csv")]


def damage(data, rng):
    """The bytes with one to three pieces of damage: changed, cut, doubled, or something planted."""
    for _ in range(int(rng.choice([1, 1, 2, 3]))):
        start, length = int(rng.integers(0, max(len(data), 1))), int(rng.choice([1, 2, 8, 60, 400]))
        planted, kind = PLANTED[int(rng.integers(len(PLANTED)))], int(rng.integers(8))
        hits = list(re.finditer(rb'-?\d+\.?\d*(e-?\d+)?|"[^"]{0,40}"', data))
        stop = start + length
        if kind < 4:
            noise = bytes(rng.integers(0, 256, length, np.uint8)) + data[stop:]
            data = data[:start] + [noise, b"", data[stop:], data[start:stop] + data[start:]][kind]
        elif hits:  # in the place of a number or of a text, where the file stays well-formed most often
            hit = hits[int(rng.integers(len(hits)))]
            data = data[: hit.start()] + planted + data[hit.end() :]
    return data


@pytest.mark.parametrize("n_files", [400, pytest.param(20_000, marks=pytest.mark.long)])
def test_damaged_files_are_refused_or_read_as_they_stand(whole_files, tmp_path, n_files):
    rng, verdicts = np.random.default_rng(11), Counter()
    for number in range(n_files):
        read, original = whole_files[number % len(whole_files)]
        path = tmp_path / original.name
        path.write_bytes(damage(original.read_bytes(), rng))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                table = read(path)
        except DataError as error:
            str(error).encode()
            verdicts["refused"] += 1
            continue
        verdicts["accepted"] += 1
        for column in {"score", "margin"} & {*table.columns} if path.suffix != ".parquet" else ():
            text = path.read_text(encoding="utf-8-sig")
            numbers = {float(x) for x in re.findall(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", text) if len(x) < 300}
            assert {*table[column].dropna().astype(float)} <= numbers, text
    assert min(verdicts.values()) > 0.08 * n_files
