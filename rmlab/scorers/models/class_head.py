"""What a class of transformers computes from its backbone's hidden states, in float32.

transformers has no public way to run a class from hidden states on. This file alone
takes another: a copy of the model has a module in the backbone's place that gives out
such states, so that the class's own forward method computes the rest.

This file loads torch; import it inside a function.
"""

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from rmlab.inference.passes import Passes, takes_argument
from rmlab.scorers.checkpoints.adapters import plain_name
from rmlab.scorers.checkpoints.loading_errors import explain
from rmlab.scorers.checkpoints.stored_weights import as_float32
from rmlab.scorers.models import loading
from rmlab.scorers.models.arguments import GLOBAL_ATTENTION, mark_first
from rmlab.scorers.reads import Read
from rmlab.tables import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from rmlab.scorers.in_memory import Source

# The pad token of the copy.
_PAD = 1


class ClassHead:
    """A function from hidden states (n, tokens, hidden) to the class's own logits, both
    float32.

    Weights in float32 are the model's own, so that they change with it; the model
    stays as it is.

    Parameters
    ----------
    model : PreTrainedModel
        The whole model.
    name : str
        What it is called in messages.
    stored : Checkpoint or ModelInMemory, optional
        Where the head's weights are not rounded to the model's number type.

    Raises
    ------
    DataError
        Where the class cannot be run on token ids alone.
    """

    def __init__(
        self, model: "PreTrainedModel", name: str, stored: "Source | None" = None
    ) -> None:
        self.title = f"model={name!r}: its class {type(model).__name__}"
        # Of some models, such as XLNet, a few weights stay in float32.
        floats = [
            weight.dtype
            for weight in model.parameters()
            if weight.dtype.is_floating_point
        ]
        self.dtype = min(floats, key=lambda dtype: dtype.itemsize)
        self.backbone = loading.base_model(model)
        self._replaced = self.backbone
        if model.get_output_embeddings() is not None:
            # Classes with a decoder in their backbone, such as OPT's, call that.
            self._replaced = getattr(self.backbone, "decoder", self.backbone)
        self.passes = Passes(self.backbone)
        # The argument that the class itself passes to its backbone.
        if takes_argument(self.backbone, GLOBAL_ATTENTION):
            self.passes.arguments[GLOBAL_ATTENTION] = mark_first

        # Four texts of eight tokens, none of them the pad token.
        pad = getattr(model.config.get_text_config(), "pad_token_id", None)
        tokens = np.arange(5, min(64, loading.vocabulary_size(self.backbone)))
        self.texts = np.resize(tokens[tokens != pad], (4, 8))
        dtype = str(self.dtype).removeprefix("torch.")
        task = f"forward it: {type(model).__name__} does not run in {dtype}"
        remedy = "rmlab forwards token ids and nothing else"
        if dtype != "float32":
            remedy = "score with dtype='float32'"
        with explain(name, task, remedy):
            self._run_whole(model)
            self._copy(model, stored)
            self(torch.zeros(1, 1, self.width))

    def __call__(
        self, states: torch.Tensor, padded: Sequence[int] = ()
    ) -> torch.Tensor:
        """The logits; `padded`: the positions of pad tokens."""
        ids = torch.zeros(states.shape[:2], dtype=torch.long, device=self.device)
        ids[:, list(padded)] = _PAD
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        with torch.inference_mode():
            self._stand_in.states = states.to(self.device)
            return _run_class(self._head, inputs)

    def require_class_logits(self, read: Read) -> None:
        """Raise DataError where a text has other logits from backbone and head than
        from the whole model.
        """
        # Funnel gives fewer states than tokens, so only those that are read are asked
        # for.
        n_tokens = self.texts.shape[1]
        positions = {Read.FIRST: [0], Read.MEAN: range(n_tokens)}.get(
            read, [n_tokens - 1]
        )
        reads = np.array(positions)
        states = [self.passes.alone(ids, reads).mean(0)[None] for ids in self.texts]
        logits = _at_end(self(torch.stack(states))).cpu()
        # Scores of NaN are refused with the names of their texts.
        if not self.class_logits.isfinite().all():
            return

        difference = float((logits - self.class_logits).abs().max())
        spread = float(self.class_logits.std(0, correction=0).max())
        size = float(self.class_logits.abs().max())
        tolerance = 1e-2 * spread + 1e-4 * size
        if self.dtype != torch.float32:
            # The whole model's head rounds, and the head here does not.
            tolerance = 0.5 * spread + 0.05 * size
        if difference > tolerance:
            problem = (
                f"{self.title} gives short texts other logits than its backbone and "
                f"head apart (by up to {difference / max(spread, 1e-12):.2g} standard "
                "deviations)"
            )
            raise DataError(problem, "rmlab cannot score it")

    def _run_whole(self, model: "PreTrainedModel") -> None:
        """Note the whole model's logits of each text alone, with a mask as in
        `Passes.padded_rows`, and the class of what its backbone returns.
        """
        takes_mask = takes_argument(model, "attention_mask")
        logits = []
        outputs: list[Any] = []
        hook = self._replaced.register_forward_hook(
            lambda *arguments: outputs.append(arguments[-1])
        )
        with hook, self.passes.exclusive_pass(self.texts.shape[1]):
            for ids in self.texts:
                row = torch.tensor(ids[None], device=model.device)
                inputs = {"input_ids": row}
                if takes_mask:
                    inputs["attention_mask"] = torch.ones_like(row)
                logits.append(_run_class(model, inputs))
        self.class_logits = _at_end(torch.cat(logits)).float().cpu()
        self._output_class = type(outputs[0])
        self.width = outputs[0].last_hidden_state.shape[-1]

    def _copy(self, model: "PreTrainedModel", stored: "Source | None") -> None:
        stand_in: Any = torch.nn.Module()
        # A class may look for settings there, such as Falcon-H1's factor.
        for setting, value in vars(self._replaced).items():
            if isinstance(value, float):
                setattr(stand_in, setting, value)
        memo: dict[int, Any] = {id(self._replaced): stand_in}
        for weight in model.parameters():
            if weight.dtype == torch.float32:
                memo[id(weight)] = weight
        output: Any = model.get_output_embeddings()
        if output is not None and _widens(output):
            memo[id(output)] = _wide_layer(output)
        stand_in.pooler = copy.deepcopy(getattr(self.backbone, "pooler", None), memo)

        def give_states(*_: object, **__: object) -> object:
            outputs = {"last_hidden_state": stand_in.states}
            if stand_in.pooler is not None:
                outputs["pooler_output"] = stand_in.pooler(stand_in.states)
            return self._output_class(**outputs)

        stand_in.forward = give_states
        head: PreTrainedModel = copy.deepcopy(model, memo)
        # The method of a model with quantized weights refuses.
        torch.nn.Module.float(head)
        # The ids of the copy are 0, which must not count as padding.
        head.config.pad_token_id = _PAD
        head.config.get_text_config().pad_token_id = _PAD

        parameter = next(head.parameters(), None)
        device = self.backbone.device if parameter is None else parameter.device
        if device.type == "meta":
            device = torch.device("cpu")
        if stored is not None:
            # Loading in bfloat16 has rounded weights that the file holds in float32.
            names = {plain_name(key): key for key in head.state_dict()}
            tensors = stored.tensors(stored.weights.keys() & names)
            exact = as_float32(tensors, device)
            state = {names[key]: tensor for key, tensor in exact.items()}
            head.load_state_dict(state, strict=False, assign=True)
        self.device = device
        self._stand_in = stand_in
        self._head = head


def _run_class(
    model: "PreTrainedModel", inputs: dict[str, torch.Tensor]
) -> torch.Tensor:
    """The logits of a model without the hooks that somebody has put on it."""
    output: Any = type(model).forward(model, **inputs)
    return cast(torch.Tensor, output.logits)


def _at_end(logits: torch.Tensor) -> torch.Tensor:
    """Of a language model's logits those behind the last token, (texts, labels)."""
    return logits[:, -1] if logits.ndim == 3 else logits


def _widens(layer: Any) -> bool:
    """Can the layer's device multiply its half-precision weights into float32 sums?

    CUDA can, with torch 2.8 or later.
    """
    weight = layer.weight
    is_half = weight.dtype in (torch.float16, torch.bfloat16)
    if type(layer) is not torch.nn.Linear or not is_half or not weight.is_cuda:
        return False
    row = weight[:1]
    try:
        product = torch.mm(row, row.T, out_dtype=torch.float32)
    except (TypeError, RuntimeError):
        return False
    return bool(product.dtype == torch.float32)


def _wide_layer(layer: torch.nn.Linear) -> torch.nn.Module:
    """The layer with float32 sums of products of its own weights, which a float32 copy
    would double.
    """

    def multiply(states: torch.Tensor) -> torch.Tensor:
        # The states left the backbone in this type, so that nothing is lost on the way
        # back to it.
        rows = states.flatten(0, -2).to(layer.weight)
        products = torch.mm(rows, layer.weight.T, out_dtype=torch.float32)
        if layer.bias is not None:
            products += layer.bias
        return products.view(*states.shape[:-1], -1)

    wide: Any = torch.nn.Module()
    wide.forward = multiply
    return cast("torch.nn.Module", wide)
