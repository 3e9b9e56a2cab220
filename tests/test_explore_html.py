"""Texts from data and models are untrusted: whatever they hold, what reaches the page is text and a few plain tags."""

import re
import time
from html import escape as html_escape
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmlab import baselines
from rmlab.scoring import score
from rmlab.widgets import detail, explore, maths, render
from rmlab.widgets.word_diff import difference

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
TAGS = {*render.TAGS, "ins", "del", "div"}


class Checker(HTMLParser):
    """Fails on a tag or attribute that could run, load, lead or cover; collects the text."""

    def __init__(self):
        super().__init__()
        self.text = ""

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS, tag
        for name, value in attrs:
            allowed = {"title", "class"} if tag in ("span", "div", "p", "pre") else {"start"} if tag == "ol" else set()
            assert name in allowed | maths.ATTRIBUTES.get(tag, set()), (tag, name)
            assert name not in ("style", "href", "src", "xmlns")
            assert name != "class" or value.startswith("rmlab-")
            assert tag not in maths.TAGS or re.fullmatch(r"[\w.-]{1,20}", value), (tag, name, value)

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
@pytest.mark.parametrize("show", [render.markdown, render.raw, lambda text: difference(text, text[::-1])])
def test_hostile_text_stays_text(show, text):
    start = time.perf_counter()
    said = checked(show(text))
    assert not set(said) & set(map(chr, [*range(9), *range(11, 32), 0x202E, 0x2066, 0x200F, 0xFEFF]))
    assert time.perf_counter() - start < 20, "the page must stay usable"


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=st.sampled_from(list("<>/\"'`=&;#[]()!*_|-\n\t ascriptonerrjv:$\\\x00\u202e{}")), max_size=120))
def test_any_text_stays_text(text):
    checked(render.markdown(text))
    checked(render.raw(text))
    checked(difference(text, text[::-1]))


def test_raw_text_shows_every_character():
    assert checked(render.raw("<b>&amp;\n  x\t$y$")) == "<b>&amp;\n  x\t$y$"


def test_markdown_renders():
    html = render.markdown("# T\n\n- **a**\n\n1. `x`\n\n| a | b |\n|--|--|\n| 1 | 2 |\n\n> q ~~s~~")
    for tag in ("h1", "strong", "li", "ol", "code", "table", "td", "blockquote", "s"):
        assert f"<{tag}>" in html


def test_links_say_where_they_lead_and_do_not_go_there():
    html = render.markdown("[text](http://example.org/?a=1&b=2 'title') ![alt](http://example.org/x.png)")
    assert "http://example.org/?a=1&amp;b=2" in html
    assert "href" not in html
    assert "<img" not in html


@pytest.mark.parametrize("show", [render.markdown, render.written])
@pytest.mark.parametrize(
    ("text", "made"),
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
def test_maths_is_typeset_with_its_source_at_hand(show, text, made):
    html = show(text)
    assert made in html
    assert "<em>" not in html
    body = re.search(r'title="([^"]*)"', html)[1]
    assert body in html_escape(text)


@pytest.mark.parametrize("show", [render.markdown, render.written])
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
        "an \ue0000\ue001 of its own",
        "one \\( two",
    ],
)
def test_what_is_not_maths_or_cannot_be_typeset_stays_as_it_was_written(show, text):
    html = show(text)
    assert "<math" not in html
    for word in re.findall(r"[\w$]+", text.replace("\ue000", " ").replace("\ue001", " ")):
        assert word in checked(html)


@pytest.mark.parametrize(
    "formula",
    [
        r"\text{<script>window.hurt=1</script>}",
        r"\text{<img src=x onerror=window.hurt=1>} \text{</mtext></math><svg onload=window.hurt=1>}",
        r"\href{javascript:window.hurt=1}{click} \url{javascript:window.hurt=1}",
        r"\style{position:fixed;inset:0}{over} \class{jp-Dialog}{x} \cssId{jp-main-dock-panel}{x}",
        r"\color{red' onmouseover='window.hurt=1}{x} \hspace{-999em} \mathrm{<b>}",
        r"\begin{array}{c' onclick='window.hurt=1} a \end{array}",
        r"\text{&lt;script&gt;} \unicode{x3cscript} \char60 \html{<i>}",
        r"<annotation-xml encoding='text/html'><script>window.hurt=1</script></annotation-xml>",
    ],
)
@pytest.mark.parametrize("show", [render.markdown, render.written])
def test_hostile_maths_is_text(show, formula):
    for text in (f"${formula}$", f"\\({formula}\\)", f"\\[\n{formula}\n\\]", f"[x]({formula}) ![${formula}$](y)"):
        checked(show(text))


def test_many_formulas_and_macros_are_rendered():
    for text in (
        "$x$ " * 900, "\\(" * 7000, "$" * 20_000, "\\begin{align}" * 1400, "$" + "{" * 1900 + "}" * 1900 + "$",
        "$x" + "^{x" * 600 + "}" * 600 + "$", "`" * 20_000, "".join("`" * k + " " for k in range(190)),
        "\\(" + "\\left(" * 250 + "\\)", "$" + "x_" * 250 + "$", "\n\n".join(["a"] * 9000), "~~~\n" * 5000,
    ):  # fmt: skip
        assert checked(render.markdown(text))
        assert checked(render.written(text))


def test_a_program_without_a_fence_keeps_its_lines():
    text = "Here it is:\n\n#include <x>\nint main() {\n    return a * b * c;\n}\n\nThat is\nall."
    html = render.answer(text, "plain")
    assert "<pre><code>#include &lt;x&gt;\nint main() {\n    return a * b * c;\n}</code></pre>" in html
    assert '<p class="rmlab-written">That is\nall.</p>' in html
    assert checked(html).replace("\n", "") == text.replace("\n", "")
    unstyled = render.answer("f(x):\n  return `x`", None)
    assert "f(x):<br>\n&nbsp;&nbsp;return <code>x</code>" in unstyled
    assert "<strong>" in render.answer("**b**\nc", "markdown")
    assert "<br>" not in render.answer("**b**\nc", "markdown")
    assert "**b**" in render.answer("**b**", "concise")


@given(st.text(alphabet="ab {};#\n`$\\()*", max_size=60))
def test_a_text_as_it_was_written_loses_nothing_but_white_space(text):
    fences = text.count("```")
    said = checked(render.written(text))
    if not fences and "<math" not in render.written(text):
        assert re.sub(r"\s", "", said) == re.sub(r"\s", "", text)


def test_fenced_code_is_coloured_and_complete():
    code = "def f(x):  # one\n    return 'a' + str(1)\n"
    html = render.markdown(f"```python\n{code}```")
    for kind in ("keyword", "comment", "string", "number", "name"):
        assert f'class="rmlab-code-{kind}"' in html
    assert checked(html).strip() == code.strip()
    assert "rmlab-code" not in render.markdown(f"```nothing\n{code}```")
    assert '<span class="rmlab-code-keyword">' in render.written(f"So:\n```python\n{code}```\nThere.")


def test_chinese_and_japanese_are_compared_character_by_character():
    html = difference("答案是十一分钟。因为很快", "答案是十二分钟。因为很慢")
    assert html == (
        '<div class="rmlab-diff">答案是十<del>二</del><ins>一</ins>分钟。因为很<del>慢</del><ins>快</ins></div>'
    )
    mixed = difference("GPT は 11 分です", "GPT は 12 分です")
    assert "<del>12</del> <ins>11</ins> 分です" in mixed


def test_long_cards_can_be_opened_and_follow_the_direction_of_their_text():
    rows = [
        ("b", "d", "1", label, 0, "سؤال", f"{label} جواب " * (90 if label == "chosen" else 1))
        for label in ("chosen", "rejected")
    ]
    responses = pd.DataFrame(rows, columns=["benchmark", "domain", "id", "label", "slot", "prompt", "response"])
    view = explore(score(responses, baselines.longest), responses)
    html = view.panel.answers.value
    assert html.count('aria-label="expand: chosen answer 0 answer"') == 1
    assert "expand: rejected" not in html
    assert html.count('dir="auto"') == 2
    assert 'dir="auto"' in view.panel.heading.value


def test_long_text_is_cut_and_counted():
    html = render.markdown("a" * 1_000_000)
    assert "The first 20,000 of 1,000,000 characters are shown." in html
    assert len(html) < 25_000


def test_the_difference_keeps_both_texts():
    left, right = "One two three.\nFour.", "One too three.\nFour five."
    html = difference(left, right)
    assert "<del>too</del> <ins>two</ins>" in html
    kept = html.replace("<ins>", "\0").replace("</ins>", "\1")
    assert "five" not in kept.partition("\0")[2].partition("\1")[0]


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12))
def test_without_the_rejected_words_the_chosen_text_is_left(left, right):
    class Half(HTMLParser):
        def __init__(self, leave_out):
            super().__init__()
            self.words, self.inside, self.leave_out = [], False, leave_out

        def handle_starttag(self, tag, attrs):
            self.inside = self.inside or tag == self.leave_out

        def handle_endtag(self, tag):
            self.inside = self.inside and tag != self.leave_out

        def handle_data(self, data):
            self.words += [] if self.inside else data.split()

    html = difference(" ".join(left), " ".join(right))
    for leave_out, words in (("del", left), ("ins", right)):
        half = Half(leave_out)
        half.feed(html)
        assert half.words == words


def test_hostile_names_and_prompts_stay_text_in_the_explorer():
    bad = "<img src=x onerror=alert(1)>"
    rows = [
        (bad, bad, bad, label, slot, bad, bad, [{"role": bad, "content": bad}], bad + str(slot), bad)
        for label in ("chosen", "rejected")
        for slot in range(2)
    ]
    columns = ["benchmark", "domain", "id", "label", "slot", "subset", "source", "prompt", "response", "note"]
    responses = pd.DataFrame(rows, columns=columns)
    scores = pd.concat([score(responses, baselines.random).assign(model=bad + name) for name in "ab"])
    view = explore(scores, responses)
    view.select(models=(bad + "a", bad + "b"))
    for show in view.panel.shows.options:
        view.panel.shows.value = show
        for widget in (view.panel.heading, view.panel.answers, view.link, *view.matrices.titles):
            assert "<img" not in widget.value
    assert bad in view.prompt_list.buttons.items[0]["text"]


def test_numbers_are_short_and_missing_is_a_dash():
    said = [detail.number(v) for v in (0.0, -1.0, 12.345, -0.012345, 123456.0, np.nan)]
    assert said == ["0", "−1.00", "12.3", "−0.0123", "123,456", "–"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((1.11, 0.000688, -0.586, 0.0, np.nan), ["1.11", "0.00", "−0.59", "0", "–"]),
        ((0.0202, -0.0972, 0.138), ["0.020", "−0.097", "0.138"]),
        ((-412.35, 0.2, 3.0), ["−412.4", "0.2", "3.0"]),
        ((-412.35, 7.0), ["−412", "7"]),
        ((9.999, 1.0), ["10.0", "1.0"]),
        ((3e-9, -1e-10), ["3.00e−09", "−1.00e−10"]),
    ],
)
def test_numbers_beside_each_other_have_the_same_decimals(values, said):
    assert detail.numbers(values) == said
