"""Results of real models that ship with rmlab: scores and comparisons item by item,
without the texts.
"""

from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.benchmarks.reward_bench import subset_of_item
from rmlab.records import shipped
from rmlab.tables import DataError, nearest

_SMOLLM2 = "SmolLM2-135M"


def results(name: str) -> pd.DataFrame:
    """Read results of real models: a table of pairs or of scores.

    - "reward-bench": pairs, 149 models on the 2,985 items of RewardBench. Outcomes only
      (no margins); 16 models lack math-prm, and their outcomes there are missing.
    - "math-prm": scores of nine models on RewardBench's 447 math-prm items, from
      another run than "reward-bench".

    The others are of SmolLM2-135M-Instruct, a real language model that nobody trained
    as a reward model:

    - "smollm2-mini", "smollm2-rm-bench", "smollm2-math": scores, the log-probability of
      the answer as a sum and as a mean over its tokens. "rm-bench": all answers of
      chat, code and safety; "math": RM-Bench's concise answers of mathematics, one
      right and one wrong a prompt.
    - "smollm2-letters": pairs, for a sample of RM-Bench's prompts. The model reads two
      answers and names the better one, A or B: in both orders (the margin is the
      log-odds of the mean probability), with the right answer as A, and with the right
      answer as B.
    - "smollm2-judge": pairs as `rmlab.prefer` gives them with a judge (`rmlab.judge`,
      mode "logprob"): plain answers of mini in chat, with `verdict` and the vote in
      each order.
    - "smollm2-doctor", "smollm2-tokens": results of `rmlab.doctor` and
      `rmlab.widgets.token_rewards` in the lessons.

    And one of toys, a row per training of a tiny reward model (`train` in
    notebooks/course/course.py):

    - "toy-dial": dial (the annotators' preference for Markdown and length), seed, easy,
      normal, hard, gap.

    Parameters
    ----------
    name : str
        One of the names above.

    Returns
    -------
    DataFrame
        The table. `attrs["source"]` holds source, commit, licence, date, link, the
        command that made the file, and a note.

    Raises
    ------
    DataError
        For another name.

    Examples
    --------
    >>> pairs = results("reward-bench")
    >>> pairs["model"].nunique(), pairs["id"].nunique(), pairs.attrs["source"]["licence"]
    (149, 2985, 'MIT')
    """
    sources = pd.read_csv(shipped("results") / "sources.csv", dtype="str").set_index(
        "name"
    )
    if name not in sources.index:
        raise DataError(
            f"name: no results {name!r}; {nearest(str(name), list(sources.index))}"
        )
    source = {str(column): str(value) for column, value in sources.loc[name].items()}
    table = _READERS[source["holds"]](shipped("results") / source["file"])
    table.attrs = {"source": source}
    return table


def _read_pairs(path: Path) -> pd.DataFrame:
    """Pairs from two bits for each model and item: answered, and won."""
    with np.load(path) as file:
        n = int(file["n_items"])
        pairs = _reward_bench_rows(model=file["models"], id=range(n))
        won, answered = (
            np.unpackbits(file[name], axis=1, count=n).ravel()
            for name in ("won", "answered")
        )
    outcome = pd.Series(np.where(won, "win", "loss"), dtype=tables.OUTCOME).where(
        answered == 1
    )
    return tables.check_pairs(
        pairs.assign(chosen_slot=0, rejected_slot=0, outcome=outcome)
    )


def _read_scores(path: Path) -> pd.DataFrame:
    """Scores of one chosen and one rejected answer to each item."""
    with np.load(path) as file:
        scores = _reward_bench_rows(
            model=file["models"], id=file["ids"], label=tables.LABELS
        )
        values = np.stack([file[label] for label in tables.LABELS], axis=-1).astype(
            np.float64
        )
    return tables.check_scores(scores.assign(slot=0, score=values.ravel()))


def _reward_bench_rows(**levels: Collection[object]) -> pd.DataFrame:
    """All combinations of models, items and labels, with the subset of the item as its
    domain.
    """
    names = [
        np.array(list(map(str, values)), dtype=object) for values in levels.values()
    ]
    rows = pd.MultiIndex.from_product(names, names=list(levels)).to_frame(index=False)
    domain = {item: subset_of_item(item) for item in map(str, levels["id"])}
    return rows.assign(benchmark="reward-bench", domain=rows["id"].map(domain))


def _read_likelihoods(path: Path) -> pd.DataFrame:
    """Scores of one language model in two ways, from the sum of log-probabilities and
    the number of tokens.
    """
    likelihoods = _read_csv(path)
    rows = likelihoods.drop(columns=["sum", "tokens"])
    by_sum = rows.assign(model=f"{_SMOLLM2} sum", score=likelihoods["sum"])
    by_mean = rows.assign(
        model=f"{_SMOLLM2} mean", score=likelihoods["sum"] / likelihoods["tokens"]
    )
    return tables.check_scores(pd.concat([by_sum, by_mean], ignore_index=True))


def _read_letters(path: Path) -> pd.DataFrame:
    """Pairs of one model that answers A or B: by the mean of both orders, and each
    order as a model of its own.
    """
    from scipy.special import expit, logit

    log_odds = _read_csv(path)
    rows = log_odds.drop(columns=["right_first", "right_last"])
    first, last = log_odds["right_first"].to_numpy(), log_odds["right_last"].to_numpy()
    margins = {
        "": logit((expit(first) + expit(last)) / 2),
        ", right one is A": first,
        ", right one is B": last,
    }
    orders = [
        rows.assign(model=f"{_SMOLLM2} letters{order}", margin=margin)
        for order, margin in margins.items()
    ]
    return tables.check_pairs(pd.concat(orders, ignore_index=True))


def _read_csv(path: Path) -> pd.DataFrame:
    text = (
        "benchmark",
        "domain",
        "id",
        "subset",
        "label",
        "style",
        "chosen_style",
        "rejected_style",
    )
    return pd.read_csv(path, dtype=dict.fromkeys(text, "str"))


_READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    "pairs": _read_pairs,
    "scores": _read_scores,
    "likelihoods": _read_likelihoods,
    "letters": _read_letters,
    "verdicts": lambda path: tables.check_pairs(_read_csv(path)),
    "other": lambda path: pd.read_csv(
        path, keep_default_na=False, na_values={"change": [""]}
    ),
}
