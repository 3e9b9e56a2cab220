"""One HTML page that opens offline: no address outside itself, figures inline, everything that is not ours escaped."""

import base64
import hashlib
import io
import re
from collections.abc import Collection, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import pandas as pd

from rmlab.report import formats
from rmlab.report.browsing import Browsing, embedded
from rmlab.report.figures import whole_figure
from rmlab.report.results import versions_of
from rmlab.scorers.base import Provenance
from rmlab.text import escape_html, format_csv, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["board_html", "browse_html", "download", "figure_html", "hub_link", "page", "provenance_html"]

_ON_HUB = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
_HUB = "https://huggingface.co/"
_ABOUT = (
    "model",
    "reference",
    "revision",
    "dtype",
    "device",
    "convention",
    "template",
    "head",
    "mode",
    "form",
    "started",
)
_LONGEST = 60  # letters of a value in the table of provenance


def page(title: str, sections: list[tuple[str, str]], footer: str) -> str:
    """The whole page. `sections`: heading (plain text) and body (HTML of this module's making)."""
    style, script = (files("rmlab.report").joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = "; ".join(
        ["default-src 'none'", "img-src data:", "style-src 'unsafe-inline'", f"script-src 'sha256-{allowed}'",
         "base-uri 'none'", "form-action 'none'"]
    )  # fmt: skip
    links = "".join(f'<a href="#s{i}">{escape_html(name)}</a>' for i, (name, _) in enumerate(sections))
    parts = [
        f'<section id="s{i}"><h2>{escape_html(name)}</h2>{body}</section>' for i, (name, body) in enumerate(sections)
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{escape_html(title)}</title><style>{style}</style></head><body>\n"
        f"<h1>{escape_html(title)}</h1><nav>{links}</nav>\n" + "\n".join(parts) + f"\n{_BROWSE}\n"
        f"<footer>{footer}</footer>\n<script>{script}</script></body></html>\n"
    )


_FIELDS = (
    ("b", "benchmark"), ("model", "model"), ("other", "beside it"), ("column", "number"), ("chosen", "chosen style"),
    ("rejected", "rejected style"), ("outcome", "outcome"),
)  # fmt: skip
_SELECTS = "".join(f'<label>{said}<select name="{name}"></select></label>' for name, said in _FIELDS)
_BROWSE = (
    '<section id="browse" hidden><h2>The prompts behind a number</h2><p class="note" id="said"></p>'
    f'<form id="filters">{_SELECTS}<label>search<input name="q" type="search"></label></form><div id="matrix"></div>'
    '<p id="count" aria-live="polite"></p><div class="split"><div><div id="list" class="scroll"></div>'
    '<button type="button" id="more" hidden>more</button></div><article id="detail"></article></div></section>'
)


def browse_html(name: str, title: str, found: Browsing) -> str:
    """The data of one benchmark for the part of the page that shows its prompts."""
    return (
        f'<script type="application/json" data-benchmark="{escape_html(name)}" data-title="{escape_html(title)}" '
        f'data-said="{escape_html(found.said)}">{embedded(found.data)}</script>'
    )


def board_html(board: pd.DataFrame, benchmark: str = "", linked: Collection[str] = ()) -> str:
    """A leaderboard as a table that is sorted by a click on its head and filtered by name.

    Cells sort by their exact value; a number in one of the columns `linked` leads to the prompts of `benchmark` that it
    counts.
    """
    cells = formats.shown(board)
    scores, chance = set(formats.score_columns(board)), formats.chance_of(board)
    heads = "".join(
        f'<th scope="col"{_class(c)}><button type="button">{escape_html(formats.heading(c))}</button></th>'
        for c in cells.columns
    )
    rows = []
    for place in range(len(board)):
        row = []
        for column in cells.columns:
            exact = board[column].iloc[place]
            style = f' style="{formats.shade(exact, chance)}"' if column in scores else ""
            value = "" if pd.isna(exact) else escape_html(str(exact))
            text = escape_html(str(cells[column].iloc[place]))
            if column == "model":
                text = hub_link(str(exact)) or text
            elif visible(column) in linked and text:
                text = _to_prompts(text, benchmark, str(board["model"].iloc[place]), column)
            row.append(f'<td{_class(column)}{style} data-v="{value}">{text}</td>')
        blind = ' class="baseline"' if board["kind"].iloc[place] == "baseline" else ""
        rows.append(f"<tr{blind}>{''.join(row)}</tr>")
    table = f"board-{hashlib.sha256(benchmark.encode()).hexdigest()[:8]}"
    return (
        '<p class="filtering"><label>Show models with '
        f'<input class="filter" type="search" data-table="{table}"></label>'
        '</p><div class="wide" tabindex="0" role="region" aria-label="leaderboard">'
        f'<table class="sortable" id="{table}">'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        f'<p class="note">{escape_html(formats.CAPTION)}</p>'
    )


def hub_link(model: str, kind: str = "") -> str:
    """A model (or, with kind "datasets/", a data set) as a link to its page on the hub; nothing for another name."""
    if not _ON_HUB.fullmatch(model):
        return ""
    return f'<a href="{_HUB}{kind}{quote(model)}" rel="noopener noreferrer">{escape_html(model)}</a>'


def provenance_html(about: Mapping[str, Provenance]) -> str:
    """How the models were scored, one row each: what their provenance says of revision, template, number type, date."""
    if not about:
        return '<p class="note">Nothing is known about how the models were scored: no provenance beside the files.</p>'
    known = [name for name in _ABOUT if any(_value(one, name) for one in about.values())]
    heads = "".join(f'<th scope="col" class="left">{escape_html(name)}</th>' for name in ["name", *known, "versions"])
    rows = "".join(
        f'<tr><th scope="row" class="left">{escape_html(name)}</th>'
        + "".join(f'<td class="left">{escape_html(_value(one, column))}</td>' for column in [*known, "versions"])
        + "</tr>"
        for name, one in about.items()
    )
    return (
        '<details><summary>How the models were scored</summary><div class="scroll"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def figure_html(figure: "Axes | Figure", table: pd.DataFrame, name: str, caption: str) -> str:
    """A figure (or that of an Axes) as an inline PNG, with caption and numbers to download; closes the figure."""
    import matplotlib.pyplot as plt

    whole = whole_figure(figure)
    buffer = io.BytesIO()
    whole.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    plt.close(whole)
    image = base64.b64encode(buffer.getvalue()).decode()
    return (
        f'<figure><img alt="{escape_html(caption)}" src="data:image/png;base64,{image}">'
        f"<figcaption>{escape_html(caption)} {download(table, name)}</figcaption></figure>"
    )


def download(table: pd.DataFrame, name: str) -> str:
    """A link that saves a table as CSV, from the page itself."""
    text = format_csv(table, index=not isinstance(table.index, pd.RangeIndex))
    data = base64.b64encode(text.encode()).decode()
    file = escape_html(name)
    return f'<a download="{file}.csv" href="data:text/csv;base64,{data}">Numbers (CSV)</a>'


def _to_prompts(text: str, benchmark: str, model: str, column: str) -> str:
    at = urlencode({"b": visible(benchmark), "model": visible(model), "column": visible(column)})
    return f'<a href="#{escape_html(at)}">{text}</a>'


def _value(about: Provenance, name: str) -> str:
    """One entry of a provenance as text; versions as "name version"."""
    if name == "versions":
        found = versions_of(about)
        return ", ".join(f"{package} {version}" for package, version in found.items())
    value = about.get(name)
    text = ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _class(column: str) -> str:
    return {"model": ' class="model"', "group": ' class="left group"'}.get(column, "")
