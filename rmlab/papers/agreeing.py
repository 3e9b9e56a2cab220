"""Item by item: how often two sets of comparisons end alike."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from rmlab import intervals, subsets, tables
from rmlab.metrics.reward_bench import SECTIONS, SUBSETS_2
from rmlab.papers.rules import DOMAINS
from rmlab.tables import LEVELS, PROMPT, DataError

__all__ = ["agreeing", "agreement", "shared"]

_ITEM = [*PROMPT, "chosen_slot", "rejected_slot"]


def agreement(
    pairs_a: pd.DataFrame, pairs_b: pd.DataFrame, *, by: str | Sequence[str] = "model", confidence: float = 0.95
) -> pd.DataFrame:
    """How often two sets of pairs decide the same comparison alike: one row per combination of `by`.

    Columns after those of `by`: agreement (share with the same outcome: win, tie or loss), low, high (clustered by
    prompt; missing with fewer than 5 prompts), n_pairs, n_prompts, only_a (won in a, not in b), only_b, missing (blank
    in either). `by` may hold model, benchmark, domain, subset, level and the styles. Comparisons that stand in one
    table only are counted in `attrs["only_in_a"]` and `attrs["only_in_b"]`. Raises DataError where the two have no
    comparison in common.
    """
    by = [by] if isinstance(by, str) else list(by)
    both = shared(tables.check_pairs(pairs_a), tables.check_pairs(pairs_b), {})
    strange = [column for column in by if column not in both.columns]
    if strange:
        raise DataError(
            f"by: {strange[0]!r} is not a column of pairs; {tables.nearest(strange[0], list(both.columns))}"
        )
    known = both.dropna(subset=["outcome_a", "outcome_b"])
    names = [*dict.fromkeys([*by, *PROMPT])]
    prompts = known.groupby(names, sort=False, observed=True)["same"].agg(["sum", "size"]).reset_index()
    keys = both[by].drop_duplicates().reset_index(drop=True)
    place = pd.MultiIndex.from_frame(keys.astype("str"))
    where = place.get_indexer(pd.MultiIndex.from_frame(prompts[by].astype("str")))
    share, se, n = intervals.clustered_se(
        prompts["sum"].to_numpy(float), prompts["size"].to_numpy(float), where, len(keys)
    )
    se = np.where(n < intervals.FEWEST, np.nan, se)
    low, high = intervals.share_interval(share, se, n, confidence=confidence)
    group = place.get_indexer(pd.MultiIndex.from_frame(both[by].astype("str")))
    counts = {name: np.bincount(group[both[name].to_numpy()], minlength=len(keys)) for name in ("only_a", "only_b")}
    blank = both[["outcome_a", "outcome_b"]].isna().any(axis=1).to_numpy()
    frame = keys.assign(
        agreement=share,
        low=low,
        high=high,
        n_pairs=np.bincount(group[~blank], minlength=len(keys)),
        n_prompts=n.astype(int),
        **counts,
        missing=np.bincount(group[blank], minlength=len(keys)),
    )
    frame.attrs = both.attrs
    return frame


def shared(ours: pd.DataFrame, theirs: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """Comparisons that both sides have, with both outcomes, under our model names."""
    back = {name: model for model, name in names.items()}
    theirs = theirs.assign(model=theirs["model"].replace(back))
    key = ["model", *_ITEM]
    kept = [*key, "subset", "chosen_style", "rejected_style", "level", "outcome"]
    both = ours[kept].merge(theirs[[*key, "outcome"]], on=key, suffixes=("_a", "_b"), validate="one_to_one")
    if both.empty:
        first = [frame[key].iloc[0].to_dict() if len(frame) else "nothing" for frame in (ours, theirs)]
        raise DataError(
            f"pairs: no comparison stands in both tables; first of one: {first[0]}; of the other: {first[1]}"
        )
    a, b = (both[f"outcome_{side}"].astype("object") for side in "ab")
    known = a.notna() & b.notna()
    both = both.assign(same=known & (a == b), only_a=known & (a == "win") & (b != "win"))
    both = both.assign(only_b=known & (b == "win") & (a != "win"))
    both.attrs = {"only_in_a": len(ours) - len(both), "only_in_b": len(theirs) - len(both)}
    return both


def agreeing(both: pd.DataFrame | None, kind: str, model: str, quantity: str) -> tuple[float, int]:
    """Share of the comparisons behind a number that end alike, and how many there are."""
    if both is None:
        return np.nan, 0
    behind: dict[str, Mapping[str, object] | Sequence[str]] = {**SECTIONS, "prior_sets": subsets.PRIOR_SETS}
    mask = both["model"] == model
    if quantity in LEVELS and kind == "rm-bench":
        mask &= both["level"] == quantity
    elif quantity in DOMAINS and kind == "rm-bench":
        mask &= both["domain"] == quantity
    elif quantity in behind and kind == "reward-bench":
        mask &= both["subset"].isin(list(behind[quantity]))
    elif kind == "reward-bench-2" and quantity != "overall":
        mask &= both["subset"].map(SUBSETS_2) == quantity
    found = both[mask].dropna(subset=["outcome_a", "outcome_b"])
    return (float(found["same"].mean()) if len(found) else np.nan), len(found)
