"""Styles: counts by hand, plain prose, the audit, changes step by step; laws on odd
text.
"""

import re

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rmlab
from rmlab import tables
from rmlab.styles import audit, features
from rmlab.styles.counts import FEATURES, MARKS, features_of
from rmlab.styles.prose import plain
from rmlab.styles.transforms import ASSURANCES, FILLERS, HEDGES, TRANSFORMS

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
    return frame.assign(
        **{
            "benchmark": "b",
            "domain": "chat",
            "slot": slot,
            "prompt": "p" + frame["id"],
            **more,
        }
    )


def marked(**counts):
    """The counts of a text with these marks and no other."""
    return dict.fromkeys(MARKS, 0) | counts | {"markdown": sum(counts.values())}


COUNTS = [
    ("# A\n\nB\n===\n\n### C", marked(headings=3)),
    ("**a** __b c__ ***d***", marked(bold=3, italic=1)),
    ("*a* _b_ 中文**粗体**中文", marked(italic=2, bold=1)),
    ("**S**trong **W**eak", marked(bold=2)),
    ("- a\n  - b\n- c\n\n1. d\n2. e", marked(list_items=5)),
    ("|a|b|\n|-|-|\n|**c**|d|", marked(tables=1, bold=1)),
    ("```py\n# no\n**no**\n```\n\n~~~\n- no\n~~~", marked(code_blocks=2)),
    ("`a` ``b`c``", marked(inline_code=2)),
    ("[a](b) <https://c.org> ![d](e) [f](javascript:g)", marked(links=4)),
    ("[a][1]\n\n[1]: https://b.org", marked()),
    ("> quote\n\n---\n\nend", marked()),
    ("One two. Three!", {"words": 3, "sentences": 2}),
    ("Pi is 3.14, e.g. here... Yes?! (Really.)", {"words": 7, "sentences": 4}),
    ("# Head\n\n- item one\n- item two.", {"words": 5, "sentences": 3}),
    ("- | * —", {"words": 0, "sentences": 0}),
    ("```\na. b. c.\n```", {"words": 3, "sentences": 0}),
    ("这是。那是！", {"words": 1, "sentences": 2}),
    ("هل أنت هنا؟ نعم.", {"words": 4, "sentences": 2}),
    (" \n\t ", {"words": 0, "sentences": 0}),
    (
        "One here.\n\n| a. | b. |\n|---|---|\n| It is. It was. | c |\n\nAfter it. Two.",
        {"sentences": 3},
    ),
    *[(text, {"emoji": 2}) for text in ("👍 👍🏽", "🇩🇪🇫🇷", "❤️ ✅", "🤪🤪")],
    *[(text, {"emoji": 1}) for text in ("👨‍👩‍👧", "1️⃣")],
    ("™ © → ✓ 1 # *", {"emoji": 0}),
    *[(text, marked()) for text in PLAIN_CODE],
]


@pytest.mark.parametrize(("text", "counts"), COUNTS)
def test_counts_by_hand(text, counts):
    """Marks as CommonMark reads them, none in source code and formulas; a sequence of
    emoji counts once.
    """
    assert {kind: features_of(text)[kind] for kind in counts} == counts
    assert features_of(text)["characters"] == len(text)
    assert text not in PLAIN_CODE or plain(text) == text


def test_features_are_one_row_per_response_in_order():
    rows = [
        ("1", "rejected", "markdown", "**a**"),
        ("1", "chosen", "plain", "b"),
        ("2", "chosen", None, "b"),
    ]
    frame = responses(rows)
    counts = features(frame)
    assert list(counts.columns) == [*tables.KEY, "subset", "style", *FEATURES]
    assert counts["markdown"].tolist() == [1, 0, 0]
    assert features(frame.iloc[[2, 0, 1]])["markdown"].tolist() == [0, 1, 0]
    assert features(frame.iloc[:0]).dtypes.equals(counts.dtypes)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=25).map("".join)
    | st.text(min_size=1)
)
def test_a_plain_version_of_any_text_is_a_text(text):
    assert plain(text)


def test_plain_versions_of_real_answers_have_no_mark_and_all_words():
    for text in rmlab.load("mini").query("style == 'markdown'")["response"]:
        assert features_of(plain(text))["markdown"] == 0
        numbers = re.compile(r"\d+")
        assert numbers.findall(plain(text)) == numbers.findall(text)


WORD = st.from_regex(r"[a-z0-9]{1,6}", fullmatch=True)
SPAN = st.tuples(
    WORD,
    st.sampled_from(
        [
            "{}",
            "**{}**",
            "*{}*",
            "`{}`",
            "[{}](http://x.org)",
            "<b>{}</b>",
            "${}$",
            '"{}"',
        ]
    ),
)
LINE = st.lists(SPAN, min_size=1, max_size=5)
BLOCK = st.tuples(
    st.sampled_from(
        ["{}", "# {}", "### {}", "- {}", "* {}", "> {}", "```\n{}\n```", "    {}"]
    ),
    LINE,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(BLOCK, min_size=1, max_size=6))
def test_plain_keeps_every_word_in_order(blocks):
    text = "\n\n".join(
        shape.format(" ".join(mark.format(word) for word, mark in line))
        for shape, line in blocks
    )
    words = [word for _, line in blocks for word, _ in line]
    kept = re.sub(
        r"\(http://x.org\)|</?b>", " ", plain(text).replace("](http", "] (http")
    )
    assert re.findall(r"[a-z0-9]+", kept) == words


PLAIN = [
    ("# Soil", "Soil."),
    ("## Why?\nBecause.", "Why?\nBecause."),
    ("Title\n=====\n\ntext", "Title.\n\ntext"),
    ("3. **a**\n4. b\n   - c", "(3) a\n(4) b\nc"),
    ("| a | b |\n|---|---|\n| 1 | `2` |", "a; b\n1; 2"),
    (
        "[site](https://a.org) and <https://b.org>",
        "site (https://a.org) and https://b.org",
    ),
    ("![cat](c.png)", "cat (c.png)"),
    ("> *quoted*\n\n---\n\nend", "quoted\n\nend"),
    ("Run `a*b` or `*x*`.", "Run a*b or \\*x\\*."),
    (
        "so:\n```python\n# Sum\ntotal = a**2\n```\ndone",
        "so:\n\n# Sum\ntotal = a**2\n\ndone",
    ),
    ("```\n# Title\n\n- x\n```", "    # Title\n\n    - x"),
    ("*Note*:\ndef f():\n    return 1", "Note:\ndef f():\n    return 1"),
    ("**1.** first", "(1) first"),
    ("a\n\n    code here\n\nb", "a\n\n    code here\n\nb"),
    ("**a** \\*b\\* &amp; c", "a \\*b\\* &amp; c"),
    ("***", " "),
]


@pytest.mark.parametrize(("text", "expected"), PLAIN)
def test_plain_by_example(text, expected):
    assert plain(text) == expected


UNITS = [
    "word ",
    "**a** ",
    "[",
    "`a``b```",
    "<!--",
    "&",
    "*a_ ",
    "$a ",
    "\\(a",
    "/*\n",
    "...",
    "> ",
    "[a]: b\n",
]


@pytest.mark.parametrize("unit", UNITS)
def test_a_long_text_is_read_in_one_go(unit):
    text = (unit * (60_000 // len(unit) + 1))[:60_000]
    assert features_of(text)["characters"] == 60_000
    assert plain(text)


@pytest.mark.parametrize(
    "deep", ["> " * 300 + "end", "".join("  " * i + f"- w{i}\n" for i in range(120))]
)
def test_nothing_is_lost_in_deep_nesting(deep):
    assert re.findall(r"\w+", plain(deep)) == re.findall(r"\w+", deep)


def test_audit_names_each_defect_and_its_place():
    rows = []
    for i in map(str, range(40)):
        rows += [
            (i, "chosen", "plain", f"long answer number {i}"),
            (i, "chosen", "markdown", f"**{i}**"),
        ]
        rows += [(i, "rejected", "plain", i), (i, "rejected", "markdown", f"_{i}_  ")]
    frame = responses(rows)
    frame.loc[0, "response"] = frame.loc[1, "response"]
    frame.loc[7, "response"] = frame.loc[5, "response"]
    prompts = frame["prompt"].where(frame["id"] != "3", "p2")
    found = audit(frame.assign(prompt=prompts)).set_index("check")
    first = found.loc["same_text_across_styles"]
    assert first[["label", "style", "other", "n", "ids"]].tolist() == [
        "chosen",
        "plain",
        "markdown",
        1,
        ["0"],
    ]
    across = found.loc["chosen_equals_rejected"]
    assert (across["style"], across["other"], across["ids"], across["share"]) == (
        "markdown",
        "markdown",
        ["1"],
        1 / 40,
    )
    assert found.loc["markdown_in_plain", "ids"] == ["0"]
    assert found.loc["same_prompt", ["ids", "other"]].tolist() == [["2", "3"], "chat"]
    length = found.loc["length_tells_label"]
    assert (length["style"], length["n"], length["share"]) == (
        "plain",
        40,
        39 / 40 + 1 / 40,
    )
    assert length["low"] > 0.9
    assert (
        f"({length['chosen_characters'] / length['rejected_characters']:.2f}x)"
        in length["note"]
    )
    assert found.index.value_counts().max() == 1


def test_audit_of_a_clean_table_is_empty_and_typed():
    rows = [
        (str(i), label, "plain", f"{label[i % 2]} {i}")
        for i in range(4)
        for label in ("chosen", "rejected")
    ]
    clean = audit(responses(rows))
    dirty = audit(responses([*rows, ("0", "rejected", "markdown", "c 0")]))
    assert clean.empty
    assert dirty["check"].tolist() == ["chosen_equals_rejected", "no_markdown"]
    assert clean.dtypes.equals(dirty.dtypes)
    slots = responses([*rows, ("0", "rejected", None, "r 0")]).assign(style=None)
    assert audit(slots)["other"].tolist() == ["slot 1"]


TEXT = (
    "Dr. Smith walked to the large house. He bought 3.5 litres of milk, e.g. for tea. "
    "Often he sings.\n\n"
    "```python\nlarge = 1. often\n```\n\nThe second paragraph starts here. It ends."
)


PLACES = {  # what stands in the changed text
    "headings": ["## Answer\n\nDr. Smith", "## Explanation\n\nThe second"],
    "bold": ["**walked** to the", "**bought** 3.5"],
    "bullets": ["- Dr. Smith walked to the large house.\n- He bought", "\n- It ends"],
    "padding": [f"It ends.\n\n{FILLERS[0]} {FILLERS[1]}"],
    "hedging": [f"house. {HEDGES[0]} He", f"tea. {HEDGES[1]} Often"],
    "confidence": [f"house. {ASSURANCES[0]} He", f"tea. {ASSURANCES[1]} Often"],
    "emoji": ["house. 🙂 He", "tea. ✨ Often"],
    "synonyms": ["the big house.", "Frequently he", "paragraph begins"],
    "spacing": ["house.  He", "e.g. for tea.  Often", "here.  It"],
    "final_newline": ["It ends.\n"],
    "strip_markdown": ["\n\nlarge = 1. often\n\n"],
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_change_takes_its_places_in_order_and_leaves_code(name):
    changed = TRANSFORMS[name](TEXT)
    assert [piece for piece in PLACES[name] if piece not in changed] == []
    code = "```python\nlarge = 1. often\n```"
    assert code in changed or name == "strip_markdown"


def test_only_places_that_change_count_and_at_most_five():
    # the first has no word to mark
    text = "It is so. A longer sentence is here. Another stands there."
    marked = "It is so. A longer **sentence** is here. **Another** stands there."
    assert TRANSFORMS["bold"](text) == marked
    assert TRANSFORMS["bold"]("Some **words** already.") == "Some **words** already."
    lists = (
        "- one thing\n- another\n\n# Title here\n\n| a | b |\n\nWords\n- here\n\nA "
        "paragraph of words. Two of them."
    )
    assert TRANSFORMS["bullets"](lists) == lists.replace(
        "A paragraph of words. Two", "- A paragraph of words.\n- Two"
    )
    text = "One. Two. Three. Four. Five. Six. Seven."
    assert features_of(TRANSFORMS["emoji"](text))["emoji"] == 5


def test_code_and_addresses_stay():
    fence = "```\nSome.\n\nLarge words often.\n\nOften so.\n```"
    text = f"Large words here.\n\n{fence}\n\nMore words here.\n\n{fence}\n\nOften so."
    for name in ("bold", "synonyms", "bullets"):
        assert TRANSFORMS[name](text).count(fence) == 2
    addresses = "See https://example.org/a or example.org. Ask me@example.org!"
    assert TRANSFORMS["bold"](addresses) == addresses


@given(
    st.text(alphabet="aB. !?\n*#`-|_1", min_size=1, max_size=80),
    st.sampled_from(sorted(TRANSFORMS)),
)
def test_any_text_survives_every_change(text, name):
    assert TRANSFORMS[name](text)


def test_synonyms_are_their_own_inverse():
    swap = TRANSFORMS["synonyms"]
    assert swap(swap(TEXT)) == TEXT
    assert re.findall("[Bb]ig", swap("Large and large, but `large` and large()")) == [
        "Big",
        "big",
    ]
