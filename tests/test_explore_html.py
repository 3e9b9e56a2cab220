"""Texts from data and models are untrusted: whatever they hold, the page gets text and a few plain tags."""

import re
import time
from html import escape as html_escape
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmlab.widgets import markup
from rmlab.widgets.markup import markdown_html, plain_html

SHOWS = pytest.mark.parametrize("show", [markdown_html, plain_html])

HOSTILE = [
    "<script>window.hurt = 1</script>",
    "<img src=x onerror='window.hurt = 1'>",
    "<svg onload='window.hurt = 1'><script>window.hurt = 1</script></svg>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=window.hurt=1>",
    "[click](javascript:window.hurt=1) <javascript:alert(1)> [data](data:text/html;base64,PHNjcmlwdD4=)",
    "![shot](http://127.0.0.1:9/pixel.png) ![x](javascript:window.hurt=1)",
    "[ref]\n\n[ref]: javascript:window.hurt=1 'x\" onmouseover=window.hurt=1'",
    "<style>* { display: none !important }</style><div style='position:fixed;inset:0;z-index:99999'>over</div>",
    "<iframe src='http://127.0.0.1:9'></iframe><object data=x></object><base href='http://127.0.0.1:9'>",
    "</div></div></table></td><p><b><i>never closed <h1",
    "```html onload=x\n</code></pre><script>window.hurt = 1</script>\n```",
    "`</code><script>window.hurt=1</script>`",
    "$\\href{javascript:window.hurt=1}{x}$ $$\\require{html}\\style{position:fixed}{x}$$ \\(y\\)",
    "".join(map(chr, range(32))) + "\x7f\x85\x9b",
    "right \u202eto left\u2066 and \u200f marks \ufeff&#x202e;&#0;&#x1b;",
    "half a pair \ud800 and \udfff",
    "&lt;script&gt;window.hurt=1&lt;/script&gt; &amp;lt;b&amp;gt;",
    "<a href='javascript:window.hurt=1' id='jp-main-dock-panel' class='jp-Dialog' name='body'>x</a>",
    "Z\u0351\u036b\u0343" * 50 + "a" * 5000,
    "> " * 500 + "deep",
    "[" * 5000 + "](" * 5000,
    "A sentence of many words. " * 40_000,
]
# Input that makes a slow parser hang or a deep one fail.
HOSTILE += [
    "$x$ " * 900,
    "\\(" * 7000,
    "$" * 20_000,
    "\\begin{align}" * 1400,
    "$" + "{" * 1900 + "}" * 1900 + "$",
    "$x" + "^{x" * 600 + "}" * 600 + "$",
    "".join("`" * k + " " for k in range(190)),
    "\\(" + "\\left(" * 250 + "\\)",
    "\n\n".join(["a"] * 9000),
    "x\n" + "~~~\n" * 5000,
]
HOSTILE_FORMULAS = [
    r"\text{<script>window.hurt=1</script>}",
    r"\text{<img src=x onerror=window.hurt=1>} \text{</mtext></math><svg onload=window.hurt=1>}",
    r"\href{javascript:window.hurt=1}{click} \url{javascript:window.hurt=1}",
    r"\style{position:fixed;inset:0}{over} \class{jp-Dialog}{x} \cssId{jp-main-dock-panel}{x}",
    r"\color{red' onmouseover='window.hurt=1}{x} \hspace{-999em} \mathrm{<b>}",
    r"\begin{array}{c' onclick='window.hurt=1} a \end{array}",
    r"\text{&lt;script&gt;} \unicode{x3cscript} \char60 \html{<i>}",
    r"<annotation-xml encoding='text/html'><script>window.hurt=1</script></annotation-xml>",
]
HOSTILE += [form.replace("X", formula) for formula in HOSTILE_FORMULAS for form in ("$X$", "\\(X\\)", "\\[\nX\n\\]")]
HOSTILE += [f"[x]({formula}) ![${formula}$](y)" for formula in HOSTILE_FORMULAS[:7]]


class Checker(HTMLParser):
    """Fails on a tag or attribute that could run, load, lead or cover; collects the text."""

    def __init__(self):
        super().__init__()
        self.text = ""

    def handle_starttag(self, tag, attrs):
        assert tag in markup.TAGS, tag
        for name, value in attrs:
            assert name in markup.ATTRIBUTES - {"style", "href", "src", "xmlns"}, (tag, name)
            assert name != "class" or re.fullmatch(r"(rmlab-[a-z]+ ?)+|[a-z][a-z0-9]{0,3}", value), value
            assert name == "title" or re.fullmatch(r"[\w .+-]{1,40}", value), (tag, name, value)

    def handle_data(self, data):
        self.text += data

    def handle_decl(self, decl):
        raise AssertionError(decl)

    handle_comment = handle_pi = unknown_decl = handle_decl


def checked(html):
    html.encode("utf-8")
    checker = Checker()
    checker.feed(html)
    checker.close()
    return checker.text


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@SHOWS
def test_hostile_text_stays_text(show, text):
    start = time.perf_counter()
    shown = checked(show(text))
    assert shown
    assert not set(shown) & set(map(chr, [*range(9), *range(11, 32), 0x202E, 0x2066]))
    assert time.perf_counter() - start < 20, "the page must stay usable"


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=st.sampled_from(list("<>/\"'`=&;#[]()!*_|-\n\t ascriptonerrjv:$\\\x00\u202e{}")), max_size=120))
def test_any_text_stays_text(text):
    checked(markdown_html(text))
    checked(plain_html(text))


def test_markdown_renders_and_links_do_not_lead_anywhere():
    html = markdown_html("# T\n\n- **a**\n\n1. `x`\n\n| a | b |\n|--|--|\n| 1 | 2 |\n\n> q ~~s~~")
    for tag in ("h1", "strong", "li", "ol", "code", "table", "td", "blockquote", "s"):
        assert f"<{tag}>" in html
    link = "[text](http://example.org/?a=1&b=2 'title') ![alt](http://example.org/x.png)"
    assert checked(markdown_html(link)).strip() == link


@SHOWS
@pytest.mark.parametrize(
    ("text", "mathml"),
    [
        (r"\(x_i\)", "<msub><mi>x</mi><mi>i</mi></msub>"),
        (r"$a_1 * b_2 * c$", "<msub><mi>a</mi><mn>1</mn></msub><mo>*</mo>"),
        ("\\[\na\n= b\n\\]", "<mi>a</mi><mo>=</mo><mi>b</mi>"),
        ("$$\n- a\n$$", "<mo>−</mo><mi>a</mi>"),
        (r"\begin{align*} a &= b \\ c &= d \end{align*}", "<mtr>"),
        (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", "<mtd><mn>4</mn></mtd>"),
        (r"**\(\frac{1}{2}\)**", "<mfrac>"),
        (r"\[ \begin{aligned} a &= b \\ c &= d \end{aligned} \]", '<mtd columnalign="right"><mi>c</mi></mtd>'),
        (r"\[ a \\ b \]", "<mtr><mtd>"),
        (r"\[ \text{if } x < y \]", "<mtext>if&nbsp;</mtext><mi>x</mi><mo>&lt;</mo>"),
    ],
)
def test_maths_is_typeset_with_its_source_at_hand(show, text, mathml):
    html = show(text)
    assert mathml in html
    assert "<em>" not in html
    formula = re.search(r'title="([^"]*)"', html)[1].strip("$\\[]()\n ")
    assert formula in html_escape(text)


@SHOWS
@pytest.mark.parametrize(
    "text",
    [
        "It costs $5 to $10, or 5$ and 6$.",
        "`$x$` and `\\(y\\)`",
        "```\n$x$ \\(y\\)\n```",
        "for f in $HOME/$USER; do echo ${a}.$b; done",
        r"\(\frac\) and $\unknown{x}$ and \(\)",
        r"\(a & b\)",
        r"$\def\a{\a\a}\a$ \(\newcommand{\x}{y}\x\)",
        "$" + r"\sqrt{" * 300 + "$",
        "one \\( two",
    ],
)
def test_what_is_not_maths_or_cannot_be_typeset_stays_as_it_was_written(show, text):
    html = show(text)
    assert "<math" not in html
    for word in re.findall(r"[\w$]+", text):
        assert word in checked(html)


@given(st.text(alphabet="ab {};#\n`$\\()*", max_size=60))
def test_a_text_as_it_was_written_loses_nothing_but_white_space(text):
    html = plain_html(text)
    if "```" not in text and "<math" not in html:
        assert re.sub(r"\s", "", checked(html)) == re.sub(r"\s", "", text)
