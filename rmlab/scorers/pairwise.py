"""Pairwise models: which of two answers to a prompt is better, asked in both orders."""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.forward import Batch
from rmlab.inference.memory import read_late, until_it_fits
from rmlab.inference.planning import Part, pad
from rmlab.inference.template import Encoded, require_unicode
from rmlab.scorers.base import (
    Floats,
    Ints,
    PairScorer,
    Prompt,
    Stream,
    fill,
    require_one_of_each,
)
from rmlab.scorers.checkpoints.checkpoint import find
from rmlab.scorers.forms import Form, choose_form, letters
from rmlab.scorers.local import (
    EncodeOptions,
    Ids,
    LocalScorer,
    remakable,
    require_convention,
)
from rmlab.scorers.models import backbone as backbones
from rmlab.scorers.models.heads import layers
from rmlab.scorers.models.vocabulary import Vocabulary
from rmlab.tables import DataError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

# Tokens of a batch through an encoder-decoder: SteamSHP reads texts of 512.
_SEQ2SEQ_BUDGET = 4096


@remakable
def pairwise(
    model: str | Path,
    *,
    form: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    max_length: int | None = None,
    truncate: str | None = None,
    convention: str | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    revision: str | None = None,
    budget: int | None = None,
    name: str | None = None,
) -> "Pairwise":
    """A model that sees two answers at once and says which is better; for
    `rmlab.prefer`.

    Parameters
    ----------
    model : str or Path
        An id on the hub or a folder.
    form : str, optional
        How it is asked: "pairrm", "better-pairrm", "steamshp", or "letters" (a language
        model that answers A or B). By default what its keys and configuration show.
    max_length : int, optional
        The longest text in tokens. By default the model's window (SteamSHP: the 512
        tokens it was trained on).
    truncate : str, optional
        "right" cuts long texts as PairRM's authors do. The other forms only refuse
        them.
    convention : str, optional
        "reward-bench" asks as its runner does, where that differs (Better-PairRM).
    dtype, device, trust_remote_code, allow_pickle, revision, budget, name
        As in `rmlab.classifier`.

    Returns
    -------
    Pairwise
        The weights are loaded when the first pair is compared.

    Raises
    ------
    DataError
        For a model that is not pairwise, and as `rmlab.classifier` does.
    """
    if truncate not in (None, "right"):
        raise DataError(
            f"truncate={truncate!r}; allowed: None (refuse long texts), 'right' (cut them, PairRM only)"
        )
    require_convention(convention)
    checkpoint = find(
        model,
        revision=revision,
        allow_pickle=allow_pickle,
        trust_remote_code=trust_remote_code,
    )
    options = EncodeOptions(
        template=None,
        eos=None,
        max_length=max_length,
        truncate=truncate,
        convention=convention,
    )
    scorer = Pairwise(
        [checkpoint], options, name=name, device=device, dtype=dtype, budget=budget
    )
    scorer.form = choose_form(checkpoint, form, convention)
    scorer.window = scorer.form.longest
    read = (
        "head_layer in the checkpoint" if scorer.form.markers else "logits of A and B"
    )
    scorer.head_title, scorer.details = (
        f"{scorer.form.name}: {read}",
        {"form": scorer.form.name},
    )
    return scorer


class Pairwise(LocalScorer, PairScorer):
    """A pairwise model; made by `pairwise`. The weights are loaded when the first pair
    is compared.

    `form`: how it is asked.
    """

    n_answers = 2
    form: Form

    def average(self, forward: Floats, exchanged: Floats) -> Floats:
        """Margins in favour of the answer that is first in `forward`, shape (n,).

        PairRM: half the difference of the two orders' logits, as its authors take it.
        Models that answer A or B: the log-odds of the mean probability. A margin is NaN
        where either logit is.
        """
        return (
            super().average(forward, exchanged)
            if self.form.markers
            else mean_log_odds(forward, exchanged)
        )

    def encode(self, prompts: Sequence[Prompt], /, *answers: Sequence[str]) -> Encoded:
        """Return the comparisons in the order given, however long; one text is one
        comparison in one order.
        """
        first, second = answers
        require_one_of_each(prompts, first, second)
        require_unicode(prompts, first, second)
        is_empty = [
            not (left.strip() and right.strip())
            for left, right in zip(first, second, strict=True)
        ]
        _refuse(is_empty, first, second, "have an empty answer; fill them in")
        return self.form.encode(self.tokenizer, self.checkpoint, prompts, first, second)

    def prepare(self, prompts: Sequence[Prompt], /, *answers: Sequence[str]) -> Encoded:
        """Return the comparisons in the order given as tokens; refuse those that are
        too long.
        """
        texts, (first, second) = super().prepare(prompts, *answers), answers
        if self.encode_options["truncate"] is None:
            remedy = f"are longer than {self.form.name} reads; pass truncate='right' to cut as its authors do"
            _refuse(texts.truncated, first, second, remedy)
        lengths = np.array([len(ids) for ids in texts.ids])
        remedy = f"are longer than {self.longest} tokens; raise max_length where the model can read more"
        _refuse(lengths > (self.longest or np.inf), first, second, remedy)
        return texts

    def places(self, prepared: Encoded, numbers: Ints) -> tuple[list[Ids], list[Ints]]:
        """Token ids of the wanted texts and the positions read in each."""
        reads = prepared.reads or []
        return [prepared.ids[i] for i in numbers], [reads[i] for i in numbers]

    def read_states(self, batch: Batch, *_: object) -> "torch.Tensor":
        """Logit that the answer written first is better, for each text of a batch,
        still on the device.
        """
        return self.parts[1](batch.stacked())

    def forward(self, prepared: Encoded, numbers: Ints) -> Stream:
        """Yield logits that the answer written first is better, of the texts with these
        `numbers`.
        """
        if self.form.task == "AutoModelForSeq2SeqLM":
            return self._generate(prepared, numbers, self.budget or _SEQ2SEQ_BUDGET)
        return super().forward(prepared, numbers)

    def forward_alone(self, prepared: Encoded, numbers: Ints) -> Floats:
        """Return the same logits, each text forwarded by itself: the reference for
        everything faster.
        """
        if self.form.task == "AutoModelForSeq2SeqLM":
            # A budget of one token leaves no room for company.
            return fill(self._generate(prepared, numbers, budget=1), len(prepared.ids))[
                numbers
            ]
        return super().forward_alone(prepared, numbers)

    def _generate(self, prepared: Encoded, numbers: Ints, budget: int) -> Stream:
        """Logits of an encoder-decoder's first generated token, in length-sorted
        batches of at most `budget` tokens.
        """
        import torch

        model, head = self.parts

        def cut(texts: Ints, budget: int) -> list[Part]:
            parts = pad([len(prepared.ids[text]) for text in texts], budget)
            return [Part(texts[part.texts], part.tokens) for part in parts]

        def forward(part: Part) -> "tuple[Ints, torch.Tensor]":
            with torch.inference_mode():
                return part.texts, head(
                    _first_states(model, [prepared.ids[text] for text in part.texts])
                )

        return read_late(
            until_it_fits(cut(np.asarray(numbers, np.intp), budget), forward, cut)
        )

    @cached_property
    def parts(self) -> "tuple[PreTrainedModel, Callable[[torch.Tensor], torch.Tensor]]":
        """The model that is forwarded, and the function from its hidden states (texts,
        reads, hidden) to logits.
        """
        keys = [
            key
            for key in self.checkpoint.files
            if self.form.markers and key.startswith("head_layer.")
        ]
        model = backbones.load(
            self.checkpoint,
            self.form.task,
            device=self.device,
            dtype=self.dtype,
            head=keys,
        )
        if self.form.markers:
            return model, self._read_markers(model)
        pair = letters(self.tokenizer, self.checkpoint.name)
        if self.form.task == "AutoModelForSeq2SeqLM":
            weight = model.get_output_embeddings().weight[pair].float()
            return model, lambda states: states[:, 0] @ (weight[0] - weight[1])
        vocabulary = Vocabulary(model, self.checkpoint.name)
        return backbones.base_model(
            model
        ), lambda states: -vocabulary.logits(states[:, 0], pair).diff(dim=1)[:, 0]

    def _read_markers(
        self, backbone: "PreTrainedModel"
    ) -> "Callable[[torch.Tensor], torch.Tensor]":
        """PairRM's head: each candidate's marker beside the source's, through two
        layers; the mean over its tasks.
        """
        import torch

        keys = [
            f"head_layer.{number}.{part}"
            for number in (1, 4)
            for part in ("weight", "bias")
        ]
        backbones.refuse_new_weights(
            self.checkpoint.name,
            [key for key in keys if key not in self.checkpoint.files],
        )
        weights = {
            key: tensor.to(backbone.device)
            for key, tensor in self.checkpoint.read(keys).items()
        }
        run = layers(weights, "head_layer", "tanh")

        def prefer_first(states: "torch.Tensor") -> "torch.Tensor":
            source, first, second = states.unbind(1)
            return (
                run(torch.cat([source, first], -1))
                - run(torch.cat([source, second], -1))
            ).mean(-1)

        return prefer_first


def mean_log_odds(forward: Floats, exchanged: Floats) -> Floats:
    """Log-odds of the mean of two probabilities that one answer is better, without
    leaving log space.

    `forward`, `exchanged`: as of `Pairwise.average`. NaN where either is.
    """
    with np.errstate(invalid="ignore"):  # NumPy would warn of NaN
        better = np.logaddexp(-np.logaddexp(0, -forward), -np.logaddexp(0, exchanged))
        worse = np.logaddexp(-np.logaddexp(0, forward), -np.logaddexp(0, -exchanged))
    return np.asarray(better - worse, np.float64)


def _refuse(
    flags: Sequence[bool] | NDArray[np.bool_],
    first: Sequence[str],
    second: Sequence[str],
    why: str,
) -> None:
    """Raise DataError where a text is flagged, with the number of them and the first."""
    if np.any(flags):
        i = int(np.argmax(flags))
        example = f"first number {i}, {f'{first[i]:.25} before {second[i]:.25}'!r}"
        raise DataError(
            f"{sum(flags)} of {len(flags)} texts (a comparison in one order each, {example}) {why}"
        )


def _first_states(model: "PreTrainedModel", texts: list[Ids]) -> "torch.Tensor":
    """The states that enter an encoder-decoder's output layer for the first token:
    (texts, 1, hidden) float32.
    """
    import torch

    states: list[torch.Tensor] = []
    hook = model.get_output_embeddings().register_forward_pre_hook(
        lambda _, inputs: states.append(inputs[0])
    )
    rows = [torch.from_numpy(ids.astype(np.int64)) for ids in texts]
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(model.device)
    lengths = torch.tensor([len(row) for row in rows], device=model.device)
    mask = torch.arange(tokens.shape[1], device=model.device) < lengths[:, None]
    start = torch.full(
        (len(rows), 1), int(model.config.decoder_start_token_id), device=model.device
    )
    try:
        model(
            input_ids=tokens,
            attention_mask=mask.long(),
            decoder_input_ids=start,
            use_cache=False,
        )
    finally:
        hook.remove()
    return states.pop().float()
