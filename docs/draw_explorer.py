"""Take figures/explorer.png: the page of `rmlab explore` on scores that ship with the package, in Chromium.

    python docs/draw_explorer.py [--dark]

Needs Chromium and playwright. Take it again whenever the explorer looks different.
"""

import argparse
import contextlib
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from playwright.sync_api import sync_playwright

import rmlab

TARGET = Path(__file__).parents[1] / "figures" / "explorer.png"
MODEL = "SmolLM2-135M mean"
SERVE = "import sys; from rmlab.widgets import serve; serve(sys.argv[1], port=int(sys.argv[2]), token=sys.argv[3])"
WAIT = 180  # seconds that a kernel may take to start on a busy machine


@contextlib.contextmanager
def served(scores):
    """The address of the explorer on a table of scores of mini, while the block runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_urlsafe(24)
    with tempfile.TemporaryDirectory() as folder:
        file = rmlab.write_scores(scores, Path(folder) / "scores.csv")
        command = [sys.executable, "-c", SERVE, str(file), str(port), token]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            wait_for(port, server)
            yield f"http://127.0.0.1:{port}/?token={token}"
        finally:
            server.terminate()
            server.wait(timeout=30)


def wait_for(port, server):
    """Until the server answers, if only with a refusal."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end and server.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.5)
        else:
            return
    raise RuntimeError("the explorer did not start")


def shoot(address, target, theme):
    """Open the page as a person sees it and save what is above the fold."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = started.new_page(viewport={"width": 1280, "height": 860}, color_scheme=theme)
        page.goto(address, timeout=1000 * WAIT)
        page.get_by_text("Chosen", exact=True).first.wait_for(timeout=1000 * WAIT)
        page.wait_for_timeout(1000)
        page.screenshot(path=target)
        started.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--target", type=Path, default=TARGET)
    given = parser.parse_args()
    table = rmlab.papers.results("smollm2-mini").query("model == @MODEL")
    with served(table) as there:
        shoot(there, given.target, "dark" if given.dark else "light")
    print(f"{given.target}, {given.target.stat().st_size / 1000:.0f} kB")
