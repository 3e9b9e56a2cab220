"""The explorer's selection held to loops, its state and its texts;
rewards along an answer.
"""

import re
import time
from html import escape as html_escape
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from hostile_texts import HOSTILE, SLOW
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rmlab
from rmlab import baselines, metrics, toy
from rmlab.scorers.classifier import classifier
from rmlab.scoring import score
from rmlab.tables import STYLES, DataError
from rmlab.widgets import explore, markup, token_rewards
from rmlab.widgets.explorer import Selection
from rmlab.widgets.markup import markdown_html, plain_html


@pytest.fixture(scope="module")
def scores(mini):
    models = [
        toy.scorer(mini, skill=k, style=s, name=n)
        for k, s, n in ((1.0, 1.0, "fond"), (2.0, 0.0, "fair"))
    ]
    return score(mini, models)


@pytest.fixture
def view(scores, mini):
    return explore(scores, mini)


@pytest.fixture(scope="module")
def tiny(zoo):
    return classifier(zoo("qwen3"), dtype="float32", name="tiny")


def longest(prompts, texts):
    return [float(len(text)) for text in texts]


def texts_of(scores):
    first = scores[scores["model"] == scores["model"].iloc[0]].drop(
        columns=["model", "score"]
    )
    texts = [
        f"Text {k} about {'Rome' if k % 3 else 'rivers'}" for k in range(len(first))
    ]
    return first.assign(
        prompt=[f"What of {key}?" for key in first["id"]], response=texts
    )


# The selection


def slow_match(scores, responses, selection):
    """The same by a loop over comparisons: {id: (n, lost, margin, flips)}."""
    texts = responses.groupby(["domain", "id"], sort=False)
    first, second = (
        metrics.pairs(scores[scores["model"] == model]).itertuples()
        for model in (selection.models[0], selection.models[-1])
    )
    low, high = selection.margin
    rows = {}
    for a, b in zip(first, second, strict=True):
        group = texts.get_group((a.domain, a.id))
        words = "\n".join([a.id, group["prompt"].iloc[0], *group["response"]]).lower()
        flip = a.outcome != b.outcome and not np.isnan(a.margin + b.margin)
        outcome = "missing" if np.isnan(a.margin) else a.outcome
        fields = {"domain": a.domain, "subset": a.subset, "level": a.level}
        fields["cell"] = (a.chosen_style, a.rejected_style)
        if (
            all(getattr(selection, n) in (None, value) for n, value in fields.items())
            and (selection.outcome != "flip" or flip)
            and selection.outcome in (None, "flip", outcome)
            and (low is None or a.margin >= low)
            and (high is None or a.margin <= high)
            and selection.text.lower() in words
        ):
            row = (1, a.margin < 0, a.margin, flip)
            rows.setdefault((a.domain, a.id), []).append(row)
    sums = {}
    for key, parts in rows.items():
        n, lost, margin, flips = np.array(parts, float).T
        sums[key] = (n.sum(), lost.sum(), pd.Series(margin).mean(), flips.sum())
    return sums


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    domain=st.sampled_from([None, "chat", "safety"]),
    subset=st.sampled_from([None, "safety-refuse", "chat"]),
    cell=st.none() | st.tuples(st.sampled_from(STYLES), st.sampled_from(STYLES)),
    level=st.sampled_from([None, "hard"]),
    outcome=st.sampled_from([None, "loss", "tie", "win", "missing", "flip"]),
    low=st.none() | st.floats(-3, 3),
    span=st.floats(0, 3),
    text=st.sampled_from(["", "rome", "what of", "nowhere", "text 1"]),
    order=st.sampled_from(["worst", "best", "data"]),
)
def test_a_selection_finds_what_loops_find(
    make_scores, domain, subset, cell, level, outcome, low, span, text, order
):
    scores = make_scores(seed=3)
    scores.loc[[0, 40, scores.index[-1]], "score"] = np.nan
    margin = (low, None if low is None else low + span)
    selection = Selection(
        ("a", "b"), domain, subset, cell, level, outcome, margin, text, order
    )
    view = explore(scores.sample(frac=1, random_state=1), texts_of(scores))
    view.selection = selection
    table = view.frame
    expected = slow_match(scores, texts_of(scores), selection)
    rows = table.set_index(["domain", "id"])[["n_pairs", "lost", "margin", "flips"]]
    assert {*rows.index} == {*expected}
    for key, values in expected.items():
        assert rows.loc[key].tolist() == pytest.approx(values, nan_ok=True)
    both = table.dropna(subset=["margin", "other"])
    both["apart"] = (both["margin"] - both["other"]).abs()
    disagreement = both[["flips", "apart"]].to_numpy().tolist()
    is_down = order == "worst"
    assert order == "data" or disagreement == sorted(disagreement, reverse=is_down)


def test_a_domain_without_scores_has_no_matrix_and_the_reason(make_scores):
    without = make_scores({"chat": 9, "code": 4}, models=("a",))
    data = explore(without, texts_of(without)).widget.data
    assert np.isnan(np.frombuffer(data["columns"]["shares"]["data"])).all()
    assert "math" in data["reasons"][0]


def test_page_and_kernel_share_selection_and_notes_and_the_page_is_told_of_errors(
    scores, mini
):
    def broken(prompts, texts):
        raise RuntimeError("no memory")

    view, replies = explore(scores, mini, scorer=broken), []
    view.select(domain="math", outcome="loss")
    view.widget.selection = {
        **view.widget.selection,
        "domain": "code",
        "models": ["fond", "fair"],
    }  # as a click does
    assert view.selection.models == ("fond", "fair")
    assert set(view.frame["domain"]) == {"code"}
    view.widget.annotations = {"3": "doubtful", "5": " "}
    assert view.annotations["annotation"].tolist() == ["doubtful"]
    view.widget.send = lambda message: replies.append(message)
    view.answer_page(view.widget, {"id": 7, "kind": "tokens", "about": 0}, [])
    assert replies == [{"id": 7, "error": "RuntimeError: no memory"}]


def test_data_without_styles_and_answers_of_any_number():
    answers = {
        "label": ["chosen"] * 3 + ["rejected"] * 5,
        "slot": [*range(3), *range(5)],
        "response": [*"abcdefgh"],
    }
    several = pd.DataFrame(answers).assign(
        benchmark="rb2", domain="Ties", id="7", prompt="q"
    )
    view = explore(score(several, baselines.random), several)
    assert view.frame["n_pairs"].tolist() == [15]
    with pytest.raises(DataError, match="cell='concise'"):
        view.select(cell=("concise", "plain"))


def test_another_selection_and_bad_tables_are_refused(view, scores, mini):
    before = view.selection
    for name, value, message in (
        ("models", ("fund",), "fond"),
        ("models", ("fond", "fond"), "different"),
        ("domain", "maths", "math"),
        ("cell", ("concise", "fancy"), "fancy"),
        ("cell", "concise", "rejected"),
        ("margin", (5, -5), "5"),
        ("margin", 5, "5"),
        ("prompt", ("mini", "chat", "no such prompt"), "no such prompt"),
    ):
        with pytest.raises(DataError, match=message):
            view.select(**{name: value})
    assert view.selection == before
    for table, texts, message in (
        (scores.head(0), mini, "rows"),
        (pd.concat([scores, scores.head(1)]), mini, "key"),
        (scores, mini[mini["id"] != "3"], "responses"),
    ):
        with pytest.raises(DataError, match=message):
            explore(table, texts)


# Texts: whatever they hold, the page gets text and a few plain tags


FORBIDDEN = {"script", "style", "img", "svg", "a", "iframe", "form", "object"}
CLASS = r"(rmlab-[a-z]+ ?)+|[a-z][a-z0-9]{0,3}"


class Checker(HTMLParser):
    """Fails on a tag or attribute that could run, load, lead or cover; collects the
    text.
    """

    def __init__(self, html):
        super().__init__()
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        assert tag in markup.TAGS - FORBIDDEN, tag
        for name, value in attrs:
            assert name in markup.ATTRIBUTES - {"style", "href", "src", "xmlns"}, tag
            assert name != "class" or re.fullmatch(CLASS, value), value

    def handle_data(self, data):
        self.text += data


def checked(html):
    """The text of a page that cannot do anything."""
    html.encode("utf-8")
    return Checker(html).text


@pytest.mark.parametrize("text", HOSTILE + SLOW, ids=range(len(HOSTILE + SLOW)))
def test_hostile_text_stays_text_on_a_page_and_in_a_terminal(text):
    start = time.process_time()
    table = rmlab.report.show(
        pd.DataFrame({"response": [text.encode(errors="replace").decode()]})
    )
    cell = table._repr_html_().partition("<tbody>")[2]
    for shown in (
        checked(markdown_html(text)),
        checked(plain_html(text)),
        checked(cell),
        repr(table),
    ):
        assert shown
        assert not set(shown) & set(
            map(chr, [*range(9), *range(11, 32), 0x202E, 0x2066])
        )
    assert time.process_time() - start < 40, "the page must stay usable"


@settings(max_examples=150, deadline=None)
@given(
    st.text(
        alphabet=st.sampled_from(
            list("<>/\"'`=&;#[]()!*_|-\n\t ascriptonerrjv:$\\\x00\u202e{}")
        ),
        max_size=120,
    )
)
def test_any_text_stays_text_and_is_whole_as_it_was_written(text):
    checked(markdown_html(text))
    html = plain_html(text)
    if "```" not in text and "<math" not in html:
        assert re.sub(r"[\s\ufffd]", "", checked(html)) == re.sub(
            r"[\s\0\u202e]", "", text
        )


def test_markdown_renders_and_links_do_not_lead_anywhere():
    html = markdown_html("# T\n\n- **a**\n\n| a | b |\n|--|--|\n| 1 | 2 |")
    assert all(f"<{tag}>" in html for tag in ("h1", "strong", "li", "table", "td"))
    link = (
        "[text](http://example.org/?a=1&b=2 'title') ![alt](http://example.org/x.png)"
    )
    assert checked(markdown_html(link)).strip() == link


@pytest.mark.parametrize("show", [markdown_html, plain_html])
@pytest.mark.parametrize(
    ("text", "mathml"),
    [
        ("$$\n- a\n$$", "<mo>−</mo><mi>a</mi>"),
        (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", "<mtd><mn>4</mn></mtd>"),
        (r"$a_1 * b_2 * c$", "<msub><mi>a</mi><mn>1</mn></msub><mo>*</mo>"),
        (r"**\(\frac{1}{2}\)**", "<mfrac>"),
        (
            r"\[ \begin{aligned} a &= b \\ c &= d \end{aligned} \]",
            '<mtd columnalign="right"><mi>c</mi></mtd>',
        ),
        (r"\[ \text{if } x < y \]", "<mtext>if&nbsp;</mtext><mi>x</mi><mo>&lt;</mo>"),
        # No maths, or none that can be typeset.
        ("It costs $5 to $10, or 5$ and 6$.", None),
        ("```\n$x$ \\(y\\)\n```", None),
        ("for f in $HOME/$USER; do echo ${a}.$b; done", None),
        (r"\(\frac\) and $\unknown{x}$ and \(\)", None),
        (r"$$a = b \\ c = d$$", None),
        (r"$\def\a{\a\a}\a$ \(\newcommand{\x}{y}\x\)", None),
    ],
)
def test_maths_is_typeset_with_its_source_at_hand_and_nothing_else_is(
    show, text, mathml
):
    html = show(text)
    if mathml:
        assert mathml in html
        assert re.search(r'title="([^"]*)"', html)[1].strip(
            "$\\[]()\n "
        ) in html_escape(text)
    else:
        assert "<math" not in html
        assert all(word in checked(html) for word in re.findall(r"[\w$]+", text))


# Token rewards


@pytest.mark.parametrize("architecture", ["llama", "gemma2", "bert"])
def test_the_last_token_reward_is_the_score(zoo, architecture):
    model = classifier(zoo(architecture), dtype="float32")
    prompt, answer = (
        [{"role": "user", "content": "Was ist das?"}],
        "Ein Café 😀. Two lines:\n- one\n- two",
    )
    table = token_rewards(model, prompt, answer)
    assert table["reward"].iloc[-1] == pytest.approx(
        model([prompt], [answer])[0], abs=1e-5
    )
    assert "".join(table["text"]).startswith(answer)
    assert set(table["method"]) == {"occlusion" if "bert" in architecture else "token"}


def test_token_rewards_are_the_scores_of_the_texts_so_far(tiny):
    table = token_rewards(tiny, "Why?", "Because it is.")
    prepared = tiny.prepare(["Why?"], ["Because it is."])
    ids, start = prepared.ids[0], int(prepared.response_start[0])
    for k, end in enumerate(range(start, len(ids))):
        row = tiny.backbone.alone(ids[: end + 1], np.array([end]))
        reward = float(tiny.readout.head(row[None]))
        assert table["reward"].iloc[k] == pytest.approx(reward, abs=1e-5)


def test_occlusion_says_what_each_sentence_is_worth():
    def counts_rome(prompts, texts):
        return [float(text.count("Rome")) for text in texts]

    table = token_rewards(counts_rome, "Where?", "Rome. Not here. In Rome, in Rome.")
    assert table["change"].tolist() == [1, 0, 2]
    assert table["reward"].tolist() == [1, 1, 3]
    assert token_rewards(counts_rome, "Where?", "Rome.")["change"].isna().all()


@given(st.text(alphabet="aB. !?\n\"'-", min_size=1))
def test_pieces_put_together_are_the_text(text):
    assert "".join(token_rewards(longest, "Why?", text)["text"]) == text
