"""The site: the code on its pages runs, every plot is in the gallery, it builds without
warnings, its links hold.
"""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import gallery
import live
import pytest
import samples
from faulty_server import FaultyServer
from filelock import FileLock
from huggingface_hub import ModelCard
from judge_fakes import completion, longer, shown_answers
from served_models import Vllm, oracle
from transformers import AutoTokenizer

import rmlab

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
COPIES = {"lessons", "course", "gallery", "_build"}
PAGES = sorted(
    p for p in DOCS.rglob("*.md") if not COPIES & {*p.relative_to(DOCS).parts}
)
MOST_NOT_RUN = 5


WITH_CODE = [
    page for page in PAGES if page.name != "gallery.md" and samples.samples(page)
]
WITH_OUTPUT = [
    page for page in WITH_CODE if any(s.output for s in samples.samples(page))
]
# These name a server, a benchmark or a file of the reader's, for which something small
# stands in below. Their blocks without an output only run.
WITH_STAND_INS = [
    DOCS / "judges.md",
    DOCS / "servers.md",
    DOCS / "tables.md",
    DOCS / "write_a_scorer.md",
]
# A training prints its log, with times: only the outputs on this page are compared.
WITH_LOG = [DOCS / "how_to" / "while_you_train.md"]
ALONE = [page for page in WITH_OUTPUT if page not in WITH_STAND_INS]
LOAD = rmlab.load
# Where a page names a model or a file of the reader's, a tiny one of that name stands
# in the folder it runs in.
HUB = {
    "Skywork/Skywork-Reward-V2-Qwen3-0.6B": "classifier",
    "my-rm": "classifier",
    "smollm2": "causal",
}
FILES = {
    "ab.csv": (
        "prompt,left,right,winner\nName a prime.,7,8,a\nName a colour.,red,blue,tie\n"
    ),
    "judge.jsonl": "".join(
        json.dumps({"uid": str(n), "out": {"w": n % 3, "l": 1}}) + "\n"
        for n in range(6)
    ),
    "rm.json": json.dumps(
        [{"results": {"id": str(n), "rewards": [2.0, 1.0]}} for n in range(6)]
    ),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with a tiny model under each name."""
    folder = tmp_path_factory.mktemp("models")
    for name, task in HUB.items():
        rmlab.toy.save_model(folder / name, task=task, max_position_embeddings=4096)
    return folder


def answer(path, body, headers):
    """What the servers of the pages say: a judge that likes length, and a scorer of
    lists.
    """
    if path == "/score":
        return {"scores": [float(len(text)) for text in body["responses"]]}
    text = body["messages"][-1]["content"]
    reply = completion(
        longer(*shown_answers(body["messages"])) if "answer" in text else "[[A]]"
    )
    return reply | {
        "usage": {"prompt_tokens": len(text.split()), "completion_tokens": 3}
    }


@pytest.fixture
def at_hand(models, tmp_path, monkeypatch):
    """What pages take for granted: models and files in the working folder, and a
    benchmark, here of 25 prompts.
    """
    shutil.copytree(models, tmp_path, dirs_exist_ok=True)
    mini = rmlab.load("mini")
    few = mini[
        mini.groupby("subset")["id"].transform(lambda ids: ids.factorize()[0]) < 5
    ].reset_index(drop=True)
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    scored = few[["domain", "id", "label", "slot"]].assign(
        score=few["response"].str.len()
    )
    scored.to_csv(tmp_path / "plain.csv", index=False)
    monkeypatch.chdir(tmp_path)
    load = rmlab.load
    monkeypatch.setattr(
        rmlab,
        "load",
        lambda name, **place: (
            few.copy() if name in ("mini", "rm-bench") else load(name, **place)
        ),
    )
    monkeypatch.setattr(rmlab.scorers, "smollm2", lambda: tmp_path / "smollm2")
    return tmp_path


@pytest.fixture
def address(request, at_hand):
    """A server at loopback for the address that a page names: a reward model where it
    speaks of one, else a judge.
    """
    if request.getfixturevalue("page").name == "servers.md":
        words = AutoTokenizer.from_pretrained(at_hand / "my-rm")
        with FaultyServer(Vllm(oracle(at_hand / "my-rm"), words)) as served:
            yield served.url
    else:
        with FaultyServer(answer) as served:
            yield served.url


@pytest.mark.parametrize("page", ALONE, ids=lambda page: page.stem)
def test_the_output_on_a_page_is_that_of_its_code(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for sample in samples.samples(page):
        if sample.reason is None:
            output = samples.output(page, sample, names)
            if sample.output is not None or page not in WITH_LOG:
                assert output == (sample.output or "")


@pytest.mark.parametrize(
    "page",
    [page for page in WITH_CODE if page not in ALONE],
    ids=lambda page: page.relative_to(DOCS).as_posix(),
)
def test_the_code_on_a_page_runs_and_gives_the_outputs_on_it(
    page, address, monkeypatch
):
    names = {}
    for sample in samples.samples(page):
        if sample.reason is not None:
            continue
        code = sample.code.replace("http://127.0.0.1:8000", address).replace(
            "http://localhost:8000", address
        )
        block = samples.Sample(sample.section, sample.line, code, None)
        if sample.output is None:
            samples.run(page, block, names)
        else:
            with monkeypatch.context() as patch:  # the whole benchmark, as readers have
                patch.setattr(rmlab, "load", LOAD)
                assert samples.output(page, block, names) == sample.output


def test_the_results_of_the_model_card_page_fit_into_a_card_that_has_a_licence(
    capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    page = DOCS / "how_to" / "model_card.md"
    names = {}
    for sample in samples.samples(page):
        capsys.readouterr()
        samples.run(page, sample, names)
    card = ModelCard(f"---\nlicense: mit\n{capsys.readouterr().out}---\n# A model\n")
    numbers = rmlab.summary(rmlab.score(rmlab.load("mini"), "longest")).iloc[0]
    results = {result.metric_name: result for result in card.data.eval_results}
    assert results["overall"].metric_value == pytest.approx(
        numbers["overall"], abs=1e-4
    )
    interval = results["overall"].metric_args["confidence"]
    assert interval == pytest.approx([numbers["low"], numbers["high"]], abs=1e-4)


def test_few_blocks_do_not_run_and_say_why():
    skipped = [s for page in PAGES for s in samples.samples(page) if s.reason]
    assert all(s.reason.startswith("needs ") for s in skipped)
    assert len(skipped) <= MOST_NOT_RUN
    block = re.compile(r"^```(?:python|\{literalinclude\} \S+\.py)$", re.MULTILINE)
    for page in PAGES:
        n_blocks = len(block.findall(page.read_text()))
        assert n_blocks == len(samples.samples(page)), page


def test_readme_begins_with_code_that_gives_the_output_below_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = ROOT / "README.md"
    first = samples.samples(page)[0]
    assert "longest" in first.output
    assert samples.output(page, first, {}) == first.output


def test_a_table_on_a_page_shows_all_of_its_columns():
    for page in WITH_OUTPUT:
        for sample in samples.samples(page):
            assert "  ...  " not in (sample.output or ""), (page, sample.section)


def test_every_plot_is_in_the_gallery_with_code_that_draws_it():
    public = {name for name in rmlab.plots.__all__ if name.startswith("plot_")}
    assert {*gallery.plots_shown()} == public
    page = DOCS / "gallery.md"
    for sample in samples.samples(page):
        name = sample.section.strip("`")
        assert name not in public or f"{name}(" in sample.code
        assert name not in public or f"](gallery/{name}.png)" in page.read_text()
    # Where the site, built below, finds them new enough.
    assert {picture.stem for picture in gallery.draw(gallery.PICTURES)} == public


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built by the first process of the tests that needs it."""
    for module in ("sphinx", "myst_nb", "furo"):
        pytest.importorskip(module, reason="pip install -e '.[docs]'")
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder = base / "site"
    options = ["-W", "--keep-going", "-q", "-b", "html"]
    command = [sys.executable, "-m", "sphinx", *options, str(DOCS), str(folder)]
    with FileLock(base / "site.lock"):
        if not (folder / "objects.inv").is_file():
            built = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
            assert built.returncode == 0, built.stderr[-3000:]
    return folder


class Page(HTMLParser):
    """The anchors of a page, and what it refers to."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.loaded = set(), set(), set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {found.get("id"), found.get("name")}
        address = found.get("src") or found.get("href")
        if tag in ("img", "script", "link", "iframe", "source"):
            self.loaded.add(address)
        elif tag == "a":
            self.links.add(address)


def test_links_inside_the_site_lead_somewhere_and_nothing_is_fetched_from_elsewhere(
    site,
):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 30
    broken = []
    for path, page in pages.items():
        assert not [link for link in page.loaded if (link or "").startswith("http")]
        for link in (page.links | page.loaded) - {None}:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path
            if parts.path:
                target = (path.parent / unquote(parts.path)).resolve()
            anchors = {"", None}
            if target in pages:
                anchors |= pages[target].anchors
            # What follows the explorer's address is a selection.
            is_selection = target.name == live.PAGE.name
            is_anchor = is_selection or unquote(parts.fragment) in anchors
            if not target.is_file() or not is_anchor:
                broken.append(f"{path.relative_to(site)}: {link}")
    assert not broken


def test_the_reference_describes_shared_parameters_wherever_they_are(site):
    pages = [path.read_text("utf-8") for path in (site / "reference").glob("*.html")]
    assert not [page for page in pages if "– As in" in re.sub("<[^>]+>", "", page)]
    # Each of the options of `compare`, and what it says of them.
    page = next(page for page in pages if 'id="rmlab.compare"' in page)
    compare = page.partition('id="rmlab.compare"')[2].partition("</dl>")[0]
    for sentence in ("How the parts combine", "What a tie earns", "that all models"):
        assert compare.count(sentence) == 1


def test_an_explorer_in_a_lesson_is_its_page_with_the_same_selection(site):
    lesson = Page(site / "lessons" / "10_explore.html")
    frames = [link for link in lesson.loaded if "explorer.html#" in (link or "")]
    assert len(frames) == 2
    assert "outcome=flip" in frames[0] + frames[1]
    assert all((site / "lessons" / urlsplit(link).path).is_file() for link in frames)


HOMES = "metrics stats bias styles plots scorers papers widgets report io judges toy"


def test_every_public_name_is_in_the_reference(site):
    """Each thing under one of its names."""
    from sphinx.util.inventory import InventoryFile

    with (site / "objects.inv").open("rb") as file:
        kinds = InventoryFile.load(file, "", lambda *parts: "").values()
    shown = {name for kind in kinds for name in kind}
    wanted = {"rmlab.tables.DataError": rmlab.DataError}
    for home in (rmlab, rmlab.benchmarks, *(getattr(rmlab, h) for h in HOMES.split())):
        for name in home.__all__:
            wanted[f"{home.__name__}.{name}"] = getattr(home, name)
    documented = {id(wanted[name]) for name in shown & {*wanted}}
    made = {
        name: id(thing)
        for name, thing in wanted.items()
        if inspect.isclass(thing) or inspect.isroutine(thing)
    }
    assert len(made) > 100
    assert [name for name, thing in made.items() if thing not in documented] == []
