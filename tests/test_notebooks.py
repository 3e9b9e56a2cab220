"""Notebooks as they are kept: run in a fresh kernel, free of what differs between
machines, true in their prose.
"""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted([*FOLDER.glob("*.ipynb"), *FOLDER.glob("course/solutions/*.ipynb")])
"""All that are kept with outputs; what students open is tested in test_course.py."""
TRAINING = [
    path
    for path in NOTEBOOKS
    if re.search(r"course\.train\(|optimizer\.step", path.read_text("utf-8"))
]
DECIMAL = re.compile(r"(?<![\w.])(?<![A-Za-z]-)\d+\.(\d+)(?![\w]|\.\d)")
UNSTABLE = re.compile(r"<Axes|at 0x[0-9a-f]{6}|/home/|/root/|/work/|/tmp/|[A-Z]:\\\\")
CHECK = re.compile(r"course\.between\(|^assert ", re.MULTILINE)
BOUNDS = re.compile(r"\((-?[\d.]+), (-?[\d.]+), (-?[\d.]+)\)")
PRIVATE = re.compile(
    r"\._[a-z]|import _|from rmlab[\w.]* import _|%%time|Output\(|;\s*$", re.MULTILINE
)


def read(cells):
    """The source of cells."""
    return "\n".join("".join(cell["source"]) for cell in cells)


def show(cells):
    """The text that cells show."""
    texts = []
    for output in (output for cell in cells for output in cell["outputs"]):
        data = output.get("data", {})
        texts += [output.get("text", ""), data.get("text/plain", "")]
        texts.append(data.get("text/html", ""))
    return "\n".join(map("".join, texts))


def is_unchecked(cell):
    """Whether nbval leaves out what the cell shows, as it does for trained numbers."""
    return "nbval-ignore-output" in cell["metadata"].get("tags", [])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_ran_from_top_to_bottom_and_its_prose_is_true(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    source = read(code)
    prose = read([cell for cell in cells if cell["cell_type"] == "markdown"])
    outputs = [output for cell in code for output in cell["outputs"]]
    shown = show([cell for cell in code if not is_unchecked(cell)])
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert not [
        o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"
    ]
    assert not UNSTABLE.search(source + json.dumps(outputs))
    assert not PRIVATE.search(source)
    assert shown.strip(), "nothing that nbval compares"
    assert path.stat().st_size < 500_000
    # Lessons name each other and their figures by the names that these have.
    assert set(re.findall(r"`(\d\d_[a-z_0-9]+)`", prose + source)) <= {
        notebook.stem for notebook in NOTEBOOKS
    }
    for figure in re.findall(r"\.\./figures/([\w]+)", prose + source):
        assert figure[:2] == path.name[:2], figure
        assert (FOLDER.parent / "figures" / f"{figure}.png").is_file(), figure
    # Every decimal fraction in the prose stands in the code or in an output, there
    # perhaps with more digits.
    computed = {match[0]: len(match[1]) for match in DECIMAL.finditer(source + shown)}
    for number, n_digits in (
        (match[0], len(match[1])) for match in DECIMAL.finditer(prose)
    ):
        rounded = (
            f"{float(text):.{n_digits}f}"
            for text, digits in computed.items()
            if digits > n_digits
        )
        assert number in computed or number in rounded, number


@pytest.mark.parametrize("path", TRAINING, ids=lambda path: path.stem)
def test_trained_numbers_are_shown_unchecked_and_held_between_bounds(path):
    """One decimal of a trained model turned red on another processor."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    checks = [cell for cell in code if CHECK.search(read([cell]))]
    unchecked = [cell for cell in code if is_unchecked(cell)]
    for cell, after in pairwise(code):
        assert after in checks or cell not in unchecked, read([cell])
    assert code[-1] not in unchecked
    # Prose gives a bound with its side.
    bounds = BOUNDS.findall(read(checks))
    held = {
        f"{side} {number}"
        for low, near, high in bounds
        for side, number in (("above", low), ("about", near), ("below", high))
    }
    fixed = [cell for cell in code if cell not in checks]
    shown = show([cell for cell in fixed if cell not in unchecked])
    fixed = {match[0] for match in DECIMAL.finditer(read(fixed) + shown)}
    prose = read([cell for cell in cells if cell["cell_type"] == "markdown"])
    for match in DECIMAL.finditer(prose):
        said = re.findall(r"[a-z]+|-?[\d.]+", prose[: match.end()].lower())[-2:]
        assert match[0] in fixed or " ".join(said) in held, said
