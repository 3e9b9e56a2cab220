"""The command that asks a language model to judge."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from rmlab import checks, judges, scoring
from rmlab.checks.judge_trial import judge_sample
from rmlab.cli import options as shared
from rmlab.cli.scoring import check_file, say_checks, write_table
from rmlab.cli.terminal import say, say_table
from rmlab.judges import LLMJudge
from rmlab.judges.modes import FAILED
from rmlab.tables import DataError


@dataclass(frozen=True, kw_only=True)
class JudgeOptions(shared.LocalOptions):
    """The judge: keywords of `rmlab.judge`."""

    url: Annotated[
        str | None,
        typer.Option(
            help="OpenAI-compatible server, such as http://127.0.0.1:8000/v1."
        ),
    ] = None
    key: Annotated[
        str | None,
        typer.Option(
            help="NAME of the environment variable with the key; at OpenAI "
            "OPENAI_API_KEY."
        ),
    ] = None
    mode: Annotated[
        str | None,
        typer.Option(help="pairwise (default), logprob, ranking or rating."),
    ] = None
    template: Annotated[
        str | None,
        typer.Option(help="Question: five, three, two, letter ... or a text file."),
    ] = None
    convention: Annotated[
        str | None,
        typer.Option(
            help="As published: reward-bench, reward-bench-2 or reward-bench-2-ratings."
        ),
    ] = None
    samples: Annotated[
        int,
        typer.Option(help="Answers to each question; the majority counts.", min=1),
    ] = 1
    temperature: Annotated[
        float | None, typer.Option(help="0, or 0.7 with several samples.", min=0.0)
    ] = None
    answer_tokens: Annotated[
        int | None,
        typer.Option(help="Most tokens of an answer, reasoning included.", min=1),
    ] = None
    seed: Annotated[
        int, typer.Option(help="Of the order of answers, and of samples.")
    ] = 0
    name: Annotated[
        str | None, typer.Option(help="What MODEL is called in tables.")
    ] = None
    concurrency: Annotated[
        int | None, typer.Option(help="Requests at once.", min=1)
    ] = None
    rate: Annotated[float | None, typer.Option(help="Requests per second at most.")] = (
        None
    )
    max_requests: Annotated[
        int | None, typer.Option(help="Budget: requests, tries included.", min=0)
    ] = None
    max_tokens: Annotated[
        int | None, typer.Option(help="Budget: tokens, read and written.", min=0)
    ] = None


@dataclass(frozen=True, kw_only=True)
class JudgeCommand(JudgeOptions, shared.WorkOptions, shared.TextOptions):
    """Ask a language model, here or on a server, to judge answers.

    Says what it will ask before it asks. Comparisons come as pairs, rankings and
    ratings as scores. Answers without a verdict are missing, and counted.

    \b
    Examples:
      rmlab judge mini ./my-model --mode logprob -o pairs.csv
      rmlab judge rm-bench Qwen/Qwen3-8B --url http://127.0.0.1:8000/v1 \\
          --store judged --estimate
      rmlab judge rm-bench Qwen/Qwen3-8B --url http://127.0.0.1:8000/v1 --store judged
      rmlab judge reward-bench-2 gpt-5-mini --url https://api.openai.com/v1 \\
          --max-tokens 9000000 --mode ranking
      rmlab judge rm-bench ./my-model --mode logprob --cluster ray \\
          --store file:///shared/judged
      rmlab judge mini ./my-model --check
      rmlab judge mini ./my-model --mode logprob --report --store judged
      rmlab judge rm-bench gpt-5-mini --url https://api.openai.com/v1 --store judged \\
          --requests batch.jsonl
      rmlab judge rm-bench gpt-5-mini --url https://api.openai.com/v1 --store judged \\
          --results batch_output.jsonl
    """

    benchmark: shared.Benchmark
    model: Annotated[
        str,
        typer.Argument(
            help="The model's name at the server; without --url a folder or a hub id."
        ),
    ]
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Say what it would ask, and stop.")
    ] = False
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Ask a few questions, examine the answers, and stop."
        ),
    ] = False
    requests: Annotated[
        Path | None,
        typer.Option(help="Write a request file for a batch endpoint, and stop."),
    ] = None
    results: Annotated[
        Path | None,
        typer.Option(help="Read the results of a batch into --store first."),
    ] = None

    def run(self) -> None:
        """Do what the options ask for; by default ask the judge."""
        check_file(self, is_table=True)
        responses = self.load_responses(self.benchmark)
        keywords = shared.model_keywords(self, JudgeOptions)
        if self.url and self.revision:
            keywords["version"] = keywords.pop("revision")
        judge = judges.judge(self.model, **keywords)

        if self.estimate:
            say_table(judges.estimate(judge, responses, store=self.store))
        elif self.requests is not None:
            files = judges.write_requests(
                judge, responses, self.requests, store=self.store
            )
            for file in files:
                say(f"requests in {file}", err=True)
        elif self.check:
            _say_cost(judges.estimate(judge, judge_sample(responses)))
            say_checks(checks.doctor(judge, responses))
        else:
            self._read_results(judge, responses)
            self._judge(judge, responses)

    def _read_results(self, judge: LLMJudge, responses: pd.DataFrame) -> None:
        """Put the results of a batch into the store, where there are some."""
        if self.results is None or self.store is None:
            return
        counts = judges.read_results(judge, responses, self.results, store=self.store)
        row = counts.iloc[0]
        say(", ".join(f"{name}: {row[name]}" for name in row.index), err=True)

    def _judge(self, judge: LLMJudge, responses: pd.DataFrame) -> None:
        costs = judges.estimate(judge, responses, store=self.store)
        part = f"part {self.shard} of " if self.shard else ""
        _say_cost(costs, part)
        ask = scoring.prefer if judge.takes == "pair" else scoring.score
        table = ask(responses, judge, allow_missing=True, **self.work_keywords())

        provenance = table.attrs["provenance"][judge.name]
        verdicts = provenance["verdicts"]
        counts = ", ".join(f"{n} {verdict}" for verdict, n in verdicts.items())
        n_asked = provenance["asked"]
        questions = f"{provenance['questions']} questions, {n_asked} asked now"
        say(f"{judge.name}: {questions}: {counts}", err=True)
        for reason, n in provenance.get("failures", {}).items():
            remedy = "run the same again to ask them once more"
            say(f"rmlab: warning: {n} questions failed: {reason}; {remedy}", err=True)
        _require_answer(verdicts)
        write_table(table, self)


def _say_cost(costs: pd.DataFrame, part: str = "", factor: float = 1.0) -> None:
    """Say what a run asks, before it asks; `factor`: how many times the questions of
    `costs`.
    """
    counts = costs[["to_ask", "prompt_tokens", "answer_tokens"]].iloc[0] * factor
    n_asked, n_read, n_written = counts.round().astype(int)
    tokens = f"about {n_read:,} tokens to read, at most {n_written:,} to write"
    say(f"asks {part}{n_asked:,} questions: {tokens}", err=True)


def _require_answer(verdicts: Iterable[str]) -> None:
    if set(verdicts) == {FAILED}:
        problem = "no question was answered, so nothing is written"
        raise DataError(problem, "--check shows why")
