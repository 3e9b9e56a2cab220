"""Options that several commands share, and what they become in Python."""

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = [
    "AllowPickle",
    "Budget",
    "Convention",
    "Device",
    "Dtype",
    "Form",
    "Head",
    "MaxLength",
    "Name",
    "Out",
    "PathTo",
    "Quiet",
    "Revision",
    "Shard",
    "Store",
    "Template",
    "Truncate",
    "TrustRemoteCode",
    "Weight",
    "given",
    "label_weights",
]

PathTo = Annotated[Path | None, typer.Option(help="Benchmark file or folder; else it is downloaded.")]
Dtype = Annotated[str | None, typer.Option(help="float32, bfloat16 or float16; else chosen for the device.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 ...; else the GPU where there is one.")]
Template = Annotated[str | None, typer.Option(help="Named format or a Jinja file; else the tokenizer's own.")]
Convention = Annotated[str | None, typer.Option(help="reward-bench: tokens as its runner makes them.")]
MaxLength = Annotated[int | None, typer.Option(min=2, help="Longest text in tokens; else the window.")]
Truncate = Annotated[str | None, typer.Option(help="left keeps the answer, right the prompt; else raise.")]
Head = Annotated[str | None, typer.Option(help="Name of the reward head; else found by its weights.")]
Weight = Annotated[list[str] | None, typer.Option(help="label=0.5 for a model of several labels; repeat.")]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.")]
Budget = Annotated[int | None, typer.Option(min=1, help="Tokens forwarded at once.")]
TrustRemoteCode = Annotated[bool, typer.Option(help="Run code that comes with the model.")]
AllowPickle = Annotated[bool, typer.Option(help="Load pickled weights, which can run code.")]
Name = Annotated[list[str] | None, typer.Option(help="What MODEL is called in tables; repeat for each.")]
Store = Annotated[Path | None, typer.Option(help="Folder that keeps every batch: rerun to resume.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="File to write; else CSV on stdout.")]
Shard = Annotated[str | None, typer.Option(help="3/16: only the third of sixteen parts.")]
Form = Annotated[str | None, typer.Option(help="How a pairwise model is asked, e.g. better-pairrm; else found.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


def given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def label_weights(weight: list[str] | None) -> dict[str, float] | None:
    """label=0.5 label2=0.3 as a mapping."""
    if not weight:
        return None
    weights = {}
    for text in weight:
        label, _, number = text.rpartition("=")
        try:
            weights[label] = float(number)
        except ValueError:
            label = ""
        if not label:
            raise typer.BadParameter(
                f"{text!r}; write label=number, for example helpfulness=0.8", param_hint="--weight"
            )
    return weights
