"""Draw the pictures of docs/gallery.md and docs/paper_figures by running their code,
one for each section that draws.

The build of the site does it where a page or the package is newer than the pictures; by
hand: python docs/gallery.py.
"""

from pathlib import Path

import matplotlib
from matplotlib import pyplot as plt
from samples import run, samples

PAGE = Path(__file__).with_name("gallery.md")
PAPER_PAGES = sorted(PAGE.with_name("paper_figures").glob("*.md"))
PICTURES = PAGE.with_suffix("")  # a folder that git ignores
PACKAGE = PAGE.parents[1] / "rmlab"


def refresh() -> None:
    """Draw where pictures are missing or older than a page or the package."""
    pages = [PAGE, *PAPER_PAGES]
    pictures = [PICTURES / f"{name}.png" for name in plots_shown()]
    pictures += [
        PICTURES / _name(page, sample.section)
        for page in PAPER_PAGES
        for sample in samples(page)[1:]
    ]
    newest = max(file.stat().st_mtime for file in [*pages, *PACKAGE.rglob("*.py")])
    if not all(
        picture.is_file() and picture.stat().st_mtime > newest for picture in pictures
    ):
        for page in pages:
            draw(PICTURES, page)


def plots_shown() -> list[str]:
    """The plots that have a section with code."""
    return [
        sample.section.strip("`")
        for sample in samples(PAGE)
        if sample.section.startswith("`plot_")
    ]


def thumbnails() -> str:
    """The pictures of the gallery and of the paper figures as a grid of links, for the
    top of the page.
    """
    links = [(f"{name}.png", f"#{name}", name) for name in plots_shown()]
    for page in PAPER_PAGES:
        links.append(
            (
                _name(page, samples(page)[1].section),
                f"paper_figures/{page.name}",
                page.stem,
            )
        )
    items = [
        f"[![{label}](gallery/{picture}) {label}]({target})"
        for picture, target, label in links
    ]
    return "\n\n".join(["````{container} thumbnails", *items, "````"])


def draw(folder: Path, page: Path = PAGE) -> list[Path]:
    """Run a page from top to bottom; write what each section draws as a picture."""
    matplotlib.use("agg")
    folder.mkdir(parents=True, exist_ok=True)
    names: dict[str, object] = {}
    drawn = []
    for sample in samples(page):
        run(page, sample, names)
        if plt.get_fignums():
            target = folder / _name(page, sample.section)
            plt.gcf().savefig(target, dpi=160, bbox_inches="tight")
            plt.close("all")
            drawn.append(target)
    return drawn


def _name(page: Path, section: str) -> str:
    return (
        f"{section.strip('`')}.png"
        if page == PAGE
        else f"{page.stem}-{section.lower()}.png"
    )


if __name__ == "__main__":
    for page in (PAGE, *PAPER_PAGES):
        for picture in draw(PICTURES, page):
            print(picture)
