"""One model's turn over texts: which are to be scored, and checked batches of their scores."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rmlab.records import __version__
from rmlab.scorers import guards
from rmlab.scorers.protocol import AnyScorer
from rmlab.scorers.types import Prompt, Provenance
from rmlab.scoring.texts import Texts
from rmlab.tables import DataError

__all__ = ["CalledScorer", "Prepared", "Turn", "prepare"]

Numbers = NDArray[np.intp]
Floats = NDArray[np.float64]
Value = float | list[float]
"""A score, or the score and then one value for each column of a scorer that rates attributes."""


@dataclass(frozen=True)
class CalledScorer:
    """A function of prompts and answers in the form of a scorer that streams, `batch` texts a call."""

    function: Callable[..., ArrayLike]
    batch: int

    def prepare(self, prompts: Sequence[Prompt], *answers: Sequence[str]) -> tuple[Sequence[object], ...]:
        """The columns that the function takes."""
        return prompts, *answers

    def stream(self, columns: tuple[Sequence[object], ...], todo: Numbers) -> Iterator[tuple[Numbers, ArrayLike]]:
        """Call after call."""
        for start in range(0, len(todo), self.batch):
            numbers = todo[start : start + self.batch]
            yield numbers, self.function(*([column[i] for i in numbers] for column in columns))


@dataclass(frozen=True)
class Prepared:
    """Texts in the scorer's own form, and what scoring needs of them.

    `terms`: weights and models whose weighted sum is the score. `order`: text numbers, neighbours side by side.
    """

    scorer: AnyScorer
    texts: Texts
    content: Any
    keys: list[str]
    order: Numbers
    terms: list[tuple[float, Any]]

    def first_numbers(self, stored: Mapping[str, object]) -> Numbers:
        """The first text of each key that is not stored, in order."""
        first: dict[str, int] = {}
        for number in self.order.tolist():
            first.setdefault(self.keys[number], number)
        return np.array([number for key, number in first.items() if key not in stored], np.intp)


def prepare(name: str, scorer: AnyScorer, texts: Texts, batch: int) -> Prepared:
    """Texts made ready for a scorer: tokens of a model, or columns for a function."""
    order = np.argsort(texts.groups, kind="stable")
    if not guards.is_streaming(scorer):
        function = scorer.prefer if len(texts.answers) > 1 else scorer  # type: ignore[union-attr]
        called = CalledScorer(function, batch)  # type: ignore[arg-type]
        content = called.prepare(texts.prompts, *texts.answers)
        return Prepared(scorer, texts, content, texts.content_keys(), order, [(1.0, called)])
    content = scorer.prepare(texts.prompts, *texts.answers)
    keys = list(content.keys)
    if len(keys) != len(texts):
        raise DataError(f"scorer {name!r}: prepare gave {len(keys)} keys for {len(texts)} texts. Give one per text.")
    terms = list(scorer.terms) if guards.is_sum(scorer) else []
    order = guards.order_of(content, order)
    return Prepared(scorer, texts, content, keys, order, terms if len(terms) > 1 else [(1.0, scorer)])


@dataclass
class Turn:
    """One model's turn. `columns`: names of what it gives of each text behind its score.

    `number`: its place among the models that make the score. `scored`: numbers of the texts that were scored;
    `missing`: keys of those without a score.
    """

    name: str
    model: Any
    prepared: Prepared
    columns: Sequence[str]
    allow_missing: bool
    number: int
    fingerprint: str
    scored: set[int] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)

    @property
    def title(self) -> str:
        """The scorer's name, and which of its models this is."""
        n_terms = len(self.prepared.terms)
        return self.name if n_terms == 1 else f"{self.name} (model {self.number + 1} of {n_terms})"

    def describe(self) -> Provenance:
        """Who scores, for the store."""
        scorer = self.prepared.scorer if len(self.prepared.terms) == 1 else self.model
        name = self.name if len(self.prepared.terms) == 1 else self.model.name
        return {"name": name, "rmlab": __version__} | guards.provenance_of(scorer)

    def stream(self, todo: Numbers) -> Iterator[tuple[ArrayLike, ArrayLike]]:
        """Batches as the model gives them."""
        yield from self.model.stream(self.prepared.content, todo)

    def check_batches(
        self, batches: Iterable[tuple[ArrayLike, ArrayLike]], todo: Numbers
    ) -> Iterator[tuple[Numbers, Floats]]:
        """Numbers of texts, and a row for each of them: the score and then the columns. Every text comes once."""
        is_waiting = np.zeros(len(self.prepared.texts), bool)
        is_waiting[todo] = True
        for batch_numbers, batch_values in batches:
            numbers = np.asarray(batch_numbers, np.intp)
            rows = self._as_rows(batch_values, len(numbers))
            if not is_waiting[numbers].all() or len(np.unique(numbers)) != len(numbers):
                raise DataError(f"scorer {self.name!r}: stream gave texts that were not asked for, or gave them twice")
            is_waiting[numbers] = False
            self.scored.update(numbers.tolist())
            yield numbers, rows
        if is_waiting.any():
            first = self.prepared.texts.describe(int(is_waiting.argmax()))
            raise DataError(
                f"scorer {self.name!r}: no score for {is_waiting.sum()} of {len(todo)} texts, first: {first}"
            )

    def records(self, numbers: Numbers, rows: Floats) -> dict[str, Value]:
        """What the store keeps of a batch: rows without a missing number, by key."""
        is_finite = np.isfinite(rows).all(axis=1)
        keys = [self.prepared.keys[number] for number in numbers[is_finite]]
        values: list[Value] = (rows if self.columns else rows[:, 0])[is_finite].tolist()
        return dict(zip(keys, values, strict=True))

    def refuse_missing(self, numbers: Numbers, rows: Floats) -> None:
        """Count texts without a score, or raise DataError where that is not allowed."""
        is_bad = ~np.isfinite(rows).all(axis=1)
        if not is_bad.any():
            return
        if self.allow_missing and not np.isinf(rows).any():
            self.missing.update(self.prepared.keys[number] for number in numbers[is_bad])
            return
        names = "; ".join(self.prepared.texts.describe(number) for number in numbers[is_bad][:3])
        raise DataError(
            f"scorer {self.name!r}: {is_bad.sum()} of {len(rows)} scores are not finite, first "
            f"{rows[is_bad][0][~np.isfinite(rows[is_bad][0])][0]} for: {names}. Look at these texts and the dtype "
            "(float16 overflows), or pass allow_missing=True to count NaN as missing."
        )

    def _as_rows(self, values: ArrayLike, n: int) -> Floats:
        array = np.asarray(values)
        shape = (n, 1 + len(self.columns)) if self.columns else (n,)
        if array.shape != shape:
            content = f"the score and {', '.join(self.columns)}" if self.columns else "one number"
            raise DataError(
                f"scorer {self.name!r}: returned shape {array.shape} for {n} texts. Allowed: {content} per text, "
                f"shape {shape}."
            )
        if array.dtype.kind not in "biuf":
            raise DataError(
                f"scorer {self.name!r}: returned {array.dtype} values, first {array.flat[0]!r:.80}. Allowed: numbers "
                "(float('nan') where there is no score)."
            )
        return array.astype(np.float64).reshape(n, 1 + len(self.columns))
