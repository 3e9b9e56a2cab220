"""Sphinx configuration; `make docs` builds the pages into docs/_build/html."""

import re
from importlib.metadata import version as installed

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

from rmlab.scorers.heads import HEADS

project = "rmlab"
author = "the rmlab authors"
copyright = "the rmlab authors, Apache-2.0"
version = release = installed("rmlab")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "rmlab"
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath", "substitution"]
myst_heading_anchors = 2
autodoc_member_order = "alphabetical"
autodoc_typehints = "none"
autodoc_preserve_defaults = True


def _heads() -> str:
    """The table of heads, from the code."""
    rows = []
    for head in HEADS:
        weights = ", ".join(f"`{part}`" for part in head.parts) or "as transformers names them"
        read = " and ".join(head.reads) if head.make else "as the class reads it"
        rows.append(f"| `{head.name}` | {head.models} | {weights} | {read} |")
    return "\n".join(["| head | models | weights | read |", "|---|---|---|---|", *rows])


myst_substitutions = {"heads": _heads()}


def _plain(app, what, name, obj, options, lines):
    """Docstrings are plain English: outside code, stars and bars stand for themselves; pages introduce the modules."""
    if what == "module":
        lines.clear()
    for number, line in enumerate(lines):
        if line.lstrip().startswith(">>>") or line.lstrip().startswith("..."):
            continue
        parts = line.split("`")
        parts[::2] = [re.sub(r"([*|\\]|_\b)", r"\\\1", part) for part in parts[::2]]
        lines[number] = "``".join(parts)


def _formula(writer, node):
    """Formulas as MathML, which browsers draw by themselves, without a script from the network."""
    block = isinstance(node, nodes.math_block)
    text = re.sub(r"\\[bB]igg?[lr]?(?![a-zA-Z])", "", node.astext())  # sizes of brackets: MathML stretches them itself
    mathml = tex2mathml(text, as_block=block)
    writer.body.append(f"<div class='math'>{mathml}</div>" if block else mathml)
    raise nodes.SkipNode


def setup(app):
    """Connect the docstring filter and the formulas."""
    app.add_html_math_renderer("mathml", (_formula, None), (_formula, None))
    app.connect("autodoc-process-docstring", _plain)
