"""The command that asks a language model to judge."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import pandas as pd
import typer

from rmlab import checks, judges, scoring
from rmlab.cli import options as shared
from rmlab.cli.scoring import check_file, say_checks, write_table
from rmlab.cli.terminal import say, say_table
from rmlab.judges import Judge
from rmlab.judges.examination import judge_sample
from rmlab.judges.kinds import FAILED, PairJudge
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
    reader: Annotated[
        str | None,
        typer.Option(
            help="letter, strength, boxed, tag, result, scores, json:KEY, yes-no, or a "
            "regular expression with a group."
        ),
    ] = None
    scale: Annotated[
        tuple[float, float],
        typer.Option(help="Lowest and highest score, such as 1 5."),
    ] = (1, 10)
    system: Annotated[
        str, typer.Option(help="System message, such as the criterion to judge by.")
    ] = ""
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

    def run(self) -> None:
        """Do what the options ask for; by default ask the judge."""
        check_file(self, is_table=True)
        responses = self.load_responses(self.benchmark)
        keywords = shared.model_keywords(self, JudgeOptions)
        if self.url and self.revision:
            keywords["version"] = keywords.pop("revision")
        judge = judges.judge(self.model, **keywords)

        if self.estimate:
            say_table(judges.cost(judge, responses, store=self.store))
        elif self.check:
            _say_cost(judges.cost(judge, judge_sample(responses)))
            say_checks(checks.doctor(judge, responses))
        else:
            self._judge(judge, responses)

    def _judge(self, judge: Judge, responses: pd.DataFrame) -> None:
        costs = judges.cost(judge, responses, store=self.store)
        part = f"part {self.shard} of " if self.shard else ""
        _say_cost(costs, part)
        ask = scoring.prefer if isinstance(judge, PairJudge) else scoring.score
        table = ask(responses, judge, allow_missing=True, **self.work_keywords())

        provenance = table.attrs["provenance"][judge.name]
        verdicts = provenance["verdicts"]
        counts = ", ".join(f"{n} {verdict}" for verdict, n in verdicts.items())
        n_asked = provenance["asked"]
        say(f"{judge.name}: {n_asked} questions asked now: {counts}", err=True)
        for reason, n in provenance.get("unscored", {}).items():
            say(f"rmlab: warning: no score for {n} texts: {reason}", err=True)
        _require_answer(verdicts)
        write_table(table, self)


def _say_cost(costs: pd.DataFrame, part: str = "") -> None:
    """Say what a run asks, before it asks."""
    counts = costs[["to_ask", "prompt_tokens", "answer_tokens"]]
    n_asked, n_read, n_written = counts.iloc[0]
    tokens = f"about {n_read:,} tokens to read, at most {n_written:,} to write"
    say(f"asks {part}{n_asked:,} questions: {tokens}", err=True)


def _require_answer(verdicts: Iterable[str]) -> None:
    if set(verdicts) == {FAILED}:
        problem = "no question was answered, so nothing is written"
        raise DataError(problem, "--check shows why")
