"""Write the labs that students open: the solved notebooks without their solutions and outputs.

    python notebooks/course/make_labs.py

In a cell tagged "exercise" the comment `# solution: what to do` stands before a solution. It becomes a stub: after
`# solution: name = what` the next line, otherwise everything up to the next blank line.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat

HERE = Path(__file__).parent
_MARK = re.compile(r"(\s*)# solution: (?:(\w+) = )?(.*)")


def unsolved(source: str) -> str:
    """A cell's source with `toy.todo` where solutions stood."""
    kept: list[str] = []
    lines = iter(source.split("\n"))
    for line in lines:
        found = _MARK.fullmatch(line)
        if not found:
            kept.append(line)
            continue
        indent, name, task = found.groups()
        kept.append(f"{indent}{f'{name} = ' if name else ''}toy.todo({json.dumps(task)})")
        if name:
            next(lines)
        else:
            kept += _from_the_next_blank(lines)
    return "\n".join(kept)


def _from_the_next_blank(lines: Iterator[str]) -> list[str]:
    for line in lines:
        if not line:
            return [line]
    return []


def lab(solved: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook without solutions and outputs."""
    made = nbformat.from_dict(solved)
    for cell in made.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
            if "exercise" in cell.metadata.get("tags", []):
                cell.source = unsolved(cell.source)
    return made


if __name__ == "__main__":
    for path in sorted((HERE / "solutions").glob("*.ipynb")):
        nbformat.write(lab(nbformat.read(path, as_version=4)), HERE / path.name)
