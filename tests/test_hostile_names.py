"""Every writer of HTML, Markdown, LaTeX and CSV, with a hostile name wherever data can put one."""

import base64
import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from benchmark_worlds import reward_bench_2_scores
from test_text import runs_no_formula, sends_nothing

import rmlab
from rmlab import report, tables
from rmlab.io import write_scores
from rmlab.metrics import pairs
from rmlab.report.page import write_explorer
from rmlab.text import escape_latex, escape_markdown, format_csv

PAYLOAD = (
    "=cmd|'/C calc'!A0;=1+1\"'><script>alert(1)</script><img src=x onerror=alert(2)>*_`|[a](javascript:alert(3))"
    "<a href=javascript:alert(4)>\\input{/etc/passwd}$\\frac{$#%&~^{}&#x1b;&lt;https://evil.example\x1b[31m\x9b2J\x07"
    "\u202e\u2066\r\n\tend"
)


class World:
    """Tables of two domains and three models, with the payload wherever data can put a name."""

    def __init__(self, make_scores, folder):
        self.folder = folder
        scores = make_scores({"poems": 4, "prose": 3}, models=("a", "b", "longest")).assign(benchmark="mine")
        scores = scores.assign(**{PAYLOAD: PAYLOAD})
        for column in ("model", "benchmark", "domain", "subset", "id"):
            scores[column] = scores[column].where(scores[column] != scores[column].iloc[0], PAYLOAD)
        self.scores = tables.check_scores(scores)
        self.pairs = pairs(self.scores)
        texts = self.scores[self.scores["model"] == PAYLOAD].drop(columns=["model", "score"])
        answers = [f"{row.label} {row.slot} {row.domain} {row.id}" for row in texts.itertuples()]
        self.responses = tables.check_responses(texts.assign(prompt="p", response=answers))
        self.board = report.leaderboard(self.scores).assign(**{PAYLOAD: 0.5})


def write_reports(world):
    """The page of a folder whose file has a hostile name, and the one with the figures of RewardBench 2."""
    path = world.folder / "r.html"
    write_scores(world.scores, world.folder / "in" / "=1+\x1b[31m<b>\u202e.csv")
    yield report.write_report(world.folder / "in", path, title=PAYLOAD).read_text(encoding="utf-8")
    yield report.write_report(reward_bench_2_scores(models=("a", PAYLOAD)), path).read_text(encoding="utf-8")
    path = write_explorer(world.scores, world.responses, world.folder / "e.html", title=PAYLOAD)
    yield path.read_text(encoding="utf-8")


def write_tables(world):
    yield report.save_figure(plt.figure(), world.folder / "x", world.scores)[-1].read_text(encoding="utf-8")
    yield format_csv(world.scores.set_index(["model", "id"]), index=True)
    page = report.write_report(world.pairs, world.folder / "r.html").read_text(encoding="utf-8")
    for data in re.findall(r"data:text/csv;base64,([\w+/=]+)", page):
        yield base64.b64decode(data).decode()


def write_latex(world):
    first, second = world.scores["model"].unique()[:2]
    for table in (world.board, *(rmlab.compare(world.scores, first, second, by=by) for by in (None, "domain"))):
        yield report.to_latex(table.assign(**{PAYLOAD: 0.5}), caption=PAYLOAD)


class Page(HTMLParser):
    """Fails on an element or attribute that a name made; collects the scripts."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.scripts, self.tag = [], ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tag = tag
        assert tag not in ("iframe", "object", "embed", "base", "form")
        for name, value in attrs:
            assert re.fullmatch(r"[a-z-]+", name), name
            assert not name.startswith("on"), name
            assert name not in ("style", "class", "id") or "alert" not in value
            if name in ("src", "href"):
                assert value.startswith(
                    ("data:image/png;base64,", "data:text/csv;base64,", "#", "https://huggingface.co/")
                )

    def handle_data(self, data):
        if self.tag == "script":
            self.scripts.append(data)

    def handle_endtag(self, tag):
        self.tag = ""


def check_html(text):
    assert sends_nothing(text.replace("\t", ""))
    scripts = Page(text).scripts
    data = [script for script in scripts if script.startswith("{")]
    assert all(isinstance(json.loads(line), dict) for script in data for line in script.split("\n"))
    folder = Path(rmlab.__file__).parent
    code = "".join((folder / name).read_text(encoding="utf-8") for name in ("widgets/explorer.js", "report/page.js"))
    assert [script for script in scripts if script not in data] in ([], [code])


def check_markdown(text):
    assert sends_nothing(text)
    assert "<script" not in text
    assert "[a](" not in text
    assert escape_markdown(PAYLOAD) in text


def check_latex(text):
    assert sends_nothing(text)
    assert "\\input{" not in text
    assert escape_latex(PAYLOAD) in text


def check_csv(text):
    assert sends_nothing(text.replace("\t", ""))
    rows = list(csv.reader(io.StringIO(text), strict=True))
    assert len({len(row) for row in rows}) == 1
    assert all(runs_no_formula(cell) for row in rows for cell in row)


WRITERS = {
    "show": (lambda world: [report.show(t)._repr_html_() for t in (world.board, world.responses)], check_html),
    "reports": (write_reports, check_html),
    "markdown": (lambda world: [report.to_markdown(world.board)], check_markdown),
    "latex": (write_latex, check_latex),
    "csv": (lambda world: [report.to_csv(world.board)], check_csv),
    "tables": (write_tables, check_csv),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_hostile_name_stays_a_name(name, make_scores, tmp_path):
    write, check = WRITERS[name]
    texts = list(write(World(make_scores, tmp_path)))
    for text in texts:
        assert text
        check(text)
    assert "alert(1)" in "".join(texts), "the name is shown, not dropped"
