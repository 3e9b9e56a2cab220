"""The table of checks: one row per check, with what was found and what to do."""

from collections.abc import Iterable
from typing import NamedTuple

import pandas as pd

__all__ = ["STATUS", "Row", "refusal", "table"]

STATUS = pd.CategoricalDtype(["pass", "warn", "fail"], ordered=True)


class Row(NamedTuple):
    """One check. `remedy` is empty where there is nothing to do."""

    check: str
    status: str
    found: str
    remedy: str = ""


def refusal(check: str, error: Exception) -> Row:
    """A failed check from an error that says what is wrong and, behind the first semicolon, what to do."""
    found, _, remedy = " ".join(str(error).split()).partition("; ")
    return Row(check, "fail", found, remedy)


def table(rows: Iterable[Row]) -> pd.DataFrame:
    """Columns check, status (pass < warn < fail), found, remedy."""
    return pd.DataFrame(list(rows), columns=list(Row._fields)).astype({"status": STATUS})
