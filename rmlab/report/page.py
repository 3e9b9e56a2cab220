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
from typing import TYPE_CHECKING, TypedDict
from urllib.parse import quote, urlencode

import numpy as np
import pandas as pd

from rmlab.benchmarks.registry import known
from rmlab.io.native import sha256
from rmlab.metrics.weights import Average
from rmlab.records import __version__, write_file
from rmlab.report import tables
from rmlab.report.figures import root_figure
from rmlab.text import format_csv, visible
from rmlab.widgets.comparisons import Comparisons

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
_UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\x7f"}
_MIB = 2**20
MOST_NUMBERS = 64 * _MIB  # bytes of scores and outcomes of one benchmark in a page


class Explorer(TypedDict):
    """The explorer of one benchmark in a page; `note` says which texts are there."""

    benchmark: str
    title: str
    note: str
    data: str


def write_page(
    out: str | PathLike[str],
    title: str,
    sections: Sequence[Mapping[str, object]],
    explorers: Sequence[Explorer],
    sources: Sequence[Path] = (),
) -> Path:
    """Write the page, its only script allowed by its hash."""
    from jinja2 import Environment, PackageLoader

    scripts = [("rmlab.widgets", "explorer.js"), ("rmlab.report", "page.js")]
    styles = [("rmlab.report", "page.css"), ("rmlab.widgets", "explorer.css")]
    script, style = (
        "".join(files(package).joinpath(name).read_text("utf-8") for package, name in parts)
        for parts in (scripts, styles)
    )
    template = Environment(loader=PackageLoader("rmlab.report", "."), autoescape=True).get_template("page.html")
    html = template.render(
        title=visible(title),
        sections=sections,
        explorers=explorers,
        style=style,
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        files=[{"name": visible(path.name), "digest": sha256(path)} for path in sources],
        version=__version__,
    )
    return write_file(Path(out).expanduser(), html)


def write_explorer(table: pd.DataFrame, responses: pd.DataFrame, out: str | PathLike[str], *, title: str) -> Path:
    """Write a page with nothing but the explorer of scores or pairs and all their texts."""
    return write_page(out, title, [], [explorer_data(Comparisons(table, responses), text_limit=np.inf)])


def explorer_data(data: Comparisons, *, text_limit: float, average: Average = "benchmark", seed: int = 0) -> Explorer:
    """The explorer's data as lines of JSON: all columns, then a line for each prompt with its texts.

    `text_limit`: MiB of texts; beyond it those of a random sample of prompts, of each domain as many as its share.
    """
    numbers, note = _sample_prompts(data, text_limit, seed)
    chosen = set(numbers.tolist())
    lines = [data.payload(average=average, as_text=True)]
    lines += [data.texts(number) if number in chosen else {} for number in range(len(data.prompts))]
    name = str(data.prompts["benchmark"].iloc[0])
    return Explorer(
        benchmark=visible(name),
        title=f"{benchmark_title(name)}: the prompts behind a number",
        note=note,
        data="\n".join(_to_json(line) for line in lines),
    )


def is_too_large(data: Comparisons) -> bool:
    """Whether the numbers of all models would make a page that no browser opens."""
    return data.outcome.size + 4 * (0 if data.score is None else data.score.size) > MOST_NUMBERS


def board_rows(board: pd.DataFrame, links: Mapping[str, Mapping[str, str]], benchmark: str) -> dict[str, object]:
    """A leaderboard for the template: cells sort by their exact value, numbers lead to the prompts that they count."""
    texts = tables.printed_leaderboard(board)
    scores, chance = set(tables.score_columns(board)), tables.chance_of(board)
    kinds = {"model": "model", "group": "group"}
    columns = []
    for name in texts.columns:
        kind = kinds.get(name, "")
        values = ["" if pd.isna(value) else visible(value) for value in board[name]]
        styles = [tables.shade(value, chance) for value in board[name]] if name in scores else [""] * len(board)
        columns.append(
            [
                {"kind": kind, "text": visible(text), "value": value, "style": style}
                for text, value, style in zip(texts[name], values, styles, strict=True)
            ]
        )
        for cell, model in zip(columns[-1], board["model"], strict=True):
            if name == "model" and _HUB_NAME.fullmatch(model):
                cell |= {"link": f"https://huggingface.co/{quote(model)}", "hub": "yes"}
            elif name in links and cell["text"]:
                cell["link"] = "#" + urlencode({"b": visible(benchmark), "models": visible(model), **links[name]})
    baseline = (board["kind"] == "baseline").tolist()
    rows = [
        {"cells": cells, "baseline": blind} for cells, blind in zip(zip(*columns, strict=True), baseline, strict=True)
    ]
    return {
        "columns": [{"kind": kinds.get(name, ""), "title": visible(tables.heading(name))} for name in texts.columns],
        "rows": rows,
    }


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


def _to_json(value: object) -> str:
    """JSON as it may stand in a script element: plain ASCII without an end tag or a comment."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).translate(_UNSAFE)


def _sample_prompts(data: Comparisons, limit: float, seed: int) -> tuple[np.ndarray, str]:
    """The prompts whose texts are in the page, and a sentence that says how many they are."""
    if data.responses is None or not limit:
        return np.array([], int), "Without texts: scores and outcomes only."
    size = np.array([len(text) for text in data.searchable]) / _MIB
    n_prompts = len(size)
    if size.sum() <= limit:
        return np.arange(n_prompts), f"With the texts of all {n_prompts:,} prompts ({size.sum():.1f} MiB)."
    order = np.random.default_rng(seed).permutation(n_prompts)
    domain = data.prompts["domain"].iloc[order]
    # A prompt's place within its domain, as a share of the domain, so that each prefix has its part of all domains.
    place = domain.groupby(domain).cumcount() / domain.groupby(domain).transform("size")
    order = order[np.argsort(place.to_numpy(), kind="stable")]
    sample = order[np.cumsum(size[order]) <= limit]
    note = (
        f"With the texts of {len(sample):,} of {n_prompts:,} prompts ({size[sample].sum():.1f} of {size.sum():.1f} MiB)"
    )
    return sample, f"{note}, drawn at random, as many of each domain as its share."
