"""What is wrong with a benchmark before any model is scored: repeated texts, mislabelled styles,
lengths that leak the label."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.styles.counts import MARKS, features

__all__ = ["audit"]

Place = dict[str, object]

_PLACE = ["benchmark", "domain", "subset"]
_TYPES: dict[str, Any] = {
    "check": "str",
    **dict.fromkeys(_PLACE, "str"),
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


def audit(responses: pd.DataFrame, *, alpha: float = 0.05) -> pd.DataFrame:
    """Look for defects in a benchmark's texts: one row per kind of finding and place; no rows where nothing is found.

    Columns: check, benchmark, domain, subset, label, style, other, n, share, low, high, chosen_characters,
    rejected_characters, ids (list of the prompts' ids), note. Checks:

    - `same_text_across_styles`: prompts with the same text in two styles (slots, where there are no styles) of one
      label; `other` is the second style. share: of the prompts there.
    - `chosen_equals_rejected`: prompts with one text on both sides; style of the chosen, `other` of the rejected.
    - `markdown_in_plain`: concise and plain answers with at least one mark (see `features_of`). share: of the answers.
    - `no_markdown`: markdown answers without any mark.
    - `same_prompt`: prompts whose text stands under another id, too; `other` names the first one's place.
    - `length_tells_label`: prompts on which the chosen or the rejected answer of one style is systematically the
      longer one: two-sided sign test over prompts (equal lengths left out), Holm-adjusted over all places of the
      table, below `alpha`. n: prompts compared; share: of the n, those with the longer chosen answer, with its
      Wilson interval at 95 % (low, high); then the mean characters of each side. Several answers of one style and
      label are averaged within the prompt.

    The benchmark is RM-Bench (arXiv 2410.16184) in the first place; any responses table works. Raises DataError for a
    bad table.
    """
    counted = features(responses)
    frame = tables.check_responses(responses)[[*tables.RESPONSES]].assign(
        characters=counted["characters"], markdown=counted["markdown"], **counted[list(MARKS)]
    )
    found = [
        *_same_texts(frame),
        *_unexpected_style(frame),
        *_same_prompts(frame),
        *_telling_lengths(frame, alpha),
    ]
    return pd.DataFrame(found, columns=list(_TYPES)).astype(_TYPES)


def _same_texts(frame: pd.DataFrame) -> Iterator[dict[str, object]]:
    key = [*tables.PROMPT, "text"]
    slim = frame[[*tables.KEY, "subset", "style"]].assign(text=pd.factorize(frame["response"])[0], row=frame.index)
    slim = slim[slim.duplicated(key, keep=False)].assign(name=_names(slim))
    both = slim.merge(slim, on=key, suffixes=("", "_2"))
    both = both[both["row"] < both["row_2"]]
    prompts = frame.drop_duplicates(tables.PROMPT).groupby(_PLACE).size()
    same_side = both["label"].astype("str") == both["label_2"].astype("str")
    groups = [*_PLACE, "label", "style", "name", "name_2"]
    for place, group in _grouped(both[same_side], groups):
        first, second = place.pop("name"), place.pop("name_2")
        note = f"{first} and {second} are the same text"
        yield _finding("same_text_across_styles", place, group, prompts, other=second, note=note)
    across = _chosen_first(both[~same_side])
    for place, group in _grouped(across, [*_PLACE, "style", "name", "name_2"]):
        first, second = place.pop("name"), place.pop("name_2")
        note = f"the chosen {first} is the rejected {second}: no score can tell them apart"
        yield _finding("chosen_equals_rejected", place, group, prompts, other=second, note=note)


def _unexpected_style(frame: pd.DataFrame) -> Iterator[dict[str, object]]:
    groups = [*_PLACE, "label", "style"]
    answers = frame.groupby(groups, observed=True).size()
    marked = frame["markdown"] > 0
    markdown = frame["style"] == "markdown"
    for place, group in _grouped(frame[marked & ~markdown & frame["style"].notna()], groups):
        kinds = (group[list(MARKS)] > 0).sum().sort_values(ascending=False, kind="stable")
        note = "answers with " + ", ".join(f"{kind} {n}" for kind, n in kinds.items() if n)
        yield _finding("markdown_in_plain", place, group, answers, note=note)
    for place, group in _grouped(frame[~marked & markdown], groups):
        yield _finding("no_markdown", place, group, answers, note="no mark of any kind")


def _same_prompts(frame: pd.DataFrame) -> Iterator[dict[str, object]]:
    prompts = frame.drop_duplicates(tables.PROMPT)
    prompts = prompts.assign(
        text=[p if isinstance(p, str) else json.dumps(p, sort_keys=True) for p in prompts["prompt"]]
    )
    by_text = prompts.groupby(["benchmark", "text"], sort=False)
    prompts = prompts.assign(other=by_text["subset"].transform("first"), twins=by_text["id"].transform(", ".join))
    prompts = prompts[by_text["id"].transform("size") > 1]
    total = frame.drop_duplicates(tables.PROMPT).groupby(_PLACE).size()
    for place, group in _grouped(prompts, [*_PLACE, "other"]):
        other = place.pop("other")
        note = "one text under the ids " + "; ".join(group["twins"].unique()[:5])
        yield _finding("same_prompt", place, group, total, other=other, note=note)


def _telling_lengths(frame: pd.DataFrame, alpha: float) -> Iterator[dict[str, object]]:
    from scipy.stats import binomtest
    from statsmodels.stats.multitest import multipletests

    groups = [*_PLACE, "style"]
    label = frame["label"].astype("str")
    mean = frame.groupby([*groups, "id", label], observed=True, dropna=False)["characters"].mean().unstack("label")
    if mean.shape[1] < 2:
        return
    mean = mean.dropna().assign(longer=mean["chosen"] > mean["rejected"], equal=mean["chosen"] == mean["rejected"])
    places = list(_grouped(mean.reset_index(), groups))
    if not places:
        return
    tests = [binomtest(int(g["longer"].sum()), max(int((~g["equal"]).sum()), 1)) for _, g in places]
    # rmlab.stats has Holm's adjustment too, for families with missing p, in a layer above this one.
    adjusted = multipletests([test.pvalue for test in tests], method="holm")[1]
    for (place, group), p in zip(places, adjusted, strict=True):
        if p >= alpha:
            continue
        chosen, rejected = group["chosen"].mean(), group["rejected"].mean()
        longer = int(group["longer"].sum())
        interval = binomtest(longer, len(group)).proportion_ci(method="wilson")
        note = (
            f"chosen {chosen:.0f}, rejected {rejected:.0f} characters ({chosen / rejected:.2f}x), sign test p = {p:.1g}"
        )
        yield {
            "check": "length_tells_label", **place, "other": "", "n": len(group), "share": longer / len(group),
            "low": interval.low, "high": interval.high, "chosen_characters": chosen, "rejected_characters": rejected,
            "ids": list(group["id"]), "note": note,
        }  # fmt: skip


def _finding(
    check: str, place: Place, group: pd.DataFrame, totals: pd.Series, *, other: object = "", note: str = ""
) -> dict[str, object]:
    """One row of the result; `totals` is indexed by the first of the place's columns."""
    where = tuple(place[str(name)] for name in totals.index.names)
    ids = list(dict.fromkeys(group["id"]))
    n = len(ids) if totals.index.names == _PLACE else len(group)
    return {
        "check": check,
        **place,
        "other": other,
        "n": n,
        "share": n / totals.to_dict()[where],
        "ids": ids,
        "note": note,
    }


def _grouped(frame: pd.DataFrame, by: list[str]) -> Iterator[tuple[Place, pd.DataFrame]]:
    for values, group in frame.groupby(by, observed=True, dropna=False):
        yield dict(zip(by, values, strict=True)), group


def _names(frame: pd.DataFrame) -> pd.Series:
    """How a finding calls an answer: by its style, or by its slot where there is none."""
    return frame["style"].astype("object").where(frame["style"].notna(), "slot " + frame["slot"].astype("str"))


def _chosen_first(both: pd.DataFrame) -> pd.DataFrame:
    swap = (both["label"] == "rejected").to_numpy()
    names = [c for c in both.columns if f"{c}_2" in both.columns]
    swapped = {c: np.where(swap, both[f"{c}_2"], both[c]) for c in names}
    swapped |= {f"{c}_2": np.where(swap, both[c], both[f"{c}_2"]) for c in names}
    return both.assign(**swapped)
