"""Show which exercises of the course are solved in a folder of notebooks, as one table.

    python notebooks/course/collect_answers.py submissions/ [points.csv]

A notebook counts as it was saved: the table reads the outputs of the `course.check`
cells and runs nothing.
"""

import re
import sys
from pathlib import Path

import nbformat
import pandas as pd

_CHECK = re.compile(r"""course\.check\(\s*["'](\d\.\d)""")
_VERDICT = re.compile(r"(\d\.\d): (right|not yet)\.")


def _read_verdicts(cells: list[nbformat.NotebookNode]) -> dict[str, str]:
    """What `course.check` said, exercise by exercise, in the outputs of run cells."""
    verdicts: dict[str, str] = {}
    for cell in cells:
        if cell.cell_type != "code":
            continue
        checked = _CHECK.findall(cell.source)
        for output in cell.outputs:
            if output.output_type != "execute_result":
                continue
            verdict = _VERDICT.match(output.data.get("text/plain", ""))
            if verdict and verdict[1] in checked:
                verdicts[verdict[1]] = verdict[2]
    return verdicts


def collect_answers(folder: str | Path) -> pd.DataFrame:
    """Read what `course.check` said in each notebook.

    Parameters
    ----------
    folder : str or Path
        Notebooks, also in subfolders. A file that is no notebook is named on stderr and
        left out.

    Returns
    -------
    DataFrame
        One row per notebook, one column per exercise: right, not yet, or empty where
        the cell was not run; `points` counts the right ones, and `total` those of all
        notebooks in the same subfolder, which is a student's.

    Raises
    ------
    FileNotFoundError
        Where the folder holds no notebook.
    """
    folder = Path(folder)
    verdicts = {}
    for path in sorted(folder.rglob("*.ipynb")):
        if ".ipynb_checkpoints" in path.parts:
            continue
        try:
            cells = nbformat.read(path, as_version=4).cells
        except Exception as error:  # nbformat raises many kinds
            print(
                f"{path}: left out, not a notebook ({type(error).__name__})",
                file=sys.stderr,
            )
            continue
        verdicts[str(path.relative_to(folder))] = _read_verdicts(cells)
    if not verdicts:
        raise FileNotFoundError(
            f"{folder}: no notebooks here. Give the folder of the students' notebooks."
        )

    table = pd.DataFrame.from_dict(verdicts, orient="index").sort_index(axis=1)
    points = (table == "right").sum(axis=1)
    student = [
        str(Path(name).parent) if Path(name).parent.name else name
        for name in table.index
    ]
    total = points.groupby(student).transform("sum")
    return table.assign(points=points, total=total).fillna("").rename_axis("notebook")


if __name__ == "__main__":
    answers = collect_answers(sys.argv[1])
    print(answers.to_string())
    if sys.argv[2:]:
        answers.to_csv(sys.argv[2])
