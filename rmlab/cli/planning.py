"""The command that says what a run would take, before anything is downloaded but a configuration and a tokenizer."""

from typing import Annotated

import typer

from rmlab.cli.options import Budget, Column, MaxLength, PathTo, Template, Truncate, Winner, given, numbers
from rmlab.cli.terminal import say_table
from rmlab.cli.texts import load_texts

__all__ = ["plan"]


def plan(
    model: Annotated[str, typer.Argument(help="Model id or folder; its weights are not needed.")],
    benchmark: Annotated[str, typer.Argument(help="rm-bench, reward-bench, mini, or a file of pairs.")],
    path: PathTo = None,
    column: Column = None,
    winner: Winner = None,
    implicit: Annotated[bool, typer.Option("--implicit", help="A language model's implicit reward.")] = False,
    device: Annotated[
        list[str] | None, typer.Option(help="Device to plan for, e.g. H100; repeat. Else all that are known.")
    ] = None,
    price: Annotated[list[str] | None, typer.Option(help="H100=2.50: what an hour of it costs; repeat.")] = None,
    template: Template = None,
    max_length: MaxLength = None,
    truncate: Truncate = None,
    budget: Budget = None,
) -> None:
    """Say what scoring a benchmark with a model takes.

    Tokens to forward, memory, hours and cost on each device, as CSV.

    \b
    Examples:
      rmlab plan Skywork/Skywork-Reward-V2-Llama-3.1-8B rm-bench
      rmlab plan meta-llama/Llama-3.3-70B-Instruct rm-bench --implicit --device H100 --price H100=2.50
    """
    from rmlab.scorers import forecast

    options = given(
        devices=device,
        price=numbers(price or [], "--price", "device=price", "H100=2.50") or None,
        template=template,
        max_length=max_length,
        truncate=truncate,
        budget=budget,
    )
    table = forecast(load_texts(benchmark, path, column, winner), model, implicit=implicit, **options)
    say_table(table.round({"weights_gb": 2, "peak_gb": 2, "hours": 4, "cost": 2}))
