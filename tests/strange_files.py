"""Whole files of every kind that rmlab reads, each with its reader, and damage to their
bytes.
"""

import json
import re
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import rmlab
from rmlab import records
from rmlab.io import native
from rmlab.tables import DataError

_VALUES = [
    *rb"""NaN|Infinity|1e400|"\ud83d"|null|[]|{}|""|-0.0|[[1.5]]|{"a":1}|[null]|[{}]|true|[1,"x"]|"A"|-1""".split(
        b"|"
    ),
    *b'[{"role":"user"}]|[{"role":"user","content":2}]|{"scores":[1]}|"chosen"'.split(
        b"|"
    ),
    b"1" * 400,
]
_BYTES = [
    *rb"""1_0|0x1f|1+2j|2.5.1|1,5|"|'|;|PAR1""".split(b"|"),
    *b"\xff\xfe|\x00|\r|\t|\xed\xa0\x80|\xef\xbb\xbf".split(b"|"),
    *[b"[" * 3000, b'{"a":' * 3000, b"[" * 100_000 + b"]" * 100_000],
]
_PLACE = re.compile(
    rb'-?\d+\.?\d*(?:e-?\d+)?|"[^"]{0,40}"|\[[^]]{0,60}\]|(?<=: )\{[^}]*\}'
)
_FIELD = re.compile(rb'"\w+": ?(?:"[^"]*"|[\d.]+|\[[^]{]*\]|null), ?')
_QUESTIONS = ("What is 2 + 2?", "Name a colour.", "Who wrote Faust?", "Is ice cold?")


def damage(data, rng):
    """The bytes with one to three pieces of damage: changed, cut, doubled, a field
    less, or something planted.
    """
    for _ in range(int(rng.choice([1, 1, 2, 3]))):
        start = int(rng.integers(0, max(len(data), 1)))
        length = int(rng.choice([1, 2, 8, 60, 400]))
        stop = start + length
        kind = int(rng.integers(14))
        if kind < 4:
            noise = bytes(rng.integers(0, 256, length, np.uint8)) + data[stop:]
            data = (
                data[:start]
                + [noise, b"", data[stop:], data[start:stop] + data[start:]][kind]
            )
            continue
        pattern, choices = (
            (_FIELD, [b""]) if kind < 7 else (_PLACE, _BYTES if kind == 7 else _VALUES)
        )
        places = list(pattern.finditer(data))
        if places:
            place = places[int(rng.integers(len(places)))]
            data = (
                data[: place.start()]
                + choices[int(rng.integers(len(choices)))]
                + data[place.end() :]
            )
    return data


def _own_rows(n, question):
    """The rows of one prompt in each layout of people's own files."""
    turns = {}
    for label in ("chosen", "rejected"):
        answer = {"role": "assistant", "content": label}
        turns[label] = [{"role": "user", "content": question}, answer]
    item = {"id": n, "prompt": question}
    pair = {"chosen": "yes", "rejected": ["no", "never"]}
    scores = {"chosen_score": 2.5, "rejected_score": [n, 1], "source": "book"}
    sides = {"response_a": "yes", "response_b": "no", "score_a": 1, "score_b": n}
    lists = {"responses": ["yes", "no"], "labels": [1, 0], "scores": [1.5, n]}
    answer = {"prompt": question, "model": "m"}
    return {
        "pairs": [item | pair | scores],
        "scored": [item | pair | {"scores": {"chosen": n, "rejected": [0.5, 1]}}],
        "turns": [turns | {"chosen_score": n, "rejected_score": 0.5}],
        "sides": [{"question": question, "winner": "ab"[n % 2]} | sides],
        "answers": [
            answer | {"response": "yes", "label": 1, "score": n + 0.5},
            answer | {"response": "no", "label": 0, "score": n},
        ],
        "lists": [item | lists],
        "counted": [{"id": n, "scores": [2.5, n, 1], "num_correct": 2}],
    }


def _result_rows():
    """A result file of each benchmark's own runner."""
    ids = range(3)
    judged = {"source": "livebench-math", "question": "q", "label": "A>B"}
    judged["judgments"] = [
        {"decision": "A>B", "judgment": {"scores": [1, 2]}},
        {"decision": "B>A"},
    ]
    nine = {"domain": "chat", "score_chosen": [1, 2.5, 3], "score_rejected": [0, 1, 2]}
    four = {"subset": "Focus", "scores": [[3.5], [2], [1], [0]], "num_correct": 1}
    return {
        "rm-bench": [nine | {"id": n} for n in ids],
        "reward-bench": {
            "id": [1, 2, 3],
            "subset": ["refusals-dangerous", "donotanswer", "hep-go"],
            "scores_chosen": [1.5, [2.0], 3],
            "scores_rejected": [0, 0.5, 4],
            "model": "m",
        },
        "reward-bench-2": [four | {"id": n} for n in ids],
        "judgebench": [judged | {"pair_id": n} for n in ids],
    }


def _text_rows():
    """A file of texts of each benchmark."""
    texts = {"prompt": "Why?", "domain": "chat"}
    judged = {"source": "livebench-math", "question": "q", "label": "A>B"}
    rmb = {"category_path": "Pairwise_set/Helpfulness/Chat"}
    rmb["conversation_input"] = [{"role": "user", "content": "q"}]
    row_of = {
        "rm-bench": texts | {"chosen": [*"abc"], "rejected": [*"def"]},
        "reward-bench": texts
        | {"chosen": "a", "rejected": "b", "subset": "donotanswer"},
        "reward-bench-2": texts
        | {"chosen": ["a"], "rejected": [*"bcd"], "subset": "Focus"},
        "rmb": rmb | {"chosen": {"answer": "a"}, "reject": {"answer": "b"}},
        "judgebench": judged | {"response_A": "a", "response_B": "b"},
    }
    return {
        name: [row | {"id": n, "pair_uid": n, "pair_id": n} for n in range(3)]
        for name, row in row_of.items()
    }


def _read_verdicts(path):
    """Comparisons whose margins are sums of the file's numbers."""
    return rmlab.read_pairs(path)


def _read_as_parquet(path):
    """The rows of a file as a Parquet file has them."""
    file = path.with_suffix(".parquet")
    try:
        pq.write_table(pa.Table.from_pylist(records.read_rows(path)), file)
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise DataError(f"{path}: no rows for Parquet") from error
    return rmlab.read_scores(file)


def _read_beside(path):
    """A table of scores with a file as its sidecar."""
    table = path.with_name("beside.csv")
    table.with_name(table.name + native.SIDECAR).write_bytes(path.read_bytes())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*provenance is left out")
        return rmlab.read_scores(table)


def _write_rows(path, content):
    path.parent.mkdir(exist_ok=True)
    lines = content if path.suffix == ".jsonl" else [content]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def write_whole(folder):
    """A reader and a valid file of each kind."""
    texts = rmlab.load("mini").groupby("domain").head(6).reset_index(drop=True)
    scores = rmlab.score(texts, ["longest", "random"])
    scores["score"] = np.random.default_rng(0).normal(size=len(scores)).round(6)
    scores["source"] = "book"
    beside = rmlab.write_scores(scores.head(6), folder / "beside.csv")
    sidecar = folder / "sidecar.json"
    beside.with_name(beside.name + native.SIDECAR).rename(sidecar)
    files = [(_read_beside, sidecar)]
    scores.attrs = {}
    for suffix in ("csv", "jsonl", "parquet"):
        path = rmlab.write_scores(scores, folder / f"scores.{suffix}")
        files.append((rmlab.read_scores, path))
        path = rmlab.write_pairs(rmlab.pairs(scores), folder / f"pairs.{suffix}")
        files.append((rmlab.read_pairs, path))
    cells = rmlab.write_scores(scores.head(12), folder / "cells.jsonl")
    files.append((_read_as_parquet, cells))

    rows_of = {}
    for n, question in enumerate(_QUESTIONS):
        for layout, rows in _own_rows(n, question).items():
            rows_of.setdefault(layout, []).extend(rows)
    for layout, rows in rows_of.items():
        path = _write_rows(folder / "own" / f"{layout}.jsonl", rows)
        files.append((rmlab.read_scores, path))
        if layout != "counted":
            files.append((rmlab.load_preferences, path))
    for benchmark, content in _result_rows().items():
        read = _read_verdicts if benchmark == "judgebench" else rmlab.read_scores
        path = _write_rows(folder / "results" / f"{benchmark}.json", content)
        files.append((read, path))
    for benchmark, rows in _text_rows().items():
        path = _write_rows(folder / "texts" / f"{benchmark}.json", rows)
        files.append((lambda path, name=benchmark: rmlab.load(name, path=path), path))
    return files


_CELLS = [
    *(None, np.nan, pd.NA, pd.NaT, "", 0, -1, 1.5, True, 10**400, float("inf")),
    *([], {}, ["x"], [["x"]], {"a": 1}, [None], {None: 1}, ("a",), {1, 2}, b"x"),
    *("\ud83d", "[", '["x"]', "{'a': 1}", "1e400", "nan", "a" * 300, object(), 1 + 2j),
    *([{"role": "user"}], [{"role": "user", "content": 2}], np.array([1, 2])),
    np.array([{"role": "user", "content": "x"}], object),
]
_FIELDS = "id model prompt response label winner score chosen rejected rating rank"
_FIELDS += " system history tools images family domain benchmark scores labels"
_FIELDS = f"{_FIELDS} responses slot steps num_correct model_a".split()


def nest(depth):
    """A text in lists."""
    cell = "a"
    for _ in range(depth):
        cell = [cell]
    return cell


def damage_rows(rows, rng):
    """Rows in memory with one to three strange cells, columns or missing fields."""
    cells = [*_CELLS, nest(300), nest(2_000)]
    rows = [dict(row) for row in rows]
    for _ in range(int(rng.integers(1, 4))):
        row = rows[int(rng.integers(len(rows)))]
        if not row:
            continue
        name = list(row)[int(rng.integers(len(row)))]
        cell = cells[int(rng.integers(len(cells)))]
        kind = int(rng.integers(6))
        if kind < 3:
            row[name] = cell
        elif kind == 3:
            row.pop(name)
        else:
            new = name if kind == 5 else _FIELDS[int(rng.integers(len(_FIELDS)))]
            for other in rows:
                other[new] = cell
    return rows
