"""How often the interval of an accuracy at equal length, or equal style, holds the
truth, and how often its row says that it disagrees with the pairs near equal length.

Planted scores on drawn lengths and on the texts of RM-Bench, where these are at hand:
preferences for length of six shapes, a style that is worth more on right answers than
on wrong ones. The truth is the probability of a win where lengths (or styles) are
equal. `disagrees`: share of draws in which the row says so.

    python performance/equal_length.py [--draws 2000] [--data ../shared/data] [--texts
    safety] [--preferences none]
        [--forms spline] [--out performance/results/equal_length.csv]
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path

import length_worlds as worlds
import numpy as np
import pandas as pd
from keep_rows import keep_rows
from scipy.special import ndtr

from rmlab import bias

BATCH = 100
EVERY = worlds.PREFERENCES + worlds.HELD_OUT
STYLES = ("concise", "plain", "markdown")
Row = dict[str, object]


def real_lengths(data: Path, name: str) -> np.ndarray:
    items = json.loads(
        (data / "rm-bench" / f"{name}_filtered.json").read_text(encoding="utf-8")
    )
    return np.array(
        [
            [len(text) for label in ("chosen", "rejected") for text in item[label]]
            for item in items
        ],
        float,
    )


def batches(draws: int) -> Iterator[int]:
    return (min(BATCH, draws - start) for start in range(0, draws, BATCH))


def held(table: pd.DataFrame, true: float) -> pd.DataFrame:
    inside = (table["low"] <= true) & (true <= table["high"])
    return pd.DataFrame(
        {
            "inside": inside,
            "width": table["high"] - table["low"],
            "off": table["controlled"] - true,
            "disagrees": table["reason"].str.contains("disagree"),
            "answered": table["low"].notna(),
        }
    )


def summary(parts: list[pd.DataFrame], **names: object) -> Row:
    all_of = pd.concat(parts)
    answered = all_of[all_of["answered"]]
    return names | {
        "share": answered["inside"].mean(),
        "width": answered["width"].mean(),
        "bias": answered["off"].mean(),
        "disagrees": all_of["disagrees"].mean(),
        "draws": len(answered),
        "no_interval": len(all_of) - len(answered),
    }


def length(
    name: str,
    lengths: Callable[[np.random.Generator], np.ndarray],
    draws: int,
    forms: dict,
    preferences: Sequence[str],
) -> Iterator[Row]:
    for preference in preferences:
        found: dict[str, list[pd.DataFrame]] = {form: [] for form in forms}
        rng = np.random.default_rng(len(name))
        for rows in batches(draws):
            of = lengths(rng)
            pairs, features = worlds.tables_of(
                worlds.margins(preference, of, rows, rng), of
            )
            for form, options in forms.items():
                found[form].append(
                    held(
                        bias.length_controlled(pairs, features, **options), worlds.TRUTH
                    )
                )
        for form, parts in found.items():
            yield summary(
                parts, what="equal length", texts=name, world=preference, form=form
            )


def style(n: int, draws: int) -> Iterator[Row]:
    """score = right + style * steps + more * right * steps; the truth is the accuracy
    where both styles are equal.
    """
    steps = np.arange(3)
    right, wrong = np.repeat(steps, 3), np.tile(steps, 3)
    for world, worth, more in (
        ("style", 0.8, 0.0),
        ("style x correctness", 0.6, 0.6),
        ("no style", 0.0, 0.0),
    ):
        skill = 0.6
        true = float(
            ndtr((skill + more * steps) / np.sqrt(1 + worlds.PROMPTS**2)).mean()
        )
        found: dict[str, list[pd.DataFrame]] = {"spline": [], "linear": []}
        rng = np.random.default_rng(7)
        for rows in batches(draws):
            score = worlds.NOISE * rng.standard_normal((rows, n, 6))
            margin = (
                score[..., right]
                - score[..., 3 + wrong]
                + skill
                + worth * (right - wrong)
                + more * right
            )
            margin = margin + worlds.PROMPTS * rng.standard_normal((rows, n, 1))
            pairs, _ = worlds.tables_of(margin, np.ones((n, 6)))
            for side in ("chosen", "rejected"):
                pairs[f"{side}_style"] = np.array(STYLES)[pairs[f"{side}_slot"]]
            for form, parts in found.items():
                parts.append(
                    held(
                        bias.style_controlled(pairs, controls="style", form=form), true
                    )
                )
        for form, parts in found.items():
            yield summary(
                parts,
                what="equal style",
                texts=f"{n} prompts of 9",
                world=world,
                form=form,
            )


TEXTS = ("chat", "code", "safety-refuse", "safety-response")
FORMS: dict[str, dict[str, str]] = {"spline": {}}


def rows(
    draws: int, data: Path, texts: str, preferences: Sequence[str], names: Sequence[str]
) -> Iterator[Row]:
    forms = {name: FORMS[name] for name in names}
    lengths = {
        f"{n:,} prompts, drawn": lambda rng, n=n: worlds.drawn_lengths(n, rng)
        for n in (16, 60, 400, 1327)
    }
    if data.is_dir():
        real = {name: real_lengths(data, name) for name in TEXTS}
        lengths |= {
            f"RM-Bench {name}": lambda rng, of=of: of for name, of in real.items()
        }
    for name, of in lengths.items():
        if texts in name:
            yield from length(name, of, draws, forms, preferences)
    for n in (130, 441):
        if texts in f"{n} prompts of 9" and "spline" in names:
            yield from style(n, draws)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument(
        "--texts", default="", help="only texts whose name holds this, such as 'safety'"
    )
    parser.add_argument("--preferences", nargs="+", default=EVERY, choices=EVERY)
    parser.add_argument("--forms", nargs="+", default=list(FORMS), choices=list(FORMS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    start, made = time.perf_counter(), []
    for row in rows(
        options.draws, options.data, options.texts, options.preferences, options.forms
    ):
        made.append(row)
        print(
            "  ".join(
                f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()
            ),
            flush=True,
        )
    table = (
        pd.DataFrame(made)
        .round(4)
        .assign(date=date.today().isoformat(), machine="2 CPU cores, shared")
    )
    print(
        table.groupby(["form", "texts"])["share"]
        .agg(["mean", "min"])
        .round(3)
        .to_string()
    )
    print(f"{time.perf_counter() - start:.0f} s")
    if options.out:
        keep_rows(table, options.out, ["what", "texts", "world", "form"])


if __name__ == "__main__":
    main()
