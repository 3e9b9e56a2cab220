"""Take figures/10_playground.png: the playground in JupyterLab, in Chromium.

    python docs/draw_playground.py

Needs Chromium and playwright. Take it again whenever the playground looks different.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import nbformat
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from test_browser import KERNEL_START, jupyterlab  # noqa: E402  (the path above)

TARGET = ROOT / "figures" / "10_playground.png"
CODE = """from rmlab.widgets import playground

def fond(prompts, texts):
    return [len(text) / 100 + text.count("**") for text in texts]

playground(fond).set(bold=2)
"""
RUN_ALL = (
    "jupyterapp.restored.then("
    "() => jupyterapp.commands.execute('notebook:run-all-cells'))"
)
IDLE = (
    "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status"
    " === 'idle'"
)


def shoot(folder, target):
    """Run the code in a notebook, and save what it shows."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(CODE)], metadata={"kernelspec": kernel}
    )
    nbformat.write(notebook, folder / "a.ipynb")
    with sync_playwright() as playwright, jupyterlab(folder) as address:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1100, "height": 1100})
        page.goto(f"{address}/doc/tree/a.ipynb?token=only-here&reset")
        page.wait_for_function(IDLE, timeout=KERNEL_START)
        page.evaluate(RUN_ALL)
        page.locator(".rmlab-play h4").wait_for(timeout=KERNEL_START)
        page.wait_for_timeout(1500)
        page.locator(".rmlab-play").screenshot(path=target)
        browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        shoot(Path(place), TARGET)
    print(f"{TARGET}, {TARGET.stat().st_size / 1000:.0f} kB")
