"""The commands that run models: score, prefer, judge, rewards; merge for their stores,
and doctor before them.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from typer import Exit

from rmlab import (
    baselines,
    checks,
    io,
    judges,
    metrics,
    records,
    scorers,
    scoring,
    tables,
)
from rmlab.cli.options import (
    BENCHMARK,
    TRUNCATE,
    Local,
    Out,
    RewardModel,
    Run,
    Texts,
    Writing,
    argument,
    load_texts,
    option,
    pick_given,
    refuse,
    switch,
)
from rmlab.cli.terminal import say, say_aligned, say_table
from rmlab.judges.kinds import FAILED, PairJudge
from rmlab.records import SUFFIXES, Row
from rmlab.scoring import REWARD
from rmlab.scoring.texts import list_texts
from rmlab.tables import DataError
from rmlab.text import line


@dataclass(kw_only=True)
class Score(RewardModel, Run, Texts):
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

    benchmark: str = BENCHMARK
    models: list[str] = argument("Model ids, folders, or baselines such as longest.")
    reference: str | None = option("Score MODELS as DPO policies against this one.")
    implicit: str | None = option("Policies without a reference: mean, sum or norm.")
    allow_missing: bool = switch(
        "Count NaN as missing instead of stopping.", "--allow-missing"
    )
    dry_run: bool = switch("Print texts and tokens, and stop.", "--dry-run")

    def run(self) -> None:
        """Score, and write or print the scores."""
        self.check_out()
        keywords = self.model_keywords()
        is_policy = bool(self.reference or self.implicit)
        if is_policy and self.url:
            refuse(["url"], "does not go with --reference and --implicit")
        responses = load_texts(self.benchmark, self.path, self.column)
        if self.dry_run:
            rows = [self._forecast(model, responses) for model in self.models]
            columns = ["model", "texts", "tokens"]
            forecast = pd.DataFrame(rows, columns=columns)
            say_table(forecast.convert_dtypes())
            return

        if is_policy:
            keywords |= {"reference": self.reference, "mode": self.implicit}
            models: Any = []
            for name in self.models:
                models.append(scorers.implicit_reward(name, **keywords))
            keywords = {}
        else:
            models, keywords = self.open_models(self.models)
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
        """Count texts, and tokens where there is a tokenizer; the model's weights are
        not needed.
        """
        source = self.tokenizer if self.url else model
        if source is None or model in baselines.ALL:
            texts = list_texts(responses, tables.KEY, lists=False)
            return {"model": model, "texts": len(texts.distinct)}

        from rmlab.inference.planning import Packing, plan
        from rmlab.scorers.checkpoints.checkpoint import find
        from rmlab.scorers.encoder import TextEncoder, complete_options
        from rmlab.scorers.models.loading import encodes

        checkpoint = find(
            source,
            revision=self.revision,
            trust_remote_code=self.trust_remote_code,
            with_weights=False,
        )
        options: Any = pick_given(self, Writing)
        encoder = TextEncoder(checkpoint, complete_options(options))
        encoded = encoder.encode([*responses["prompt"]], [*responses["response"]])
        packing = Packing(None, shares=not encodes(checkpoint.config))
        passes = plan(encoded.ids, encoded.groups, packing=packing)
        return {
            "model": model if self.url else checkpoint.title,
            "texts": len(passes.copies),
            "tokens": passes.tokens,
        }


@dataclass(kw_only=True)
class Prefer(Local, Run, Texts):
    """Compare a benchmark's answers with pairwise models.

    Every chosen answer meets every rejected one, in both orders.

    \b
    Examples:
      rmlab prefer mini llm-blender/PairRM-hf -o pairs.csv
      rmlab prefer rm-bench llm-blender/PairRM-hf --truncate right --store scores
      rmlab prefer rm-bench llm-blender/PairRM-hf --cluster ray --store s3://b/scores
      rmlab report scores/
    """

    benchmark: str = BENCHMARK
    models: list[str] = argument("Ids or folders of models that see two answers.")
    truncate: str | None = TRUNCATE

    def run(self) -> None:
        """Compare, and write or print the pairs."""
        self.check_out()
        keywords = self.run_keywords() | pick_given(self, Local)
        if self.truncate:
            keywords["truncate"] = self.truncate
        pairs = scoring.prefer(
            load_texts(self.benchmark, self.path, self.column),
            [*self.models],
            **keywords,
        )
        write_table(pairs, self.out)


@dataclass(kw_only=True)
class JudgeOptions(Local):
    """The judge: keywords of `rmlab.judge`."""

    url: str | None = option("OpenAI-compatible server, up to and with its /v1.")
    key: str | None = option("Environment variable with the key; else OPENAI_API_KEY.")
    mode: str | None = option("pairwise (default), logprob, ranking or rating.")
    template: str | None = option("Question: five, three, two ... or a text file.")
    convention: str | None = option("As published: reward-bench, reward-bench-2 ...")
    answer_tokens: int | None = option("Most tokens of an answer, with its reasoning.")


@dataclass(kw_only=True)
class Judge(JudgeOptions, Run, Texts):
    """Ask a language model, here or on a server, to judge answers.

    Says what it will ask before it asks. Comparisons come as pairs, rankings and
    ratings as scores. Answers without a verdict are missing, and counted.

    \b
    Examples:
      rmlab judge mini ./my-model --mode logprob -o pairs.csv
      rmlab judge rm-bench Qwen/Qwen3-8B --url http://127.0.0.1:8000/v1 \\
          --store judged --dry-run
      rmlab judge rm-bench Qwen/Qwen3-8B --url http://127.0.0.1:8000/v1 --store judged
      rmlab judge reward-bench-2 gpt-5-mini --mode ranking \\
          --url https://api.openai.com/v1
      rmlab judge rm-bench ./my-model --mode logprob --cluster ray \\
          --store file:///shared/judged
    """

    benchmark: str = BENCHMARK
    model: str = argument("Name at the server; without --url a folder or a hub id.")
    dry_run: bool = switch("Say what it would ask, and stop.", "--dry-run")

    def run(self) -> None:
        """Ask the judge, and write or print its scores or pairs."""
        self.check_out()
        if self.url:
            refuse(pick_given(self, Local), "does not go with --url")
        responses = load_texts(self.benchmark, self.path, self.column)
        judge = judges.judge(self.model, **pick_given(self, JudgeOptions))
        costs = judges.cost(judge, responses, store=self.store)
        if self.dry_run:
            say_table(costs)
            return

        (cost,) = costs.itertuples()
        read = f"about {cost.prompt_tokens:,} tokens to read"
        written = f"at most {cost.answer_tokens:,} to write"
        say(f"{cost.to_ask:,} questions to ask: {read}, {written}", err=True)
        ask = scoring.prefer if isinstance(judge, PairJudge) else scoring.score
        table = ask(responses, judge, allow_missing=True, **self.run_keywords())

        ((name, provenance),) = table.attrs["provenance"].items()
        verdicts = provenance["verdicts"]
        counts = ", ".join(f"{n} {verdict}" for verdict, n in verdicts.items())
        say(f"{name}: {provenance['asked']} questions asked now: {counts}", err=True)
        for reason, n in provenance.get("unscored", {}).items():
            say(f"rmlab: warning: no score for {n} texts: {reason}", err=True)
        if set(verdicts) == {FAILED}:
            problem = "no question was answered, so nothing is written"
            raise DataError(problem, "rmlab.doctor(judge, responses) shows why")
        write_table(table, self.out)


@dataclass(kw_only=True)
class Rewards(RewardModel, Out):
    """Add a column with rewards to a file of answers, which needs no labels.

    Rows, their order and all other columns stay as they are. An answer that is missing
    has no reward. Writes JSON lines or CSV to --out, or CSV into a pipe.

    \b
    Examples:
      rmlab rewards answers.jsonl ./my-rm -o scored.jsonl
      rmlab rewards answers.csv longest --prompt question -o scored.csv
      rmlab rewards chats.parquet ./my-rm --chats messages --store scores -o out.jsonl
      rmlab rewards answers.jsonl my-rm --url http://127.0.0.1:8000 --kind vllm
    """

    file: Path = argument(f"Answers: {', '.join(SUFFIXES)}.")
    model: str = argument("Model id, folder, or a baseline such as longest.")
    prompt: str = option("Column of the prompts.", default="prompt")
    response: str = option("Column of the answers.", default="response")
    chats: str | None = option("Column of whole chats, in place of the two others.")

    def run(self) -> None:
        """Score the answers, and write or print the rows."""
        suffix = "" if self.out is None else self.out.suffix.lower()
        if self.out is not None:
            if suffix not in (".jsonl", ".csv"):
                problem = f"{self.out}: rows are not written as {suffix!r}"
                raise DataError(problem, "end its name with .jsonl or .csv")
            records.check_writable(self.out)
        rows = records.read_rows(self.file)
        models, keywords = self.open_models([self.model])
        prompt = self.prompt if self.chats is None else None
        table = scoring.rewards(
            pd.DataFrame(rows, dtype=object),
            models,
            prompt=prompt,
            response=self.chats or self.response,
            store=self.store,
            progress=not self.quiet,
            **keywords,
        )
        if self.out is None:
            say_table(table)
            return

        if suffix == ".csv":
            cells = table.map(_format_cell)
            text = cells.to_csv(index=False, lineterminator="\n")
        else:
            rewards = table[REWARD].astype(object).where(pd.notna, None)
            for row, reward in zip(rows, rewards, strict=True):
                row[REWARD] = reward
            text = "".join(map(_format_line, rows))
        records.write_file(self.out, text)
        say(f"{len(rows)} rows in {self.out}", err=True)


def _format_line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False, default=str) + "\n"


def _format_cell(cell: object) -> object:
    """Texts and numbers as they are, lists and objects as JSON."""
    if isinstance(cell, list | dict):
        return json.dumps(cell, ensure_ascii=False, default=str)
    return cell


@dataclass(kw_only=True)
class Merge:
    """Copy the scores of several stores, such as shards, into one.

    Prints what was added as CSV.

    \b
    Examples:
      rmlab merge scores-1 scores-2 scores-3 --into scores
      rmlab merge s3://bucket/scores --into scores
      # this then forwards nothing:
      rmlab score rm-bench ./my-model --store scores -o scores.csv
    """

    folders: list[str] = argument("Stores to copy from: folders or URLs.")
    into: str = option("Store to copy into; made if it is not there.", default=...)

    def run(self) -> None:
        """Merge, and print what each store brought."""
        say_table(scoring.merge_stores(self.folders, self.into))


@dataclass(kw_only=True)
class Doctor(RewardModel, Texts):
    """Check a model for silent scoring errors before a long run.

    One line per check, with the remedy below it. Exit code 1 if a check fails.

    \b
    Examples:
      rmlab doctor ./my-model
      rmlab doctor Skywork/Skywork-Reward-V2-Qwen3-0.6B rm-bench --dtype bfloat16
      rmlab doctor llm-blender/PairRM-hf rm-bench --pairwise
      rmlab doctor my-rm --url http://127.0.0.1:8000 --kind vllm --tokenizer ./my-rm
    """

    model: str = argument("Model id or folder.")
    benchmark: str = argument("The benchmark to score.", "mini")
    pairwise: bool = switch("MODEL sees two answers, as PairRM does.", "--pairwise")

    def run(self) -> None:
        """Check, and print the findings; exit code 1 where a check fails."""
        keywords = self.model_keywords()
        scorer: Any = self.model
        if self.url:
            keywords["model"] = self.model
            scorer = self.url
        elif self.pairwise:
            scorer = scorers.pairwise(self.model, **keywords)
            keywords = {}
        table = checks.doctor(
            scorer, load_texts(self.benchmark, self.path, self.column), **keywords
        )

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
