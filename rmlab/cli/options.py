"""The options that several commands share.

A command is a dataclass: its fields are the arguments and options, its docstring is the
help, and `run` does the work. It inherits the groups below.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import typer
from typer.core import TyperCommand

from rmlab import benchmarks, servers
from rmlab.io.native import check_target
from rmlab.records import SUFFIXES, check_writable
from rmlab.scoring.walk import Model
from rmlab.servers.kinds.base import KINDS

Keywords = dict[str, Any]
"""Keywords of a function of rmlab, which checks their values."""


class DataclassCommand(TyperCommand):
    """Runs the dataclass that typer has made of the arguments."""

    def invoke(self, ctx: typer.Context) -> None:  # type: ignore[override]
        """Run the command."""
        command = super().invoke(ctx)
        ctx.invoke(command.run)


def argument(text: str, default: object = ...) -> Any:
    """An argument, which must be given if it has no default."""
    return typer.Argument(default, help=text)


def option(text: str, *flags: str, default: object = None, **settings: Any) -> Any:
    """An option with a value; without `flags` it is called as its field."""
    return typer.Option(default, *flags, help=text, **settings)


def switch(text: str, *flags: str) -> Any:
    """An option without a value."""
    return typer.Option(False, *flags, help=text)


class Column(NamedTuple):
    """A column of a file of pairs, and what it is."""

    role: str
    column: str


def parse_column(text: str) -> Column:
    """Split role=column."""
    role, _, column = text.partition("=")
    if not (role and column):
        raise typer.BadParameter(f"{text!r}; write for example chosen=better")
    return Column(role, column)


BENCHMARK = argument("rm-bench, reward-bench-2, mini ..., or a file of pairs.")
COLUMN = option(
    "chosen=better: columns of a file of pairs; repeat.", parser=parse_column
)
RESULTS = argument("Folders, files or globs of scores and pairs.")
TRUNCATE = option("left keeps the answer, right the prompt; else raise.")


@dataclass(kw_only=True)
class Texts:
    """Where the texts are."""

    path: Path | None = option("Benchmark file or folder; else it is downloaded.")
    column: list[Column] | None = COLUMN


@dataclass(kw_only=True)
class Out:
    """Where a run stores and writes its work."""

    store: str | None = option("Folder or URL that keeps every batch: rerun to resume.")
    out: Path | None = option(
        "File to write; else the result is printed.", "--out", "-o"
    )
    quiet: bool = switch("No progress on stderr.", "--quiet", "-q")


@dataclass(kw_only=True)
class Run(Out):
    """The same, and how a run over a benchmark shares its work."""

    name: list[str] | None = option("What MODEL is called in tables; repeat for each.")
    shard: str | None = option("3/16: only the third of sixteen parts.")
    cluster: str | None = option("ray, or ray://host:port: score on a Ray cluster.")

    def check_out(self) -> None:
        """Raise before a long run where its table could not be written after it."""
        if self.out is not None:
            check_target(self.out)
            check_writable(self.out)

    def run_keywords(self) -> Keywords:
        """Return keywords of `rmlab.score` and `rmlab.prefer`."""
        keywords = pick_given(self, Run)
        keywords.pop("out", None)
        keywords["progress"] = not keywords.pop("quiet", False)
        return keywords


@dataclass(kw_only=True)
class Local:
    """A model on this machine."""

    device: str | None = option("cpu, cuda, cuda:1 ...; else the GPU if there is one.")
    dtype: str | None = option(
        "float32, bfloat16 or float16; else chosen for the device."
    )
    revision: str | None = option("Branch, tag or commit on the hub.")
    trust_remote_code: bool = switch(
        "Run code that comes with the model.", "--trust-remote-code"
    )


@dataclass(kw_only=True)
class Server:
    """A reward model behind a server."""

    url: str | None = option("Address of the server that has MODEL.")
    kind: str | None = option(f"What serves it: {', '.join(KINDS)}.")
    tokenizer: str | None = option("Folder or id of that model's tokenizer.")
    key: str | None = option("Environment variable that holds the server's key.")


@dataclass(kw_only=True)
class Writing:
    """How texts become tokens."""

    template: str | None = option("Named format or a Jinja file; else the tokenizer's.")
    max_length: int | None = option("Longest text in tokens; else the window.", min=2)
    truncate: str | None = TRUNCATE


@dataclass(kw_only=True)
class RewardModel(Local, Server, Writing):
    """A reward model, here or behind a server."""

    allow_pickle: bool = switch(
        "Load pickled weights, which can run code.", "--allow-pickle"
    )

    def model_keywords(self) -> Keywords:
        """Return keywords of `rmlab.classifier`, or with --url of `rmlab.remote`."""
        keywords = pick_given(self, RewardModel)
        if self.url is None:
            refuse(pick_given(self, Server), "give --url with it")
            return keywords
        refuse(pick_given(self, Local), "does not go with --url")
        if self.kind is None:
            refuse(["kind"], "give it with --url")
        del keywords["url"]
        return keywords

    def open_models(self, names: list[str]) -> tuple[list[Model], Keywords]:
        """Models behind --url, or the names and keywords of models on this machine."""
        keywords = self.model_keywords()
        if self.url is None:
            return [*names], keywords
        models: list[Model] = []
        for name in names:
            models.append(servers.remote(self.url, model=name, **keywords))
        return models, {}


def load_texts(
    benchmark: str, path: Path | None, columns: list[Column] | None
) -> pd.DataFrame:
    """The responses of a benchmark by its name, or of a file of pairs."""
    file = Path(benchmark)
    is_file = file.is_file() or file.suffix.lower() in SUFFIXES
    if is_file and path is None:
        return load_pairs(file, columns)
    if columns:
        refuse(["column"], "is for a file of pairs")
    return benchmarks.load(benchmark, path=path)


def load_pairs(file: Path, columns: list[Column] | None) -> pd.DataFrame:
    """The texts of a file of pairs; a role may have several columns."""
    roles: dict[str, list[str]] = {}
    for role, column in columns or ():
        roles.setdefault(role, []).append(column)
    return benchmarks.load_preferences(file, columns=roles)


def pick_given(command: object, group: type) -> Keywords:
    """The options of a group that were given."""
    keywords = {}
    for field in fields(group):
        value = getattr(command, field.name)
        if value not in (None, False, []):
            keywords[field.name] = value
    return keywords


def refuse(names: Iterable[str], reason: str) -> None:
    """Raise, if there are any, naming the options that do not fit the others."""
    flags = [f"--{name.replace('_', '-')}" for name in names]
    if flags:
        raise typer.BadParameter(reason, param_hint=", ".join(flags))
