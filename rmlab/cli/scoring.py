"""The commands about models: score, prefer, merge, and before them plan, doctor."""

import sys
from dataclasses import dataclass
from typing import Annotated

import pandas as pd
import typer

from rmlab import checks, io, metrics, scorers, scoring, servers
from rmlab.cli import options as shared
from rmlab.cli.terminal import say, say_aligned, say_table
from rmlab.io.native import check_target
from rmlab.records import check_writable
from rmlab.scoring.walk import Model
from rmlab.text import line


@dataclass(frozen=True, kw_only=True)
class Score(
    shared.ServerOptions, shared.WorkOptions, shared.TableOptions, shared.TextOptions
):
    """Score a benchmark's texts with one or more reward models.

    Prints the benchmark's summary. Writes the scores to --out, or as CSV into a pipe.

    \b
    Examples:
      rmlab score mini longest shortest
      rmlab score mini longest > scores.csv
      rmlab score rm-bench Skywork/Skywork-Reward-V2-Qwen3-0.6B --store scores \\
          -o scores.csv
      rmlab score rm-bench ./my-model --path data/rm-bench --store scores \\
          --shard 3/16 -o part3.csv
      rmlab score mini run1/final run2/final --name run1 --name run2 --store scores
      rmlab score rm-bench ./my-dpo-policy --reference ./its-sft-model --store scores
      rmlab score rm-bench my-rm --url http://127.0.0.1:8000 --kind vllm \\
          --tokenizer ./my-rm --store scores
      rmlab score pairs.jsonl longest -o scores.parquet
      rmlab score ab.csv longest --winner winner --column a=left --column b=right
    """

    benchmark: shared.Benchmark
    models: Annotated[
        list[str],
        typer.Argument(help="Model ids, folders, or baselines such as longest."),
    ]
    reference: Annotated[
        str | None,
        typer.Option(help="Score MODELS as DPO policies against this reference."),
    ] = None
    implicit: Annotated[
        str | None,
        typer.Option(help="Policies without a reference: mean, sum or norm."),
    ] = None

    def run(self) -> None:
        """Score, and write or print the scores."""
        check_names(self, len(self.models))
        check_file(self)
        if self.url and len(self.models) > 1:
            message = f"one MODEL at a time, not {len(self.models)}"
            raise typer.BadParameter(message, param_hint="--url")
        responses = self.load_responses(self.benchmark)

        keywords = self.work_keywords()
        opened: list[Model] = []
        if self.url:
            opened = [self._connect(self.url)]
        elif self.reference or self.implicit:
            opened = list(self._open_policies())
        else:
            opened = list(self.models)
            keywords |= shared.model_keywords(self, shared.ClassifierOptions)
            keywords |= shared.pick_given(name=self.name)
        scores = scoring.score(
            responses, opened, allow_missing=self.allow_missing, **keywords
        )
        if self.out is None and sys.stdout.isatty():
            say_aligned(metrics.summary(scores))
        else:
            write_table(scores, self)

    def _connect(self, url: str) -> Model:
        """The model that the server has."""
        keywords = self.server_keywords()
        if self.name:
            keywords["name"] = self.name[0]
        return servers.remote(url, model=self.models[0], **keywords)

    def _open_policies(self) -> list[Model]:
        """The models as policies, whose implicit rewards are scores."""
        keywords = shared.model_keywords(self, shared.ClassifierOptions)
        policies: list[Model] = []
        for number, model in enumerate(self.models):
            if self.name:
                keywords["name"] = self.name[number]
            policy = scorers.implicit_reward(
                model, self.reference, mode=self.implicit, **keywords
            )
            policies.append(policy)
        return policies


@dataclass(frozen=True, kw_only=True)
class Prefer(
    shared.ModelOptions, shared.WorkOptions, shared.TableOptions, shared.TextOptions
):
    """Compare a benchmark's answers with pairwise models.

    Every chosen answer meets every rejected one, in both orders.

    \b
    Examples:
      rmlab prefer mini llm-blender/PairRM-hf -o pairs.csv
      rmlab prefer rm-bench llm-blender/PairRM-hf --truncate right --store scores
      rmlab prefer rm-bench llm-blender/PairRM-hf --cluster ray --store s3://b/scores
      rmlab report scores/
    """

    benchmark: shared.Benchmark
    models: Annotated[
        list[str],
        typer.Argument(help="Ids or folders of models that see two answers at once."),
    ]
    form: shared.Form = None

    def run(self) -> None:
        """Compare, and write or print the pairs."""
        check_names(self, len(self.models))
        check_file(self)
        responses = self.load_responses(self.benchmark)

        keywords = self.work_keywords()
        keywords |= shared.model_keywords(self, shared.ModelOptions)
        keywords |= shared.pick_given(form=self.form, name=self.name)
        pairs = scoring.prefer(
            responses, list(self.models), allow_missing=self.allow_missing, **keywords
        )
        write_table(pairs, self)


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
      # this then forwards nothing:
      rmlab score rm-bench ./my-model --store scores -o scores.csv
    """
    say_table(scoring.merge_stores(folders, into))


@dataclass(frozen=True, kw_only=True)
class Plan(shared.TemplateOptions, shared.TokenOptions, shared.TextOptions):
    """Say what scoring a benchmark with a model takes.

    Prints as CSV: distinct texts, tokens that are forwarded on a CPU, the fewest that
    give the same scores, and the bytes of the weights in 16 and in 32 bits.

    \b
    Examples:
      rmlab plan Skywork/Skywork-Reward-V2-Llama-3.1-8B rm-bench
      rmlab plan meta-llama/Llama-3.3-70B-Instruct rm-bench --implicit
    """

    model: Annotated[
        str, typer.Argument(help="Model id or folder; its weights are not needed.")
    ]
    benchmark: shared.Benchmark
    implicit: Annotated[
        bool, typer.Option("--implicit", help="A language model's implicit reward.")
    ] = False
    base: shared.Base = None

    def run(self) -> None:
        """Count texts, tokens and bytes, and print them."""
        from rmlab.inference.chat_formats import read_template
        from rmlab.inference.encoding import encode
        from rmlab.inference.planning import CPU_BUDGET, Packing, plan
        from rmlab.scorers.checkpoints.checkpoint import find
        from rmlab.scorers.checkpoints.tokenizer_file import load_tokenizer
        from rmlab.scorers.models.loading import count_weights, encodes, window

        responses = self.load_responses(self.benchmark)
        checkpoint = find(self.model, base=self.base, with_weights=False)
        encoded = encode(
            load_tokenizer(checkpoint),
            responses["prompt"].tolist(),
            responses["response"].tolist(),
            template=read_template(self.template),
            max_length=self.max_length or window(checkpoint.config),
            truncate=self.truncate,
        )
        passes = plan(
            encoded.ids,
            encoded.groups,
            budget=self.max_batch_tokens or CPU_BUDGET,
            packing=Packing(None, causal=not encodes(checkpoint.config)),
        )

        n_weights = count_weights(checkpoint, implicit=self.implicit)
        row = {
            "model": checkpoint.title,
            "texts": len(passes.copies),
            "tokens": passes.tokens,
            "minimum": passes.minimum,
            "bytes_16_bits": 2 * n_weights,
            "bytes_32_bits": 4 * n_weights,
        }
        say_table(pd.DataFrame([row]))


@dataclass(frozen=True, kw_only=True)
class Doctor(shared.ServerOptions, shared.TextOptions):
    """Check a model for silent scoring errors before a long run.

    One line per check, with the remedy below it. Exit code 1 if a check fails.

    \b
    Examples:
      rmlab doctor ./my-model
      rmlab doctor Skywork/Skywork-Reward-V2-Qwen3-0.6B rm-bench --dtype bfloat16
      rmlab doctor llm-blender/PairRM-hf rm-bench --pairwise
      rmlab doctor my-rm --url http://127.0.0.1:8000 --kind vllm --local-weights ./my-rm
    """

    model: Annotated[str, typer.Argument(help="Model id or folder.")]
    benchmark: shared.Benchmark = "mini"
    pairwise: Annotated[
        bool,
        typer.Option(
            "--pairwise", help="MODEL sees two answers at once, as PairRM does."
        ),
    ] = False
    form: shared.Form = None

    def run(self) -> None:
        """Check, and print the findings."""
        responses = self.load_responses(self.benchmark)
        if self.url:
            keywords = self.server_keywords()
            table = checks.doctor(self.url, responses, model=self.model, **keywords)
        else:
            keywords = shared.model_keywords(self, shared.ClassifierOptions)
            if self.pairwise:
                keywords |= shared.pick_given(form=self.form)
                scorer = scorers.pairwise(self.model, **keywords)
                table = checks.doctor(scorer, responses)
            else:
                table = checks.doctor(self.model, responses, **keywords)
        say_checks(table)


def say_checks(table: pd.DataFrame) -> None:
    """One line per check, the remedy below; exit code 1 where one fails."""
    for row in table.itertuples(index=False):
        say(f"{row.status:<5} {row.check:<11} {line(row.found)}")
        if row.remedy:
            say(f"{'':17} -> {line(row.remedy)}")
    if table["status"].max() == "fail":
        raise typer.Exit(1)


def check_names(options: shared.TableOptions, n_models: int) -> None:
    """Raise unless there is a name for each model, or none at all."""
    names = options.name
    if names and (len(names) != n_models or "" in names):
        count = f"{len(names)} names for {n_models} models"
        message = f"{count}; give one for each, none empty"
        raise typer.BadParameter(message, param_hint="--name")


def check_file(options: shared.WorkOptions, *, is_table: bool = True) -> None:
    """Raise before a long run where its table, or its report, could not be written
    after it.
    """
    if options.out is not None:
        if is_table:
            check_target(options.out)
        check_writable(options.out)


def write_table(table: pd.DataFrame, options: shared.WorkOptions) -> None:
    """The table of scores or pairs to a file, or as CSV to stdout."""
    if options.out is None:
        say_table(table)
        return
    write = io.write_scores if "score" in table.columns else io.write_pairs
    file = write(table, options.out)
    say(f"{len(table)} rows in {file}", err=True)
