"""Notebooks are the product's face: form, freshness and at least one output that nbval really compares."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted([*FOLDER.glob("*.ipynb"), *FOLDER.glob("course/solutions/*.ipynb")])
"""All that are kept with outputs; what students open is tested in test_course.py."""
COMPARED = {"text/plain", "text/html"}
DECIMAL = re.compile(r"(?<![\w.])(?<![A-Za-z]-)\d+\.\d+(?![\w]|\.\d)")


CONTENTS = {path: json.loads(path.read_text(encoding="utf-8")) for path in NOTEBOOKS}


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    return request.param, CONTENTS[request.param]


def code_cells(content):
    return [c for c in content["cells"] if c["cell_type"] == "code"]


def source(cell):
    return "".join(cell["source"])


def test_the_reading_order_has_no_gap():
    numbers = [int(path.name[:2]) for path in NOTEBOOKS if path.parent.name == "notebooks"]
    assert numbers == list(range(len(numbers)))


def test_run_top_to_bottom_from_a_fresh_kernel(notebook):
    cells = code_cells(notebook[1])
    assert [c["execution_count"] for c in cells] == list(range(1, len(cells) + 1))
    outputs = [o for c in cells for o in c["outputs"]]
    assert not [o for o in outputs if o["output_type"] == "error"]
    assert not [o for o in outputs if o.get("name") == "stderr"]


def test_opens_with_prose_then_imports(notebook):
    first, second = notebook[1]["cells"][:2]
    assert first["cell_type"] == "markdown"
    for promise in ("**The question.**", "**What you need.**", "**How long.**", "**What you will have.**"):
        assert promise in source(first)
    assert second["cell_type"] == "code"
    assert "import rmlab" in source(second) or "from rmlab" in source(second)


def test_cells_are_short_and_introduced(notebook):
    cells = notebook[1]["cells"]
    for before, cell in pairwise(cells[1:]):
        if cell["cell_type"] == "code":
            assert source(cell).count("\n") < 15, source(cell)
            assert before["cell_type"] == "markdown", f"no prose before: {source(cell)}"
    assert cells[-1]["cell_type"] == "markdown", "no sentence after the last cell"


def test_nothing_that_nbval_cannot_compare(notebook):
    text = "\n".join(source(c) for c in code_cells(notebook[1]))
    assert "%%time" not in text
    assert "Output(" not in text
    assert not re.search(r";\s*$", text, re.MULTILINE)


def test_one_output_at_least_is_really_compared(notebook):
    kept = [
        o
        for cell in code_cells(notebook[1])
        for o in cell["outputs"]
        if o["output_type"] == "stream" or (COMPARED & set(o.get("data", {})) and "image/png" not in o.get("data", {}))
    ]
    assert kept


def test_small_and_free_of_machine_paths(notebook):
    path, content = notebook
    assert path.stat().st_size < 500_000
    text = json.dumps([c.get("outputs", []) for c in content["cells"]]) + "".join(map(source, content["cells"]))
    assert not re.search(r"(/home/|/root/|/work/|/tmp/|[A-Z]:\\\\)", text)


def test_only_public_names(notebook):
    for cell in code_cells(notebook[1]):
        assert not re.search(r"\._[a-z]|import _|from rmlab[\w.]* import _", source(cell)), source(cell)


def test_numbers_are_printed_not_truths(notebook):
    streams = [
        "".join(o["text"]) for c in code_cells(notebook[1]) for o in c["outputs"] if o["output_type"] == "stream"
    ]
    assert not [text for text in streams if re.search(r"\b(True|False)\b", text)]


def test_the_result_of_a_plot_is_assigned(notebook):
    """Otherwise its address stands in the output, another one at every run."""
    outputs = json.dumps([c["outputs"] for c in code_cells(notebook[1])])
    assert not re.search(r"<Axes|at 0x[0-9a-f]{6}", outputs)


def test_named_files_are_there(notebook):
    """Lessons name each other and their figures by the names that these have."""
    text = "\n".join("".join(c["source"]) for c in notebook[1]["cells"])
    here = {path.stem for path in NOTEBOOKS}
    assert set(re.findall(r"`(\d\d_[a-z_0-9]+)`", text)) <= here
    for figure in re.findall(r"\.\./figures/([\w]+)", text):
        assert figure[:2] == notebook[0].name[:2], figure
        assert (notebook[0].parents[1] / "figures" / f"{figure}.png").is_file(), figure


def test_numbers_in_prose_are_those_of_the_cells(notebook):
    """Every decimal fraction in a lesson's prose stands in its code or its outputs, there perhaps with more digits."""
    cells = notebook[1]["cells"]
    outputs = [o for cell in code_cells(notebook[1]) for o in cell["outputs"]]
    texts = [text for o in outputs for kind, text in o.get("data", {}).items() if kind in COMPARED]
    code = "\n".join(map(source, code_cells(notebook[1])))
    computed = set(DECIMAL.findall(code + "".join(map("".join, [*texts, *(o.get("text", "") for o in outputs)]))))
    prose = "\n".join(source(cell) for cell in cells if cell["cell_type"] == "markdown")
    assert not [said for said in DECIMAL.findall(prose) if not any(rounds_to(number, said) for number in computed)]


def rounds_to(number, said):
    digits = len(said.split(".")[1])
    return number == said or (len(number.split(".")[1]) > digits and f"{float(number):.{digits}f}" == said)
