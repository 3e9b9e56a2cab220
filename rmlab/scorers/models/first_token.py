"""What an encoder-decoder would write first: one reading of a text, one step of the decoder."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rmlab.scorers.base import Stream

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

__all__ = ["generated"]

Ids = NDArray[np.int32]
Ints = NDArray[np.intp]


def generated(model: "PreTrainedModel", head: "Callable[[Tensor], Tensor]", ids: list[Ids], budget: int) -> Stream:
    """Logits of an encoder-decoder's first generated token, in length-sorted batches of at most `budget` tokens.

    Running out of memory halves the budget.
    """
    import torch

    from rmlab.inference.budget import until_it_fits
    from rmlab.inference.planning import Padded, pad
    from rmlab.inference.transfers import read_late

    def cut(texts: Ints, budget: int) -> list[Padded]:
        return [Padded(texts[part.texts], part.tokens) for part in pad([len(ids[text]) for text in texts], budget)]

    def forward(part: Padded) -> "tuple[Ints, Tensor]":
        with torch.inference_mode():
            states = _states(model, [ids[text] for text in part.texts])
            return part.texts, head(states)

    return read_late(until_it_fits(cut(np.arange(len(ids)), budget), forward, cut))


def _states(model: "PreTrainedModel", texts: list[Ids]) -> "Tensor":
    """What enters the output layer for the first token, scaled as the model does: (texts, 1, hidden) float32."""
    import torch

    caught: list[Tensor] = []
    hook = model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
    rows = [torch.from_numpy(ids.astype(np.int64)) for ids in texts]
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(model.device)
    lengths = torch.tensor([len(row) for row in rows], device=model.device)
    mask = torch.arange(tokens.shape[1], device=model.device) < lengths[:, None]
    start = torch.full((len(rows), 1), int(model.config.decoder_start_token_id), device=model.device)
    try:
        model(input_ids=tokens, attention_mask=mask.long(), decoder_input_ids=start, use_cache=False)
    finally:
        hook.remove()
    return caught.pop().float()
