"""A language model's output layer: logits and log-probabilities of given tokens, in
float32, a few rows at a time.
"""

from typing import TYPE_CHECKING, cast

import numpy as np

from rmlab.inference.backbone import Backbone
from rmlab.scorers.models.backbone import base_model
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
        layer = model.get_output_embeddings()
        config = model.config.get_text_config()
        self.weight = layer.weight if _widens(layer.weight) else layer.weight.float()
        self.size = int(self.weight.shape[0])  # number of tokens
        self.bias = None if getattr(layer, "bias", None) is None else layer.bias.float()
        caps = (getattr(config, name, None) for name in _CAPS)
        self.cap = next((cap for cap in caps if cap is not None), None)
        scale, divisor = (
            getattr(config, name, None) or 1.0
            for name in ("logit_scale", "logits_scaling")
        )
        self.factor = float(scale) / float(divisor)
        self._compare(model, name)

    def logits(self, rows: "Tensor", tokens: list[int]) -> "Tensor":
        """Logits of `tokens` after each row of hidden states, (rows, tokens) float32."""
        result = rows.to(self.weight.device) @ self.weight[tokens].float().T
        return self._finish(result if self.bias is None else result + self.bias[tokens])

    def log_probs(
        self, rows: "Tensor", targets: "Tensor", *, chunk: int | None = None
    ) -> "Tensor":
        """Log-probability of `targets[i]` after hidden state `rows[i]`, (n,) float32.

        `chunk`: rows whose logits exist at once, by default as many as fill 64 MiB (512
        MiB on a GPU).
        """
        import torch

        rows, targets = rows.to(self.weight.device), targets.to(self.weight.device)
        bytes_at_once = _CHUNK_BYTES.get(self.weight.device.type, _CHUNK_BYTES["cpu"])
        chunk = chunk or max(1, bytes_at_once // (4 * self.size))
        result = rows.new_empty(len(rows))
        with torch.inference_mode():
            # One buffer for all chunks: a fresh one for each costs as much as the
            # arithmetic on a CPU.
            buffer = rows.new_empty(min(chunk, len(rows)), self.size)
            for start in range(0, len(rows), chunk):
                part = rows[start : start + chunk]
                logits = self._finish(self._product(part, buffer[: len(part)]))
                # Read before the buffer is overwritten: what follows are the steps of a
                # logsumexp, in place.
                hit = logits.gather(1, targets[start : start + chunk, None])[:, 0]
                top = logits.amax(1, keepdim=True)
                total = logits.sub_(top).exp_().sum(1).log_()
                result[start : start + chunk] = hit - top[:, 0] - total
        return result

    def _product(self, rows: "Tensor", out: "Tensor") -> "Tensor":
        import torch

        if self.weight.dtype == torch.float32:
            torch.mm(rows, self.weight.T, out=out)
        else:
            # The rows left the backbone in this type, so that nothing is lost on the
            # way back to it.
            out.copy_(
                torch.mm(
                    rows.to(self.weight.dtype), self.weight.T, out_dtype=torch.float32
                )
            )
        return out if self.bias is None else out.add_(self.bias)

    def _finish(self, logits: "Tensor") -> "Tensor":
        if self.factor != 1.0:
            logits.mul_(self.factor)
        return (
            logits if self.cap is None else logits.div_(self.cap).tanh_().mul_(self.cap)
        )

    def _compare(self, model: "PreTrainedModel", name: str) -> None:
        """Raise DataError unless these logits are the model's own on a few tokens.

        A cap hardly moves small logits, and half precision hides it: once more the
        model gets float32 numbers of up to 100 for what its output layer gives.
        """
        import torch

        tokens = list(range(min(512, self.size)))
        ids = torch.tensor([tokens[1:9]], device=model.device)
        numbers = torch.linspace(-100, 100, ids.shape[1], device=self.weight.device)[
            :, None
        ]

        def forward() -> np.ndarray:
            logits = model(input_ids=ids, use_cache=False).logits
            return cast("np.ndarray", logits[0, :, tokens].float().cpu().numpy())

        with Backbone(base_model(model)).exclusive_pass(ids.shape[1]):
            states = (
                model.base_model(input_ids=ids, use_cache=False)
                .last_hidden_state[0]
                .float()
            )
            model_logits = forward()
            with model.get_output_embeddings().register_forward_hook(
                lambda *_: numbers.repeat(1, 1, self.size)
            ):
                model_numbers = forward()
        dtype = str(model.dtype).removeprefix("torch.")
        if not np.isfinite(model_logits).all():
            raise DataError(
                f"model={name!r}: its logits are not finite in {dtype}; score with dtype='float32'"
            )

        logits = self.logits(states, tokens).cpu().numpy()
        rounding = 1e-3 if dtype == "float32" else 0.02
        is_same = np.allclose(
            logits,
            model_logits,
            rounding,
            rounding * float(np.std(model_logits)) + 1e-6,
        )
        if not (
            is_same
            and np.allclose(
                self._finish(numbers).cpu().numpy(), model_numbers, 1e-5, 1e-4
            )
        ):
            kind = model.config.model_type
            raise DataError(
                f"model={name!r}: its architecture {kind!r} changes logits behind the output layer"
            )


def _widens(weight: "Tensor") -> bool:
    """Can this device multiply half-precision numbers into float32 sums (CUDA, torch
    2.8 or later)?
    """
    import torch

    if weight.device.type != "cuda" or weight.dtype == torch.float32:
        return False
    try:
        return bool(
            torch.mm(weight[:1], weight[:1].T, out_dtype=torch.float32).dtype
            == torch.float32
        )
    except (TypeError, RuntimeError):
        return False
