"""Arguments that odd architectures need in every pass beside ids and positions.

Each is computed from the token ids (rows, tokens) and the positions, which are None
where every row is one text.
"""

from functools import partial
from typing import TYPE_CHECKING

from rmlab.inference.backbone import Backbone
from rmlab.inference.passes import takes_argument
from rmlab.inference.templates import has_segments

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from rmlab.scorers.encoder import TextEncoder

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
    is_classifier = loader == "AutoModelForSequenceClassification"
    if is_classifier and takes_argument(model, GLOBAL_ATTENTION):
        backbone.arguments[GLOBAL_ATTENTION] = mark_first
    # Only models such as BERT and ELECTRA tell two segments apart.
    if loader != "AutoModel" and getattr(model.config, "type_vocab_size", 0) == 2:
        tokenizer = encoder.tokenizer
        has_names = "token_type_ids" in tokenizer.model_input_names
        if has_names and has_segments(tokenizer, encoder.options["template"]):
            mark = partial(mark_segments, tokenizer.sep_token_id)
            backbone.arguments["token_type_ids"] = mark
    return backbone


def mark_first(ids: "Tensor", positions: "Tensor | None") -> "Tensor":
    """The first token of each row is seen from everywhere, as Longformer's class for
    sequence classification has it.
    """
    marks = ids.new_zeros(ids.shape)
    marks[:, 0] = 1
    return marks


def mark_segments(
    separator: int, ids: "Tensor", positions: "Tensor | None"
) -> "Tensor":
    """0 up to a text's first `separator`, then 1, (rows, tokens).

    They are found again from the token ids, so that whoever forwards texts needs to
    know nothing of them.
    """
    import torch

    ends = (ids == separator).long()
    before = ends.cumsum(1) - ends
    if positions is not None:
        # Count from where the text begins in its row.
        starts = torch.arange(ids.shape[1], device=ids.device) - positions
        before = before - before.gather(1, starts)
    return before.clamp(max=1)
