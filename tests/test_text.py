"""One function for each kind of place: what it makes is inert, and what is read back is exact."""

import contextlib
import csv
import io
import re
import string
import unicodedata
from html.parser import HTMLParser

import pandas as pd
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from rmlab import text

FORMULA = tuple("=+-@＝＋－＠")
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
    with contextlib.suppress(ValueError):
        return bool(str(float(cell)))
    return not cell.strip().startswith(FORMULA)


@given(TEXTS)
@example("a;=1;'-1")
@example("-0.5")
@example("-1_0")
@example("=5")
@example("＝1")
def test_a_cell_of_csv_runs_nothing(value):
    (_, (cell,)) = csv.reader(io.StringIO(text.format_csv(pd.DataFrame({"x": [value]})), newline=""))
    assert runs_no_formula(cell)
    assert sends_nothing(cell.replace("\t", ""))
    assert cell in (text.visible(value), "'" + text.visible(value))


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
def test_html_is_one_text(value):
    made = text.escape_html(value)
    assert sends_nothing(made.replace("\t", ""))
    within = Parsed(f"<p>{made}</p>")
    quoted = Parsed(f'<p title="{made}">')
    assert within.tags == [("p", ())]
    assert quoted.tags == [("p", ("title",))]
    assert within.text == quoted.values[0] == text.visible(value)


@given(TEXTS)
@example("a|b")
@example("a\\|b")
@example("www.evil.example and http://evil.example or me@evil.example")
@example("[x](javascript:1) ![y](z) <http://evil.example>")
def test_markdown_is_one_cell_of_text(value):
    made = text.escape_markdown(value)
    assert sends_nothing(made)
    assert "\n" not in made
    assert not re.search(r"(?<!\\)@|(?<!\\):(?=//)|www(?<!\\)\.", made, re.IGNORECASE)
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    page = parser.render(f"| a | b |\n| --- | --- |\n| {made} | x |\n")
    assert {tag for tag, _ in Parsed(page).tags} <= {"table", "thead", "tbody", "tr", "th", "td"}
    cells = re.findall(r"<td>(.*?)</td>", page)
    assert [Parsed(cell).text for cell in cells] == [text.line(value).strip(" "), "x"]


# What each character becomes that means something to LaTeX.
LATEX = {text.escape_latex(c): c for c in string.punctuation if text.escape_latex(c) != c}


@given(TEXTS)
@example("\\input{/etc/passwd}")
@example("--- ^^5c \x1b")
def test_latex_is_one_text(value):
    made = text.escape_latex(value)
    assert sends_nothing(made)
    assert "\n" not in made
    tokens = "|".join(re.escape(token) for token in sorted([*LATEX, "-{}"], key=len, reverse=True))
    rest = re.sub(tokens, "", made)
    assert not set(rest) & set('\\{}$&#%_^~"|[]<>`'), "nothing special is left outside of what stands for a character"
    assert "--" not in made
    plain = re.sub(tokens, lambda found: LATEX.get(found[0], "-"), made)
    assert plain == text.line(value).replace("\ufffd", "?")
