"""Notebooks as they are kept: run in a fresh kernel, free of what differs between machines, true in their prose."""

import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted([*FOLDER.glob("*.ipynb"), *FOLDER.glob("course/solutions/*.ipynb")])
"""All that are kept with outputs; what students open is tested in test_course.py."""
DECIMAL = re.compile(r"(?<![\w.])(?<![A-Za-z]-)\d+\.\d+(?![\w]|\.\d)")
UNSTABLE = re.compile(r"<Axes|at 0x[0-9a-f]{6}|/home/|/root/|/work/|/tmp/|[A-Z]:\\\\")
PRIVATE = re.compile(r"\._[a-z]|import _|from rmlab[\w.]* import _|%%time|Output\(|;\s*$", re.MULTILINE)


class Notebook:
    """The cells of a notebook by kind, and its outputs."""

    def __init__(self, path):
        self.path = path
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        self.code = [cell for cell in cells if cell["cell_type"] == "code"]
        self.outputs = [output for cell in self.code for output in cell["outputs"]]
        self.source = "\n".join("".join(cell["source"]) for cell in self.code)
        self.prose = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        texts = [output.get("text", "") for output in self.outputs]
        texts += [
            output.get("data", {}).get(kind, "") for output in self.outputs for kind in ("text/plain", "text/html")
        ]
        self.shown = "\n".join(map("".join, texts))


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    return Notebook(request.param)


def test_a_notebook_was_run_top_to_bottom_and_is_the_same_everywhere(notebook):
    assert [cell["execution_count"] for cell in notebook.code] == list(range(1, len(notebook.code) + 1))
    assert not [o for o in notebook.outputs if o["output_type"] == "error" or o.get("name") == "stderr"]
    assert not UNSTABLE.search(notebook.source + json.dumps(notebook.outputs))
    assert not PRIVATE.search(notebook.source)
    assert notebook.shown.strip(), "nothing that nbval compares"
    assert notebook.path.stat().st_size < 500_000


def test_named_files_are_there(notebook):
    """Lessons name each other and their figures by the names that these have."""
    text = notebook.prose + notebook.source
    assert set(re.findall(r"`(\d\d_[a-z_0-9]+)`", text)) <= {path.stem for path in NOTEBOOKS}
    for figure in re.findall(r"\.\./figures/([\w]+)", text):
        assert figure[:2] == notebook.path.name[:2], figure
        assert (FOLDER.parent / "figures" / f"{figure}.png").is_file(), figure


def test_numbers_in_prose_are_those_of_the_cells(notebook):
    """Every decimal fraction in a lesson's prose stands in its code or its outputs, there perhaps with more digits."""
    computed = set(DECIMAL.findall(notebook.source + notebook.shown))
    assert not [number for number in DECIMAL.findall(notebook.prose) if not any(rounds_to(c, number) for c in computed)]


def rounds_to(number, printed):
    digits = len(printed.split(".")[1])
    return number == printed or (len(number.split(".")[1]) > digits and f"{float(number):.{digits}f}" == printed)
