"""The command rewards: a file of answers, and the same file with a reward a row."""

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pandas as pd
import typer

from rmlab import records, scoring, servers
from rmlab.cli import options as shared
from rmlab.cli.terminal import say, say_table
from rmlab.records import CSV, SUFFIXES, Row
from rmlab.scoring import REWARD
from rmlab.scoring.walk import Model
from rmlab.tables import DataError
from rmlab.text import short

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True, kw_only=True)
class Rewards(shared.ServerOptions, shared.StoreOptions):
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

    file: Annotated[Path, typer.Argument(help=f"Answers: {', '.join(SUFFIXES)}.")]
    model: Annotated[
        str, typer.Argument(help="Model id, folder, or a baseline such as longest.")
    ]
    prompt: Annotated[str, typer.Option(help="Column of the prompts.")] = "prompt"
    response: Annotated[str, typer.Option(help="Column of the answers.")] = "response"
    chats: Annotated[
        str | None,
        typer.Option(help="Column of whole chats, in place of the two others."),
    ] = None
    name: Annotated[
        str | None, typer.Option(help="What MODEL is called in messages.")
    ] = None
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="MODEL may give no number.")
    ] = False

    def run(self) -> None:
        """Score the answers, and write or print the rows."""
        if self.out is not None:
            _check_target(self.out)
        rows = records.read_rows(self.file)
        rewards = self._score(rows)
        for row, reward in zip(rows, rewards, strict=True):
            row[REWARD] = None if pd.isna(reward) else float(reward)

        if self.out is None:
            say_table(pd.DataFrame(rows, dtype=object))
            return
        records.write_file(self.out, _format_rows(rows, self.file, self.out))
        say(f"{len(rows)} rows in {self.out}", err=True)

    def _score(self, rows: list[Row]) -> pd.Series:
        """The rewards; a field that a row lacks is missing."""
        prompt = self.prompt if self.chats is None else None
        response = self.chats or self.response
        table = pd.DataFrame(rows, dtype=object)
        is_read = table.columns.isin([prompt, response, REWARD])

        keywords = shared.pick_given(name=self.name)
        model: Model = self.model
        if self.url:
            server = keywords | self.server_keywords()
            model = servers.remote(self.url, model=self.model, **server)
        else:
            keywords |= shared.model_keywords(self, shared.ClassifierOptions)
        scored = scoring.rewards(
            table.loc[:, is_read],
            model,
            prompt=prompt,
            response=response,
            store=self.store,
            allow_missing=self.allow_missing,
            progress=not self.quiet,
            **keywords,
        )
        return scored[REWARD]


def _check_target(path: Path) -> None:
    """Raise before a long run where its file could not be written after it."""
    if path.suffix.lower() not in SUFFIXES:
        problem = f"{path}: rows are not written as {path.suffix!r}"
        raise DataError(problem, f"end its name with one of {', '.join(SUFFIXES)}")
    records.check_writable(path)


def _list_columns(rows: list[Row]) -> list[str]:
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    return list(names)


def _format_rows(rows: list[Row], source: Path, target: Path) -> str | bytes:
    """The rows as a file of the target's ending."""
    suffix = target.suffix.lower()
    if suffix == ".parquet":
        return _format_parquet(rows, source)
    if suffix in CSV:
        return _format_csv(rows, "," if suffix == ".csv" else "\t")
    if suffix == ".json":
        return json.dumps(rows, ensure_ascii=False, indent=1, default=str) + "\n"
    lines = [json.dumps(row, ensure_ascii=False, default=str) for row in rows]
    return "\n".join(lines) + "\n"


def _format_csv(rows: list[Row], delimiter: str) -> str:
    """Texts and numbers as they are, lists and objects as JSON."""
    file = io.StringIO(newline="")
    names = _list_columns(rows)
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        cells = []
        for name in names:
            cell = row.get(name)
            if isinstance(cell, list | dict):
                cell = json.dumps(cell, ensure_ascii=False, default=str)
            cells.append(cell)
        writer.writerow(cells)
    return file.getvalue()


def _format_parquet(rows: list[Row], source: Path) -> bytes:
    """Columns of a Parquet file keep their types."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = None
    if source.suffix.lower() == ".parquet":
        schema = records.read_parquet(source, _read_schema)
        schema = schema.append(pa.field(REWARD, pa.float64()))
    columns = {}
    for name in _list_columns(rows):
        columns[name] = [row.get(name) for row in rows]
    try:
        table = pa.table(columns, schema=schema)
    except pa.ArrowException as error:
        problem = f"a column cannot be written as Parquet ({short(str(error))})"
        raise DataError(problem, "write .jsonl, which takes any cell") from None

    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def _read_schema(file: "pyarrow.parquet.ParquetFile") -> "pyarrow.Schema":
    return file.schema_arrow
