"""Files of every kind that rmlab reads, damaged in many ways, and what a reader may do with them.

A reader may raise DataError, or give a table whose every number stands in the file as a number. Numbers are found here
without rmlab: by Python's JSON, by the csv module and a strict pattern, and for Parquet in the file before the damage.
"""

import csv
import io
import json
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import rmlab
from rmlab.tables import DataError

NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?\s*", re.ASCII | re.IGNORECASE)

PLANTED = [
    b"1" * 400, b"9" * 5000, b"1e400", b"-1e400", b"NaN", b"Infinity", b"1_0", "\uff11\uff12".encode(), b"0x1f",
    b"1+2j", b"[" * 3000, b'{"a":' * 3000, b"[" * 60 + b"]" * 60, b'"\\ud83d"', b"null", b"true", b"[]", b"{}", b'""',
    b"-0.0", b"1.7e308", b"-1.7e308", b"2.5.1", b"1,5", b"12 34", b"\xff\xfe", b"\x00", b"\r", b'"', b"'", b";", b"\t",
    b"[[1.5]]", b"2024-01-01", b"1e-400", b"9007199254740993", b"\xed\xa0\x80", b"PAR1", b"\xef\xbb\xbf",
]  # fmt: skip


def own_pairs(path):
    return rmlab.load_pairs(path)


def mapped(path):
    return rmlab.read_scores(path, columns={"id": "uid", "chosen_score": "out.w", "rejected_score": "out.l"})


def listed(path):
    return rmlab.read_scores(path, columns={"id": "uid", "scores": "rewards"})


def by_winner(path):
    return rmlab.load_pairs(path, winner="winner")


def rm_bench(path):
    return rmlab.load("rm-bench", path=path)


def joined(path):
    return rmlab.io.join(TEXTS, path, model="m")


def missing(path):
    return rmlab.read_scores(path, allow_missing=True)


TEXTS = rmlab.load("mini").groupby("domain").head(12).reset_index(drop=True)


def seeds(folder: Path) -> list[tuple]:
    """(reader, valid file, number columns) of every reader and every kind of file."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    scores = rmlab.score(TEXTS, ["longest", "random"])
    scores["score"] = rng.normal(size=len(scores)).round(6)
    scores.attrs = {}
    pairs = rmlab.pairs(scores)
    one = scores[scores["model"] == "random"].assign(benchmark="rm-bench")
    flat = pd.DataFrame(
        {"benchmark": "reward-bench", "domain": "alpacaeval-easy", "id": [str(i // 2) for i in range(20)]}
    ).assign(label=["chosen", "rejected"] * 10, slot=0, model="m", score=rng.normal(size=20).round(6))
    made = []

    def add(reader, name, write, column=("score",)):
        path = folder / name
        write(path)
        made.append((reader, path, column))

    for suffix in ("csv", "jsonl", "parquet"):
        add(rmlab.read_scores, f"scores.{suffix}", lambda p: rmlab.write_scores(scores, p))
        add(missing, f"blank.{suffix}", lambda p: rmlab.write_scores(scores, p))
        add(rmlab.read_pairs, f"pairs.{suffix}", lambda p: rmlab.write_pairs(pairs, p), ("margin",))
    add(rmlab.read_scores, "random.json", lambda p: rmlab.write_scores(one, p, format="rm-bench"))
    for kind in ("reward-bench", "reward-bench-2"):
        add(rmlab.read_scores, f"{kind}.json", lambda p, k=kind: rmlab.write_scores(flat, p, format=k))
    add(rmlab.read_pairs, "matrix.csv", lambda p: rmlab.write_pairs(rmlab.pairs(flat), p, format="response-matrix"), ())
    rows = [{"uid": i, "out": {"w": [[i / 7]], "l": -i / 3}, "rewards": [i / 9, 0.25, -1.5]} for i in range(12)]
    for reader in (mapped, listed):
        add(reader, f"{reader.__name__}.jsonl", lambda p: p.write_text("\n".join(map(json.dumps, rows))))
    plain = scores[scores["model"] == "random"][["domain", "id", "label", "score"]]
    add(joined, "plain.csv", lambda p: plain.to_csv(p, index=False))
    own = pd.DataFrame({"prompt": list("abcd"), "chosen": "yes", "rejected": "no", "id": range(4)})
    add(own_pairs, "own.csv", lambda p: own.to_csv(p, index=False), ())
    add(own_pairs, "own.parquet", lambda p: own.to_parquet(p), ())
    add(own_pairs, "own.jsonl", lambda p: own.to_json(p, orient="records", lines=True), ())
    sides = own.rename(columns={"chosen": "response_a", "rejected": "response_b"}).assign(winner="a")
    add(by_winner, "sides.csv", lambda p: sides.to_csv(p, index=False, sep=";"), ())
    whole = (Path(__file__).parents[1] / "data" / "mini" / "chat_filtered.json").read_bytes()
    add(rm_bench, "chat_filtered.json", lambda p: p.write_bytes(whole), ())
    return made


def mutate(data: bytes, rng: np.random.Generator) -> bytes:
    """The bytes with one to three pieces of damage."""
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        start = int(rng.integers(0, max(len(data), 1)))
        length = int(rng.choice([1, 1, 2, 8, 60, 400]))
        planted = PLANTED[int(rng.integers(len(PLANTED)))]
        kind = int(rng.integers(9))
        if kind == 0:
            data = data[:start] + bytes(rng.integers(0, 256, length, np.uint8)) + data[start + length :]
        elif kind == 1:
            data = data[:start]
        elif kind == 2:
            data = data[:start] + data[start + length :]
        elif kind == 3:
            data = data[:start] + data[start : start + length] + data[start:]
        elif kind == 4:
            data = data[:start] + planted + data[start:]
        else:  # in the place of a number or of a text, where the file stays well-formed most often
            found = list(re.finditer(rb'-?\d+\.?\d*(e-?\d+)?|"[^"]{0,40}"', data))
            if found:
                hit = found[int(rng.integers(len(found)))]
                data = data[: hit.start()] + planted + data[hit.end() :]
    return data


def numbers_in(path: Path, original: Path) -> set[float]:
    """All numbers that stand in a file, as floats."""
    if path.suffix == ".parquet":
        frame = pd.read_parquet(original)
        return {float(x) for name in frame.select_dtypes("number") for x in frame[name].dropna()}
    text = path.read_bytes().decode("utf-8-sig")
    if path.suffix == ".csv":
        cells = {c for mark in ",;\t" for row in csv.reader(io.StringIO(text, newline=""), delimiter=mark) for c in row}
        cells |= {cell.replace("'", "", 1) for cell in cells}
        return {float(cell) for cell in cells if NUMBER.fullmatch(cell)}
    try:
        content = json.loads(text)
    except ValueError:
        content = [json.loads(line) for line in text.split("\n") if line.strip()]
    return set(_numbers(content))


def _numbers(value):
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _numbers(part)
    elif isinstance(value, int | float) or (isinstance(value, str) and NUMBER.fullmatch(value)):
        try:
            yield float(value)
        except OverflowError:  # 400 digits in a field that is not read
            return


def verdict(reader, path: Path, original: Path, columns: tuple[str, ...]) -> str:
    """ "refused", "accepted", or what is wrong: another error, or a number that does not stand in the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            frame = reader(path)
    except DataError as error:
        str(error).encode()
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    for column in columns:
        found = {float(x) for x in frame[column].dropna()}
        strange = found - numbers_in(path, original)
        if strange:
            return f"{column} {sorted(strange)[0]!r} does not stand in the file"
    for column in frame.columns:
        for value in frame[column].unique() if frame[column].dtype == "str" else ():
            str(value).encode()
    return "accepted"


def run(count: int, folder: Path, seed: int = 0) -> pd.DataFrame:
    """Read so many damaged files: one row each with reader, file and verdict. What is wrong stays in `folder`."""
    made, rng, rows = seeds(folder / "whole"), np.random.default_rng(seed), []
    for number in range(count):
        reader, original, columns = made[number % len(made)]
        path = folder / f"{number}" / original.name
        path.parent.mkdir()
        path.write_bytes(mutate(original.read_bytes(), rng))
        said = verdict(reader, path, original, columns)
        rows.append((reader.__name__, original.name, said, str(path)))
        if said in ("refused", "accepted"):
            path.unlink()
            path.parent.rmdir()
    return pd.DataFrame(rows, columns=["reader", "file", "verdict", "path"])
