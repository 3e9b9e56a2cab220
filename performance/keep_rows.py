"""Tables under results/ that come from several runs: new rows replace those of the same
setting, the others stay.
"""

from pathlib import Path

import pandas as pd


def keep_rows(rows: pd.DataFrame, path: Path, setting: list[str]) -> None:
    """Write rows to a file of results, in place of those that name the same setting."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        before = pd.read_csv(path)
        names = [
            frame[setting].astype("str").agg("\n".join, axis=1)
            for frame in (before, rows)
        ]
        rows = pd.concat(
            [before[~names[0].isin(set(names[1]))], rows], ignore_index=True
        )
    rows.to_csv(path, index=False)
