"""The explorer on the site, which has no kernel: in its place stands its page, with the
selection that the notebook shows.
"""

import ast
from html import escape
from pathlib import Path
from urllib.parse import urlencode

import nbformat
import pandas as pd

import rmlab
from rmlab.report.page import write_explorer

PAGE = Path(__file__).parent / "static" / "explorer.html"  # git ignores it
PACKAGE = Path(__file__).parents[1] / "rmlab"
BENCHMARK = "mini"
_WIDGET = "application/vnd.jupyter.widget-view+json"


def refresh() -> None:
    """Write the explorer's page where it is missing or older than the package."""
    newest = max(file.stat().st_mtime for file in PACKAGE.rglob("*.*"))
    if PAGE.is_file() and PAGE.stat().st_mtime > newest:
        return
    responses = rmlab.load(BENCHMARK)
    shipped = rmlab.papers.results("smollm2-mini")
    is_mean = shipped["model"] == "SmolLM2-135M mean"
    fair = rmlab.toy.scorer(responses, skill=2.0, style=0.0, name="substance")
    others = rmlab.score(responses, [fair, "longest"], progress=False)
    scores = pd.concat([shipped[is_mean], others], ignore_index=True)
    write_explorer(scores, responses, PAGE, title="The explorer, on the bundled data")


def embed(notebook: nbformat.NotebookNode) -> None:
    """Put the explorer's page in the place of its text in a notebook's outputs."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            text = data.get("text/plain", "")
            if _WIDGET not in data:
                continue
            if text.startswith("explore: "):
                output["data"] = {"text/html": _frame(text), "text/plain": text}


def _frame(text: str) -> str:
    """The page in a frame; `text` is what an explorer prints, with its selection."""
    selection = ast.parse(text.partition(", ")[2], mode="eval").body
    parts = [("b", BENCHMARK)]
    for field in selection.keywords:
        value = ast.literal_eval(field.value)
        values = value if isinstance(value, tuple) else (value,)
        parts += [(field.arg, part) for part in values]
    address = escape(f"../_static/{PAGE.name}#{urlencode(parts)}")
    return (
        f'<iframe class="explorer" src="{address}" title="{escape(text)}" '
        f'loading="lazy"></iframe><p><a href="{address}">The explorer on a page of '
        "its own</a></p>"
    )
