"""How far a ranking depends on choices that are rarely reported: tie policy, averaging, rounding noise."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from rmlab.items.comparisons import ITEM, as_pairs
from rmlab.items.grid import MISSING, TIE, Codes, Floats, Items, common_items, spread
from rmlab.items.weighting import Average
from rmlab.metrics.estimate import estimate
from rmlab.metrics.numbers import Reading, overall
from rmlab.stats.comparing import read_models
from rmlab.tables import PROMPT

__all__ = ["sensitivity"]

BF16_NOISE = 0.035  # of the spread of scores; measured, see `sensitivity`


def sensitivity(
    table: pd.DataFrame,
    *,
    average: Average = "benchmark",
    noise: float = BF16_NOISE,
    repeats: int = 100,
    seed: int = 0,
    common: bool = False,
) -> pd.DataFrame:
    """How the ranking moves with the choices behind it: one row per model and variant.

    Variants: "as reported" (the benchmark's own rules), its other rules (ties half, ties dropped, safety split and so
    on, as `rmlab.benchmarks` names them; with `average` other than "benchmark" those of ties only) and "bf16 noise"
    (where there are margins). Columns: model, variant, value (overall; the mean over the repeats for noise), rank (1 is
    best), shift (rank minus the reported rank: above 0 is worse), rank_low, rank_high (extremes over the repeats of
    noise, else the rank), tau (Kendall's rank correlation of the whole variant with the reported ranking), flipped
    (items that the variant credits differently, mean over the repeats; ties stay ties under noise).
    `noise` is the standard deviation added to each answer's score, as a share of the model's own spread of scores
    (that of its margins over the root of 2). The default, 0.035, was measured on small models between float32 and
    bfloat16 (largest of 200 differences: a tenth of the spread). Needs two models; no randomness but the noise.
    """
    if noise < 0 or repeats < 1:
        raise ValueError(f"noise, repeats: {noise!r}, {repeats!r}; allowed: noise from 0, repeats from 1")
    reading = read_models(table, average, None, common, {})
    models = reading.items.models
    own = _values(reading)
    reported = _ranks(own)
    # Values are (repeats, models).
    parts = [_variant(models, "as reported", own[None], reported, np.zeros(len(models)))]
    # Data of one's own has no published rules that others might have chosen.
    for words, choices in reading.benchmark.variants.items() or _OWN_VARIANTS.items():
        if average == "benchmark" or set(choices) == {"ties"}:
            other = _other(table, reading, average, common, choices)
            parts.append(_variant(models, words, _values(other)[None], reported, _changed(reading.items, other.items)))
    if reading.benchmark.needs == "pairs":
        margin = _margins(table, common)
        if not np.isnan(margin).all():
            drawn, flipped = zip(*_noisy(reading, margin, noise, repeats, seed), strict=True)
            parts.append(_variant(models, "bf16 noise", np.array(drawn), reported, np.mean(flipped, axis=0)))
    return pd.concat(parts, ignore_index=True)


_OWN_VARIANTS: dict[str, Mapping[str, str]] = {
    "ties count half": {"ties": "half"},
    "ties are left out": {"ties": "drop"},
}


def _other(
    table: pd.DataFrame, reading: Reading, average: Average, common: bool, choices: Mapping[str, str]
) -> Reading:
    options = {name: value for name, value in choices.items() if name not in ("ties", "average")}
    other = choices.get("average", average)
    return read_models(table, other, choices.get("ties"), common, options)  # type: ignore[arg-type]


def _values(reading: Reading) -> Floats:
    return estimate(reading.items, overall(reading)).value


def _changed(items: Items, other: Items) -> Floats:
    """Number of items that each model is credited differently for."""
    same = (items.credit == other.credit) | (np.isnan(items.credit) & np.isnan(other.credit))
    changed: Floats = (~same).sum(axis=1).astype(float)
    return changed


def _ranks(values: Floats) -> Floats:
    """Ranks along the last axis, 1 is the highest; NaN stays NaN."""
    from scipy.stats import rankdata

    # Values that differ in the thirteenth decimal are equal ones, summed in another order.
    ranks: Floats = rankdata(-np.round(values, 12), method="min", axis=-1, nan_policy="omit")
    return ranks


def _variant(models: list[str], name: str, values: Floats, reported: Floats, flipped: Floats) -> pd.DataFrame:
    """Rows of one variant from its values (repeats, models)."""
    from scipy.stats import kendalltau

    # Ranks are (repeats, models); the variant's own rank and tau come from the mean over the repeats.
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


def _margins(table: pd.DataFrame, common: bool) -> Floats:
    """Margin of every model on every comparison, in the order of the items."""
    pairs = as_pairs(table)
    # Laid out like the items, so that margins and credits stand in the same places; `credit` carries the margin here.
    items = spread(
        pairs, key=ITEM, outcome=np.zeros(len(pairs), np.int8), credit=pairs["margin"].to_numpy(float),
        describing=["subset", "chosen_style", "rejected_style"],
    )  # fmt: skip
    return (common_items(items) if common else items).credit


def _noisy(reading: Reading, margin: Floats, noise: float, repeats: int, seed: int) -> Iterator[tuple[Floats, Floats]]:
    """Values and flipped comparisons of every model, once per draw of noise on each answer's score."""
    rng = np.random.default_rng(seed)
    items = reading.items
    # Noise belongs to an answer, so that all comparisons that it stands in move together.
    chosen, rejected = (_answers(items.frame, side) for side in ("chosen_slot", "rejected_slot"))
    scale = noise * np.array([row[~np.isnan(row)].std() if (~np.isnan(row)).any() else 0.0 for row in margin])
    # A margin is the difference of two scores, and spreads by the root of two more than either.
    scale = scale[:, None] / np.sqrt(2)
    own = np.argsort(np.argsort(items.models))  # a model's noise goes by its name, not by the order of the rows
    number = overall(reading)
    for _ in range(repeats):
        up = rng.standard_normal((len(items.models), chosen.max() + 1))[own][:, chosen]
        down = rng.standard_normal((len(items.models), rejected.max() + 1))[own][:, rejected]
        moved = margin + scale * (up - down)
        # Rounding makes few ties and breaks few: those that are there stay, as does what is missing.
        kept = np.isnan(moved) | (items.outcome == TIE) | (items.outcome <= MISSING)
        changed = replace(items, credit=np.where(kept, items.credit, (moved > 0).astype(float)))
        yield estimate(changed, number).value, _changed(items, changed)


def _answers(frame: pd.DataFrame, side: str) -> Codes:
    found: Codes = frame.groupby([*PROMPT, side], sort=False).ngroup().to_numpy().astype(np.intp)
    return found
