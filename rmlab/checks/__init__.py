"""Checks of a model before a long run: what makes scores wrong without an error, found
in seconds on a few texts.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from rmlab import scorers, tables
from rmlab.checks.judges import examine_judge
from rmlab.checks.models import examine_model
from rmlab.checks.parity import parity, parity_items
from rmlab.checks.sampled_scores import (
    Sample,
    check_finite,
    check_saturation,
    spread,
)
from rmlab.findings import STATUS, Finding, findings_table, grade, refusal
from rmlab.judges import LLMJudge
from rmlab.scorers.local import LocalScorer
from rmlab.servers import Remote, connect
from rmlab.servers.examination import examine
from rmlab.tables import DataError

__all__ = ["STATUS", "doctor", "parity", "parity_items"]


def doctor(
    scorer: str | Path | LocalScorer | Remote | LLMJudge,
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

        A model on this machine: `head` (its weights are in the checkpoint), `packs`
        (how texts go together), `tokenizer` (as its file says), `template`,
        `truncated`, `bos` (once), `read` (the token that the head reads), `pad` (not
        the end token), `nan`, `alone` (texts alone come out as packed), `dtype` (noise
        against float32) and `saturation` (distinct scores, ties). A pairwise model:
        also `position` (winners that change with the order of the answers), and
        PairRM's `markers`. A judge, which is asked some questions twice: `answers`,
        `model`, `verdict` (can be read), `length` (not cut), `repeat` (the same verdict
        again), `spread` (of ratings), `position` and `cost` (of all responses). A
        server: the checks of `rmlab.remote`, then `texts`, `nan` and `saturation` on
        `responses`.

    Raises
    ------
    DataError
        If the model cannot be had.
    TypeError
        If the scorer has no tokens and weights to look at.
    """
    responses = tables.check_responses(responses)
    if responses.empty:
        raise DataError(
            "responses: the table is empty; give the texts that are to be scored"
        )
    if sample < 1:
        raise ValueError(f"sample={sample}; allowed: 1 text or more")
    return findings_table(_list_findings(scorer, responses, sample, options)).drop(
        columns="value"
    )


def _list_findings(
    scorer: object, responses: pd.DataFrame, sample: int, options: Mapping[str, Any]
) -> Iterable[tuple[str, Finding]]:
    if isinstance(scorer, str) and scorer.startswith(("http://", "https://")):
        return _examine_server(
            *connect(scorer, **options), responses=responses, size=sample
        )
    if isinstance(scorer, str | Path):
        from rmlab.scorers.checkpoints.checkpoint import find

        # A model that is not there raises; one whose weights are incomplete is a failed
        # row.
        places = ("base", "revision", "allow_pickle", "trust_remote_code")
        _ = find(
            scorer, **{name: options[name] for name in places if name in options}
        ).config
        try:
            scorer, options = scorers.classifier(scorer, **options), {}
        except DataError as error:
            if not str(error).startswith("model="):
                raise
            return [("head", refusal(error))]
    if options:
        raise DataError(
            f"options {sorted(options)} are for a model named by a string; give them to the scorer itself"
        )
    if isinstance(scorer, LocalScorer):
        return examine_model(scorer, responses, sample)
    if isinstance(scorer, Remote):
        return _examine_server(scorer, None, True, responses=responses, size=sample)
    if isinstance(scorer, LLMJudge):
        return examine_judge(scorer, responses, sample)
    raise TypeError(
        f"scorer: {scorer!r:.80} is not allowed; give a model id, a folder, a model of rmlab, or a judge"
    )


def _examine_server(
    remote: Remote,
    local: scorers.Classifier | None,
    bounded: bool,
    *,
    responses: pd.DataFrame,
    size: int,
) -> Iterator[tuple[str, Finding]]:
    """What the server does with known texts, and then with texts of `responses`."""
    findings = [*examine(remote, local, bounded)]
    yield from findings
    if any(finding.status == "fail" for _, finding in findings):
        return
    try:
        prepared = remote.prepare(
            responses["prompt"].tolist(), responses["response"].tolist()
        )
        rows = spread(responses["response"].str.len().to_numpy(), prepared.groups, size)
        texts = [prepared.texts[row] for row in rows]
        values, _ = remote.ask_all(
            replace(prepared, texts=texts, lengths=prepared.lengths[rows])
        )
    except DataError as error:
        yield "texts", refusal(error)
        return
    longest = responses["response"].str.len().max()
    detail = f"{len(responses)} texts, {prepared.truncated} are cut; the longest has {longest} characters"
    yield "texts", Finding(grade(not prepared.truncated, True), detail)
    rewards = values @ remote.mix
    sample = Sample(responses.iloc[rows].reset_index(drop=True), rewards, rewards)
    yield "nan", check_finite(sample)
    yield "saturation", check_saturation(sample, [str(text) for text in texts])
