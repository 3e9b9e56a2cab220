"""A tiny policy trained by direct preference optimisation, and the reference that it started from."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.toy.models import random_model, write_model
from rmlab.toy.training import SIZE, Course, comparisons, encoded, fit, one_thread, padded, templated, vocabulary

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

__all__ = ["TrainedPolicy", "train_dpo"]

_TEXTS_AT_ONCE = 64


@dataclass(frozen=True)
class TrainedPolicy:
    """A policy and its reference, each in a folder, and the `history`, one row per step: stage, step, loss, accuracy.

    The accuracy of the stage "sft" is the share of answer tokens that the model put first.
    """

    folder: Path
    reference: Path
    history: pd.DataFrame


def train_dpo(
    pairs: pd.DataFrame,
    folder: str | Path,
    *,
    seed: int = 0,
    beta: float = 0.3,
    sft_steps: int = 200,
    steps: int = 500,
    batch: int = 24,
    learning_rate: float = 3e-3,
    progress: bool = True,
) -> TrainedPolicy:
    """Train a tiny language model on the chosen answers, then by DPO on `pairs`; both models are saved in `folder`.

    `pairs`: as for `toy.train`. The loss of a comparison is -log sigmoid(`beta` * (chosen - rejected)), where an answer
    counts its log-probability under the policy minus that under the reference (Rafailov et al. 2023, arXiv 2305.18290,
    eq. 7). `rmlab.implicit_reward(trained.folder, trained.reference)` scores with the result. The same arguments give
    the same weights to the last bit on one machine. Raises as `toy.train` does.
    """
    import torch

    if beta <= 0:
        raise ValueError(f"beta={beta!r}; give a number above 0")
    first, second = (Course(seed, n, batch, learning_rate) for n in (sft_steps, steps))
    prompts, chosen, rejected = comparisons(pairs)
    words = vocabulary([*prompts, *chosen, *rejected])
    answers = _Answers(words, prompts, [chosen, rejected])
    model = random_model(words, "llama", task="causal", seed=seed, **SIZE)

    def likelihood(model: "PreTrainedModel", rows: NDArray[np.intp]) -> tuple["Tensor", float]:
        chances, first, tokens = answers.log_probabilities(model, rows)
        return -chances.sum() / tokens, first / tokens

    sft = fit(model, likelihood, answers.lengths[: len(chosen)], first, progress=progress)
    reference = deepcopy(model)
    with one_thread():
        known = answers.all_log_probabilities(model)

    def preference(model: "PreTrainedModel", rows: NDArray[np.intp]) -> tuple["Tensor", float]:
        both = np.r_[rows, rows + len(chosen)]
        gained = answers.log_probabilities(model, both)[0] - known[both]
        better, worse = gained.chunk(2)
        log_odds = beta * (better - worse)
        return -torch.nn.functional.logsigmoid(log_odds).mean(), float((log_odds > 0).float().mean())

    lengths = np.maximum(answers.lengths[: len(chosen)], answers.lengths[len(chosen) :])
    dpo = fit(model, preference, lengths, second, progress=progress)
    history = pd.concat([sft.assign(stage="sft"), dpo.assign(stage="dpo")], ignore_index=True)
    policy_folder = write_model(model, words, Path(folder) / "policy")
    reference_folder = write_model(reference, words, Path(folder) / "reference")
    return TrainedPolicy(policy_folder, reference_folder, history[["stage", "step", "loss", "accuracy"]])


class _Answers:
    """Token ids of conversations, chosen ones before rejected ones, and where their answers begin."""

    def __init__(self, words: "PreTrainedTokenizerFast", prompts: list[str], sides: Sequence[list[str]]) -> None:
        self.texts = [text for side in sides for text in encoded(words, prompts, side)]
        asked = templated(words, [[{"role": "user", "content": prompt}] for prompt in prompts])
        self.starts = [len(ids) for ids in asked] * len(sides)
        self.lengths = np.array([len(text) for text in self.texts])
        self.pad = words.pad_token_id

    def log_probabilities(self, model: "PreTrainedModel", rows: NDArray[np.intp]) -> tuple["Tensor", int, int]:
        """Log-probability of each answer, how many of its tokens the model puts first, and how many there are."""
        import torch

        ids, mask = padded([self.texts[row] for row in rows], self.pad)
        logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
        place = torch.arange(1, ids.shape[1])
        counted = (place >= torch.tensor([self.starts[row] for row in rows])[:, None]) & mask[:, 1:].bool()
        chances = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0] * counted
        first = ((logits.argmax(-1) == ids[:, 1:]) & counted).sum()
        return chances.sum(1), int(first), int(counted.sum())

    def all_log_probabilities(self, model: "PreTrainedModel") -> "Tensor":
        """Log-probability of each answer, without gradients, texts of about the same length together."""
        import torch

        order = np.argsort(self.lengths, kind="stable")
        known = torch.empty(len(order))
        with torch.inference_mode():
            for start in range(0, len(order), _TEXTS_AT_ONCE):
                rows = order[start : start + _TEXTS_AT_ONCE]
                known[rows] = self.log_probabilities(model.eval(), rows)[0]
        return known.clone()
