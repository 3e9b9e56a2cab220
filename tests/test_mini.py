"""The bundled benchmark: six answers of like length to a prompt, and code that passes or fails its tests."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[1] / "data" / "mini"
MINIMUM = {"chat": 16, "code": 12, "math": 16, "safety-refuse": 8, "safety-response": 8}
RUN = "import json, sys\nsource, tests = json.load(sys.stdin)\nnames = {}\nexec(source, names)\nexec(tests, names)"


def rows(domain):
    return json.loads((DATA / f"{domain}_filtered.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("domain", MINIMUM)
def test_six_different_answers_of_like_length_to_each_prompt(domain):
    content = rows(domain)
    assert len(content) >= MINIMUM[domain]
    assert len({row["id"] for row in content}) == len({row["prompt"] for row in content}) == len(content)
    pairs = [pair for row in content for pair in zip(row["chosen"], row["rejected"], strict=True)]
    assert all(len({*row["chosen"], *row["rejected"]}) == 6 for row in content)
    assert all(abs(len(good) - len(bad)) <= 0.15 * max(len(good), len(bad)) for good, bad in pairs)
    longer = sum((len(good) > len(bad)) + 0.5 * (len(good) == len(bad)) for good, bad in pairs)
    assert 0.3 <= longer / len(pairs) <= 0.7, "length tells nothing"


def source_of(text, style):
    """The code of an answer: all of a concise one, the fences of Markdown, else the longest run that parses."""
    if style == 0:
        return text
    if style == 2:
        return "\n\n".join(re.findall(r"^```python\n(.*?)^```\s*$", text, re.MULTILINE | re.DOTALL))
    lines = text.split("\n")
    starts = [i for i, line in enumerate(lines) if re.match(r"(def|import|from|class) ", line)]
    for start, stop in [(i, j) for i in starts for j in range(len(lines), i, -1)]:
        try:
            tree = ast.parse("\n".join(lines[start:stop]))
        except SyntaxError:
            continue
        if any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree.body):
            return "\n".join(lines[start:stop])
    return ""


def test_chosen_code_passes_its_tests_and_rejected_code_fails_them():
    for row in rows("code"):
        for label in ("chosen", "rejected"):
            sources = [source_of(text, style) for style, text in enumerate(row[label])]
            assert len({ast.dump(ast.parse(source)) for source in sources}) == 1, row["id"]
            command = [sys.executable, "-I", "-c", RUN]
            sent = json.dumps([sources[0], row["tests"]])
            done = subprocess.run(command, input=sent, capture_output=True, text=True, timeout=20, check=False)
            assert (done.returncode == 0) == (label == "chosen"), row["id"]
            assert label == "chosen" or "AssertionError" in done.stderr, row["id"]
