"""Tables under results/ that are made in several runs: new rows replace those of the same setting, the others stay."""

from pathlib import Path

import pandas as pd


def keep(made: pd.DataFrame, path: Path, setting: list[str]) -> None:
    """Write the rows to a file of results, in place of those that name the same setting."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        before = pd.read_csv(path)
        named = [frame[setting].astype("str").agg("\n".join, axis=1) for frame in (before, made)]
        made = pd.concat([before[~named[0].isin(set(named[1]))], made], ignore_index=True)
    made.to_csv(path, index=False)
