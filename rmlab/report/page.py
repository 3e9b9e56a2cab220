"""One HTML page that opens offline: no address outside itself, figures inline, texts and names escaped."""

import base64
import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import numpy as np
import pandas as pd

from rmlab.benchmarks.registry import known
from rmlab.io.native import sha256
from rmlab.metrics.weights import Average
from rmlab.records import __version__, write_file
from rmlab.report import tables
from rmlab.report.figures import root_figure
from rmlab.text import escape_html, format_csv, visible
from rmlab.widgets.comparisons import Comparisons

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
_UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\x7f"}
_MIB = 2**20
MOST_NUMBERS = 64 * _MIB  # bytes of scores and outcomes of one benchmark in a page


def write_page(
    out: str | PathLike[str], title: str, sections: Sequence[Mapping[str, object]], sources: Sequence[Path] = ()
) -> Path:
    """Write the page, its only script allowed by its hash."""
    from jinja2 import Environment, PackageLoader

    widgets, report = files("rmlab.widgets"), files("rmlab.report")
    script = "".join(file.read_text("utf-8") for file in (widgets / "explorer.js", report / "page.js"))
    template = Environment(loader=PackageLoader("rmlab.report", "."), autoescape=True).get_template("page.html")
    html = template.render(
        title=visible(title),
        sections=sections,
        style="".join(file.read_text("utf-8") for file in (report / "page.css", widgets / "explorer.css")),
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        files=[{"name": visible(path.name), "digest": sha256(path)} for path in sources],
        version=__version__,
    )
    return write_file(Path(out).expanduser(), html)


def write_explorer(table: pd.DataFrame, responses: pd.DataFrame, out: str | PathLike[str], *, title: str) -> Path:
    """Write a page with nothing but the explorer of scores or pairs and all their texts."""
    return write_page(out, title, [{"explorer": explorer_data(Comparisons(table, responses), text_limit=np.inf)}])


def is_too_large(data: Comparisons) -> bool:
    """Whether the numbers of all models would make a page that no browser opens."""
    return data.outcome.size + 4 * (0 if data.score is None else data.score.size) > MOST_NUMBERS


def explorer_data(
    data: Comparisons, *, text_limit: float, average: Average = "benchmark", seed: int = 0
) -> dict[str, str]:
    """The explorer's data as lines of JSON: all columns, then a line for each prompt with its texts.

    `text_limit`: MiB of texts; beyond it those of a random sample of prompts.
    """
    name, n_prompts = str(data.prompts["benchmark"].iloc[0]), len(data.prompts)
    order, note = np.arange(0), "Without texts: scores and outcomes only."
    if data.responses is not None and text_limit:
        size = np.array([len(text) for text in data.searchable]) / _MIB
        order = np.random.default_rng(seed).permutation(n_prompts)
        order = order[np.cumsum(size[order]) <= text_limit]
        share = "all" if len(order) == n_prompts else f"{len(order):,} of"
        note = f"With the texts of {share} {n_prompts:,} prompts ({size[order].sum():.1f} MiB"
        note += ")." if len(order) == n_prompts else f" of {size.sum():.1f} MiB), drawn at random."
    shown = set(order.tolist())
    lines = [data.payload(average=average, as_text=True)]
    lines += [data.texts(number) if number in shown else {} for number in range(n_prompts)]
    # Plain ASCII without an end tag or a comment, as it may stand in a script element.
    texts = [json.dumps(line, separators=(",", ":"), allow_nan=False).translate(_UNSAFE) for line in lines]
    title = f"{benchmark_title(name)}: the prompts behind a number"
    return {"benchmark": visible(name), "title": title, "note": note, "data": "\n".join(texts)}


def board_html(board: pd.DataFrame, links: Mapping[str, Mapping[str, str]], benchmark: str) -> str:
    """A leaderboard as an HTML table: its numbers lead to the prompts that they count."""
    cells = tables.printed_board(board).map(escape_html)
    scores, chance = set(tables.score_columns(board)), tables.chance_of(board)
    for name in cells.columns:
        addresses = [""] * len(board)
        if name == "model":
            addresses = [f"https://huggingface.co/{quote(m)}" if _HUB_NAME.fullmatch(m) else "" for m in board["model"]]
        elif name in links:
            fixed = {"b": visible(benchmark), **links[name]}
            addresses = [f"#{urlencode(fixed | {'models': visible(model)})}" for model in board["model"]]
        cells[name] = [
            f'<a rel="noopener noreferrer" href="{escape_html(address)}">{text}</a>' if address and text else text
            for address, text in zip(addresses, cells[name], strict=True)
        ]
    kinds = pd.DataFrame(dict.fromkeys(cells.columns, board["kind"])).assign(model=board["kind"] + " name")
    titles = [escape_html(tables.heading(name)).replace("{", "{{").replace("}", "}}") for name in cells.columns]
    headings = [f'<button type="button">{title}</button>' for title in titles]  # format strings of pandas
    styler = cells.style.hide(axis="index").relabel_index(headings, axis="columns").set_td_classes(kinds)
    styler.apply(lambda column: [tables.shade(share, chance) for share in board[column.name]], subset=[*scores])
    html: str = styler.set_uuid(hashlib.sha256(benchmark.encode()).hexdigest()[:8]).to_html(
        table_attributes='class="sortable"'
    )
    return html


def table_html(table: pd.DataFrame) -> str:
    """A table of texts, whole and escaped; empty without rows."""
    with pd.option_context("display.max_colwidth", None):
        return table.map(escape_html).to_html(index=False, border=0, escape=False) if len(table) else ""


def figure_data(figure: "Axes | Figure", table: pd.DataFrame, name: str, caption: str) -> dict[str, object]:
    """A figure (or that of an Axes) as PNG, with caption and numbers to download; closes the figure."""
    import matplotlib.pyplot as plt

    root, buffer = root_figure(figure), io.BytesIO()
    root.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    plt.close(root)
    image = base64.b64encode(buffer.getvalue()).decode()
    return {"image": image, "caption": visible(caption), "download": download_data(table, name)}


def download_data(table: pd.DataFrame, name: str) -> dict[str, str]:
    """A table as CSV, to be saved from the page itself."""
    text = format_csv(table, index=not isinstance(table.index, pd.RangeIndex))
    return {"name": visible(name), "data": base64.b64encode(text.encode()).decode()}


def benchmark_title(name: str) -> str:
    """A benchmark's name in print; of data of one's own the name itself."""
    return visible(known()[name].title if name in known() else name)
