"""The commands about models: score, prefer and merge, and before them plan and doctor."""

import sys
from typing import Annotated

import pandas as pd
import typer

from rmlab import checks, io, metrics, scorers, scoring, servers
from rmlab.cli import options as shared
from rmlab.cli.terminal import say, say_aligned, say_table
from rmlab.io.native import check_target
from rmlab.records import check_writable
from rmlab.text import line


@shared.with_shared_options
def score_benchmark(
    texts: shared.TextOptions,
    table: shared.TableOptions,
    run: shared.RunOptions,
    options: shared.ClassifierOptions,
    server: shared.ServerOptions,
    benchmark: shared.Benchmark,
    models: Annotated[
        list[str],
        typer.Argument(help="Model ids, folders, or baselines such as longest."),
    ],
    reference: Annotated[
        str | None,
        typer.Option(help="Score MODELS as DPO policies against this reference."),
    ] = None,
    implicit: Annotated[
        str | None,
        typer.Option(help="Policies without a reference: mean, sum or norm."),
    ] = None,
) -> None:
    """Score a benchmark's texts with one or more reward models.

    Prints the benchmark's summary. Writes the scores to --out, or as CSV into a pipe.

    \b
    Examples:
      rmlab score mini longest shortest
      rmlab score mini longest > scores.csv
      rmlab score rm-bench Skywork/Skywork-Reward-V2-Qwen3-0.6B --store scores -o scores.csv
      rmlab score rm-bench ./my-model --path data/rm-bench --store scores --shard 3/16 -o part3.csv
      rmlab score mini run1/final run2/final --name run1 --name run2 --store scores
      rmlab score rm-bench ./my-dpo-policy --reference ./its-sft-model --store scores
      rmlab score rm-bench my-rm --url http://127.0.0.1:8000 --kind vllm --tokenizer ./my-rm --store scores
      rmlab score pairs.jsonl longest -o scores.parquet
      rmlab score ab.csv longest --winner winner --column a=left --column b=right
    """
    check_out(table, run, len(models))
    if server.url and len(models) > 1:
        raise typer.BadParameter(
            f"one MODEL at a time, not {len(models)}", param_hint="--url"
        )
    responses = texts.load(benchmark)
    keywords = run.keywords() | {"allow_missing": table.allow_missing}
    model_keywords = shared.model_keywords(options)
    names: list[shared.Options] = [{"name": name} for name in table.name or []] or [
        {}
    ] * len(models)
    opened: list[scoring.Model] = list(models)
    if server.url:
        opened = [
            servers.remote(
                server.url, model=models[0], **server.keywords(options), **names[0]
            )
        ]
    elif reference or implicit:
        opened = [
            scorers.implicit_reward(
                model, reference, mode=implicit, **name, **model_keywords
            )
            for model, name in zip(models, names, strict=True)
        ]
    else:
        keywords |= model_keywords | shared.pick_given(name=table.name)
    scores = scoring.score(responses, opened, **keywords)
    if run.out is None and sys.stdout.isatty():
        say_aligned(metrics.summary(scores))
    else:
        write_table(scores, run)


@shared.with_shared_options
def prefer_benchmark(
    texts: shared.TextOptions,
    table: shared.TableOptions,
    run: shared.RunOptions,
    options: shared.ModelOptions,
    benchmark: shared.Benchmark,
    models: Annotated[
        list[str],
        typer.Argument(help="Ids or folders of models that see two answers at once."),
    ],
    form: shared.Form = None,
) -> None:
    """Compare a benchmark's answers with pairwise models.

    Every chosen answer meets every rejected one, in both orders.

    \b
    Examples:
      rmlab prefer mini llm-blender/PairRM-hf -o pairs.csv
      rmlab prefer rm-bench llm-blender/PairRM-hf --truncate right --store scores
      rmlab prefer rm-bench llm-blender/PairRM-hf --cluster ray --store s3://bucket/scores
      rmlab report scores/
    """
    check_out(table, run, len(models))
    responses = texts.load(benchmark)
    keywords = (
        run.keywords()
        | shared.model_keywords(options)
        | shared.pick_given(form=form, name=table.name)
    )
    write_table(
        scoring.prefer(
            responses, list(models), allow_missing=table.allow_missing, **keywords
        ),
        run,
    )


def merge_stores(
    folders: Annotated[
        list[str], typer.Argument(help="Stores to copy from: folders or URLs.")
    ],
    into: Annotated[
        str, typer.Option(help="Store to copy into; made if it is not there.")
    ],
) -> None:
    """Copy the scores of several stores, such as shards, into one.

    Prints what was added as CSV.

    \b
    Examples:
      rmlab merge scores-1 scores-2 scores-3 --into scores
      rmlab merge s3://bucket/scores --into scores
      rmlab score rm-bench ./my-model --store scores -o scores.csv    # then forwards nothing
    """
    say_table(scoring.merge(folders, into))


@shared.with_shared_options
def plan(
    texts: shared.TextOptions,
    tokens: shared.TokenOptions,
    form: shared.TemplateOptions,
    model: Annotated[
        str, typer.Argument(help="Model id or folder; its weights are not needed.")
    ],
    benchmark: shared.Benchmark,
    implicit: Annotated[
        bool, typer.Option("--implicit", help="A language model's implicit reward.")
    ] = False,
) -> None:
    """Say what scoring a benchmark with a model takes.

    Prints as CSV: distinct texts, tokens that are forwarded on a CPU, the fewest that
    give the same scores, and the bytes of the weights in 16 and in 32 bits.

    \b
    Examples:
      rmlab plan Skywork/Skywork-Reward-V2-Llama-3.1-8B rm-bench
      rmlab plan meta-llama/Llama-3.3-70B-Instruct rm-bench --implicit
    """
    from rmlab.inference.planning import CPU_BUDGET, Packing
    from rmlab.inference.planning import plan as plan_passes
    from rmlab.inference.template import encode, read_template
    from rmlab.scorers.checkpoints.checkpoint import find_tokenizer
    from rmlab.scorers.checkpoints.tokenizer_file import load_tokenizer
    from rmlab.scorers.models.backbone import count_weights, encodes, window

    responses, checkpoint = texts.load(benchmark), find_tokenizer(model)
    encoded = encode(
        load_tokenizer(checkpoint),
        responses["prompt"].tolist(),
        responses["response"].tolist(),
        template=read_template(form.template),
        max_length=tokens.max_length or window(checkpoint.config),
        truncate=tokens.truncate,
    )
    packing = Packing(None, causal=not encodes(checkpoint.config))
    passes = plan_passes(
        encoded.ids, encoded.groups, budget=tokens.budget or CPU_BUDGET, packing=packing
    )
    n_weights = count_weights(checkpoint, implicit=implicit)
    row = {
        "model": checkpoint.title,
        "texts": len(passes.copies),
        "tokens": passes.tokens,
        "minimum": passes.minimum,
    }
    say_table(
        pd.DataFrame(
            [row | {"bytes_16_bits": 2 * n_weights, "bytes_32_bits": 4 * n_weights}]
        )
    )


@shared.with_shared_options
def check_model(
    texts: shared.TextOptions,
    options: shared.ClassifierOptions,
    server: shared.ServerOptions,
    model: Annotated[str, typer.Argument(help="Model id or folder.")],
    benchmark: shared.Benchmark = "mini",
    pairwise: Annotated[
        bool,
        typer.Option(
            "--pairwise", help="MODEL sees two answers at once, as PairRM does."
        ),
    ] = False,
    form: shared.Form = None,
) -> None:
    """Check a model for silent scoring errors before a long run.

    One line per check, with the remedy below it. Exit code 1 if a check fails.

    \b
    Examples:
      rmlab doctor ./my-model
      rmlab doctor Skywork/Skywork-Reward-V2-Qwen3-0.6B rm-bench --dtype bfloat16
      rmlab doctor llm-blender/PairRM-hf rm-bench --pairwise
      rmlab doctor my-rm --url http://127.0.0.1:8000 --kind vllm --local-weights ./my-rm
    """
    responses, keywords = texts.load(benchmark), shared.model_keywords(options)
    scorer: object = model
    if server.url:
        scorer, keywords = server.url, {"model": model, **server.keywords(options)}
    elif pairwise:
        scorer, keywords = (
            scorers.pairwise(model, **shared.pick_given(form=form), **keywords),
            {},
        )
    say_checks(checks.doctor(scorer, responses, **keywords))  # type: ignore[arg-type]


def say_checks(table: pd.DataFrame) -> None:
    """One line per check, the remedy below; exit code 1 where one fails."""
    for row in table.itertuples(index=False):
        say(f"{row.status:<5} {row.check:<11} {line(row.found)}")
        if row.remedy:
            say(f"{'':17} -> {line(row.remedy)}")
    if table["status"].max() == "fail":
        raise typer.Exit(1)


def check_out(
    table: shared.TableOptions, run: shared.RunOptions, n_models: int
) -> None:
    """Raise before a long run where the file could not be written after it."""
    if table.name and (len(table.name) != n_models or "" in table.name):
        problem = f"{len(table.name)} names for {n_models} models; give one for each, none empty"
        raise typer.BadParameter(problem, param_hint="--name")
    check_file(run)


def check_file(run: shared.RunOptions, *, is_table: bool = True) -> None:
    """Raise before a long run where its table, or its report, could not be written
    after it.
    """
    if run.out is not None:
        if is_table:
            check_target(run.out)
        check_writable(run.out)


def write_table(table: pd.DataFrame, run: shared.RunOptions) -> None:
    """The table of scores or pairs to a file, or as CSV to stdout."""
    if run.out is None:
        say_table(table)
    else:
        write = io.write_scores if "score" in table.columns else io.write_pairs
        say(f"{len(table)} rows in {write(table, run.out)}", err=True)
