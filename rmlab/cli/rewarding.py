"""The command rewards: a file of answers, and the same file with a reward a row."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd
from typer import Argument, Option

from rmlab import records, scoring, servers
from rmlab.cli import options as shared
from rmlab.cli.terminal import say, say_table
from rmlab.records import CSV, SUFFIXES, Row
from rmlab.scoring import REWARD
from rmlab.scoring.walk import Model
from rmlab.tables import DataError
from rmlab.text import short


@dataclass(frozen=True, kw_only=True)
class Rewards(shared.ModelOptions, shared.OutOptions):
    """Add a column with rewards to a file of answers, which needs no labels.

    Rows, their order and all other columns stay as they are. An answer that is missing
    has no reward. Writes --out, in the format of its ending, or CSV into a pipe.

    \b
    Examples:
      rmlab rewards answers.jsonl ./my-rm -o scored.jsonl
      rmlab rewards answers.csv longest --prompt question -o scored.csv
      rmlab rewards chats.parquet ./my-rm --chats messages --store scores -o out.jsonl
      rmlab rewards answers.jsonl my-rm --url http://127.0.0.1:8000 --kind vllm
    """

    file: Annotated[Path, Argument(help=f"Answers: {', '.join(SUFFIXES)}.")]
    model: Annotated[
        str, Argument(help="Model id, folder, or a baseline such as longest.")
    ]
    prompt: Annotated[str, Option(help="Column of the prompts.")] = "prompt"
    response: Annotated[str, Option(help="Column of the answers.")] = "response"
    chats: Annotated[
        str | None,
        Option(help="Column of whole chats, in place of the two others."),
    ] = None

    def run(self) -> None:
        """Score the answers, and write or print the rows."""
        if self.out is not None:
            if self.out.suffix.lower() not in SUFFIXES:
                problem = f"{self.out}: rows are not written as {self.out.suffix!r}"
                raise DataError(problem, f"end its name with one of {SUFFIXES}")
            records.check_writable(self.out)
        rows = records.read_rows(self.file)
        rewards = self._score(pd.DataFrame(rows, dtype=object))
        for row, reward in zip(rows, rewards.astype(object), strict=True):
            row[REWARD] = None if pd.isna(reward) else reward

        if self.out is None:
            say_table(pd.DataFrame(rows, dtype=object))
            return
        records.write_file(self.out, _format_rows(rows, self.file, self.out))
        say(f"{len(rows)} rows in {self.out}", err=True)

    def _score(self, table: pd.DataFrame) -> pd.Series:
        """The rewards; a field that a row lacks is missing."""
        prompt = self.prompt if self.chats is None else None
        response = self.chats or self.response
        is_read = table.columns.isin([prompt, response, REWARD])

        model: Model = self.model
        keywords = self.model_keywords()
        if self.url:
            model = servers.remote(self.url, model=self.model, **keywords)
            keywords = {}
        scored = scoring.rewards(
            table.loc[:, is_read],
            model,
            prompt=prompt,
            response=response,
            store=self.store,
            progress=not self.quiet,
            **keywords,
        )
        return scored[REWARD]


def _format_rows(rows: list[Row], source: Path, target: Path) -> str | bytes:
    """The rows as a file of the target's ending."""
    suffix = target.suffix.lower()
    if suffix == ".parquet":
        return _format_parquet(rows, source)
    if suffix in CSV:
        delimiter = "," if suffix == ".csv" else "\t"
        cells = pd.DataFrame(rows, dtype=object).map(_format_cell)
        return cells.to_csv(index=False, sep=delimiter, lineterminator="\n")
    if suffix == ".json":
        return json.dumps(rows, ensure_ascii=False, indent=1, default=str) + "\n"
    lines = [json.dumps(row, ensure_ascii=False, default=str) for row in rows]
    return "\n".join(lines) + "\n"


def _format_cell(cell: object) -> object:
    """Texts and numbers as they are, lists and objects as JSON."""
    if isinstance(cell, list | dict):
        return json.dumps(cell, ensure_ascii=False, default=str)
    return cell


def _format_parquet(rows: list[Row], source: Path) -> bytes:
    """Columns of a Parquet file keep their types."""
    table = pd.DataFrame(rows, dtype=object)
    rewards = table.pop(REWARD).astype("float64")
    if source.suffix.lower() == ".parquet":
        table = pd.read_parquet(source, dtype_backend="pyarrow")
    try:
        return bytes(table.assign(**{REWARD: rewards}).to_parquet())
    except ValueError as error:  # one of Arrow's
        problem = f"a column cannot be written as Parquet ({short(str(error))})"
        raise DataError(problem, "write .jsonl, which takes any cell") from None
