"""Published models as files: finding them, reading weights, code and tokenizers, and refusing what cannot be whole."""

from rmlab.scorers.checkpoints.checkpoint import Checkpoint, find

__all__ = ["Checkpoint", "find"]
