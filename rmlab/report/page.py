"""One HTML page that opens offline: no address outside itself, figures inline, everything that is not ours escaped."""

import base64
import hashlib
import io
from typing import TYPE_CHECKING, Any

import pandas as pd

from rmlab import escapes
from rmlab.report import formats

if TYPE_CHECKING:
    from matplotlib.artist import Artist

__all__ = ["board_html", "download", "figure_html", "page"]

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 76rem; margin: 0 auto; padding: 1rem 1.5rem; }
h1 { font-size: 1.6rem; margin: .5rem 0; } h2 { font-size: 1.25rem; margin: 2.2rem 0 .5rem; }
nav a { margin-right: 1rem; } a { color: #0b5cad; }
.wide { overflow-x: auto; max-height: 44rem; overflow-y: auto; border: 1px solid #ddd; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .22rem .55rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #eee; }
th { position: sticky; top: 0; background: #fff; box-shadow: 0 1px 0 #bbb; }
th button { font: inherit; font-weight: 600; background: none; border: 0; padding: 0; cursor: pointer; }
th[aria-sort=ascending] button::after { content: " \\25b2"; }
th[aria-sort=descending] button::after { content: " \\25bc"; }
.left { text-align: left; }
td.group { white-space: normal; overflow-wrap: anywhere; min-width: 6rem; max-width: 16rem; }
tr.baseline td { color: #707070; font-style: italic; }
figure { margin: 1.2rem 0; } figure img { max-width: 100%; height: auto; } figcaption, .note { color: #555; }
code { font-size: .85em; overflow-wrap: anywhere; }
@media print { .wide { max-height: none; overflow: visible; } th { position: static; } }
"""
_SCRIPT = """
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") !== "descending";
    const value = row => row.cells[column].dataset.v ?? row.cells[column].textContent;
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => {
      const x = value(a), y = value(b);
      if (x === "" || y === "") return (x === "") - (y === "");
      const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
      return down ? -order : order;
    });
    table.tBodies[0].append(...rows);
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  }));
}
"""


def page(title: str, sections: list[tuple[str, str]], footer: str) -> str:
    """The whole page. `sections`: heading (plain text) and body (HTML of this module's making)."""
    allowed = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'"
    links = "".join(f'<a href="#s{i}">{escapes.html(name)}</a>' for i, (name, _) in enumerate(sections))
    parts = [
        f'<section id="s{i}"><h2>{escapes.html(name)}</h2>{body}</section>' for i, (name, body) in enumerate(sections)
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escapes.html(title)}</title><style>{_STYLE}</style></head><body>\n"
        f"<h1>{escapes.html(title)}</h1><nav>{links}</nav>\n" + "\n".join(parts) + f"\n<footer>{footer}</footer>\n"
        f"<script>{_SCRIPT}</script></body></html>\n"
    )


def board_html(board: pd.DataFrame) -> str:
    """A leaderboard as a table that is sorted by a click on its head; cells sort by their exact value."""
    cells = formats.shown(board)
    scores, chance = set(formats.score_columns(board)), formats.chance_of(board)
    heads = "".join(
        f'<th scope="col"{_left(c)}><button type="button">{escapes.html(formats.heading(c))}</button></th>'
        for c in cells.columns
    )
    rows = []
    for place in range(len(board)):
        row = []
        for column in cells.columns:
            exact = board[column].iloc[place]
            style = f' style="{formats.shade(exact, chance)}"' if column in scores else ""
            value = "" if pd.isna(exact) else escapes.html(str(exact))
            text = escapes.html(str(cells[column].iloc[place]))
            row.append(f'<td{_left(column)}{style} data-v="{value}">{text}</td>')
        blind = ' class="baseline"' if board["kind"].iloc[place] == "baseline" else ""
        rows.append(f"<tr{blind}>{''.join(row)}</tr>")
    return (
        f'<div class="wide"><table class="sortable"><thead><tr>{heads}</tr></thead>'
        f'<tbody>{"".join(rows)}</tbody></table></div><p class="note">{escapes.html(formats.CAPTION)}</p>'
    )


def figure_html(figure: "Artist", table: pd.DataFrame, name: str, caption: str) -> str:
    """A figure (or that of an Axes) as an inline PNG, with caption and numbers to download; closes the figure."""
    import matplotlib.pyplot as plt

    whole: Any = figure.get_figure() or figure
    buffer = io.BytesIO()
    whole.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    plt.close(whole)
    image = base64.b64encode(buffer.getvalue()).decode()
    return (
        f'<figure><img alt="{escapes.html(caption)}" src="data:image/png;base64,{image}">'
        f"<figcaption>{escapes.html(caption)} {download(table, name)}</figcaption></figure>"
    )


def download(table: pd.DataFrame, name: str) -> str:
    """A link that saves a table as CSV, from the page itself."""
    text = escapes.csv(table, index=not isinstance(table.index, pd.RangeIndex))
    data = base64.b64encode(text.encode()).decode()
    file = escapes.html(name)
    return f'<a download="{file}.csv" href="data:text/csv;base64,{data}">Numbers (CSV)</a>'


def _left(column: str) -> str:
    return {"model": ' class="left"', "group": ' class="left group"'}.get(column, "")
