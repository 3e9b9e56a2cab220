"""Best of n: does the chosen answer score highest among all answers to its prompt?"""

from typing import Literal

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.estimation.items import LOSS, MISSING, TIE, WIN, count_labels
from rmlab.tables import PROMPT, group_codes

SharedCredit = Literal["share", "loss", "win"]
N_CANDIDATES = "n_candidates"
"""Column of `load_pool`: candidates of the prompt; it marks a table of pools."""

SHARED_CREDIT: tuple[SharedCredit, ...] = ("share", "loss", "win")


def best_of(scores: pd.DataFrame, ties: SharedCredit = "share") -> pd.DataFrame:
    """Credit of each prompt when the highest score wins.

    Parameters
    ----------
    scores : DataFrame
        A checked table of scores.
    ties : {"share", "loss", "win"}
        What a maximum shared with a rejected answer earns: 1/k where k answers share it
        (RewardBench 2), 0, or 1.

    Returns
    -------
    DataFrame
        One row per model and prompt: a prompt's columns, and

        - n_chosen, n_answers;
        - credit: missing where a score is;
        - outcome: win, tie where a rejected answer shares the maximum, loss or missing.

    Raises
    ------
    DataError
        If a prompt has answers of one label only.

    References
    ----------
    RewardBench 2 (arXiv 2506.01937), section 4; `rewardbench/utils.py` of its
    repository.
    """
    tables.check_option("ties", ties, SHARED_CREDIT)
    prompt, first_rows = group_codes(scores, ["model", *PROMPT])
    n_prompts = len(first_rows)
    n_chosen, _ = count_labels(scores, prompt)
    score = scores["score"].to_numpy()
    is_chosen = (scores["label"] == "chosen").to_numpy()

    highest = np.full(n_prompts, -np.inf)
    np.fmax.at(highest, prompt, score)
    is_highest = score == highest[prompt]
    n_highest = np.bincount(prompt[is_highest], minlength=n_prompts)
    n_right = np.bincount(prompt[is_highest & is_chosen], minlength=n_prompts)
    is_missing = np.bincount(prompt, np.isnan(score), n_prompts) > 0

    share = n_right / np.maximum(n_highest, 1)  # no answer may have a score
    credit = {"share": share, "loss": np.floor(share), "win": np.ceil(share)}[ties]
    places = [is_missing, n_right == 0, n_right < n_highest]
    outcome = np.select(places, [MISSING, LOSS, TIE], WIN)
    prompts = scores[["model", *PROMPT, "subset"]].iloc[first_rows]
    return prompts.reset_index(drop=True).assign(
        n_chosen=n_chosen,
        n_answers=np.bincount(prompt),
        credit=np.where(is_missing, np.nan, credit),
        outcome=outcome.astype(np.int8),
    )
