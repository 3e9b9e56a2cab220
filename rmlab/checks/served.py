"""Checks of a reward model behind a server."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from rmlab.checks import scores
from rmlab.checks.findings import Finding, refusal
from rmlab.checks.texts import spread
from rmlab.servers.connect import Trial
from rmlab.servers.connect import examine as examine_server
from rmlab.tables import DataError


def server_findings(trial: Trial, responses: pd.DataFrame, sample: int) -> Iterator[Finding]:
    """What the server does with known texts, and then with texts of `responses`."""
    findings = list(examine_server(trial))
    yield from findings
    if any(finding.status == "fail" for finding in findings):
        return
    check = "texts"
    try:
        prepared = trial.remote.prepare(responses["prompt"].tolist(), responses["response"].tolist())
        has_tokens = bool(prepared.lengths.any())
        lengths = np.asarray(prepared.lengths if has_tokens else responses["response"].str.len(), np.intp)
        cut = f"; {prepared.truncated} are cut" if prepared.truncated else ""
        detail = (
            f"{len(lengths)} texts, the longest has {lengths.max()} {'tokens' if has_tokens else 'characters'}{cut}"
        )
        yield Finding("texts", "warn" if cut else "pass", detail)
        check = "nan"
        rows = spread(lengths, prepared.groups, sample)
        texts = [prepared.texts[row] for row in rows]
        values, _ = trial.remote.ask_all(replace(prepared, texts=texts, keys=[prepared.keys[row] for row in rows]))
    except DataError as error:
        yield refusal(check, error)
        return
    rewards = values @ trial.remote.mix
    answered = scores.Sample(responses.iloc[rows].reset_index(drop=True), rewards, rewards)
    yield scores.finite(answered)
    yield scores.saturation(answered, np.asarray(prepared.keys)[rows].tolist())
