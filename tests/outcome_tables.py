"""Pairs tables from squares of outcomes and from margins."""

import numpy as np
import pandas as pd

from rmlab import tables


def responses_of(won):
    """Pairs from a square of outcomes (models, items): 1 won, 0 lost, NaN missing."""
    models, items = won.shape
    frame = pd.DataFrame({"model": np.repeat([f"m{i:02d}" for i in range(models)], items)}).assign(
        benchmark="own", domain="all", id=np.tile(np.arange(items).astype(str), models), chosen_slot=0, rejected_slot=0
    )
    outcome = np.where(won.ravel() == 1, "win", "loss").astype(object)
    return tables.check_pairs(frame.assign(outcome=np.where(np.isnan(won.ravel()), None, outcome)))


def margins_as_pairs(margin, model="m"):
    frame = pd.DataFrame(
        {"model": model, "benchmark": "own", "domain": "all", "id": np.arange(len(margin)).astype(str)}
    )
    return tables.check_pairs(frame.assign(chosen_slot=0, rejected_slot=0, margin=margin))
