"""Tiny reward models trained on preferences in seconds, and saved as published ones are."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm.auto import tqdm

from rmlab import tables
from rmlab.styles.transforms import ASSURANCES, FILLERS, HEDGES
from rmlab.tables import DataError, check_responses
from rmlab.toy.models import random_model, tokenizer, write_model

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerFast

__all__ = [
    "MIN_PAIRS",
    "SIZE",
    "Course",
    "Trained",
    "comparisons",
    "encoded",
    "fit",
    "one_thread",
    "padded",
    "templated",
    "train",
    "vocabulary",
]

MIN_PAIRS = 200
"""Fewer comparisons than this teach a toy model nothing that a test could find."""


class Size(TypedDict):
    """Settings of a transformers configuration."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    max_position_embeddings: int
    initializer_range: float


SIZE: Size = {
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 512,
    # About one over the square root of the width. With transformers' 0.02 the layers of so small a model begin as good
    # as silent, and 500 steps do not wake them.
    "initializer_range": 0.12,
}
"""The toy model: a Llama of some 80,000 weights."""

_TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{{ eos_token }}{% endfor %}"
_WARM_UP, _LAST_RATE = 30, 0.02  # steps up to the highest learning rate; the share of it that is left at the end
_CLIP, _DIVERGED = 1.0, 10.0  # the longest gradient; a loss from which training does not come back

_SIDES = (("response", "chosen"), ("response", "rejected"))

Ids = list[int]
Loss = Callable[["PreTrainedModel", NDArray[np.intp]], tuple["Tensor", float]]
"""From a model and the rows of a batch to its loss and the share of comparisons that it has right."""


@dataclass(frozen=True)
class Trained:
    """A trained model: the `folder` it lies in, and its `history`, one row per step: step, loss, accuracy."""

    folder: Path
    history: pd.DataFrame


@dataclass(frozen=True)
class Course:
    """How a model is trained: seed of its batches, steps, comparisons in a batch, highest learning rate."""

    seed: int
    steps: int
    batch: int
    learning_rate: float

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("batch", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name}={value!r}; give a whole number from {least}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate={self.learning_rate!r}; give a number above 0")


def train(
    pairs: pd.DataFrame,
    folder: str | Path,
    *,
    seed: int = 0,
    steps: int = 600,
    batch: int = 24,
    learning_rate: float = 3e-3,
    margin: float = 0.0,
    label_smoothing: float = 0.0,
    progress: bool = True,
) -> Trained:
    """Train a tiny reward model on `pairs` and save it to `folder`; `rmlab.classifier(folder)` loads it.

    `pairs`: a responses table, such as `toy.preferences` gives, with one chosen and one rejected answer of each prompt.
    The loss of a comparison is -log sigmoid(chosen - rejected - `margin`), the negative log-likelihood of Bradley and
    Terry's model (Ouyang et al. 2022, arXiv 2203.02155, eq. 1); with `label_smoothing` e it is (1 - e) times that plus
    e times the loss of the opposite preference. AdamW, one thread; the same arguments give the same weights to the last
    bit on one machine. The history's accuracy is the share of the step's comparisons that the model had right.

    Raises DataError for fewer than MIN_PAIRS comparisons, for a prompt with other than one chosen and one rejected
    answer, for two comparisons that contradict each other, and where the loss diverges; nothing is written then.
    ValueError for settings outside their range.
    """
    import torch

    course = Course(seed, steps, batch, learning_rate)
    if margin < 0:
        raise ValueError(f"margin={margin!r}; give a number from 0")
    if not 0 <= label_smoothing < 0.5:
        raise ValueError(f"label_smoothing={label_smoothing!r}; give a number from 0 to below 0.5")
    prompts, chosen, rejected = comparisons(pairs)
    words = vocabulary([*prompts, *chosen, *rejected])
    sides = [encoded(words, prompts, side) for side in (chosen, rejected)]

    def loss(model: "PreTrainedModel", rows: NDArray[np.intp]) -> tuple["Tensor", float]:
        ids, mask = padded([side[row] for side in sides for row in rows], words.pad_token_id)
        better, worse = model(input_ids=ids, attention_mask=mask).logits[:, 0].chunk(2)
        log_odds = better - worse
        kept = torch.nn.functional.logsigmoid(log_odds - margin)
        turned = torch.nn.functional.logsigmoid(-log_odds - margin)
        likelihood = (1 - label_smoothing) * kept + label_smoothing * turned
        return -likelihood.mean(), float((log_odds > 0).float().mean())

    model = random_model(words, "llama", task="classifier", seed=seed, **SIZE)
    lengths = np.array([max(len(better), len(worse)) for better, worse in zip(*sides, strict=True)])
    history = fit(model, loss, lengths, course, progress=progress)
    return Trained(write_model(model, words, folder), history)


def fit(
    model: "PreTrainedModel", loss: Loss, lengths: NDArray[np.intp], course: Course, *, progress: bool
) -> pd.DataFrame:
    """Minimise `loss` over batches of comparisons of about the same length; one row per step: step, loss, accuracy.

    The learning rate rises over the first 30 steps and then falls in a straight line. Raises DataError where the loss
    diverges, naming the step, and where a batch is larger than all comparisons.
    """
    import torch

    if course.batch > len(lengths):
        raise DataError(f"batch={course.batch} is more than the {len(lengths)} comparisons; pass a smaller one, 24 say")

    optimiser = torch.optim.AdamW(model.parameters(), lr=course.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1, (step + 1) / _WARM_UP) * max(_LAST_RATE, 1 - step / course.steps)
    )
    history = []
    with one_thread(), tqdm(total=course.steps, disable=not progress, desc="training", leave=False) as bar:
        model.train()
        for step, rows in zip(range(1, course.steps + 1), _batches(lengths, course), strict=False):
            value, accuracy = loss(model, rows)
            history.append((step, value.item(), accuracy))
            if not value.item() < _DIVERGED:
                raise DataError(
                    f"the loss is {value.item():.3g} in step {step}: the training diverged; pass a smaller "
                    f"learning_rate than {course.learning_rate:g}, 0.003 say"
                )
            optimiser.zero_grad()
            value.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
            optimiser.step()
            schedule.step()
            bar.update()
    return pd.DataFrame(history, columns=["step", "loss", "accuracy"])


def comparisons(pairs: pd.DataFrame) -> tuple[list[str], list[str], list[str]]:
    """Prompts, chosen and rejected answers of a responses table, one of each per comparison."""
    pairs = check_responses(pairs)
    if not pairs["prompt"].map(lambda prompt: isinstance(prompt, str)).all():
        raise DataError("pairs: a prompt is a conversation; the toy model reads prompts of one string")
    each = pairs.groupby([*tables.PROMPT, "label"], observed=True, sort=False)[["prompt", "response"]]
    lists = each.agg(list)
    wide = pd.concat({name: lists[name].unstack("label") for name in lists.columns}, axis=1)
    wide = wide.reindex(columns=pd.MultiIndex.from_product([["prompt", "response"], ["chosen", "rejected"]]))
    one_each = wide[[*_SIDES]].map(lambda found: isinstance(found, list) and len(found) == 1).all(axis=1)
    if not one_each.all():
        where = ", ".join(map(str, wide.index[~one_each][0]))
        raise DataError(
            f"pairs: prompt ({where}) does not have one chosen and one rejected answer; give each comparison an id of "
            "its own, as toy.preferences does"
        )
    if len(wide) < MIN_PAIRS:
        raise DataError(f"pairs: {len(wide)} comparisons are too few to learn from; give at least {MIN_PAIRS}")
    texts = [[cell[0] for cell in wide[column]] for column in (("prompt", "chosen"), *_SIDES)]
    _refuse_contradictions(*texts)
    return texts[0], texts[1], texts[2]


def vocabulary(texts: Sequence[str]) -> "PreTrainedTokenizerFast":
    """A tokenizer whose pieces are the words of `texts`, and of the changes of style that `rmlab.probe` makes."""
    known = sorted({*texts, *ASSURANCES, *FILLERS, *HEDGES})
    return tokenizer(known, chat_template=_TEMPLATE, vocab_size=1024)


def conversation(prompt: str, response: str) -> list[dict[str, str]]:
    """The two turns that the model reads."""
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread of torch inside, as many as before afterwards: sums are then the same from run to run."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def encoded(words: "PreTrainedTokenizerFast", prompts: Sequence[str], responses: Sequence[str]) -> list[Ids]:
    """Token ids of each conversation, by the model's own template."""
    turns = [conversation(prompt, response) for prompt, response in zip(prompts, responses, strict=True)]
    return templated(words, turns)


def templated(words: "PreTrainedTokenizerFast", turns: list[list[dict[str, str]]]) -> list[Ids]:
    """Token ids of each list of turns."""
    # `return_dict` gives this one of the kinds that the annotation names.
    ids: list[Ids] = cast("BatchEncoding", words.apply_chat_template(turns, return_dict=True))["input_ids"]
    return ids


def padded(texts: Sequence[Ids], pad: int) -> tuple["Tensor", "Tensor"]:
    """Token ids and attention mask (texts, longest text)."""
    import torch

    ids = torch.full((len(texts), max(map(len, texts))), pad)
    mask = torch.zeros_like(ids)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = torch.tensor(text)
        mask[row, : len(text)] = 1
    return ids, mask


def _batches(lengths: NDArray[np.intp], course: Course) -> Iterator[NDArray[np.intp]]:
    """Without end: comparisons of about the same length together, so that little is padded, in a random order."""
    random = np.random.default_rng(course.seed)
    whole = len(lengths) // course.batch * course.batch
    while True:
        order = random.permutation(len(lengths))
        order = order[np.argsort(lengths[order] + random.uniform(0, 4, len(order)), kind="stable")]
        yield from random.permutation(order[:whole].reshape(-1, course.batch))


def _refuse_contradictions(prompts: list[str], chosen: list[str], rejected: list[str]) -> None:
    preferred = {(p, a, b): row for row, (p, a, b) in enumerate(zip(prompts, chosen, rejected, strict=True))}
    for row, (prompt, a, b) in enumerate(zip(prompts, chosen, rejected, strict=True)):
        other = preferred.get((prompt, b, a))
        if other is not None:
            raise DataError(
                f"pairs: comparisons {min(row, other)} and {max(row, other)} prefer opposite answers to {prompt!r}; "
                "keep the one that you believe, or neither"
            )
