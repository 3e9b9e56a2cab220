"""Take figures/10_explorer.png: the page of `rmlab explore` on shipped scores, in
Chromium.

    python docs/draw_explorer.py [--dark]

Needs Chromium and playwright. Take it again whenever the explorer looks different.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import rmlab
from rmlab.report.page import write_explorer

TARGET = Path(__file__).parents[1] / "figures" / "10_explorer.png"
MODEL = "SmolLM2-135M mean"


def shoot(page_file, target, theme):
    """Open the page as a person sees it and save the part above the fold."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(
            viewport={"width": 1280, "height": 860}, color_scheme=theme
        )
        page.goto(page_file.as_uri())
        page.locator(".rmlab-body").first.wait_for()
        page.locator(".rmlab").evaluate("e => e.scrollIntoView({block: 'start'})")
        page.screenshot(path=target)
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--target", type=Path, default=TARGET)
    options = parser.parse_args()
    scores = rmlab.papers.results("smollm2-mini").query("model == @MODEL")
    with tempfile.TemporaryDirectory() as folder:
        file = write_explorer(
            scores, rmlab.load("mini"), Path(folder) / "explorer.html", title="mini"
        )
        shoot(file, options.target, "dark" if options.dark else "light")
    print(f"{options.target}, {options.target.stat().st_size / 1000:.0f} kB")
