"""The explorer and the playground as a person sees them: maths, code, narrow pages, keys, errors. In Chromium."""

import re

import pytest
from test_browser import CONTRAST, SLOW, _write, browser, expect, lab, open_page, run_notebook, shot, wait_text

pytestmark = pytest.mark.browser
__all__ = ["browser", "lab", "open_page"]  # fixtures

DATA = r'''
import pandas as pd
import rmlab
maths = r"""By \(x_i * y_i\) and $\frac{a_1}{b_1}$ we have
\[
\begin{aligned} s &= \sum_{i=1}^{n} x_i \\ &= \boxed{42} \end{aligned}
\]
so the matrix is $\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}$, at a price of $5 or $6."""
hurt = r"""\(\text{<img src=x onerror="window.hurt=1">}\) $\href{javascript:window.hurt=2}{x}$
\[\style{position:fixed;inset:0;z-index:99999}{over}\] $\text{</mtext></math><script>window.hurt=3</script>}$
<math><mtext><svg onload="window.hurt=4"></mtext></math> <math href="javascript:window.hurt=5">click</math>
```html onload=window.hurt=6
<script>window.hurt = 7</script><img src=x onerror='window.hurt = 8'>
```"""
line = "    some_very_long_identifier_of_a_function(" + ", ".join(f"argument_number_{k}" for k in range(12)) + ")"
code = f"Use this:\n\nimport os\n\ndef f(x):\n    y = x * 2  # twice\n{line}\n    return y\n\nThat is all."
fenced = f"## Use this\n\n```python\ndef f(x):\n    y = x * 2  # twice\n{line}\n    return 'y'\n```\n\n**That is** all."
answers = {
    "maths": [maths, maths, "# Maths\n\n" + maths, "It is 41.", "It is 41.\nSurely.", "**41**, as\n\n- $x_i$"],
    "code": [code, code, fenced, code.replace("2", "3"), code, fenced.replace("2", "3")],
    "words": ["答案是十一分钟。", "سؤال وجواب 11", "**东京**是首都",
              "答案是十二分钟。", "سؤال وجواب 12", "**京都**是首都"],
    "hurt": [hurt] * 3 + [hurt + "!"] * 3,
    "long": ["A line of words.\n" * 400] * 3 + ["short"] * 3,
}
rows = [("b", "d", name, ("chosen", "rejected")[k // 3], k % 3, f"About {name}: {texts[k % 3][:80]}", text)
        for name, texts in answers.items() for k, text in enumerate(texts)]
columns = ["benchmark", "domain", "id", "label", "slot", "prompt", "response"]
rows += [("b", "d", f"more {n}", label, k, f"More of the same, number {n}", f"{label} {n}")
         for n in range(30) for label in ("chosen", "rejected") for k in range(3)]
responses = pd.DataFrame(rows, columns=columns)
responses["style"] = [("concise", "plain", "markdown")[slot] for slot in responses["slot"]]
scores = rmlab.score(responses, [rmlab.baselines.random, rmlab.baselines.longest])
view = rmlab.explore(scores, responses).select(order="data")
view
'''


def opened(view, name):
    row, title = view.locator(".rmlab-list button").filter(has_text=f"About {name}"), view.locator(".rmlab-expands h4")
    row.click()
    try:
        expect(title.first).to_contain_text(f"id {name}", timeout=SLOW / 6)
    except AssertionError:
        row.click()  # on a busy machine the list was drawn anew between finding the row and clicking where it stood
        wait_text(title.first, f"id {name}")
    return view.locator(".rmlab-main")


def wait_in_window(page, part):
    inside = "e => { const r = e.getBoundingClientRect(); return r.top >= -5 && r.top < innerHeight - 150 }"
    page.wait_for_function(inside, arg=part.element_handle(), timeout=SLOW)


def tall(part):
    return part.evaluate("e => e.getBoundingClientRect().height")


def test_maths_and_code_in_jupyterlab(open_page, lab):
    page = run_notebook(open_page, lab, [DATA])
    view = page.locator(".rmlab").first
    view.evaluate("e => e.scrollIntoView({block: 'start'})")
    main = opened(view, "maths")
    formulas = main.locator(".rmlab-body math")
    expect(formulas).to_have_count(3 * 4 + 1, timeout=SLOW)
    fraction = main.locator(".rmlab-body mfrac").first
    assert tall(fraction) > 1.3 * tall(fraction.locator("mi").first), "a fraction stands above its denominator"
    rows = main.locator(".rmlab-body mtable").first.locator("mtr")
    first, second = (rows.nth(k).bounding_box()["y"] for k in (0, 1))
    assert second > first
    text = main.locator(".rmlab-body").first.inner_text()
    assert "at a price of $5 or $6." in text
    assert "\\frac" not in text
    shot(page, view, "explore-maths-1400")
    view.get_by_role("button", name="Raw", exact=True).click()
    wait_text(main.locator(".rmlab-body").first, r"By \(x_i * y_i\) and $\frac{a_1}{b_1}$")
    wait_text(main.locator(".rmlab-body").first, r"x_i \\ &= \boxed{42}")
    view.get_by_role("button", name="Rendered", exact=True).click()

    opened(view, "code")
    plain, fenced = (main.locator(".rmlab-body").nth(k) for k in (1, 2))
    wait_text(plain, "That is all.")
    assert "def f(x):\n    y = x * 2  # twice\n" in plain.inner_text()
    assert "def f(x):\n    y = x * 2  # twice\n" in fenced.inner_text()
    for body in (plain, fenced):
        pre = body.locator("pre").last
        assert pre.evaluate("e => e.scrollWidth > e.clientWidth + 100"), "a long line scrolls and is not broken"
        assert body.evaluate("e => e.scrollWidth <= e.clientWidth + 1")
    colours = fenced.locator("pre").evaluate(
        "e => new Set([...e.querySelectorAll('span')].map(s => getComputedStyle(s).color)).size"
    )
    assert colours >= 3
    shot(page, view, "explore-code-1400")

    opened(view, "long")
    body = main.locator(".rmlab-body").first
    assert tall(body) < 400
    main.get_by_label("expand: chosen concise answer").check()
    assert tall(body) > 5000
    opened(view, "hurt")
    for show in ("Raw", "Differences", "Rendered"):
        view.get_by_role("button", name=show, exact=True).click()
        page.wait_for_timeout(400)
    assert page.evaluate("window.hurt") is None
    inert = "script, iframe, svg, img, form, [onerror], [onload], [href], math [style], math [class], annotation-xml"
    assert main.locator(".rmlab-text").locator(inert).count() == 0
    assert main.locator(".rmlab-body math").count() > 3
    shot(page, view, "explore-hurt-1400")


def test_a_narrow_page_and_the_keys(open_page, lab):
    page = run_notebook(open_page, lab, [DATA], width=900, height=800)
    view = page.locator(".rmlab").first
    view.evaluate("e => e.scrollIntoView({block: 'start'})")
    main = view.locator(".rmlab-main")
    view.get_by_label("Compare with").select_option("longest")
    wait_text(view.locator(".rmlab-side"), "longest")
    assert view.evaluate("e => e.scrollWidth <= e.clientWidth + 1"), "nothing sticks out to the right"
    opened(view, "code")
    wait_in_window(page, main.locator("h4").first)  # a click shows the answers
    shot(page, view, "explore-light-900")

    name = main.locator(".rmlab-expands h4").first
    view.get_by_label("Compare with").select_option("none")
    wait_text(view.locator(".rmlab-side"), "1–20 of 35")
    opened(view, "maths")
    main.locator(".rmlab-body").first.click()
    for key, wanted in (("n", "id code"), ("n", "id words"), ("p", "id code"), ("n", "id words")):
        page.keyboard.press(key)
        wait_text(name, wanted)
    wait_text(main.locator(".rmlab-pager"), "3 of 35")
    assert "words" in view.locator(".rmlab-list button[aria-pressed=true]").inner_text()
    assert main.locator(".rmlab-body").nth(1).evaluate("e => getComputedStyle(e).direction") == "rtl"
    assert main.locator(".rmlab-body").nth(0).evaluate("e => getComputedStyle(e).direction") == "ltr"
    view.get_by_role("button", name="Differences", exact=True).click()
    expect(main.locator(".rmlab-diff ins").nth(1)).to_have_text("一", timeout=SLOW)
    view.get_by_role("button", name="Rendered", exact=True).click()
    for _ in range(18):
        main.get_by_role("button", name="Next prompt").click()
    wait_text(main.locator(".rmlab-pager"), "21 of 35")
    wait_text(view.locator(".rmlab-side"), "21–35 of 35")
    main.get_by_role("button", name="Previous prompt").click()
    wait_text(view.locator(".rmlab-side"), "1–20 of 35")
    view.get_by_label("Search").press_sequentially("np")
    wait_text(view.locator(".rmlab-code"), "text='np'")

    handles = view.get_by_role("slider")
    names = [handles.nth(k).get_attribute("aria-label") for k in range(handles.count())]
    assert names == ["lowest margin", "highest margin"]
    corners = view.locator(".rmlab-head-corner, .rmlab-table:has(caption) tr:first-child td").all_text_contents()
    assert len(set(corners)) == 1


PLAY = r"""
import rmlab, tempfile
from rmlab import toy
import torch
torch.set_num_threads(1)
model = rmlab.classifier(toy.save_model(tempfile.mkdtemp(), "qwen3"), dtype="float32", max_length=64, name="short")
play = rmlab.widgets.playground(model, prompt="Why?", answers=["Because of that. It is so.", "No."])
play
"""


def test_the_playground_after_an_error_and_with_long_texts(open_page, lab):
    page = run_notebook(open_page, lab, [PLAY], width=900)
    play = page.locator(".rmlab-play").first
    play.evaluate("e => e.scrollIntoView({block: 'start'})")
    scores = play.locator(".rmlab-scoreline")
    expect(scores).to_have_count(2, timeout=SLOW)
    play.get_by_role("slider", name="Bold").press("ArrowRight")
    wait_text(play, "Answer 1 restyled")
    play.get_by_label("Answer 1").fill("<img src=x onerror='window.hurt=1'> is a long answer. " * 30)
    wait_text(play.locator(".rmlab-problem"), 'under "Long texts"')
    expect(scores).to_have_count(0, timeout=SLOW)
    assert "restyled" not in play.locator(".rmlab-main").inner_text()
    assert play.locator("svg").count() == 0
    assert "truncate" not in play.locator(".rmlab-problem").inner_text()
    shot(page, play, "playground-error-900")
    play.get_by_label("Long texts").select_option("cut the prompt")
    expect(scores).to_have_count(2, timeout=SLOW)
    expect(play.locator(".rmlab-problem")).to_have_count(0, timeout=SLOW)
    assert all(re.fullmatch(r"[-−]?\d+\.\d+", text.strip()) for text in scores.all_text_contents())
    assert page.evaluate("window.hurt") is None
    names = play.get_by_role("slider").evaluate_all("all => all.map(e => e.getAttribute('aria-label'))")
    assert len(names) == len(set(names))
    assert all(names)
    shot(page, play, "playground-long-900")


@pytest.mark.parametrize(("width", "theme"), [(900, "Dark"), (1400, "Dark"), (900, "Light"), (1400, "Light")])
def test_code_and_maths_stand_out_in_both_themes(open_page, lab, width, theme):
    themes = lab[1] / "settings" / "@jupyterlab" / "apputils-extension" / "themes.jupyterlab-settings"
    _write(themes, {"theme": f"JupyterLab {theme}"})
    page = run_notebook(open_page, lab, [DATA], width=width)
    view = page.locator(".rmlab").first
    for name, parts in (("maths", "math"), ("code", "pre, [class^=rmlab-code-]")):
        main = opened(view, name)
        page.wait_for_timeout(300)
        ratio = main.locator(".rmlab-body").locator(parts).evaluate_all(CONTRAST)
        assert min(ratio) >= 3.5, "text stands out from what is behind it"
        shot(page, view, f"explore-{name}-{theme.lower()}-{width}")
        assert view.evaluate("e => e.scrollWidth <= e.clientWidth + 1"), "nothing sticks out to the right"
