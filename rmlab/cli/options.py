"""Options that several commands share, declared once, the rules between options, and
the texts that a command names.
"""

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import pandas as pd
import typer

from rmlab import benchmarks
from rmlab.records import SUFFIXES
from rmlab.scoring import cluster
from rmlab.servers.dialects import DIALECTS

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
Form = Annotated[
    str | None,
    typer.Option(help="How a pairwise model is asked, e.g. better-pairrm; else found."),
]


def option(help_text: str, *flags: str, default: object = None, **limits: Any) -> Any:
    """A field of a dataclass of options; without `flags` its flag is the field's name."""
    return field(
        default=default,
        metadata={"option": typer.Option(*flags, help=help_text, **limits)},
    )


def split_columns(column: list[str] | None) -> dict[str, str | list[str]] | None:
    """chosen=better, rejected=worse_1, rejected=worse_2 as a mapping: a repeated name
    has several columns.
    """
    sources: dict[str, list[str]] = {}
    for name, source in _split_pairs(column, "--column", "chosen=better"):
        sources.setdefault(name, []).append(source)
    return {
        name: columns[0] if len(columns) == 1 else columns
        for name, columns in sources.items()
    } or None


@dataclass(frozen=True)
class TextOptions:
    """Where the texts are."""

    path: Path | None = option("Benchmark file or folder; else it is downloaded.")
    column: list[str] | None = option(
        "chosen=better: columns of a file of pairs; repeat."
    )
    winner: str | None = option(
        "Column of side-by-side data that says which answer won."
    )

    def load(self, benchmark: str) -> pd.DataFrame:
        """Return the responses of a benchmark by its name, or of a file of pairs, with
        its columns mapped.
        """
        file = Path(benchmark)
        if self.path is None and (file.is_file() or file.suffix.lower() in SUFFIXES):
            return benchmarks.load_pairs(
                benchmark, columns=split_columns(self.column), winner=self.winner
            )
        if self.column or self.winner:
            raise typer.BadParameter(
                "is for a file of pairs", param_hint="--column, --winner"
            )
        return benchmarks.load(benchmark, path=self.path)


@dataclass(frozen=True)
class RunOptions:
    """How a run keeps and shares its work."""

    store: str | None = option("Folder or URL that keeps every batch: rerun to resume.")
    out: Path | None = option(
        "File to write; else the result is printed.", "--out", "-o"
    )
    shard: str | None = option("3/16: only the third of sixteen parts.")
    cluster: str | None = option("ray, or ray://host:port: score on a Ray cluster.")
    cpus: int | None = option("CPUs of each worker of --cluster; else 1.", min=1)
    quiet: bool = option("No progress on stderr.", "--quiet", "-q", default=False)

    def keywords(self) -> Options:
        """Return keywords of `rmlab.score` and `rmlab.prefer`."""
        engine = (
            None
            if self.cluster is None
            else cluster.find_engine(self.cluster, self.cpus or 1)
        )
        return {
            "store": self.store,
            "shard": self.shard,
            "cluster": engine,
            "progress": not self.quiet,
        }


@dataclass(frozen=True)
class TableOptions:
    """What the table looks like."""

    name: list[str] | None = option("What MODEL is called in tables; repeat for each.")
    allow_missing: bool = option(
        "Count NaN as missing instead of stopping.", "--allow-missing", default=False
    )


@dataclass(frozen=True)
class LocalOptions:
    """A model on this machine."""

    device: str | None = option(
        "cpu, cuda, cuda:1 ...; else the GPU where there is one."
    )
    dtype: str | None = option(
        "float32, bfloat16 or float16; else chosen for the device."
    )
    revision: str | None = option("Branch, tag or commit on the hub.")
    trust_remote_code: bool = option(
        "Run code that comes with the model.", "--trust-remote-code", default=False
    )


@dataclass(frozen=True)
class TokenOptions:
    """How conversations become tokens, and how many of them are forwarded at once."""

    max_length: int | None = option("Longest text in tokens; else the window.", min=2)
    truncate: str | None = option(
        "left keeps the answer, right the prompt; else raise."
    )
    budget: int | None = option("Tokens forwarded at once.", min=1)


@dataclass(frozen=True)
class ModelOptions(LocalOptions, TokenOptions):
    """A reward model on this machine."""

    convention: str | None = option("reward-bench: tokens as its runner makes them.")
    allow_pickle: bool = option(
        "Load pickled weights, which can run code.", "--allow-pickle", default=False
    )


@dataclass(frozen=True)
class TemplateOptions:
    """How a conversation is written."""

    template: str | None = option(
        "Named format or a Jinja file; else the tokenizer's own."
    )


@dataclass(frozen=True)
class ClassifierOptions(ModelOptions, TemplateOptions):
    """A reward model that scores one answer."""

    head: str | None = option("Name of the reward head; else found by its weights.")
    weight: list[str] | None = option(
        "label=0.5 for a model of several labels; repeat."
    )


@dataclass(frozen=True)
class ServerOptions:
    """A reward model that a server has."""

    url: str | None = option(
        "Address of the server that has MODEL, e.g. http://127.0.0.1:8000."
    )
    kind: str | None = option(f"What serves it: {', '.join((*DIALECTS, 'triton'))}.")
    tokenizer: str | None = option("Folder or id of a served model's tokenizer.")
    local_weights: Path | None = option(
        "The served model's weights here, to compare with."
    )
    key: str | None = option("Environment variable that holds the server's key.")

    def keywords(self, options: ClassifierOptions) -> Options:
        """Return keywords of `rmlab.remote` without the address."""
        server = {
            "kind": self.kind,
            "tokenizer": self.tokenizer,
            "key": self.key,
            "weights": self.local_weights,
        }
        texts = {
            name: getattr(options, name)
            for name in ("template", "max_length", "truncate")
        }
        weight = options.weight or [""]
        # For Triton also the name of a model whose weights rmlab knows.
        is_name = self.kind == "triton" and weight[0] and "=" not in weight[0]
        label_weights = weight[0] if is_name else _label_weights(options.weight)
        return pick_given(
            **server, **texts, label_weights=label_weights, version=options.revision
        )


_NEEDS = {
    "cluster": ("cpus",),
    "kind": ("url",),
    "pairwise": ("form",),
    "store": ("results",),
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
    "cluster": ("estimate", "check", "report", "requests"),
    "implicit": ("head", "weight", "url"),
    "kind": ("head", "convention", "budget", "allow_pickle"),
    "pairwise": ("head", "weight", "template", "url"),
    "reference": ("head", "weight", "url"),
    "url": ("device", "dtype", "trust_remote_code"),
}
"""An option, and those that make no sense beside it."""


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the fields of its dataclass parameters as options, and check the
    rules between options.

    typer reads options off a signature.
    """
    kind, signature = (
        inspect.Parameter.KEYWORD_ONLY,
        inspect.signature(command).parameters,
    )
    groups: dict[str, Any] = {
        name: p.annotation
        for name, p in signature.items()
        if is_dataclass(p.annotation)
    }
    parameters = [
        inspect.Parameter(
            item.name,
            kind,
            default=item.default,
            annotation=Annotated[hint, item.metadata["option"]],
        )
        for group in groups.values()
        for item, hint in zip(
            fields(group), get_type_hints(group).values(), strict=True
        )
    ]
    parameters += [
        parameter.replace(kind=kind)
        for name, parameter in signature.items()
        if name not in groups
    ]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        _check_rules(values)
        for name, group in groups.items():
            values[name] = group(
                **{item.name: values.pop(item.name) for item in fields(group)}
            )
        command(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {
        parameter.name: parameter.annotation for parameter in parameters
    }
    return run


def _check_rules(values: Options) -> None:
    """Raise for an option whose companion is not there, and for options that exclude
    each other.
    """
    rules = [
        ("give {} with it", *rule)
        for rule in _NEEDS.items()
        if not values.get(rule[0], True)
    ]
    rules += [
        ("does not go with {}", *rule)
        for rule in _EXCLUDES.items()
        if values.get(rule[0])
    ]
    for message, option, names in rules:
        if flags := [_flag(name) for name in names if values.get(name)]:
            raise typer.BadParameter(
                message.format(_flag(option)), param_hint=", ".join(flags)
            )


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def pick_given(**options: object) -> Options:
    """The options that were given."""
    return {
        name: value
        for name, value in options.items()
        if value is not None and value is not False
    }


def model_keywords(options: LocalOptions) -> Options:
    """Keywords of the function that makes a model of these options."""
    keywords = pick_given(**vars(options))
    return keywords | pick_given(weights=_label_weights(keywords.pop("weight", None)))


def _label_weights(texts: list[str] | None) -> dict[str, float] | None:
    """The numbers of --weight by label."""
    pairs = _split_pairs(texts, "--weight", "helpfulness=0.8")
    try:
        return {label: float(number) for label, number in pairs} or None
    except ValueError as error:
        raise typer.BadParameter(
            f"{error}; write label=number", param_hint="--weight"
        ) from None


def _split_pairs(
    texts: Iterable[str] | None, flag: str, example: str
) -> list[tuple[str, str]]:
    """The two sides of each text of an option that is repeated as name=value."""
    pairs = []
    for text in texts or ():
        name, _, value = text.partition("=")
        if not (name and value):
            raise typer.BadParameter(
                f"{text!r}; write for example {example}", param_hint=flag
            )
        pairs.append((name, value))
    return pairs
