"""What a scorer is: the base classes of scorers and of scorers of comparisons, and
wrapped functions.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b, sha256
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from rmlab import tables
from rmlab.findings import Finding
from rmlab.tables import DataError, require_text

Ints = NDArray[np.intp]
Ids = NDArray[np.int32]
Floats = NDArray[np.float64]
# A row per text: its score, then the scorer's columns and hidden columns. Of floats, or
# of objects where these are words or lists.
Rows = NDArray[np.float64] | NDArray[np.object_]

# A question, or the messages before the answer: a list of {"role": ..., "content":
# ...}.
Prompt = str | list[dict[str, Any]]

# Plain values that JSON can hold: what scored the texts.
Provenance = dict[str, object]

# Raised by whoever moves the score that a model gives a text, so that no store returns
# the old one (tests/test_recorded_scores.py says when).
SCORING_VERSION = 2

# The verdict on a text whose replies are stored and say nothing that can be read.
UNPARSABLE = "unparsable"

# Positions of texts and their scores, batch by batch.
Stream = Iterator[tuple[Ints, Rows]]

# A function of (prompts, responses), or a scorer.
PlainScorer = Callable[..., ArrayLike]


@dataclass(frozen=True)
class Text:
    """A prompt with one answer, with two that are compared in this order, or with all
    of its answers, the scored one first.
    """

    prompt: Prompt
    answers: tuple[str, ...]

    @cached_property
    def key(self) -> str:
        """Hash of the content: a store finds the text's score by it."""
        content = (self.prompt, *self.answers)
        body = json.dumps(content, ensure_ascii=False, sort_keys=True)
        encoded = body.encode("utf-8", "surrogatepass")
        return blake2b(encoded, digest_size=16).hexdigest()


def list_columns(texts: Sequence[Text]) -> tuple[list[Prompt], *tuple[list[str], ...]]:
    """Return the prompts, and a column for each of their answers."""
    prompts = [text.prompt for text in texts]
    answers = zip(*(text.answers for text in texts), strict=True)
    return prompts, *map(list, answers)


class Scorer(ABC):
    """Scores texts in batches of its own choice; base class of models and servers.

    A function of (prompts, responses), or an object with a `name` and such a call, is a
    scorer without this class. A score is a number, higher is better; NaN means "no
    score" and is refused unless the caller allows it.

    Attributes
    ----------
    name : str
        The model's name in every table.
    columns : tuple of str
        Names of further values that `stream` gives of each text behind its score.
    hidden_columns : tuple of str
        Names of values behind the columns that a store keeps and no table shows. A text
        without a score is stored if its first hidden value is not None.
    has_objects : bool
        Whether columns or hidden columns hold words or lists; the rows of `stream` are
        then arrays of objects.
    lists_answers : bool
        Whether a text has all answers to its prompt, the scored one first.
    by_subset : mapping of str to Scorer
        Scorers of some subsets of a benchmark, by the subset's name.
    """

    name: str
    columns: tuple[str, ...] = ()
    hidden_columns: tuple[str, ...] = ()
    has_objects: bool = False
    lists_answers: ClassVar[bool] = False
    by_subset: "Mapping[str, Scorer]" = MappingProxyType({})
    # Weights and scorers of a score that is a weighted sum, each stored by itself.
    terms: "Sequence[tuple[float, Scorer]]" = ()
    # Whether copies may score on other machines.
    travels: ClassVar[bool] = True
    # What the last `stream` counted: numbers and Counters, which add up over workers.
    counts: Mapping[str, Any] = MappingProxyType({})
    # Why texts of the last `stream` have no score, by their positions, where it knows.
    unscored: Mapping[int, str] = MappingProxyType({})

    @cached_property
    def fingerprint(self) -> str | None:
        """Changes with everything that changes a score; None: the scores cannot be
        stored.
        """
        return None

    @abstractmethod
    def stream(self, texts: Sequence[Text], /) -> Stream:
        """Yield positions in `texts` and their scores, each position once, in any
        order.

        The scores of a batch have shape (n,), or (n, 1 + columns + hidden columns).
        """

    def score_alone(self, texts: Sequence[Text], /) -> Floats | None:
        """Return the scores of the texts, each computed by itself, for a self-check;
        None if scores cannot depend on the batch.
        """
        return None

    def count_cut(self, texts: Sequence[Text], /) -> Provenance:
        """Return how many of a run's texts were cut; asked where some of their scores
        were in the store, or came from workers.
        """
        return {}

    def checks(
        self, responses: pd.DataFrame, sample: int = 24, /
    ) -> Iterator[tuple[str, Finding]]:
        """Yield the name and the finding of each check before a long run over
        `responses`; about `sample` of them are scored.
        """
        # It builds on this class.
        from rmlab.scorers.score_checks import examine_scores

        return examine_scores(self, responses, sample)

    def token_ids(self, texts: Sequence[Text], /) -> list[Ids] | None:
        """Return the token ids of the texts; None where they are not written here."""
        return None

    # Most scorers need not look.
    def require_like(  # noqa: B027
        self, runs: Iterable[Mapping[str, object]], /
    ) -> None:
        """Raise DataError where the runs that a store has were of other weights under
        the same fingerprint.
        """

    def restore(self, texts: Sequence[Text], rows: list[Rows], /) -> list[Rows]:
        """Return the rows of texts, from those that a store has; called once a run,
        before `stream`.
        """
        return rows

    def free_memory(self) -> None:  # noqa: B027  # most scorers have no memory to free
        """Leave the device, if another model needs its memory."""

    def provenance(self) -> Provenance:
        """Return where the scores come from, as plain values."""
        return {}

    def __call__(
        self, prompts: Sequence[Prompt], responses: Sequence[str], /
    ) -> Floats:
        """Return the scores of `responses` to `prompts`, shape (n,)."""
        require_one_of_each(prompts, responses)
        texts = [
            Text(prompt, (response,))
            for prompt, response in zip(prompts, responses, strict=True)
        ]
        return gather_scores(self, texts)


class PairScorer(Scorer):
    """Compares two answers, for `rmlab.prefer`: `stream` gives texts of two answers a
    margin.

    An object with a `name` and `prefer(prompts, first, second)` is one without this
    class. A margin is above 0 where the answer written first is better, and 0 for a
    tie.

    Attributes
    ----------
    both_orders : bool
        Whether each comparison is asked in both orders, which `average` makes one
        margin.
    """

    both_orders = True

    def average(self, forward: Floats, exchanged: Floats, /) -> Floats:
        """Return the margins, from those of both orders; positive for the answer that
        is first in `forward`.
        """
        return (forward - exchanged) / 2

    def compare(self, forward: Rows, exchanged: Rows | None, /) -> dict[str, ArrayLike]:
        """Return the columns of the pairs, from the rows of `stream` in both orders, or
        in the only one.
        """
        margin = forward[:, 0].astype(np.float64)
        if exchanged is not None:
            margin = self.average(margin, exchanged[:, 0].astype(np.float64))
        return {"margin": margin, "outcome": tables.outcome(margin)}

    def prefer(
        self, prompts: Sequence[Prompt], first: Sequence[str], second: Sequence[str], /
    ) -> Floats:
        """Return the margin of each comparison, shape (n,)."""
        require_one_of_each(prompts, first, second)
        rows = list(zip(prompts, first, second, strict=True))
        texts = [Text(prompt, (left, right)) for prompt, left, right in rows]
        if not self.both_orders:
            return gather_scores(self, texts)
        texts += [Text(prompt, (right, left)) for prompt, left, right in rows]
        forward, exchanged = gather_scores(self, texts).reshape(2, -1)
        return self.average(forward, exchanged)

    def __call__(
        self, prompts: Sequence[Prompt], responses: Sequence[str], /
    ) -> Floats:
        """Raise TypeError: single answers have no margin."""
        raise TypeError(
            f"scorer {self.name!r} compares two answers: use rmlab.prefer, or its "
            "method prefer"
        )


class _Called(Scorer):
    """A function of columns of texts, `batch` texts a call; all at once without."""

    def __init__(
        self, model: object, function: Callable[..., ArrayLike], batch: int | None
    ) -> None:
        self.model = model
        self.function = function
        self.batch = batch
        self.name = name_of(model)
        self.fingerprint = getattr(model, "fingerprint", None) or None

    def stream(self, texts: Sequence[Text], /) -> Stream:
        size = self.batch or max(len(texts), 1)
        for start in range(0, len(texts), size):
            part = texts[start : start + size]
            scores = self.function(*list_columns(part))
            rows = np.arange(start, start + len(part))
            # Whoever stores the scores checks them.
            yield rows, scores  # type: ignore[misc]

    def provenance(self) -> Provenance:
        code = self.model if hasattr(self.model, "__qualname__") else type(self.model)
        details = self.model.provenance() if hasattr(self.model, "provenance") else {}
        return {"scorer": f"{code.__module__}.{code.__qualname__}", **details}


class _CalledPairs(_Called, PairScorer):
    """The same for a function `prefer`, which is asked in one order."""

    both_orders = False


def as_scorer(model: object, batch: int | None = None) -> Scorer:
    """Return the scorer itself, or a function or an object with a name and a call in
    the form of one.

    >>> def brevity(prompts, responses):
    ...     return [-len(response) for response in responses]
    >>> as_scorer(brevity).name, as_scorer(brevity)(["Hi"], ["Hello"]).tolist()
    ('brevity', [-5.0])
    """
    if isinstance(model, Scorer) and not isinstance(model, PairScorer):
        return model
    name = name_of(model)
    if isinstance(model, PairScorer) or not callable(model):
        problem = f"scorer {name!r} cannot be called with (prompts, responses)"
        if hasattr(model, "prefer"):
            problem += "; it compares two answers: use rmlab.prefer"
        raise TypeError(problem)
    return _Called(model, model, batch)


def as_pair_scorer(model: object, batch: int | None = None) -> PairScorer:
    """Return the scorer itself, or an object with a name and `prefer` in the form of
    one.
    """
    if isinstance(model, PairScorer):
        return model
    name = name_of(model)
    prefer = getattr(model, "prefer", None)
    if not callable(prefer):
        raise TypeError(
            f"scorer {name!r} has no prefer(prompts, first, second); use rmlab.score "
            "for single texts"
        )
    return _CalledPairs(model, prefer, batch)


def name_of(model: object) -> str:
    """Return its `name`, or a function's `__name__`."""
    name = getattr(model, "name", None) or getattr(model, "__name__", None)
    if not isinstance(name, str):
        if hasattr(model, "save_pretrained"):
            raise TypeError(
                f"model: {type(model).__name__} is a model in memory; pass "
                "rmlab.classifier(model, tokenizer), or rmlab.implicit_reward(model, "
                "tokenizer=...) for a language model"
            )
        raise TypeError(
            f"model: {type(model).__name__} is not a scorer; allowed: a baseline's "
            "name, a model id, a folder, a function of (prompts, responses)"
        )
    require_text("name", name)
    return name


def require_one_of_each(prompts: Sequence[Prompt], *answers: Sequence[object]) -> None:
    """Raise TypeError for a string in place of a list, and ValueError unless there is
    one of each answer for each prompt.
    """
    for texts in (prompts, *answers):
        if isinstance(texts, str):
            raise TypeError(f"{texts[:60]!r} is one text; pass a list of texts")
    lengths = [len(texts) for texts in answers]
    if any(length != len(prompts) for length in lengths):
        counts = " and ".join(map(str, lengths))
        raise ValueError(f"{len(prompts)} prompts, {counts} answers; give one of each")


def hash_parts(parts: Mapping[str, object] | Sequence[object]) -> str:
    """Return a hash of everything that decides a score."""
    body = json.dumps(parts, sort_keys=True, default=str)
    return sha256(body.encode()).hexdigest()[:32]


def collect_scores(scorer: Scorer, texts: Sequence[Text]) -> Floats:
    """Return the scores in the order of the texts; NaN where there is none."""
    batches = (
        (positions, check_rows(values, len(positions), scorer, scorer.name))
        for positions, values in scorer.stream(texts)
    )
    return fill(batches, len(texts))


def gather_scores(scorer: Scorer, texts: Sequence[Text]) -> Floats:
    """Return the scores in the order of the texts; raise DataError where one is not
    finite.
    """
    scores = collect_scores(scorer, texts)
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        first = int(bad[0])
        problem = (
            f"model={scorer.name!r}: {len(bad)} of {len(scores)} scores are NaN or "
            f"infinite (first, text {first}: {texts[first].answers[0][:60]!r})"
        )
        remedy = "half precision overflows: score with dtype='float32'"
        reason = scorer.unscored.get(first)
        if reason:
            problem += f": {reason}"
            remedy = "fix the cause named above, or leave these texts out"
        raise DataError(problem, remedy)
    return scores


def check_rows(values: ArrayLike, n: int, scorer: Scorer, title: str) -> Rows:
    """Return the score and the further values of `n` texts, a row each; raise DataError
    for another shape.
    """
    names = [*scorer.columns, *scorer.hidden_columns]
    array = np.asarray(values)
    shape = (n, 1 + len(names)) if names else (n,)
    if array.shape == shape and array.dtype.kind == "O" and scorer.has_objects:
        return array
    if array.shape != shape or array.dtype.kind not in "biuf":
        raise DataError(
            f"scorer {title!r}: returned {array.dtype} values of shape {array.shape} "
            f"for {n} texts, {array.tolist()!r:.60}. Allowed: numbers of shape {shape} "
            f"(the score{', '.join(['', *names])}), NaN where there is no score."
        )
    return array.astype(np.float64).reshape(n, 1 + len(names))


def fill(batches: Iterable[tuple[Ints, Rows]], n: int) -> Floats:
    """Return the scores of `n` texts in their order, without further columns; NaN where
    none came.
    """
    scores = np.full(n, np.nan)
    for positions, values in batches:
        rows = np.asarray(values)
        scores[positions] = rows if rows.ndim == 1 else rows[:, 0]
    return scores
