"""The reward after every token of an answer, in one forward pass: a head read at every position, or a growing sum."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from rmlab.scorers.base import Prompt
from rmlab.scorers.classifier import Classifier
from rmlab.scorers.implicit import ImplicitReward

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["Trace", "trace"]

_is_causal: "WeakKeyDictionary[PreTrainedModel, bool]" = WeakKeyDictionary()  # backbone: is it causal?


class Trace(NamedTuple):
    """Pieces of the text from the answer's first token to the end, and the reward read at each.

    `pieces` put together are the answer and what the template writes behind it; a token that holds a part of a
    character has an empty piece, and the token that completes it has the character.
    """

    pieces: list[str]
    rewards: NDArray[np.float64]


def trace(scorer: object, prompt: Prompt, response: str) -> Trace | None:
    """Rewards after every token, the last one the score; None for a scorer that cannot be read in this way.

    That is any but a `classifier` of a causal model, where a position sees nothing but the tokens up to it,
    and an `implicit_reward`, which is made of the tokens' log-probabilities.
    """
    if isinstance(scorer, ImplicitReward):
        ids, rewards = scorer.token_rewards(scorer.prepare([prompt], [response]), 0)
        return Trace(_pieces(scorer.tokenizer, ids.tolist()), rewards)
    if not isinstance(scorer, Classifier) or not _is_causal_model(scorer.backbone):
        return None
    from rmlab.inference.forward import Batch, hidden

    prepared = scorer.prepare([prompt], [response])
    (ids,), (reads,) = scorer.places(prepared, np.arange(1))
    start = int(prepared.response_start[0])
    last = len(ids) - 1
    looks = scorer.looks
    fixed = dict(zip(looks, reads.tolist(), strict=True)) if "mean" not in looks else {}
    ends = np.arange(start, last + 1)
    batch = next(hidden(scorer.backbone, [ids], [np.arange(last + 1)], groups=[0], budget=scorer.budget))
    rows = batch.where[0]
    where = [rows[_positions(looks, fixed, int(end))] for end in ends]
    rewards = scorer.read_head(Batch(np.zeros(len(ends), np.intp), batch.rows, where))
    return Trace(_pieces(scorer.tokenizer, [int(token) for token in ids[start:]]), rewards)


def _is_causal_model(backbone: "PreTrainedModel") -> bool:
    """Whether a position sees only what stands before it; tried once per model on eight tokens."""
    import torch

    from rmlab.inference.passes import alone

    if backbone not in _is_causal:
        size = int(backbone.config.get_text_config().vocab_size)
        ids = (size // 2 + np.arange(8, dtype=np.int32)) % size
        other = np.append(ids[:-1], ids[0])
        states, other_states = (alone(backbone, text, np.array([0, 3])) for text in (ids, other))
        _is_causal[backbone] = bool(torch.allclose(states, other_states, atol=1e-5))
    return _is_causal[backbone]


def _positions(looks: tuple[str, ...], fixed: Mapping[str, int], end: int) -> NDArray[np.intp]:
    """Where the head looks when the text ends at `end`."""
    if "mean" in looks:
        return np.arange(end + 1)
    return np.array([end if look == "last" else int(fixed[look]) for look in looks], np.intp)


def _pieces(tokenizer: "PreTrainedTokenizerBase", ids: list[int]) -> list[str]:
    """Text of each token; the bytes of one character that several tokens share go to the last of them."""
    from rmlab.inference.template import decode

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
