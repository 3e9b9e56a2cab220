"""Checks of the bundled benchmark in data/mini, read as plain JSON.

Every check is a function that returns a list of complaints, so that the last tests in this file
can show that each of them does complain about a damaged row.
"""

import ast
import copy
import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[1] / "data" / "mini"
MINIMUM = {"chat": 16, "code": 12, "math": 16, "safety-refuse": 8, "safety-response": 8}
STYLES = ("concise", "plain", "markdown")
SIDES = ("chosen", "rejected")


@functools.cache
def _read(domain):
    return (DATA / f"{domain}_filtered.json").read_text(encoding="utf-8")


def load(domain):
    if not (DATA / f"{domain}_filtered.json").exists():
        pytest.skip(f"no {domain}_filtered.json in this checkout")
    return json.loads(_read(domain))


def texts(row):
    """(side, style, text) of the six answers."""
    return [(side, style, text) for side in SIDES for style, text in zip(STYLES, row[side], strict=False)]


# ---------------------------------------------------------------- form


def form_problems(rows):
    bad = []
    for key in ("id", "prompt"):
        values = [row.get(key) for row in rows]
        if len(set(values)) != len(values):
            bad.append(f"{key} not unique")
    for row in rows:
        where = f"row {row.get('id')}"
        for key in ("prompt", "subset", "note"):
            if not isinstance(row.get(key), str) or not row[key].strip():
                bad.append(f"{where}: empty {key}")
        answers = []
        for side in SIDES:
            if not isinstance(row.get(side), list) or len(row[side]) != 3:
                bad.append(f"{where}: {side} is not a list of three")
            else:
                answers += row[side]
        if not all(isinstance(text, str) and text.strip() for text in answers):
            bad.append(f"{where}: empty answer")
        if len({str(text) for text in answers}) != 6:
            bad.append(f"{where}: not six different answers")
    return bad


def length_problems(rows, limit=0.15):
    bad = []
    for row in rows:
        for style, good, wrong in zip(STYLES, row["chosen"], row["rejected"], strict=False):
            if abs(len(good) - len(wrong)) > limit * max(len(good), len(wrong)):
                bad.append(f"row {row['id']} {style}: {len(good)} and {len(wrong)} characters")
    return bad


def longest_wins(rows):
    """Accuracy of 'the longer answer is better' on the same-style pairs; a tie counts one half."""
    pairs = [(len(g), len(w)) for row in rows for g, w in zip(row["chosen"], row["rejected"], strict=False)]
    return sum((g > w) + 0.5 * (g == w) for g, w in pairs) / len(pairs)


BLOCK = re.compile(r"^ {0,3}(#|[-*+>]\s|\d+[.)]\s|\|)|^\s*```", re.M)
INLINE = re.compile(r"\*\*|`|(?<!\w)_\w[^\n]*?\w_(?!\w)")
FORMATS = {
    "heading": re.compile(r"^#{1,6} ", re.M),
    "bold": re.compile(r"\*\*[^*\n]+\*\*"),
    "italics": re.compile(r"(?<![\w*])\*[^*\s][^*\n]*\*(?![\w*])"),
    "bullets": re.compile(r"^\s*[-*+] ", re.M),
    "numbers": re.compile(r"^\s*\d+[.)] ", re.M),
    "table": re.compile(r"^\|.*\|\s*$", re.M),
    "quote": re.compile(r"^> ", re.M),
    "inline code": re.compile(r"(?<!`)`[^`\n]+`(?!`)"),
    "fence": re.compile(r"^```", re.M),
}


def style_problems(rows):
    bad = []
    for row in rows:
        for side, style, text in texts(row):
            if style == "plain" and (BLOCK.search(text) or INLINE.search(text)):
                bad.append(f"row {row['id']} {side}: Markdown in the plain answer")
            if style == "markdown" and sum(bool(f.search(text)) for f in FORMATS.values()) < 2:
                bad.append(f"row {row['id']} {side}: fewer than two kinds of Markdown")
    return bad


# ---------------------------------------------------------------- code


def extract_code(text, style):
    """The source in an answer, or '' if there is none."""
    if style == "concise":
        return text
    if style == "markdown":
        blocks = re.findall(r"^```python\n(.*?)^```\s*$", text, re.M | re.S)
        return "\n\n".join(blocks)
    # plain: the longest run of lines that parses, from the first line that can open it
    lines = text.split("\n")
    for first, line in enumerate(lines):
        if re.match(r"(def|import|from|class) ", line):
            for last in range(len(lines), first, -1):
                source = "\n".join(lines[first:last])
                try:
                    tree = ast.parse(source)
                except (SyntaxError, ValueError):
                    continue
                if any(isinstance(node, (ast.FunctionDef, ast.ClassDef)) for node in tree.body):
                    return source
    return ""


RUNNER = """
import json, sys
source, tests = json.load(sys.stdin)
names = {"__name__": "answer"}
try:
    exec(compile(source, "source", "exec"), names)
except BaseException as error:
    print("source: " + type(error).__name__)
else:
    try:
        exec(compile(tests, "tests", "exec"), names)
    except BaseException as error:
        print(type(error).__name__)
    else:
        print("pass")
"""


def outcome(source, tests):
    """'pass', the name of the exception that the tests raised, 'source: <exception>' or 'timeout'."""
    if not source.strip():
        return "no source"
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", RUNNER],
            input=json.dumps([source, tests]),
            capture_output=True,
            text=True,
            timeout=20,
        )
    except subprocess.TimeoutExpired:
        return "timeout"
    return done.stdout.strip() or done.stderr.strip()


def code_problems(row):
    bad = []
    if row.get("language") != "python" or "assert " not in row.get("tests", ""):
        bad.append(f"row {row['id']}: no python tests")
    for side, style, text in texts(row):
        result = outcome(extract_code(text, style), row.get("tests", ""))
        if result != {"chosen": "pass", "rejected": "AssertionError"}[side]:
            bad.append(f"row {row['id']} {side} {style}: {result}")
    for side in SIDES:
        trees = {ast.dump(ast.parse(extract_code(text, style))) for s, style, text in texts(row) if s == side}
        if len(trees) != 1:
            bad.append(f"row {row['id']} {side}: the styles hold different code")
    return bad


# ---------------------------------------------------------------- math


def _unformat(text):
    return re.sub(r"\s+", " ", re.sub(r"[*`$\\]", "", text)).casefold()


def last_place(answer, text):
    """Where the answer stands last in the text, not as a part of a longer number or word; -1 if nowhere."""
    pattern = r"(?<![\w/])(?<!\d[.,])" + re.escape(_unformat(answer)) + r"(?![\w/]|[.,]\d)"
    if answer[0].isdigit():
        pattern = r"(?<![-.^])" + pattern
    return max((found.start() for found in re.finditer(pattern, _unformat(text))), default=-1)


def math_problems(row):
    right, wrong = row.get("answer"), row.get("wrong_answer")
    if not right or not wrong or right == wrong:
        return [f"row {row['id']}: answer and wrong_answer must be given and differ"]
    bad = []
    for side, style, text in texts(row):
        mine, other = (right, wrong) if side == "chosen" else (wrong, right)
        if last_place(mine, text) < 0:
            bad.append(f"row {row['id']} {side} {style}: {mine!r} is missing")
        elif last_place(other, text) > last_place(mine, text):
            bad.append(f"row {row['id']} {side} {style}: ends on {other!r}")
    return bad


# ---------------------------------------------------------------- the files


def test_there_is_data():
    assert any((DATA / f"{domain}_filtered.json").exists() for domain in MINIMUM)


@pytest.mark.parametrize("domain", MINIMUM)
def test_form(domain):
    assert form_problems(load(domain)) == []


@pytest.mark.parametrize("domain", MINIMUM)
def test_enough_prompts(domain):
    assert len(load(domain)) >= MINIMUM[domain]


@pytest.mark.parametrize("domain", MINIMUM)
def test_lengths_of_a_pair_are_close(domain):
    assert length_problems(load(domain)) == []


@pytest.mark.parametrize("domain", MINIMUM)
def test_length_tells_nothing(domain):
    assert 0.3 <= longest_wins(load(domain)) <= 0.7


@pytest.mark.parametrize("domain", MINIMUM)
def test_styles(domain):
    assert style_problems(load(domain)) == []


def test_code_chosen_passes_and_rejected_fails():
    assert [p for row in load("code") for p in code_problems(row)] == []


def test_math_answers():
    assert [p for row in load("math") for p in math_problems(row)] == []


# ---------------------------------------------------------------- the checks can fail

GOOD, WRONG = "def add(a, b):\n    return a + b", "def add(a, b):\n    return a - b"


def code_row():
    def styles(code, word):
        return [
            code,
            f"from here on it {word}.\n\n{code}\n\nThis is all there is to it.",
            f"## Code\n\n```python\n{code}\n```",
        ]

    return {
        "id": 0,
        "prompt": "Add two numbers.",
        "chosen": styles(GOOD, "adds"),
        "rejected": styles(WRONG, "takes away"),
        "subset": "toy",
        "note": "It subtracts.",
        "language": "python",
        "tests": "assert add(2, 3) == 5",
    }


def math_row():
    return {
        "id": 0,
        "answer": "-2",
        "wrong_answer": "12",
        "chosen": ["It is -2.", "Not 12 but -2.", "**-2**"],
        "rejected": ["It is 12.", "Not -2 but 12", "**12**"],
    }


def test_sound_rows_pass():
    assert form_problems([code_row()]) == length_problems([code_row()]) == style_problems([code_row()]) == []
    assert code_problems(code_row()) == []
    assert math_problems(math_row()) == []


@pytest.mark.parametrize(
    "damage",
    [
        {"note": " "},
        {"prompt": ""},
        {"chosen": ["a", "b"]},
        {"chosen": ["a", "b", ""]},
        {"chosen": ["a", "b", "b"]},
        {"rejected": code_row()["chosen"]},
    ],
)
def test_form_complains(damage):
    assert form_problems([{**code_row(), **damage}])


def test_form_complains_about_repeats():
    again = {**code_row(), "prompt": "Another."}
    assert form_problems([code_row(), again]) == ["id not unique"]
    assert form_problems([code_row(), {**again, "id": 1, "prompt": code_row()["prompt"]}]) == ["prompt not unique"]


def test_lengths_complain():
    row = code_row()
    row["chosen"][1] += " And so on, at length, for a whole further sentence."
    assert length_problems([row])
    longer = {"chosen": ["aa", "aa", "aa"], "rejected": ["a", "a", "a"]}
    assert longest_wins([longer]) == 1.0
    assert longest_wins([{"chosen": ["a", "aa", "a"], "rejected": ["a", "a", "aa"]}]) == 0.5


@pytest.mark.parametrize(
    "text", ["# Title", "a\n- b", "a\n1. b", "a **b** c", "`a`", "an _odd_ word", "a\n\n> b", "```\na\n```"]
)
def test_styles_complain(text):
    plain, formatted = code_row(), code_row()
    plain["chosen"][1] = text
    assert style_problems([plain]) == ["row 0 chosen: Markdown in the plain answer"]
    formatted["rejected"][2] = "Just words."
    assert style_problems([formatted]) == ["row 0 rejected: fewer than two kinds of Markdown"]


@pytest.mark.parametrize("style", range(3))
def test_code_complains(style):
    swapped = code_row()
    swapped["chosen"][style], swapped["rejected"][style] = swapped["rejected"][style], swapped["chosen"][style]
    assert f"row 0 chosen {STYLES[style]}: AssertionError" in code_problems(swapped)
    assert f"row 0 rejected {STYLES[style]}: pass" in code_problems(swapped)


def test_code_wants_an_assertion_error():
    assert outcome("def add(a, b):\n    return a + c", "assert add(2, 3) == 5") == "NameError"
    assert outcome("import no_such_module_at_all", "assert True") == "source: ModuleNotFoundError"
    assert outcome("def add(a, b) return a", "assert True") == "source: SyntaxError"
    assert outcome("", "assert True") == "no source"


def test_extraction():
    row = copy.deepcopy(code_row())
    assert [extract_code(text, style) for _, style, text in texts(row)][:3] == [GOOD, GOOD + "\n", GOOD + "\n"]
    assert extract_code("from the left, only words", "plain") == ""
    assert (
        extract_code("import math\n\n\ndef f(x):\n    return x\n\n\ndef g(x):\n    return x\n\nDone.", "plain").count(
            "def"
        )
        == 2
    )


@pytest.mark.parametrize(("place", "text"), [(0, "It is 2."), (1, "Not -2 but 12."), (2, "**-2.5**"), (2, "**x-22**")])
def test_math_complains(place, text):
    row = math_row()
    row["chosen"][place] = text
    assert math_problems(row)
