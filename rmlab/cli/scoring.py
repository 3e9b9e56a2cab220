"""The commands about models: score, prefer, merge, and doctor before them."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from typer import Argument, Exit, Option

from rmlab import checks, io, metrics, scorers, scoring, servers, tables
from rmlab.cli import options as shared
from rmlab.cli.terminal import say, say_aligned, say_table
from rmlab.scoring.texts import list_texts
from rmlab.scoring.walk import Model, ready_scorers
from rmlab.text import line


@dataclass(frozen=True, kw_only=True)
class Score(shared.ModelOptions, shared.RunOptions, shared.TextOptions):
    """Score a benchmark's texts with one or more reward models.

    Prints the benchmark's summary. Writes the scores to --out, or as CSV into a pipe.

    \b
    Examples:
      rmlab score mini longest shortest
      rmlab score mini longest > scores.csv
      rmlab score rm-bench Skywork/Skywork-Reward-V2-Qwen3-0.6B --dry-run
      rmlab score rm-bench Skywork/Skywork-Reward-V2-Qwen3-0.6B --store scores \\
          -o scores.csv
      rmlab score rm-bench ./my-model --path data/rm-bench --store scores \\
          --shard 3/16 -o part3.csv
      rmlab score mini run1/final run2/final --name run1 --name run2 --store scores
      rmlab score rm-bench ./my-dpo-policy --reference ./its-sft-model --store scores
      rmlab score rm-bench my-rm --url http://127.0.0.1:8000 --kind vllm \\
          --tokenizer ./my-rm --store scores
      rmlab score pairs.jsonl longest -o scores.parquet
    """

    benchmark: shared.Benchmark
    models: Annotated[
        list[str],
        Argument(help="Model ids, folders, or baselines such as longest."),
    ]
    reference: Annotated[
        str | None,
        Option(help="Score MODELS as DPO policies against this reference."),
    ] = None
    implicit: Annotated[
        str | None,
        Option(help="Policies without a reference: mean, sum or norm."),
    ] = None
    allow_missing: shared.AllowMissing = False
    dry_run: Annotated[
        bool,
        Option("--dry-run", help="Print texts, tokens and passes, and stop."),
    ] = False

    def run(self) -> None:
        """Score, and write or print the scores."""
        self.check_out()
        keywords = self.model_keywords()
        is_policy = bool(self.reference or self.implicit)
        if is_policy:
            others = {"url": self.url, "head": self.head}
            shared.refuse(others, "does not go with --reference and --implicit")
        responses = self.load_responses(self.benchmark)
        if self.dry_run:
            rows = [self._forecast(model, responses) for model in self.models]
            columns = ["model", "texts", "tokens", "passes"]
            forecast = pd.DataFrame(rows, columns=columns)
            counts = dict.fromkeys(columns[1:], "Int64")  # some may be missing
            say_table(forecast.astype(counts))
            return

        models: list[Model] = list(self.models)
        if self.url:
            models = [
                servers.remote(self.url, model=name, **keywords) for name in self.models
            ]
            keywords = {}
        elif is_policy:
            keywords |= {"reference": self.reference, "mode": self.implicit}
            models = [scorers.implicit_reward(name, **keywords) for name in self.models]
            keywords = {}
        scores = scoring.score(
            responses,
            models,
            allow_missing=self.allow_missing,
            **self.run_keywords(),
            **keywords,
        )
        if self.out is None and sys.stdout.isatty():
            say_aligned(metrics.summary(scores))
        else:
            write_table(scores, self.out)

    def _forecast(self, model: str, responses: pd.DataFrame) -> dict[str, object]:
        """Count texts, and tokens and passes where there is a tokenizer; the model's
        weights are not needed.
        """
        source = self.tokenizer if self.url else model
        if source is None or model in ready_scorers():
            texts = list_texts(responses, tables.KEY, lists=False)
            return {"model": model, "texts": len(texts.distinct)}

        from rmlab.inference.encoding import encode
        from rmlab.inference.planning import Packing, plan
        from rmlab.inference.templates import read_template
        from rmlab.scorers.checkpoints.checkpoint import find
        from rmlab.scorers.checkpoints.tokenizer_file import load_tokenizer
        from rmlab.scorers.models.loading import encodes, window

        checkpoint = find(
            source,
            revision=self.revision,
            trust_remote_code=self.trust_remote_code,
            with_weights=False,
        )
        encoded = encode(
            load_tokenizer(checkpoint),
            responses["prompt"].tolist(),
            responses["response"].tolist(),
            template=read_template(self.template),
            max_length=self.max_length or window(checkpoint.config),
            truncate=self.truncate,
        )
        packing = Packing(None, shares=not encodes(checkpoint.config))
        passes = plan(encoded.ids, encoded.groups, packing=packing)
        return {
            "model": model if self.url else checkpoint.title,
            "texts": len(passes.copies),
            "tokens": passes.tokens,
            "passes": len(passes.parts),
        }


@dataclass(frozen=True, kw_only=True)
class Prefer(shared.LocalOptions, shared.RunOptions, shared.TextOptions):
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
        Argument(help="Ids or folders of models that see two answers at once."),
    ]
    truncate: shared.Truncate = None
    allow_missing: shared.AllowMissing = False

    def run(self) -> None:
        """Compare, and write or print the pairs."""
        self.check_out()
        keywords = self.run_keywords() | shared.pick_given(self, shared.LocalOptions)
        if self.truncate:
            keywords["truncate"] = self.truncate
        pairs = scoring.prefer(
            self.load_responses(self.benchmark),
            list(self.models),
            allow_missing=self.allow_missing,
            **keywords,
        )
        write_table(pairs, self.out)


def merge_stores(
    folders: Annotated[
        list[str], Argument(help="Stores to copy from: folders or URLs.")
    ],
    into: Annotated[str, Option(help="Store to copy into; made if it is not there.")],
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
class Doctor(shared.ModelOptions, shared.TextOptions):
    """Check a model for silent scoring errors before a long run.

    One line per check, with the remedy below it. Exit code 1 if a check fails.

    \b
    Examples:
      rmlab doctor ./my-model
      rmlab doctor Skywork/Skywork-Reward-V2-Qwen3-0.6B rm-bench --dtype bfloat16
      rmlab doctor llm-blender/PairRM-hf rm-bench --pairwise
      rmlab doctor my-rm --url http://127.0.0.1:8000 --kind vllm --local-weights ./my-rm
    """

    model: Annotated[str, Argument(help="Model id or folder.")]
    benchmark: shared.Benchmark = "mini"
    pairwise: Annotated[
        bool,
        Option("--pairwise", help="MODEL sees two answers at once, as PairRM does."),
    ] = False
    local_weights: Annotated[
        Path | None,
        Option(help="The served model's weights here, to compare with."),
    ] = None

    def run(self) -> None:
        """Check, and print the findings; exit code 1 where a check fails."""
        keywords = self.model_keywords()
        scorer: Any = self.model
        if self.url:
            keywords |= {"model": self.model, "weights": self.local_weights}
            scorer = self.url
        elif self.pairwise:
            scorer = scorers.pairwise(self.model, **keywords)
            keywords = {}
        responses = self.load_responses(self.benchmark)
        table = checks.doctor(scorer, responses, **keywords)

        for row in table.itertuples(index=False):
            say(f"{row.status:<5} {row.check:<11} {line(row.found)}")
            if row.remedy:
                say(f"{'':17} -> {line(row.remedy)}")
        if table["status"].max() == "fail":
            raise Exit(1)


def write_table(table: pd.DataFrame, out: Path | None) -> None:
    """Write scores or pairs to a file, or as CSV to stdout."""
    if out is None:
        say_table(table)
        return
    write = io.write_scores if "score" in table.columns else io.write_pairs
    file = write(table, out)
    say(f"{len(table)} rows in {file}", err=True)
