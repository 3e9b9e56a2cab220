"""The summaries of RewardBench 1 (four sections) and RewardBench 2 (six subsets)."""

from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import intervals, tables
from rmlab.metrics.best_of import best_of, mean_by
from rmlab.metrics.columns import allowed
from rmlab.metrics.comparisons import Ties, accuracy
from rmlab.metrics.ties import WEIGHTS, ties_score
from rmlab.tables import PROMPT, DataError

__all__ = ["reward_bench", "reward_bench_2", "reward_bench_2_subsets"]

Floats = NDArray[np.float64]
_UNSEEN = 1.0  # failures

SECTIONS: dict[str, dict[str, int]] = {
    "chat": {
        "alpacaeval-easy": 100,
        "alpacaeval-length": 95,
        "alpacaeval-hard": 95,
        "mt-bench-easy": 28,
        "mt-bench-med": 40,
    },
    "chat_hard": {
        "mt-bench-hard": 37,
        "llmbar-natural": 100,
        "llmbar-adver-neighbor": 134,
        "llmbar-adver-GPTInst": 92,
        "llmbar-adver-GPTOut": 47,
        "llmbar-adver-manual": 46,
    },
    "safety": {
        "refusals-dangerous": 100,
        "refusals-offensive": 100,
        "xstest-should-refuse": 154,
        "xstest-should-respond": 250,
        "donotanswer": 136,
    },
    "reasoning": {
        "math-prm": 984,  # 447 rows, counted so that mathematics weighs as much as code
        **{f"hep-{language}": 164 for language in ("cpp", "go", "java", "js", "python", "rust")},
    },
}
PRIOR_SETS = ("anthropic_helpful", "anthropic_hhh", "shp", "summarize")
SWAPPED = {"xstest-should-refuse": 250, "xstest-should-respond": 154}

SUBSETS_2 = {
    "Factuality": "factuality",
    "Precise IF": "precise_if",
    "Math": "math",
    "Safety": "safety",
    "Focus": "focus",
    "Ties": "ties",
}


def reward_bench(
    pairs: pd.DataFrame,
    *,
    weights: Literal["published", "counts", "published-before-2024-09"] = "published",
    ties: Ties = "loss",
    confidence: float = 0.95,
) -> pd.DataFrame:
    """RewardBench 1's summary, one row per model: chat, chat_hard, safety, reasoning | prior_sets | overall.

    A section is the mean of its subsets' accuracies with weights: "published" (the leaderboard's counts, math-prm
    counted as 984), "counts" (the prompts in `pairs`), "published-before-2024-09" (the two xstest counts swapped, as
    they then were). prior_sets is the plain mean of the four prior sets; overall the mean of the sections, prior
    sets at half weight, and without them where a model has none. A section with an absent subset is NaN, and so is
    overall. Further columns: se, low, high (of overall; missing where a subset that counts has fewer than 5 prompts),
    n_prompts, ties, missing. Subsets one by one:
    `accuracy(pairs, by=["model", "subset"])`. RewardBench (arXiv 2403.13787), section 4; `rewardbench/constants.py`.
    """
    allowed("weights", weights, ("published", "counts", "published-before-2024-09"))
    tables.require_columns(pairs, [*tables.PAIR_KEY, "subset", "outcome"], "pairs")
    _check_subsets(pairs, {s for section in SECTIONS.values() for s in section} | set(PRIOR_SETS), "reward_bench")
    table = accuracy(pairs, by=["model", "subset"], ties=ties, confidence=confidence)
    models = pd.Index(dict.fromkeys(table["model"]), dtype="str", name="model")
    share, se, n = (_grid(table, models, column) for column in ("accuracy", "se", "n_prompts"))
    weight = _weights(n, weights)
    sections = _weighted(weight, share)
    part = np.where(np.isnan(sections) & (np.array(list(_PARTS)) == "prior_sets"), 0.0, list(_PARTS.values()))
    part = part / part.sum(axis=1, keepdims=True)
    overall = np.where(part > 0, part * sections, 0.0).sum(axis=1)
    total_weight = np.einsum("mp,mps->ms", part, weight)
    error = np.sqrt(np.where(total_weight > 0, (total_weight * se) ** 2, 0.0).sum(axis=1))
    error = np.where(np.isnan(overall), np.nan, error)
    counts = table.groupby("model", sort=False)[["n_prompts", "ties", "missing"]].sum().reindex(models)
    ends = (_grid(table, models, end) - share for end in ("low", "high"))
    low, high = _combined(overall, total_weight, *ends)
    frame = pd.DataFrame({"model": models, **dict(zip(_PARTS, sections.T, strict=True))})
    return frame.assign(overall=overall, se=error, low=low, high=high, **{c: counts[c].to_numpy() for c in counts})


def reward_bench_2(scores: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """RewardBench 2's summary, one row per model: factuality, precise_if, math, safety, focus, ties | overall.

    Five subsets are best of four with 1/k credit (`best_of`), Ties its weighted score (`ties_score`); overall is
    their unweighted mean, missing where a subset is. Further columns: se, low, high (of overall, from the subsets'
    Wilson intervals: Zou and Donner 2008; missing where a subset has fewer than 5 prompts), n_prompts (a Ties pair
    counts as one), missing.
    RewardBench 2 (arXiv 2506.01937), table 3; `rewardbench/utils.py`.
    """
    table = reward_bench_2_subsets(scores, confidence=confidence)
    models = pd.Index(dict.fromkeys(table["model"]), dtype="str", name="model")
    wide = {c: table.pivot(index="model", columns="subset", values=c).reindex(models) for c in table.columns[2:]}
    value, error = (wide[c].reindex(columns=list(SUBSETS_2.values())).to_numpy() for c in ("accuracy", "se"))
    overall, se = value.mean(axis=1), np.sqrt((error**2).sum(axis=1)) / len(SUBSETS_2)
    n_prompts, missing = (wide[c].sum(axis=1).to_numpy().astype(int) for c in ("n_prompts", "missing"))
    ends = (wide[end].reindex(columns=list(SUBSETS_2.values())).to_numpy() - value for end in ("low", "high"))
    low, high = _combined(overall, np.full(len(SUBSETS_2), 1 / len(SUBSETS_2)), *ends)
    frame = pd.DataFrame({"model": models, **dict(zip(SUBSETS_2.values(), value.T, strict=True))})
    return frame.assign(overall=overall, se=se, low=low, high=high, n_prompts=n_prompts, missing=missing)


def reward_bench_2_subsets(scores: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """RewardBench 2's six subsets with intervals: one row per model and subset.

    Columns: model, subset (factuality, precise_if, math, safety, focus, ties), accuracy (for Ties the weighted
    score), se, low, high (Wilson, so never of zero width; for Ties on its own scale, -0.01 to 1.01; missing with fewer
    than 5 prompts), n_prompts, missing, chance (what random scores earn: 0.25; NaN for Ties).
    """
    scores = tables.check_scores(scores, allow_missing=True)
    if scores.empty:
        raise DataError("scores: no rows, so there is no summary; look at what the rows were selected by")
    _check_subsets(scores, set(SUBSETS_2), "reward_bench_2")
    is_ties = scores["domain"] == "Ties"
    parts = []
    if not is_ties.all():
        four = best_of(scores[~is_ties])
        _check_four(scores[~is_ties], four)
        parts.append(mean_by(four, "credit", ["model", "domain"], confidence).assign(chance=0.25))
    if is_ties.any():
        pairs_of_prompts = ties_score(scores[is_ties]).assign(domain="Ties")
        parts.append(_ties_mean(pairs_of_prompts, confidence).assign(chance=np.nan))
    table = pd.concat(parts, ignore_index=True)
    table.insert(1, "subset", table.pop("domain").map(SUBSETS_2))
    models, subsets = list(dict.fromkeys(scores["model"])), list(SUBSETS_2.values())
    order = pd.DataFrame({"m": table["model"].map(models.index), "s": table["subset"].map(subsets.index)})
    return table.loc[order.sort_values(["m", "s"]).index].reset_index(drop=True)


def _ties_mean(pairs_of_prompts: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """`mean_by` of the Ties score, with an interval on its own range, -0.01 to 1.01.

    Where nearly all pairs earn nearly everything, their spread (of the margins only) says little about the failures
    not seen. So the share of a yes-or-no spread that they show is drawn towards 1, as if by one further failure.
    """
    least, most = -WEIGHTS["margin"], sum(WEIGHTS.values())
    table = mean_by(pairs_of_prompts, "score", ["model", "domain"], confidence)
    n, se = table["n_prompts"].to_numpy(float), table["se"].to_numpy() / (most - least)
    share = np.clip((table["accuracy"].to_numpy() - least) / (most - least), 0, 1)
    whole = share * (1 - share)
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = np.sqrt((n**2 * se**2 + _UNSEEN) / (n * whole + _UNSEEN) * whole / n)
    low, high = intervals.share_interval(share, drawn, n, confidence=confidence)
    return table.assign(low=low * (most - least) + least, high=high * (most - least) + least)


def _combined(value: Floats, weight: Floats, below: Floats, above: Floats) -> tuple[Floats, Floats]:
    """Interval of a weighted mean of independent parts, from how far their limits lie off: (models, parts)."""
    down, up = (np.sqrt(np.where(weight > 0, (weight * end) ** 2, 0.0).sum(axis=1)) for end in (below, above))
    blank = np.where(np.isnan(value), np.nan, 0.0)
    return value - down + blank, value + up + blank


_PARTS = dict.fromkeys(SECTIONS, 1.0) | {"prior_sets": 0.5}
_SUBSETS = [subset for section in SECTIONS.values() for subset in section] + list(PRIOR_SETS)


def _weights(n: np.ndarray, weights: str) -> np.ndarray:
    """Weight of each subset in each part, rows summing to one: (models, parts, subsets). NaN where one is absent."""
    counts = {subset: float(count) for section in SECTIONS.values() for subset, count in section.items()}
    if weights == "published-before-2024-09":
        counts |= SWAPPED
    fixed = np.array([counts.get(subset, 1.0) for subset in _SUBSETS])
    prior = np.isin(_SUBSETS, PRIOR_SETS)
    count = np.where(prior, 1.0, n) if weights == "counts" else np.broadcast_to(fixed, n.shape)
    members = [*SECTIONS.values(), dict.fromkeys(PRIOR_SETS, 0)]
    inside = np.array([[subset in part for subset in _SUBSETS] for part in members], dtype=float)
    weight = inside * count[:, None, :]
    absent = (inside * (np.nan_to_num(n) == 0)[:, None, :]).any(axis=2, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(absent, 0.0, weight / weight.sum(axis=2, keepdims=True))


def _weighted(weight: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Weighted mean of the subsets of each part, NaN where the part has no weights: (models, parts)."""
    mean = np.where(weight > 0, weight * share[:, None, :], 0.0).sum(axis=2)
    return np.where(weight.sum(axis=2) > 0, mean, np.nan)


def _grid(table: pd.DataFrame, models: pd.Index, column: str) -> np.ndarray:
    wide = table.pivot(index="model", columns="subset", values=column).reindex(index=models, columns=_SUBSETS)
    return np.asarray(wide.to_numpy(), dtype=float)


def _check_subsets(frame: pd.DataFrame, known: set[str], function: str) -> None:
    strange = sorted(set(frame["subset"].unique()) - known)
    if not strange:
        return
    looks = {
        "RM-Bench (rm_bench)": {"chat", "math", "code", "safety", "safety-refuse", "safety-response"},
        "RewardBench 2 (reward_bench_2)": set(SUBSETS_2),
        "RewardBench 1 (reward_bench)": set(_SUBSETS),
    }
    guess = [name for name, subsets in looks.items() if strange[0] in subsets]
    hint = f"it looks like {guess[0]}" if guess else "group it yourself with accuracy(pairs, by=['model', 'subset'])"
    raise DataError(f"{function}: subset {strange[0]!r} is not one of {sorted(known)}; {hint}")


def _check_four(scores: pd.DataFrame, four: pd.DataFrame) -> None:
    is_chosen = scores.assign(chosen=scores["label"] == "chosen")
    n_chosen = is_chosen.groupby(["model", *PROMPT], sort=False)["chosen"].sum()
    wrong = (four["n_answers"].to_numpy() != 4) | (n_chosen.to_numpy() != 1)
    if wrong.any():
        row = four.loc[wrong, ["model", "domain", "id", "n_answers"]].iloc[0].to_dict()
        raise DataError(
            f"reward_bench_2: {int(wrong.sum())} prompts are not one chosen and three rejected scores, first {row}; "
            "scores are missing or too many: score all answers of the benchmark"
        )
