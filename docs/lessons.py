"""The notebooks as pages: copied into the sources when the site is built, and listed
with their time and links.

Nothing here runs a notebook: the pages show the outputs that it keeps.
"""

import json
import re
from pathlib import Path

import live
import nbformat
from address import ONE_CLICK, binder_link, colab_link, repository

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "notebooks"
PAGES = Path(__file__).parent
SETS = {
    "lessons": NOTEBOOKS,
    "course": NOTEBOOKS / "course" / "solutions",
}  # folder of pages -> where they come from
_TIME = re.compile(
    r"\*\*(?:How long|Time)[^*]*\*\*\s*(.*?)(?=\s*\*\*|\n\n|$)", re.DOTALL
)


def tables() -> dict[str, str]:
    """The lists of lessons and of labs as Markdown, after copying the notebooks beside
    the pages.
    """
    address = repository()
    return {name: _table(name, source, address) for name, source in SETS.items()} | {
        "opening": _opening(address)
    }


def _opening(address: str | None) -> str:
    """How to open a notebook without an installation; nothing without an address."""
    if address is None:
        return ""
    return (
        "In a browser, without installing anything: the links to Binder (it builds an "
        "environment, which takes minutes the first time) and Colab, where the first "
        "cell installs rmlab."
    )


def _table(name: str, source: Path, address: str | None) -> str:
    """A table of the notebooks in `source`, and the entry of each in the site's
    contents.
    """
    pages = _copied(name, source)
    rows = [_listed(page, name, source, address) for page in pages]
    if not rows:
        return "There are none in this version."
    contents = [
        "```{toctree}",
        ":hidden:",
        "",
        *(f"{name}/{page.stem}" for page in pages),
        "```",
    ]
    return "\n".join(
        [
            "| notebook | time | " + ("open" if address else "file") + " |",
            "|---|---|---|",
            *rows,
            "",
            *contents,
        ]
    )


def links(path: str, address: str | None) -> str:
    """Links that open a notebook in Binder and, where it has the cell that Colab needs,
    in Colab; without an address, its file's name.
    """
    if address is None:
        return f"`{path.rsplit('/', 1)[-1]}`"
    binder = f"[Binder]({binder_link(path, address)})"
    if path not in ONE_CLICK:
        return binder
    return f"{binder}, [Colab]({colab_link(path, address)})"


def _copied(name: str, source: Path) -> list[Path]:
    """Copies of the notebooks in `source`; copies of others are removed."""
    target = PAGES / name
    target.mkdir(exist_ok=True)
    wanted = sorted(source.glob("*.ipynb"))
    for old in {*target.glob("*.ipynb")} - {
        target / notebook.name for notebook in wanted
    }:
        old.unlink()
    for notebook in wanted:
        copy = target / notebook.name
        shown = nbformat.read(notebook, as_version=4)
        live.embed(shown)
        text = nbformat.writes(shown)
        if not copy.is_file() or copy.read_text("utf-8") != text:
            copy.write_text(text, "utf-8")
    return [target / notebook.name for notebook in wanted]


def _listed(page: Path, name: str, source: Path, address: str | None) -> str:
    """One row of the table: title, time, links."""
    first = "".join(json.loads(page.read_text(encoding="utf-8"))["cells"][0]["source"])
    title = first.splitlines()[0].lstrip("# ").strip()
    time = _TIME.search(first)
    path = (source / page.name).relative_to(ROOT).as_posix()
    minutes = " ".join(time[1].split()) if time else ""
    return f"| [{title}]({name}/{page.name}) | {minutes} | {links(path, address)} |"
