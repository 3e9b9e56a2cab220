"""Scores or pairs as arrays, models by comparisons: what the explorer shows, in Jupyter and in a report."""

import base64
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab import metrics, styles, tables
from rmlab.benchmarks import benchmark_of
from rmlab.metrics.items import CREDIT_OF_TIE, NO_ROW, as_pairs
from rmlab.metrics.weights import Average
from rmlab.tables import ITEM, KEY, LABELS, PROMPT, STYLES, DataError, IntArray, group_codes
from rmlab.text import visible
from rmlab.widgets import markup

_NOTES = {"note": "What is wrong", "error": "Error", "error_key": "Error key"}
_HEAD = 200  # characters of a prompt in the list


class Comparisons:
    """Everything that was compared, as arrays.

    Parameters
    ----------
    table : DataFrame
        Scores or pairs of one benchmark.
    responses : DataFrame, optional
        The texts that were scored; others are left out.

    Attributes
    ----------
    models : list of str
    prompts, answers : DataFrame
        One row per prompt (benchmark, domain, id, subset), and per compared answer (its key, style, and `number`, the
        row of its prompt), those of a prompt together.
    prompt, chosen, rejected, cell : ndarray
        (comparisons,): rows of `prompts` and of `answers`; 3 * chosen style + rejected style, -1 where one is missing.
    outcome, margin : ndarray
        (models, comparisons): codes as in `rmlab.metrics.items`; margins, NaN where missing. Without any margins
        (`has_margins`) they are 1 for a win, 0 for a tie and -1 for a loss.
    score : ndarray or None
        (models, answers); None for pairs.

    Raises
    ------
    DataError
        For bad tables, an empty one, and scored texts that `responses` lacks.
    """

    def __init__(self, table: pd.DataFrame, responses: pd.DataFrame | None = None) -> None:
        is_scores = isinstance(table, pd.DataFrame) and "score" in table
        self.table = tables.check_scores(table, allow_missing=True) if is_scores else tables.check_pairs(table)
        if not len(table):
            raise DataError("scores: no rows. Score the responses first: rmlab.score(responses, ...).")
        self.benchmark = benchmark_of(self.table)
        pairs = as_pairs(self.table)
        model, model_rows = group_codes(pairs, ["model"])
        item, item_rows = group_codes(pairs, ITEM)
        items = pairs.iloc[item_rows].reset_index(drop=True)
        self.models: list[str] = pairs["model"].iloc[model_rows].tolist()
        self.prompt, prompt_rows = group_codes(items, PROMPT)
        self.prompts = items[[*PROMPT, "subset"]].iloc[prompt_rows].reset_index(drop=True)
        sides = [
            items[[*PROMPT, f"{label}_slot", f"{label}_style"]].set_axis([*PROMPT, "slot", "style"], axis=1)
            for label in LABELS
        ]
        sides = [side.assign(label=label, number=self.prompt) for side, label in zip(sides, LABELS, strict=True)]
        answers = pd.concat(sides).drop_duplicates(KEY).astype({"label": tables.LABEL, "style": tables.STYLE})
        self.answers = answers.sort_values(["number", "label", "slot"], ignore_index=True)
        self.chosen, self.rejected = (_rows_of(side, self.answers) for side in sides)
        chosen_style, rejected_style = (
            self.answers["style"].cat.codes.to_numpy()[r] for r in (self.chosen, self.rejected)
        )
        self.cell = np.where((chosen_style < 0) | (rejected_style < 0), -1, len(STYLES) * chosen_style + rejected_style)
        shape = (len(self.models), len(items))
        self.outcome, self.margin = np.full(shape, NO_ROW, np.int8), np.full(shape, np.nan)
        self.outcome[model, item] = pairs["outcome"].cat.codes
        self.has_margins = bool(pairs["margin"].notna().any())
        sign = (pairs["outcome"].cat.codes - 1.0).where(pairs["outcome"].notna())
        self.margin[model, item] = pairs["margin"] if self.has_margins else sign
        self.score = self._scores() if is_scores else None
        self.responses = responses if responses is None else self._own_texts(tables.check_responses(responses))

    def _scores(self) -> NDArray[np.float64]:
        row = _rows_of(self.table, self.answers)
        model = pd.Index(self.models).get_indexer(pd.Index(self.table["model"]))
        score = np.full((len(self.models), len(self.answers)), np.nan)
        score[model[row >= 0], row[row >= 0]] = self.table["score"].to_numpy(float)[row >= 0]
        return score

    def _own_texts(self, responses: pd.DataFrame) -> pd.DataFrame:
        """The responses of `answers`, in its order."""
        tables.check_match(self.answers, responses)
        return responses.iloc[_rows_of(self.answers, responses)].reset_index(drop=True)

    @cached_property
    def prompt_values(self) -> list[object]:
        """The prompts as the responses have them: strings, or lists of messages."""
        first_answers = self.answers.drop_duplicates("number").index
        return [""] * len(self.prompts) if self.responses is None else self.responses["prompt"][first_answers].tolist()

    @cached_property
    def searchable(self) -> list[str]:
        """The id of every prompt and its texts, in lower case."""
        parts = zip(self.prompts["id"], self.prompt_values, strict=True)
        heads = [f"{name}\n{markup.prompt_text(prompt)}\n".lower() for name, prompt in parts]
        if self.responses is None:
            return heads
        answers = self.responses["response"].groupby(self.answers["number"]).agg("\n".join)
        return [head + text.lower() for head, text in zip(heads, answers, strict=True)]

    def find(self, text: str) -> NDArray[np.bool_]:
        """Whether each prompt's id, its text or one of its answers holds `text`, whatever the case."""
        words = text.strip().lower()
        return np.fromiter((words in searched for searched in self.searchable), bool, len(self.prompts))

    def texts(self, number: int) -> dict[str, object]:
        """What is shown of one prompt: texts as they are and as HTML, notes, and counts of style features."""
        if self.responses is None:
            return {}
        rows = self.responses[self.answers["number"] == number].reset_index(drop=True)
        counts = styles.features(rows)[list(styles.FEATURES)].to_numpy().tolist()
        prompt = rows["prompt"].iloc[0]
        answers = zip(rows["response"], rows["style"], counts, strict=True)
        return {
            "prompt": _with_html(markup.prompt_text(prompt), markup.prompt_html(prompt)),
            "notes": [
                [title, visible(note)[: markup.LIMIT]]
                for column, title in _NOTES.items()
                for note in (rows[column].dropna().unique() if column in rows else ())
                if str(note).strip()
            ],
            "answers": [
                _with_html(text, markup.answer_html(text, None if pd.isna(style) else style)) | {"counts": features}
                for text, style, features in answers
            ],
        }

    def payload(self, *, average: Average = "benchmark", as_text: bool = False) -> dict[str, object]:
        """What explorer.js starts with: names, and columns as bytes, or with `as_text` as base 64 in less precision."""
        (domain, domains), (subset, subsets) = (pd.factorize(self.prompts[name]) for name in ("domain", "subset"))
        shares, reasons = self._matrices(average)
        columns = {
            **{name: getattr(self, name) for name in ("prompt", "chosen", "rejected", "cell", "outcome", "score")},
            "margin": self.margin if self.has_margins and self.score is None else None,
            "shares": shares,
            "domain": domain,
            "subset": subset,
            "answerPrompt": self.answers["number"],
            "answerLabel": self.answers["label"].cat.codes,
            "answerSlot": self.answers["slot"],
            "answerStyle": self.answers["style"].cat.codes,
        }
        tie_credit = CREDIT_OF_TIE.get(self.benchmark.ties[0], 0.0)
        return {
            "benchmark": self.prompts["benchmark"].iloc[0],
            "models": self.models,
            "domains": domains.tolist(),
            "subsets": subsets.tolist(),
            "sections": {name: list(members) for name, members in self.benchmark.sections.items()},
            "ids": self.prompts["id"].tolist(),
            "heads": [" ".join(visible(markup.prompt_text(text))[:_HEAD].split()) for text in self.prompt_values],
            "features": list(styles.FEATURES),
            "hasMargins": self.has_margins,
            "tieCredit": None if np.isnan(tie_credit) else tie_credit,
            "reasons": reasons,
            "columns": {name: _column(values, as_text) for name, values in columns.items()},
        }

    def _matrices(self, average: Average) -> tuple[NDArray[np.float64] | None, list[str]]:
        """Every model's `rmlab.matrix`, row by row, and why it is missing; None where answers have no styles."""
        if (self.cell < 0).any():
            return None, []
        cells = metrics.accuracy(self.table, by=["model", "chosen_style", "rejected_style"], average=average)
        by_model = cells.groupby("model")
        shares = by_model["accuracy"].agg(list).loc[self.models]
        return np.array(shares.tolist()), by_model["reason"].max().loc[self.models].tolist()


def _rows_of(frame: pd.DataFrame, answers: pd.DataFrame) -> IntArray:
    """Row in `answers`, whose keys are unique, of each row of `frame`; -1 where it has none."""
    keys = [table[KEY].astype({"label": "str"}) for table in (answers, frame)]
    codes = group_codes(pd.concat(keys, ignore_index=True), KEY)[0][len(answers) :]
    return np.where(codes < len(answers), codes, -1)


def _with_html(text: str, html: str) -> dict[str, object]:
    cut = {"length": len(text)} if len(text) > markup.LIMIT else {}
    return {"raw": visible(text[: markup.LIMIT]), "html": html, **cut}


def _column(values: object, as_text: bool) -> dict[str, object] | None:
    if values is None:
        return None
    array = np.asarray(values)
    dtype = (
        ("float32" if as_text else "float64") if array.dtype.kind == "f" else "int8" if array.itemsize == 1 else "int32"
    )
    data = np.ascontiguousarray(array, dtype).tobytes()
    return {"dtype": dtype, "data": base64.b64encode(data).decode() if as_text else data}
