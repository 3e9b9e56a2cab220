"""Checks of a model before a long run: what makes scores wrong without an error, found
in seconds on a few texts.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from rmlab import scorers, tables
from rmlab.checks.judge_trial import examine_judge
from rmlab.checks.local_model import examine_model
from rmlab.checks.parity import parity, parity_items
from rmlab.checks.served import examine_server
from rmlab.findings import STATUS, Finding, findings_table, refusal
from rmlab.judges import Judge
from rmlab.scorers.local import LocalScorer
from rmlab.servers import Remote, remote
from rmlab.tables import DataError

__all__ = ["STATUS", "doctor", "parity", "parity_items"]

# Options of a model that say where its files are, and which may be read.
_FILE_OPTIONS = ("base", "revision", "allow_pickle", "trust_remote_code")


def doctor(
    scorer: str | Path | LocalScorer | Remote | Judge,
    responses: pd.DataFrame,
    *,
    sample: int = 24,
    **options: Any,
) -> pd.DataFrame:
    """Examine a model before it scores `responses`.

    All texts are tokenised; about `sample` texts, whole prompts from short to long, are
    scored: alone, together and, for a model in half precision, in float32.

    Parameters
    ----------
    scorer : str, Path or scorer
        A model id or folder (for `rmlab.classifier`), the address of a server
        ("http://...", for `rmlab.remote`), or what `rmlab.classifier`,
        `implicit_reward`, `pairwise`, `remote` or `judge` returned.
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

        A model on this machine: `adapter` (of one: its base, and whether its head was
        trained with it), `head` (its weights are in the checkpoint), `packs`
        (how texts go together), `tokenizer` (as its file says), `template`,
        `truncated`, `bos` (the beginning token stands once: twice is another input than
        in training), `read` (the token that the head reads, or the tokens of the answer
        of an implicit reward: the last is the same in all texts), `pad` (not the end
        token, which other programs would take for padding), `nan`, `alone` (texts alone
        come out as packed), `dtype` (noise against float32) and `saturation` (distinct
        scores, ties). A pairwise model: also `position` (winners that change with the
        order of the answers), and PairRM's `markers`. A judge, which is asked some
        questions twice: `answers`, `model`, `verdict` (can be read), `length` (not
        cut), `repeat` (the same verdict again), `spread` (of ratings), `position` and
        `cost` (of all responses). A server: the checks of `rmlab.remote`, then `texts`,
        `nan` and `saturation` on `responses`.

    Raises
    ------
    DataError
        If the model cannot be had. One that is there and that `rmlab.classifier`
        refuses is a failed row `head`.
    TypeError
        If the scorer has no tokens and weights to look at.
    """
    responses = tables.check_responses(responses)
    if responses.empty:
        remedy = "give the texts that are to be scored"
        raise DataError("responses: the table is empty", remedy)
    if sample < 1:
        raise ValueError(f"sample={sample}; allowed: 1 text or more")
    findings = _list_findings(scorer, responses, sample, options)
    return findings_table(findings).drop(columns="value")


def _list_findings(
    scorer: object, responses: pd.DataFrame, sample: int, options: Mapping[str, Any]
) -> Iterable[tuple[str, Finding]]:
    if isinstance(scorer, str) and scorer.startswith(("http://", "https://")):
        served = remote(scorer, **options, examine=False)
        return examine_server(served, responses, sample)
    if isinstance(scorer, str | Path):
        return _examine_named(scorer, responses, sample, options)

    if options:
        problem = f"options {sorted(options)} are for a model named by a string"
        raise DataError(problem, "give them to the scorer itself")
    if isinstance(scorer, LocalScorer):
        return examine_model(scorer, responses, sample)
    if isinstance(scorer, Remote):
        return examine_server(scorer, responses, sample)
    if isinstance(scorer, Judge):
        return examine_judge(scorer, responses, sample)
    allowed = "give a model id, a folder, a model of rmlab, or a judge"
    raise TypeError(f"scorer: {scorer!r:.80} is not allowed; {allowed}")


def _examine_named(
    model: str | Path, responses: pd.DataFrame, sample: int, options: Mapping[str, Any]
) -> Iterable[tuple[str, Finding]]:
    """The findings on a model on this machine or on the hub.

    A model that is not there raises; one that `rmlab.classifier` refuses is a failed
    row.
    """
    from rmlab.scorers.checkpoints.checkpoint import find

    file_options = {name: options[name] for name in _FILE_OPTIONS if name in options}
    _ = find(model, **file_options).config
    try:
        scorer = scorers.classifier(model, **options)
    except DataError as error:
        return [("head", refusal(error))]
    return examine_model(scorer, responses, sample)
