"""How far a ranking depends on choices that are rarely reported: tie policy, averaging of Safety, rounding noise."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from rmlab import metrics
from rmlab.stats.grid import Floats, Grid, credit, grid
from rmlab.stats.reported import estimate
from rmlab.stats.targets import Average, target_of
from rmlab.tables import PROMPT

__all__ = ["sensitivity"]

BF16_NOISE = 0.035


def sensitivity(
    pairs: pd.DataFrame,
    *,
    average: Average = "benchmark",
    noise: float = BF16_NOISE,
    repeats: int = 100,
    seed: int = 0,
    common: bool = False,
) -> pd.DataFrame:
    """How the ranking moves with the choices behind it: one row per model and variant.

    Variants: "as reported" (ties lose, Safety pooled), "ties half", "ties dropped", "safety split" (mean of refuse
    and response prompts instead of their pool; RM-Bench only) and "bf16 noise" (where there are margins).
    Columns: model, variant, value (overall; the mean over the repeats for noise), rank (1 is best), shift (rank minus
    the reported rank: above 0 is worse), rank_low, rank_high (extremes over the repeats of
    noise, else the rank), tau
    (Kendall's rank correlation of the whole variant with the reported ranking), flipped (comparisons that the
    variant counts differently, mean over the repeats; ties stay ties under noise).
    `noise` is the standard deviation added to each answer's score, as a share of the model's own spread of scores
    (that of its margins over the root of 2). The default, 0.035, was measured on small models between float32 and
    bfloat16 (largest of 200 differences: a tenth of the spread). Needs two models; no randomness but the noise.
    """
    if noise < 0 or repeats < 1:
        raise ValueError(f"noise, repeats: {noise!r}, {repeats!r}; allowed: noise from 0, repeats from 1")
    table = grid(pairs, common=common, fewest_models=2)
    lost = _values(table, credit(table.outcome, "loss"), average)
    reported = _ranks(lost)
    none = np.zeros(len(table.models))
    tied = (table.outcome == 1).sum(axis=1).astype(float)
    parts = [_variant(table.models, "as reported", lost[None], reported, none)]
    policies: dict[str, metrics.Ties] = {"ties half": "half", "ties dropped": "drop"}
    for name, ties in policies.items():
        worth = credit(table.outcome, ties)
        parts.append(_variant(table.models, name, _values(table, worth, average)[None], reported, tied))
    if average == "benchmark" and {"safety-refuse", "safety-response"} <= set(table.items["subset"]):
        split = _split_safety(pairs, common)
        parts.append(_variant(table.models, "safety split", split[None], reported, none))
    if not np.isnan(table.margin).all():
        drawn, flipped = zip(*_noisy(table, average, noise, repeats, seed), strict=True)
        parts.append(_variant(table.models, "bf16 noise", np.array(drawn), reported, np.mean(flipped, axis=0)))
    return pd.concat(parts, ignore_index=True)


def _values(table: Grid, worth: Floats, average: Average) -> Floats:
    return estimate(worth, table, target_of(table, [], average)).value


def _ranks(values: Floats) -> Floats:
    """Ranks along the last axis, 1 is the highest; NaN stays NaN."""
    from scipy.stats import rankdata

    ranks: Floats = rankdata(-np.round(values, 12), method="min", axis=-1, nan_policy="omit")
    return ranks


def _variant(models: list[str], name: str, values: Floats, reported: Floats, flipped: Floats) -> pd.DataFrame:
    """Rows of one variant from its values (repeats, models)."""
    from scipy.stats import kendalltau

    ranks, whole = _ranks(values), _ranks(values.mean(axis=0))
    both = ~np.isnan(reported) & ~np.isnan(whole)
    tau = kendalltau(reported[both], whole[both]).statistic if both.sum() > 1 else np.nan
    frame = pd.DataFrame(
        {"model": pd.Series(models, dtype="str"), "variant": pd.Series([name] * len(models), dtype="str")}
    )
    whole_numbers = {
        "rank": whole,
        "shift": whole - reported,
        "rank_low": ranks.min(axis=0),
        "rank_high": ranks.max(axis=0),
    }
    typed = {c: pd.Series(v).astype("Int64") for c, v in whole_numbers.items()}
    return frame.assign(value=values.mean(axis=0), **typed, tau=tau, flipped=flipped)


def _split_safety(pairs: pd.DataFrame, common: bool) -> Floats:
    """Overall with Safety as the mean of its two files."""
    named = pairs["domain"].where(pairs["domain"] != "safety", pairs["subset"])
    table = grid(pairs.assign(domain=named), common=common)
    weights = dict.fromkeys(table.domains, 1.0) | {"safety-refuse": 0.5, "safety-response": 0.5}
    return _values(table, credit(table.outcome, "loss"), weights)


def _noisy(table: Grid, average: Average, noise: float, repeats: int, seed: int) -> Iterator[tuple[Floats, Floats]]:
    """Values and flipped comparisons of every model, once per draw of noise on each answer's score."""
    rng = np.random.default_rng(seed)
    chosen, rejected = (
        table.items.groupby([*PROMPT, side]).ngroup().to_numpy() for side in ("chosen_slot", "rejected_slot")
    )
    scale = noise * np.array([row[~np.isnan(row)].std() if (~np.isnan(row)).any() else 0.0 for row in table.margin])
    scale = scale[:, None] / np.sqrt(2)
    own = np.argsort(np.argsort(table.models))  # a model's noise goes by its name, not by the order of the rows
    for _ in range(repeats):
        up = rng.standard_normal((len(table.models), chosen.max() + 1))[own][:, chosen]
        down = rng.standard_normal((len(table.models), rejected.max() + 1))[own][:, rejected]
        sign = np.sign(table.margin + scale * (up - down))
        kept = np.isnan(sign) | (table.outcome == 1) | (table.outcome == -1)
        outcome = np.where(kept, table.outcome, 1 + np.nan_to_num(sign)).astype(np.int8)
        yield _values(table, credit(outcome, "loss"), average), (outcome != table.outcome).sum(axis=1).astype(float)
