"""The bundled benchmark: its code passes or fails its tests."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "data" / "mini"
RUN = "import json, sys\nsource, tests = json.load(sys.stdin)\nnames = {}\nexec(source, names)\nexec(tests, names)"


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
    for row in json.loads((DATA / "code_filtered.json").read_text(encoding="utf-8")):
        for label in ("chosen", "rejected"):
            sources = [source_of(text, style) for style, text in enumerate(row[label])]
            assert len({ast.dump(ast.parse(source)) for source in sources}) == 1, row["id"]
            command = [sys.executable, "-I", "-c", RUN]
            sent = json.dumps([sources[0], row["tests"]])
            done = subprocess.run(command, input=sent, capture_output=True, text=True, timeout=20, check=False)
            assert (done.returncode == 0) == (label == "chosen"), row["id"]
            assert label == "chosen" or "AssertionError" in done.stderr, row["id"]
