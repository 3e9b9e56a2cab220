"""Real results that ship with rmlab: from the files they were published in to small
ones in data/results.

    python performance/results.py response_matrix.csv math_prm.jsonl

`response_matrix.csv`: 149 models by 2,985 items of RewardBench, 1, 0 or empty
(aims-foundations/torch_measure, commit a2ef142, MIT). `math_prm.jsonl`: 447 pairs with
the scores of nine models (kimsh0507/RewardMATH_official, commit cde06ab, MIT). The
results are read by `rmlab.papers.results`; data/results/sources.csv says where each
comes from.
"""

import json
import sys
from pathlib import Path

import numpy as np

import rmlab

FOLDER = Path(__file__).parents[1] / "data" / "results"


def outcomes(path):
    """The response matrix as bits, `answered` and `won`, models by items in the order
    of their ids.
    """
    pairs = rmlab.read_pairs(path)
    assert set(pairs["outcome"].dropna()) == {"win", "loss"}, "a tie needs a third bit"
    wide = pairs.assign(won=pairs["outcome"].astype("str")).pivot(
        index="model", columns="id", values="won"
    )
    wide = wide.loc[pairs["model"].unique(), sorted(wide.columns, key=int)]
    assert list(wide.columns) == [str(i) for i in range(wide.shape[1])], (
        "ids with a hole"
    )
    np.savez_compressed(
        FOLDER / "reward_bench.npz",
        models=wide.index.to_numpy("U"),
        n_items=wide.shape[1],
        won=np.packbits((wide == "win").to_numpy(), axis=1),
        answered=np.packbits(wide.isin(["win", "loss"]).to_numpy(), axis=1),
    )


def margins(path):
    """Scores of the right and the wrong solution, models by items, in single precision
    (they were made in half).
    """
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    models = list(rows[0]["scores"])
    scores = {
        label: np.array(
            [[row["scores"][model][label] for row in rows] for model in models],
            np.float32,
        )
        for label in ("chosen", "rejected")
    }
    np.savez_compressed(
        FOLDER / "math_prm.npz",
        models=np.array(models, "U"),
        ids=np.array([row["id"] for row in rows], np.int32),
        **scores,
    )


if __name__ == "__main__":
    outcomes(Path(sys.argv[1]))
    margins(Path(sys.argv[2]))
    for file in sorted(FOLDER.glob("*.npz")):
        print(f"{file.name}: {file.stat().st_size / 1000:.0f} kB")
