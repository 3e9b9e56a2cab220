"""Checks of scores and margins: finite, the same alone and together, the same in float32, told apart."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import metrics
from rmlab.checks.findings import Row
from rmlab.scorers.protocol import Inspectable, InspectablePairwise, LocalModel
from rmlab.scoring.self_check import apart, tolerance
from rmlab.tables import KEY

__all__ = ["Sample", "examine", "finite", "half", "packing", "precision", "saturation"]

Floats = NDArray[np.float64]
S = TypeVar("S", Inspectable[Any], InspectablePairwise[Any])


class Sample(NamedTuple):
    """Rows of responses (or pairs) and the score (margin) of each: forwarded alone, and together as in a long run."""

    rows: pd.DataFrame
    alone: Floats
    together: Floats

    @property
    def unit(self) -> str:
        """What a row is."""
        return "comparisons" if "chosen_slot" in self.rows else "texts"

    def flips(self, left: Floats, right: Floats) -> tuple[int, int]:
        """How many comparisons of a chosen with a rejected answer change their outcome, and how many there are."""
        first, second = (_margins(self.rows, values) for values in (left, right))
        return int((np.sign(first) != np.sign(second)).sum()), len(first)


def examine(
    scorer: S, sample: Sample, keys: Sequence[str], alone: Callable[[S], Floats], *further: Callable[[], Row]
) -> Iterator[Row]:
    """The checks of this file; `further` ones come before the last.

    `keys`: one content key per row of the sample. `alone`: the rows' scores by another scorer, each text by itself.
    Scores that are not finite make the other checks impossible: these are left out then.
    """
    first = finite(sample)
    yield first
    if first.status == "fail":
        return
    yield packing(sample, tolerance(_dtype(scorer)))
    yield half(scorer, sample, alone)
    for check in further:
        yield check()
    yield saturation(sample, keys)


def finite(sample: Sample) -> Row:
    """No score is NaN or infinite."""
    bad = ~(np.isfinite(sample.alone) & np.isfinite(sample.together))
    if not bad.any():
        return Row("nan", "pass", f"{len(bad)} of {len(bad)} scores are finite")
    first = sample.rows.iloc[int(bad.argmax())]
    named = [column for column in (*KEY[1:], "chosen_slot", "rejected_slot") if column in first]
    where = ", ".join(f"{column} {first[column]}" for column in named)
    remedy = "score with dtype='float32'; if it stays, the weights themselves hold NaN: download them again"
    return Row("nan", "fail", f"{bad.sum()} of {len(bad)} scores are not finite, first: {where}", remedy)


def packing(sample: Sample, tolerance: float) -> Row:
    """Each text alone gets the score that it gets among others; `tolerance` in standard deviations."""
    far = apart(sample.alone, sample.together)
    flipped, n = sample.flips(sample.alone, sample.together)
    found = f"at most {far:.1g} standard deviations apart on {len(sample.alone)} {sample.unit}; {_flips(flipped, n)}"
    if far <= tolerance:
        return Row("alone", "pass", found)
    remedy = "score with dtype='float32'" if tolerance > 1e-3 else "set budget= to the longest text's tokens"
    return Row("alone", "fail" if far > 10 * tolerance else "warn", found, remedy)


def precision(sample: Sample, exact: Floats, dtype: str) -> Row:
    """How far half precision is from float32, and how many comparisons it turns."""
    far = apart(exact, sample.together)
    flipped, n = sample.flips(exact, sample.together)
    where = f"on {len(exact)} {sample.unit}; {_flips(flipped, n)}"
    found = f"{dtype} is at most {far:.2g} standard deviations from float32 {where}"
    if flipped == 0 and far <= 0.2:
        return Row("dtype", "pass", found)
    status = "fail" if flipped > max(0.1 * n, 1) or not far <= 1 else "warn"
    return Row("dtype", status, found, "score with dtype='float32', or report this noise with the results")


def half(scorer: S, sample: Sample, alone: Callable[[S], Floats]) -> Row:
    """The check of precision for a scorer in half precision, where a float32 copy fits; `alone` as in `examine`."""
    from rmlab.scorers.models.backbone import fits

    dtype = _dtype(scorer)
    if dtype == "float32":
        return Row("dtype", "pass", "float32: there is nothing more exact to compare with")
    exact = scorer.in_float32()
    if not all(fits(checkpoint, exact.device, exact.dtype) for checkpoint in exact.checkpoints):
        found = f"{dtype} not compared: a float32 copy does not fit on {exact.device} beside it"
        return Row("dtype", "warn", found, "compare on a machine with more memory, or on a smaller sister model")
    return precision(sample, alone(exact), dtype)


def saturation(sample: Sample, keys: Sequence[str]) -> Row:
    """Different texts get different scores."""
    first = pd.Series(sample.together).groupby(list(keys), sort=False).first()
    distinct, n = first.nunique(), len(first)
    tied = int((_margins(sample.rows, sample.together) == 0).sum())
    found = f"{distinct} distinct scores for {n} distinct {sample.unit}, {tied} tied comparisons"
    if distinct == n:
        return Row("saturation", "pass", found)
    remedy = "score with dtype='float32'; read raw logits, never a sigmoid; count ties with the results"
    return Row("saturation", "fail" if distinct <= n // 2 else "warn", found, remedy)


def _dtype(scorer: LocalModel) -> str:
    # The provenance says it too, but has all weights read for its hash.
    return str(scorer.dtype).removeprefix("torch.")


def _margins(rows: pd.DataFrame, scores: Floats) -> Floats:
    if "chosen_slot" in rows:
        return scores
    frame = rows.assign(model="doctor", score=scores)
    both = frame.groupby(["benchmark", "domain", "id"])["label"].transform("nunique") == 2
    if not both.any():
        return np.zeros(0)
    margins: Floats = metrics.pairs(frame[both])["margin"].to_numpy(np.float64)
    return margins


def _flips(flipped: int, n: int) -> str:
    return f"{flipped} of {n} comparisons flip" if n else "no prompt with both labels in the sample"
