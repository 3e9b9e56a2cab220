"""The command that shows the main job."""

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from rmlab.cli.terminal import say

__all__ = ["demo"]


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the figures.")] = Path("figures"),
) -> None:
    """Run the main job on the bundled data: scores, table, figures. Needs no network and no model.

    \b
    Example:
      rmlab demo --out figures
    """
    from rmlab.demo import demo as run

    table, files = run(out)
    scores = [*table.loc[:, "chat":"overall"], "low", "high"]
    shown = pd.concat([table["model"], table[scores].map("{:.2f}".format)], axis=1).assign(ties=table["n_ties"])
    say("Share of comparisons that the right answer wins, over 64 prompts.")
    say("The 95 % interval of overall is from low to high. A tie is not won.\n")
    say(shown.to_string(index=False))
    say("\nFigures, each with its numbers beside it:")
    for file in files:
        say(f"  {file}")
    say("\nNext: open notebooks/00_quickstart.ipynb (make lab), or score a model:")
    say("  rmlab score --help")
