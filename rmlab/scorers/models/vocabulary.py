"""A language model's output layer: logits and log-probabilities of given tokens."""

import copy
from typing import TYPE_CHECKING, Any

from rmlab.inference.passes import Passes
from rmlab.scorers.checkpoints.loading_errors import explain
from rmlab.scorers.models.loading import base_model
from rmlab.tables import DataError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

_CHUNK_BYTES = {"cpu": 1 << 26, "cuda": 1 << 29}

# Settings that bound logits: by a tanh, after the factor. Gemma, RecurrentGemma, xLSTM.
_CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")


class Vocabulary:
    """The output layer of a causal language model, apart from its backbone.

    Logits are float32, whatever the weights: in bfloat16 those of close answers would
    be the same. Raises DataError where the model changes its logits in a way that is
    not known here; that is found by trying a few tokens.
    """

    def __init__(self, model: "PreTrainedModel", name: str) -> None:
        self.model = model
        layer = output_layer(model)
        self.weight = layer.weight
        if not _widens(layer.weight):
            self.weight = layer.weight.float()
        # The number of tokens.
        self.size = int(self.weight.shape[0])
        bias = getattr(layer, "bias", None)
        self.bias = None if bias is None else bias.float()

        config = model.config.get_text_config()
        caps = [getattr(config, setting, None) for setting in _CAPS]
        self.cap: float | None = next(filter(None, caps), None)
        scale = getattr(config, "logit_scale", None) or 1.0
        divisor = getattr(config, "logits_scaling", None) or 1.0
        self.factor = float(scale) / float(divisor)
        self._compare(model, name)

    def logits(self, rows: "Tensor", tokens: list[int]) -> "Tensor":
        """Logits of `tokens` after each hidden state, (rows, tokens) float32."""
        weight = self.weight[tokens].float()
        logits = rows.to(weight.device) @ weight.T
        if self.bias is not None:
            logits = logits + self.bias[tokens]
        return self._scale(logits)

    def log_probs(
        self, rows: "Tensor", targets: "Tensor", *, logits_chunk_size: int | None = None
    ) -> "Tensor":
        """Log-probability of `targets[i]` after hidden state `rows[i]`, (n,) float32.

        `logits_chunk_size`: rows whose logits exist at once, by default as many as fill
        64 MiB (512 MiB on a GPU).
        """
        import torch

        device = self.weight.device
        rows = rows.to(device)
        targets = targets.to(device)
        chunk = logits_chunk_size
        if chunk is None:
            n_bytes = _CHUNK_BYTES.get(device.type, _CHUNK_BYTES["cpu"])
            chunk = max(1, n_bytes // (4 * self.size))

        log_probs = rows.new_empty(len(rows))
        with torch.inference_mode():
            # One buffer for all chunks: a fresh one for each costs as much as the
            # arithmetic on a CPU.
            buffer = rows.new_empty(min(chunk, len(rows)), self.size)
            for start in range(0, len(rows), chunk):
                part = slice(start, start + chunk)
                n_rows = len(rows[part])
                logits = self._product(rows[part], buffer[:n_rows])
                logits = self._scale(logits)
                # Read before the logsumexp, whose steps overwrite the buffer.
                target_logits = logits.gather(1, targets[part, None])[:, 0]
                top = logits.amax(1, keepdim=True)
                log_sum = logits.sub_(top).exp_().sum(1).log_()
                log_probs[part] = target_logits - top[:, 0] - log_sum
        return log_probs

    def _product(self, rows: "Tensor", out: "Tensor") -> "Tensor":
        import torch

        if self.weight.dtype == torch.float32:
            torch.mm(rows, self.weight.T, out=out)
        else:
            # The rows left the backbone in this type, so that nothing is lost on the
            # way back to it.
            narrow = rows.to(self.weight.dtype)
            out.copy_(torch.mm(narrow, self.weight.T, out_dtype=torch.float32))
        if self.bias is not None:
            out.add_(self.bias)
        return out

    def _scale(self, logits: "Tensor") -> "Tensor":
        """The products after the model's factor and its cap, in place."""
        if self.factor != 1.0:
            logits.mul_(self.factor)
        if self.cap is not None:
            logits.div_(self.cap).tanh_().mul_(self.cap)
        return logits

    def _compare(self, model: "PreTrainedModel", name: str) -> None:
        """Raise DataError unless these logits are the model's own on eight tokens."""
        import torch

        tokens = list(range(min(512, self.size)))
        ids = torch.tensor([tokens[1:9]], device=model.device)
        backbone = base_model(model)
        task = f"forward {type(model).__name__} beside its backbone"
        remedy = "use a model that was trained to predict the next token"
        with (
            explain(name, task, remedy),
            Passes(backbone).exclusive_pass(ids.shape[1]),
        ):
            output = backbone(input_ids=ids, use_cache=False)
            logits = self.logits(output.last_hidden_state[0].float(), tokens)
            model_logits = model(input_ids=ids, use_cache=False).logits
        expected = model_logits[0, :, tokens].float().to(logits.device)
        if not expected.isfinite().all():
            dtype = str(model.dtype).removeprefix("torch.")
            problem = f"model={name!r}: its logits are not finite in {dtype}"
            raise DataError(problem, "score with dtype='float32'")

        rounding = 1e-3 if model.dtype == torch.float32 else 0.02
        tolerance = rounding * float(expected.std()) + 1e-6
        if not torch.allclose(logits, expected, rounding, tolerance):
            kind = model.config.model_type
            raise DataError(
                f"model={name!r}: its architecture {kind!r} changes states before or "
                "logits behind the output layer"
            )


def output_layer(model: "PreTrainedModel") -> Any:
    """The output layer, with what an adapter of peft adds to it."""
    layer: Any = model.get_output_embeddings()
    if not hasattr(layer, "get_base_layer"):
        return layer
    if not (layer.disable_adapters or layer.merged):
        layer = copy.deepcopy(layer)
        layer.merge()
    return layer.get_base_layer()


def _widens(weight: "Tensor") -> bool:
    """Can this device multiply half-precision numbers into float32 sums?

    CUDA can, with torch 2.8 or later.
    """
    import torch

    if weight.device.type != "cuda" or weight.dtype == torch.float32:
        return False
    row = weight[:1]
    try:
        product = torch.mm(row, row.T, out_dtype=torch.float32)
    except (TypeError, RuntimeError):
        return False
    return product.dtype == torch.float32
