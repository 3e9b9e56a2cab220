"""The options that several commands share.

A command with many options is a dataclass: its fields are the arguments and options,
its docstring is the help, and `run` does the work. It inherits the groups below.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd
import typer
from typer import Argument, BadParameter, Option
from typer.core import TyperCommand

from rmlab import benchmarks
from rmlab.io.native import check_target
from rmlab.records import SUFFIXES, check_writable
from rmlab.servers.kinds.base import KINDS

Options = dict[str, Any]
"""Keywords of a function of rmlab, which checks their values."""


class DataclassCommand(TyperCommand):
    """Runs the dataclass that typer has made of the arguments."""

    def invoke(self, ctx: typer.Context) -> None:  # type: ignore[override]
        """Run the command."""
        command = super().invoke(ctx)
        ctx.invoke(command.run)


class Column(NamedTuple):
    """A column of a file of pairs, and what it is."""

    role: str
    column: str


def parse_column(text: str) -> Column:
    """Split role=column."""
    role, _, column = text.partition("=")
    if not (role and column):
        raise BadParameter(f"{text!r}; write for example chosen=better")
    return Column(role, column)


Benchmark = Annotated[
    str, Argument(help="rm-bench, reward-bench-2, mini ..., or a file of pairs.")
]
AllowMissing = Annotated[
    bool,
    Option("--allow-missing", help="Count NaN as missing instead of stopping."),
]
Truncate = Annotated[
    str | None,
    Option(help="left keeps the answer, right the prompt; else raise."),
]
Results = Annotated[
    list[str], Argument(help="Folders, files or globs of scores and pairs.")
]
Columns = Annotated[
    list[Column] | None,
    Option(
        "--column",
        parser=parse_column,
        help="chosen=better: columns of a file of pairs; repeat.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Where the texts are."""

    path: Annotated[
        Path | None,
        Option(help="Benchmark file or folder; else it is downloaded."),
    ] = None
    column: Columns = None

    def load_responses(self, benchmark: str) -> pd.DataFrame:
        """Return the responses of a benchmark by its name, or of a file of pairs."""
        file = Path(benchmark)
        is_file = file.is_file() or file.suffix.lower() in SUFFIXES
        if is_file and self.path is None:
            return load_pairs(benchmark, self.column)
        refuse({"column": self.column}, "is for a file of pairs")
        return benchmarks.load(benchmark, path=self.path)


@dataclass(frozen=True, kw_only=True)
class OutOptions:
    """Where a run stores and writes its work."""

    store: Annotated[
        str | None,
        Option(help="Folder or URL that keeps every batch: rerun to resume."),
    ] = None
    out: Annotated[
        Path | None,
        Option("--out", "-o", help="File to write; else the result is printed."),
    ] = None
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress on stderr.")] = (
        False
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions(OutOptions):
    """The same, and how a run over a benchmark shares its work."""

    name: Annotated[
        list[str] | None,
        Option(help="What MODEL is called in tables; repeat for each."),
    ] = None
    shard: Annotated[
        str | None, Option(help="3/16: only the third of sixteen parts.")
    ] = None
    cluster: Annotated[
        str | None,
        Option(help="ray, or ray://host:port: score on a Ray cluster."),
    ] = None

    def check_out(self) -> None:
        """Raise before a long run where its table could not be written after it."""
        if self.out is not None:
            check_target(self.out)
            check_writable(self.out)

    def run_keywords(self) -> Options:
        """Return keywords of `rmlab.score` and `rmlab.prefer`."""
        keywords = pick_given(self, RunOptions)
        keywords.pop("out", None)
        keywords["progress"] = not keywords.pop("quiet", False)
        return keywords


@dataclass(frozen=True, kw_only=True)
class LocalOptions:
    """A model on this machine."""

    device: Annotated[
        str | None,
        Option(help="cpu, cuda, cuda:1 ...; else the GPU where there is one."),
    ] = None
    dtype: Annotated[
        str | None,
        Option(help="float32, bfloat16 or float16; else chosen for the device."),
    ] = None
    revision: Annotated[
        str | None, Option(help="Branch, tag or commit on the hub.")
    ] = None
    trust_remote_code: Annotated[
        bool,
        Option("--trust-remote-code", help="Run code that comes with the model."),
    ] = False


@dataclass(frozen=True, kw_only=True)
class ClassifierOptions(LocalOptions):
    """A reward model on this machine."""

    head: Annotated[
        str | None,
        Option(help="Name of the reward head; else found by its weights."),
    ] = None
    allow_pickle: Annotated[
        bool,
        Option("--allow-pickle", help="Load pickled weights, which can run code."),
    ] = False


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """A reward model behind a server."""

    url: Annotated[
        str | None,
        Option(
            help="Address of the server that has MODEL, e.g. http://127.0.0.1:8000."
        ),
    ] = None
    kind: Annotated[str | None, Option(help=f"What serves it: {', '.join(KINDS)}.")] = (
        None
    )
    tokenizer: Annotated[
        str | None, Option(help="Folder or id of a served model's tokenizer.")
    ] = None
    key: Annotated[
        str | None,
        Option(help="Environment variable that holds the server's key."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class EncodingOptions:
    """How conversations become tokens."""

    template: Annotated[
        str | None,
        Option(help="Named format or a Jinja file; else the tokenizer's own."),
    ] = None
    max_length: Annotated[
        int | None,
        Option(help="Longest text in tokens; else the window.", min=2),
    ] = None
    truncate: Truncate = None


@dataclass(frozen=True, kw_only=True)
class ModelOptions(ServerOptions, ClassifierOptions, EncodingOptions):
    """A reward model, here or behind a server."""

    def model_keywords(self) -> Options:
        """Return keywords of `rmlab.classifier`, or with --url of `rmlab.remote`."""
        local = pick_given(self, ClassifierOptions)
        served = pick_given(self, ServerOptions)
        encoding = pick_given(self, EncodingOptions)
        if self.url:
            refuse(local, "does not go with --url")
            refuse({"kind": not self.kind}, "give it with --url")
            del served["url"]
            return encoding | served
        refuse(served, "give --url with it")
        return encoding | local


def load_pairs(file: str, given: list[Column] | None) -> pd.DataFrame:
    """The texts of a file of pairs; a role may have several columns."""
    columns: dict[str, list[str]] = {}
    for role, column in given or ():
        columns.setdefault(role, []).append(column)
    return benchmarks.load_preferences(file, columns=columns)


def pick_given(command: object, group: type) -> Options:
    """The options of a group that were given."""
    options = {}
    for field in fields(group):
        value = getattr(command, field.name)
        if value not in (None, False, []):
            options[field.name] = value
    return options


def refuse(options: Options, reason: str) -> None:
    """Raise where one of the options was given, which do not fit the others."""
    flags = [f"--{name.replace('_', '-')}" for name in options if options[name]]
    if flags:
        raise BadParameter(reason, param_hint=", ".join(flags))
