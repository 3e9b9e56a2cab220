"""Results of real models that ship with rmlab, item by item and without the texts."""

from collections.abc import Callable, Collection, Hashable
from pathlib import Path

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.benchmarks.reward_bench import subset_of_item
from rmlab.records import shipped
from rmlab.tables import DataError, nearest

_SMOLLM2 = "SmolLM2-135M"
_STRINGS = [
    "benchmark",
    "domain",
    "id",
    "subset",
    "label",
    "style",
    "chosen_style",
    "rejected_style",
]


def results(name: str) -> pd.DataFrame:
    """Read results of real models: a table of pairs or of scores.

    - "reward-bench": pairs, 149 models on the 2,985 items of RewardBench. Outcomes only
      (no margins); 16 models lack math-prm, and their outcomes there are missing.
    - "math-prm": scores of nine models on RewardBench's 447 math-prm items, from
      another run than "reward-bench".
    - "code-reward-bench": pairs, 51 models on the 8,866 items of Themis-CodeRewardBench
      with their margins, `language` and `source`; missing where a judge's reply could
      not be read.

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
    - "smollm2-criteria": the same judge with three system messages, each a model, on
      answers to six questions in three styles.
    - "smollm2-doctor", "smollm2-tokens": results of `rmlab.doctor` and
      `rmlab.widgets.token_rewards` in the lessons.

    Two are of real pools, 500 problems of GSM8K with 32 candidates each, by one policy
    (StrictPRMBench, CC-BY-4.0); `problem` and `candidate` join them:

    - "best-of-32-candidates": answer (extracted), characters, tokens, correct.
    - "best-of-32-steps": model and `steps`, a list of scores, by seven reward and
      process reward models (see `rmlab.metrics.combine_steps`).

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
    >>> pairs["model"].nunique(), pairs["id"].nunique()
    (149, 2985)
    >>> pairs.attrs["source"]["licence"]
    'MIT'
    """
    folder = shipped("results")
    sources = pd.read_csv(folder / "sources.csv", dtype="str").set_index("name")
    if name not in sources.index:
        names = nearest(str(name), list(sources.index))
        raise DataError(f"name: no results {name!r}", names)

    source = {str(column): str(value) for column, value in sources.loc[name].items()}
    read = _READERS[source["holds"]]
    table = read(folder / source["file"])
    table.attrs = {"source": source}
    return table


def _read_pairs(path: Path) -> pd.DataFrame:
    """Pairs from two bits for each model and item: answered, and won."""
    with np.load(path) as file:
        n_items = int(file["n_items"])
        pairs = _reward_bench_rows(model=file["models"], id=range(n_items))
        won = np.unpackbits(file["won"], axis=1, count=n_items)
        answered = np.unpackbits(file["answered"], axis=1, count=n_items)

    outcome = np.where(won.ravel(), "win", "loss")
    has_outcome = answered.ravel() == 1
    pairs["chosen_slot"] = 0
    pairs["rejected_slot"] = 0
    pairs["outcome"] = pd.Series(outcome, dtype=tables.OUTCOME).where(has_outcome)
    return tables.check_pairs(pairs)


def _read_scores(path: Path) -> pd.DataFrame:
    """Scores of one chosen and one rejected answer to each item."""
    with np.load(path) as file:
        scores = _reward_bench_rows(
            model=file["models"], id=file["ids"], label=tables.LABELS
        )
        by_label = np.stack([file["chosen"], file["rejected"]], axis=-1)

    scores["slot"] = 0
    scores["score"] = by_label.ravel().astype("float64")
    return tables.check_scores(scores)


def _read_margins(path: Path) -> pd.DataFrame:
    """Pairs from a margin for each model and item.

    The texts are not there, so that an item is a cluster of its own.
    """
    pairs = pd.read_parquet(path)
    margin = pairs["margin"].to_numpy("float64")
    pairs = pairs.assign(
        benchmark="code-reward-bench",
        subset=pairs["domain"],
        question=pairs["id"],
        chosen_slot=0,
        rejected_slot=0,
        margin=margin,
        outcome=tables.outcome(margin),
    )
    return tables.check_pairs(pairs)


def _reward_bench_rows(**levels: Collection[Hashable]) -> pd.DataFrame:
    """All combinations of models, items and labels.

    The subset of an item is its domain.
    """
    index = pd.MultiIndex.from_product([*levels.values()], names=[*levels])
    rows = index.to_frame(index=False).astype("str")
    domains = {name: subset_of_item(name) for name in rows["id"].unique()}
    rows["benchmark"] = "reward-bench"
    rows["domain"] = rows["id"].map(domains)
    return rows


def _read_likelihoods(path: Path) -> pd.DataFrame:
    """Scores of one language model: sum and mean of the log-probabilities of tokens."""
    likelihoods = _read_csv(path)
    rows = likelihoods.drop(columns=["sum", "tokens"])
    log_probability = likelihoods["sum"]
    per_token = log_probability / likelihoods["tokens"]
    by_sum = rows.assign(model=f"{_SMOLLM2} sum", score=log_probability)
    by_mean = rows.assign(model=f"{_SMOLLM2} mean", score=per_token)
    scores = pd.concat([by_sum, by_mean], ignore_index=True)
    return tables.check_scores(scores)


def _read_letters(path: Path) -> pd.DataFrame:
    """Pairs of one model that answers A or B.

    The mean of both orders, and each order, are models of their own.
    """
    from scipy.special import expit, logit

    log_odds = _read_csv(path)
    rows = log_odds.drop(columns=["right_first", "right_last"])
    first = log_odds["right_first"].to_numpy()
    last = log_odds["right_last"].to_numpy()
    mean_probability = (expit(first) + expit(last)) / 2

    model = f"{_SMOLLM2} letters"
    averaged = rows.assign(model=model, margin=logit(mean_probability))
    as_a = rows.assign(model=f"{model}, right one is A", margin=first)
    as_b = rows.assign(model=f"{model}, right one is B", margin=last)
    pairs = pd.concat([averaged, as_a, as_b], ignore_index=True)
    return tables.check_pairs(pairs)


def _read_verdicts(path: Path) -> pd.DataFrame:
    return tables.check_pairs(_read_csv(path))


def _read_lesson(path: Path) -> pd.DataFrame:
    """A result of the lessons; an empty cell is missing only in the column change."""
    return pd.read_csv(path, keep_default_na=False, na_values={"change": [""]})


def _read_parquet(path: Path) -> pd.DataFrame:
    """A table as it was published, names as strings."""
    table = pd.read_parquet(path)
    if "model" in table:
        table["model"] = table["model"].astype("str")
    return table


def _read_csv(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype=dict.fromkeys(_STRINGS, "str"))


_READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    "pairs": _read_pairs,
    "scores": _read_scores,
    "margins": _read_margins,
    "likelihoods": _read_likelihoods,
    "letters": _read_letters,
    "verdicts": _read_verdicts,
    "other": _read_lesson,
    "parquet": _read_parquet,
}
