"""One function for each kind of place: what it makes is inert, and what is read back is exact."""

import csv
import io
import re
import string
import unicodedata
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from rmlab import escapes
from rmlab.io import read_pairs, read_scores, write_pairs, write_scores
from rmlab.metrics import pairs
from rmlab.tables import DataError

FORMULA = tuple("=+-@\t\r\n＝＋－＠")
NASTY = "=+-@'\";,|\\u001bab0 \t\r\n\x00\x1b\x9b\u2028\u202e\ufeff＝é$%&#_{}[]<>~^`*!:/.w"
TEXTS = st.text(st.sampled_from(NASTY), max_size=12) | st.text(max_size=12)


def sends_nothing(text):
    """Whether no character would hide or reorder text, or command a terminal; line ends are allowed."""
    kinds = {unicodedata.category(c) for c in text if c != "\n"}
    bidi = {unicodedata.bidirectional(c) for c in text}
    hidden = bidi & {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
    return not kinds & {"Cc", "Zl", "Zp", "Cs"} and not hidden


def runs_no_formula(cell):
    """Whether no spreadsheet takes the cell for a formula, in whatever locale; a number is none."""
    parts = [cell, *cell.split(";")]
    return all(not part.strip(" ").startswith(FORMULA) or is_number(cell) for part in parts)


def is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


@given(TEXTS)
@example("\\\x1b")
@example("\\\\u001b")
@example("u001b")
@example("''=1")
@example("a;=1;'-1")
@example("-0.5")
@example("-1_0")
def test_a_cell_runs_nothing_and_comes_back(text):
    made = escapes.cell(text)
    assert escapes.uncell(made) == text
    assert runs_no_formula(made)
    assert sends_nothing(made)
    assert "\n" not in made


@pytest.mark.parametrize(
    "text", ["owner/name-v1.5", "a = b", "C:\\models\\x", "it's", "-1.5e-3", "x;y", "中文", "", "'", "''a"]
)
def test_ordinary_texts_are_cells_as_they_are(text):
    assert escapes.cell(text) == text


def test_numbers_stay_numbers_and_every_text_of_a_table_is_a_cell():
    index = pd.MultiIndex.from_tuples([("=a", 1), ("b", 2)], names=["=name", "n"])
    frame = pd.DataFrame({"x": [-1.5, np.nan], "=h": pd.Categorical(["@c", "d"]), "list": [[1], "+z"]}, index=index)
    text = escapes.csv(frame, index=True)
    rows = list(csv.reader(io.StringIO(text)))
    assert rows == [["'=name", "n", "x", "'=h", "list"], ["'=a", "1", "-1.5", "'@c", "[1]"], ["b", "2", "", "d", "'+z"]]
    back = escapes.uncells(pd.read_csv(io.StringIO(text)))
    assert list(back.columns) == ["=name", "n", "x", "=h", "list"]
    assert back["=h"].tolist() == ["@c", "d"]
    assert back["x"].dtype == float
    assert frame.columns.tolist() == ["x", "=h", "list"], "the argument is not changed"
    with pytest.raises(DataError, match="twice, with and without a quote"):
        escapes.uncells(pd.DataFrame([[1, 2]], columns=["=a", "'=a"]))


NAMES = [
    "=1+1",
    "'=1",
    "-x",
    "\x1b[31m",
    "\\u001b",
    "a\r\nb",
    "x;=1",
    "\ufeffm",
    "C:\\u202e",
    "1",
    "-2",
    "nan",
    "",
    " ",
    "a,b",
]


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_score_files_come_back_exactly_whatever_the_names(make_scores, tmp_path, form):
    scores = make_scores({"chat": 3}, models=NAMES)
    names = dict(zip(scores["id"].unique(), NAMES, strict=False))
    scores = scores.assign(id=scores["id"].replace(names), subset="@sub\tset", benchmark="=bench", domain="+d")
    scores["=note\x1b"] = "-see\u202e"
    from rmlab.tables import check_scores

    scores = check_scores(scores)
    back = read_scores(write_scores(scores, tmp_path / f"x.{form}"))
    pd.testing.assert_frame_equal(back, scores, check_exact=True)
    made = pairs(scores)
    pd.testing.assert_frame_equal(read_pairs(write_pairs(made, tmp_path / f"y.{form}")), made, check_exact=True)


def test_a_response_matrix_comes_back_exactly_whatever_the_names(make_scores, tmp_path):
    scores = make_scores({"chat": 3}, models=["=1+1", "a\r\nb"])
    scores = scores[scores["slot"] == 0].replace({"id": {"chat/0": "-x", "chat/1": "\x1b[2J", "chat/2": "\\u001b"}})
    made = pairs(scores)
    path = write_pairs(made, tmp_path / "m.csv", format="response-matrix")
    back = read_pairs(path, benchmark="rm-bench", subsets=dict.fromkeys(made["id"], "chat"))
    columns = ["model", "id", "outcome"]
    pd.testing.assert_frame_equal(back[columns], made[columns])
    (tmp_path / "two.csv").write_text("model,'=a,=a\nx,1,0\n")
    with pytest.raises(DataError, match="two columns have one heading"):
        read_pairs(tmp_path / "two.csv", benchmark="b", subsets={"=a": "s"})


class Parsed(HTMLParser):
    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags, self.values, self.text = [], [], ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.values += [value for _, value in attrs]

    def handle_data(self, data):
        self.text += data


@given(TEXTS)
@example('"><script>x</script>')
@example("&lt;b&gt;&#x202e;")
def test_html_is_one_text(text):
    made = escapes.html(text)
    assert sends_nothing(made.replace("\t", ""))
    within = Parsed(f"<p>{made}</p>")
    quoted = Parsed(f'<p title="{made}">')
    assert within.tags == [("p", ())]
    assert quoted.tags == [("p", ("title",))]
    assert within.text == quoted.values[0] == escapes.visible(text)


@given(TEXTS)
@example("a|b")
@example("a\\|b")
@example("www.evil.example and http://evil.example or me@evil.example")
@example("[x](javascript:1) ![y](z) <http://evil.example>")
def test_markdown_is_one_cell_of_text(text):
    made = escapes.markdown(text)
    assert sends_nothing(made)
    assert "\n" not in made
    assert not re.search(r"(?<!\\)@|(?<!\\):(?=//)|www(?<!\\)\.", made, re.IGNORECASE)
    page = (
        MarkdownIt("commonmark", {"html": True})
        .enable(["table", "strikethrough"])
        .render(f"| a | b |\n| --- | --- |\n| {made} | x |\n")
    )
    found = Parsed(page)
    assert [tag for tag, _ in found.tags if tag not in ("table", "thead", "tbody", "tr", "th", "td")] == []
    cells = re.findall(r"<td>(.*?)</td>", page)
    assert [Parsed(cell).text for cell in cells] == [escapes.line(text).strip(" "), "x"]


# What each character becomes that means something to LaTeX.
LATEX = {escapes.latex(c): c for c in string.punctuation if escapes.latex(c) != c}


@given(TEXTS)
@example("\\input{/etc/passwd}")
@example("--- ^^5c \x1b")
def test_latex_is_one_text(text):
    made = escapes.latex(text)
    assert sends_nothing(made)
    assert "\n" not in made
    tokens = "|".join(re.escape(token) for token in sorted([*LATEX, "-{}"], key=len, reverse=True))
    rest = re.sub(tokens, "", made)
    assert not set(rest) & set('\\{}$&#%_^~"|[]<>`'), "nothing special is left outside of what stands for a character"
    assert "--" not in made
    spoken = re.sub(tokens, lambda found: LATEX.get(found[0], "-"), made)
    told = "".join(c for c in " ".join(text.split()) if "U+" not in escapes.latex(c))
    assert re.sub(r"<U\+[0-9A-F]{4}>", "", spoken) == re.sub(r"<U\+[0-9A-F]{4}>", "", told)


@given(TEXTS)
def test_terminal_text_sends_nothing(text):
    assert sends_nothing(escapes.visible(text).replace("\t", ""))
    assert sends_nothing(escapes.line(text))
    assert "\n" not in escapes.line(text)
