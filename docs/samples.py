"""The code on a page, for the gallery and for the tests that run every page.

    python docs/samples.py docs/how_to/ensemble.md    # writes the outputs again

A block of text right below a block of Python is its output. Pages that name a server, a
benchmark or a file of the reader's do not run here: their outputs are written by hand,
and compared by the tests, which have stand-ins. A block that cannot run without a
network or a special machine has a comment with the reason on the line before it:
`<!-- not run: needs a Triton server -->`.
"""

import ast
import contextlib
import io
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rmlab.report.formats import ShownTable

_PART = re.compile(
    r"^## (?P<heading>[^\n]+)$"
    r"|^```\{literalinclude\} (?P<file>\S+\.py)$"
    r"|(?:^<!-- not run: (?P<reason>[^\n]+) -->\n)?^```python\n(?P<code>.*?)^```$"
    r"(?:\n\n^```text\n(?P<output>.*?)\n```$)?",
    re.MULTILINE | re.DOTALL,
)
_SHOWN = (pd.DataFrame, pd.Series, ShownTable, str, float)
_PRINT = ("display.width", 88, "display.max_columns", 7, "display.precision", 3)


@dataclass(frozen=True)
class Sample:
    """A block of Python: the section and the line that it stands in, why it is not run,
    if it is not, and the output that stands below it.
    """

    section: str
    line: int
    code: str
    reason: str | None
    output: str | None = None


def samples(page: Path) -> list[Sample]:
    """The blocks of a page, in its order."""
    text, section, found = page.read_text(encoding="utf-8"), "", []
    for part in _PART.finditer(text):
        if part["heading"]:
            section = part["heading"].strip()
            continue
        code = (
            (page.parent / part["file"]).read_text(encoding="utf-8")
            if part["file"]
            else part["code"]
        )
        line = text.count("\n", 0, part.start()) + 1
        found.append(Sample(section, line, code, part["reason"], part["output"]))
    return found


def run(page: Path, sample: Sample, names: dict[str, object]) -> object:
    """Run one block in `names`, and return the value of its last line; errors name the
    page and the line of the page.
    """
    body = ast.parse("\n" * sample.line + sample.code, str(page))
    last = body.body.pop() if isinstance(body.body[-1], ast.Expr) else None
    exec(compile(body, str(page), "exec"), names)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), str(page), "eval"), names)


def output(page: Path, sample: Sample, names: dict[str, object]) -> str:
    """What one block prints, and its last line where that is a table or a text."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pd.option_context(*_PRINT):
        value = run(page, sample, names)
        values = value if isinstance(value, list) else [value]
        if all(isinstance(part, _SHOWN) for part in values):
            print(*values, sep="\n")
    lines = [line.rstrip() for line in printed.getvalue().splitlines()]
    return "\n".join(lines).rstrip()


def write_outputs(page: Path) -> None:
    """Run a page in an empty folder, and write every output below its block."""
    text = page.read_text(encoding="utf-8")
    names: dict[str, object] = {}
    outputs = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for sample in samples(page):
            shown = "" if sample.reason else output(page, sample, names)
            outputs.append(f"\n\n```text\n{shown}\n```" if shown else "")

    waiting = iter(outputs)

    def replace(part: re.Match[str]) -> str:
        if part["heading"]:
            return part[0]
        block = part[0]
        if part["output"] is not None:
            block = block[: block.rindex("\n\n```text\n")]
        return block + next(waiting)

    page.write_text(_PART.sub(replace, text), encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        write_outputs(Path(name).resolve())
