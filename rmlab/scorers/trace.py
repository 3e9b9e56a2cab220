"""The reward after every token of an answer, in one forward pass: a head read at every position, or a growing sum."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.forward import Batch, hidden
from rmlab.inference.passes import alone
from rmlab.inference.template import decode
from rmlab.scorers.base import Prompt
from rmlab.scorers.classifier import Classifier
from rmlab.scorers.implicit import ImplicitReward

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def trace_rewards(scorer: object, prompt: Prompt, response: str) -> tuple[list[str], NDArray[np.float64]] | None:
    """Pieces of the text from the answer's first token to the end, and the reward read at each, the last one the score.

    The pieces put together are the answer and what the template writes behind it; a token that holds a part of a
    character has an empty piece, and the token that completes it has the character. None for a scorer that cannot be
    read in this way: any but a `classifier` of a causal model, where a position sees nothing but the tokens up to it,
    and an `implicit_reward`, which is made of the tokens' log-probabilities.
    """
    if isinstance(scorer, ImplicitReward):
        ids, rewards = scorer.token_rewards(scorer.prepare([prompt], [response]), 0)
        return _pieces(scorer.tokenizer, ids.tolist()), rewards
    if not isinstance(scorer, Classifier) or "mean" in scorer.parts[2] or not _is_causal(scorer.backbone):
        return None
    prepared = scorer.prepare([prompt], [response])
    (ids,), (reads,) = scorer.places(prepared, np.arange(1))
    start, n = int(prepared.response_start[0]), len(ids)
    batch = next(hidden(scorer.backbone, [ids], [np.arange(n)], groups=[0], budget=scorer.budget))
    # Where the head looks when the text ends at a token: there, and at what it reads of the prompt.
    positions = np.tile(reads, (n - start, 1))
    positions[:, [look == "last" for look in scorer.parts[2]]] = np.arange(start, n)[:, None]
    where = [*batch.where[0][positions]]
    rewards = scorer.read_head(Batch(np.zeros(n - start, np.intp), batch.rows, where))
    return _pieces(scorer.tokenizer, ids[start:].tolist()), rewards


def _is_causal(backbone: "PreTrainedModel") -> bool:
    """Whether a position sees only what stands before it; tried on eight tokens."""
    import torch

    size = int(backbone.config.get_text_config().vocab_size)
    ids = (size // 2 + np.arange(8, dtype=np.int32)) % size
    texts = ids, np.append(ids[:-1], ids[0])
    states, other_states = (alone(backbone, text, np.array([0, 3])) for text in texts)
    return bool(torch.allclose(states, other_states, atol=1e-5))


def _pieces(tokenizer: "PreTrainedTokenizerBase", ids: list[int]) -> list[str]:
    """Text of each token; the bytes of one character that several tokens share go to the last of them."""
    pieces: list[str] = []
    pending: list[int] = []
    for token in ids:
        pending.append(token)
        text = decode(tokenizer, pending, clean_up_tokenization_spaces=False)
        # A character has four bytes at most; bytes that never make one must not hold up the rest of the text.
        is_complete = not text.endswith("�") or len(pending) >= 8
        pieces.append(text if is_complete else "")
        pending = [] if is_complete else pending
    return pieces
