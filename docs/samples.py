"""The code on a page, for the gallery and for the tests that run every page.

A block that cannot run without a network or a special machine has a comment with the
reason on the line before it: `<!-- not run: needs a Triton server -->`.
"""

import re
from dataclasses import dataclass
from pathlib import Path

_PART = re.compile(
    r"^## (?P<heading>[^\n]+)$"
    r"|^```\{literalinclude\} (?P<file>\S+\.py)$"
    r"|(?:^<!-- not run: (?P<reason>[^\n]+) -->\n)?^```python\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Sample:
    """A block of Python: the section and the line that it stands in, and why it is not
    run, if it is not.
    """

    section: str
    line: int
    code: str
    reason: str | None


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
        found.append(Sample(section, line, code, part["reason"]))
    return found


def run(page: Path, sample: Sample, names: dict[str, object]) -> None:
    """Run one block in `names`; errors name the page and the line of the page."""
    exec(compile("\n" * sample.line + sample.code, str(page), "exec"), names)
