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
    pad token, where transformers' classes read. BEFORE_FIRST_PAD: the token before the
    first pad token, where older ones read. MEAN: the mean over all tokens.
    PROMPT_END: the last token before the answer. GATE: the token that closes the user's
    turn before the answer's header, such as `<|eot_id|>`. STEPS: the mark behind each
    step of the answer. SOURCE, CANDIDATE_1,
    CANDIDATE_2: the markers of a text that compares two answers.
    """

    LAST = "last"
    BEFORE_PAD = "before pad"
    BEFORE_FIRST_PAD = "before first pad"
    FIRST = "first"
    MEAN = "mean"
    PROMPT_END = "prompt end"
    GATE = "gate"
    STEPS = "every step"
    SOURCE = "source"
    CANDIDATE_1 = "first candidate"
    CANDIDATE_2 = "second candidate"


# Where a text ends for a head.
ENDS = (Read.LAST, Read.BEFORE_PAD, Read.BEFORE_FIRST_PAD)
# The order in which the texts of comparisons write their markers.
MARKERS = (Read.SOURCE, Read.CANDIDATE_1, Read.CANDIDATE_2)


def read_positions(
    read: Read, encoder: "TextEncoder", encoded: "Encoded", text: int
) -> Ints:
    """Return the positions of a text that a read needs; the states of several are
    averaged.
    """
    if read is Read.MEAN:
        return np.arange(len(encoded.ids[text]))
    if read is Read.STEPS:
        assert encoded.reads is not None
        return encoded.reads[text]
    if read is Read.FIRST:
        position = 0
    elif read is Read.PROMPT_END:
        position = int(encoded.prompt_end[text])
    elif read is Read.GATE:
        position = encoder.find_gate(encoded.ids[text], int(encoded.prompt_end[text]))
    elif read in MARKERS:
        markers = encoded.reads or []
        position = int(markers[text][MARKERS.index(read)])
    else:
        position = int(find_ends(read, encoded.ids[text], encoder.padding)[-1])
    return np.array([position], np.intp)


def find_ends(read: Read, ids: NDArray[np.int32], pad: int | None) -> Ints:
    """Return the position that one of ENDS reads, for a text that ends at each
    position.
    """
    positions = np.arange(len(ids))
    if pad is None or read is Read.LAST:
        return positions
    is_pad = ids == pad
    if read is Read.BEFORE_PAD:
        return np.maximum.accumulate(np.where(is_pad, 0, positions))
    # Before a pad token at the beginning these classes read the last token.
    first = int(np.argmax(is_pad))
    if first > 0:
        positions[first:] = first - 1
    return positions
