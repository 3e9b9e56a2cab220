"""The command that asks a language model to judge."""

from dataclasses import dataclass
from typing import Annotated

from typer import Argument, Option

from rmlab import judges, scoring
from rmlab.cli import options as shared
from rmlab.cli.scoring import write_table
from rmlab.cli.terminal import say, say_table
from rmlab.judges.kinds import FAILED, PairJudge
from rmlab.tables import DataError


@dataclass(frozen=True, kw_only=True)
class JudgeOptions(shared.LocalOptions):
    """The judge: keywords of `rmlab.judge`."""

    url: Annotated[
        str | None,
        Option(help="OpenAI-compatible server, such as http://127.0.0.1:8000/v1."),
    ] = None
    key: Annotated[
        str | None,
        Option(
            help="NAME of the environment variable with the key; at OpenAI "
            "OPENAI_API_KEY."
        ),
    ] = None
    mode: Annotated[
        str | None,
        Option(help="pairwise (default), logprob, ranking or rating."),
    ] = None
    template: Annotated[
        str | None,
        Option(help="Question: five, three, two, letter ... or a text file."),
    ] = None
    convention: Annotated[
        str | None,
        Option(
            help="As published: reward-bench, reward-bench-2 or reward-bench-2-ratings."
        ),
    ] = None
    answer_tokens: Annotated[
        int | None,
        Option(help="Most tokens of an answer, reasoning included.", min=1),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Judge(JudgeOptions, shared.RunOptions, shared.TextOptions):
    """Ask a language model, here or on a server, to judge answers.

    Says what it will ask before it asks. Comparisons come as pairs, rankings and
    ratings as scores. Answers without a verdict are missing, and counted.

    \b
    Examples:
      rmlab judge mini ./my-model --mode logprob -o pairs.csv
      rmlab judge rm-bench Qwen/Qwen3-8B --url http://127.0.0.1:8000/v1 \\
          --store judged --dry-run
      rmlab judge rm-bench Qwen/Qwen3-8B --url http://127.0.0.1:8000/v1 --store judged
      rmlab judge reward-bench-2 gpt-5-mini --url https://api.openai.com/v1 \\
          --mode ranking
      rmlab judge rm-bench ./my-model --mode logprob --cluster ray \\
          --store file:///shared/judged
    """

    benchmark: shared.Benchmark
    model: Annotated[
        str,
        Argument(
            help="The model's name at the server; without --url a folder or a hub id."
        ),
    ]
    dry_run: Annotated[
        bool, Option("--dry-run", help="Say what it would ask, and stop.")
    ] = False

    def run(self) -> None:
        """Ask the judge, and write or print its scores or pairs."""
        self.check_out()
        responses = self.load_responses(self.benchmark)
        keywords = shared.pick_given(self, JudgeOptions)
        if self.url:
            here = {"device": self.device, "dtype": self.dtype}
            shared.refuse(here, "does not go with --url")
        if self.url and self.revision:
            keywords["version"] = keywords.pop("revision")
        judge = judges.judge(self.model, **keywords)
        costs = judges.cost(judge, responses, store=self.store)
        if self.dry_run:
            say_table(costs)
            return

        n_asked, n_read, n_written = costs[
            ["to_ask", "prompt_tokens", "answer_tokens"]
        ].iloc[0]
        part = f"part {self.shard} of " if self.shard else ""
        tokens = f"about {n_read:,} tokens to read, at most {n_written:,} to write"
        say(f"asks {part}{n_asked:,} questions: {tokens}", err=True)
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
