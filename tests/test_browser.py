"""What a person sees: a real JupyterLab and the served page in Chromium. Screenshots go to `artefacts/`."""

import contextlib
import http.client
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rmlab import baselines
from rmlab.benchmarks import load
from rmlab.io import write_scores
from rmlab.scoring import score

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[1]
SHOTS = ROOT / "artefacts"
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync "
    "--no-first-run"
)
TOKEN = "only-for-this-test"
SLOW = 180_000  # milliseconds that a kernel may take to start and finish on a busy machine

HOSTILE = """\
import pandas as pd
import rmlab
bad = [
    "<script>window.hurt = 1</script><img src=x onerror='window.hurt = 2'>",
    "[click](javascript:window.hurt=3) ![x](http://127.0.0.1:9/pixel.png) <svg onload='window.hurt = 4'></svg>",
    "<style>* { display: none !important }</style><div style='position:fixed;inset:0;z-index:99999'>over</div>",
    "</div></div></td></table><p><b><i>never closed <h1 $\\\\href{javascript:window.hurt=5}{x}$",
    "".join(map(chr, range(32))) + " \\u202eright to left &#x202e;",
    "A long sentence. " * 62_000,
]
labels = ["chosen"] * 3 + ["rejected"] * 3
rows = [("b", "<img src=x onerror='window.hurt=6'>", str(k), label, slot % 3, bad[k], bad[slot])
        for k in range(6) for slot, label in enumerate(labels)]
responses = pd.DataFrame(rows, columns=["benchmark", "domain", "id", "label", "slot", "prompt", "response"])
responses["style"] = [("concise", "plain", "markdown")[slot] for slot in responses["slot"]]
scores = rmlab.score(responses, rmlab.baselines.random).assign(model="<img src=x onerror='window.hurt=7'>")
"""


@pytest.fixture(scope="module")
def browser():
    if not Path(CHROMIUM).exists():
        pytest.skip("Chromium is not installed: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    SHOTS.mkdir(exist_ok=True)
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield started
        started.close()


@pytest.fixture
def open_page(browser):
    """Open an address at a width; at the end nothing may have gone wrong in the page, and nothing left the machine."""
    opened = []

    def make(address, *, width=1400, height=1000):
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(SLOW)
        page.problems = []
        page.on("console", lambda message: _is_ours(message) and page.problems.append(message.text))
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("request", lambda request: _local(request.url) or page.problems.append(f"left: {request.url}"))
        opened.append(page)
        page.goto(address)
        return page

    yield make
    problems = [problem for page in opened for problem in page.problems]
    for page in opened:
        page.close()
    assert problems == []


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    pytest.importorskip("jupyterlab")
    folder = tmp_path_factory.mktemp("lab")
    settings = folder / "settings" / "@jupyterlab"
    _write(settings / "apputils-extension" / "notification.jupyterlab-settings", {"fetchNews": "false"})
    # Otherwise JupyterLab takes cells that are out of sight off the page.
    tracker = {"windowingMode": "none", "autoStartDefaultKernel": True}
    _write(settings / "notebook-extension" / "tracker.jupyterlab-settings", tracker)
    port = free_port()
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--allow-root"]
    command += ["--ServerApp.port_retries=0", f"--ServerApp.root_dir={folder}", f"--IdentityProvider.token={TOKEN}"]
    env = {"JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"), "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces")}
    with serving(command, port, env, folder / "log.txt"):
        yield port, folder


class serving:
    """A server process that listens before the block starts and is gone after it."""

    def __init__(self, command, port, env, log):
        self.command, self.port, self.env, self.log = command, port, env, log

    def __enter__(self):
        python = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        own = {"IPYTHONDIR": str(self.log.parent / "ipython"), "PYTHONPATH": python, "OMP_NUM_THREADS": "1"}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                self.command, env=os.environ | own | self.env, cwd=self.log.parent, stdout=log, stderr=subprocess.STDOUT
            )
        end = time.monotonic() + SLOW / 1000
        while time.monotonic() < end and self.process.poll() is None:
            try:
                status(self.port, "/")
                return self
            except OSError:
                time.sleep(0.1)
        self.__exit__()
        raise AssertionError(f"the server did not start: {self.log.read_text()[-2000:]}")

    def __exit__(self, *problem):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def status(port, path):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


def fetch(port, method, path):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=SLOW / 1000)) as connection:
        connection.request(method, path, headers={"Authorization": f"token {TOKEN}"})
        return connection.getresponse().read()


def free_port():
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return trial.getsockname()[1]


def write_notebook(path, sources):
    cells = [
        {"cell_type": "code", "id": f"c{k}", "metadata": {}, "execution_count": None, "outputs": [], "source": source}
        for k, source in enumerate(sources)
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    _write(path, {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})


def _write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def _is_ours(message):
    """Whether an error in the console may be of the page, and not of a server that is slow to end a kernel."""
    return message.type == "error" and not ("status of 500" in message.text and "/api/" in message.location["url"])


def _local(url):
    return url.startswith(("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:", "about:"))


def lesson():
    """The code cells of the notebook, without the outputs that it keeps."""
    content = json.loads((ROOT / "notebooks" / "10_explore.ipynb").read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]


def run_notebook(open_page, lab, sources, **size):
    """Write a notebook, open it in JupyterLab and run all of it; returns the page once the kernel has finished."""
    port, folder = lab
    for kernel in json.loads(fetch(port, "GET", "/api/kernels")):
        fetch(port, "DELETE", f"/api/kernels/{kernel['id']}")
    name = f"{secrets.token_hex(4)}.ipynb"
    write_notebook(folder / name, sources)
    page = open_page(f"http://127.0.0.1:{port}/doc/tree/{name}?token={TOKEN}&reset", **size)
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    # The kernel's name is shown before there is a kernel, and cells run without one are silently left out.
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").first.wait_for(state="attached")
    hide = page.locator(".jp-SideBar.jp-mod-left .lm-TabBar-tab.lm-mod-current")
    if hide.count():
        hide.click()
    last = page.locator(".jp-CodeCell .jp-InputPrompt").last
    for _ in range(3):  # on a busy machine JupyterLab may take the wish for the first cells only
        run_all(page)
        with contextlib.suppress(AssertionError):
            expect(last).not_to_have_text("[ ]:", timeout=SLOW / 6)
            break
    expect(last).to_have_text(re.compile(r"\[\d+\]"), timeout=SLOW)
    return page


def run_all(page):
    """Choose Run All Cells until the first cell has been asked for: JupyterLab drops the wish while it still opens."""
    first = page.locator(".jp-CodeCell .jp-InputPrompt").first
    for _ in range(6):
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        with contextlib.suppress(AssertionError):
            expect(first).not_to_have_text("[ ]:", timeout=SLOW / 6)
            return
    raise AssertionError(f"no cell was run: {page.locator('.jp-Dialog, .jp-Notebook').all_inner_texts()}")


def shot(page, part, name):
    # The page scrolls inside a panel, so the part is brought to the top and the window is what is taken.
    part.evaluate("e => e.scrollIntoView({block: 'start'})")
    page.wait_for_timeout(300)
    page.screenshot(path=SHOTS / f"{name}.png")


def expect(part):
    from playwright.sync_api import expect

    return expect(part)


def wait_text(part, text):
    expect(part).to_contain_text(text, timeout=SLOW)


def test_the_notebook_in_jupyterlab(open_page, lab):
    page = run_notebook(open_page, lab, lesson())
    view = page.locator(".rmlab:not(.rmlab-play)").first
    view.evaluate("e => e.scrollIntoView({block: 'start'})")
    wait_text(view, "SmolLM2-135M mean")

    # The notebook left a cell and its losses behind; a person goes on from there.
    view.get_by_label("Domain").select_option("all")
    view.get_by_label("Outcome").select_option("all")
    view.get_by_label("Compare with").select_option("none")
    wait_text(view, "1–20 of 64")
    view.get_by_label("Model", exact=True).select_option("longest")
    wait_text(view.locator(".rmlab-side"), "longest")
    wait_text(view.locator(".rmlab-code"), "models=('longest',)")

    cell = view.locator(".rmlab-matrix button").nth(1)
    cell.click()
    wait_text(view.locator(".rmlab-code"), "cell=('concise', 'plain')")
    assert cell.get_attribute("aria-pressed") == "true"
    assert "chosen concise against rejected plain" in cell.get_attribute("aria-label")

    view.get_by_label("Search").press_sequentially("Rome")
    wait_text(view.locator(".rmlab-code"), "text='Rome'")
    assert "rome" in view.locator(".rmlab-main").text_content().lower()
    shot(page, view, "explore-light-1400")

    view.get_by_role("button", name="Differences", exact=True).click()
    view.locator(".rmlab-diff ins").nth(1).wait_for()
    shot(page, view, "explore-differences-1400")


def test_the_keyboard_reaches_everything(open_page, lab):
    page = run_notebook(open_page, lab, lesson())
    view = page.locator(".rmlab:not(.rmlab-play)").first
    view.get_by_label("Domain").select_option("all")
    wait_text(view.locator(".rmlab-code"), "outcome='loss'")
    view.get_by_label("Search").focus()
    page.keyboard.press("Tab")
    focused = "document.activeElement.closest('.rmlab-matrix') !== null"
    assert page.evaluate(focused)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    wait_text(view.locator(".rmlab-code"), "cell=")
    assert page.evaluate(focused), "the focus stays where it was"
    page.keyboard.press("Enter")
    expect(view.locator(".rmlab-code")).not_to_contain_text("cell=", timeout=SLOW)
    view.locator(".rmlab-list button").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    expect(view.locator(".rmlab-list button").nth(1)).to_have_attribute("aria-pressed", "true", timeout=SLOW)
    unnamed = view.locator("button, select, input, textarea").evaluate_all(
        "all => all.filter(e => !(e.innerText || e.ariaLabel || e.title || e.labels?.length)).map(e => e.outerHTML)"
    )
    assert unnamed == []


def test_the_playground_in_jupyterlab(open_page, lab):
    page = run_notebook(open_page, lab, lesson())
    play = page.locator(".rmlab-play").first
    play.evaluate("e => e.scrollIntoView({block: 'start'})")
    wait_text(play, "Answer 1 restyled")
    before = play.locator(".rmlab-scoreline").first.text_content()
    play.get_by_label("Answer 1").fill("Because.")
    expect(play.locator(".rmlab-scoreline").first).not_to_have_text(before, timeout=SLOW)
    slider = play.locator(".widget-hslider").filter(has_text="Emoji").get_by_role("slider")
    slider.focus()
    slider.press("ArrowRight")
    wait_text(play, "Reward against emoji")
    play.get_by_role("button", name="Try on more prompts").click()
    wait_text(play, "bold 3 + bullets 1 + emoji 1")
    wait_text(play, "95 % interval")
    scores = play.locator(".rmlab-scoreline").all_text_contents()
    assert len(scores) >= 2
    assert scores[0] != before
    assert all(re.fullmatch(r"[-−+]?\d+\.\d+", score.strip()) for score in scores), scores
    shot(page, play, "playground-light-1400")


@pytest.mark.parametrize(("width", "theme"), [(800, "Light"), (1400, "Dark"), (800, "Dark")])
def test_narrow_and_dark(open_page, lab, width, theme):
    themes = lab[1] / "settings" / "@jupyterlab" / "apputils-extension" / "themes.jupyterlab-settings"
    _write(themes, {"theme": f"JupyterLab {theme}"})
    page = run_notebook(open_page, lab, lesson(), width=width)
    view, play = page.locator(".rmlab:not(.rmlab-play)").first, page.locator(".rmlab-play").first
    view.locator(".rmlab-body").first.wait_for()
    play.locator(".rmlab-scoreline").first.wait_for()
    for part, name in ((view, "explore"), (play, "playground")):
        shot(page, part, f"{name}-{theme.lower()}-{width}")
        assert part.evaluate("e => e.scrollWidth <= e.clientWidth + 1"), "nothing sticks out to the right"
    ratio = view.locator(".rmlab-prompt, .rmlab-body, .rmlab-quiet, .rmlab-matrix button").evaluate_all(CONTRAST)
    assert min(ratio) >= 3.5, "text stands out from what is behind it"


# Contrast of each element's text with the first opaque colour behind it, translucent layers between included (WCAG).
CONTRAST = """elements => elements.map(element => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const layers = [];
  for (let e = element; e; e = e.parentElement) {
    const [r, g, b, a = 1] = parse(getComputedStyle(e).backgroundColor);
    layers.push([r, g, b, a]);
    if (a === 1) break;
  }
  let back = [255, 255, 255];
  for (const [r, g, b, a] of layers.reverse()) back = [r, g, b].map((c, i) => c * a + back[i] * (1 - a));
  const light = rgb => {
    const [r, g, b] = rgb.map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [x, y] = [light(parse(getComputedStyle(element).color).slice(0, 3)), light(back)];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
})"""


def test_hostile_answers_do_nothing(open_page, lab):
    page = run_notebook(open_page, lab, [HOSTILE, "rmlab.explore(scores, responses)"])
    view = page.locator(".rmlab").first
    wait_text(view, "1–6 of 6")
    rows = view.locator(".rmlab-list button")
    for number in range(rows.count()):
        rows.nth(number).click()
        expect(rows.nth(number)).to_have_attribute("aria-pressed", "true", timeout=SLOW)
        for show in ("Raw", "Differences", "Style", "Rendered"):
            view.get_by_role("button", name=show, exact=True).click()
            page.wait_for_timeout(250)
            assert page.evaluate("window.hurt") is None
    forbidden = "script, iframe, object, embed, svg, img, form, base, [onerror], [onload], [onclick], a[href]"
    assert view.locator(".rmlab-text").locator(forbidden).count() == 0
    for button in (
        view.get_by_role("button", name="Raw", exact=True),
        page.get_by_role("menuitem", name="Help", exact=True),
    ):
        box = button.bounding_box()
        middle = [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2]
        on_top = "([x, y, e]) => e.contains(document.elementFromPoint(x, y))"
        assert page.evaluate(on_top, [*middle, button.element_handle()]), "nothing covers the page"
    shot(page, view, "hostile-1400")


def test_the_served_page(open_page, tmp_path):
    pytest.importorskip("voila")
    psutil = pytest.importorskip("psutil")  # comes with ipykernel
    responses = load("mini")
    write_scores(score(responses, [baselines.longest, baselines.most_markdown]), tmp_path / "scores.csv")
    port = free_port()
    code = f"from rmlab.widgets import serve; serve({str(tmp_path)!r}, port={port}, token={TOKEN!r})"
    log = tmp_path / "log.txt"
    with serving([sys.executable, "-c", code], port, {}, log) as server:
        for path in ("/", "/voila/static/", "/api/kernels"):
            assert status(port, path) in (302, 403, 404), f"{path} is open without the token"
        said = log.read_text()
        assert said.startswith(f"The explorer is at http://127.0.0.1:{port}/?token={TOKEN}\nStop it with Ctrl+C.\n")
        page = open_page(f"http://127.0.0.1:{port}/?token={TOKEN}&domain=math&models=most_markdown", width=1200)
        view = page.locator(".rmlab").first
        view.wait_for()
        wait_text(view, "1–16 of 16")
        view.locator(".rmlab-matrix button").nth(1).click()
        wait_text(view.locator(".rmlab-code"), "cell=concise&cell=plain")
        shot(page, view, "page-1200")
        kernels = psutil.Process(server.process.pid).children()
        assert kernels
        page.goto("about:blank")
        assert not psutil.wait_procs(kernels, timeout=SLOW / 1000)[1], "a page that is left ends its kernel"
        assert log.read_text() == said, "the server warns of nothing"
