"""Draw the pictures of docs/gallery.md by running its code, one for each section that draws.

The build of the site does it where the page or the package is newer than the pictures; by hand: python docs/gallery.py.
"""

from pathlib import Path

import matplotlib
from matplotlib import pyplot as plt
from samples import run, samples

PAGE = Path(__file__).with_name("gallery.md")
PICTURES = PAGE.with_suffix("")  # a folder that git ignores
PACKAGE = PAGE.parents[1] / "rmlab"


def refresh() -> None:
    """Draw where pictures are missing or older than the page or the package."""
    pictures = [PICTURES / f"{name}.png" for name in plots_shown()]
    sources = [PAGE, *PACKAGE.rglob("*.py")]
    newest = max(file.stat().st_mtime for file in sources)
    if not all(picture.is_file() and picture.stat().st_mtime > newest for picture in pictures):
        draw(PICTURES)


def plots_shown() -> list[str]:
    """The plots that have a section with code."""
    return [sample.section.strip("`") for sample in samples(PAGE) if sample.section.startswith("`plot_")]


def draw(folder: Path) -> list[Path]:
    """Run the page from top to bottom; write what each section draws as <section>.png."""
    matplotlib.use("agg")
    folder.mkdir(parents=True, exist_ok=True)
    names: dict[str, object] = {}
    drawn = []
    for sample in samples(PAGE):
        run(PAGE, sample, names)
        if plt.get_fignums():
            target = folder / f"{sample.section.strip('`')}.png"
            plt.gcf().savefig(target, dpi=160, bbox_inches="tight")
            plt.close("all")
            drawn.append(target)
    return drawn


if __name__ == "__main__":
    for picture in draw(PICTURES):
        print(picture)
