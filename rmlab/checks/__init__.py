"""Checks of a model before a long run: what makes scores wrong without an error, found
in seconds on a few texts.
"""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from rmlab import baselines, records, scorers, tables
from rmlab.checks.parity import parity
from rmlab.findings import Finding, findings_table, refusal
from rmlab.scorers.base import PlainScorer, Scorer, as_pair_scorer, as_scorer
from rmlab.servers import remote
from rmlab.tables import DataError

__all__ = ["doctor", "parity"]

# Options of a model that say where its files are, and which may be read.
_FILE_OPTIONS = ("base", "revision", "allow_pickle", "trust_remote_code")


def doctor(
    scorer: "str | Path | PlainScorer | Scorer",
    responses: pd.DataFrame,
    *,
    sample: int = 24,
    **options: Any,
) -> pd.DataFrame:
    """Examine a model before it scores `responses`.

    Every scorer has its own checks (`rmlab.scorers.Scorer.checks`). About `sample`
    texts, whole prompts from short to long, are scored: together, alone and, for a
    model in half precision, in float32.

    Parameters
    ----------
    scorer : str, Path or scorer
        A model id or folder (for `rmlab.classifier`), the name of a baseline, the
        address of a server ("http://...", for `rmlab.remote`), or a scorer: what
        `rmlab.classifier`, `implicit_reward`, `pairwise`, `remote` or `judge` returned,
        or a function.
    responses : DataFrame
        The texts that are to be scored.
    sample : int
        About how many texts (comparisons, answers) are scored.
    **options
        Options of the model that a string names.

    Returns
    -------
    DataFrame
        One row per check, with columns check, status, found, remedy. `status` is an
        ordered categorical, pass < warn < fail, so that `.max()` sums it up. Checks
        that a failed one makes impossible are left out.

        `published`: the model's row in the table of published models, where it has one
        (what to call, with which options, and what is special about it). Every scorer:
        `nan`, `alone` (texts alone come out as together), `position` (of
        comparisons: winners that change with the order of the answers) and `saturation`
        (distinct scores, ties). A model on this machine also: `head` (its weights are
        in the checkpoint), `template`, `truncated`, `bos` (the BOS token stands
        once: twice is another input than in training), `read` (the token that the head
        reads, or the tokens of the answer of an implicit reward: the last is the same
        in all texts), `pad` (not the EOS token, which other programs would take for
        padding), and `dtype` (noise against float32). A server also: the checks of
        `rmlab.remote`, then `texts`. A judge, which is asked some questions twice:
        `answers`, `verdict` (can be read), `length` (not cut), `truncated` (questions
        read to their end), `repeat` (the same verdict again), `spread` (of ratings) and
        `position`.

    Raises
    ------
    DataError
        If the model cannot be had. One that is there and that `rmlab.classifier`
        refuses is a failed row `head`.
    TypeError
        If the scorer is none.

    Examples
    --------
    >>> import rmlab
    >>> def brevity(prompts, responses):
    ...     return [-len(response) for response in responses]
    >>> rmlab.doctor(brevity, rmlab.load("mini"))[["check", "status"]]
            check status
    0         nan   pass
    1  saturation   warn
    """
    responses = tables.check_responses(responses)
    if responses.empty:
        remedy = "give the texts that are to be scored"
        raise DataError("responses: the table is empty", remedy)
    if sample < 1:
        raise ValueError(f"sample={sample}; allowed: 1 text or more")
    try:
        opened = _open(scorer, options)
    except _RefusedModel as refused:
        findings = [("head", refusal(refused.error))]
    else:
        findings = list(opened.checks(responses, sample))
    name = getattr(scorer, "name", str(scorer))
    published = _describe_published(str(name))
    if published:
        findings.insert(0, ("published", Finding("pass", published)))
    return findings_table(findings).drop(columns="value")


def _describe_published(name: str) -> str:
    """The row of a model in the table of published models; empty where it has none."""
    short_name = Path(name).name.lower()
    with records.shipped("models.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if Path(row["model"]).name.lower() == short_name:
                call = f"rmlab.{row['call']}(model, {row['options']})"
                if row["call"] == "refused":
                    call = "not scored"
                points = [row["head"], row["notes"]]
                details = "; ".join(filter(None, points))
                return f"{row['model']}: {call.replace(', )', ')')}; {details}"
    return ""


class _RefusedModel(Exception):
    """A model that is there, and that `rmlab.classifier` refuses."""

    def __init__(self, error: DataError) -> None:
        super().__init__(error)
        self.error = error


def _open(
    scorer: str | Path | PlainScorer | Scorer, options: Mapping[str, Any]
) -> Scorer:
    """The scorer that a string names, or the scorer itself."""
    if isinstance(scorer, str) and scorer.startswith(("http://", "https://")):
        return remote(scorer, **options, examine=False)
    if isinstance(scorer, str) and scorer in baselines.ALL:
        scorer = baselines.ALL[scorer]
    if isinstance(scorer, str | Path):
        return _open_model(scorer, options)
    if options:
        problem = f"options {sorted(options)} are for a model named by a string"
        raise DataError(problem, "give them to the scorer itself")
    if hasattr(scorer, "prefer"):
        return as_pair_scorer(scorer)
    return as_scorer(scorer)


def _open_model(model: str | Path, options: Mapping[str, Any]) -> Scorer:
    """A reward model on this machine or on the hub."""
    from rmlab.scorers.checkpoints.checkpoint import find

    file_options = {name: options[name] for name in _FILE_OPTIONS if name in options}
    _ = find(model, **file_options).config
    try:
        return scorers.classifier(model, **options)
    except DataError as error:
        raise _RefusedModel(error) from error
