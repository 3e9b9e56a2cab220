"""The report as a person uses it: in Chromium, from a file, without a network, with hostile texts and names."""

import io
import json
import re
import shutil
from urllib.parse import quote

import numpy as np
import pandas as pd
import pytest

from rmlab import benchmarks, metrics, papers, report, scoring, tables, toy
from rmlab.report.browsing import browsing, embedded
from rmlab.tables import DataError

BAD = [
    "<script>window.hurt = 1</script><img src=x onerror='window.hurt = 2'>",
    "</script><script>window.hurt = 3</script><!-- <script> \u2028 alert(1) \u2029",
    "</div></div></table><svg onload='window.hurt = 4'></svg><a href='javascript:window.hurt=5'>x</a>",
    "".join(map(chr, range(32))) + " \u202eright to left &#x202e;",
]
HURTING = "<img src=x onerror='window.hurt=6'>"


def scored(mini):
    models = [toy.scorer(mini, skill=k, style=s, name=f"owner/toy-{k}-{s}") for k, s in ((0.5, 0.0), (2.0, 1.0))]
    return scoring.score(mini, models, progress=False)


@pytest.fixture(scope="module")
def mini():
    return benchmarks.load("mini")


@pytest.fixture(scope="module")
def scores(mini):
    return scored(mini)


@pytest.fixture(scope="module")
def page(tmp_path_factory, mini, scores):
    return report.write_report(scores, tmp_path_factory.mktemp("page") / "r.html", responses=mini, texts=True)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    rows = [
        ("b", HURTING, f"{HURTING}{k}", label, slot, style, BAD[k % 4], BAD[(k + slot) % 4])
        for k in range(6)
        for label in ("chosen", "rejected")
        for slot, style in enumerate(tables.STYLES)
    ]
    names = ["benchmark", "domain", "id", "label", "slot", "style", "prompt", "response"]
    texts = pd.DataFrame(rows, columns=names).assign(note=BAD[1])
    score = np.random.default_rng(0).normal(size=len(texts))
    given = tables.check_scores(texts.drop(columns=["prompt", "response", "note"]).assign(model=HURTING, score=score))
    out = tmp_path_factory.mktemp("hostile") / "r.html"
    return report.write_report(given, out, responses=tables.check_responses(texts), texts=True, title=BAD[0])


@pytest.fixture(scope="module")
def chromium():
    playwright = pytest.importorskip("playwright.sync_api")
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with playwright.sync_playwright() as run:
        browser = run.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium):
    """Open a file without a network; at the end nothing may have gone wrong and nothing have been asked for."""
    problems = []

    def open_file(path, at="", **options):
        tab = chromium.new_context(offline=True, **options).new_page()
        tab.on("console", lambda message: problems.append(message.text))
        tab.on("pageerror", lambda error: problems.append(str(error)))
        asked = ("file:", "data:")
        tab.on("request", lambda request: request.url.startswith(asked) or problems.append(request.url))
        tab.goto(path.as_uri() + at)
        return tab

    yield open_file
    assert problems == []


def counted(tab):
    found = re.fullmatch(r"([\d,]+) prompts: ([\d,]+) won, ([\d,]+) tied, ([\d,]+) lost", tab.inner_text("#count"))
    return [int(number.replace(",", "")) for number in found.groups()]


@pytest.mark.browser
def test_a_number_of_the_leaderboard_leads_to_its_prompts(page, scores, opened):
    tab = opened(page)
    name = "owner/toy-2.0-1.0"
    for column in ("chat", "hard", "overall"):
        cell = tab.locator(f"a[href*='model={quote(name, safe='')}'][href*='column={column}']")
        number = cell.inner_text()
        cell.click()
        tab.wait_for_selector("#browse:not([hidden])")
        prompts, won, tied, lost = counted(tab)
        one = metrics.pairs(scores[scores["model"] == name])
        mine = one if column == "overall" else one[(one["domain"] == column) | (one["level"].astype(str) == column)]
        assert (prompts, won, tied) == (mine["id"].groupby(mine["domain"]).nunique().sum(),
                                        (mine["outcome"] == "win").sum(), (mine["outcome"] == "tie").sum())  # fmt: skip
        if column == "chat":
            assert number == f"{won / (won + tied + lost):.3f}"


@pytest.mark.browser
def test_from_a_cell_to_the_answers_and_back_by_its_address(page, mini, scores, opened):
    tab = opened(page, "#b=mini&model=owner%2Ftoy-0.5-0.0")
    matrix = metrics.matrix(scores[scores["model"] == "owner/toy-0.5-0.0"])
    shown = tab.locator("#matrix td").all_inner_texts()
    assert shown == [f"{share:.2f}" for share in matrix.to_numpy().ravel()]
    tab.locator("#matrix td a").nth(2).click()
    assert counted(tab)[0] == mini.groupby("domain")["id"].nunique().sum()
    tab.select_option("select[name=outcome]", "l")
    assert counted(tab)[1] == 0
    tab.locator("#list td a").first.click()
    tab.wait_for_selector("#detail h3")
    domain, name = tab.inner_text("#detail h3").split("/")
    texts = mini[(mini["domain"] == domain) & (mini["id"] == name)]
    assert tab.inner_text("#detail .prompt").strip() == texts["prompt"].iloc[0].strip()
    assert texts["note"].iloc[0] in tab.inner_text("#detail .wrong")
    cards = tab.locator(".card .text").all_inner_texts()
    assert sorted(t.strip() for t in cards) == sorted(t.strip() for t in texts["response"])
    known = scores[(scores["model"] == "owner/toy-0.5-0.0") & (scores["domain"] == domain) & (scores["id"] == name)]
    said = [float(text.rsplit(": ")[1].replace("−", "-")) for text in tab.locator(".card p").all_inner_texts()]
    assert sorted(said) == pytest.approx(sorted(known["score"]), abs=0.006)
    margins = [text.split()[1] for text in tab.locator("#detail table button").all_inner_texts()]
    assert len({len(text.split(".")[1]) for text in margins if text != "0"}) == 1, "a table has one count of decimals"
    tab.locator("#detail table button").first.click()
    assert tab.locator("#difference ins, #difference del").count() > 0
    again = opened(page, tab.url[tab.url.index("#") :])
    assert again.inner_text("#detail h3") == f"{domain}/{name}"
    assert again.input_value("select[name=outcome]") == "l"
    again.keyboard.press("n")
    assert again.inner_text("#detail h3") != f"{domain}/{name}"


@pytest.mark.browser
def test_models_are_filtered_and_searched_prompts_found(page, opened):
    tab = opened(page)
    tab.fill("input.filter", "toy-2")
    assert tab.locator("table.sortable tbody tr:not([hidden]) td.model").all_inner_texts() == ["owner/toy-2.0-1.0"]
    tab.click("a.prompts")
    whole = counted(tab)[0]
    tab.fill("input[name=q]", "in Rome")
    tab.locator("#count", has_text="1 prompts").wait_for()
    assert whole == 64


@pytest.mark.browser
def test_hostile_texts_and_names_do_nothing(hostile, opened):
    tab = opened(hostile)
    tab.click("a.prompts")
    tab.locator("#matrix td a").first.click()
    tab.locator("#list td a").first.click()
    tab.wait_for_selector("#detail h3")
    tab.locator("#detail table button").first.click()
    assert tab.evaluate("window.hurt") is None
    assert tab.locator("#browse img, #browse script, #browse svg").count() == 0
    assert HURTING in tab.inner_text("#detail h3")
    assert "script-src 'sha256-" in hostile.read_text()


@pytest.mark.browser
def test_the_table_scrolls_with_its_models_in_sight_fits_paper_and_goes_dark(page, opened):
    tab = opened(page, viewport={"width": 620, "height": 800})
    tab.evaluate("document.querySelector('.wide').scrollLeft = 300")
    left = tab.evaluate("document.querySelector('td.model').getBoundingClientRect().left")
    frame = tab.evaluate("document.querySelector('.wide').getBoundingClientRect().left")
    assert left == pytest.approx(frame, abs=2)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    paper = opened(page, viewport={"width": 1039, "height": 700})  # A4 across, within its margins
    paper.emulate_media(media="print")
    assert paper.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert paper.evaluate("(t => t.scrollWidth <= t.clientWidth + 1)(document.querySelector('.wide'))")
    assert paper.pdf(prefer_css_page_size=True).startswith(b"%PDF")
    shades = [
        opened(page, color_scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    ]
    assert shades == ["rgb(255, 255, 255)", "rgb(22, 24, 28)"]


@pytest.mark.browser
def test_every_printed_page_of_a_table_has_its_head(opened, tmp_path):
    import pypdf

    many = papers.results("reward-bench")
    many = many[many["model"].isin(many["model"].unique()[:70])]
    tab = opened(report.write_report(many, tmp_path / "r.html"))
    tab.emulate_media(media="print")
    printed = pypdf.PdfReader(io.BytesIO(tab.pdf(prefer_css_page_size=True)))
    pages = [" ".join(page.extract_text().split()) for page in printed.pages]
    with_rows = [page for page in pages if page.count("2,985") > 2]  # each row says how many prompts it is of
    assert len(with_rows) >= 2
    assert all("rank model chat" in page for page in with_rows)


def test_the_data_of_a_page_cannot_end_its_element():
    names = [*BAD, "half a pair: \ud800"]
    text = embedded({"names": names})
    assert not set("<>&\u2028\u2029\ud800") & set(text)
    assert json.loads(text) == {"names": names}


def test_texts_are_in_the_page_only_where_asked_and_up_to_the_limit(page, mini, scores, tmp_path):
    answer = mini["response"].iloc[0][:40]
    assert answer in page.read_text()
    plain = report.write_report(scores, tmp_path / "r.html", responses=mini).read_text()
    assert answer not in plain
    assert "Without texts" in plain
    whole = browsing(scores, mini, texts=True)
    assert whole.said.startswith("With the texts of all 64 prompts")
    some = browsing(scores, mini, texts=True, limit=0.05)
    held = some.data["texts"]["prompt"]
    assert 0 < len(held) < 64
    assert f"With the texts of {len(held)} of 64 prompts" in some.said
    domains = pd.Series(some.data["domain"]["code"])[[int(k) for k in held]].value_counts(normalize=True)
    wanted = pd.Series(some.data["domain"]["code"]).value_counts(normalize=True)
    assert (domains - wanted).abs().max() < 0.12
    assert browsing(scores, mini, texts=True, limit=0.05).data == some.data
    with pytest.raises(DataError, match="texts: there are no texts; pass responses="):
        report.write_report(scores, tmp_path / "x.html", texts=True)
    with pytest.raises(DataError, match="text_limit: 0"):
        report.write_report(scores, tmp_path / "x.html", responses=mini, texts=True, text_limit=0)


def test_every_outcome_and_score_is_in_the_data(mini, scores):
    import base64

    found = browsing(scores, mini).data
    pairs = metrics.pairs(scores)
    for number, model in enumerate(found["models"]):
        own = pairs[pairs["model"] == model]
        counts = {key: found["outcome"][number].count(key) for key in "wtl"}
        assert list(counts.values()) == [(own["outcome"] == o).sum() for o in ("win", "tie", "loss")]
        values = np.frombuffer(base64.b64decode(found["score"][number]), "<f4")
        np.testing.assert_allclose(np.sort(values), np.sort(scores[scores["model"] == model]["score"]), rtol=1e-6)


def test_provenance_and_definitions_stand_on_the_page(page):
    text = page.read_text()
    assert "How the models were scored" in text
    assert "hard: the rejected answer has the fancier one" in text
    assert 'href="https://huggingface.co/owner/toy-2.0-1.0" rel="noopener noreferrer"' in text
    assert "rmlab 0" in text
