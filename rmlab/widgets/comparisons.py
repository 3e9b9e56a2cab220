"""Scores or pairs as arrays, models by comparisons: what the explorer shows, in Jupyter
and in a report.
"""

import base64
from functools import cached_property

import numpy as np
import pandas as pd

from rmlab import metrics, styles, tables
from rmlab.benchmarks import benchmark_of
from rmlab.benchmarks.registry import adopt_name
from rmlab.estimation.items import (
    CREDIT_OF_TIE,
    DESCRIBED,
    LOSS,
    MISSING,
    NO_ROW,
    TIE,
    WIN,
    as_pairs,
    place_rows,
)
from rmlab.estimation.weights import Average
from rmlab.tables import ITEM, KEY, LABELS, LEVELS, PROMPT, STYLES, FloatArray, IntArray
from rmlab.text import visible
from rmlab.widgets import markup

OUTCOMES = {"loss": LOSS, "tie": TIE, "win": WIN, "missing": MISSING}
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
    items : DataFrame
        One row per comparison: a row of pairs, and `number`, the row of its prompt.
    prompts, answers : DataFrame
        One row per prompt (benchmark, domain, id, subset, and prompt where there are
        texts), and per compared answer (its key, style and `number`), those of a prompt
        together.
    chosen, rejected : ndarray
        (comparisons,): rows of `answers`.
    outcome, margin : ndarray
        (models, comparisons): codes as in `rmlab.estimation.items`; margins, NaN where
        missing. Without any margins (`has_margins`) they are 1 for a win, 0 for a tie
        and -1 for a loss.
    score : ndarray or None
        (models, answers); None for pairs.

    Raises
    ------
    DataError
        For bad tables, an empty one, and scored texts that `responses` lacks.
    """

    def __init__(
        self, table: pd.DataFrame, responses: pd.DataFrame | None = None
    ) -> None:
        is_scores = isinstance(table, pd.DataFrame) and "score" in table
        self.table = (
            tables.check_scores(table, allow_missing=True)
            if is_scores
            else tables.check_pairs(table)
        )
        pairs = as_pairs(self.table)
        self.benchmark = benchmark_of(self.table)
        outcome = np.asarray(pairs["outcome"].cat.codes, np.int8)
        self.has_margins = bool(pairs["margin"].notna().any())
        margin = (
            pairs["margin"].to_numpy()
            if self.has_margins
            else np.where(outcome < 0, np.nan, outcome - 1.0)
        )
        grid = place_rows(pairs, ITEM)
        self.models = grid.models
        self.outcome = grid.spread(outcome, NO_ROW)
        self.margin = grid.spread(margin, np.nan)
        items = pairs[[*ITEM, *DESCRIBED]].iloc[grid.first_rows].reset_index(drop=True)
        self.items = items.assign(number=tables.group_codes(items, PROMPT)[0])
        self.prompts = self.items.drop_duplicates("number")[
            [*PROMPT, "subset"]
        ].reset_index(drop=True)
        sides = [
            self.items.rename(
                columns={f"{label}_slot": "slot", f"{label}_style": "style"}
            ).assign(label=label)
            for label in LABELS
        ]
        answers = (
            pd.concat(sides)[[*KEY, "style", "number"]]
            .drop_duplicates(KEY)
            .astype({"label": tables.LABEL})
        )
        self.answers = answers.sort_values(
            ["number", "label", "slot"], ignore_index=True
        )
        self.chosen, self.rejected = (_find_rows(self.answers, side) for side in sides)
        self.score, self.responses = None, responses
        if is_scores:
            scores = self.table.assign(answer=_find_rows(self.answers, self.table))
            self.score = (
                scores.pivot(index="model", columns="answer", values="score")
                .loc[self.models]
                .to_numpy()
            )
        if responses is not None:
            responses = adopt_name(responses, self.table)
            tables.check_match(self.answers, tables.check_responses(responses))
            self.responses = responses.iloc[
                _find_rows(responses, self.answers)
            ].reset_index(drop=True)
            self.prompts["prompt"] = (
                self.responses["prompt"].groupby(self.answers["number"]).first()
            )

    @cached_property
    def choices(self) -> dict[str, list[str]]:
        """What a selection may name, in Jupyter and in a page alike: the values of each
        field of `Selection`.
        """
        has_styles = bool(self.items["level"].notna().any())
        return {
            "models": self.models,
            "domain": self.prompts["domain"].unique().tolist(),
            "subset": [*self.prompts["subset"].unique(), *self.benchmark.sections],
            "cell": list(STYLES) if has_styles else [],
            "level": list(LEVELS) if has_styles else [],
            "outcome": [*OUTCOMES, "flip"],
            "order": ["worst", "best", "data"],
        }

    @cached_property
    def searchable(self) -> list[str]:
        """The id of every prompt and its texts, in lower case."""
        if self.responses is None:
            return self.prompts["id"].str.lower().tolist()
        answers = (
            self.responses["response"].groupby(self.answers["number"]).agg("\n".join)
        )
        parts = zip(self.prompts["id"], self.prompts["prompt"], answers, strict=True)
        return [
            f"{name}\n{markup.prompt_text(prompt)}\n{text}".lower()
            for name, prompt, text in parts
        ]

    def find(self, text: str) -> list[int]:
        """The prompts whose id, text or one of whose answers holds `text`, whatever the
        case.
        """
        words = text.strip().lower()
        return [
            number
            for number, searched in enumerate(self.searchable)
            if words in searched
        ]

    def texts(self, number: int) -> dict[str, object]:
        """What is shown of one prompt: texts as they are and as HTML, notes, and counts
        of style features.
        """
        if self.responses is None:
            return {}
        rows = self.responses[self.answers["number"] == number].reset_index(drop=True)
        counts = styles.features(rows)[list(styles.FEATURES)].to_numpy().tolist()
        notes = (
            rows.reindex(columns=[*_NOTES])
            .rename(columns=_NOTES)
            .melt()
            .dropna()
            .drop_duplicates()
        )
        notes = notes.map(lambda text: visible(text)[: markup.LIMIT].strip())
        answers = zip(rows["response"], rows["style"], counts, strict=True)
        return {
            "prompt": _with_html(markup.prompt_text(rows["prompt"].iloc[0]), "plain"),
            "notes": notes[notes["value"] != ""].to_numpy().tolist(),
            "answers": [
                _with_html(text, style) | {"counts": features}
                for text, style, features in answers
            ],
        }

    def payload(
        self, *, average: Average = "benchmark", as_text: bool = False
    ) -> dict[str, object]:
        """What explorer.js starts with: names, and columns as bytes, or with `as_text`
        as base 64 in less precision.
        """
        shares, reasons = self._matrices(average)
        columns: dict[str, object] = {
            "shares": shares,
            "margin": self.margin if self.score is None else None,
        }
        columns |= {
            name: getattr(self, name)
            for name in ("chosen", "rejected", "outcome", "score")
        }
        columns |= {
            name: self.items[name]
            for name in ("number", "chosen_style", "rejected_style")
        }
        columns |= {
            f"answer_{name}": self.answers[name]
            for name in ("number", "label", "slot", "style")
        }
        prompts = self.prompts.get("prompt", [""] * len(self.prompts))
        tie_credit = CREDIT_OF_TIE.get(self.benchmark.ties[0], 0.0)
        return {
            "benchmark": self.prompts["benchmark"].iloc[0],
            "models": self.models,
            "choices": self.choices,
            "sections": {
                name: list(members) for name, members in self.benchmark.sections.items()
            },
            "prompts": self.prompts[["id", "domain", "subset"]].to_dict("list"),
            "heads": [
                " ".join(visible(markup.prompt_text(prompt))[:_HEAD].split())
                for prompt in prompts
            ],
            "features": list(styles.FEATURES),
            "hasMargins": self.has_margins,
            "tieCredit": None if np.isnan(tie_credit) else tie_credit,
            "reasons": reasons,
            "columns": {
                name: _column(values, as_text)
                for name, values in columns.items()
                if values is not None
            },
        }

    def _matrices(self, average: Average) -> tuple[FloatArray | None, list[str]]:
        """Every model's `rmlab.matrix`, row by row, and why it is missing; None where
        answers have no styles.
        """
        if self.items["level"].isna().any():
            return None, []
        cells = metrics.accuracy(
            self.table, by=["model", "chosen_style", "rejected_style"], average=average
        )
        by_model = cells.groupby("model")
        shares = by_model["accuracy"].agg(list).loc[self.models]
        return np.array(shares.tolist()), by_model["reason"].max().loc[
            self.models
        ].tolist()


def _find_rows(table: pd.DataFrame, frame: pd.DataFrame) -> IntArray:
    """Row in `table`, whose keys are unique, of each row of `frame`; -1 where it has
    none.
    """
    keys = [
        pd.MultiIndex.from_frame(rows[KEY].astype({"label": "str"}))
        for rows in (table, frame)
    ]
    return keys[0].get_indexer(keys[1])


def _with_html(text: str, style: str | float) -> dict[str, object]:
    length = len(text) if len(text) > markup.LIMIT else 0
    return {
        "raw": visible(text[: markup.LIMIT]),
        "html": markup.text_html(text, style),
        "length": length,
    }


def _column(values: object, as_text: bool) -> dict[str, object]:
    array = np.asarray(values.cat.codes if hasattr(values, "cat") else values)
    is_float = array.dtype.kind == "f"
    dtype = (
        ("float32" if as_text else "float64")
        if is_float
        else "int8"
        if array.itemsize == 1
        else "int32"
    )
    data = np.ascontiguousarray(array, dtype).tobytes()
    return {
        "dtype": dtype,
        "data": base64.b64encode(data).decode() if as_text else data,
    }
