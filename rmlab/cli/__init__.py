"""The command line: results on stdout or in a file, everything else on stderr."""

import logging
import sys
import warnings
from typing import Annotated, Any

import typer

from rmlab.cli.demo import demo
from rmlab.cli.doctor import doctor
from rmlab.cli.pages import explore, report
from rmlab.cli.scoring import merge, prefer, score

__all__ = ["app", "main"]

app = typer.Typer(
    name="rmlab",
    help="See what a reward model really rewards.",
    epilog="Exit codes: 0 done, 1 the data, a model or the disk cannot be used (one line says why), 2 wrong usage, "
    "130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line; bad data, a missing package or a full disk is one line on stderr and exit code 1."""
    from rmlab.tables import DataError

    warnings.showwarning = _warn
    logging.basicConfig(format="rmlab: warning: %(message)s", level=logging.WARNING)
    try:
        app()
    except (DataError, OSError, ImportError) as error:
        typer.echo(f"rmlab: error: {' '.join(str(error).split())}", err=True)
        sys.exit(1)


@app.callback(invoke_without_command=True)
def _rmlab(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(installed("rmlab"))
        raise typer.Exit


def _warn(message: Warning | str, *place: Any, **more: Any) -> None:
    """A warning on one line, without the place in our code that gave it."""
    typer.echo(f"rmlab: warning: {' '.join(str(message).split())}", err=True)


# The order is that of the help.
app.command()(demo)
for command in (score, prefer, merge, doctor, report, explore):
    app.command(no_args_is_help=True)(command)
