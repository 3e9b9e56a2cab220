"""Write the labs that students open: the solved notebooks without their solutions and
outputs.

    python notebooks/course/make_labs.py            # the labs beside this file
    python notebooks/course/make_labs.py ../class   # a folder for students: labs and course.py, no solutions

In a cell tagged "exercise" the comment `# solution: task` stands before a solution. It
becomes a stub: after `# solution: name = task` the next line, otherwise everything up
to the next blank line.
"""

import json
import re
import shutil
import sys
from pathlib import Path

import nbformat

HERE = Path(__file__).parent
_MARK = re.compile(r"(\s*)# solution: (?:(\w+) = )?(.*)")
# of the solved notebooks
_IMPORT_PATH = (
    'import sys\n\nsys.path.insert(0, "..")  # course.py lies beside the labs\n'
)


def remove_solution(source: str) -> str:
    """Put `course.todo` in place of a cell's solution.

    Parameters
    ----------
    source : str
        Source of a code cell.

    Returns
    -------
    str
        The source that students see.
    """
    lines = source.split("\n")
    for first, line in enumerate(lines):
        if mark := _MARK.fullmatch(line):
            indent, name, task = mark.groups()
            stub = (
                f"{indent}{f'{name} = ' if name else ''}course.todo({json.dumps(task)})"
            )
            end = first + 2 if name else [*lines, ""].index("", first)
            return "\n".join([*lines[:first], stub, *lines[end:]])
    return source


def make_lab(solved: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Make the notebook that students open.

    Parameters
    ----------
    solved : NotebookNode
        A solved notebook.

    Returns
    -------
    NotebookNode
        The notebook without solutions and outputs.
    """
    lab = nbformat.from_dict(solved)
    for cell in lab.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
            cell.metadata.pop("execution", None)  # the times of the last run
            cell.source = cell.source.removeprefix(_IMPORT_PATH)
            if "exercise" in cell.metadata.get("tags", []):
                cell.source = remove_solution(cell.source)
                cell.metadata.tags = [
                    "exercise",
                    "raises-exception",
                ]  # "Run all cells" goes on behind a stub
    return lab


def write_labs(folder: Path) -> None:
    """Write all labs, and the module that they import, into a folder.

    Parameters
    ----------
    folder : Path
        Made where it does not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted((HERE / "solutions").glob("*.ipynb")):
        nbformat.write(make_lab(nbformat.read(path, as_version=4)), folder / path.name)
    if folder.resolve() != HERE.resolve():
        shutil.copy(HERE / "course.py", folder)


if __name__ == "__main__":
    write_labs(Path(sys.argv[1]) if sys.argv[1:] else HERE)
