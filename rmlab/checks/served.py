"""The doctor of a served model: known texts first, then some of those to score."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from rmlab.checks.sampled_scores import (
    Sample,
    check_finite,
    check_saturation,
    spread,
)
from rmlab.findings import Finding, grade, refusal
from rmlab.servers import Remote
from rmlab.tables import DataError


def examine_server(
    remote: Remote, responses: pd.DataFrame, size: int
) -> Iterator[tuple[str, Finding]]:
    """Yield the checks of `rmlab.remote`, then those of about `size` responses."""
    is_accepted = True
    for name, finding in remote.examine():
        yield name, finding
        is_accepted = is_accepted and finding.status != "fail"
    if not is_accepted:
        return

    prompts = responses["prompt"].tolist()
    lengths = responses["response"].str.len()
    _, groups = np.unique([repr(prompt) for prompt in prompts], return_inverse=True)
    try:
        prepared = remote.writer.write(prompts, responses["response"].tolist())
        rows = spread(lengths.to_numpy(), groups, size)
        texts = [prepared.texts[row] for row in rows]
        sampled = replace(prepared, texts=texts, lengths=prepared.lengths[rows])
        values = np.array(remote.ask_all(sampled).values)
    except DataError as error:
        yield "texts", refusal(error)
        return

    cut = f"{len(responses)} texts, {prepared.truncated} are cut"
    detail = f"{cut}; the longest has {lengths.max()} characters"
    yield "texts", Finding(grade(not prepared.truncated, True), detail)

    rewards = values @ remote.mix
    sample_rows = responses.iloc[rows].reset_index(drop=True)
    sample = Sample(sample_rows, rewards, rewards)
    yield "nan", check_finite(sample)
    yield "saturation", check_saturation(sample, [str(text) for text in texts])
