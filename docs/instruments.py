"""The tables of the page on planted preferences, measured by performance/planted.py."""

from pathlib import Path

import pandas as pd
from scipy.stats import t

import rmlab

RESULTS = Path(__file__).parents[1] / "performance" / "results"
MEASURE = ("probe", "style_effects", "exchange_rate")


def tables() -> dict[str, str]:
    """`measured`, `corrected` and `seeds` as Markdown."""
    table = pd.read_csv(RESULTS / "planted.csv")
    return {
        "measured": _measured(table),
        "corrected": _corrected(table),
        "seeds": _seeds(),
    }


def _measured(table: pd.DataFrame) -> str:
    """A row per measure and preference: how many intervals hold the planted value, and
    how many detect each weight.
    """
    weights = sorted(table["weight"].unique())
    lines = [
        "| measure | preference for | hold it | "
        + " | ".join(f"detect {w:g}" for w in weights)
        + " | wrong sign |"
    ]
    lines.append("|---" * (len(weights) + 4) + "|")
    for (name, dial), rows in table[table["instrument"].isin(MEASURE)].groupby(
        ["instrument", "dial"], sort=False
    ):
        seen = " | ".join(
            f"{100 * share:.0f}" for share in rows.sort_values("weight")["detected"]
        )
        held = f"{100 * rows['covered'].mean():.1f}"
        wrong = f"{100 * rows['wrong_sign'].max():.0f}"
        lines.append(f"| `{name}` | {dial} | {held} | {seen} | {wrong} |")
    return "\n".join(lines)


def _corrected(table: pd.DataFrame) -> str:
    """A row per correction, preference and weight: the number before and after, and how
    many intervals hold it.
    """
    lines = [
        "| correction | preference for | weight | planted | before | after | hold it |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in (
        table[~table["instrument"].isin(MEASURE)]
        .sort_values(["instrument", "dial"], kind="stable")
        .itertuples()
    ):
        numbers = f"{row.planted:.2f} | {row.before:.2f} | {row.found:.2f}"
        covered = f"{100 * row.covered:.0f}"
        name, *note = row.instrument.split(", ")
        correction = ", ".join([f"`{name}`", *note])
        setting = f"{correction} | {row.dial} | {row.weight:g}"
        lines.append(f"| {setting} | {numbers} | {covered} |")
    return "\n".join(lines).replace("-0.00", "0.00")


def _seeds() -> str:
    """A row per position of the dial: means over training seeds, and the interval of
    the gap.
    """
    lines = [
        "| dial | trainings | easy | normal | hard | gap | 95 % interval |",
        "|---|---|---|---|---|---|---|",
    ]
    for dial, rows in rmlab.papers.results("toy-dial").groupby("dial"):
        easy, normal, hard, gap = rows[["easy", "normal", "hard", "gap"]].mean()
        half = rows["gap"].sem() * t.ppf(0.975, len(rows) - 1)
        levels = f"{easy:.2f} | {normal:.2f} | {hard:.2f}"
        interval = f"{gap - half:.3f} to {gap + half:.3f}"
        lines.append(f"| {dial:g} | {len(rows)} | {levels} | {gap:.3f} | {interval} |")
    return "\n".join(lines)
