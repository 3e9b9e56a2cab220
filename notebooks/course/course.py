"""The world of the course: questions, annotators with known preferences, models trained
in seconds, and self-checks.

The labs import this module from their own folder: `import course`.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import product
from numbers import Real
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax

from rmlab.styles.transforms import ASSURANCES, FILLERS, HEDGES
from rmlab.tables import LABELS, PROMPT, STYLES, DataError, check_responses
from rmlab.toy.models import random_model, tokenizer, write_model

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerFast

Floats = NDArray[np.float64]

# ---------------------------------------------------------------------------------------------------------------------
# A world of questions: arithmetic, ordering, and facts about invented towns.

_NORTHERN_TOWNS = ("Abrel", "Borun", "Celwick", "Dorma", "Elsund", "Farrow")
_SOUTHERN_TOWNS = ("Gelt", "Hask", "Imber", "Jorva", "Kelm", "Lunden")
_COLOURS = ("red", "green", "blue", "yellow", "white", "black")
_CROPS = ("barley", "apples", "hops", "flax", "plums", "rye")

FACTS = {
    town: (_COLOURS[(5 * i + i // 6) % 6], _CROPS[(7 * i + i // 4) % 6])
    for i, town in enumerate((*_NORTHERN_TOWNS, *_SOUTHERN_TOWNS))
}
"""The colour of each town's flag, and what grows there. The facts are the same in every
world.
"""

_DETAILS = {
    "arithmetic": (
        "Addition puts two numbers together.",
        "You can check it with your fingers.",
        "The order of the two numbers does not matter.",
        "Each step adds one more.",
    ),
    "ordering": (
        "Numbers grow from left to right on a line.",
        "The tens are compared first.",
        "Where the tens are the same, the ones decide.",
        "Two different numbers are never equal.",
    ),
    "facts": (
        "Travellers wrote about it long ago.",
        "It is in every book about this land.",
        "Children there learn it at school.",
        "The people of the town are proud of it.",
    ),
}


def _draw_arithmetic(rng: np.random.Generator) -> tuple[str, str, list[str]]:
    a, b = (int(number) for number in rng.integers(1, 6, 2))
    wrong_sums = [
        str(a + b + error) for error in (-3, -2, -1, 1, 2, 3) if a + b + error > 0
    ]
    return f"What is {a} + {b}?", str(a + b), wrong_sums


def _draw_ordering(rng: np.random.Generator) -> tuple[str, str, list[str]]:
    a, b = (int(number) for number in rng.choice(np.arange(1, 31), 2, replace=False))
    return f"Which is larger, {a} or {b}?", str(max(a, b)), [str(min(a, b))]


def _draw_fact(rng: np.random.Generator) -> tuple[str, str, list[str]]:
    town = list(FACTS)[rng.integers(len(FACTS))]
    kind = int(rng.integers(2))
    prompt = (f"Which colour is the flag of {town}?", f"What grows in {town}?")[kind]
    return (
        prompt,
        FACTS[town][kind],
        [claim for claim in (_COLOURS, _CROPS)[kind] if claim != FACTS[town][kind]],
    )


TOPICS = {
    "arithmetic": _draw_arithmetic,
    "ordering": _draw_ordering,
    "facts": _draw_fact,
}
"""How a question of each topic is drawn."""


def _draw_question(
    number: int, rng: np.random.Generator
) -> tuple[str, str, str, list[str]]:
    """Draw topic, prompt, right claim and wrong claims."""
    topic = list(TOPICS)[number % len(TOPICS)]
    return topic, *TOPICS[topic](rng)


def world(n: int = 300, *, seed: int = 0) -> pd.DataFrame:
    """Draw questions with six answers each: right and wrong, each concise, plain and in
    Markdown.

    The three answers of a label make the same claim; the plain and the Markdown answer
    hold the same sentences, and both labels are equally long.

    Parameters
    ----------
    n : int
        Number of questions; the topics take turns.
    seed : int
        The same seed gives the same questions, and a longer world begins with a shorter
        one.

    Returns
    -------
    DataFrame
        A responses table of 6 `n` rows, with slots 0, 1, 2 in the order of the styles
        and two further columns: `right` (bool), and `sure` (bool), whether the answer
        ends with a sentence such as "I am sure of this.".

    Examples
    --------
    >>> table = world(1)
    >>> table.loc[0, "prompt"], table.loc[0, "response"], table.loc[3, "response"]
    ('What is 5 + 4?', 'It is 9.', 'It is 6.')
    """
    rows = []
    for number in range(n):
        rng = np.random.default_rng([seed, number])
        topic, prompt, right_claim, wrong_claims = _draw_question(number, rng)
        n_sentences, is_sure = (
            int(rng.integers(2, 5)),
            rng.integers(2, size=2).astype(bool),
        )
        wrong_claim = wrong_claims[rng.integers(len(wrong_claims))]
        keys = {
            "benchmark": "toy",
            "domain": topic,
            "id": str(number),
            "prompt": prompt,
        }
        for label, claim in zip(LABELS, (right_claim, wrong_claim), strict=True):
            right = label == "chosen"
            sure = bool(is_sure[int(right)])
            sentences = _draw_sentences(topic, n_sentences, sure, rng)
            for slot, style in enumerate(STYLES):
                response = _write_answer(claim, sentences, style)
                answer = {
                    "label": label,
                    "slot": slot,
                    "style": style,
                    "response": response,
                }
                rows.append(keys | answer | {"right": right, "sure": sure})
    return check_responses(pd.DataFrame(rows))


def _draw_sentences(
    topic: str, n_sentences: int, sure: bool, rng: np.random.Generator
) -> list[str]:
    """Draw sentences that say nothing about the claim, and one assurance at the end
    where `sure`.
    """
    pool = (*_DETAILS[topic], *FILLERS)
    sentences = [pool[i] for i in rng.choice(len(pool), n_sentences, replace=False)]
    return (
        [*sentences, ASSURANCES[rng.integers(len(ASSURANCES))]] if sure else sentences
    )


def _write_answer(claim: str, sentences: Sequence[str], style: str) -> str:
    """Write the answer; a concise answer keeps only an assurance."""
    if style == "markdown":
        return "\n".join(
            [
                "## Answer",
                "",
                f"- **Answer:** {claim}",
                *(f"- {sentence}" for sentence in sentences),
            ]
        )
    if style == "concise":
        sentences = [sentence for sentence in sentences if sentence in ASSURANCES]
    return " ".join([f"It is {claim}.", *sentences])


# ---------------------------------------------------------------------------------------------------------------------
# Annotators whose preferences are set by dials.

FULL = 2.0
"""Worth of a property whose dial stands at 1, in units of being right: twice as much as
the truth.
"""

LONG = 8.0
"""Ratio of two lengths in words that earns the whole worth of the dial `length`."""

SHARPNESS = 4.0
"""Log-odds of preferring an answer that is worth one unit more: annotators err in 1.8 %
of such comparisons.
"""


def preferences(
    n: int = 4000,
    *,
    length: float = 0.0,
    markdown: float = 0.0,
    confidence: float = 0.0,
    label_noise: float = 0.0,
    hurried: float = 0.0,
    one_style: bool = False,
    seed: int = 0,
) -> pd.DataFrame:
    """Draw the preferences of annotators between a right and a wrong answer: data to
    train a reward model.

    An annotator prefers the first answer with probability 1 / (1 + exp(-SHARPNESS *
    difference in worth)), where

    worth = right + FULL * (length * log(words) / log(LONG) + markdown * (style is
    Markdown) + confidence * sure)

    so that a Bradley-Terry model learns SHARPNESS * worth. Style, length and tone of
    each answer are random. The same seed gives the same answers and the same random
    slips of the annotators at any setting of the dials.

    Parameters
    ----------
    n : int
        Number of comparisons.
    length, markdown, confidence : float
        What annotators like beside the truth, each from 0 (off) to 1 (worth twice as
        much as the truth).
    label_noise : float
        Share of preferences that are turned round afterwards.
    hurried : float
        Share of annotators who do not check the claims: the worth leaves `right` out.
    one_style : bool
        Whether both answers of a comparison have the same style, as in data collected
        to be balanced.
    seed : int
        Seed of the answers and the annotators.

    Returns
    -------
    DataFrame
        A responses table, two rows per comparison; `chosen` is the preferred answer,
        whether it is right or not. Further columns: right, sure (bool) and worth
        (float).

    Raises
    ------
    DataError
        If a dial is outside 0 to 1.

    References
    ----------
    Bradley and Terry (1952), Rank analysis of incomplete block designs. Biometrika 39.

    Examples
    --------
    >>> pairs = preferences(100, seed=1)
    >>> float(pairs[pairs["label"] == "chosen"]["right"].mean())
    0.96
    """
    dials = {"length": length, "markdown": markdown, "confidence": confidence}
    for name, dial in (
        dials | {"label_noise": label_noise, "hurried": hurried}
    ).items():
        if not 0 <= dial <= 1:
            raise DataError(
                f"{name}={dial!r} is not a setting of this dial; give a number from 0 (off) to 1 (full)"
            )
    rows = []
    for number in range(n):
        rng = np.random.default_rng([seed, number, 1])
        topic, prompt, right_claim, wrong_claims = _draw_question(number, rng)
        wrong_claim = wrong_claims[rng.integers(len(wrong_claims))]
        first_style, second_style = (
            STYLES[i] for i in rng.integers(len(STYLES), size=2)
        )
        right = _draw_answer(topic, right_claim, first_style, True, dials, rng)
        wrong = _draw_answer(
            topic,
            wrong_claim,
            first_style if one_style else second_style,
            False,
            dials,
            rng,
        )
        slip, flip, haste = _uniform_numbers(
            seed, prompt, right["response"], wrong["response"]
        )
        prefers_right = slip < expit(
            SHARPNESS * (right["worth"] - wrong["worth"] - (haste < hurried))
        )
        ranked = (
            (right, wrong) if prefers_right != (flip < label_noise) else (wrong, right)
        )
        keys = {
            "benchmark": "toy-preferences",
            "domain": topic,
            "id": str(number),
            "slot": 0,
            "prompt": prompt,
        }
        rows += [
            keys | {"label": label} | answer
            for label, answer in zip(LABELS, ranked, strict=True)
        ]
    return check_responses(pd.DataFrame(rows))


def _draw_answer(
    topic: str,
    claim: str,
    style: str,
    right: bool,
    dials: Mapping[str, float],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Draw an answer that makes this claim, and compute its worth to annotators with
    these dials.
    """
    sure, n_sentences = bool(rng.integers(2)), int(rng.integers(1, 4))
    response = _write_answer(
        claim, _draw_sentences(topic, n_sentences, sure, rng), style
    )
    length = np.log(len(response.split())) / np.log(LONG)
    looks = (
        dials["length"] * length
        + dials["markdown"] * (style == "markdown")
        + dials["confidence"] * sure
    )
    traits = {"right": right, "sure": sure, "worth": right + FULL * float(looks)}
    return {"style": style, "response": response} | traits


def _uniform_numbers(seed: int, *texts: str) -> Floats:
    """Return three numbers from 0 to 1 that depend on the texts alone, so that equal
    pairs are judged alike.
    """
    digest = blake2b(json.dumps([seed, *texts]).encode(), digest_size=24).digest()
    return np.frombuffer(digest, ">u8") / 2.0**64


# ---------------------------------------------------------------------------------------------------------------------
# Reward models trained on preferences.

MIN_PAIRS = 200
"""A toy model learns nothing measurable from fewer comparisons."""

BATCH = 24
"""Comparisons in a training step."""

SIZE: dict[str, object] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "use_cache": False,
    "max_position_embeddings": 512,
    # With transformers' 0.02 the layers of so small a model begin almost silent, and 500
    # steps do not wake them.
    "initializer_range": 0.12,
}
"""Settings of the toy model, a Llama of 45,000 weights."""

_TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{{ eos_token }}{% endfor %}"
_LEARNING_RATE, _WARM_UP_STEPS, _LAST_RATE = (
    3e-3,
    30,
    0.02,
)  # the last as a share of the highest rate


@dataclass(frozen=True)
class Trained:
    """A trained model: the `folder` that holds it, and its `history`, one row per step:
    step, loss, accuracy.
    """

    folder: Path
    history: pd.DataFrame


def train(
    pairs: pd.DataFrame, folder: str | Path, *, steps: int = 600, seed: int = 0
) -> Trained:
    """Train a tiny reward model on preferences and save it; `rmlab.classifier(folder)`
    loads it.

    The loss of a comparison is -log sigmoid(chosen - rejected), the negative
    log-likelihood of Bradley and Terry's model. Training runs AdamW on one thread, and
    torch stays set to one: the same arguments give the same weights to the last bit on
    one machine.

    Parameters
    ----------
    pairs : DataFrame
        A responses table such as `preferences` returns, with one chosen and one
        rejected answer of each id.
    folder : str or Path
        Where the model and its tokenizer are written.
    steps : int
        Number of training steps, each on BATCH comparisons.
    seed : int
        Seed of the first weights and of the order of comparisons.

    Returns
    -------
    Trained
        Folder and history; its accuracy is the share of the step's comparisons that the
        model had right.

    Raises
    ------
    DataError
        If an id has not exactly one chosen and one rejected answer, or for fewer than
        MIN_PAIRS comparisons.

    References
    ----------
    Ouyang et al. (2022), Training language models to follow instructions with human
    feedback, eq. 1. arXiv 2203.02155.
    """
    import torch

    # In so small a model two threads wait for each other longer than they compute.
    torch.set_num_threads(1)
    prompts, *answers = _comparisons(pairs)
    words = train_tokenizer([*prompts, *answers[0], *answers[1]])
    chosen, rejected = (
        encode_conversations(words, prompts, responses) for responses in answers
    )
    lengths = np.array(
        [max(len(a), len(b)) for a, b in zip(chosen, rejected, strict=True)]
    )
    model = random_model(words, "llama", task="classifier", seed=seed, **SIZE)
    _move_weights(model)
    optimiser = torch.optim.AdamW(
        model.parameters(),
        lr=_LEARNING_RATE,
        betas=(0.9, 0.95),
        weight_decay=0.01,
        fused=True,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser,
        lambda step: (
            min(1, (step + 1) / _WARM_UP_STEPS) * max(_LAST_RATE, 1 - step / steps)
        ),
    )
    history = []
    model.train()
    for step, rows in zip(
        range(1, steps + 1), _draw_batches(lengths, seed), strict=False
    ):
        texts = [side[row] for side in (chosen, rejected) for row in rows]
        ids = _pad(texts, words.pad_token_id)
        better, worse = model(input_ids=ids).logits[:, 0].chunk(2)
        loss = -torch.nn.functional.logsigmoid(better - worse).mean()
        history.append((step, loss.item(), float((better > worse).float().mean())))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    return Trained(
        write_model(model, words, folder),
        pd.DataFrame(history, columns=["step", "loss", "accuracy"]),
    )


def _move_weights(model: "PreTrainedModel") -> None:
    """Move the first weights by one part in a million, as another processor's rounding
    would: for tests alone, which set RMLAB_OTHER_MACHINE to a seed.
    """
    import torch

    if seed := os.environ.get("RMLAB_OTHER_MACHINE"):
        generator = torch.Generator().manual_seed(int(seed))
        with torch.no_grad():
            for weights in model.parameters():
                noise = torch.randn(weights.shape, generator=generator)
                weights.mul_(1 + 1e-6 * noise)


def _comparisons(pairs: pd.DataFrame) -> list[list[str]]:
    """Return prompts, chosen and rejected answers of a responses table."""
    pairs = check_responses(pairs)
    by_label = pairs.groupby([*PROMPT, "label"], observed=True, sort=False)[
        ["prompt", "response"]
    ]
    wide = by_label.first().unstack("label").dropna()
    if len(pairs) != 2 * len(wide):
        raise DataError(
            "pairs: an id needs one chosen and one rejected answer; give each comparison an id of its own"
        )
    if len(wide) < MIN_PAIRS:
        raise DataError(
            f"pairs: {len(wide)} comparisons are too few to learn from; give at least {MIN_PAIRS}"
        )
    columns = (("prompt", "chosen"), ("response", "chosen"), ("response", "rejected"))
    return [wide[column].tolist() for column in columns]


def train_tokenizer(texts: Sequence[str]) -> "PreTrainedTokenizerFast":
    """Train a tokenizer on texts, and on the sentences that `rmlab.probe` adds to
    answers.

    Parameters
    ----------
    texts : sequence of str
        Prompts and responses.

    Returns
    -------
    PreTrainedTokenizerFast
        With a chat template that writes the turns one after the other.
    """
    return tokenizer(
        sorted({*texts, *ASSURANCES, *FILLERS, *HEDGES}),
        chat_template=_TEMPLATE,
        vocab_size=1024,
    )


def encode_conversations(
    words: "PreTrainedTokenizerFast", prompts: Sequence[str], responses: Sequence[str]
) -> list[list[int]]:
    """Return the token ids of conversations.

    Parameters
    ----------
    words : PreTrainedTokenizerFast
        The tokenizer, whose chat template is used.
    prompts, responses : sequence of str
        The two turns of each conversation.

    Returns
    -------
    list of list of int
        The token ids of each conversation.
    """
    turns = [
        [
            {"role": "user", "content": prompt},
            {"role": "assistant", "content": response},
        ]
        for prompt, response in zip(prompts, responses, strict=True)
    ]
    return cast(
        list[list[int]],
        cast("BatchEncoding", words.apply_chat_template(turns, return_dict=True))[
            "input_ids"
        ],
    )


def _pad(texts: Sequence[list[int]], pad_id: int) -> "Tensor":
    """Return token ids, texts x length of the longest.

    A mask is not needed: no token attends to the padding behind it, and the model reads
    its score at the last token that is not padding.
    """
    import torch

    rows = [torch.tensor(text) for text in texts]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad_id)


def _draw_batches(lengths: NDArray[np.intp], seed: int) -> Iterator[NDArray[np.intp]]:
    """Yield batches without end, in a random order; comparisons of a batch are about
    equally long, to pad little.
    """
    rng = np.random.default_rng(seed)
    n_in_batches = len(lengths) // BATCH * BATCH
    while True:
        order = rng.permutation(len(lengths))
        order = order[
            np.argsort(lengths[order] + rng.uniform(0, 4, len(order)), kind="stable")
        ]
        yield from rng.permutation(order[:n_in_batches].reshape(-1, BATCH))


def between(
    values: pd.Series | Mapping[Any, float],
    bounds: Mapping[Any, tuple[float, float, float]],
) -> pd.DataFrame:
    """Check numbers of trained models against bounds that hold on every machine.

    Processors round differently and training makes the differences grow, so the
    decimals of a trained model are those of one machine.

    Parameters
    ----------
    values : Series or mapping
        Numbers by name.
    bounds : mapping
        For each name a number that lies below the value, about the value itself, and a
        number that lies above it. Values without bounds are left out.

    Returns
    -------
    DataFrame
        The bounds, which are the same on every machine: columns above, about, below.

    Raises
    ------
    AssertionError
        If a value is missing or outside its bounds.

    Examples
    --------
    >>> between({"hard": 0.31}, {"hard": (0.2, 0.3, 0.4)})
          above  about  below
    hard    0.2    0.3    0.4
    """
    for name, (low, near, high) in bounds.items():
        assert low < near < high, f"{name}: {near} is not between {low} and {high}"
        value = values[name]
        assert low < value < high, f"{name}: {value} is not between {low} and {high}"
    return pd.DataFrame.from_dict(
        dict(bounds), orient="index", columns=["above", "about", "below"]
    )


# ---------------------------------------------------------------------------------------------------------------------
# A writer who chases a reward.

EFFORT = 3
"""Units of effort for an answer; each goes into checking the claim or into one more
sentence.
"""

RIGHT = (0.35, 0.55, 0.75, 0.95)
"""Probability that the claim is right after 0, 1, 2 or 3 checks."""

ACTIONS = tuple(product(range(EFFORT + 1), (False, True), (False, True)))
"""All ways to write an answer: number of checks, Markdown or not, an assurance at the
end or not.
"""

_CHECKS = np.array([n_checks for n_checks, _, _ in ACTIONS])
_P_RIGHT = np.array(RIGHT)[_CHECKS]
_N_QUESTIONS, _BATCH_OF_ANSWERS = 60, 64
_MAX_ROWS = 50  # recorded steps of a run

Scorer = Callable[[list[str], list[str]], ArrayLike]


def optimize(
    scorer: Scorer,
    *,
    steps: int = 300,
    kl: float = 0.1,
    learning_rate: float = 0.1,
    seed: int = 0,
) -> pd.DataFrame:
    """Let a policy chase the reward of a scorer by policy gradient (REINFORCE).

    The writer has EFFORT units for an answer: each goes into checking the claim or into
    one more sentence; Markdown and an assurance cost nothing. The policy is a
    probability for each of ACTIONS, at first equal. A step follows the gradient of the
    reward minus `kl` * log(policy / first policy) on 64 answers; the reward is in
    standard deviations of the first policy's.

    Parameters
    ----------
    scorer : callable
        A scorer of prompts and responses, such as `rmlab.classifier` returns.
    steps : int
        Number of steps.
    kl : float
        Price of a nat of distance from the first policy.
    learning_rate : float
        Size of a step.
    seed : int
        Seed of the questions and of the answers drawn.

    Returns
    -------
    DataFrame
        One row per recorded step, from 0: step, proxy (mean reward), true (share of
        right claims), kl (nats from the first policy), checks (mean number), all
        expected under the policy of that step.

    Raises
    ------
    DataError
        If the scores of all answers are equal or missing.

    References
    ----------
    Williams (1992), Simple statistical gradient-following algorithms for connectionist
    reinforcement learning.
    """
    rewards = _reward_answers(scorer, seed)
    rng = np.random.default_rng([seed, 3])
    logits = np.zeros(len(ACTIONS))
    records = [_expectation(0, softmax(logits), rewards)]
    for step in range(1, steps + 1):
        policy = softmax(logits)
        action = rng.choice(len(ACTIONS), _BATCH_OF_ANSWERS, p=policy)
        question = rng.integers(_N_QUESTIONS, size=_BATCH_OF_ANSWERS)
        right = (rng.random(_BATCH_OF_ANSWERS) < _P_RIGHT[action]).astype(int)
        reward = rewards[question, action, right] - kl * np.log(
            policy[action] * len(ACTIONS)
        )
        advantage = reward - reward.mean()
        gradient = (
            np.bincount(action, advantage, minlength=len(ACTIONS))
            - policy * advantage.sum()
        )
        logits += learning_rate * gradient / _BATCH_OF_ANSWERS * len(ACTIONS) ** 0.5
        if step % max(1, steps // _MAX_ROWS) == 0:
            records.append(_expectation(step, softmax(logits), rewards))
    return pd.DataFrame(records)


def _reward_answers(scorer: Scorer, seed: int) -> Floats:
    """Return the standardised reward of every possible answer, questions x actions x
    (wrong, right).
    """
    prompts: list[str] = []
    responses: list[str] = []
    for number in range(_N_QUESTIONS):
        rng = np.random.default_rng([seed, number, 2])
        topic, prompt, right_claim, wrong_claims = _draw_question(number, rng)
        claims = (wrong_claims[rng.integers(len(wrong_claims))], right_claim)
        for n_checks, markdown, sure in ACTIONS:
            sentences = _draw_sentences(topic, EFFORT - n_checks, sure, rng)
            responses += [
                _write_answer(claim, sentences, "markdown" if markdown else "plain")
                for claim in claims
            ]
        prompts += [prompt] * (2 * len(ACTIONS))
    scores = np.asarray(scorer(prompts, responses), dtype=float).reshape(
        _N_QUESTIONS, len(ACTIONS), 2
    )
    probability = np.stack([1 - _P_RIGHT, _P_RIGHT], axis=1) / len(ACTIONS)
    mean = (scores * probability).sum((1, 2)).mean()
    deviation = np.sqrt(((scores - mean) ** 2 * probability).sum((1, 2)).mean())
    if not deviation > 0:
        raise DataError(
            "scorer: the scores of all answers are equal or missing; pass a scorer that tells texts apart"
        )
    rewards: Floats = (scores - mean) / deviation
    return rewards


def _expectation(step: int, policy: Floats, rewards: Floats) -> dict[str, float]:
    """Return the row of a run: expectations under the policy."""
    mean_rewards = (rewards[..., 0] * (1 - _P_RIGHT) + rewards[..., 1] * _P_RIGHT).mean(
        0
    )
    return {
        "step": step,
        "proxy": float(policy @ mean_rewards),
        "true": float(policy @ _P_RIGHT),
        "kl": float(policy @ np.log(policy * len(ACTIONS))),
        "checks": float(policy @ _CHECKS),
    }


# ---------------------------------------------------------------------------------------------------------------------
# Exercises. The docstring of each diagnosis is the lesson that `check` prints for a
# right answer.

Answer = TypeVar("Answer")
Function = Callable[..., ArrayLike]


@dataclass(frozen=True)
class Exercise:
    """A question of the course: the answer it `wants`, its `kind` (None: a function),
    `lesson` and finder of faults; and right answers to earlier questions by the names
    that an answer may call.
    """

    wants: str
    kind: type | None
    lesson: str
    diagnose: Callable[[Any], str | None]
    earlier: Mapping[str, Callable[..., object]]


EXERCISES: dict[str, Exercise] = {}
"""The exercises by number, "1.1" to "6.4"."""


@dataclass(frozen=True)
class Verdict:
    """What `check` says of an answer: whether it is `right`, and `why` or why not."""

    exercise: str
    right: bool
    why: str

    def __repr__(self) -> str:
        return f"{self.exercise}: {'right' if self.right else 'not yet'}. {self.why}"


class Unsolved(NotImplementedError):
    """An exercise without an answer. Jupyter shows the message alone: IPython asks an
    exception for its traceback.
    """

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def todo(task: str) -> NoReturn:
    """Stand where a solution belongs and name the task.

    Parameters
    ----------
    task : str
        The task of the student.

    Raises
    ------
    Unsolved
        Always; Jupyter shows its message without a traceback.
    """
    raise Unsolved(
        f"Your turn: {task}. Replace this line by your answer, then run the cell again."
    )


def check(exercise: str, answer: object) -> Verdict:
    """Say whether an answer solves an exercise, and why not, without giving the
    solution away.

    Parameters
    ----------
    exercise : str
        Number of the exercise, "1.1" to "6.4".
    answer : object
        A value or a function, as the exercise wants. A function is tried on small
        examples; its errors are reported, never raised.

    Returns
    -------
    Verdict
        `right` and `why`.

    Raises
    ------
    DataError
        If there is no such exercise.

    Examples
    --------
    >>> check("2.1", 0.25)
    2.1: not yet. At 0.25 Markdown is worth 0.5 of being right.
    """
    if exercise not in EXERCISES:
        raise DataError(
            f"exercise={exercise!r} is not in the course; choose one of {', '.join(EXERCISES)}"
        )
    question = EXERCISES[exercise]
    fault = _find_fault(question, answer)
    if fault is not None and question.earlier and isinstance(answer, FunctionType):
        # A wrong answer to an earlier question does not make this one wrong.
        names = {**answer.__globals__, **question.earlier}
        with_right_ones = FunctionType(
            answer.__code__,
            names,
            answer.__name__,
            answer.__defaults__,
            answer.__closure__,
        )
        if _find_fault(question, with_right_ones) is None:
            fault = None
    return Verdict(exercise, fault is None, question.lesson if fault is None else fault)


def _find_fault(question: Exercise, answer: object) -> str | None:
    """What is wrong with an answer, an error in it included."""
    fits = (
        isinstance(answer, question.kind) and not isinstance(answer, bool)
        if question.kind
        else callable(answer)
    )
    if not fits:
        return f"This exercise wants {question.wants}; you gave {type(answer).__name__} {answer!r:.60}."
    try:
        return question.diagnose(answer)
    except NotImplementedError as stub:
        return str(stub)
    except Exception as error:
        return f"Your answer stopped with {type(error).__name__}: {error}"


def _exercise(
    number: str,
    wants: str,
    kind: type | None = None,
    **earlier: Callable[..., object],
) -> Callable[[Callable[[Answer], str | None]], None]:
    """Register the diagnosis of answers to an exercise: the fault of an answer of
    `kind`, None for a right one. `earlier`: right answers to earlier exercises.
    """

    def register(diagnose: Callable[[Answer], str | None]) -> None:
        explanation = " ".join((diagnose.__doc__ or "").split())
        EXERCISES[number] = Exercise(wants, kind, explanation, diagnose, earlier)

    return register


def _explain(
    result: ArrayLike,
    expected: ArrayLike,
    mistakes: Mapping[str, ArrayLike],
    otherwise: str,
) -> str | None:
    """Return None for the expected result, the hint of the mistake that gives this
    result, or the general hint.
    """
    if _match(result, expected):
        return None
    return next(
        (hint for hint, mistaken in mistakes.items() if _match(result, mistaken)),
        otherwise,
    )


def _match(result: ArrayLike, value: ArrayLike) -> bool:
    if isinstance(value, str):
        return bool(result == value)
    return np.shape(result) == np.shape(value) and np.allclose(
        np.asarray(result, float), np.asarray(value), rtol=1e-4, atol=1e-4
    )


_A, _B = np.array([2.0, 0.5, -1.0]), np.array([1.0, 0.5, 3.0])
_P_A = np.exp(_A) / (np.exp(_A) + np.exp(_B))
_OUTCOMES = np.array(
    [[1, 1, 1], [0, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]], dtype=float
)


@_exercise("1.1", "a function of two rewards")
def _diagnose_preference(answer: Function) -> str | None:
    """Only their difference counts; equal rewards are a coin toss."""
    mistakes = {
        "The answer of reward 2 loses to that of reward 1: which of them do you subtract?": 1
        - _P_A,
        "This is the difference of the rewards; a probability lies between 0 and 1.": _A
        - _B,
    }
    otherwise = "Only the difference of the rewards may matter, and equal rewards have equal chances; check the curve."
    return _explain(answer(_A, _B), _P_A, mistakes, otherwise)


@_exercise(
    "1.2",
    "a function of the chosen and the rejected rewards",
    preference=lambda a, b: expit(np.subtract(a, b)),
)
def _diagnose_loss(answer: Function) -> str | None:
    """The mean of -log sigmoid(chosen - rejected): sure and wrong costs most."""
    losses = -np.log(_P_A)
    mistakes = {
        "This grows with the number of comparisons: average instead of adding up.": losses.sum(),
        "Your loss gets smaller the worse the model is: mind the sign.": -losses.mean(),
        "This is the mean chance of an error. A likelihood takes the logarithm first.": (
            1 - _P_A
        ).mean(),
    }
    return _explain(
        answer(_A, _B),
        losses.mean(),
        mistakes,
        "Of each probability of 1.1 the log, then the mean.",
    )


@_exercise("1.3", "a function of the chosen and the rejected rewards")
def _diagnose_accuracy(answer: Function) -> str | None:
    """RM-Bench counts an answer as right only where it scores strictly higher."""
    mistakes = {
        "The second pair is a tie. RM-Bench wants the right answer strictly above the wrong one.": 2
        / 3,
        "This is how many are right; give their share.": 1,
    }
    otherwise = "Of three pairs with rewards (2, 1), (0.5, 0.5), (-1, 3) one is right."
    return _explain(answer(_A, _B), 1 / 3, mistakes, otherwise)


@_exercise("2.1", "a number from 0 to 1", Real)
def _diagnose_tipping_point(answer: float) -> str | None:
    """At 0.5 Markdown is worth as much as the truth."""
    return _explain(
        answer,
        1 / FULL,
        {},
        f"At {answer:g} Markdown is worth {FULL * answer:g} of being right.",
    )


@_exercise("2.2", "a function of a 3x3 matrix")
def _diagnose_hard(answer: Function) -> str | None:
    """Hard: plain and right against fancy and wrong."""
    mistakes = {
        "These cells are easy: the right answer is the fancier one.": (0.7 + 0.95 + 0.9)
        / 3,
        "The diagonal is normal: both answers have the same style. Leave it out.": (
            0.5 + 0.6 + 0.65 + 0.9
        )
        / 6,
        "Average the cells instead of adding them up.": 0.9,
    }
    otherwise = (
        "Rows are right answers, columns wrong ones, both from concise to Markdown."
    )
    cells = [[0.5, 0.4, 0.3], [0.7, 0.6, 0.2], [0.95, 0.9, 0.65]]
    matrix = pd.DataFrame(cells, index=list(STYLES), columns=list(STYLES))
    return _explain(answer(matrix), (0.4 + 0.3 + 0.2) / 3, mistakes, otherwise)


@_exercise(
    "2.3", "a tuple of two styles, the right answer's and the wrong one's", tuple
)
def _diagnose_cell(answer: tuple[object, ...]) -> str | None:
    """A preference for Markdown shows where only the wrong answer has it."""
    if len(answer) != 2 or not {*answer} <= {*STYLES}:
        return f"Name two of the styles {', '.join(STYLES)}: first the right answer's, then the wrong one's."
    chosen, rejected = answer
    if chosen == rejected:
        return "Both answers have the same style here: the dial favours neither."
    if chosen == "markdown":
        return "Here the right answer is in Markdown: the dial helps it."
    return (
        None
        if rejected == "markdown"
        else "Neither answer is in Markdown here, and only that dial is turned."
    )


@_exercise("3.1", "a function of an array of outcomes (prompts, comparisons)")
def _diagnose_standard_error(answer: Function) -> str | None:
    """Comparisons of one prompt rise and fall together: the prompt is the independent
    unit.
    """
    means = np.array([1, 0, 2 / 3, 2 / 3, 1])
    mistakes = {
        "This takes 15 comparisons for independent; they are 5 prompts.": _OUTCOMES.std(
            ddof=1
        )
        / 15**0.5,
        "Nearly: with so few prompts divide the squares by n - 1 (ddof=1).": means.std()
        / 5**0.5,
        "This is how far prompts spread; how far does their mean?": means.std(ddof=1),
    }
    otherwise = "Take each prompt's mean first, then the standard error of these means."
    return _explain(
        answer(_OUTCOMES.copy()),
        (np.sum((means - 2 / 3) ** 2) / 4 / 5) ** 0.5,
        mistakes,
        otherwise,
    )


@_exercise("3.2", "a function of the limits low and high of the difference a - b")
def _diagnose_conclusion(answer: Function) -> str | None:
    """An interval that holds zero leaves open who is better; it does not show that both
    are equal.
    """
    for limits, expected in (
        ((0.01, 0.05), "a"),
        ((-0.05, -0.01), "b"),
        ((-0.02, 0.06), "open"),
    ):
        where = (
            "holds zero: either sign fits the data"
            if expected == "open"
            else "lies on one side of zero"
        )
        conclusion = answer(*limits)
        if conclusion != expected:
            return f"The interval {limits} of a - b {where}, and you say {conclusion!r}; answer 'a', 'b' or 'open'."
    return None


@_exercise("3.3", "a number", Real)
def _diagnose_exchange_rate(answer: float) -> str | None:
    """To these annotators Markdown is worth as much as being right. The model may have
    learned less.
    """
    mistakes = {
        "0.5 is the setting of the dial. What is an answer's Markdown worth at that setting?": 0.5,
        "This is the worth at the full setting; the dial stands in the middle.": FULL,
    }
    return _explain(
        answer,
        1.0,
        mistakes,
        "The worth is 2 times the setting, in units of being right.",
    )


@_exercise("4.1", "a function of a table of preferences")
def _diagnose_balanced(answer: Callable[[pd.DataFrame], pd.DataFrame]) -> str | None:
    """Between two answers of one style, a preference for Markdown decides nothing."""
    pairs = preferences(60, markdown=1.0)
    first_style, second_style = pairs["style"].astype(str).to_numpy().reshape(60, 2).T
    ids_of_one_style = np.flatnonzero(first_style == second_style).repeat(2)
    ids_of_two_styles = np.flatnonzero(first_style != second_style).repeat(2)
    mistakes = {
        "Nothing was left out.": np.arange(60).repeat(2),
        "These are the comparisons of different styles, in which style can decide.": ids_of_two_styles,
    }
    otherwise = f"{len(ids_of_one_style) // 2} comparisons have one style: keep both rows of these ids, and no others."
    return _explain(
        np.sort(answer(pairs.copy())["id"].astype(int)),
        ids_of_one_style,
        mistakes,
        otherwise,
    )


@_exercise("4.2", "a function of scores and lengths")
def _diagnose_residual(answer: Function) -> str | None:
    """What is left has no straight-line relation to length; a bent one can remain."""
    rng = np.random.default_rng(0)
    length = rng.uniform(5, 60, 200)
    scores = 1.5 + 0.08 * length + rng.standard_normal(200)
    residual = np.asarray(answer(scores, length), dtype=float)
    slope = np.cov(scores, length)[0, 1] / length.var(ddof=1)
    expected = scores - scores.mean() - slope * (length - length.mean())
    correlation = np.corrcoef(residual, length)[0, 1]
    otherwise = f"Subtract what a straight line predicts: your result's correlation with length is {correlation:.2f}."
    return _explain(residual - residual.mean(), expected, {}, otherwise)


@_exercise("4.3", 'one of "bias", "signal", "both"', str)
def _diagnose_removal(answer: str) -> str | None:
    """A regression on scores cannot tell a length bias from length that comes with
    quality: it removes both.
    """
    mistakes = {
        "Where right answers really are longer, part of the score's rise with length is earned. Does it stay?": "bias",
        "The model's length bias is in that slope as well.": "signal",
    }
    return _explain(answer, "both", mistakes, 'Answer "bias", "signal" or "both".')


@_exercise("5.1", "a function of n")
def _diagnose_nats(answer: Function) -> str | None:
    """Best-of-n costs few nats: at n = 64 at most 3.2."""
    logs, parts = [0.0, 2 * np.log(2), 6 * np.log(2)], [0.0, 3 / 4, 63 / 64]
    mistakes = {
        "The logarithm alone is too much: at n = 4 the bound is 0.636.": logs,
        "This is the part that is taken off. From what?": parts,
    }
    nats = [float(np.asarray(answer(n))) for n in (1, 4, 64)]
    return _explain(
        nats,
        np.subtract(logs, parts),
        mistakes,
        "From log(n) something below 1 is taken off.",
    )


@_exercise("5.2", "a function of rewards (questions, candidates)")
def _diagnose_best(answer: Function) -> str | None:
    """One candidate per question: the one that the reward likes best, whatever it is
    worth.
    """
    mistakes: dict[str, ArrayLike] = {
        "You chose among questions; choose among the candidates of each question (axis=1).": [
            1,
            0,
            0,
        ],
        "These are the best rewards; say which candidate has them.": [0.9, 2.0],
        "These are the candidates that the reward likes least.": [0, 1],
    }
    rewards = np.array([[0.1, 0.9, 0.3], [2.0, -1.0, 0.0]])
    return _explain(
        answer(rewards),
        [1, 0],
        mistakes,
        "Give the places, from 0, of the best candidates.",
    )


@_exercise("5.3", "a function of the table of course.optimize")
def _diagnose_stop(answer: Function) -> str | None:
    """The proxy never says when to stop; only a look at the truth does."""
    run = pd.DataFrame(
        {
            "step": [0, 50, 100, 150],
            "proxy": [0.0, 0.9, 0.7, 0.8],
            "true": [0.6, 0.55, 0.65, 0.4],
        }
    )
    mistakes = {
        "At this step the proxy is highest, which is what the policy chases anyway.": 50,
        "This is the last step: the truth has fallen by then.": 150,
        "This is the row; give the step.": 2,
    }
    return _explain(
        answer(run),
        100,
        mistakes,
        "Look for the step with the largest share of right claims.",
    )


@_exercise("6.1", "a function of the published table")
def _diagnose_below_chance(answer: Function) -> str | None:
    """Chance is one half: below it the right answer mostly fails to win."""
    mistakes = {
        "This is their share; how many are they?": 2 / 3,
        "A model at exactly one half is not below chance.": 3,
        "Which column holds the comparisons where style speaks for the wrong answer?": 1,
    }
    table = pd.DataFrame(
        {"easy": [0.9, 0.4, 0.8], "normal": [0.7, 0.5, 0.6], "hard": [0.3, 0.45, 0.5]}
    )
    return _explain(
        answer(table),
        2,
        mistakes,
        "Count the rows whose hard accuracy is below one half.",
    )


@_exercise("6.2", "a function of the table of rmlab.rank")
def _diagnose_first(answer: Function) -> str | None:
    """One row is printed first; the data leave open which of these is."""
    mistakes = {
        "The printed first is one of them; whose set of ranks reaches to 1 as well?": 1,
        "rank_high is the worst rank that fits the data; the best is in another column.": 0,
        "Not all of them: the last cannot be better than third.": 4,
    }
    ranks = {
        "model": list("wxyz"),
        "rank": [1, 2, 3, 4],
        "rank_low": [1, 1, 1, 3],
        "rank_high": [2, 3, 4, 4],
    }
    return _explain(
        answer(pd.DataFrame(ranks)),
        3,
        mistakes,
        "Count the models whose ranks reach from 1.",
    )


@_exercise("6.3", 'one of "short", "long", "markdown"', str)
def _diagnose_sum(answer: str) -> str | None:
    """Each further token multiplies by a probability below one: a sum can only fall
    with length.
    """
    if answer not in ("short", "long", "markdown"):
        return 'Answer "short", "long" or "markdown".'
    return None if answer == "short" else "Each token adds a negative number."


@_exercise("6.4", "a function of the outcomes of one model")
def _diagnose_decided(answer: Function) -> str | None:
    """A tie is no choice and a missing outcome no answer: neither is a loss."""
    mistakes = {
        "Ties and missing outcomes stand in the denominator, as losses do.": 3 / 10,
        "A missing outcome is no loss; a tie is none, either.": 3 / 8,
        "This counts a tie as half a win; leave ties out.": 4.5 / 8,
        "This counts ties as wins.": 6 / 8,
    }
    outcomes = pd.Series(["win"] * 3 + ["tie"] * 3 + ["loss"] * 2 + [None] * 2)
    return _explain(
        answer(outcomes),
        3 / 5,
        mistakes,
        "Wins, as a share of wins and losses.",
    )
