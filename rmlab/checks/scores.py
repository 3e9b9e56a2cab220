"""Checks of scores and margins: finite, the same alone and together, the same in float32, told apart."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import metrics
from rmlab.checks.findings import Finding, refusal
from rmlab.checks.texts import spread
from rmlab.scoring.run import apart
from rmlab.servers import Remote, examine
from rmlab.tables import KEY, DataError

if TYPE_CHECKING:
    from rmlab.scorers.classifier import Classifier

Floats = NDArray[np.float64]


class Sample(NamedTuple):
    """Rows of responses (or pairs) and the score (margin) of each: forwarded alone, and together as in a long run."""

    rows: pd.DataFrame
    alone: Floats
    together: Floats

    @property
    def unit(self) -> str:
        """What a row is."""
        return "comparisons" if "chosen_slot" in self.rows else "texts"

    def margins(self, scores: Floats) -> Floats:
        """Margins of the comparisons of a chosen with a rejected answer."""
        if self.unit == "comparisons":
            return scores
        frame = self.rows.assign(model="doctor", score=scores)
        frame = frame[frame.groupby(["benchmark", "domain", "id"])["label"].transform("nunique") == 2]
        return np.zeros(0) if frame.empty else metrics.pairs(frame)["margin"].to_numpy(np.float64)

    def flips(self, left: Floats, right: Floats) -> tuple[int, int, str]:
        """How many comparisons change their outcome, how many there are, and both for people."""
        first, second = self.margins(left), self.margins(right)
        n_flips, n = int((np.sign(first) != np.sign(second)).sum()), len(first)
        flips = f"{n_flips} of {n} comparisons flip" if n else "no prompt with both labels in the sample"
        return n_flips, n, f"on {len(left)} {self.unit}; {flips}"


def finite(sample: Sample) -> Finding:
    """No score is NaN or infinite."""
    bad = ~(np.isfinite(sample.alone) & np.isfinite(sample.together))
    if not bad.any():
        return Finding("nan", "pass", f"{len(bad)} of {len(bad)} scores are finite")
    first = sample.rows.iloc[int(bad.argmax())]
    key = [column for column in (*KEY[1:], "chosen_slot", "rejected_slot") if column in first]
    where = ", ".join(f"{column} {first[column]}" for column in key)
    remedy = "score with dtype='float32'; if it stays, the weights themselves hold NaN: download them again"
    return Finding("nan", "fail", f"{bad.sum()} of {len(bad)} scores are not finite, first: {where}", remedy)


def packing(sample: Sample, tolerance: float) -> Finding:
    """Each text alone gets the score that it gets among others; `tolerance` in standard deviations."""
    distance = apart(sample.alone, sample.together)
    _, _, flips = sample.flips(sample.alone, sample.together)
    detail = f"at most {distance:.1g} standard deviations apart {flips}"
    if distance <= tolerance:
        return Finding("alone", "pass", detail)
    remedy = "score with dtype='float32'" if tolerance > 1e-3 else "set budget= to the longest text's tokens"
    return Finding("alone", "fail" if distance > 10 * tolerance else "warn", detail, remedy)


def precision(sample: Sample, exact: Floats, dtype: str) -> Finding:
    """How far half precision is from float32, and how many comparisons it turns."""
    distance = apart(exact, sample.together)
    n_flips, n, flips = sample.flips(exact, sample.together)
    detail = f"{dtype} is at most {distance:.2g} standard deviations from float32 {flips}"
    if n_flips == 0 and distance <= 0.2:
        return Finding("dtype", "pass", detail)
    status = "fail" if n_flips > max(0.1 * n, 1) or not distance <= 1 else "warn"
    return Finding("dtype", status, detail, "score with dtype='float32', or report this noise with the results")


def saturation(sample: Sample, keys: Sequence[str]) -> Finding:
    """Different texts get different scores."""
    scores = pd.Series(sample.together).groupby(list(keys), sort=False).first()
    n_distinct, n = scores.nunique(), len(scores)
    n_tied = int((sample.margins(sample.together) == 0).sum())
    detail = f"{n_distinct} distinct scores for {n} distinct {sample.unit}, {n_tied} tied comparisons"
    if n_distinct == n:
        return Finding("saturation", "pass", detail)
    remedy = "score with dtype='float32'; read raw logits, never a sigmoid; count ties with the results"
    return Finding("saturation", "fail" if n_distinct <= n // 2 else "warn", detail, remedy)


def server_findings(
    remote: Remote, local: "Classifier | None", bounded: bool, *, responses: pd.DataFrame, sample: int
) -> Iterator[Finding]:
    """What the server does with known texts, and then with texts of `responses`."""
    findings = list(examine(remote, local, bounded))
    yield from findings
    if any(finding.status == "fail" for finding in findings):
        return
    check = "texts"
    try:
        prepared = remote.prepare(responses["prompt"].tolist(), responses["response"].tolist())
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
        values, _ = remote.ask_all(replace(prepared, texts=texts, lengths=prepared.lengths[rows]))
    except DataError as error:
        yield refusal(check, error)
        return
    rewards = values @ remote.mix
    answered = Sample(responses.iloc[rows].reset_index(drop=True), rewards, rewards)
    yield finite(answered)
    yield saturation(answered, [str(text) for text in texts])
