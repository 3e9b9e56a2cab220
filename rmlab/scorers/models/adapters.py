"""Arguments that odd architectures need in every pass beside ids and positions.

Each is computed from the token ids (rows, tokens) and the positions, which are None
where every row is one text.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rmlab.inference.backbone import Backbone
from rmlab.inference.passes import takes_argument
from rmlab.tables import DataError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rmlab.scorers.encoder import TextEncoder

    Argument = Callable[[Tensor, Tensor | None], Tensor]

# Architectures with learned positions that count every token of the row, masked ones
# too.
COUNTED_POSITIONS = ("gpt2", "gpt_bigcode", "gpt_neo")


class Adapter(NamedTuple):
    """An argument of the forward pass, who needs it, and what computes it.

    `of_class`: needed only below transformers' classes for sequence classification.
    """

    argument: str
    applies: "Callable[[PreTrainedModel, TextEncoder], bool]"
    make: "Callable[[TextEncoder], Argument]"
    of_class: bool


def adapt(
    model: "PreTrainedModel", encoder: "TextEncoder", *, of_class: bool
) -> Backbone:
    """Return the backbone with the arguments that it needs for the encoder's texts."""
    backbone = Backbone(model)
    for adapter in ADAPTERS:
        if adapter.of_class and not of_class:
            continue
        if adapter.applies(model, encoder):
            backbone.arguments[adapter.argument] = adapter.make(encoder)
    return backbone


def takes_global_attention(model: "PreTrainedModel", _: object = None) -> bool:
    """Whether tokens may be seen from everywhere, as in Longformer."""
    return takes_argument(model, "global_attention_mask")


def mark_first(ids: "Tensor", positions: "Tensor | None") -> "Tensor":
    """The first token of each row is seen from everywhere, as Longformer's class for
    sequence classification has it.
    """
    import torch

    first = ids.new_zeros(len(ids))
    return torch.nn.functional.one_hot(first, ids.shape[1])


def _tells_segments(model: "PreTrainedModel", encoder: "TextEncoder") -> bool:
    """Whether the model tells two segments apart (BERT, ELECTRA) and the texts have
    them.
    """
    n_segments = getattr(model.config, "type_vocab_size", 0)
    if n_segments < 2 or not encoder.writes_segments:
        return False
    return "token_type_ids" in encoder.tokenizer.model_input_names


def _mark_segments(encoder: "TextEncoder") -> "Argument":
    """Segments, found again from the token ids, so that whoever forwards texts needs to
    know nothing of them.
    """
    tokenizer: PreTrainedTokenizerBase = encoder.tokenizer
    segments = partial(_segments, tokenizer.sep_token_id)
    pair = tokenizer("a", "b", return_tensors="pt")
    if not pair["token_type_ids"].equal(segments(pair["input_ids"])):
        marks = pair["token_type_ids"].tolist()
        problem = (
            f"the tokenizer {tokenizer.name_or_path!r} marks two segments as {marks}"
        )
        raise DataError(problem, "give a chat template")
    return segments


def _segments(
    separator: int, ids: "Tensor", positions: "Tensor | None" = None
) -> "Tensor":
    """0 up to a text's first `separator`, then 1, (rows, tokens)."""
    import torch

    ends = (ids == separator).long()
    before = ends.cumsum(1) - ends
    if positions is not None:
        # Count from where the text begins in its row.
        starts = torch.arange(ids.shape[1], device=ids.device) - positions
        before = before - before.gather(1, starts)
    return before.clamp(max=1)


def _counts_masked(_: "PreTrainedModel", encoder: "TextEncoder") -> bool:
    return encoder.n_masked > 0


def _shift_positions(encoder: "TextEncoder") -> "Argument":
    """Positions behind the tokens that RewardBench's runner masks before the text."""
    import torch

    def shift(ids: "Tensor", positions: "Tensor | None") -> "Tensor":
        if positions is None:
            positions = torch.arange(ids.shape[1], device=ids.device)[None]
        return positions + encoder.n_masked

    return shift


ADAPTERS = (
    Adapter(
        "global_attention_mask",
        takes_global_attention,
        lambda _: mark_first,
        of_class=True,
    ),
    Adapter("token_type_ids", _tells_segments, _mark_segments, of_class=True),
    Adapter("position_ids", _counts_masked, _shift_positions, of_class=False),
)
