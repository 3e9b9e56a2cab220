"""Mutation testing: how many of 400 small changes in the modules of the numbers do their tests notice?

mutmut changes one operator, constant or argument at a time. 400 of its mutants are drawn with a seed, among those that
some test reaches. Mutants inside a message (a raise, a warning) are listed and not counted.

    make mutants      # about an hour on two cores; writes results/mutants.csv
"""

import argparse
import ast
import difflib
import json
import random
import subprocess
import sys
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[1]
TARGET = Path(__file__).with_name("results") / "mutants.csv"
STATUS = {0: "survived", 1: "killed", 3: "killed", 5: "no tests", 33: "no tests"} | dict.fromkeys(
    (-24, 24, 36), "timeout"
)


def run_mutmut(*arguments: str) -> str:
    command = [sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def mutants() -> dict[str, int | None]:
    """Exit code of the tests by mutant; None where it has not run."""
    codes: dict[str, int | None] = {}
    for path in sorted((ROOT / "mutants").rglob("*.meta")):
        codes |= json.loads(path.read_text())["exit_code_by_key"]
    return codes


def changed_lines(mutant: str) -> tuple[str, str]:
    """The lines that a mutant takes out and puts in."""
    diff = run_mutmut("show", mutant).splitlines()
    removed = [line[1:].strip() for line in diff if line.startswith("-") and not line.startswith("---")]
    added = [line[1:].strip() for line in diff if line.startswith("+") and not line.startswith("+++")]
    return "\n".join(removed), "\n".join(added)


def is_message(mutant: str, removed: str) -> bool:
    """Whether the line stands in a raise or a warning of the mutant's module."""
    module = mutant.rpartition(".")[0].replace(".", "/")
    path = next(path for path in (ROOT / f"{module}.py", ROOT / module / "__init__.py") if path.is_file())
    source = path.read_text(encoding="utf-8")
    lines = [line.strip() for line in source.splitlines()]
    numbers = {i for i, line in enumerate(lines, 1) if line and line in removed.splitlines()}
    spans = [
        range(node.lineno, (node.end_lineno or node.lineno) + 1)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Raise)
        or (isinstance(node, ast.Call) and ast.unparse(node.func).endswith((".warn", ".warning", ".info")))
    ]
    return bool(numbers) and all(any(number in span for span in spans) for number in numbers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--children", type=int, default=2)
    options = parser.parse_args()
    children = ["--max-children", str(options.children)]
    run_mutmut("run", *children, "no-such-mutant")  # generates all mutants and times the tests, then stops
    names = sorted(mutants())
    random.seed(options.seed)
    sample = sorted(random.sample(names, min(options.draw, len(names))))
    run_mutmut("run", *children, *sample)
    codes = mutants()
    rows = []
    for name in sample:
        status = STATUS.get(codes[name], f"exit code {codes[name]}")
        removed, added = changed_lines(name) if status != "killed" else ("", "")
        change = "\n".join(line for line in difflib.ndiff(removed.splitlines(), added.splitlines()) if line[:1] in "-+")
        rows.append((name, status, bool(removed) and is_message(name, removed), change))
    table = pd.DataFrame(rows, columns=["mutant", "status", "in_message", "change"])
    table.to_csv(TARGET, index=False)
    counted = table[~table["in_message"]]
    killed = counted["status"].isin(["killed", "timeout"])
    print(f"{len(names)} mutants, {len(sample)} drawn, {len(counted)} counted, {killed.mean():.1%} killed")
    print(counted[~killed].to_string())


if __name__ == "__main__":
    main()
