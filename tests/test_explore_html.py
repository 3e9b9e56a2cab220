"""Texts from data and models are untrusted: whatever they hold, what reaches the page is text and a few plain tags."""

import time
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmlab import baselines
from rmlab.scoring import score
from rmlab.widgets import detail, explore, render

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
TAGS = {*render._TAGS, "ins", "del", "div"}


class Checker(HTMLParser):
    """Fails on a tag or attribute that could run, load, lead or cover; collects the text."""

    def __init__(self):
        super().__init__()
        self.text = ""

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS, tag
        for name, value in attrs:
            allowed = {"title", "class"} if tag in ("span", "div", "p", "pre") else {"start"} if tag == "ol" else set()
            assert name in allowed, (tag, name)
            assert name != "class" or value.startswith("rmlab-")

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
@pytest.mark.parametrize("show", [render.markdown, render.raw, lambda text: render.difference(text, text[::-1])])
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
    checked(render.difference(text, text[::-1]))


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


def test_math_is_left_as_it_was_written():
    assert checked(render.markdown(r"$\frac{1}{2}$")).strip() == r"$\frac{1}{2}$"


def test_long_text_is_cut_and_counted():
    html = render.markdown("a" * 1_000_000)
    assert "The first 20,000 of 1,000,000 characters are shown." in html
    assert len(html) < 25_000


def test_the_difference_keeps_both_texts():
    left, right = "One two three.\nFour.", "One too three.\nFour five."
    html = render.difference(left, right)
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

    html = render.difference(" ".join(left), " ".join(right))
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
    for show in view._shows.options:
        view._shows.value = show
        for widget in (view._heading, view._answers, view._link, *view._titles):
            assert "<img" not in widget.value
    assert bad in view._list.items[0]["text"]


def test_numbers_are_short_and_missing_is_a_dash():
    said = [detail.number(v) for v in (0.0, -1.0, 12.345, -0.012345, 123456.0, np.nan)]
    assert said == ["0", "−1.00", "12.3", "−0.0123", "123,456", "–"]
