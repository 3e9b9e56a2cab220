"""A small part of a benchmark, for evaluations that are repeated often."""

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.estimation.clustered import MIN_PROMPTS
from rmlab.tables import PROMPT, DataError, IntArray, group_codes


def sample(responses: pd.DataFrame, n: int, seed: int = 0) -> pd.DataFrame:
    """Draw whole prompts, from each domain and subset in proportion to its size.

    How far the 95 % interval then reaches to either side: of RM-Bench with a language
    model and simulated reward models, overall right in 0.6 to 0.85 of the pairs; of
    RewardBench as the median of nine reward models.

    ========  ==================  ===================  ===================
    prompts   RM-Bench, overall   RM-Bench, a level    RewardBench
    ========  ==================  ===================  ===================
    64        0.08 to 0.12        0.08 to 0.13         none
    200       0.04 to 0.06        0.04 to 0.07         0.06
    1,000     0.02 to 0.03        0.01 to 0.03         0.03
    ========  ==================  ===================  ===================

    It is wider the more often the pairs of a prompt are right or wrong together.
    RewardBench has 23 subsets, and an interval needs five prompts of each.
    Two models, or two steps of a training, are compared on the same prompts: paired
    (`rmlab.compare`) their difference is known better than either accuracy.

    Parameters
    ----------
    responses : DataFrame
        A table of responses; a table of scores or pairs may be sampled likewise.
    n : int
        Prompts to keep; where there are fewer, all are kept. Each subset keeps five at
        least, where `n` allows it.
    seed : int
        The same seed draws the same prompts.

    Returns
    -------
    DataFrame
        The rows of the prompts, as they were and in their order. Numbers of a subset
        with fewer than five prompts have no interval.

    Raises
    ------
    DataError
        Where `n` is smaller than the number of subsets.

    Examples
    --------
    >>> import rmlab
    >>> part = sample(rmlab.load("mini"), n=8)
    >>> part.groupby("domain")["id"].nunique().to_dict()
    {'chat': 2, 'code': 2, 'math': 2, 'safety': 2}
    """
    tables.require_columns(responses, PROMPT, "responses")
    prompt_number, first_rows = group_codes(responses, PROMPT)
    named = {"benchmark", "domain", "subset"}.intersection(responses)
    stratum, _ = group_codes(responses.iloc[first_rows], sorted(named))

    sizes = np.bincount(stratum)
    if n < len(sizes):
        problem = f"n: {n} prompts for {len(sizes)} subsets"
        raise DataError(problem, f"draw {len(sizes)} or more, one of each at least")
    fewest = np.minimum(sizes, min(MIN_PROMPTS, n // len(sizes)))
    quota = _share_out(n, sizes, fewest)

    rng = np.random.default_rng(seed)
    is_drawn = np.zeros(len(first_rows), bool)
    for number, n_drawn in enumerate(quota):
        prompts = np.flatnonzero(stratum == number)
        is_drawn[rng.choice(prompts, n_drawn, replace=False)] = True
    return responses[is_drawn[prompt_number]].reset_index(drop=True)


def _share_out(n: int, sizes: IntArray, fewest: IntArray) -> IntArray:
    """Of n prompts those of each stratum: in proportion, the fewest at least, none more
    than there are.
    """
    quota = fewest.copy()
    for _ in range(fewest.sum(), min(n, sizes.sum())):
        wanted = n * sizes / sizes.sum() - quota
        wanted[quota == sizes] = -np.inf
        quota[wanted.argmax()] += 1
    return quota
