"""Twelve tasks in the explorer, the same in JupyterLab and in a report, in Chromium.
Screenshots go to `artefacts/`.
"""

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from types import SimpleNamespace
from urllib.parse import urlencode

import nbformat
import pandas as pd
import pytest
from hostile_texts import HOSTILE

import rmlab
from rmlab import baselines, toy

sync_api = pytest.importorskip("playwright.sync_api")
expect = sync_api.expect
expect.set_options(timeout=20_000)
pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[1]
SHOTS = ROOT / "artefacts"
KERNEL_START = 60_000  # milliseconds on a busy machine
NAME = "<img src=x onerror='window.hurt=6'>"
FOND, LONGEST = "owner/fond", "longest"
MATHS = (
    "By \\(x_i * y_i\\) and $\\frac{a_1}{b_1}$ we have\n"
    r"\[ \begin{aligned} s &= \sum_{i=1}^{n} x_i \\ &= \boxed{42} \end{aligned} \] "
    "at a price of $5 or $6."
)
CODE = (
    f"Use:\n\n```python\ndef f(x):\n    y = x * 2  # twice\n    print({'x, ' * 99})\n"
    "    return 'y'\n```\n\nDone."
)
ARABIC = "سؤال وجواب: 答案是十一分钟。"
CELLS = (
    (
        "import pandas as pd, rmlab; world = pd.read_pickle('world.pkl'); "
        "rmlab.explore(world['scores'], world['texts'])"
    ),
    "rmlab.explore(world['many_scores'], world['many_texts'])",
)


BROKEN_WORDS = """pre => {
  const text = pre.firstChild, range = document.createRange(), broken = [];
  for (const {0: word, index} of text.data.matchAll(/[A-Za-z]+/g)) {
    range.setStart(text, index);
    range.setEnd(text, index + word.length);
    if (range.getClientRects().length > 1) broken.push(word);
  }
  return broken;
}"""


@pytest.fixture(scope="module")
def world(mini):
    """Mini with a prompt each of maths, code and Arabic and nine of hostile answers;
    and 10,000 prompts.
    """
    shape = mini[mini["id"] == mini["id"].iloc[0]].head(6)[
        ["benchmark", "domain", "subset", "label", "slot", "style"]
    ]
    answers = {
        name: [text, f"{text} no"] * 3
        for name, text in (("maths", MATHS), ("code", CODE), ("words", ARABIC))
    }
    # Six answers a prompt. Half of a surrogate pair cannot stand in a table.
    hostile = [text for text in HOSTILE if "\ud800" not in text]
    answers |= {
        f"hostile-{k}": (hostile + hostile)[6 * k : 6 * k + 6]
        for k in range(-(-len(hostile) // 6))
    }
    extra = [
        shape.assign(id=name, prompt=f"About {name}: {texts[0][:60]}", response=texts)
        for name, texts in answers.items()
    ]
    texts = rmlab.tables.check_responses(pd.concat([mini, *extra], ignore_index=True))
    models = [
        toy.scorer(texts, skill=1.0, style=s, name=name)
        for s, name in ((1.0, FOND), (0.0, NAME))
    ]
    many = pd.DataFrame(
        {
            "id": [str(k // 2) for k in range(20_000)],
            "label": ["chosen", "rejected"] * 10_000,
        }
    )
    many = many.assign(
        benchmark="many",
        domain="d",
        slot=0,
        prompt="Prompt " + many["id"],
        response=many["label"],
    )
    return {
        "texts": texts,
        "scores": rmlab.score(texts, [*models, LONGEST], progress=False),
        "many_texts": rmlab.tables.check_responses(many),
        "many_scores": rmlab.score(
            many, [baselines.random, baselines.longest], progress=False
        ),
    }


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    SHOTS.mkdir(exist_ok=True)
    with sync_api.sync_playwright() as playwright:
        yield playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )


def open_page(browser, address, *, offline):
    """A page that notes every error and every request that leaves this machine."""
    context = browser.new_context(
        offline=offline, permissions=["clipboard-read", "clipboard-write"]
    )
    page = context.new_page()
    page.set_default_timeout(20_000)
    page.problems = []
    local = ("http://127.0.0.1", "ws://127.0.0.1", "file:", "data:", "blob:", "about:")
    page.on(
        "console",
        lambda message: message.type == "error" and page.problems.append(message.text),
    )
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on(
        "request",
        lambda request: (
            request.url.startswith(local) or page.problems.append(request.url)
        ),
    )
    page.goto(address)
    return page


@contextlib.contextmanager
def open_report(browser, world, folder):
    table = pd.concat([world["scores"], world["many_scores"]], ignore_index=True)
    path = rmlab.write_report(
        table, folder / "r.html", responses=world["texts"], texts=True, title=HOSTILE[0]
    )
    page = open_page(browser, f"{path.as_uri()}#b=mini", offline=True)
    yield page, page.locator("section.explorer > .rmlab, section.explorer > div")


@contextlib.contextmanager
def open_notebook(browser, world, folder):
    pd.to_pickle(world, folder / "world.pkl")
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    nbformat.write(
        nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}),
        folder / "a.ipynb",
    )
    with jupyterlab(folder) as address:
        page = open_page(
            browser, f"{address}/doc/tree/a.ipynb?token=only-here&reset", offline=False
        )
        # Before the kernel is connected JupyterLab drops what it is told to run.
        kernel_status = (
            "window.jupyterapp?.shell.currentWidget"
            "?.sessionContext?.session?.kernel?.status"
        )
        page.wait_for_function(f"{kernel_status} === 'idle'", timeout=KERNEL_START)
        page.evaluate(
            "jupyterapp.restored.then(() => "
            "jupyterapp.commands.execute('notebook:run-all-cells'))"
        )
        expect(page.locator(".rmlab")).to_have_count(2, timeout=KERNEL_START)
        yield page, page.locator(".rmlab")


@contextlib.contextmanager
def jupyterlab(folder):
    """The address of a JupyterLab server."""
    settings = {
        "@jupyterlab/apputils-extension:notification": {"fetchNews": "false"},
        # Otherwise JupyterLab takes cells that are out of sight off the page.
        "@jupyterlab/notebook-extension:tracker": {
            "windowingMode": "none",
            "autoStartDefaultKernel": True,
        },
    }
    (folder / "labconfig").mkdir()
    (folder / "labconfig" / "default_setting_overrides.json").write_text(
        json.dumps(settings)
    )
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--ip=127.0.0.1",
        "--allow-root",
    ]
    command += [
        "--expose-app-in-browser",
        f"--ServerApp.root_dir={folder}",
        "--IdentityProvider.token=only-here",
    ]
    folders = (
        "JUPYTER_CONFIG_DIR",
        "JUPYTERLAB_SETTINGS_DIR",
        "JUPYTERLAB_WORKSPACES_DIR",
        "IPYTHONDIR",
    )
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = (
        os.environ | dict.fromkeys(folders, str(folder)) | {"PYTHONPATH": path}
    )
    log = folder / "jupyterlab.log"
    with log.open("w") as stderr:
        server = subprocess.Popen(
            command, env=environment, cwd=folder, stderr=stderr, start_new_session=True
        )
    address = None
    last = time.monotonic() + KERNEL_START / 1000
    try:
        while address is None:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < last, log.read_text()
            time.sleep(0.05)
            address = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
        yield address[0]
    finally:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(30)
        # A kernel that outlives its server is waited for by nobody.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait(30)


@pytest.fixture(scope="module", params=["notebook", "report"])
def site(request, browser, world, tmp_path_factory):
    """One of the two pages, its explorer of mini and that of 10,000 prompts; neither
    reports an error in the end.
    """
    open_site = {"notebook": open_notebook, "report": open_report}[request.param]
    with open_site(browser, world, tmp_path_factory.mktemp(request.param)) as (
        page,
        explorers,
    ):
        yield SimpleNamespace(
            door=request.param, page=page, mini=explorers.nth(0), many=explorers.nth(1)
        )
        assert page.problems == []


@pytest.fixture
def view(site):
    """The explorer of mini: no filters, one model, its worst prompt open, answers
    rendered.
    """
    site.page.set_viewport_size({"width": 1400, "height": 1000})
    view = site.mini
    view.get_by_label("Model", exact=True).select_option(FOND)
    view.get_by_label("Compare with").select_option("")
    view.get_by_label("Order").select_option("worst")
    if view.get_by_role("button", name="Clear filters").is_visible():
        view.get_by_role("button", name="Clear filters").click()
    view.get_by_role("button", name="Rendered", exact=True).click()
    view.evaluate("e => e.scrollIntoView({block: 'start'})")
    return view


def expected(world, **selection):
    """The prompts that Python selects."""
    return (
        rmlab.explore(world["scores"], world["texts"])
        .select(**{"models": (FOND,)} | selection)
        .frame
    )


def expect_status(view, text):
    expect(view.locator(".rmlab-status")).to_contain_text(text)


def open_prompt(view, name):
    view.get_by_label("Search").fill(f"About {name}")
    expect(view.locator(".rmlab-option")).to_have_count(1)
    expect(view.locator(".rmlab-card-top h4").first).to_contain_text(f"id {name}")


def photograph(site, name):
    site.mini.evaluate("e => e.scrollIntoView({block: 'start'})")
    site.page.screenshot(path=SHOTS / f"{site.door}-{name}.png")


def expect_matrix(view, shares):
    expect(view.locator(".rmlab-matrix b")).to_have_text(
        [f"{share:.2f}" for share in shares.to_numpy().ravel()]
    )


def test_read_a_cell(view, world):
    table = world["scores"].query("model == @FOND")
    for domain in ("", "safety"):
        view.get_by_label("Domain").select_option(domain)
        expect_matrix(view, rmlab.matrix(table[table["domain"].str.contains(domain)]))
    cell = view.locator(".rmlab-matrix button").nth(1)
    cell.click()
    frame = expected(world, domain="safety", cell=("concise", "plain"))
    expect_status(view, f"{len(frame)} prompts")
    expect(cell).to_have_attribute("aria-pressed", "true")
    view.get_by_label("Level").select_option("hard")
    expect_status(view, f"{frame['lost'].sum()} of {frame['n_pairs'].sum()}")


def test_a_word_narrows_the_matrix(view, world):
    view.get_by_label("Search").fill("rome")
    prompts = expected(world, text="rome")
    expect_status(view, f"{len(prompts)} prompt")
    pairs = rmlab.pairs(world["scores"].query("model == @FOND"))
    pairs = pairs.merge(prompts[["domain", "id"]])
    won = pairs.assign(won=pairs["outcome"] == "win")
    expect_matrix(view, won.pivot_table("won", "chosen_style", "rejected_style"))


def draw_selection(random):
    """A selection of the world's mini, some of which fit nothing."""
    models = random.choice([(FOND,), (LONGEST,), (FOND, LONGEST), (LONGEST, NAME)])
    outcomes = [None, "loss", "win", "tie", "flip"][: 3 + len(models)]
    low = random.choice([None, -1.0, 0.5])
    fields = {
        "domain": [None, None, "math", "safety"],
        "subset": [None, None, "code", "safety-refuse"],
        "cell": [None, None, ("plain", "markdown"), ("concise", "concise")],
        "level": [None, None, "hard", "easy"],
        "outcome": [None, *outcomes],
        "margin": [(low, None), (low, 0.6), (low, 2.0)],
        "text": ["", "", " The ", "rome"],
        "order": ["worst", "best", "data"],
    }
    drawn = {name: random.choice(choices) for name, choices in fields.items()}
    return {"models": models} | drawn


FOLLOW = """address => new Promise(done => {
  addEventListener("hashchange", () => setTimeout(done), {once: true});
  location.hash = address;
})"""


@pytest.mark.parametrize("site", ["report"], indirect=True)
def test_the_page_selects_what_python_selects(site, view, world):
    random = Random(0)
    n_found = 0
    for _ in range(60):
        selection = draw_selection(random)
        frame = expected(world, **selection)
        parts = [("b", "mini")]
        for name, value in selection.items():
            values = value if isinstance(value, tuple) else (value,)
            parts += [(name, part or "") for part in values if value is not None]
        site.page.evaluate(FOLLOW, urlencode(parts))
        if frame.empty:
            expect_status(view, "No prompt fits")
            continue
        view.get_by_role("button", name="Copy CSV").click()
        expect(view.locator(".rmlab-exports")).to_contain_text(f"{len(frame)} prompt")
        copied = pd.read_csv(
            io.StringIO(site.page.evaluate("navigator.clipboard.readText()")),
            dtype={"id": str},
        )
        columns = [name for name in frame if name != "prompt"]
        pd.testing.assert_frame_equal(
            copied[columns], frame[columns], check_dtype=False, atol=1e-5
        )
        n_found += 1
    assert n_found > 15


@pytest.mark.parametrize(
    "place",
    [
        ".rmlab-matrix button",
        ".rmlab-head",
        ".rmlab-option",
        ".rmlab-views button",
        "h4",
    ],
)
def test_no_key_leaves_the_explorer(site, view, place):
    site.page.evaluate(
        "heard = []; document.addEventListener('keydown', event => "
        "heard.push(event.key))"
    )
    view.locator(place).nth(1).click()
    for key in ("x", "a", "d", "d", "ArrowDown", "ArrowRight", "m", "n"):
        site.page.keyboard.press(key)
    assert site.page.evaluate("heard") == []
    expect(view).to_be_visible()
    if site.door == "notebook":
        cells = (
            "jupyterapp.shell.currentWidget.content.widgets.map(cell => "
            "cell.model.type)"
        )
        assert site.page.evaluate(cells) == ["code", "code"]


def test_what_loses_the_focus_gives_it_to_the_explorer(site, view):
    view.get_by_label("Level").select_option("hard")
    for name in ("Clear filters", "Style", "← Previous"):
        button = view.get_by_role("button", name=name)
        if name == "← Previous":
            site.page.keyboard.press("n")
        button.focus()
        site.page.keyboard.press("Enter")
        if site.door == "notebook":  # the page draws anew when the kernel has answered
            expect(site.page.locator(".rmlab:focus, .rmlab :focus")).to_have_count(1)
        site.page.keyboard.press("n")
        expect(view.locator(".rmlab-pager")).to_contain_text("2 of")
        site.page.keyboard.press("p")
        expect(view.locator(".rmlab-pager")).to_contain_text("1 of")


def test_use_the_keyboard_alone(site, view, world):
    n_prompts = len(expected(world))
    view.get_by_label("Search").focus()
    for key in ("Tab", "ArrowRight", "ArrowDown", "Enter"):
        site.page.keyboard.press(key)
    expect(view.locator(".rmlab-matrix button").nth(4)).to_have_attribute(
        "aria-pressed", "true"
    )
    site.page.keyboard.press("Enter")
    expect(view.locator(".rmlab-matrix [aria-pressed=true]")).to_have_count(0)
    view.locator(".rmlab-list").focus()
    for key, place in (
        ("ArrowDown", 2),
        ("n", 3),
        ("p", 2),
        ("End", n_prompts),
        ("Home", 1),
    ):
        site.page.keyboard.press(key)
        expect(view.locator(".rmlab-pager")).to_contain_text(f"{place} of {n_prompts}")
        row = view.locator(".rmlab-option[aria-selected=true]")
        expect(row).to_have_attribute("aria-posinset", str(place))
        assert view.locator(".rmlab-list").get_attribute(
            "aria-activedescendant"
        ) == row.get_attribute("id")


# Whether letters stand out (WCAG) from the first opaque colour behind them, translucent
# layers included.
LEGIBLE = """([view, selector, dark]) => {
  const settings = {willReadFrequently: true};
  const canvas = document.createElement("canvas").getContext("2d", settings);
  const luminance = colours => {
    for (const colour of ["#fff", ...colours]) {
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
    }
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(c => c / 255).map(
      c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  return [...view.querySelectorAll(selector)].every(element => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      layers.unshift(getComputedStyle(e).backgroundColor);
    }
    const text = luminance([getComputedStyle(element).color]);
    const page = luminance(layers);
    const fits = !element.matches(".rmlab-quiet") || (text > page) === dark;
    return fits && Math.max(text / page, page / text) >= 3.5;
  });
}"""


def test_read_it_in_the_dark(site, view):
    open_prompt(view, "code")
    texts = (
        ".rmlab-body, .rmlab-body pre span, .rmlab-quiet, .rmlab-matrix button, "
        ".rmlab-value, .rmlab-views button"
    )
    for theme in ("Dark", "Light"):
        if site.door == "report":
            site.page.emulate_media(color_scheme=theme.lower())
        else:
            site.page.evaluate(
                "jupyterapp.commands.execute('apputils:change-theme', {theme: "
                f"'JupyterLab {theme}'}})"
            )
        site.page.wait_for_function(
            LEGIBLE, arg=[view.element_handle(), texts, theme == "Dark"]
        )
        photograph(site, theme.lower())


def test_read_it_on_a_narrow_page(site, view):
    site.page.set_viewport_size(
        {"width": 420 if site.door == "report" else 560, "height": 900}
    )
    view.get_by_label("Compare with").select_option(LONGEST)
    expect(view.locator(".rmlab-matrix")).to_have_count(2)
    assert view.evaluate("e => e.scrollWidth <= e.clientWidth + 1"), (
        "nothing sticks out to the right"
    )
    view.locator(".rmlab-option").nth(2).click()
    inside = (
        "e => { const r = e.getBoundingClientRect(); return r.top >= -5 && r.top < "
        "innerHeight * 0.6 }"
    )
    site.page.wait_for_function(
        inside, arg=view.locator(".rmlab-main").element_handle()
    )
    photograph(site, "narrow")


def test_look_at_ten_thousand_prompts(site, view):
    if site.door == "report":
        site.page.evaluate("location.hash = 'b=many'")
    expect_status(site.many, "10,000 prompts")
    assert site.many.locator(".rmlab-option").count() < 60, (
        "only the rows in sight are in the page"
    )
    site.many.locator(".rmlab-list").focus()
    site.page.keyboard.press("End")
    expect(site.many.locator(".rmlab-pager")).to_contain_text("10,000 of 10,000")
    click = """select => new Promise(done => {
      const start = performance.now();
      select.value = "longest";
      select.dispatchEvent(new Event("change"));
      requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
    })"""
    spans = [site.many.get_by_label("Compare with").evaluate(click) for _ in range(3)]
    assert min(spans) < 500, spans  # a tenth of that on a machine of one's own
    if site.door == "report":
        site.page.evaluate("location.hash = 'b=mini'")
        expect_status(view, "prompts")


def test_read_maths_and_code(site, view):
    open_prompt(view, "maths")
    body = view.locator(".rmlab-body")
    expect(body.nth(0).locator("math")).to_have_count(3)
    assert "at a price of $5 or $6." in body.first.inner_text()
    photograph(site, "maths")
    view.get_by_role("button", name="Raw", exact=True).click()
    expect(body.first).to_contain_text(r"By \(x_i * y_i\) and $\frac{a_1}{b_1}$")
    assert body.first.locator("pre").evaluate(BROKEN_WORDS) == []
    view.get_by_role("button", name="Rendered", exact=True).click()
    open_prompt(view, "code")
    for k in (1, 2):
        assert "def f(x):\n    y = x * 2  # twice\n" in body.nth(k).inner_text()
        assert (
            body.nth(k).locator("pre").evaluate("e => e.scrollWidth > e.clientWidth")
        ), "a long line scrolls"
    open_prompt(view, "words")
    assert body.first.evaluate("e => getComputedStyle(e).direction") == "rtl"


def test_differences_begin_with_the_answers_of_the_selected_cell(view, world):
    view.locator(".rmlab-matrix button").nth(2).click()
    view.get_by_role("button", name="Differences", exact=True).click()
    shown = view.locator(".rmlab-plain select")
    for k, name in enumerate(("chosen concise", "rejected markdown")):
        assert shown.nth(k).evaluate("e => e.selectedOptions[0].text") == name


def test_hostile_answers_and_names_stay_inert(site, view, world):
    view.get_by_label("Compare with").select_option(NAME)
    raw = view.get_by_role("button", name="Raw", exact=True)
    for name in (
        name for name in world["texts"]["id"].unique() if name.startswith("hostile")
    ):
        open_prompt(view, name)
        for show in ("Raw", "Differences", "Style", "Rendered"):
            view.get_by_role("button", name=show, exact=True).click()
            forbidden = (
                "script, style, iframe, svg, img, form, [onerror], [onload], "
                "[onclick], a[href], math [href]"
            )
            assert view.locator(forbidden).count() == 0
        raw.click(trial=True)  # nothing covers the page
    assert site.page.evaluate("window.hurt") is None


def test_copy_a_link_that_leads_back(site, view, browser, world):
    view.get_by_label("Domain").select_option("math")
    view.get_by_label("Outcome").select_option("loss")
    view.get_by_label("lowest margin").fill("-3.5")
    view.get_by_label("Search").fill("number")
    frame = expected(
        world, domain="math", outcome="loss", margin=(-3.5, None), text="number"
    )
    view.get_by_role(
        "button", name=re.compile("^Copy (link|code)")
    ).click()  # before the search has an answer
    expect(view.locator(".rmlab-buttons")).to_contain_text("copied")
    text = site.page.evaluate("navigator.clipboard.readText()")
    if site.door == "notebook":
        again = eval(
            text,
            {"rmlab": rmlab, "scores": world["scores"], "responses": world["texts"]},
        )
        pd.testing.assert_frame_equal(again.frame, frame)
    else:
        other = open_page(browser, text, offline=True)
        again = other.locator("section.explorer:not([hidden]) .rmlab")
        expect_status(again, f"{len(frame)} prompts")
        assert again.get_by_label("Outcome").input_value() == "loss"
        other.context.close()


def test_export_the_prompts_with_notes(site, view, world):
    view.get_by_label("Domain").select_option("code")
    expect_status(view, "12 prompts")
    view.get_by_label("Annotation").fill("=1+1, doubtful")
    frame = expected(world, domain="code")
    table, notes = (
        download(site, "Download CSV"),
        download(site, "Download annotations"),
    )
    assert table["id"].tolist() == frame["id"].tolist()
    assert table["margin"].tolist() == pytest.approx(frame["margin"].tolist(), abs=1e-6)
    assert [table["annotation"][0], *notes["annotation"]] == ["'=1+1, doubtful"] * 2, (
        "a spreadsheet runs no formula"
    )
    view.get_by_role("button", name="Copy CSV").click()
    expect(view.locator(".rmlab-buttons")).to_contain_text("12 prompts copied")
    copied = pd.read_csv(
        io.StringIO(site.page.evaluate("navigator.clipboard.readText()")),
        dtype={"id": str},
    )
    pd.testing.assert_frame_equal(copied, table)
    view.get_by_label("Annotation").fill("")


def download(site, button):
    with site.page.expect_download() as caught:
        site.mini.get_by_role("button", name=button).click()
    return pd.read_csv(caught.value.path(), dtype={"id": str})


def test_print_it_offline(site, view):
    site.page.emulate_media(media="print")
    expect(view.locator(".rmlab-bar").first).to_be_hidden()
    assert view.locator(".rmlab-body").first.evaluate(
        "e => e.scrollHeight <= e.clientHeight + 1"
    ), "no text is cut"
    site.page.emulate_media(media="screen")


@pytest.mark.parametrize("site", ["report"], indirect=True)
def test_numbers_of_a_leaderboard_lead_to_their_prompts(site, view, world):
    board = site.page.locator("table.sortable").first
    table = rmlab.pairs(world["scores"].query("model == @FOND"))
    for column, rows in (
        ("math", table[table["domain"] == "math"]),
        ("hard", table[table["level"] == "hard"]),
    ):
        board.locator("tr", has_text=FOND).locator(f"a[href*='={column}']").click()
        expect_status(
            view,
            (
                f"{int((rows['outcome'] == 'loss').sum()):,} of {len(rows):,} "
                "comparisons lost"
            ),
        )
