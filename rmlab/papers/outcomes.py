"""Real results that ship with rmlab: what published reward models said, item by item, without the texts."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.benchmarks.reward_bench import subset_of_item
from rmlab.records import shipped
from rmlab.tables import DataError, nearest

__all__ = ["results"]


def results(name: str) -> pd.DataFrame:
    """Results of real reward models: a table of pairs or of scores, with its source in `attrs["source"]`.

    - "reward-bench": pairs, 149 models on the 2,985 items of RewardBench. Outcomes only (no margins); 16 models lack
      math-prm, and their outcomes there are missing.
    - "math-prm": scores of nine models on RewardBench's 447 math-prm items, from another run than "reward-bench".

    - "smollm2-mini", "smollm2-rm-bench": scores of SmolLM2-135M-Instruct, a real language model of 135 million weights
      that nobody trained as a reward model: the log-probability of the answer, as a sum and as a mean over its tokens
      ("rm-bench": the domains named in its note).

    All functions that take pairs or scores take them: `rmlab.rank(results("reward-bench"))`. `attrs["source"]` holds
    source, commit, licence, date, link, the command that made the file, and a note. Raises DataError for another name.

    >>> pairs = results("reward-bench")
    >>> pairs["model"].nunique(), pairs["id"].nunique(), pairs.attrs["source"]["licence"]
    (149, 2985, 'MIT')
    """
    sources = pd.read_csv(shipped("results") / "sources.csv", dtype="str").set_index("name")
    if name not in sources.index:
        raise DataError(f"name: no results {name!r}; {nearest(str(name), list(sources.index))}")
    source = sources.loc[name]
    table = _READERS[source["holds"]](shipped("results") / source["file"])
    table.attrs = {"source": source.to_dict()}
    return table


def _pairs(path: Path) -> pd.DataFrame:
    """Pairs from two bits for each model and item: answered, and won."""
    with np.load(path) as file:
        models, n = file["models"], int(file["n_items"])
        won, answered = (np.unpackbits(file[name], axis=1, count=n).astype(bool) for name in ("won", "answered"))
    code = np.where(answered, np.where(won, tables.OUTCOMES.index("win"), tables.OUTCOMES.index("loss")), -1)
    ids = [str(item) for item in range(n)]
    frame = pd.DataFrame(
        {
            "model": np.repeat(models.astype(object), n),
            "benchmark": "reward-bench",
            "domain": np.tile([subset_of_item(item) for item in ids], len(models)),
            "id": np.tile(ids, len(models)),
            "chosen_slot": 0,
            "rejected_slot": 0,
            "outcome": pd.Categorical.from_codes(code.ravel(), dtype=tables.OUTCOME),
        }
    )
    return tables.check_pairs(frame)


def _scores(path: Path) -> pd.DataFrame:
    """Scores of one chosen and one rejected answer to each item."""
    with np.load(path) as file:
        models, ids = file["models"], [str(item) for item in file["ids"]]
        labels = list(tables.LABELS)
        score = np.stack([file[label] for label in labels], axis=-1).astype(np.float64)
    shape = (len(models), len(ids), len(labels))
    frame = pd.DataFrame(
        {
            "model": np.broadcast_to(models.astype(object)[:, None, None], shape).ravel(),
            "benchmark": "reward-bench",
            "domain": np.broadcast_to(np.array([subset_of_item(i) for i in ids], object)[:, None], shape).ravel(),
            "id": np.broadcast_to(np.array(ids, object)[:, None], shape).ravel(),
            "label": np.broadcast_to(np.array(labels, object), shape).ravel(),
            "slot": 0,
            "score": score.ravel(),
        }
    )
    return tables.check_scores(frame)


def _likelihoods(path: Path) -> pd.DataFrame:
    """Scores of one language model in two ways, from the sum of log-probabilities and the number of tokens."""
    found = pd.read_csv(path, dtype=dict.fromkeys(("benchmark", "domain", "id", "label", "subset", "style"), "str"))
    ways = {"sum": found["sum"], "mean": found["sum"] / found["tokens"]}
    rows = found.drop(columns=["sum", "tokens"])
    scores = [rows.assign(model=f"{_SMOLLM2} {way}", score=score) for way, score in ways.items()]
    return tables.check_scores(pd.concat(scores, ignore_index=True))


_SMOLLM2 = "SmolLM2-135M"
_READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    "pairs": _pairs,
    "scores": _scores,
    "likelihoods": _likelihoods,
}
