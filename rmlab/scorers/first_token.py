"""What an encoder-decoder would write first: one reading of a text, one step of the decoder."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rmlab.scorers.streaming import Stream

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["generated"]

Ids = NDArray[np.int32]


def generated(model: Any, head: "Callable[[Tensor], Tensor]", ids: list[Ids], budget: int) -> Stream:
    """Logits of an encoder-decoder's first generated token, in length-sorted batches of at most `budget` tokens."""
    import torch

    from rmlab.inference.batches import pad

    caught: list[Tensor] = []
    # What enters the output layer, after whatever scaling the model does before it.
    hook = model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
    try:
        for part in pad([len(one) for one in ids], budget):
            rows = [torch.from_numpy(ids[text].astype(np.int64)) for text in part.texts]
            tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(model.device)
            lengths = torch.tensor([len(one) for one in rows], device=model.device)
            mask = torch.arange(tokens.shape[1], device=model.device) < lengths[:, None]
            start = torch.full((len(rows), 1), int(model.config.decoder_start_token_id), device=model.device)
            with torch.inference_mode():
                model(input_ids=tokens, attention_mask=mask.long(), decoder_input_ids=start, use_cache=False)
                logits = head(caught.pop().float()).double().cpu().numpy()
            yield part.texts, logits
    finally:
        hook.remove()
