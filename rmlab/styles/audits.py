"""Defects of a benchmark's texts: repeats, wrong styles, lengths that tell labels."""

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.estimation.difference import holm
from rmlab.styles.counts import features

Finding = dict[Hashable, object]

_ALPHA = 0.05
_LENGTH_NOTE = (
    "chosen {chosen_characters:.0f}, rejected {rejected_characters:.0f} characters "
    "({ratio:.2f}x), sign test p = {p:.1g}"
)
_PLACE = ["benchmark", "domain", "subset"]
_TYPES: dict[str, Any] = {
    "check": "str",
    "benchmark": "str",
    "domain": "str",
    "subset": "str",
    "label": tables.LABEL,
    "style": tables.STYLE,
    "other": "str",
    "n": "int64",
    "share": "float64",
    "low": "float64",
    "high": "float64",
    "chosen_characters": "float64",
    "rejected_characters": "float64",
    "ids": "object",
    "note": "str",
}


def audit(responses: pd.DataFrame) -> pd.DataFrame:
    """Look for defects in a benchmark's texts.

    Checks:

    - `same_text_across_styles`: prompts with the same text in two styles (slots, where
      there are no styles) of one label; `other` is the second style. share: of the
      prompts of the subset.
    - `chosen_equals_rejected`: prompts with one text on both sides; style of the
      chosen, `other` of the rejected.
    - `markdown_in_plain`: concise and plain answers with at least one mark (see
      `rmlab.styles.features`). share: of the answers.
    - `no_markdown`: markdown answers without any mark.
    - `same_prompt`: prompts whose text stands under another id, too; `other` names the
      first one's subset.
    - `length_tells_label`: prompts on which the chosen or the rejected answer of one
      style is systematically the longer one: two-sided sign test over prompts (equal
      lengths left out), Holm-adjusted over all places of the table, p < 0.05. n:
      prompts compared; share: of the n, those with the longer chosen answer, with its
      Wilson interval at 95 % (low, high); then the mean characters of each side.
      Several answers of one style and label are averaged within the prompt.

    Parameters
    ----------
    responses : DataFrame
        A table of responses, of any benchmark; most checks compare its styles.

    Returns
    -------
    DataFrame
        One row per kind of finding and place, none for a clean table. Columns:

        - check, and its place: benchmark, domain, subset, label, style, other
        - n, share: how many prompts or answers
        - low, high, chosen_characters, rejected_characters: of `length_tells_label`
        - ids: list of the prompts' ids
        - note

    References
    ----------
    RM-Bench: arXiv 2410.16184.
    """
    frame = tables.check_responses(responses)[tables.RESPONSES]
    counts = features(frame)[["characters", "markdown"]]
    frame = pd.concat([frame, counts], axis=1)
    frame["response"] = frame["response"].map(repr)  # a text, a message, or steps
    frame["n_prompts"] = frame.groupby(_PLACE)["id"].transform("nunique")
    findings = [
        *_find_same_texts(frame),
        *_find_unexpected_styles(frame),
        *_find_same_prompts(frame),
        *_find_telling_lengths(frame),
    ]
    table = pd.DataFrame(findings, columns=list(_TYPES)).astype(_TYPES)
    return table.fillna({"other": ""})


def _find_same_texts(frame: pd.DataFrame) -> Iterator[Finding]:
    same_text = [*tables.PROMPT, "response"]
    texts = frame[frame.duplicated(same_text, keep=False)]
    slots = "slot " + texts["slot"].astype("str")
    styles = texts["style"].astype("object")
    names = styles.where(styles.notna(), slots)
    texts = texts.assign(row=texts.index, name=names)

    # Every answer beside each answer of its prompt with the same text.
    others = texts[[*same_text, "label", "row", "name"]]
    others = others.rename(columns={"name": "other"})
    twins = texts.merge(others, on=same_text, suffixes=("", "_2"))

    same_label = twins["label"] == twins["label_2"]
    repeats = twins[same_label & (twins["row"] < twins["row_2"])]
    place = [*_PLACE, "label", "style", "name", "other"]
    note = "{name} and {other} are the same text"
    yield from _describe("same_text_across_styles", repeats, place, note)

    across = twins[~same_label & (twins["label"] == "chosen")]
    place = [*_PLACE, "style", "name", "other"]
    note = "the chosen {name} is the rejected {other}: no score can tell them apart"
    yield from _describe("chosen_equals_rejected", across, place, note)


def _find_unexpected_styles(frame: pd.DataFrame) -> Iterator[Finding]:
    place = [*_PLACE, "label", "style"]
    n_answers = frame.groupby(place, observed=True)["id"].transform("size")
    frame = frame.assign(n_answers=n_answers)
    has_style = frame["style"].notna()
    has_marks = frame["markdown"] > 0
    is_markdown = frame["style"] == "markdown"

    plainer = frame[has_style & has_marks & ~is_markdown]
    yield from _describe("markdown_in_plain", plainer, place, "has Markdown marks")

    markless = frame[is_markdown & ~has_marks]
    yield from _describe("no_markdown", markless, place, "no mark of any kind")


def _find_same_prompts(frame: pd.DataFrame) -> Iterator[Finding]:
    prompts = frame.drop_duplicates(tables.PROMPT)
    texts = prompts["prompt"].map(repr)  # text, or a list of messages
    by_text = prompts.groupby(["benchmark", texts], sort=False)
    prompts = prompts.assign(
        other=by_text["subset"].transform("first"),
        n_ids=by_text["id"].transform("size"),
    )
    repeats = prompts[prompts["n_ids"] > 1]
    note = "the text stands under another id, too"
    yield from _describe("same_prompt", repeats, [*_PLACE, "other"], note)


def _find_telling_lengths(frame: pd.DataFrame) -> list[Finding]:
    from scipy.stats import binomtest
    from statsmodels.stats.proportion import proportion_confint

    places = _compare_lengths(frame)
    if places.empty:
        return []
    p_values = []
    for n_longer, n_unequal in zip(places["longer"], places["unequal"], strict=True):
        p_values.append(binomtest(n_longer, max(n_unequal, 1)).pvalue)
    low, high = proportion_confint(places["longer"], places["n"], method="wilson")
    places["check"] = "length_tells_label"
    places["share"] = places["longer"] / places["n"]
    places["low"] = low
    places["high"] = high
    places["p"] = holm(np.array(p_values))
    places["ratio"] = places["chosen_characters"] / places["rejected_characters"]

    findings = places[places["p"] < _ALPHA].to_dict("records")
    for finding in findings:
        finding["note"] = _LENGTH_NOTE.format_map(finding)
    return findings


def _compare_lengths(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per place and style: its prompts, and in how many the chosen is longer.

    Answers of one style and label are averaged within the prompt.
    """
    place = [*_PLACE, "style"]
    labels = frame["label"].astype("str")
    by_label = frame.groupby([*place, "id", labels], observed=True, dropna=False)
    lengths = by_label["characters"].mean().unstack("label")
    lengths = lengths.reindex(columns=list(tables.LABELS)).dropna()
    prompts = pd.DataFrame(
        {
            "chosen": lengths["chosen"],
            "rejected": lengths["rejected"],
            "longer": lengths["chosen"] > lengths["rejected"],
            "unequal": lengths["chosen"] != lengths["rejected"],
        }
    )
    by_place = prompts.reset_index().groupby(place, observed=True, dropna=False)
    return by_place.agg(
        n=("id", "size"),
        longer=("longer", "sum"),
        unequal=("unequal", "sum"),
        ids=("id", list),
        chosen_characters=("chosen", "mean"),
        rejected_characters=("rejected", "mean"),
    ).reset_index()


def _describe(
    check: str, rows: pd.DataFrame, place: list[str], note: str
) -> Iterator[Finding]:
    """One finding per group of rows.

    Rows with `n_answers` are counted in answers, others in prompts.
    """
    for values, group in rows.groupby(place, observed=True, dropna=False):
        first = group.iloc[0]
        ids = group["id"].drop_duplicates().tolist()
        if "n_answers" in group:
            n = len(group)
            share = n / first["n_answers"]
        else:
            n = len(ids)
            share = n / first["n_prompts"]

        finding: Finding = {"check": check, "n": n, "share": share, "ids": ids}
        finding |= dict(zip(place, values, strict=True))
        finding["note"] = note.format_map(first)
        yield finding
