"""Counterfactual probes: the effect of another style on the score of the same answer,
and of another wording of the prompt on its comparisons.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.bias.answers import measure_spread
from rmlab.bias.groups import (
    Group,
    Numbers,
    estimate,
    estimate_mean,
    fit_groups,
    list_names,
    name_limits,
)
from rmlab.estimation.clustered import Estimate
from rmlab.estimation.difference import holm
from rmlab.estimation.items import credit
from rmlab.metrics.pairing import pairs
from rmlab.scorers.base import PlainScorer, Prompt, as_scorer, name_of
from rmlab.styles.transforms import TRANSFORMS, Transform
from rmlab.styles.wording import AGAIN, PROMPT_TRANSFORMS
from rmlab.tables import (
    PROMPT,
    BoolArray,
    DataError,
    FloatArray,
    group_codes,
    nearest,
)

Change: TypeAlias = Transform | Callable[[str], str]
_Entry: TypeAlias = tuple[Prompt, str]
"""A prompt with its answer."""

_KNOWN = {"response": TRANSFORMS, "prompt": PROMPT_TRANSFORMS}
# The least and the most that a comparison's value can be.
_BOUNDS = {"accuracy": (0.0, 1.0), "accuracy_change": (-1.0, 1.0), "flips": (0.0, 1.0)}


def probe(
    responses: pd.DataFrame,
    scorer: "PlainScorer",
    transforms: str | Sequence[str | Change] | None = None,
    *,
    target: Literal["response", "prompt"] = "response",
    by: str | Sequence[str] = ("transform", "domain"),
    cluster: str | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Measure what changes of style do to the score of the same answers, or changes of
    the prompt's wording to their comparisons.

    Every answer is scored as it is and after each change; only answers (or prompts)
    that the change alters count.

    Parameters
    ----------
    responses : DataFrame
        A table of responses.
    scorer : callable
        Takes prompts and responses and returns their scores.
    transforms : str or sequence, optional
        Functions from text to text, or names; default: all names. Of answers:
        strip_markdown, headings, bold, bullets, padding, hedging, confidence, emoji,
        and the controls synonyms, spacing, final_newline. Of prompts: typo,
        straight_quotes, spaces, url, handle, greeting, first_letter, and the controls
        again, neutral_sentence.
    target : {"response", "prompt"}
        What is changed; of a conversation the last user's message.
    by : str or sequence of str
        Columns that define the rows: transform, domain, subset, label, style.
    cluster : str, optional
        Column whose values the prompts of a cluster share; default: the prompt.
    confidence : float
        Coverage of the intervals.

    Returns
    -------
    DataFrame
        One row per combination of the `by` columns: model, these, null (a control,
        which should do nothing), change (mean of after minus before), se (clustered by
        prompt), low, high (Student's t), standardised (change in standard deviations of
        the model's scores within a prompt), p (two-sided), p_holm (over the rows that
        are not controls), n (answers altered), untouched (answers without a place for
        the change), n_prompts, reason.

        For prompts, the unit is a comparison in place of an answer: change is that of
        the margin, and further columns with their limits (accuracy_low and so on) are
        accuracy (before), accuracy_change, and flips (share of comparisons with another
        outcome). A tie is not won. The control "again" scores the same texts a second
        time; "neutral_sentence" is as long as the url and the greeting.

    Raises
    ------
    DataError
        For an unknown name, and for a change that leaves no text.

    Notes
    -----
    A change in meaning that comes with a change in style is in the numbers too: read
    the controls beside them.

    Examples
    --------
    >>> import rmlab
    >>> responses = rmlab.load("mini")
    >>> longest = rmlab.baselines.longest
    >>> table = rmlab.probe(responses, longest, ["padding"], by="transform")
    >>> table[["transform", "null", "n"]].to_numpy().tolist()
    [['padding', False, 384]]
    """
    tables.check_option("target", target, ("response", "prompt"))
    responses = tables.check_responses(responses)
    changes = _resolve_transforms(transforms, _KNOWN[target])
    original = list(zip(responses["prompt"], responses["response"], strict=True))
    versions = [original]
    for change in changes:
        versions.append([_change(entry, change, target) for entry in original])

    before, *scores_after = _score_versions(scorer, versions)
    # Without the texts, which every transform would repeat.
    answers = responses.drop(columns=["prompt", "response"])
    frames = []
    for change, version, after in zip(changes, versions[1:], scores_after, strict=True):
        altered = [new != old for new, old in zip(version, original, strict=True)]
        if change.name == AGAIN:
            after = _score_versions(scorer, [original])[0]
            altered = [True] * len(original)
        if target == "prompt":
            frame = _compare_scores(answers, before, after, np.array(altered))
        else:
            # A change that had nothing to do says nothing about the scorer.
            frame = answers.assign(change=np.where(altered, after - before, np.nan))
        frames.append(frame.assign(transform=change.name, null=change.null))

    prompt = group_codes(responses, PROMPT)[0]
    spread = measure_spread(before, prompt, prompt).value
    frame = pd.concat(frames, ignore_index=True).astype({"transform": "str"})
    table = _tabulate_changes(frame, by, cluster, spread, confidence)
    table.insert(0, "model", name_of(scorer))
    return table


def _resolve_transforms(
    transforms: str | Sequence[str | Change] | None, known: Mapping[str, Transform]
) -> list[Transform]:
    """Transforms from names and functions; default: all known ones."""
    if transforms is None:
        return list(known.values())
    changes = []
    for item in [transforms] if isinstance(transforms, str) else transforms:
        if isinstance(item, Transform):
            changes.append(item)
        elif callable(item):
            changes.append(Transform(getattr(item, "__name__", repr(item)), item))
        elif item in known:
            changes.append(known[item])
        else:
            remedy = f"{nearest(item, list(known))}, or a function from text to text"
            raise DataError(f"transforms: {item!r}", remedy)
    list_names("transforms", [change.name for change in changes])
    return changes


def _change(entry: _Entry, change: Transform, target: str) -> _Entry:
    """A prompt and its answer, one of them changed: of a conversation the last message
    of the user.
    """
    prompt, text = entry
    if target == "response":
        return prompt, _change_text(text, change)
    if isinstance(prompt, str):
        return _change_text(prompt, change), text
    turns = [dict(turn) for turn in prompt]
    for turn in reversed(turns):
        if turn["role"] == "user":
            turn["content"] = _change_text(turn["content"], change)
            break
    return turns, text


def _change_text(text: str, change: Transform) -> str:
    changed = change(text)
    if not isinstance(changed, str) or not changed:
        problem = f"transforms: {change.name} made {changed!r} of {text[:60]!r}"
        raise DataError(problem, "it must give a non-empty string")
    return changed


def _score_versions(scorer: PlainScorer, versions: list[list[_Entry]]) -> FloatArray:
    """Scores (versions, responses); each different prompt and text is scored once."""
    entries = list(chain.from_iterable(versions))
    # By the text of the prompt, as it may be a list of messages.
    number, _ = pd.factorize(np.array([repr(entry) for entry in entries], object))
    first = np.unique(number, return_index=True)[1]
    # One call with all texts: a scorer that shares prefixes then forwards each prompt
    # once for all versions.
    prompts, texts = zip(*(entries[row] for row in first), strict=True)
    scores = as_scorer(scorer)(list(prompts), list(texts))
    return scores[number].reshape(len(versions), -1)


def _compare_scores(
    answers: pd.DataFrame,
    before: FloatArray,
    after: FloatArray,
    is_altered: BoolArray,
) -> pd.DataFrame:
    """One row per comparison: what changed, NaN where the prompt did not."""
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


def _tabulate_changes(
    changes: pd.DataFrame,
    by: str | Sequence[str],
    cluster: str | None,
    spread: float,
    confidence: float,
) -> pd.DataFrame:
    """One row per group: the mean change with its test, and further means of
    comparisons.
    """

    def fit(group: Group) -> Numbers:
        rows = changes.iloc[group.rows]
        change = rows["change"].to_numpy()
        answered = group.select(~np.isnan(change))
        mean = estimate_mean(change, group, confidence, (-np.inf, np.inf))
        numbers: Numbers = {
            "null": rows["null"].all(),
            "change": mean.value,
            "se": mean.se,
            "low": mean.low,
            "high": mean.high,
            "standardised": mean.value / spread,
            "p": _two_sided_p(mean),
            "p_holm": np.nan,
        }
        for name in rows.columns.intersection(list(_BOUNDS)):
            share = estimate_mean(
                rows[name].to_numpy(), group, confidence, _BOUNDS[name]
            )
            numbers |= name_limits(name, share)
        return numbers | {
            "n": len(answered.rows),
            "untouched": len(group.rows) - len(answered.rows),
            "n_prompts": answered.n_prompts,
            "reason": mean.reason if len(answered.rows) else "nothing was altered",
        }

    table = fit_groups(changes, by, cluster, fit)
    # Controls are no hypotheses: they are read, not tested.
    table["p_holm"] = holm(np.where(table["null"], np.nan, table["p"]))
    return table


def _two_sided_p(mean: Estimate) -> FloatArray:
    """p of the test whether a mean is zero; without a spread all moved alike, or none
    at all.
    """
    p = estimate(mean.value, mean.se, np.maximum(mean.df, 1.0), 0.95).p
    return np.where(mean.se == 0, mean.value == 0, p)
