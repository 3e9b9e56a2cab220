"""Defects of a benchmark's texts: repeats, styles that are not what they say, lengths
that tell the label.
"""

import json
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import pandas as pd

from rmlab import tables
from rmlab.styles.counts import MARKS, features

Finding = dict[Hashable, object]

_LENGTH_NOTE = (
    "chosen {chosen_characters:.0f}, rejected {rejected_characters:.0f} characters ({ratio:.2f}x), "
    "sign test p = {p:.1g}"
)
_PLACE = ["benchmark", "domain", "subset"]
_TYPES: dict[str, Any] = {
    **dict.fromkeys(["check", *_PLACE], "str"),
    "label": tables.LABEL,
    "style": tables.STYLE,
    "other": "str",
    "n": "int64",
    **dict.fromkeys(
        ["share", "low", "high", "chosen_characters", "rejected_characters"], "float64"
    ),
    "ids": "object",
    "note": "str",
}


def audit(responses: pd.DataFrame, *, alpha: float = 0.05) -> pd.DataFrame:
    """Look for defects in a benchmark's texts.

    Checks:

    - `same_text_across_styles`: prompts with the same text in two styles (slots, where
      there are no styles) of one label; `other` is the second style. share: of the
      prompts of the subset.
    - `chosen_equals_rejected`: prompts with one text on both sides; style of the
      chosen, `other` of the rejected.
    - `markdown_in_plain`: concise and plain answers with at least one mark (see
      `features_of`). share: of the answers.
    - `no_markdown`: markdown answers without any mark.
    - `same_prompt`: prompts whose text stands under another id, too; `other` names the
      first one's subset.
    - `length_tells_label`: prompts on which the chosen or the rejected answer of one
      style is systematically the longer one: two-sided sign test over prompts (equal
      lengths left out), Holm-adjusted over all places of the table, below `alpha`. n:
      prompts compared; share: of the n, those with the longer chosen answer, with its
      Wilson interval at 95 % (low, high); then the mean characters of each side.
      Several answers of one style and label are averaged within the prompt.

    Parameters
    ----------
    responses : DataFrame
        A table of responses, of any benchmark; most checks compare its styles.
    alpha : float
        The level of `length_tells_label`.

    Returns
    -------
    DataFrame
        One row per kind of finding and place, none for a clean table: check, benchmark,
        domain, subset, label, style, other, n, share, low, high, chosen_characters,
        rejected_characters, ids (list of the prompts' ids), note.

    References
    ----------
    RM-Bench: arXiv 2410.16184.
    """
    frame = tables.check_responses(responses)[[*tables.RESPONSES]]
    frame = frame.assign(**features(frame)[["characters", "markdown", *MARKS]])
    frame["n_prompts"] = frame.groupby(_PLACE)["id"].transform("nunique")
    findings = [
        *_find_same_texts(frame),
        *_find_unexpected_styles(frame),
        *_find_same_prompts(frame),
    ]
    findings += _find_telling_lengths(frame, alpha)
    return (
        pd.DataFrame(findings, columns=list(_TYPES))
        .astype(_TYPES)
        .fillna({"other": ""})
    )


def _find_same_texts(frame: pd.DataFrame) -> Iterator[Finding]:
    names = (
        frame["style"]
        .astype("object")
        .where(frame["style"].notna(), "slot " + frame["slot"].astype("str"))
    )
    texts = frame[[*tables.KEY, "subset", "style", "n_prompts", "response"]].assign(
        row=frame.index, name=names
    )
    key = [*tables.PROMPT, "response"]
    texts = texts[texts.duplicated(key, keep=False)]
    seconds = texts[[*key, "label", "row", "name"]].rename(columns={"name": "other"})
    twins = texts.merge(seconds, on=key, suffixes=("", "_2"))
    same_label = twins["label"] == twins["label_2"]
    places = [*_PLACE, "label", "style", "name", "other"]
    repeats = twins[same_label & (twins["row"] < twins["row_2"])]
    yield from _describe(
        "same_text_across_styles",
        repeats,
        places,
        "{name} and {other} are the same text",
    )
    places.remove("label")
    across = twins[~same_label & (twins["label"] == "chosen")]
    note = "the chosen {name} is the rejected {other}: no score can tell them apart"
    yield from _describe("chosen_equals_rejected", across, places, note)


def _find_unexpected_styles(frame: pd.DataFrame) -> Iterator[Finding]:
    groups = [*_PLACE, "label", "style"]
    frame = frame.assign(
        n_answers=frame.groupby(groups, observed=True)["id"].transform("size")
    )
    has_marks, is_markdown = frame["markdown"] > 0, frame["style"] == "markdown"

    def count_marks(group: pd.DataFrame) -> str:
        counts = (
            (group[list(MARKS)] > 0).sum().sort_values(ascending=False, kind="stable")
        )
        return "answers with " + ", ".join(
            f"{kind} {n}" for kind, n in counts.items() if n
        )

    plainer = frame[has_marks & ~is_markdown & frame["style"].notna()]
    yield from _describe("markdown_in_plain", plainer, groups, count_marks)
    yield from _describe(
        "no_markdown", frame[~has_marks & is_markdown], groups, "no mark of any kind"
    )


def _find_same_prompts(frame: pd.DataFrame) -> Iterator[Finding]:
    prompts = frame.drop_duplicates(tables.PROMPT)
    texts = [
        prompt if isinstance(prompt, str) else json.dumps(prompt, sort_keys=True)
        for prompt in prompts["prompt"]
    ]
    by_text = prompts.groupby(
        ["benchmark", pd.Series(texts, prompts.index)], sort=False
    )
    prompts = prompts.assign(
        other=by_text["subset"].transform("first"),
        twins=by_text["id"].transform(", ".join),
    )
    repeats = prompts[by_text["id"].transform("size") > 1]
    first_ids = repeats.groupby([*_PLACE, "other"])["twins"].transform(
        lambda twins: "; ".join(twins.unique()[:5])
    )
    repeats = repeats.assign(first_ids=first_ids)
    yield from _describe(
        "same_prompt", repeats, [*_PLACE, "other"], "one text under the ids {first_ids}"
    )


def _find_telling_lengths(frame: pd.DataFrame, alpha: float) -> list[Finding]:
    from scipy.stats import binomtest
    from statsmodels.stats.multitest import multipletests
    from statsmodels.stats.proportion import proportion_confint

    groups = [*_PLACE, "style"]
    by_label = frame.groupby(
        [*groups, "id", frame["label"].astype("str")], observed=True, dropna=False
    )
    means = (
        by_label["characters"]
        .mean()
        .unstack("label")
        .reindex(columns=list(tables.LABELS))
        .dropna()
    )
    means = means.assign(
        longer=means["chosen"] > means["rejected"],
        unequal=means["chosen"] != means["rejected"],
    )
    columns = {
        "n": ("id", "size"),
        "longer": ("longer", "sum"),
        "unequal": ("unequal", "sum"),
        "ids": ("id", list),
    }
    columns |= {f"{label}_characters": (label, "mean") for label in tables.LABELS}
    places = (
        means.reset_index()
        .groupby(groups, observed=True, dropna=False)
        .agg(**columns)
        .reset_index()
    )
    if places.empty:
        return []
    tests = [
        binomtest(n, max(total, 1))
        for n, total in zip(places["longer"], places["unequal"], strict=True)
    ]
    low, high = proportion_confint(places["longer"], places["n"], method="wilson")
    places = places.assign(
        check="length_tells_label",
        share=places["longer"] / places["n"],
        low=low,
        high=high,
    )
    places["p"] = multipletests([test.pvalue for test in tests], method="holm")[1]
    places["ratio"] = places["chosen_characters"] / places["rejected_characters"]
    findings = places[places["p"] < alpha].to_dict("records")
    return [
        finding | {"note": _LENGTH_NOTE.format_map(finding)} for finding in findings
    ]


def _describe(
    check: str,
    rows: pd.DataFrame,
    by: list[str],
    note: str | Callable[[pd.DataFrame], str],
) -> Iterator[Finding]:
    """One finding per group of rows: counted in answers where these have `n_answers`,
    else in prompts.
    """
    for place, group in rows.groupby(by, observed=True, dropna=False):
        ids = list(dict.fromkeys(group["id"]))
        n, total = (
            (len(group), "n_answers")
            if "n_answers" in group
            else (len(ids), "n_prompts")
        )
        message = (
            note.format_map(group.iloc[0]) if isinstance(note, str) else note(group)
        )
        counts: Finding = {
            "n": n,
            "share": n / group[total].iloc[0],
            "ids": ids,
            "note": message,
        }
        yield {"check": check, **dict(zip(by, place, strict=True)), **counts}
