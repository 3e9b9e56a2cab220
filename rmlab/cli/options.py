"""Commands as dataclasses, the options that several of them share, and the rules
between options.

A command is a dataclass whose fields are its arguments and options, whose docstring is
its help, and whose `run` does the work. It inherits the groups of options below; typer
lists the fields of the last base first.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from typer.core import TyperCommand

from rmlab import benchmarks
from rmlab.records import SUFFIXES
from rmlab.scoring import cluster
from rmlab.servers.kinds.base import KINDS

Options = dict[str, Any]
"""Keywords of a function of rmlab by name: it checks their values and says what is
allowed.
"""

Benchmark = Annotated[
    str,
    typer.Argument(
        help="rm-bench, reward-bench, reward-bench-2, mini, or a file of pairs."
    ),
]
Base = Annotated[
    str | None,
    typer.Option(help="The model an adapter changes, or whose tokenizer to take."),
]

Form = Annotated[
    str | None,
    typer.Option(help="How a pairwise model is asked, e.g. better-pairrm; else found."),
]


class DataclassCommand(TyperCommand):
    """Runs the dataclass that typer has made of the arguments."""

    def invoke(self, ctx: typer.Context) -> None:  # type: ignore[override]
        """Check the rules between options, and run the command."""
        ctx.invoke(_check_rules, ctx.params)
        command = super().invoke(ctx)
        ctx.invoke(command.run)


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Where the texts are."""

    path: Annotated[
        Path | None,
        typer.Option(help="Benchmark file or folder; else it is downloaded."),
    ] = None
    column: Annotated[
        list[str] | None,
        typer.Option(help="chosen=better: columns of a file of pairs; repeat."),
    ] = None
    winner: Annotated[
        str | None,
        typer.Option(help="Column of side-by-side data that says which answer won."),
    ] = None
    better: Annotated[
        str | None,
        typer.Option(help="a or b: the answer that larger grades of WINNER favour."),
    ] = None

    def load_responses(self, benchmark: str) -> pd.DataFrame:
        """Return the responses of a benchmark by its name, or of a file of pairs, with
        its columns mapped.
        """
        file = Path(benchmark)
        is_file = file.is_file() or file.suffix.lower() in SUFFIXES
        if is_file and self.path is None:
            columns = split_columns(self.column)
            return benchmarks.load_preferences(
                benchmark,
                columns=columns,
                winner=self.winner,
                better=self.better,  # type: ignore[arg-type]
            )
        if self.column or self.winner or self.better:
            flags = "--column, --winner, --better"
            raise typer.BadParameter("is for a file of pairs", param_hint=flags)
        return benchmarks.load(benchmark, path=self.path)


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The names of the models in the table, and whether numbers may be missing."""

    name: Annotated[
        list[str] | None,
        typer.Option(help="What MODEL is called in tables; repeat for each."),
    ] = None
    allow_missing: Annotated[
        bool,
        typer.Option(
            "--allow-missing", help="Count NaN as missing instead of stopping."
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """Where a run stores and writes its work."""

    store: Annotated[
        str | None,
        typer.Option(help="Folder or URL that keeps every batch: rerun to resume."),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write; else the result is printed."),
    ] = None
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress on stderr.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class WorkOptions(StoreOptions):
    """The same, and how a run shares its work."""

    shard: Annotated[
        str | None, typer.Option(help="3/16: only the third of sixteen parts.")
    ] = None
    cluster: Annotated[
        str | None,
        typer.Option(help="ray, or ray://host:port: score on a Ray cluster."),
    ] = None
    cpus: Annotated[
        int | None,
        typer.Option(help="CPUs of each worker of --cluster; else 1.", min=1),
    ] = None

    def work_keywords(self) -> Options:
        """Return keywords of `rmlab.score` and `rmlab.prefer`."""
        engine = None
        if self.cluster is not None:
            engine = cluster.find_engine(self.cluster, self.cpus or 1)
        return {
            "store": self.store,
            "shard": self.shard,
            "cluster": engine,
            "progress": not self.quiet,
        }


@dataclass(frozen=True, kw_only=True)
class LocalOptions:
    """A model on this machine."""

    base: Base = None
    device: Annotated[
        str | None,
        typer.Option(help="cpu, cuda, cuda:1 ...; else the GPU where there is one."),
    ] = None
    dtype: Annotated[
        str | None,
        typer.Option(help="float32, bfloat16 or float16; else chosen for the device."),
    ] = None
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit on the hub.")
    ] = None
    trust_remote_code: Annotated[
        bool,
        typer.Option("--trust-remote-code", help="Run code that comes with the model."),
    ] = False


@dataclass(frozen=True, kw_only=True)
class TokenOptions:
    """How conversations become tokens, and how many of them are forwarded at once."""

    max_length: Annotated[
        int | None,
        typer.Option(help="Longest text in tokens; else the window.", min=2),
    ] = None
    truncate: Annotated[
        str | None,
        typer.Option(help="left keeps the answer, right the prompt; else raise."),
    ] = None
    max_batch_tokens: Annotated[
        int | None, typer.Option(help="Tokens forwarded at once.", min=1)
    ] = None


@dataclass(frozen=True, kw_only=True)
class ModelOptions(TokenOptions, LocalOptions):
    """A reward model on this machine."""

    convention: Annotated[
        str | None, typer.Option(help="reward-bench: tokens as its runner makes them.")
    ] = None
    allow_pickle: Annotated[
        bool,
        typer.Option(
            "--allow-pickle", help="Load pickled weights, which can run code."
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class TemplateOptions:
    """How a conversation is written."""

    template: Annotated[
        str | None,
        typer.Option(help="Named format or a Jinja file; else the tokenizer's own."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ClassifierOptions(TemplateOptions, ModelOptions):
    """A reward model that scores one answer."""

    head: Annotated[
        str | None,
        typer.Option(help="Name of the reward head; else found by its weights."),
    ] = None
    pooling: Annotated[
        str | None,
        typer.Option(help="last or before_pad: where a text's end is read."),
    ] = None
    weight: Annotated[
        list[str] | None,
        typer.Option(help="label=0.5 for a model of several labels; repeat."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ServerOptions(ClassifierOptions):
    """The same, or one that a server has."""

    url: Annotated[
        str | None,
        typer.Option(
            help="Address of the server that has MODEL, e.g. http://127.0.0.1:8000."
        ),
    ] = None
    kind: Annotated[
        str | None,
        typer.Option(help=f"What serves it: {', '.join(KINDS)}."),
    ] = None
    tokenizer: Annotated[
        str | None, typer.Option(help="Folder or id of a served model's tokenizer.")
    ] = None
    local_weights: Annotated[
        Path | None,
        typer.Option(help="The served model's weights here, to compare with."),
    ] = None
    key: Annotated[
        str | None,
        typer.Option(help="Environment variable that holds the server's key."),
    ] = None

    def server_keywords(self) -> Options:
        """Return keywords of `rmlab.remote` without the address."""
        return pick_given(
            kind=self.kind,
            tokenizer=self.tokenizer,
            key=self.key,
            weights=self.local_weights,
            template=self.template,
            max_length=self.max_length,
            truncate=self.truncate,
            label_weights=self._server_label_weights(),
            version=self.revision,
        )

    def _server_label_weights(self) -> str | dict[str, float] | None:
        """For SteerLM also the name of a model whose weights rmlab knows."""
        first = self.weight[0] if self.weight else ""
        if first in getattr(KINDS.get(self.kind or ""), "named_weights", ()):
            return first
        return _label_weights(self.weight)


_NEEDS = {
    "cluster": ("cpus",),
    "kind": ("url",),
    "pairwise": ("form",),
    "texts": ("path", "include_texts"),
    "url": (
        "concurrency",
        "key",
        "kind",
        "local_weights",
        "max_requests",
        "max_tokens",
        "rate",
        "tokenizer",
    ),
}
"""An option, and those that cannot be without it, in commands that have both."""

_EXCLUDES = {
    "cluster": ("estimate", "check"),
    "implicit": ("head", "pooling", "weight", "url"),
    "kind": ("head", "pooling", "convention", "max_batch_tokens", "allow_pickle"),
    "pairwise": ("head", "pooling", "weight", "template", "url"),
    "reference": ("head", "weight", "url"),
    "url": ("base", "device", "dtype", "trust_remote_code"),
}
"""An option, and those that make no sense beside it."""


def _check_rules(values: Mapping[str, object]) -> None:
    """Raise for an option whose companion is not there, and for options that exclude
    each other.
    """
    for name, companions in _NEEDS.items():
        if name in values and not values[name]:
            _refuse(values, companions, f"give {_flag(name)} with it")
    for name, others in _EXCLUDES.items():
        if values.get(name):
            _refuse(values, others, f"does not go with {_flag(name)}")


def _refuse(values: Mapping[str, object], names: Iterable[str], message: str) -> None:
    """Raise where one of the options was given."""
    flags = [_flag(name) for name in names if values.get(name)]
    if flags:
        raise typer.BadParameter(message, param_hint=", ".join(flags))


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def pick_given(**options: object) -> Options:
    """The options that were given."""
    return {
        name: value
        for name, value in options.items()
        if value is not None and value is not False
    }


def model_keywords(command: LocalOptions, group: type[LocalOptions]) -> Options:
    """Keywords of the function that makes a model, from a command's options of one
    group.
    """
    values = {field.name: getattr(command, field.name) for field in fields(group)}
    values["weights"] = _label_weights(values.pop("weight", None))
    return pick_given(**values)


def _label_weights(texts: list[str] | None) -> dict[str, float] | None:
    """The numbers of --weight by label."""
    weights = {}
    for label, number in _split_pairs(texts, "--weight", "helpfulness=0.8"):
        try:
            weights[label] = float(number)
        except ValueError as error:
            message = f"{error}; write label=number"
            raise typer.BadParameter(message, param_hint="--weight") from None
    return weights or None


def split_columns(column: list[str] | None) -> dict[str, str | list[str]] | None:
    """chosen=better, rejected=worse_1, rejected=worse_2 as a mapping: a repeated name
    has several columns.
    """
    columns_of: dict[str, list[str]] = {}
    for name, column_name in _split_pairs(column, "--column", "chosen=better"):
        columns_of.setdefault(name, []).append(column_name)

    mapping: dict[str, str | list[str]] = {}
    for name, columns in columns_of.items():
        mapping[name] = columns if len(columns) > 1 else columns[0]
    return mapping or None


def _split_pairs(
    texts: Iterable[str] | None, flag: str, example: str
) -> Iterator[tuple[str, str]]:
    """The two sides of each text of an option that is repeated as name=value."""
    for text in texts or ():
        name, _, value = text.partition("=")
        if not (name and value):
            message = f"{text!r}; write for example {example}"
            raise typer.BadParameter(message, param_hint=flag)
        yield name, value
