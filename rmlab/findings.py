"""Findings of checks: how they are graded, listed one after the other, and shown as a
table.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import pandas as pd

from rmlab.tables import DataError
from rmlab.text import line

STATUS = pd.CategoricalDtype(["pass", "warn", "fail"], ordered=True)

S = TypeVar("S")


class Finding(NamedTuple):
    """The result of a check.

    `status`: pass, warn or fail. `detail`: why. `remedy`: what to do about it. `value`:
    what was measured.
    """

    status: str
    detail: str
    remedy: str = ""
    value: float = float("nan")


@dataclass(frozen=True)
class Check(Generic[S]):
    """One check of a subject.

    `examine`: the function that returns the finding, or None where the check does not
    apply. `remedy`: what to do, where the finding does not say. `is_needed`: whether
    the checks behind it make no sense after a failure.
    """

    examine: Callable[[S], Finding | None]
    remedy: str = ""
    is_needed: bool = False


Checks = Mapping[str, Check[S]]
"""Checks by name, in the order in which they run."""


def run_checks(
    checks: Checks[S], subject: S
) -> Generator[tuple[str, Finding], None, bool]:
    """Yield the name and the finding of each check.

    A check that raises DataError fails. After it, and after a failed check that the
    others need, nothing more is checked, and False is returned.
    """
    for name, check in checks.items():
        try:
            finding = check.examine(subject)
        except DataError as error:
            yield name, _add_remedy(refusal(error), check.remedy)
            return False

        if finding is None:
            continue
        yield name, _add_remedy(finding, check.remedy)
        if finding.status == "fail" and check.is_needed:
            return False
    return True


def _add_remedy(finding: Finding, remedy: str) -> Finding:
    if finding.remedy:
        return finding
    return finding._replace(remedy=remedy)


def refusal(error: DataError) -> Finding:
    """Return a failure from an error."""
    return Finding("fail", line(error.problem), line(error.remedy))


def grade(is_right: bool, is_near: bool = False) -> str:
    """Return the status of a finding."""
    if is_right:
        return "pass"
    return "warn" if is_near else "fail"


def check_rate(
    count: int, total: int, description: str, *, warn: float, fail: float
) -> Finding:
    """Return a finding about a share of faults: above `warn` it warns, from `fail` on
    it fails.
    """
    status = grade(count <= warn * total, count < fail * total)
    return Finding(status, f"{count} of {total} {description}", value=count)


def findings_table(findings: Iterable[tuple[str, Finding]]) -> pd.DataFrame:
    """Return one row per finding: check, status (pass < warn < fail), value, found,
    remedy; none for what passes.
    """
    rows = []
    for name, finding in findings:
        remedy = "" if finding.status == "pass" else finding.remedy
        rows.append((name, finding.status, finding.value, finding.detail, remedy))
    columns = ["check", "status", "value", "found", "remedy"]
    table = pd.DataFrame(rows, columns=columns)
    return table.astype({"status": STATUS, "value": "float64"})
