"""mini: the small benchmark that ships with rmlab, in RM-Bench's file format and with its rules."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from rmlab.benchmarks import rm_bench
from rmlab.records import shipped

__all__ = ["MINI", "bundled"]


def bundled() -> Path:
    """Folder of the bundled files."""
    return shipped("mini")


MINI = replace(
    rm_bench.RM_BENCH,
    name="mini",
    title="mini",
    source="written for this project",
    read=partial(rm_bench.read, benchmark="mini"),
    is_row=lambda row: False,  # its rows look like RM-Bench's
    hub=None,
    published={},
)
