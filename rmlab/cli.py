"""The command line: results on stdout or in a file, everything else on stderr."""

import logging
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["app", "main"]

app = typer.Typer(
    name="rmlab",
    help="See what a reward model really rewards.",
    epilog="Exit codes: 0 done, 1 the data, a model or the disk cannot be used (one line says why), 2 wrong usage, "
    "130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_Path = Annotated[Path | None, typer.Option(help="Benchmark file or folder; else it is downloaded.")]
_Dtype = Annotated[str | None, typer.Option(help="float32, bfloat16 or float16; else chosen for the device.")]
_Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 ...; else the GPU where there is one.")]
_Template = Annotated[str | None, typer.Option(help="Named format, for a tokenizer without a template.")]
_MaxLength = Annotated[int | None, typer.Option(min=2, help="Longest text in tokens; else the window.")]
_Truncate = Annotated[str | None, typer.Option(help="left keeps the answer, right the prompt; else raise.")]
_Head = Annotated[str | None, typer.Option(help="Name of the reward head; else found by its weights.")]
_Weight = Annotated[list[str] | None, typer.Option(help="label=0.5 for a model of several labels; repeat.")]
_Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.")]
_Budget = Annotated[int | None, typer.Option(min=1, help="Tokens forwarded at once.")]
_TrustRemoteCode = Annotated[bool, typer.Option(help="Run code that comes with the model.")]
_AllowPickle = Annotated[bool, typer.Option(help="Load pickled weights, which can run code.")]


def main() -> None:
    """Run the command line; bad data, a missing package or a full disk is one line on stderr and exit code 1."""
    from rmlab.tables import DataError

    warnings.showwarning = _warn
    logging.basicConfig(format="rmlab: warning: %(message)s", level=logging.WARNING)
    try:
        app()
    except (DataError, OSError, ImportError) as error:
        typer.echo(f"rmlab: error: {' '.join(str(error).split())}", err=True)
        sys.exit(1)


@app.callback(invoke_without_command=True)
def _rmlab(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(installed("rmlab"))
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the figures.")] = Path("figures"),
) -> None:
    """Run the main job on the bundled data: scores, table, figures. Needs no network and no model.

    \b
    Example:
      rmlab demo --out figures
    """
    from rmlab.demo import demo as run

    table, files = run(out)
    shown = table.loc[:, "model":"overall"].round(2).assign(interval=_interval(table))
    typer.echo("Share of comparisons that the right answer wins, 64 prompts, 95 % interval of overall:\n")
    typer.echo(shown.to_string(index=False))
    typer.echo("\nFigures, each with its numbers beside it:")
    for file in files:
        typer.echo(f"  {file}")
    typer.echo("\nNext: open notebooks/00_quickstart.ipynb (make lab), or score a model: rmlab score --help")


@app.command(no_args_is_help=True)
def score(
    benchmark: Annotated[str, typer.Argument(help="rm-bench, reward-bench, reward-bench-2, mini, or a file of pairs.")],
    models: Annotated[list[str], typer.Argument(help="Model ids, folders, or baselines such as longest.")],
    path: _Path = None,
    store: Annotated[Path | None, typer.Option(help="Folder that keeps every batch: rerun to go on.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write; else CSV on stdout.")] = None,
    file_format: Annotated[str | None, typer.Option("--format", help="Layout of --out, e.g. rm-bench.")] = None,
    shard: Annotated[str | None, typer.Option(help="3/16: only the third of sixteen parts.")] = None,
    device: _Device = None,
    dtype: _Dtype = None,
    template: _Template = None,
    max_length: _MaxLength = None,
    truncate: _Truncate = None,
    head: _Head = None,
    weight: _Weight = None,
    reference: Annotated[str | None, typer.Option(help="Score MODELS as DPO policies against this reference.")] = None,
    implicit: Annotated[str | None, typer.Option(help="Policies without a reference: mean, sum or norm.")] = None,
    revision: _Revision = None,
    budget: _Budget = None,
    trust_remote_code: _TrustRemoteCode = False,
    allow_pickle: _AllowPickle = False,
    allow_missing: Annotated[bool, typer.Option(help="Count NaN scores as missing instead of stopping.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Score a benchmark's texts with one or more reward models.

    \b
    Examples:
      rmlab score mini longest shortest
      rmlab score rm-bench Skywork/Skywork-Reward-V2-Qwen3-0.6B --store scores -o scores.csv
      rmlab score rm-bench ./my-model --path data/rm-bench --store scores --shard 3/16 -o part3.csv
      rmlab score rm-bench ./my-dpo-policy --reference ./its-sft-model --store scores
      rmlab score pairs.jsonl longest -o scores.parquet
    """
    from rmlab.scoring import score as score_responses

    _check_out(out, file_format, len(models))
    responses = _load(benchmark, path)
    options = _given(
        head=head, weights=_weights(weight), dtype=dtype, device=device, template=template, max_length=max_length,
        truncate=truncate, revision=revision, budget=budget, trust_remote_code=trust_remote_code or None,
        allow_pickle=allow_pickle or None,
    )  # fmt: skip
    scorers: list[Any] = list(models)
    if reference or implicit:
        scorers, options = _policies(models, reference, implicit, options), {}
    try:
        scores = score_responses(
            responses, scorers,
            store=store, shard=shard, allow_missing=allow_missing, progress=not quiet, **options,
        )  # fmt: skip
    except KeyboardInterrupt:
        kept = (
            f"the scores so far are in {store}: run the same again to go on" if store else "use --store to go on later"
        )
        typer.echo(f"rmlab: interrupted; {kept}", err=True)
        raise typer.Exit(130) from None
    _write(scores, out, file_format)


@app.command(no_args_is_help=True)
def merge(
    folders: Annotated[list[Path], typer.Argument(help="Stores to copy from.")],
    into: Annotated[Path, typer.Option(help="Store to copy into; made if it is not there.")],
) -> None:
    """Copy the scores of several stores (of shards, say) into one; prints what was added as CSV.

    \b
    Examples:
      rmlab merge scores-1 scores-2 scores-3 --into scores
      rmlab score rm-bench ./my-model --store scores -o scores.csv    # then forwards nothing
    """
    from rmlab.store import merge as merge_stores

    merge_stores(folders, into).to_csv(sys.stdout, index=False)


@app.command(no_args_is_help=True)
def doctor(
    model: Annotated[str, typer.Argument(help="Model id or folder.")],
    benchmark: Annotated[str, typer.Argument(help="The benchmark it is to score, or a file of pairs.")] = "mini",
    path: _Path = None,
    dtype: _Dtype = None,
    device: _Device = None,
    template: _Template = None,
    max_length: _MaxLength = None,
    truncate: _Truncate = None,
    head: _Head = None,
    weight: _Weight = None,
    revision: _Revision = None,
    budget: _Budget = None,
    trust_remote_code: _TrustRemoteCode = False,
    allow_pickle: _AllowPickle = False,
) -> None:
    """Examine a model before a long run: one line per check, the remedy below. Exit code 1 if a check fails.

    \b
    Examples:
      rmlab doctor ./my-model
      rmlab doctor Skywork/Skywork-Reward-V2-Qwen3-0.6B rm-bench --dtype bfloat16
    """
    from rmlab.doctor import doctor as examine

    options = _given(
        head=head, weights=_weights(weight), dtype=dtype, device=device, template=template, max_length=max_length,
        truncate=truncate, revision=revision, budget=budget, trust_remote_code=trust_remote_code or None,
        allow_pickle=allow_pickle or None,
    )  # fmt: skip
    checks = examine(model, _load(benchmark, path), **options)
    for row in checks.itertuples(index=False):
        typer.echo(f"{row.status:<5} {row.check:<11} {row.found}")
        if row.remedy:
            typer.echo(f"{'':17} -> {row.remedy}")
    if checks["status"].max() == "fail":
        raise typer.Exit(1)


@app.command(no_args_is_help=True)
def report(
    results: Annotated[list[str], typer.Argument(help="Folders, files or globs of scores and pairs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")] = Path("report.html"),
    texts: Annotated[
        list[str] | None,
        typer.Option(help="Benchmark (or file of pairs) whose texts the baselines are scored on; repeat."),
    ] = None,
    path: Annotated[Path | None, typer.Option(help="File or folder of --texts; else downloaded.")] = None,
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "Reward models",
) -> None:
    """Write one HTML file that opens offline: a leaderboard for each benchmark, with intervals, groups and figures.

    \b
    Examples:
      rmlab report scores/ -o report.html
      rmlab report scores.csv "results/*.json" --texts mini -o report.html
    """
    import matplotlib

    matplotlib.use("Agg")
    from rmlab.report import write_report

    if path is not None and len(texts or []) != 1:
        raise typer.BadParameter("give exactly one --texts with it", param_hint="--path")
    responses = _stacked([_load(name, path) for name in texts]) if texts else None
    written = write_report(results, out, responses=responses, title=title)
    typer.echo(f"{written} ({written.stat().st_size / 2**20:.1f} MiB)", err=True)


@app.command(no_args_is_help=True)
def explore(
    scores: Annotated[Path, typer.Argument(help="Score file, or a folder of them such as a store.")],
    responses: Annotated[Path | None, typer.Option(help="The benchmark's files; else loaded by name.")] = None,
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8866,
    host: Annotated[str, typer.Option(help="Address to listen on; this machine only unless changed.")] = "127.0.0.1",
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Serve the explorer as a page on this machine, behind a token; stop it with Ctrl+C.

    \b
    Examples:
      rmlab explore scores
      rmlab explore scores.csv --responses data/rm-bench --port 9000
    """
    from rmlab.explore import serve

    serve(scores, responses=responses, port=port, host=host, open_browser=open_browser)


def _stacked(frames: list[Any]) -> Any:
    import pandas as pd

    for frame in frames:
        frame.attrs = {}
    return pd.concat(frames, ignore_index=True)


def _load(benchmark: str, path: Path | None) -> Any:
    from rmlab.benchmarks import load, load_pairs
    from rmlab.records import SUFFIXES

    if path is None and (Path(benchmark).is_file() or Path(benchmark).suffix.lower() in SUFFIXES):
        return load_pairs(benchmark)
    return load(benchmark, path=path)


def _policies(models: list[str], reference: str | None, mode: str | None, options: dict[str, Any]) -> list[Any]:
    from rmlab.scorers.implicit import implicit_reward

    if "head" in options or "weights" in options:
        raise typer.BadParameter("policies have no reward head", param_hint="--head, --weight")
    return [implicit_reward(model, reference, mode=mode, **options) for model in models]


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _weights(given: list[str] | None) -> dict[str, float] | None:
    """label=0.5 label2=0.3 as a mapping."""
    if not given:
        return None
    weights = {}
    for text in given:
        label, _, number = text.rpartition("=")
        try:
            weights[label] = float(number)
        except ValueError:
            label = ""
        if not label:
            raise typer.BadParameter(
                f"{text!r}; write label=number, for example helpfulness=0.8", param_hint="--weight"
            )
    return weights


def _check_out(out: Path | None, file_format: str | None, models: int) -> None:
    """Whatever is wrong with the file to write is said before a long run, not after it."""
    from rmlab.score_files import check_target

    if out is not None:
        check_target(out, format=file_format, models=models)
        out.parent.mkdir(parents=True, exist_ok=True)
    elif file_format is not None:
        raise typer.BadParameter("needs a file to write: give --out", param_hint="--format")


def _write(scores: Any, out: Path | None, file_format: str | None) -> None:
    if out is None:
        scores.to_csv(sys.stdout, index=False)
        return
    from rmlab.score_files import write_scores

    written = write_scores(scores, out, format=file_format)
    typer.echo(f"{len(scores)} scores of {scores['model'].nunique()} models in {written}", err=True)


def _warn(message: Warning | str, *place: Any, **more: Any) -> None:
    """A warning on one line, without the place in our code that gave it."""
    typer.echo(f"rmlab: warning: {' '.join(str(message).split())}", err=True)


def _interval(table: Any) -> list[str]:
    return [f"{low:.2f} to {high:.2f}" for low, high in zip(table["low"], table["high"], strict=True)]
