"""A language model's output layer: logits and log-probabilities of given tokens."""

from typing import TYPE_CHECKING

from rmlab.scorers.reads import Read

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

_CHUNK_BYTES = {"cpu": 1 << 26, "cuda": 1 << 29}


class Vocabulary:
    """The output layer of a causal language model, apart from its backbone.

    Logits are its class's own, and float32 whatever the weights: in bfloat16 those of
    close answers would be the same. Raises DataError for a class that cannot be taken
    apart.
    """

    def __init__(self, model: "PreTrainedModel", name: str) -> None:
        from rmlab.scorers.models.class_head import ClassHead

        self.head = ClassHead(model, name)
        self.head.require_class_logits(Read.LAST)
        # The number of tokens.
        self.size = self.head.class_logits.shape[1]

    def logits(self, rows: "Tensor", tokens: list[int]) -> "Tensor":
        """Logits of `tokens` after each hidden state, (rows, tokens) float32."""
        return self.head(rows[:, None])[:, 0, tokens]

    def log_probs(self, rows: "Tensor", targets: "Tensor") -> "Tensor":
        """Log-probability of `targets[i]` after hidden state `rows[i]`, (n,) float32.

        As many rows have logits at once as fill 64 MiB (512 MiB on a GPU).
        """
        import torch
        from torch.nn.functional import cross_entropy

        n_bytes = _CHUNK_BYTES.get(rows.device.type, _CHUNK_BYTES["cpu"])
        chunk = max(1, n_bytes // (4 * self.size))
        parts = [rows.new_empty(0)]
        with torch.inference_mode():
            for start in range(0, len(rows), chunk):
                part = slice(start, start + chunk)
                logits = self.head(rows[part, None])[:, 0]
                of_part = targets[part].to(logits.device)
                losses = cross_entropy(logits, of_part, reduction="none")
                parts.append(-losses.to(rows.device))
        return torch.cat(parts)
