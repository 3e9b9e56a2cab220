"""Arguments that odd architectures need in every pass beside ids and positions.

Each is computed from the token ids (rows, tokens) and the positions, which are None
where every row is one text.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from rmlab.inference.backbone import Backbone
from rmlab.inference.passes import takes_argument
from rmlab.inference.templates import has_segments
from rmlab.tables import DataError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rmlab.scorers.encoder import TextEncoder

    Argument = Callable[[Tensor, Tensor | None], Tensor]

# Marks tokens that are seen from everywhere, as in Longformer.
GLOBAL_ATTENTION = "global_attention_mask"


def with_arguments(
    model: "PreTrainedModel", encoder: "TextEncoder", loader: str
) -> Backbone:
    """Return the backbone with the arguments that it needs for the encoder's texts.

    `loader`: of the class that it stands below, such as "AutoModelForCausalLM";
    "AutoModel" where there is none.
    """
    backbone = Backbone(model)
    arguments = backbone.arguments
    is_classifier = loader == "AutoModelForSequenceClassification"
    if is_classifier and takes_argument(model, GLOBAL_ATTENTION):
        arguments[GLOBAL_ATTENTION] = mark_first
    if loader != "AutoModel" and _tells_segments(model, encoder):
        arguments["token_type_ids"] = _mark_segments(encoder)
    return backbone


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
    if getattr(model.config, "type_vocab_size", 0) < 2:
        return False
    tokenizer = encoder.tokenizer
    if not has_segments(tokenizer, encoder.options["template"]):
        return False
    return "token_type_ids" in tokenizer.model_input_names


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
