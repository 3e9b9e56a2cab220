"""The command line: results on stdout or in a file, everything else on stderr."""

import sys
from typing import Annotated, cast

import typer

from rmlab.cli import terminal
from rmlab.cli.gate import Gate
from rmlab.cli.options import DataclassCommand
from rmlab.cli.pages import Demo, Explore, Report
from rmlab.cli.scoring import Doctor, Judge, Merge, Prefer, Rewards, Score
from rmlab.tables import DataError
from rmlab.text import line
from rmlab.version import __version__

__all__ = ["main"]

app = typer.Typer(
    name="rmlab",
    help="See what a reward model really rewards.",
    epilog=(
        "Exit codes: 0 done, 1 the data, a model or the disk cannot be used (one line "
        "says why), 2 wrong usage, 3 a bound of gate fails, 130 interrupted. "
        "--traceback, with any command, shows where an error comes from."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_TRACEBACK = "--traceback"  # goes with every command, in any place

# The base of all errors of wrong usage, which typer does not export.
_UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__base__)


def main() -> None:
    """Run the command line; whatever ends it is one line on stderr and exit code 1,
    with --traceback all of it.
    """
    terminal.write_utf8()
    terminal.take_over_warnings()
    arguments = [argument for argument in sys.argv[1:] if argument != _TRACEBACK]
    shows_traceback = len(arguments) < len(sys.argv) - 1
    try:
        code = app(arguments, standalone_mode=False)
    except _UsageError as error:
        error.show()
        code = error.exit_code
    except typer.Abort:
        code = 130
    except Exception as error:
        if shows_traceback:
            raise
        terminal.say(f"rmlab: error: {_describe(error)}", err=True)
        code = 1
    if code == 130:
        terminal.say(
            "rmlab: interrupted; with --store the same command resumes", err=True
        )
    sys.exit(code if isinstance(code, int) else 0)


def _describe(error: Exception) -> str:
    """The error in one line; an unforeseen one also with its type and what to do."""
    if isinstance(error, DataError | OSError | ImportError):
        return line(error)
    report = f"please report it with what {_TRACEBACK} shows"
    return f"unexpected {type(error).__name__}: {line(error)}; {report}"


@app.callback(invoke_without_command=True)
def _rmlab(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.")
    ] = False,
) -> None:
    if version:
        terminal.say(__version__)
        raise typer.Exit


# The order is that of the help.
_COMMANDS: list[type] = [
    Demo,
    Score,
    Rewards,
    Prefer,
    Judge,
    Merge,
    Doctor,
    Gate,
    Report,
    Explore,
]
for _command in _COMMANDS:
    _name = _command.__name__.lower()
    _needs_words = _command is not Demo
    app.command(_name, cls=DataclassCommand, no_args_is_help=_needs_words)(_command)
