"""Sphinx configuration; `make docs` builds the pages into docs/_build/html."""

import csv
import re
import sys
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

sys.path.insert(0, str(Path(__file__).parent))
import address
import gallery
import instruments
import lessons
import live
import shared_parameters

from rmlab import __version__
from rmlab.records import shipped
from rmlab.scorers.models.heads import HEADS

logger = logging.getLogger(__name__)

project = "rmlab"
author = "the rmlab authors"
copyright = "the rmlab authors, Apache-2.0"
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
# Code has a button, its output has none; of doctests the code alone is copied.
copybutton_selector = "div:not(.highlight-text, .output) > div.highlight > pre"
copybutton_exclude = ".linenos, .gp, .go"
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"rmlab {__version__}"
if code := address.repository():
    html_theme_options = {
        "source_repository": code,
        "source_branch": "main",
        "source_directory": "docs/",
        "footer_icons": [
            {"name": "Repository", "url": code, "html": "Repository", "class": ""}
        ],
    }
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["site.css"]

myst_enable_extensions = ["dollarmath", "substitution"]
myst_heading_anchors = 3
nb_execution_mode = (
    "off"  # the outputs that the notebooks keep; their own tests run them
)
# widgets need a kernel, and their scripts a network: their text or picture stands in
nb_ipywidgets_js = {}
nb_mime_priority_overrides = [
    ("html", "application/vnd.jupyter.widget-view+json", None)
]
autodoc_member_order = "alphabetical"
autodoc_typehints = "none"
napoleon_google_docstring = (
    False  # docstrings are numpydoc; prose such as "line: the chart" is no section
)
napoleon_use_ivar = (
    True  # attributes as a list in the class; as entries they would repeat its members
)
autodoc_preserve_defaults = True


def _heads() -> str:
    """The table of heads, from the code."""
    rows = []
    for head in HEADS:
        weights = (
            ", ".join(f"`{part}`" for part in head.parts)
            or "as transformers names them"
        )
        read = (
            " and ".join(read.value for read in head.reads)
            if head.make
            else "as the class reads it"
        )
        rows.append(f"| `{head.name}` | {head.models} | {weights} | {read} |")
    return "\n".join(["| head | models | weights | read |", "|---|---|---|---|", *rows])


def _models() -> str:
    """The table of published models, from the file that the doctor reads."""
    lines = ["| model, class, head | what to pass | special points |", "|---|---|---|"]
    with shipped("models.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            name = f"[{row['model']}](https://huggingface.co/{row['model']})"
            what = [name, row["architecture"] or row["backbone"]]
            call = ["refused"]
            if row["call"] != "refused":
                what.append(f"`{row['head']}`")
                options = re.split(r", (?=\w+=)", row["options"])
                call = [f"`{part}`" for part in (row["call"], *options) if part]
            points = [row["notes"], f"layout from *{row['source']}*"]
            cells = ["<br>".join(filter(None, cell)) for cell in (what, call, points)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


gallery.refresh()
live.refresh()
myst_substitutions = {
    "heads": _heads(),
    "models": _models(),
    "thumbnails": gallery.thumbnails(),
    **lessons.tables(),
    **instruments.tables(),
}


def _fill(app, what, name, obj, options, lines):
    """Describe shared parameters everywhere, not where they are written alone."""
    if what in ("function", "method"):
        lines[:] = shared_parameters.fill(obj, "\n".join(lines)).split("\n")


def _plain(app, what, name, obj, options, lines):
    """Escape stars and bars outside code, which docstrings use as plain characters;
    drop docstrings of modules.
    """
    if what == "module":
        lines.clear()
    for number, line in enumerate(lines):
        if line.lstrip().startswith(">>>") or line.lstrip().startswith("..."):
            continue
        parts = line.split("`")
        parts[::2] = [
            re.sub(r"(?<!\\)([*|]|_\b)", r"\\\1", part) for part in parts[::2]
        ]
        lines[number] = "``".join(parts)


def _formula(writer, node):
    """Write formulas as MathML, which browsers draw without a script."""
    block = isinstance(node, nodes.math_block)
    text = re.sub(
        r"\\[bB]igg?[lr]?(?![a-zA-Z])", "", node.astext()
    )  # sizes of brackets: MathML stretches them itself
    try:
        mathml = tex2mathml(text, as_block=block)
    except Exception as error:  # of many kinds, and without the place
        logger.warning("cannot read the formula %r (%s)", text, error, location=node)
        raise nodes.SkipNode from None
    writer.body.append(f"<div class='math'>{mathml}</div>" if block else mathml)
    raise nodes.SkipNode


def setup(app):
    """Connect the docstring filters and the formulas."""
    app.add_html_math_renderer("mathml", (_formula, None), (_formula, None))
    # Before napoleon, at 500, takes the sections to pieces.
    app.connect("autodoc-process-docstring", _fill, priority=400)
    app.connect("autodoc-process-docstring", _plain)
