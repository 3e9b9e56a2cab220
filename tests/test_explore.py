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
    """The same by loops over the pairs table: {(domain, id): (n, lost, margin,
    flips)}.
    """
    texts = responses.groupby(["domain", "id"], sort=False)
    by_model = dict(tuple(metrics.pairs(scores).groupby("model", sort=False)))
    low, high = selection.margin
    rows = {}
    tables = (
        by_model[model].itertuples()
        for model in (selection.models[0], selection.models[-1])
    )
    for a, b in zip(*tables, strict=True):
        group = texts.get_group((a.domain, a.id))
        words = "\n".join([a.id, group["prompt"].iloc[0], *group["response"]]).lower()
        flip = a.outcome != b.outcome
        if (
            all(
                getattr(selection, name) in (None, getattr(a, name))
                for name in ("domain", "subset", "level")
            )
            and selection.cell in (None, (a.chosen_style, a.rejected_style))
            and (
                flip
                if selection.outcome == "flip"
                else selection.outcome in (None, a.outcome)
            )
            and (-np.inf if low is None else low)
            <= a.margin
            <= (np.inf if high is None else high)
            and selection.text.lower() in words
        ):
            rows.setdefault((a.domain, a.id), []).append(
                (1, a.margin < 0, a.margin, flip)
            )
    columns = {key: np.array(part, float).T for key, part in rows.items()}
    return {
        key: (n.sum(), lost.sum(), margin.mean(), flips.sum())
        for key, (n, lost, margin, flips) in columns.items()
    }


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    domain=st.sampled_from([None, "chat", "safety"]),
    subset=st.sampled_from([None, "safety-refuse", "chat"]),
    cell=st.none() | st.tuples(st.sampled_from(STYLES), st.sampled_from(STYLES)),
    level=st.sampled_from([None, "hard"]),
    outcome=st.sampled_from([None, "loss", "tie", "win", "flip"]),
    low=st.none() | st.floats(-3, 3),
    span=st.floats(0, 3),
    text=st.sampled_from(["", "rome", "what of", "nowhere", "text 1"]),
    order=st.sampled_from(["worst", "best", "data"]),
)
def test_a_selection_finds_what_loops_find(
    make_scores, domain, subset, cell, level, outcome, low, span, text, order
):
    scores = make_scores(seed=3)
    margin = (low, None if low is None else low + span)
    selection = Selection(
        ("a", "b"), domain, subset, cell, level, outcome, margin, text, order
    )
    view = explore(scores.sample(frac=1, random_state=1), texts_of(scores))
    view.selection = selection
    table = view.frame
    expected = slow_match(scores, texts_of(scores), selection)
    rows = {
        (r.domain, r.id): (r.n_pairs, r.lost, r.margin, r.flips)
        for r in table.itertuples()
    }
    assert rows.keys() == expected.keys()
    for key, values in rows.items():
        assert values == pytest.approx(expected[key])
    disagreement = [(r.flips, abs(r.margin - r.other)) for r in table.itertuples()]
    assert order == "data" or disagreement == sorted(
        disagreement, reverse=order == "worst"
    )


def test_what_is_missing_is_missing_never_lost(make_scores):
    scores = make_scores(models=("a", "b"))
    scores.loc[0, "score"] = np.nan
    view = explore(scores, texts_of(scores)).select(order="data")
    assert np.isfinite(view.frame["margin"]).all()
    assert view.frame["n_pairs"][0] == 9
    assert view.select(outcome="missing").frame["n_pairs"].sum() == 3
    without = make_scores({"chat": 9, "code": 4}, models=("a",))
    data = explore(without, texts_of(without)).widget.data
    assert np.isnan(np.frombuffer(data["columns"]["shares"]["data"])).all()
    assert "math" in data["reasons"][0]


def test_only_what_both_models_answered_can_flip(make_scores):
    scores = make_scores(models=("a", "b"), seed=3)
    scores.loc[scores.index[-1], "score"] = np.nan  # one answer of b
    outcomes = rmlab.pairs(scores).pivot(
        index=["domain", "id", "chosen_slot", "rejected_slot"],
        columns="model",
        values="outcome",
    )
    flips = {}
    for (domain, id, *_), row in outcomes.astype(object).iterrows():
        is_flip = row.notna().all() and row["a"] != row["b"]
        flips[domain, id] = flips.get((domain, id), 0) + is_flip
    assert outcomes["b"].isna().sum() == 3

    frame = explore(scores, texts_of(scores)).select(models=("a", "b")).frame
    assert frame.set_index(["domain", "id"])["flips"].to_dict() == flips
    flipped = explore(scores, texts_of(scores)).select(
        models=("a", "b"), outcome="flip"
    )
    assert flipped.frame["n_pairs"].sum() == sum(flips.values())


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
        ("domain", "maths", "math"),
        ("cell", ("concise", "fancy"), "fancy"),
        ("cell", "concise", "rejected"),
        ("cell", ("concise", "plain", "markdown"), "rejected"),
        ("margin", (5, -5), "5"),
        ("margin", 5, "5"),
        ("margin", (None, "low"), "low"),
        ("outcome", "flip", "loss"),
        ("prompt", ("mini", "chat", "no such prompt"), "no such prompt"),
        ("order", "wurst", "worst"),
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
        assert tag in markup.TAGS - {
            "script",
            "style",
            "img",
            "svg",
            "a",
            "iframe",
            "form",
            "object",
        }, tag
        for name, value in attrs:
            assert name in markup.ATTRIBUTES - {"style", "href", "src", "xmlns"}, (
                tag,
                name,
            )
            assert name != "class" or re.fullmatch(
                r"(rmlab-[a-z]+ ?)+|[a-z][a-z0-9]{0,3}", value
            ), value
            assert name == "title" or re.fullmatch(r"[\w .+-]{1,40}", value), (
                tag,
                name,
                value,
            )

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


@pytest.mark.parametrize(
    "architecture", ["llama", "gemma2", "gpt2", "bert", "modernbert"]
)
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
