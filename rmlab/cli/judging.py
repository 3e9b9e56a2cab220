"""The command that asks a language model to judge."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from rmlab import checks, judges, scoring
from rmlab.checks.judges import judge_sample
from rmlab.cli import options as shared
from rmlab.cli.options import option
from rmlab.cli.scoring import check_file, say_checks, write_table
from rmlab.cli.terminal import say, say_table
from rmlab.judges import LLMJudge
from rmlab.judges.modes import FAILED
from rmlab.records import write_file
from rmlab.stats import judge_report
from rmlab.tables import PROMPT, DataError
from rmlab.text import format_csv


@dataclass(frozen=True)
class JudgeOptions(shared.LocalOptions):
    """The judge: keywords of `rmlab.judge`."""

    url: str | None = option(
        "OpenAI-compatible server, such as http://127.0.0.1:8000/v1."
    )
    key: str | None = option(
        "NAME of the environment variable with the key; at OpenAI OPENAI_API_KEY."
    )
    mode: str | None = option("pairwise (default), logprob, ranking or rating.")
    template: str | None = option(
        "Question: five, three, two, letter ... or a text file."
    )
    convention: str | None = option(
        "As published: reward-bench, reward-bench-2 or reward-bench-2-ratings."
    )
    samples: int = option(
        "Answers to each question; the majority counts.", default=1, min=1
    )
    temperature: float | None = option("0, or 0.7 with several samples.", min=0.0)
    answer_tokens: int | None = option(
        "Most tokens of an answer, reasoning included.", min=1
    )
    seed: int = option("Of the order of answers, and of samples.", default=0)
    name: str | None = option("What MODEL is called in tables.")
    concurrency: int | None = option("Requests at once.", min=1)
    rate: float | None = option("Requests per second at most.")
    max_requests: int | None = option("Budget: requests, tries included.", min=0)
    max_tokens: int | None = option("Budget: tokens, read and written.", min=0)


@dataclass(frozen=True)
class ActionOptions:
    """What to do with the judge."""

    estimate: bool = option(
        "Say what it would ask, and stop.", "--estimate", default=False
    )
    check: bool = option(
        "Ask a few questions, examine the answers, and stop.", "--check", default=False
    )
    report: bool = option(
        "Probe the judge: position, samples, cycles, padding ...",
        "--report",
        default=False,
    )
    requests: Path | None = option(
        "Write a request file for a batch endpoint, and stop."
    )
    results: Path | None = option("Read the results of a batch into --store first.")


@shared.with_shared_options
def judge_benchmark(
    texts: shared.TextOptions,
    run: shared.RunOptions,
    options: JudgeOptions,
    benchmark: shared.Benchmark,
    model: Annotated[
        str,
        typer.Argument(
            help="The model's name at the server; without --url a folder or a hub id."
        ),
    ],
    action: ActionOptions,
) -> None:
    """Ask a language model, here or on a server, to judge answers.

    Says what it will ask before it asks. Comparisons come as pairs, rankings and ratings as scores. Answers without a
    verdict are missing, and counted.

    \b
    Examples:
      rmlab judge mini ./my-model --mode logprob -o pairs.csv
      rmlab judge rm-bench Qwen/Qwen3-8B --url http://127.0.0.1:8000/v1 --store judged --estimate
      rmlab judge rm-bench Qwen/Qwen3-8B --url http://127.0.0.1:8000/v1 --store judged
      rmlab judge reward-bench-2 gpt-5-mini --url https://api.openai.com/v1 --max-tokens 9000000 --mode ranking
      rmlab judge rm-bench ./my-model --mode logprob --cluster ray --store file:///shared/judged
      rmlab judge mini ./my-model --check
      rmlab judge mini ./my-model --mode logprob --report --store judged
      rmlab judge rm-bench gpt-5-mini --url https://api.openai.com/v1 --store judged --requests batch.jsonl
      rmlab judge rm-bench gpt-5-mini --url https://api.openai.com/v1 --store judged --results batch_output.jsonl
    """
    check_file(run, is_table=not action.report)
    responses = texts.load(benchmark)
    keywords = shared.model_keywords(options)
    if options.url and options.revision:
        keywords["version"] = keywords.pop("revision")
    judge = judges.judge(model, **keywords)
    if action.estimate:
        say_table(judges.estimate(judge, responses, store=run.store))
    elif action.requests is not None:
        for file in judges.write_requests(
            judge, responses, action.requests, store=run.store
        ):
            say(f"requests in {file}", err=True)
    elif action.check:
        _say_cost(judges.estimate(judge, judge_sample(responses)))
        say_checks(checks.doctor(judge, responses))
    elif action.report:
        _report(judge, responses, run)
    else:
        if action.results is not None and run.store is not None:
            row = judges.read_results(
                judge, responses, action.results, store=run.store
            ).iloc[0]
            say(", ".join(f"{name}: {row[name]}" for name in row.index), err=True)
        _judge(judge, responses, run)


def _say_cost(costs: pd.DataFrame, part: str = "", factor: float = 1.0) -> None:
    """Say what a run asks, before it asks; `factor`: how many times the questions of
    `costs`.
    """
    counts = costs[["to_ask", "prompt_tokens", "answer_tokens"]].iloc[0] * factor
    n_asked, n_read, n_written = counts.round().astype(int)
    say(
        f"asks {part}{n_asked:,} questions: about {n_read:,} tokens to read, at most {n_written:,} to write",
        err=True,
    )


def _report(judge: LLMJudge, responses: pd.DataFrame, run: shared.RunOptions) -> None:
    if judge.takes == "list":
        raise typer.BadParameter(
            "probes judges that compare or rate: give another --mode",
            param_hint="--report",
        )
    # The most that `judges.examine` asks about a prompt is 18 questions, or 12 of a
    # judge that rates.
    n_questions = len(responses[PROMPT].drop_duplicates()) * (
        18 if judge.takes == "pair" else 12
    )
    costs = judges.estimate(judge, responses)
    _say_cost(costs, "up to ", n_questions / max(costs["to_ask"].iloc[0], 1))
    verdicts = judges.examine(judge, responses, store=run.store, progress=not run.quiet)
    _require_answer(verdicts["status"])
    table = judge_report(verdicts)
    if run.out is None:
        say_table(table)
    else:
        write_file(run.out, format_csv(table))


def _judge(judge: LLMJudge, responses: pd.DataFrame, run: shared.RunOptions) -> None:
    _say_cost(
        judges.estimate(judge, responses, store=run.store),
        f"part {run.shard} of " if run.shard else "",
    )
    ask = scoring.prefer if judge.takes == "pair" else scoring.score
    table = ask(responses, judge, allow_missing=True, **run.keywords())
    provenance = table.attrs["provenance"][judge.name]
    counts = ", ".join(
        f"{n} {verdict}" for verdict, n in provenance["verdicts"].items()
    )
    say(
        f"{judge.name}: {provenance['questions']} questions, {provenance['asked']} asked now: {counts}",
        err=True,
    )
    for reason, n in provenance.get("failures", {}).items():
        say(
            f"rmlab: warning: {n} questions failed: {reason}; run the same again to ask them once more",
            err=True,
        )
    _require_answer(provenance["verdicts"])
    write_table(table, run)


def _require_answer(verdicts: Iterable[str]) -> None:
    if {*verdicts} == {FAILED}:
        raise DataError(
            "no question was answered, so nothing is written. --check shows why"
        )
