"""Style features, plain prose and the audit: counts by hand, laws on odd text, the known defects of the real files."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rmlab
from rmlab import tables
from rmlab.styles import FEATURES, audit, features, restyle
from rmlab.styles.counts import MARKS, features_of
from rmlab.styles.prose import plain

PIECES = re.split(
    "¦",
    "*¦**¦_¦__¦`¦``¦```¦~~~¦\n¦\n\n¦    ¦\t¦- ¦+ ¦1. ¦2) ¦# ¦## ¦"
    "> ¦|¦|-|-|¦---¦===¦[¦](¦]¦)¦(¦!¦<¦http://a¦>¦\\¦a¦b c¦"
    'Word. ¦x=1¦$¦&amp;¦*a*¦[a](b)¦/*¦*/¦"t"¦:¦\r\n¦é¦שלום¦😀¦'
    "\U000f0001",
)
PLAIN_CODE = [
    "Use this:\n\n# Example usage:\nprint(add(2, 3))  # Output: 5",
    "import java.util.*;\nimport java.lang.*;\n\nclass Main {}",
    "if __name__ == '__main__':\n    main()",
    "1*2 + 2*4 + 4*1 = 14 and a**2 + b**2 = c**2 and x**n + y**n",
    "f(*args, **kwargs) and g(*rest)",
    "/**\n * Adds two numbers.\n * @param a one\n */\nint add(int *a, int *b);",
    "const s = `${a}/${b}`;",
    "auto f = [&]() { return 1; };",
    ">>> add(2, 3)\n5",
    "    # indented\n    - not a list\n    **not bold**",
    "vector<int> v; if (a < b && c > d) x = y ? '*' : '_';",
    "so \\(a_1 * b_1\\) and \\[\n- x *y* z\n\\] and $p_*q_*$ cost $5, not $6",
    "<b>bold</b> <script>alert('x')</script> &amp; &lt;",
    "n***a f**k s**t",
]


def responses(rows, **more):
    """A responses table from (id, label, style, text) rows."""
    frame = pd.DataFrame(rows, columns=["id", "label", "style", "response"])
    slot = frame.groupby(["id", "label"]).cumcount()
    return frame.assign(**{"benchmark": "b", "domain": "chat", "slot": slot, "prompt": "p" + frame["id"], **more})


@pytest.fixture(scope="module")
def real(shared_data):
    folder = shared_data / "rm-bench"
    math = rmlab.load_pairs(folder / "math_concise_only.json")
    return pd.concat([rmlab.load("rm-bench", path=folder), math], ignore_index=True)[tables.RESPONSES]


def marked(**counts):
    return dict.fromkeys(MARKS, 0) | counts


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("# A\n\nB\n===\n\n### C", {"headings": 3}),
        ("**a** __b c__ ***d***", {"bold": 3, "italic": 1}),
        ("*a* _b_ 中文**粗体**中文", {"italic": 2, "bold": 1}),
        ("**S**trong **W**eak", {"bold": 2}),
        ("- a\n  - b\n- c\n\n1. d\n2. e", {"list_items": 5}),
        ("|a|b|\n|-|-|\n|**c**|d|", {"tables": 1, "bold": 1}),
        ("```py\n# no\n**no**\n```\n\n~~~\n- no\n~~~", {"code_blocks": 2}),
        ("`a` ``b`c``", {"inline_code": 2}),
        ("[a](b) <https://c.org> ![d](e) [f](javascript:g)", {"links": 4}),
        ("[a][1]\n\n[1]: https://b.org", {}),
        ("\\*a\\* \\# b", {}),
        ("> quote\n\n---\n\nend", {}),
    ],
)
def test_marks_are_counted_as_commonmark_reads_them(text, counts):
    found = features_of(text)
    assert {kind: found[kind] for kind in MARKS} == marked(**counts)
    assert found["markdown"] == sum(counts.values())


@pytest.mark.parametrize("text", PLAIN_CODE)
def test_source_code_and_formulas_are_not_markdown(text):
    assert {kind: n for kind, n in features_of(text).items() if kind in MARKS and n} == {}
    assert plain(text) == text


@pytest.mark.parametrize(
    ("text", "words", "sentences"),
    [
        ("One two. Three!", 3, 2),
        ("No end", 2, 1),
        ("Pi is 3.14, e.g. here... Yes?! (Really.)", 7, 4),
        ("# Head\n\n- item one\n- item two.", 5, 3),
        ("- | * —", 0, 0),
        ("```\na. b. c.\n```", 3, 0),
        ("这是。那是！", 1, 2),
        ("هل أنت هنا؟ نعم.", 4, 2),
        (" \n\t ", 0, 0),
    ],
)
def test_words_and_sentences(text, words, sentences):
    found = features_of(text)
    assert (found["words"], found["sentences"], found["characters"]) == (words, sentences, len(text))


@pytest.mark.parametrize(
    ("text", "n"),
    [("👍 👍🏽", 2), ("👨‍👩‍👧", 1), ("🇩🇪🇫🇷", 2), ("1️⃣", 1), ("❤️ ✅", 2), ("™ © → ✓ 1 # *", 0), ("🤪🤪", 2)],
)
def test_an_emoji_sequence_counts_once(text, n):
    assert features_of(text)["emoji"] == n


def test_features_are_one_row_per_response_in_order():
    frame = responses(
        [("1", "rejected", "markdown", "**a**"), ("1", "chosen", "plain", "b"), ("2", "chosen", None, "b")]
    )
    before = frame.copy()
    found = features(frame)
    assert list(found.columns) == [*tables.KEY, "subset", "style", *FEATURES]
    assert found["markdown"].tolist() == [1, 0, 0]
    assert found["style"].dtype == tables.STYLE
    assert (found[list(FEATURES)].dtypes == np.int64).all()
    shuffled = features(frame.iloc[[2, 0, 1]])
    assert shuffled[list(FEATURES)].equals(found[list(FEATURES)].iloc[[2, 0, 1]].reset_index(drop=True))
    pd.testing.assert_frame_equal(frame, before)
    assert features(frame.iloc[:0]).dtypes.equals(found.dtypes)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=25).map("".join) | st.text(min_size=1))
def test_plain_text_has_no_mark_and_stays(text):
    once = plain(text)
    assert once
    assert features_of(once)["markdown"] == 0
    assert plain(once) == once


WORD = st.from_regex(r"[a-z0-9]{1,6}", fullmatch=True)
SPAN = st.tuples(
    WORD, st.sampled_from(["{}", "**{}**", "*{}*", "`{}`", "[{}](http://x.org)", "<b>{}</b>", "${}$", '"{}"'])
)
LINE = st.lists(SPAN, min_size=1, max_size=5)
BLOCK = st.tuples(st.sampled_from(["{}", "# {}", "### {}", "- {}", "* {}", "> {}", "```\n{}\n```", "    {}"]), LINE)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(BLOCK, min_size=1, max_size=6))
def test_plain_keeps_every_word_in_order(blocks):
    text = "\n\n".join(shape.format(" ".join(mark.format(word) for word, mark in line)) for shape, line in blocks)
    words = [word for _, line in blocks for word, _ in line]
    kept = re.sub(r"\(http://x.org\)|</?b>", " ", plain(text).replace("](http", "] (http"))
    assert re.findall(r"[a-z0-9]+", kept) == words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# Soil", "Soil."),
        ("## Why?\nBecause.", "Why?\nBecause."),
        ("Title\n=====\n\ntext", "Title.\n\ntext"),
        ("3. **a**\n4. b\n   - c", "(3) a\n(4) b\nc"),
        ("| a | b |\n|---|---|\n| 1 | `2` |", "a; b\n1; 2"),
        ('[site](https://a.org "A") and <https://b.org>', 'site (https://a.org "A") and https://b.org'),
        ("![cat](c.png)", "cat (c.png)"),
        ("> *quoted*\n\n---\n\nend", "quoted\n\nend"),
        ("Run `a*b` or `*x*`.", "Run a*b or \\*x\\*."),
        ("so:\n```python\n# Sum\ntotal = a**2\n```\ndone", "so:\n\n# Sum\ntotal = a**2\n\ndone"),
        ("```\n# Title\n\n- x\n```", "    # Title\n\n    - x"),
        ("*Note*:\ndef f():\n    return 1", "Note:\ndef f():\n    return 1"),
        ("**1.** first", "(1) first"),
        ("***", " "),
        ("plain **only", "plain **only"),
    ],
)
def test_plain_by_example(text, expected):
    assert plain(text) == expected


def test_restyle_makes_a_new_plain_table():
    frame = responses(
        [("1", "chosen", "markdown", "# A"), ("1", "rejected", None, "b"), ("2", "chosen", "concise", "# A")]
    )
    before = frame.copy()
    made = restyle(frame)
    assert made["response"].tolist() == ["A.", "b", "A."]
    assert made["style"].tolist() == ["plain"] * 3
    assert made["style"].dtype == tables.STYLE
    assert made[tables.KEY].equals(tables.check_responses(frame)[tables.KEY])
    pd.testing.assert_frame_equal(frame, before)
    pd.testing.assert_frame_equal(restyle(made), made)


@pytest.mark.parametrize(
    "unit", ["word ", "**a** ", "[", "`a``b```", "<!--", "&", "*a_ ", "$a ", "\\(a", "/*\n", "...", "> ", "[a]: b\n"]
)
def test_a_long_text_is_read_in_one_go(unit):
    text = (unit * (60_000 // len(unit) + 1))[:60_000]
    assert features_of(text)["characters"] == 60_000
    assert features_of(plain(text))["markdown"] == 0


@pytest.mark.parametrize("deep", ["> " * 300 + "end", "".join("  " * i + f"- w{i}\n" for i in range(120))])
def test_nothing_is_lost_in_deep_nesting(deep):
    assert re.findall(r"\w+", plain(deep)) == re.findall(r"\w+", deep)
    assert features_of(plain(deep))["markdown"] == 0


def test_audit_names_each_defect_and_its_place():
    rows = []
    for i in map(str, range(40)):
        rows += [(i, "chosen", "plain", f"long answer number {i}"), (i, "chosen", "markdown", f"**{i}**")]
        rows += [(i, "rejected", "plain", i), (i, "rejected", "markdown", f"_{i}_  ")]
    frame = responses(rows)
    frame.loc[0, "response"] = frame.loc[1, "response"]
    frame.loc[7, "response"] = frame.loc[5, "response"]
    frame.loc[frame["id"] == "3", "prompt"] = "p2"
    found = audit(frame).set_index("check")
    first = found.loc["same_text_across_styles"]
    assert first[["label", "style", "other", "n", "ids"]].tolist() == ["chosen", "plain", "markdown", 1, ["0"]]
    across = found.loc["chosen_equals_rejected"]
    assert (across["style"], across["other"], across["ids"], across["share"]) == ("markdown", "markdown", ["1"], 1 / 40)
    assert found.loc["markdown_in_plain", "ids"] == ["0"]
    assert found.loc["same_prompt", "ids"] == ["2", "3"]
    length = found.loc["length_tells_label"]
    assert (length["style"], length["n"], length["share"]) == ("plain", 40, 39 / 40 + 1 / 40)
    assert length["low"] > 0.9
    assert found.index.value_counts().max() == 1


def test_audit_of_a_clean_table_is_empty_and_typed():
    rows = [(str(i), label, "plain", f"{label[i % 2]} {i}") for i in range(4) for label in ("chosen", "rejected")]
    clean, dirty = audit(responses(rows)), audit(responses([*rows, ("0", "rejected", "markdown", "c 0")]))
    assert clean.empty
    assert len(dirty) == 2
    assert clean.dtypes.equals(dirty.dtypes)
    assert audit(responses(rows[:0])).empty


def test_real_answers_in_prose_keep_words_and_code(real):
    real = real.iloc[::3]  # every label and style comes up; the whole takes three times as long
    made = restyle(real)
    assert (features(made)["markdown"] == 0).all()
    assert restyle(made)["response"].equals(made["response"])
    letters = re.compile(r"[^\W_]")
    fences = re.compile(r"^```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    differ = 0
    for before, after in zip(real["response"], made["response"], strict=True):
        prose = re.sub(r"^[ \t]*```.*$", "", before, flags=re.MULTILINE)
        differ += letters.findall(prose) != letters.findall(after)
        for code in fences.findall(before):
            block = code.rstrip("\n")
            indented = "\n".join("    " + line if line.strip() else line for line in block.split("\n"))
            assert block in after or indented in after
    assert differ <= 1  # one link repeats its address as its text, and prose says it once
