"""Mutation testing: how many of 400 small changes in the modules of the numbers do
their tests notice?

mutmut changes one operator, constant or argument at a time. 400 of its mutants are
drawn with a seed. Not counted are mutants that only change the words of a message, and
those that change nothing (`equivalent_mutants.csv` says why). A mutant that was killed
once is not run again; the others are, so that the script can be stopped and started
again.

    make mutants      # half an hour on a quiet core; writes results/mutants.csv
"""

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

sys.path.pop(0)  # coverage.py of this folder is not the package of this name
ROOT = Path(__file__).parents[1]
TARGET = Path(__file__).with_name("results") / "mutants.csv"
EQUIVALENT = pd.read_csv(Path(__file__).with_name("equivalent_mutants.csv"))
STATUS = {
    None: "not run",
    0: "survived",
    1: "killed",
    3: "killed",
    5: "no tests",
    33: "no tests",
}
MESSAGE = "words of a message"
TIMEOUT = (-24, 24, 36, 152)  # an endless loop is noticed too


def exit_codes() -> dict[str, int | None]:
    """Exit code of the tests by mutant; None where it has not run."""
    codes: dict[str, int | None] = {}
    for path in sorted((ROOT / "mutants").rglob("*.meta")):
        codes |= json.loads(path.read_text())["exit_code_by_key"]
    return codes


def run_mutants(names: list[str], children: int) -> None:
    """Run mutmut on these mutants, the fastest tests first: most mutants then die at
    once.
    """
    from mutmut.__main__ import _run
    from mutmut.runners.harness import PytestRunner
    from mutmut.state import state

    arguments = PytestRunner._pytest_args_regular_run

    def arguments_in_order(runner: PytestRunner, tests: Iterable[str]) -> list[str]:
        return arguments(
            runner,
            sorted(tests, key=lambda test: state().duration_by_test.get(test, 0.0)),
        )

    PytestRunner._pytest_args_regular_run = arguments_in_order
    shutil.rmtree(
        ROOT / "mutants" / "tests", ignore_errors=True
    )  # mutmut copies them, and leaves deleted ones there
    _run(names, children)


def changed_lines(mutant: str) -> tuple[str, str]:
    """The lines that a mutant takes out and puts in."""
    from mutmut.mutation.diff_apply import find_mutant, get_diff_for_mutant

    diff = get_diff_for_mutant(mutant, path=find_mutant(mutant).path).splitlines()
    sides = {
        sign: [
            line[1:].strip()
            for line in diff
            if line[:1] == sign and line[:3] != 3 * sign
        ]
        for sign in "-+"
    }
    return "\n".join(sides["-"]), "\n".join(sides["+"])


def message_lines(function: ast.AST) -> set[int]:
    """Lines of a function that only make the words of a message: a raise, a warning,
    and variables used only there.
    """
    nodes = list(ast.walk(function))
    messages = [node for node in nodes if isinstance(node, ast.Raise)]
    messages += [
        n
        for n in nodes
        if isinstance(n, ast.Call)
        and ast.unparse(n.func).endswith((".warn", ".refuse"))
    ]
    stored = {
        node: {
            n.id
            for n in ast.walk(node)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        for node in nodes
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)
    }
    while True:
        inside = {id(node) for message in messages for node in ast.walk(message)}
        used = {
            n.id
            for n in nodes
            if isinstance(n, ast.Name)
            and isinstance(n.ctx, ast.Load)
            and id(n) not in inside
        }
        more = [
            node
            for node, names in stored.items()
            if names and not names & used and node not in messages
        ]
        if not more:
            break
        messages += more
    return {
        line
        for node in messages
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def without_sentences(lines: str) -> str:
    """The lines with an empty string in place of every string that holds words with a
    blank between them.
    """
    return re.sub(
        r"""f?("[^"]*\w[,:;.]? \w[^"]*"|'[^']*\w[,:;.]? \w[^']*')""", '""', lines
    )


def _cuts(text: str) -> list[tuple[int, str]]:
    """Every place of an empty string in a text, and what stands before it."""
    return [(match.start(), text[: match.start()]) for match in re.finditer('""', text)]


def is_message(mutant: str, removed: str, added: str) -> bool:
    """Whether a mutant changes the words of a message only."""
    sentences, words = without_sentences(removed), without_sentences(added)
    if sentences == words or words in [
        f"{before}None{sentences[i + 2 :]}" for i, before in _cuts(sentences)
    ]:
        return True
    module, _, name = mutant.rpartition(".")
    path = ROOT / module.replace(".", "/")
    source = (
        path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    ).read_text(encoding="utf-8")
    name = re.sub(r"__mutmut_\d+$", "", name).removeprefix("x_").rpartition("ǁ")[2]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            first, lines = (
                node.lineno,
                source.splitlines()[node.lineno - 1 : node.end_lineno],
            )
            changed = [
                i
                for i, line in enumerate(lines, first)
                if line.strip() in removed.split("\n")
            ]
            if changed and {*changed} <= message_lines(node):
                return True
    return False


def why_equivalent(mutant: str, removed: str, added: str) -> str:
    """The reason why a mutant changes nothing, from the list; "" where it is not there.

    A row of the list: a regular expression of the mutant's name, one of the text that
    makes no difference, the reason.
    """
    for row in EQUIVALENT.itertuples():
        sides = {
            re.sub(r",?\s*\)", ")", re.sub(row.text, "", side))
            for side in (removed, added)
        }
        if re.search(row.mutant, mutant) and len(sides) == 1:
            return str(row.reason)
    return ""


def tabulate(sample: list[str]) -> pd.DataFrame:
    codes, rows = exit_codes(), []
    for mutant in sample:
        status = STATUS.get(
            codes[mutant],
            "killed" if codes[mutant] in TIMEOUT else f"exit {codes[mutant]}",
        )
        removed, added = (
            ("", "") if status in ("killed", "not run") else changed_lines(mutant)
        )
        reason = why_equivalent(mutant, removed, added) if removed or added else ""
        if not reason and removed and is_message(mutant, removed, added):
            reason = MESSAGE
        rows.append((mutant, status, reason, removed, added))
    return pd.DataFrame(
        rows, columns=["mutant", "status", "not_counted", "removed", "added"]
    )


def count_by_module(table: pd.DataFrame) -> pd.DataFrame:
    """Mutants drawn, run, not counted, killed and survived; the last row is that of
    all.
    """
    module = table["mutant"].str.extract(r"^rmlab\.(\w+)")[0]
    was_run, is_killed, is_counted = (
        table["status"] != "not run",
        table["status"] == "killed",
        table["not_counted"] == "",
    )
    is_message = table["not_counted"] == MESSAGE
    flags = {
        "drawn": was_run | True,
        "run": was_run,
        "words of a message": is_message & was_run,
    }
    flags |= {"equivalent": ~is_counted & ~is_message & was_run, "killed": is_killed}
    flags |= {"survived": was_run & is_counted & ~is_killed}
    counts = pd.DataFrame(flags).astype(int).groupby(module).sum()
    counts.loc["all"] = counts.sum()
    share = counts["killed"] / (counts["killed"] + counts["survived"])
    return counts.assign(share=share.map("{:.1%}".format)).reset_index(names="module")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--children", type=int, default=2)
    parser.add_argument(
        "--modules",
        default="",
        help="run only mutants of these modules: a regular expression",
    )
    parser.add_argument("--no-run", action="store_true", help="only write the table")
    options = parser.parse_args()
    os.chdir(ROOT)
    if (
        not exit_codes()
    ):  # this name stops mutmut when all mutants are made and the tests are timed
        subprocess.run(
            [sys.executable, "-m", "mutmut", "run", "no-such-mutant"],
            capture_output=True,
            check=False,
        )
    names = sorted(exit_codes())
    random.seed(options.seed)
    sample = sorted(random.sample(names, min(options.draw, len(names))))
    open_names = [
        n
        for n in sample
        if STATUS.get(exit_codes()[n]) != "killed" and re.search(options.modules, n)
    ]
    if open_names and not options.no_run:
        run_mutants(open_names, options.children)
    table = tabulate(sample)
    table.to_csv(TARGET, index=False)
    print(f"{len(names)} mutants, {len(table)} drawn")
    print(count_by_module(table).to_string(index=False))
    survived = (table["not_counted"] == "") & ~table["status"].isin(
        ["killed", "not run"]
    )
    print(table.loc[survived, ["mutant", "status", "removed", "added"]].to_string())


if __name__ == "__main__":
    main()
