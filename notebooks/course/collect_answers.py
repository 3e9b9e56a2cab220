"""Show which exercises of the course are solved in a folder of notebooks, as one table.

    python notebooks/course/collect_answers.py submissions/ [points.csv]

A notebook counts as it was saved: the table reads the outputs of the `course.check` cells and runs nothing.
"""

import re
import sys
from pathlib import Path

import nbformat
import pandas as pd

_VERDICT = re.compile(r"(\d\.\d): (right|not yet)\.")


def collect_answers(folder: str | Path) -> pd.DataFrame:
    """Read what `course.check` said in each notebook.

    Parameters
    ----------
    folder : str or Path
        Notebooks, also in subfolders.

    Returns
    -------
    DataFrame
        One row per notebook, one column per exercise: right, not yet, or empty where the cell was not run; `points`
        counts the right ones.
    """
    verdicts = {
        str(path.relative_to(folder)): dict(_VERDICT.findall(str(nbformat.read(path, as_version=4).cells)))
        for path in sorted(Path(folder).rglob("*.ipynb"))
    }
    table = pd.DataFrame.from_dict(verdicts, orient="index").sort_index(axis=1)
    return table.assign(points=(table == "right").sum(axis=1)).fillna("").rename_axis("notebook")


if __name__ == "__main__":
    answers = collect_answers(sys.argv[1])
    print(answers.to_string())
    if sys.argv[2:]:
        answers.to_csv(sys.argv[2])
