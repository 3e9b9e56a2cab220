"""What another wording of the prompt does to the comparisons of the same answers."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rmlab.bias import regression
from rmlab.bias.versions import (
    Changes,
    apply_transform,
    find_altered,
    resolve_transforms,
    score_versions,
    tabulate_changes,
)
from rmlab.estimation.items import cluster_columns, credit
from rmlab.metrics.pairing import pairs
from rmlab.scorers.base import PlainScorer, Prompt, name_of
from rmlab.styles.transforms import Transform
from rmlab.styles.wording import AGAIN, PROMPT_TRANSFORMS
from rmlab.tables import PROMPT, BoolArray, FloatArray, group_codes

# The least and the most that a comparison's value can be.
_BOUNDS = {"accuracy": (0.0, 1.0), "accuracy_change": (-1.0, 1.0), "flips": (0.0, 1.0)}


def probe_prompts(
    responses: pd.DataFrame,
    scorer: PlainScorer,
    transforms: Changes | None,
    *,
    by: str | Sequence[str],
    steps: int | None,
    cluster: str | None,
    confidence: float,
) -> pd.DataFrame:
    """The table of `probe` for changes of the prompt."""
    changes = resolve_transforms(transforms, PROMPT_TRANSFORMS)
    texts = list(responses["response"])
    original = list(zip(responses["prompt"], texts, strict=True))
    versions = [original]
    for change in changes:
        prompts = [
            change_prompt(prompt, change, steps) for prompt in responses["prompt"]
        ]
        versions.append(list(zip(prompts, texts, strict=True)))

    before, *scores_after = score_versions(scorer, versions)
    frames = []
    for change, version, after in zip(changes, versions[1:], scores_after, strict=True):
        is_altered = find_altered(version, original)
        if change is AGAIN:
            (after,) = score_versions(scorer, [original])
            is_altered[:] = True
        frame = _compare_scores(responses, before, after, is_altered)
        frames.append(frame.assign(transform=change.name, null=change.null))
    return tabulate_changes(
        pd.concat(frames, ignore_index=True).astype({"transform": "str"}),
        by,
        cluster_columns(responses, cluster),
        model=name_of(scorer),
        spread=regression.within_spread(before, group_codes(responses, PROMPT)[0]),
        unaltered="no prompt was altered",
        further=_BOUNDS,
        confidence=confidence,
    )


def change_prompt(prompt: Prompt, change: Transform, steps: int | None) -> Prompt:
    """The changed prompt; of a conversation the last message of the user changes."""
    if isinstance(prompt, str):
        return apply_transform(change, prompt, steps)
    turns = [dict(turn) for turn in prompt]
    for turn in reversed(turns):
        if turn["role"] == "user":
            turn["content"] = apply_transform(change, turn["content"], steps)
            break
    return turns


def _compare_scores(
    responses: pd.DataFrame,
    before: FloatArray,
    after: FloatArray,
    is_altered: BoolArray,
) -> pd.DataFrame:
    """One row per comparison: what changed, NaN where the prompt did not."""
    answers = responses.drop(columns=["prompt", "response"])
    answers = answers.assign(model="", is_altered=is_altered)
    old = pairs(answers.assign(score=before))
    new = pairs(answers.assign(score=after))
    has_flipped = (old["outcome"] != new["outcome"]).astype(float)
    has_flipped[old["outcome"].isna() | new["outcome"].isna()] = np.nan
    changes = pd.DataFrame(
        {
            "change": new["margin"] - old["margin"],
            "accuracy": credit(old),
            "accuracy_change": credit(new) - credit(old),
            "flips": has_flipped,
        }
    )
    comparisons = old.drop(columns=["model", "margin", "outcome"])
    comparisons[changes.columns] = changes.where(old["is_altered"])
    return comparisons
