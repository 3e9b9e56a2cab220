"""Readouts: from a backbone's hidden states to scores.

This file loads torch; import it inside a function.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from rmlab.inference.memory import upload
from rmlab.metrics.steps import StepRule, combine_steps
from rmlab.scorers.base import Rows
from rmlab.scorers.reads import Read, read_positions
from rmlab.tables import DataError

if TYPE_CHECKING:
    from rmlab.inference.backbone import Backbone, Batch
    from rmlab.inference.encoding import Encoded
    from rmlab.scorers.encoder import TextEncoder
    from rmlab.scorers.models.vocabulary import Vocabulary

Ids = NDArray[np.int32]
Ints = NDArray[np.intp]
Floats = NDArray[np.float64]


class Places(NamedTuple):
    """Where some texts are read.

    `positions`: of each text, one read after the other. `counts`: how many positions
    each read has, (texts, reads). `targets`: the tokens that the positions predict,
    where the readout asks for their probability.
    """

    positions: list[Ints]
    counts: Ints
    targets: Sequence[Ids] = ()


AR = TypeVar("AR", bound="Readout | AnswerReadout")


class LoadedModel(NamedTuple, Generic[AR]):
    """A loaded model: what is forwarded, and what makes scores of its states."""

    backbone: "Backbone"
    readout: AR


@dataclass
class Readout:
    """A head, and where it looks.

    Parameters
    ----------
    head : callable
        From hidden states (texts, reads, hidden) in float32 to outputs (texts, labels).
    reads : tuple of Read
        Where the head looks.
    label_weights : array of float, optional
        The score is the sum of weight times label; the first label without weights.
    """

    head: Callable[[torch.Tensor], torch.Tensor]
    reads: tuple[Read, ...]
    label_weights: Floats | None = None

    def locate(self, encoder: "TextEncoder", encoded: "Encoded", texts: Ints) -> Places:
        """Return where these texts are read."""
        positions = []
        counts = np.empty((len(texts), len(self.reads)), np.intp)
        for row, text in enumerate(texts):
            by_read = [
                read_positions(read, encoder, encoded, text) for read in self.reads
            ]
            positions.append(np.concatenate(by_read))
            counts[row] = [len(read) for read in by_read]
        return Places(positions, counts)

    @torch.inference_mode()
    def read(self, batch: "Batch", places: Places) -> torch.Tensor:
        """Return the outputs for a batch of the located texts, still on the device."""
        return self.head(pool_states(batch, places.counts[batch.texts]))

    def score(self, outputs: Floats, places: Places, texts: Ints) -> Rows:
        """Return the scores of texts with these outputs; labels mix in float64."""
        if self.label_weights is None:
            return outputs[:, 0]
        return outputs @ self.label_weights


@dataclass
class StepReadout(Readout):
    """A head that is read behind each step of an answer.

    `combine`: the rule of `rmlab.metrics.combine_steps` that makes the steps' scores
    one.
    """

    combine: StepRule = "last"

    @torch.inference_mode()
    def read(self, batch: "Batch", places: Places) -> torch.Tensor:
        """Return the scores of all steps, one text's behind the other's, still on the
        device.
        """
        rows = {"rows": np.concatenate(batch.where)}
        states = batch.rows[upload(rows, batch.rows.device)["rows"]]
        return self.head(states[:, None])[:, 0]

    def score(self, outputs: Floats, places: Places, texts: Ints) -> Rows:
        """Return each text's score and its list of step scores."""
        ends = np.cumsum(places.counts[texts, 0])
        steps = [part.tolist() for part in np.split(outputs, ends[:-1])]
        rows = np.empty((len(texts), 2), object)
        rows[:, 0] = combine_steps(steps, self.combine)
        # A list of lists would become columns.
        for row, step_scores in zip(rows, steps, strict=True):
            row[1] = step_scores
        return rows


def pool_states(batch: "Batch", counts: Ints) -> torch.Tensor:
    """Return the mean of each read's positions: (texts, reads, hidden).

    `counts`: positions of each read of the batch's texts.
    """
    # embedding_bag averages stretches of different lengths in one kernel, without a
    # table filled up to the longest.
    lengths = counts.reshape(-1)
    indices = {
        "rows": np.concatenate(batch.where),
        "starts": np.cumsum(lengths) - lengths,
    }
    on_device = upload(indices, batch.rows.device)
    means = nn.functional.embedding_bag(
        on_device["rows"], batch.rows, on_device["starts"], mode="mean"
    )
    return means.view(*counts.shape, -1)


@dataclass
class AnswerReadout:
    """Log-probabilities of an answer's tokens, made one number.

    Parameters
    ----------
    vocabulary : Vocabulary
        The language model's output layer.
    mode : str
        "sum", "mean", or "norm" (minus the Euclidean norm).
    """

    vocabulary: "Vocabulary"
    mode: str

    def locate(self, encoder: "TextEncoder", encoded: "Encoded", texts: Ints) -> Places:
        """Return the positions whose states predict the answers, and these tokens."""
        return locate_answers(encoded, texts)

    @torch.inference_mode()
    def read(self, batch: "Batch", places: Places) -> torch.Tensor:
        """Return log-probabilities of the answers' tokens, one text's after the
        other's, still on the device.
        """
        tokens = np.concatenate([places.targets[text] for text in batch.texts])
        indices = {"rows": np.concatenate(batch.where), "tokens": tokens}
        on_device = upload(indices, batch.rows.device)
        rows = batch.rows[on_device["rows"]]
        return self.vocabulary.log_probs(rows, on_device["tokens"])

    def score(self, outputs: Floats, places: Places, texts: Ints) -> Floats:
        """Return each text's log-probabilities made one number."""
        counts = places.counts[texts, 0]
        values = outputs**2 if self.mode == "norm" else outputs
        sums = np.add.reduceat(values, np.cumsum(counts) - counts)
        return summarize(sums, counts, self.mode)


def locate_answers(encoded: "Encoded", texts: Ints) -> Places:
    """Return the positions whose states predict the answers' tokens, and the tokens.

    Raises DataError for an answer that nothing stands before.
    """
    positions = []
    targets = []
    for text in texts:
        ids = encoded.ids[text]
        start = int(encoded.response_start[text])
        if start < 1:
            problem = f"text {text}: nothing predicts the first token of its response"
            raise DataError(problem, "add a prompt")
        positions.append(np.arange(start - 1, len(ids) - 1))
        targets.append(ids[start:])
    counts = np.array([len(ids) for ids in targets], np.intp)
    return Places(positions, counts[:, None], targets)


def summarize(sums: Floats, counts: Ints, mode: str) -> Floats:
    """Return rewards of answers with these sums of log-probabilities (for "norm": of
    their squares) over `counts` tokens.
    """
    if mode == "norm":
        return -np.sqrt(sums)
    if mode == "mean":
        return sums / counts
    return sums
