"""The plain types that scorers take and give: prompts, options, what a judge says, where scores come from."""

from typing import NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

__all__ = ["SILENT", "EncodeOptions", "Judged", "Prompt", "Provenance", "RunOptions"]

Floats = NDArray[np.float64]

Prompt = str | list[dict[str, str]]
"""A question, or the messages before the answer: a list of {"role": ..., "content": ...}."""

Provenance = dict[str, object]
"""Plain values that JSON can hold: what scored the texts."""


class EncodeOptions(TypedDict, total=False):
    """How texts become tokens; the keywords of `rmlab.inference.template.encode`."""

    template: str | None
    eos: bool | None
    max_length: int | None
    truncate: str | None
    convention: str | None


class RunOptions(TypedDict, total=False):
    """How tokens are forwarded; none of these changes a score."""

    budget: int | None
    chunk: int | None
    together: bool | None


class Judged(NamedTuple):
    """What a judge says of some items. `values`: one array per item, NaN where it said nothing that can be read.

    Of pairs the one number is above 0 where the first answer is better, 0 for a tie, below 0 otherwise; of single
    answers it is the rating; of lists there is one number per answer. `verdict`: one word per item; those in `SILENT`
    say why there is no number. `columns`: further columns, a number per item. `about`: counts for the provenance.
    """

    values: list[Floats]
    verdict: list[str]
    columns: dict[str, Floats]
    about: Provenance


SILENT = ("unparsable", "failed")
"""Verdicts of a judge that answered nothing readable, and of one that did not answer."""
