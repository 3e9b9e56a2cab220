"""Every writer of HTML, Markdown, LaTeX, CSV and terminal text, with a hostile name wherever data can put one."""

import base64
import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import pytest
from benchmark_worlds import reward_bench_2_scores
from fakes import Streaming
from faulty_server import FaultyServer
from markdown_it import MarkdownIt
from test_text import LATEX, runs_no_formula, sends_nothing

import rmlab
from rmlab import report, tables
from rmlab.io import write_scores
from rmlab.metrics import pairs
from rmlab.report.page import write_explorer
from rmlab.text import format_csv

PAYLOAD = (
    "=cmd|'/C calc'!A0;=1+1\"'><script>alert(1)</script><img src=x onerror=alert(2)>*_`|[a](javascript:alert(3))"
    "<a href=javascript:alert(4)>\\input{/etc/passwd}$\\frac{$#%&~^{}&#x1b;&lt;https://evil.example\x1b[31m\x9b2J\x07"
    "\u202e\u2066\r\n\tend"
)
SHORT = "=1+\x1b[31m<b>\u202e"  # what a file system and a shell take as well
MEDIUM = SHORT + "<script>alert(1)</script>;-1"  # what leaves room in the name of a table
PLACES = ["model", "benchmark", "domain", "subset", "id"]


class World:
    """Tables of two domains and three models, with the payload wherever data can put a name."""

    def __init__(self, make_scores, folder, main, monkeypatch):
        self.folder, self.main, self.monkeypatch = folder, main, monkeypatch
        scores = make_scores({"chat": 4, "math": 3}, models=("a", "b", "longest")).assign(benchmark="mine")
        scores = scores.replace({"domain": {"chat": "poems", "math": "prose"}}).assign(**{PAYLOAD: PAYLOAD})
        scores["subset"] = scores["domain"]
        for column in PLACES:
            scores[column] = scores[column].where(scores[column] != scores[column].iloc[0], PAYLOAD)
        self.scores = tables.check_scores(scores)
        self.pairs = pairs(self.scores)
        texts = self.scores[self.scores["model"] == PAYLOAD].drop(columns=["model", "score"])
        answers = [f"{row.label} {row.slot} {row.domain} {row.id}" for row in texts.itertuples()]
        self.responses = tables.check_responses(texts.assign(prompt="p", response=answers))

    @property
    def board(self):
        return report.leaderboard(self.scores).assign(**{PAYLOAD: 0.5})

    def compared(self, by):
        first, second = self.scores["model"].unique()[:2]
        return rmlab.compare(self.scores, first, second, by=by).assign(**{PAYLOAD: 0.5})

    def run(self, *words):
        _, out, err = self.main(*words)
        return out + err


def save_table(world):
    path = report.save_figure(plt.figure(), world.folder / "x", world.scores)[-1]
    indexed = world.scores.set_index(["model", "id"])
    return path.read_text(encoding="utf-8"), format_csv(indexed, index=True)


def reported(world):
    """The page of a folder whose file has a hostile name, and the one with the figures of RewardBench 2."""
    write_scores(world.scores, world.folder / "in" / f"{SHORT}.csv")
    yield report.write_report(world.folder / "in", world.folder / "r.html", title=PAYLOAD).read_text(encoding="utf-8")
    best_of = reward_bench_2_scores(models=("a", PAYLOAD))
    yield report.write_report(best_of, world.folder / "r.html").read_text(encoding="utf-8")


def downloads(world):
    page = report.write_report(world.pairs, world.folder / "r.html").read_text(encoding="utf-8")
    for data in re.findall(r"data:text/csv;base64,([\w+/=]+)", page):
        yield base64.b64decode(data).decode()


def explored(world):
    """The page of the explorer alone."""
    path = write_explorer(world.scores, world.responses, world.folder / "e.html", title=PAYLOAD)
    yield path.read_text(encoding="utf-8")


def drawn(world):
    """A figure as SVG, which is XML."""
    levels = rmlab.accuracy(world.pairs, by=["model", "level"])
    axes = rmlab.plot_style_gap(levels)
    yield report.save_figure(axes, world.folder / "gap.svg")[0].read_text(encoding="utf-8")


def cli_score(world):
    """A model whose name is hostile, and texts from a file with hostile names."""
    own = world.folder / f"{SHORT}.jsonl"
    rows = [
        {"id": f"{PAYLOAD}{i}", "subset": PAYLOAD, "domain": PAYLOAD, "prompt": "p", "chosen": "c c", "rejected": "r"}
        for i in range(3)
    ]
    own.write_text("\n".join(map(json.dumps, rows)))
    world.monkeypatch.setattr("rmlab.scorers.classifier", lambda model, **options: Streaming(PAYLOAD))
    yield world.run("score", own, "a/b", "-q")
    world.monkeypatch.setattr("rmlab.scorers.classifier", lambda model, **options: Streaming(MEDIUM))
    yield world.run("score", own, "a/b", "-q", "--store", world.folder / "s")
    yield world.run("score", own, "a/b", "-q", "-o", world.folder / f"{SHORT}.csv")
    yield world.run("score", own, f"{SHORT}", "-q")
    yield world.run("score", own, "a/b", "--shard", PAYLOAD)
    yield world.run("score", world.folder / f"absent{SHORT}", "a/b")


def cli_report(world):
    write_scores(world.scores, world.folder / "in" / f"{SHORT}.csv")
    yield world.run("report", world.folder / "in", "-o", world.folder / f"{SHORT}.html")
    (world.folder / "in" / f"{SHORT}.json").write_text("{")
    yield world.run("report", world.folder / "in", "-o", world.folder / "r.html")


def cli_judge(world):
    """A judge with a hostile name, behind a server that refuses in hostile words."""
    asked = world.folder / "asked.jsonl"
    asked.write_text('{"prompt": "p", "chosen": "a", "rejected": "b"}\n' * 2)
    with FaultyServer(lambda *_: (400, {}, {"error": PAYLOAD})) as server:
        yield world.run("judge", asked, "m", "--url", server.url, "--name", PAYLOAD, "-q", "-o", world.folder / "j.csv")


def progress_bar(world):
    import sys

    from rmlab.scoring.run import open_bar

    error = io.StringIO()
    world.monkeypatch.setattr(sys, "stderr", error)
    with open_bar(PAYLOAD, "text", 3, 0, True) as bar:
        bar.update(1)
    yield error.getvalue().replace("\r", "\n")


# Kind -> the name of a function or command -> its texts.
WRITERS = {
    "html": {
        "show": lambda world: [report.show(world.board)._repr_html_(), report.show(world.responses)._repr_html_()],
        "write_report": reported,
        "explore": explored,
    },
    "svg": {"save_figure": drawn},
    "markdown": {"to_markdown": lambda world: [report.to_markdown(world.board)]},
    "latex": {
        "to_latex": lambda world: [report.to_latex(world.board, caption=PAYLOAD)],
        "to_latex of a comparison": lambda world: [
            report.to_latex(world.compared(by), caption=PAYLOAD) for by in (None, "domain")
        ],
    },
    "csv": {
        "to_csv": lambda world: [report.to_csv(world.board)],
        "save_figure": save_table,
        "write_report": downloads,
    },
    "terminal": {
        "score": cli_score,
        "report": cli_report,
        "judge": cli_judge,
        "progress": progress_bar,
    },
}


MAY = {
    *re.findall(
        r"\S+",
        "alt aria-label aria-live charset class colspan content data-benchmark data-said data-table data- "
        "title data-v dir download hidden href http-equiv id lang name rel role rowspan scope src style "
        "tabindex title type ",
    )
}


class Page(HTMLParser):
    """Fails on an element or attribute that a name made; collects what is shown."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.shown, self.scripts, self.within = "", [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.within.append(tag)
        assert tag not in ("iframe", "object", "embed", "base", "a href=javascript:alert(4)")
        assert tag != "form"
        assert tag != "input" or dict(attrs)["type"] == "search"
        for name, value in attrs:
            assert name in MAY, (tag, name)
            if name in ("src", "href"):
                assert value.startswith(
                    ("data:image/png;base64,", "data:text/csv;base64,", "#", "https://huggingface.co/")
                ), value[:60]
            if name in ("style", "class", "id"):
                assert "alert" not in value

    def handle_data(self, data):
        if self.within and self.within[-1] == "script":
            self.scripts.append(data)
        elif not self.within or self.within[-1] != "style":
            self.shown += data

    def handle_endtag(self, tag):
        if tag in self.within:
            while self.within.pop() != tag:
                pass


def check_html(text):
    assert sends_nothing(text.replace("\t", ""))
    page = Page(text)
    data = [script for script in page.scripts if script.startswith("{")]
    assert all(isinstance(json.loads(line), dict) for script in data for line in script.split("\n"))
    folder = Path(rmlab.__file__).parent
    ours = "".join((folder / name).read_text(encoding="utf-8") for name in ("widgets/explorer.js", "report/page.js"))
    assert [script for script in page.scripts if script not in data] in ([], [ours])


def check_markdown(text):
    assert sends_nothing(text)
    page = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text)
    assert set(re.findall(r"<(\w+)", page)) <= {"table", "thead", "tbody", "tr", "th", "td", "em"}
    counts = {len(re.findall(r"<t[dh]\b", row)) for row in page.split("</tr>")[:-1]}
    assert len(counts) == 1, "every row has the cells of the heading"
    assert not re.search(r"(?<!\\)\$|[^\\]://|(?<!\\)@", text)


SAFE = "|".join(re.escape(token) for token in sorted([*LATEX, "-{}"], key=len, reverse=True))
OURS = (
    r"\\(begin|end)\{(table|tabular)\}(\{[lr]+\})?|\\(centering|toprule|midrule|bottomrule)$|"
    r"\\label\{tab:(leaderboard|comparison)\}"
)


def check_latex(text):
    assert sends_nothing(text)
    for row in text.splitlines():
        rest = re.sub(OURS, "", row)
        rest = re.sub(r"^\\caption\{(.*)\}$", r"\1", rest)
        rest = re.sub(r"\\\\$", "", rest)
        rest = re.sub(r" & ", " ", re.sub(SAFE, "", re.sub(r"\\textit\{(.*?)\} \(baseline\)", r"\1", rest)))
        assert not set(rest) & set('\\{}$&#%_^~"'), rest
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len({len(re.findall(r"(?<!\\)&", line)) for line in rows}) == 1


def check_csv(text):
    assert sends_nothing(text.replace("\t", ""))
    rows = list(csv.reader(io.StringIO(text), strict=True))
    assert len({len(row) for row in rows}) == 1
    for row in rows:
        assert all(runs_no_formula(cell) for cell in row)


def check_svg(text):
    assert sends_nothing(text)
    for node in ElementTree.fromstring(text).iter():
        assert node.tag.rpartition("}")[2] != "script"
        assert not [name for name in node.attrib if name.lower().startswith("on")]
        assert "alert" not in "".join(node.attrib.values())


CHECKS = {"html": check_html, "svg": check_svg, "markdown": check_markdown, "latex": check_latex, "csv": check_csv}


def check_terminal(text):
    assert sends_nothing(text.replace("\t", ""))


CHECKS["terminal"] = check_terminal
CASES = [(kind, name) for kind, writers in WRITERS.items() for name in writers]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_hostile_name_stays_a_name(kind, name, make_scores, tmp_path, main, monkeypatch):
    texts = list(WRITERS[kind][name](World(make_scores, tmp_path, main, monkeypatch)))
    assert texts
    for text in texts:
        assert text
        CHECKS[kind](text)
    if kind not in ("svg", "terminal"):
        assert "alert(1)" in "".join(texts), "the name is shown, not dropped"
