"""Where a head looks in a text: the table of reads, and the positions of each."""

from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from rmlab.inference.encoding import Encoded
    from rmlab.scorers.encoder import TextEncoder

Ints = NDArray[np.intp]


class Read(Enum):
    """A place of a text whose hidden state a head gets.

    LAST and FIRST: the token of the text. BEFORE_PAD: the last token that is not the
    pad token, where transformers' classes read. MEAN: the mean over all tokens.
    PROMPT_END: the last token before the answer. GATE: the token that closes the user's
    turn before the answer's header, such as `<|eot_id|>`. SOURCE, CANDIDATE_1,
    CANDIDATE_2: the markers of a text that compares two answers.
    """

    LAST = "last"
    BEFORE_PAD = "before pad"
    FIRST = "first"
    MEAN = "mean"
    PROMPT_END = "prompt end"
    GATE = "gate"
    SOURCE = "source"
    CANDIDATE_1 = "first candidate"
    CANDIDATE_2 = "second candidate"


# The order in which the texts of comparisons write their markers.
MARKERS = (Read.SOURCE, Read.CANDIDATE_1, Read.CANDIDATE_2)


def read_positions(
    read: Read, encoder: "TextEncoder", encoded: "Encoded", text: int
) -> Ints:
    """Return the positions of a text that a read needs; the states of several are
    averaged.
    """
    n_tokens = len(encoded.ids[text])
    if read is Read.MEAN:
        return np.arange(n_tokens)
    if read is Read.FIRST:
        position = 0
    elif read is Read.PROMPT_END:
        position = int(encoded.prompt_end[text])
    elif read is Read.GATE:
        position = encoder.find_gate(encoded.ids[text], int(encoded.prompt_end[text]))
    elif read in MARKERS:
        markers = encoded.reads or []
        position = int(markers[text][MARKERS.index(read)])
    elif read is Read.BEFORE_PAD:
        position = int(last_before_pad(encoded.ids[text], encoder.padding)[-1])
    else:
        position = n_tokens - 1
    return np.array([position], np.intp)


def last_before_pad(ids: NDArray[np.int32], pad: int | None) -> Ints:
    """Of each position, the last one up to it whose token is not the pad token."""
    positions = np.arange(len(ids))
    if pad is None:
        return positions
    return np.maximum.accumulate(np.where(ids == pad, 0, positions))
