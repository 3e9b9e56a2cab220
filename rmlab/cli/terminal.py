"""All output to the terminal, on which nothing from data can act."""

import io
import logging
import sys
import warnings

import pandas as pd
import typer

from rmlab.text import format_csv, line, visible


def write_utf8() -> None:
    """Write files and pipes as UTF-8, as `read_scores` reads them: Windows has another
    encoding, which lacks most names.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.isatty():
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def say(text: object, *, err: bool = False) -> None:
    """Write lines; control characters are shown, not sent."""
    typer.echo(visible(text), err=err)


def say_table(table: pd.DataFrame) -> None:
    """Write a table as CSV; control characters are shown, not sent, and a spreadsheet
    runs no formula.
    """
    sys.stdout.write(format_csv(table))


def say_aligned(table: pd.DataFrame) -> None:
    """Write a table for people: aligned columns, rounded numbers."""
    say(table.to_string(index=False, float_format="{:.3f}".format))


def take_over_warnings() -> None:
    """Write warnings and log lines of the package on one line each."""
    warnings.showwarning = _say_warning
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


class OneLine(logging.Formatter):
    """Log records as warnings of one line, in which nothing commands the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's message."""
        return f"rmlab: warning: {line(record.getMessage())}"


def _say_warning(message: object, *place: object, **options: object) -> None:
    say(f"rmlab: warning: {line(message)}", err=True)
