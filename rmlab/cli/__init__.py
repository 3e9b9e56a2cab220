"""The command line: results on stdout or in a file, everything else on stderr."""

import sys
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Annotated, cast

import typer

from rmlab.cli import terminal
from rmlab.cli.gate import gate
from rmlab.cli.judging import Judge
from rmlab.cli.options import DataclassCommand
from rmlab.cli.pages import explore, run_demo, write_report
from rmlab.cli.rewarding import Rewards
from rmlab.cli.scoring import Doctor, Prefer, Score, merge_stores
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
app.command("demo")(run_demo)
_COMMANDS: dict[str, Callable[..., object]] = {
    "score": Score,
    "rewards": Rewards,
    "prefer": Prefer,
    "judge": Judge,
    "merge": merge_stores,
    "doctor": Doctor,
    "gate": gate,
    "report": write_report,
    "explore": explore,
}
for _name, _command in _COMMANDS.items():
    _kind = DataclassCommand if is_dataclass(_command) else None
    app.command(_name, cls=_kind, no_args_is_help=True)(_command)
