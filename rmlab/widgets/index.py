"""Scores and responses as arrays: what the explorer filters on, built once."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import tables
from rmlab.benchmarks import benchmark_of
from rmlab.tables import KEY, PROMPT, STYLES, DataError

__all__ = ["Index", "build", "prompt_text"]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Index:
    """Arrays of everything that was scored.

    `texts`: the responses that belong to a scored prompt, prompts together; `score` (models, texts), NaN where a model
    has none; `prompts`: one row per prompt (benchmark, domain, id, subset, prompt). The comparisons of chosen with
    rejected answers are three arrays of the same length: `prompt` (row of `prompts`), `chosen` and `rejected` (rows
    of `texts`); `cell` is 3 * chosen style + rejected style, -1 where a style is missing. `domains_alike` says whether
    the benchmark averages its domains, as `rmlab.matrix` then does.
    """

    models: tuple[str, ...]
    texts: pd.DataFrame
    prompts: pd.DataFrame
    start: Ints
    score: Floats
    prompt: Ints
    chosen: Ints
    rejected: Ints
    cell: NDArray[np.int8]
    domains_alike: bool
    _margins: dict[str, Floats] = field(default_factory=dict, repr=False)
    _searched: dict[str, NDArray[np.bool_]] = field(default_factory=dict, repr=False)

    def margin(self, model: str) -> Floats:
        """Margin of every comparison under one model; NaN where a score is missing."""
        if model not in self._margins:
            score = self.score[self.models.index(model)]
            self._margins[model] = score[self.chosen] - score[self.rejected]
        return self._margins[model]

    def contain(self, text: str) -> NDArray[np.bool_]:
        """For every prompt whether `text` stands in it or in one of its answers, whatever the case."""
        text = text.strip().lower()
        if text not in self._searched:
            last = next((seen for seen in self._searched if seen in text), "")
            where = np.flatnonzero(self._searched.get(last, np.ones(len(self.prompts), bool)))
            found = np.zeros(len(self.prompts), bool)
            found[where] = np.fromiter((text in self.searchable[i] for i in where), bool, len(where)) if text else True
            self._searched.clear()
            self._searched[text] = found
        return self._searched[text]

    def rows(self, number: int) -> slice:
        """Rows of `texts` that answer prompt `number`."""
        return slice(int(self.start[number]), int(self.start[number + 1]))

    @property
    def has_styles(self) -> bool:
        """True where at least one comparison has both styles."""
        return bool((self.cell >= 0).any())

    @cached_property
    def searchable(self) -> list[str]:
        """Prompt and answers of every prompt in lower case, for the text search."""
        answers = self.texts["response"].to_numpy(object)
        shown = (prompt_text(prompt) for prompt in self.prompts["prompt"])
        return ["\n".join((text, *answers[self.rows(i)])).lower() for i, text in enumerate(shown)]

    @cached_property
    def domains(self) -> Ints:
        """Number of each prompt's domain in `domain_names`."""
        numbers: Ints = pd.factorize(self.prompts["domain"])[0].astype(np.intp)
        return numbers

    @cached_property
    def subsets(self) -> Ints:
        """Number of each prompt's subset in `subset_names`."""
        numbers: Ints = pd.factorize(self.prompts["subset"])[0].astype(np.intp)
        return numbers

    @cached_property
    def domain_names(self) -> list[str]:
        """Domains in order of appearance."""
        return list(pd.unique(self.prompts["domain"]))

    @cached_property
    def subset_names(self) -> list[str]:
        """Subsets in order of appearance."""
        return list(pd.unique(self.prompts["subset"]))


def build(scores: pd.DataFrame, responses: pd.DataFrame) -> Index:
    """Join scores to their responses.

    Prompts that no model has scored are left out. Raises DataError as `check_scores` and `check_match` do, and where
    there is no score at all or no comparison of a chosen with a rejected answer.
    """
    responses = tables.check_responses(responses)
    model, models, row, value = _join(scores, responses)
    score = np.full((len(models), len(responses)), np.nan)
    score[model, row] = value
    texts, order, start = _grouped(responses, np.bincount(row, minlength=len(responses)) > 0)
    prompt, chosen, rejected = _comparisons(texts, start)
    if not len(prompt):
        raise DataError(
            "scores: no prompt has both a chosen and a rejected answer; the explorer shows comparisons: "
            "score both labels"
        )
    style = pd.Categorical(texts["style"], dtype=tables.STYLE).codes.astype(np.int8)
    cell = len(STYLES) * style[chosen] + style[rejected]
    cell[(style[chosen] < 0) | (style[rejected] < 0)] = -1
    prompts = texts.iloc[start[:-1]][[*PROMPT, "subset", "prompt"]].reset_index(drop=True)
    alike = bool((cell >= 0).all()) and bool(benchmark_of(scores).styles)
    return Index(tuple(models), texts, prompts, start, score[:, order], prompt, chosen, rejected, cell, alike)


def prompt_text(prompt: object) -> str:
    """A prompt on one string: itself, or the messages of a conversation with their roles.

    >>> prompt_text([{"role": "user", "content": "Hello"}])
    'user: Hello'
    """
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{m['role']}: {m['content']}" for m in prompt) if isinstance(prompt, list) else str(prompt)


def _join(scores: pd.DataFrame, responses: pd.DataFrame) -> tuple[Ints, list[str], Ints, Floats]:
    """Model number, row of `responses` and score of each row of `scores`; the slow checks run only where one fails."""
    if not isinstance(scores, pd.DataFrame) or not {"model", *KEY, "score"} <= set(scores.columns):
        tables.check_scores(scores, allow_missing=True)
    if not len(scores):
        raise DataError("scores: no rows; score the responses first: rmlab.score(responses, ...)")
    known, asked = _keys(responses, scores)
    row = pd.Index(known).get_indexer(pd.Index(asked)).astype(np.intp)
    model, models = pd.factorize(scores["model"])
    value = pd.to_numeric(scores["score"], errors="coerce").to_numpy(float)
    lost = np.isnan(value) & scores["score"].notna().to_numpy()
    missing = bool((row < 0).any())
    if missing or lost.any() or np.isinf(value).any() or (model < 0).any() or _repeats(model * len(known) + row):
        checked = tables.check_scores(scores, allow_missing=True)
        tables.check_match(checked, responses)
    return model.astype(np.intp), [str(name) for name in models], row, value


def _keys(responses: pd.DataFrame, scores: pd.DataFrame) -> tuple[Ints, Ints]:
    """One whole number per row of each frame, equal where the keys are; -1 for a value that `responses` lacks."""
    known = np.zeros(len(responses), np.intp)
    asked = np.zeros(len(scores), np.intp)
    strange = np.zeros(len(scores), bool)
    for column in KEY:
        codes, values = pd.factorize(responses[column].astype("int64" if column == "slot" else "str"))
        found, uniques = pd.factorize(scores[column])
        names = pd.Index(uniques) if column == "slot" else pd.Index(uniques.astype("str"))
        where = np.append(pd.Index(values).get_indexer(names), -1)[found]
        known, asked = known * len(values) + codes, asked * len(values) + where
        strange |= where < 0
    return known, np.where(strange, -1, asked)


def _repeats(keys: Ints) -> bool:
    return bool(np.bincount(keys).max(initial=0) > 1)


def _grouped(responses: pd.DataFrame, scored: NDArray[np.bool_]) -> tuple[pd.DataFrame, Ints, Ints]:
    """Texts of scored prompts with each prompt's together, their rows in `responses`, and where each prompt starts."""
    group = responses.groupby(PROMPT, sort=False).ngroup().to_numpy()
    kept = np.flatnonzero(np.bincount(group, scored)[group] > 0)
    order = kept[np.argsort(group[kept], kind="stable")].astype(np.intp)
    first = np.flatnonzero(np.diff(group[order], prepend=-1))
    return responses.iloc[order].reset_index(drop=True), order, np.append(first, len(order)).astype(np.intp)


def _comparisons(texts: pd.DataFrame, start: Ints) -> tuple[Ints, Ints, Ints]:
    """Prompt, chosen row and rejected row of every chosen x rejected."""
    is_chosen = (texts["label"] == "chosen").to_numpy()
    owner = np.repeat(np.arange(len(start) - 1), np.diff(start))
    chosen, rejected = np.flatnonzero(is_chosen), np.flatnonzero(~is_chosen)
    n_rejected = np.bincount(owner[rejected], minlength=len(start) - 1)
    offset = np.concatenate([[0], np.cumsum(n_rejected)])
    repeats = n_rejected[owner[chosen]]
    left = np.repeat(chosen, repeats)
    step = np.arange(len(left)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    right = rejected[np.repeat(offset[owner[chosen]], repeats) + step]
    return owner[left], left, right
