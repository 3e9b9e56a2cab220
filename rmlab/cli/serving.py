"""The options of served models, and what they become in Python."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from rmlab.cli.options import Options, given, label_weights

__all__ = ["Kind", "LocalWeights", "Tokenizer", "Url", "served_options"]

_KINDS = ("vllm", "vllm-pooling", "sglang", "tei", "openrlhf", "triton")
_REFUSED = ("device", "dtype", "head", "convention", "budget", "trust_remote_code", "allow_pickle")


def _kind(value: str | None) -> str | None:
    if value is not None and value not in (*_KINDS, "infinity"):
        raise typer.BadParameter(f"{value!r}; choose {', '.join(_KINDS[:-1])} or {_KINDS[-1]}")
    return value


Url = Annotated[
    str | None, typer.Option(help="Address of the server that has MODEL, e.g. http://127.0.0.1:8000.", metavar="URL")
]
Kind = Annotated[
    str | None, typer.Option(help=f"What serves it: {', '.join(_KINDS[:-1])} or {_KINDS[-1]}.", callback=_kind)
]
Tokenizer = Annotated[str | None, typer.Option(help="Folder or id of a served model's tokenizer.")]
LocalWeights = Annotated[
    Path | None, typer.Option("--local-weights", help="The served model's weights here, to compare with.")
]


def served_options(
    url: str,
    kind: str | None,
    tokenizer: str | None,
    weights: Path | None,
    weight: list[str] | None,
    options: Mapping[str, object],
) -> Options:
    """Keywords of `rmlab.remote` from the options of a command; names what does not go with --url."""
    if kind is None:
        raise typer.BadParameter(f"needs --kind: {', '.join(_KINDS[:-1])} or {_KINDS[-1]}", param_hint="--url")
    wrong = [name for name in _REFUSED if name in options]
    if wrong:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in wrong)
        raise typer.BadParameter("not for served models: the server decides it", param_hint=named)
    kept = {name: options[name] for name in ("template", "max_length", "truncate") if name in options}
    mixed = label_weights(weight, model=kind == "triton")
    found = given(
        url=url, kind=kind, tokenizer=tokenizer, weights=weights, label_weights=mixed, version=options.get("revision")
    )
    return kept | found
