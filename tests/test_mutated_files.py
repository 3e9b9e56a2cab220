"""Damaged files by every reader: DataError, or a table whose every number stands in the file. Nothing else happens."""

import json
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from result_files import write_reward_bench, write_rm_bench

import rmlab
from rmlab.tables import DataError

PLANTED = [
    *rb"""1e400|NaN|Infinity|1_0|0x1f|1+2j|"\ud83d"|null|[]|{}|""|-0.0|2.5.1|1,5|"|'|;|[[1.5]]|PAR1""".split(b"|"),
    *b"\xff\xfe|\x00|\r|\t|\xed\xa0\x80|\xef\xbb\xbf".split(b"|"),
    *[b"1" * 400, b"[" * 3000, b'{"a":' * 3000],
]


@pytest.fixture(scope="module")
def whole_files(tmp_path_factory):
    """A reader and a valid file of each kind, and whether its numbers can be looked up in the text."""
    folder = tmp_path_factory.mktemp("whole")
    texts = rmlab.load("mini").groupby("domain").head(12).reset_index(drop=True)
    scores = rmlab.score(texts, ["longest", "random"])
    scores["score"] = np.random.default_rng(0).normal(size=len(scores)).round(6)
    scores.attrs = {}
    pairs = rmlab.pairs(scores)
    rm_bench = scores[scores["model"] == "random"].assign(benchmark="rm-bench")
    flat = pd.DataFrame({"domain": "alpacaeval-easy", "id": [str(i // 2) for i in range(20)], "model": "m"})
    flat = flat.assign(label=["chosen", "rejected"] * 10, slot=0, score=np.arange(20) / 7)
    rows = [{"uid": i, "out": {"w": [[i / 7]], "l": -i / 3}} for i in range(12)]
    own = pd.DataFrame({"prompt": list("abcd"), "chosen": "yes", "rejected": "no", "id": range(4)})
    made = []
    for suffix in ("csv", "jsonl", "parquet"):
        made.append((rmlab.read_scores, rmlab.write_scores(scores, folder / f"scores.{suffix}")))
        made.append((rmlab.read_pairs, rmlab.write_pairs(pairs, folder / f"pairs.{suffix}")))
    made.append((rmlab.read_scores, write_rm_bench(rm_bench, folder / "random.json")))
    made += [(rmlab.read_scores, write_reward_bench(flat, folder / f"v{v}.json", v)) for v in (1, 2)]
    (folder / "mapped.jsonl").write_text("\n".join(map(json.dumps, rows)))
    columns = {"id": "uid", "chosen_score": "out.w", "rejected_score": "out.l"}
    made.append((lambda path: rmlab.read_scores(path, columns=columns), folder / "mapped.jsonl"))
    own.to_csv(folder / "own.csv", index=False)
    own.to_json(folder / "own.jsonl", orient="records", lines=True)
    made += [(rmlab.load_pairs, folder / f"own.{suffix}") for suffix in ("csv", "jsonl")]
    return made


def damage(data, rng):
    """The bytes with one to three pieces of damage: changed, cut, doubled, or something planted."""
    for _ in range(int(rng.choice([1, 1, 2, 3]))):
        start, length = int(rng.integers(0, max(len(data), 1))), int(rng.choice([1, 2, 8, 60, 400]))
        planted, kind = PLANTED[int(rng.integers(len(PLANTED)))], int(rng.integers(8))
        hits = list(re.finditer(rb'-?\d+\.?\d*(e-?\d+)?|"[^"]{0,40}"', data))
        if kind == 0:
            data = data[:start] + bytes(rng.integers(0, 256, length, np.uint8)) + data[start + length :]
        elif kind == 1:
            data = data[:start]
        elif kind == 2:
            data = data[:start] + data[start + length :]
        elif kind == 3:
            data = data[:start] + data[start : start + length] + data[start:]
        elif hits:  # in the place of a number or of a text, where the file stays well-formed most often
            hit = hits[int(rng.integers(len(hits)))]
            data = data[: hit.start()] + planted + data[hit.end() :]
    return data


def numbers_in(text):
    return {float(number) for number in re.findall(r"-?\d+\.?\d*(?:[eE][-+]?\d+)?", text) if len(number) < 300}


@pytest.mark.parametrize("seed", [11, 12])
def test_damaged_files_are_refused_or_read_as_they_stand(whole_files, tmp_path, seed):
    rng, verdicts = np.random.default_rng(seed), []
    for number in range(240):
        read, original = whole_files[number % len(whole_files)]
        path = tmp_path / str(number) / original.name
        path.parent.mkdir()
        path.write_bytes(damage(original.read_bytes(), rng))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                table = read(path)
        except DataError as error:
            str(error).encode()
            verdicts.append("refused")
            continue
        verdicts.append("accepted")
        for column in {"score", "margin"} & {*table.columns} if path.suffix != ".parquet" else ():
            values = {*table[column].dropna().astype(float)}
            assert values <= numbers_in(path.read_text(encoding="utf-8-sig")), path
    assert pd.Series(verdicts).value_counts().min() > 20
