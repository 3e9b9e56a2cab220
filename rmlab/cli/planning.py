"""The command that prints how much a run forwards, before the weights are downloaded."""

from typing import Annotated

import typer

from rmlab.cli.options import Budget, Column, MaxLength, PathTo, Template, Truncate, Winner
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
    template: Template = None,
    max_length: MaxLength = None,
    truncate: Truncate = None,
    budget: Budget = None,
) -> None:
    """Say what scoring a benchmark with a model takes.

    Prints as CSV: distinct texts, tokens that are forwarded on a CPU, the fewest that give the same scores, and the
    bytes of the weights in 16 and in 32 bits.

    \b
    Examples:
      rmlab plan Skywork/Skywork-Reward-V2-Llama-3.1-8B rm-bench
      rmlab plan meta-llama/Llama-3.3-70B-Instruct rm-bench --implicit
    """
    import pandas as pd

    from rmlab.inference.planning import CPU_BUDGET, Packing
    from rmlab.inference.planning import plan as plan_passes
    from rmlab.inference.rendering import read_template
    from rmlab.inference.template import encode
    from rmlab.scorers.checkpoints.checkpoint import find_tokenizer
    from rmlab.scorers.checkpoints.loading import require_score
    from rmlab.scorers.checkpoints.tokenizer_file import load_tokenizer
    from rmlab.scorers.models.backbone import count_weights, encodes, window

    require_score()
    responses = load_texts(benchmark, path, column, winner)
    checkpoint = find_tokenizer(model)
    prompts, answers = responses["prompt"].tolist(), responses["response"].tolist()
    encoded = encode(
        load_tokenizer(checkpoint),
        prompts,
        answers,
        template=read_template(template),
        max_length=max_length or window(checkpoint.config),
        truncate=truncate,
    )
    packing = Packing(None, causal=not encodes(checkpoint.config))
    passes = plan_passes(encoded.ids, encoded.groups, budget=budget or CPU_BUDGET, packing=packing)
    n_weights = count_weights(checkpoint, implicit=implicit)
    row = {"model": checkpoint.title, "texts": len(passes.copies), "tokens": passes.tokens, "minimum": passes.minimum}
    say_table(pd.DataFrame([row | {"bytes_16_bits": 2 * n_weights, "bytes_32_bits": 4 * n_weights}]))
