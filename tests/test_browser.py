"""Nine tasks in the explorer, the same in JupyterLab and in a report, in Chromium. Screenshots go to `artefacts/`."""

import contextlib
import csv
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

import rmlab
from rmlab import baselines, toy

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[1]
SHOTS = ROOT / "artefacts"
TOKEN = "only-for-this-test"
SLOW = 60_000  # milliseconds that a kernel may take to start on a busy machine
DOORS = ["notebook", "report"]

MATHS = r"""By \(x_i * y_i\) and $\frac{a_1}{b_1}$ we have
\[
\begin{aligned} s &= \sum_{i=1}^{n} x_i \\ &= \boxed{42} \end{aligned}
\]
at a price of $5 or $6."""
LONG_LINE = "    some_very_long_identifier(" + ", ".join(f"argument_number_{k}" for k in range(12)) + ")"
CODE = f"Use this:\n\n```python\ndef f(x):\n    y = x * 2  # twice\n{LONG_LINE}\n    return 'y'\n```\n\nThat is all."
HURT = r"""<script>window.hurt = 1</script><img src=x onerror='window.hurt = 2'> </script><!-- <script>
[click](javascript:window.hurt=3) <svg onload='window.hurt = 4'></svg> $\href{javascript:window.hurt=5}{x}$
<style>* { display: none !important }</style><div style='position:fixed;inset:0;z-index:99999'>over</div></table>"""
NAME = "<img src=x onerror='window.hurt=6'>"
EXTRA = {"maths": MATHS, "code": CODE, "hurt": HURT, "words": "سؤال وجواب: 答案是十一分钟。"}

CELLS = """
import pandas as pd, rmlab
from pathlib import Path
tables = {path.stem: pd.read_pickle(path) for path in Path(".").glob("*.pkl")}
first = rmlab.explore(tables["scores"], tables["texts"])
second = rmlab.explore(tables["many_scores"], tables["many_texts"])
"""


@pytest.fixture(scope="module")
def world():
    """Mini with four more prompts, three models; and 10,000 prompts of a benchmark of their own."""
    mini = rmlab.load("mini")
    shape = mini[mini["id"] == mini["id"].iloc[0]].head(6)[["benchmark", "domain", "subset", "label", "slot", "style"]]
    endings = ["" if label == "chosen" else " no" for label in shape["label"]]
    extra = [
        shape.assign(id=name, prompt=f"About {name}: {text[:60]}", response=[text + end for end in endings])
        for name, text in EXTRA.items()
    ]
    texts = rmlab.tables.check_responses(pd.concat([mini, *extra], ignore_index=True))
    models = [toy.scorer(texts, skill=1.0, style=s, name=name) for s, name in ((1.0, "owner/fond"), (0.0, NAME))]
    many = pd.DataFrame({"id": [str(k // 2) for k in range(20_000)], "label": ["chosen", "rejected"] * 10_000})
    many = many.assign(benchmark="many", domain="d", slot=0, prompt="Prompt " + many["id"], response=many["label"])
    return {
        "texts": texts,
        "scores": rmlab.score(texts, [*models, "longest"], progress=False),
        "many_texts": rmlab.tables.check_responses(many),
        "many_scores": rmlab.score(many, [baselines.random, baselines.longest], progress=False),
    }


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    SHOTS.mkdir(exist_ok=True)
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


def open_page(browser, address, *, offline):
    """A page that reports every error and every request that leaves this machine."""
    context = browser.new_context(
        viewport={"width": 1400, "height": 1000}, offline=offline, permissions=["clipboard-read", "clipboard-write"]
    )
    page = context.new_page()
    page.set_default_timeout(10_000)
    page.problems = []
    local = ("http://127.0.0.1", "ws://127.0.0.1", "file:", "data:", "blob:", "about:")
    page.on("console", lambda message: message.type == "error" and page.problems.append(message.text))
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("request", lambda request: request.url.startswith(local) or page.problems.append(request.url))
    page.goto(address)
    return page


@pytest.fixture(scope="module")
def pages(browser, world, tmp_path_factory):
    """The two pages, opened at their first use: name to (page, explorer of mini, explorer of 10,000 prompts)."""
    folder = tmp_path_factory.mktemp("pages")
    with contextlib.ExitStack() as stack:
        opened = {}

        def get(door):
            assert opened.get(door, ...) is not None, f"the {door} did not open for an earlier test"
            if door not in opened:
                opened[door] = None
                opened[door] = (open_notebook if door == "notebook" else open_report)(browser, world, folder, stack)
            page, first, second = opened[door]
            page.set_viewport_size({"width": 1400, "height": 1000})
            return page, first, second

        yield get
        problems = [problem for page, *_ in filter(None, opened.values()) for problem in page.problems]
    assert problems == []


def open_report(browser, world, folder, stack):
    table = pd.concat([world["scores"], world["many_scores"]], ignore_index=True)
    path = rmlab.write_report(table, folder / "r.html", responses=world["texts"], texts=True, title=HURT)
    page = open_page(browser, f"{path.as_uri()}#b=mini", offline=True)
    explorers = page.locator("section.explorer > .rmlab, section.explorer > div")
    return page, explorers.nth(0), explorers.nth(1)


def open_notebook(browser, world, folder, stack):
    for name, table in world.items():
        table.to_pickle(folder / f"{name}.pkl")
    settings = folder / "settings" / "@jupyterlab"
    write_json(settings / "apputils-extension" / "notification.jupyterlab-settings", {"fetchNews": "false"})
    # Otherwise JupyterLab takes cells that are out of sight off the page.
    tracker = {"windowingMode": "none", "autoStartDefaultKernel": True}
    write_json(settings / "notebook-extension" / "tracker.jupyterlab-settings", tracker)
    cells = [
        {"cell_type": "code", "id": f"c{k}", "metadata": {}, "execution_count": None, "outputs": [], "source": source}
        for k, source in enumerate([f"{CELLS}first", "second"])
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    write_json(folder / "a.ipynb", {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})
    port = stack.enter_context(jupyterlab(folder))
    page = open_page(browser, f"http://127.0.0.1:{port}/doc/tree/a.ipynb?token={TOKEN}&reset", offline=False)
    # Before the kernel is connected JupyterLab drops what it is told to run.
    kernel_status = "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status"
    page.wait_for_function(f"{kernel_status} === 'idle'", timeout=SLOW)
    page.evaluate("jupyterapp.restored.then(() => jupyterapp.commands.execute('notebook:run-all-cells'))")
    explorers = page.locator(".rmlab")
    expect(explorers).to_have_count(2, timeout=SLOW)
    return page, explorers.nth(0), explorers.nth(1)


@contextlib.contextmanager
def jupyterlab(folder):
    """A JupyterLab server on a free port."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--allow-root"]
    command += ["--expose-app-in-browser", f"--ServerApp.root_dir={folder}", f"--IdentityProvider.token={TOKEN}"]
    environment = {
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
        "IPYTHONDIR": str(folder / "ipython"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    with (folder / "log.txt").open("w") as log:
        server = subprocess.Popen(command, env=os.environ | environment, cwd=folder, stdout=log, stderr=log)
    try:
        for _ in range(SLOW // 100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert server.poll() is None, (folder / "log.txt").read_text()
            time.sleep(0.1)
        yield port
    finally:
        server.terminate()
        server.wait(30)


def write_json(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def expect(part):
    from playwright.sync_api import expect

    return expect(part)


def clear(view, model="owner/fond"):
    """All filters away, one model, its worst prompt open, answers rendered."""
    view.get_by_label("Model", exact=True).select_option(model)
    view.get_by_label("Compare with").select_option("")
    view.get_by_label("Order").select_option("worst")
    if view.get_by_role("button", name="Clear filters").is_visible():
        view.get_by_role("button", name="Clear filters").click()
    view.get_by_role("button", name="Rendered", exact=True).click()
    view.evaluate("e => e.scrollIntoView({block: 'start'})")


def shown(world, **selection):
    """What `View.frame` says of a selection."""
    return rmlab.explore(world["scores"], world["texts"]).select(models=("owner/fond",)).select(**selection).frame


def heading(view):
    return view.locator(".rmlab-card-top h4").first


def open_prompt(view, name):
    view.get_by_label("Search").fill(f"About {name}")
    expect(view.locator(".rmlab-option")).to_have_count(1)
    expect(heading(view)).to_contain_text(f"id {name}")


def photograph(page, view, name):
    view.evaluate("e => e.scrollIntoView({block: 'start'})")
    page.screenshot(path=SHOTS / f"{name}.png")


@pytest.mark.parametrize("door", DOORS)
def test_1_the_worst_prompt_of_one_model_and_of_two(pages, world, door):
    page, view, _ = pages(door)
    clear(view)
    frame, row = shown(world), view.locator(".rmlab-option").first
    expect(row).to_have_attribute("aria-selected", "true")
    expect(row).to_contain_text(f"{frame['id'][0]} · {frame['lost'][0]} of 9 lost")
    expect(heading(view)).to_contain_text(f"id {frame['id'][0]}")
    expect(view.locator(".rmlab-body")).to_have_count(6)
    expect(view.locator(".rmlab-pager")).to_contain_text("1 of 68")
    photograph(page, view, f"{door}-light")
    view.get_by_label("Compare with").select_option("longest")
    view.get_by_label("Outcome").select_option("flip")
    frame = shown(world, models=("owner/fond", "longest"), outcome="flip")
    expect(view.locator(".rmlab-status")).to_contain_text(f"{len(frame)} prompts")
    expect(row).to_contain_text(f"{frame['id'][0]} · ")
    expect(row).to_contain_text(f"{frame['flips'][0]} flips")
    expect(view.locator(".rmlab-matrix")).to_have_count(2)


@pytest.mark.parametrize("door", DOORS)
def test_2_a_cell_and_a_word(pages, world, door):
    _, view, _ = pages(door)
    clear(view)
    for domain in ("", "math", "safety"):
        view.get_by_label("Domain").select_option(domain)
        table = world["scores"].query("model == 'owner/fond'")
        matrix = rmlab.matrix(table if not domain else table[table["domain"] == domain])
        expect(view.locator(".rmlab-matrix b")).to_have_text([f"{share:.2f}" for share in matrix.to_numpy().ravel()])
    view.locator(".rmlab-matrix button").nth(1).click()
    frame = shown(world, domain="safety", cell=("concise", "plain"))
    expect(view.locator(".rmlab-status")).to_contain_text(f"{len(frame)} prompts")
    expect(view.locator(".rmlab-matrix button").nth(1)).to_have_attribute("aria-pressed", "true")
    view.get_by_label("Level").select_option("hard")
    expect(view.locator(".rmlab-status")).to_contain_text(f"{frame['lost'].sum()} of {frame['n_pairs'].sum()}")
    clear(view)
    view.get_by_label("Search").press_sequentially("ROME", delay=20)
    expect(view.locator(".rmlab-status")).to_contain_text(f"{len(shown(world, text='rome'))} prompt")
    view.get_by_label("Search").fill("xylophone")
    expect(view.locator(".rmlab-status")).to_contain_text("No prompt fits")


@pytest.mark.parametrize("door", DOORS)
def test_3_the_keyboard_alone(pages, door):
    page, view, _ = pages(door)
    clear(view)
    view.get_by_label("Search").focus()
    page.keyboard.press("Tab")
    for key in ("ArrowRight", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    expect(view.locator(".rmlab-matrix button").nth(4)).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Enter")
    expect(view.locator(".rmlab-matrix [aria-pressed=true]")).to_have_count(0)
    view.locator(".rmlab-list").focus()
    for key, place in (("ArrowDown", 2), ("n", 3), ("p", 2), ("End", 68), ("Home", 1)):
        page.keyboard.press(key)
        expect(view.locator(".rmlab-pager")).to_contain_text(f"{place} of 68")
        chosen = view.locator(".rmlab-option[aria-selected=true]")
        expect(chosen).to_have_attribute("aria-posinset", str(place))
        assert view.locator(".rmlab-list").get_attribute("aria-activedescendant") == chosen.get_attribute("id")
    unnamed = view.locator("button, select, input, textarea").evaluate_all(
        "all => all.filter(e => !(e.innerText || e.ariaLabel || e.title || e.labels?.length)).map(e => e.outerHTML)"
    )
    assert unnamed == []


# Contrast of each element's text with the first opaque colour behind it, translucent layers between included (WCAG).
CONTRAST = """elements => elements.map(element => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const layers = [];
  for (let e = element; e; e = e.parentElement) layers.unshift(getComputedStyle(e).backgroundColor);
  const paint = colours => {
    for (const colour of ["#fff", ...colours]) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(c => c / 255).map(
      c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [x, y] = [paint([getComputedStyle(element).color]), paint(layers)];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
})"""


@pytest.mark.parametrize("door", DOORS)
def test_4_in_the_dark(pages, door):
    page, view, _ = pages(door)
    clear(view)
    open_prompt(view, "code")

    def turn(theme):
        if door == "report":
            page.emulate_media(color_scheme=theme.lower())
        else:
            page.evaluate(f"jupyterapp.commands.execute('apputils:change-theme', {{theme: 'JupyterLab {theme}'}})")
            page.wait_for_function(f"document.body.dataset.jpThemeLight === '{str(theme == 'Light').lower()}'")
            page.wait_for_timeout(500)  # the theme's sheet is still on its way

    texts = ".rmlab-body, .rmlab-body pre span, .rmlab-quiet, .rmlab-matrix button, .rmlab-value, .rmlab-views button"
    for theme in ("Dark", "Light"):
        turn(theme)
        ratios = view.locator(texts).evaluate_all(CONTRAST)
        assert min(ratios) >= 3.5, "text stands out from what is behind it"
        if theme == "Dark":
            photograph(page, view, f"{door}-dark")
            colour = view.locator(".rmlab-option").first.evaluate("e => getComputedStyle(e).color")
            assert min(map(int, re.findall(r"\d+", colour)[:3])) > 150, "light letters on a dark page"


@pytest.mark.parametrize("door", DOORS)
def test_5_on_a_narrow_page_and_on_paper(pages, door):
    page, view, _ = pages(door)
    clear(view)
    page.set_viewport_size({"width": 420 if door == "report" else 560, "height": 900})
    view.get_by_label("Compare with").select_option("longest")
    expect(view.locator(".rmlab-matrix")).to_have_count(2)
    assert view.evaluate("e => e.scrollWidth <= e.clientWidth + 1"), "nothing sticks out to the right"
    assert door == "notebook" or page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    view.locator(".rmlab-option").nth(2).click()
    inside = "e => { const r = e.getBoundingClientRect(); return r.top >= -5 && r.top < innerHeight * 0.6 }"
    page.wait_for_function(inside, arg=view.locator(".rmlab-main").element_handle())
    photograph(page, view, f"{door}-narrow")
    page.emulate_media(media="print")
    expect(view.locator(".rmlab-bar").first).to_be_hidden()
    assert view.locator(".rmlab-body").first.evaluate("e => e.scrollHeight <= e.clientHeight + 1"), "no text is cut"
    if door == "report":
        page.set_viewport_size({"width": 1039, "height": 700})  # A4 across, within its margins
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.emulate_media(media="screen")


@pytest.mark.parametrize("door", DOORS)
def test_6_ten_thousand_prompts(pages, door):
    page, first, view = pages(door)
    if door == "report":
        page.evaluate("location.hash = 'b=many'")
    expect(view.locator(".rmlab-status")).to_contain_text("10,000 prompts")
    assert view.locator(".rmlab-option").count() < 60, "only the rows in sight are in the page"
    view.locator(".rmlab-list").focus()
    page.keyboard.press("End")
    expect(view.locator(".rmlab-pager")).to_contain_text("10,000 of 10,000")
    click = """select => new Promise(done => {
      const start = performance.now();
      select.value = "longest";
      select.dispatchEvent(new Event("change"));
      requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
    })"""
    spans = [view.get_by_label("Compare with").evaluate(click) for _ in range(3)]
    assert min(spans) < 500, spans  # a tenth of that on a machine of one's own
    view.get_by_label("Search").fill("9999")
    expect(view.locator(".rmlab-status")).to_contain_text("1 prompt:")
    if door == "report":
        page.evaluate("location.hash = 'b=mini'")
        expect(first.locator(".rmlab-status")).to_contain_text("68 prompts")


@pytest.mark.parametrize("door", DOORS)
def test_7_maths_code_and_hostile_texts(pages, door):
    page, view, _ = pages(door)
    clear(view)
    open_prompt(view, "maths")
    body = view.locator(".rmlab-body")
    expect(body.nth(0).locator("math")).to_have_count(3)
    fraction = body.nth(2).locator("mfrac").first
    height = "e => e.getBoundingClientRect().height"
    assert fraction.evaluate(height) > 1.3 * fraction.locator("mi").first.evaluate(height)
    assert "at a price of $5 or $6." in body.first.inner_text()
    photograph(page, view, f"{door}-maths")
    view.get_by_role("button", name="Raw", exact=True).click()
    expect(body.first).to_contain_text(r"By \(x_i * y_i\) and $\frac{a_1}{b_1}$")
    view.get_by_role("button", name="Rendered", exact=True).click()
    open_prompt(view, "code")
    for k in (1, 2):
        assert "def f(x):\n    y = x * 2  # twice\n" in body.nth(k).inner_text()
        assert body.nth(k).locator("pre").evaluate("e => e.scrollWidth > e.clientWidth"), "a long line scrolls"
        assert body.nth(k).evaluate("e => e.scrollWidth <= e.clientWidth + 1")
    colours = "e => new Set([...e.querySelectorAll('span')].map(s => getComputedStyle(s).color)).size"
    assert body.nth(2).locator("pre").evaluate(colours) >= 4
    open_prompt(view, "words")
    assert body.first.evaluate("e => getComputedStyle(e).direction") == "rtl"
    open_prompt(view, "hurt")
    for show in ("Raw", "Differences", "Style", "Rendered"):
        view.get_by_role("button", name=show, exact=True).click()
    view.get_by_label("Compare with").select_option(NAME)
    forbidden = "script, iframe, svg, img, form, [onerror], [onload], a[href], math [href]"
    assert view.locator(forbidden).count() == 0
    assert page.evaluate("window.hurt") is None
    view.get_by_role("button", name="Raw", exact=True).scroll_into_view_if_needed()
    box = view.get_by_role("button", name="Raw", exact=True).bounding_box()
    on_top = page.evaluate("([x, y]) => document.elementFromPoint(x, y).textContent", [box["x"] + 9, box["y"] + 9])
    assert on_top == "Raw", "nothing covers the page"


@pytest.mark.parametrize("door", DOORS)
def test_8_a_copied_link_leads_back(pages, browser, world, door):
    page, view, _ = pages(door)
    clear(view)
    view.get_by_label("Domain").select_option("math")
    view.get_by_label("Outcome").select_option("loss")
    view.get_by_role("textbox", name="lowest margin").or_(view.get_by_label("lowest margin")).first.fill("-3.5")
    view.get_by_label("Search").fill("a")
    view.get_by_role("button", name=re.compile("^Copy (link|code)")).click()
    expect(view.locator(".rmlab-buttons")).to_contain_text("copied")
    text = page.evaluate("navigator.clipboard.readText()")
    expected = shown(world, domain="math", outcome="loss", margin=(-3.5, None), text="a")
    if door == "notebook":
        again = eval(text, {"rmlab": rmlab, "scores": world["scores"], "responses": world["texts"]})
        pd.testing.assert_frame_equal(again.frame, expected)
    else:
        other = open_page(browser, text, offline=True)
        rmlab_view = other.locator("section.explorer:not([hidden]) .rmlab")
        expect(rmlab_view.locator(".rmlab-status")).to_contain_text(f"{len(expected)} prompts")
        assert rmlab_view.get_by_label("Outcome").input_value() == "loss"
        assert heading(rmlab_view).inner_text() == heading(view).inner_text()
        other.context.close()
    view.get_by_label("lowest margin").fill("")


@pytest.mark.parametrize("door", DOORS)
def test_9_what_is_shown_can_be_saved_with_notes(pages, world, door):
    page, view, _ = pages(door)
    clear(view)
    view.get_by_label("Domain").select_option("code")
    expect(view.locator(".rmlab-status")).to_contain_text("12 prompts")
    view.get_by_label("Annotation").fill("=1+1, doubtful")
    frame = shown(world, domain="code")
    with page.expect_download() as caught:
        view.get_by_role("button", name="Download CSV").click()
    table = pd.read_csv(caught.value.path(), dtype={"id": str})
    assert table["id"].tolist() == frame["id"].tolist()
    assert table["margin"].tolist() == pytest.approx(frame["margin"].tolist(), abs=1e-6)
    assert table["annotation"][0] == "'=1+1, doubtful", "a spreadsheet runs no formula"
    view.get_by_role("button", name="Copy CSV").click()
    expect(view.locator(".rmlab-buttons")).to_contain_text("12 prompts copied")
    copied = list(csv.reader(io.StringIO(page.evaluate("navigator.clipboard.readText()"))))
    assert len(copied) == 13
    with page.expect_download() as caught:
        view.get_by_role("button", name="Download annotations").click()
    assert len(pd.read_csv(caught.value.path())) == 1
    view.get_by_label("Annotation").fill("")


def test_numbers_of_a_leaderboard_lead_to_their_prompts(pages, world):
    page, view, _ = pages("report")
    board = page.locator("table.sortable").first
    table = rmlab.pairs(world["scores"].query("model == 'owner/fond'"))
    for column, rows in (("math", table[table["domain"] == "math"]), ("hard", table[table["level"] == "hard"])):
        link = board.locator("tr", has_text="owner/fond").locator(f"a[href*='={column}']")
        number = link.inner_text()
        link.click()
        lost = int((rows["outcome"] == "loss").sum())
        expect(view.locator(".rmlab-status")).to_contain_text(f"{lost:,} of {len(rows):,} comparisons lost")
        assert column != "math" or number == f"{(rows['outcome'] == 'win').mean():.3f}"
    page.locator("input.filter").first.fill("longe")
    assert board.locator("tbody tr:not([hidden]) td.name").all_inner_texts() == ["longest"]
    page.locator("input.filter").first.fill("")
    board.get_by_role("button", name="hard", exact=True).click()
    place = board.locator("thead th").all_inner_texts().index("hard")
    values = board.locator(f"tbody td:nth-child({place + 1})").all_inner_texts()
    assert values == sorted(values, reverse=True)
