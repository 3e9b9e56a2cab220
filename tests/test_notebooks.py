"""Notebooks as they are kept: run in a fresh kernel, free of what differs between
machines, true in their prose.
"""

import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted([*FOLDER.glob("*.ipynb"), *FOLDER.glob("course/solutions/*.ipynb")])
"""All that are kept with outputs; what students open is tested in test_course.py."""
DECIMAL = re.compile(r"(?<![\w.])(?<![A-Za-z]-)\d+\.(\d+)(?![\w]|\.\d)")
UNSTABLE = re.compile(r"<Axes|at 0x[0-9a-f]{6}|/home/|/root/|/work/|/tmp/|[A-Z]:\\\\")
PRIVATE = re.compile(
    r"\._[a-z]|import _|from rmlab[\w.]* import _|%%time|Output\(|;\s*$", re.MULTILINE
)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_ran_from_top_to_bottom_and_its_prose_is_true(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    source, prose = (
        "\n".join(
            "".join(cell["source"]) for cell in cells if cell["cell_type"] == kind
        )
        for kind in ("code", "markdown")
    )
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    outputs = [output for cell in code for output in cell["outputs"]]
    shown = [output.get("text", "") for output in outputs]
    shown += [
        output.get("data", {}).get(kind, "")
        for output in outputs
        for kind in ("text/plain", "text/html")
    ]
    shown = "\n".join(map("".join, shown))
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
