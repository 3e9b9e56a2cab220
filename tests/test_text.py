"""Names in HTML, Markdown, LaTeX and CSV: each escape alone, then every writer with a
hostile name.
"""

import base64
import contextlib
import csv
import io
import json
import re
import string
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from benchmark_worlds import reward_bench_2_scores
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import rmlab
from rmlab import report, tables, text
from rmlab.io import write_scores
from rmlab.report.page import write_explorer

FORMULA = tuple("=+-@＝＋－＠")
NASTY = (
    "=+-@'\";,|\\u001bab0 \t\r\n\x00\x1b\x9b\u2028\u202e\ufeff＝é$%&#_{}[]<>~^`*!:/.w"
)
TEXTS = st.text(st.sampled_from(NASTY), max_size=12) | st.text(max_size=12)


def sends_nothing(text):
    """Whether no character would hide or reorder text, or command a terminal; line ends
    are allowed.
    """
    kinds = {unicodedata.category(c) for c in text if c != "\n"}
    bidi = {unicodedata.bidirectional(c) for c in text}
    hidden = bidi & {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
    return not kinds & {"Cc", "Zl", "Zp", "Cs"} and not hidden


def runs_no_formula(cell):
    """Whether no spreadsheet takes the cell for a formula, in whatever locale; a number
    is none.
    """
    with contextlib.suppress(ValueError):
        return bool(str(float(cell)))
    return not cell.strip().startswith(FORMULA)


class Parsed(HTMLParser):
    """The tags of a page, their attributes, and the texts within them."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.texts = [], [], [("", "")]
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.texts.append((tag, ""))

    def handle_endtag(self, tag):
        self.texts.append(("", ""))

    def handle_data(self, data):
        self.texts[-1] = (self.texts[-1][0], self.texts[-1][1] + data)

    @property
    def text(self):
        return "".join(data for _, data in self.texts)


@given(TEXTS)
@example("a;=1;'-1")
@example("-0.5")
@example("-1_0")
@example("＝1")
def test_a_cell_of_csv_runs_nothing(value):
    (_, (cell,)) = csv.reader(
        io.StringIO(text.format_csv(pd.DataFrame({"x": [value]})), newline="")
    )
    assert runs_no_formula(cell)
    assert sends_nothing(cell.replace("\t", ""))
    assert cell in (text.visible(value), "'" + text.visible(value))


@given(TEXTS)
@example('"><script>x</script>')
@example("&lt;b&gt;&#x202e;")
def test_html_is_one_text(value):
    escaped = text.escape_html(value)
    assert sends_nothing(escaped.replace("\t", ""))
    shown = text.visible(value)
    within = Parsed(f"<p>{escaped}</p>")
    assert (within.tags, within.attributes, within.text) == (["p"], [], shown)
    assert Parsed(f'<p title="{escaped}">').attributes == [("title", shown)]


# What each character becomes that means something to LaTeX.
LATEX = [
    *{text.escape_latex(c) for c in string.punctuation} - {*string.punctuation},
    "-{}",
]


@given(TEXTS)
@example("\\input{/etc/passwd}")
@example("--- ^^5c \x1b")
def test_latex_is_one_text(value):
    escaped = text.escape_latex(value)
    assert sends_nothing(escaped)
    assert "--" not in escaped
    rest = re.sub(
        "|".join(map(re.escape, sorted(LATEX, key=len, reverse=True))), "", escaped
    )
    assert not set(rest) & set('\\{}$&#%_^~"|[]<>`\n'), (
        "nothing special outside of what stands for a character"
    )


PAYLOAD = (
    "=cmd|'/C calc'!A0;=1+1\"'><script>alert(1)</script><img src=x "
    "onerror=alert(2)>*_`|[a](javascript:alert(3))"
    "<a href=javascript:alert(4)>\\input{/etc/passwd}$\\frac{$#%&~^{}&#x1b;&lt;https://evil.example\x1b[31m\x9b2J\x07"
    "\u202e\u2066\r\n\tend"
)


@pytest.fixture
def scores(make_scores):
    """Scores of two domains and three models, with the payload wherever data can put a
    name.
    """
    scores = make_scores({"poems": 4, "prose": 3}, models=("a", "b", "longest")).assign(
        benchmark="mine"
    )
    for column in ("model", "benchmark", "domain", "subset", "id"):
        scores[column] = scores[column].where(
            scores[column] != scores[column].iloc[0], PAYLOAD
        )
    return tables.check_scores(scores.assign(**{PAYLOAD: PAYLOAD}))


def add_answers(scores):
    texts = scores[scores["model"] == PAYLOAD].drop(columns=["model", "score"])
    answers = [
        f"{row.label} {row.slot} {row.domain} {row.id}" for row in texts.itertuples()
    ]
    return tables.check_responses(texts.assign(prompt="p", response=answers))


def write_pages(scores, folder):
    """Tables, the page of a folder whose file has a hostile name, that of RewardBench 2
    with its figures, and texts.
    """
    responses = add_answers(scores)
    yield report.show(report.leaderboard(scores))._repr_html_()
    yield report.show(responses)._repr_html_()
    write_scores(scores, folder / "in" / "=1+\x1b[31m<b>\u202e.csv")
    for source in (folder / "in", reward_bench_2_scores(models=("a", PAYLOAD))):
        page = report.write_report(source, folder / "r.html", title=PAYLOAD)
        yield page.read_text(encoding="utf-8")
    page = write_explorer(scores, responses, folder / "e.html", title=PAYLOAD)
    yield page.read_text(encoding="utf-8")


def write_csv(scores, folder):
    yield report.to_csv(report.leaderboard(scores).assign(**{PAYLOAD: 0.5}))
    files = report.save_figure(plt.figure(), folder / "x", scores)
    yield files[-1].read_text(encoding="utf-8")
    yield text.format_csv(scores.set_index(["model", "id"]), index=True)
    page = report.write_report(rmlab.pairs(scores), folder / "r.html")
    for data in re.findall(r"data:text/csv;base64,([\w+/=]+)", page.read_text("utf-8")):
        yield base64.b64decode(data).decode()


def write_markdown(scores, folder):
    yield report.to_markdown(report.leaderboard(scores).assign(**{PAYLOAD: 0.5}))


ADDRESSES = (
    "data:image/png;base64,",
    "data:text/csv;base64,",
    "#",
    "https://huggingface.co/",
)


def check_html(page):
    """No element, attribute or script that a name made."""
    assert sends_nothing(page.replace("\t", ""))
    parsed = Parsed(page)
    assert not {*parsed.tags} & {"iframe", "object", "embed", "base", "form"}
    for name, value in parsed.attributes:
        assert re.fullmatch(r"(?!on)[a-z-]+", name), name
        assert name not in ("style", "class", "id") or "alert" not in value
        assert name not in ("src", "href") or value.startswith(ADDRESSES)
    scripts = [data for tag, data in parsed.texts if tag == "script"]
    data = [script for script in scripts if script.startswith("{")]
    assert all(
        isinstance(json.loads(line), dict)
        for script in data
        for line in script.split("\n")
    )
    folder = Path(rmlab.__file__).parent
    code = "".join(
        (folder / name).read_text(encoding="utf-8")
        for name in ("widgets/explorer.js", "report/page.js")
    )
    assert [script for script in scripts if script not in data] in ([], [code])


def check_markdown(page):
    assert sends_nothing(page)
    parsed = Parsed(
        MarkdownIt("commonmark", {"html": True}).enable("table").render(page)
    )
    assert {*parsed.tags} <= {"table", "thead", "tbody", "tr", "th", "td", "em", "p"}
    assert text.escape_markdown(PAYLOAD) in page


def check_csv(page):
    assert sends_nothing(page.replace("\t", ""))
    rows = list(csv.reader(io.StringIO(page), strict=True))
    assert len({len(row) for row in rows}) == 1
    assert all(runs_no_formula(cell) for row in rows for cell in row)


WRITERS = [
    (write_pages, check_html),
    (write_markdown, check_markdown),
    (write_csv, check_csv),
]


@pytest.mark.parametrize(("write", "check"), WRITERS)
def test_a_hostile_name_stays_a_name(write, check, scores, tmp_path):
    pages = list(write(scores, tmp_path))
    for page in pages:
        assert page
        check(page)
    assert "alert(1)" in "".join(pages), "the name is shown, not dropped"
