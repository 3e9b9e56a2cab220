"""Scores or pairs as arrays, models by comparisons, as the explorer shows them."""

import base64
from functools import cached_property

import numpy as np
import pandas as pd

from rmlab import metrics, styles, tables
from rmlab.benchmarks.registry import adopt_name, benchmark_of
from rmlab.estimation.items import (
    CREDIT_OF_TIE,
    DESCRIBED,
    LOSS,
    MISSING,
    NO_ROW,
    TIE,
    WIN,
    place_rows,
    spread,
)
from rmlab.metrics.pairing import as_pairs
from rmlab.styles.counts import FEATURES
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
        is_scores = "score" in table
        pairs = as_pairs(table)
        self.table = pairs
        if is_scores:
            self.table = tables.check_scores(table, allow_missing=True)
        self.benchmark = benchmark_of(self.table)
        outcome = np.asarray(pairs["outcome"].cat.codes, np.int8)
        self.has_margins = bool(pairs["margin"].notna().any())
        margin = (
            pairs["margin"].to_numpy()
            if self.has_margins
            else np.where(outcome < 0, np.nan, outcome - 1.0)
        )
        self.models, model, item, first_rows = place_rows(pairs, ITEM)
        self.outcome = spread(model, item, outcome, NO_ROW)
        self.margin = spread(model, item, margin, np.nan)
        items = pairs[[*ITEM, *DESCRIBED]].iloc[first_rows].reset_index(drop=True)
        self.items = items.assign(number=tables.group_codes(items, PROMPT)[0])

        prompts = self.items.drop_duplicates("number")
        self.prompts = prompts[[*PROMPT, "subset"]].reset_index(drop=True)
        sides = [_answers_of(self.items, label) for label in LABELS]
        answers = pd.concat(sides).drop_duplicates(KEY)
        self.answers = answers.astype({"label": tables.LABEL}).sort_values(
            ["number", "label", "slot"], ignore_index=True
        )
        self.chosen = _find_rows(self.answers, sides[0])
        self.rejected = _find_rows(self.answers, sides[1])

        self.score = None
        if is_scores:
            self.score = self._spread_scores()
        self.responses = None
        if responses is not None:
            self.responses = self._match_responses(responses)
            by_prompt = self.responses["prompt"].groupby(self.answers["number"])
            self.prompts["prompt"] = by_prompt.first()

    def _spread_scores(self) -> FloatArray:
        """Scores, models by answers."""
        answer = _find_rows(self.answers, self.table)
        scores = self.table.assign(answer=answer)
        by_model = scores.pivot(index="model", columns="answer", values="score")
        return by_model.loc[self.models].to_numpy()

    def _match_responses(self, responses: pd.DataFrame) -> pd.DataFrame:
        """The response of each row of `answers`."""
        responses = adopt_name(responses, self.table)
        tables.check_match(self.answers, tables.check_responses(responses))
        rows = _find_rows(responses, self.answers)
        return responses.iloc[rows].reset_index(drop=True)

    @cached_property
    def choices(self) -> dict[str, list[str]]:
        """The values that each field of `Selection` may have."""
        choices = {
            "models": self.models,
            "domain": [*self.prompts["domain"].unique()],
            "subset": [*self.prompts["subset"].unique(), *self.benchmark.sections],
            "cell": list(STYLES),
            "level": list(LEVELS),
            "outcome": [*OUTCOMES, "flip"],
            "order": ["worst", "best", "data"],
        }
        if self.items["level"].isna().all():
            choices |= {"cell": [], "level": []}
        return choices

    @cached_property
    def searchable(self) -> list[str]:
        """The id of every prompt and its texts, in lower case."""
        assert self.responses is not None
        texts = self.responses["response"].map(markup.prompt_text)
        answers = texts.groupby(self.answers["number"]).agg("\n".join)
        prompts = self.prompts["prompt"].map(markup.prompt_text)
        whole = self.prompts["id"] + "\n" + prompts + "\n" + answers
        return whole.str.lower().tolist()

    def find(self, text: str) -> list[int]:
        """The prompts whose id, text or answers hold `text`, whatever the case."""
        words = text.strip().lower()
        return [n for n, searched in enumerate(self.searchable) if words in searched]

    def texts(self, number: int) -> dict[str, object]:
        """Everything shown of one prompt: texts and their HTML, notes, style counts."""
        if self.responses is None:
            return {}
        is_here = self.answers["number"] == number
        rows = self.responses[is_here].reset_index(drop=True)
        features = styles.features(rows)[list(FEATURES)]

        row_styles = rows.get("style", [np.nan] * len(rows))
        answers = []
        for text, style, counts in zip(
            rows["response"], row_styles, features.to_numpy().tolist(), strict=True
        ):
            answer = _with_html(markup.prompt_text(text), style)
            answers.append(answer | {"counts": counts})
        prompt = markup.prompt_text(rows["prompt"].iloc[0])
        return {
            "prompt": _with_html(prompt, "plain"),
            "notes": _list_notes(rows),
            "answers": answers,
        }

    def payload(self, *, as_text: bool = False) -> dict[str, object]:
        """The data that explorer.js starts with: names, and columns.

        Columns are bytes, or with `as_text` base 64 in less precision.
        """
        shares, reasons = self._matrices()
        columns = {}
        for name, values in self._columns(shares).items():
            if values is not None:
                columns[name] = _encode_column(values, as_text)
        prompts = self.prompts.get("prompt", [""] * len(self.prompts))
        credit = CREDIT_OF_TIE.get(self.benchmark.ties[0], 0.0)
        tie_credit = None if np.isnan(credit) else credit
        sections = self.benchmark.sections.items()
        return {
            "benchmark": self.prompts["benchmark"].iloc[0],
            "models": self.models,
            "choices": self.choices,
            "sections": {name: list(members) for name, members in sections},
            "prompts": self.prompts[["id", "domain", "subset"]].to_dict("list"),
            "heads": [_shorten_prompt(prompt) for prompt in prompts],
            "features": list(FEATURES),
            "hasMargins": self.has_margins,
            "tieCredit": tie_credit,
            "reasons": reasons,
            "columns": columns,
        }

    def _columns(self, shares: FloatArray | None) -> dict[str, object]:
        """Columns by the names that explorer.js reads; None where it has no use."""
        margin = self.margin if self.score is None else None
        return {
            "shares": shares,
            "margin": margin,
            "chosen": self.chosen,
            "rejected": self.rejected,
            "outcome": self.outcome,
            "score": self.score,
            "number": self.items["number"],
            "chosen_style": self.items["chosen_style"],
            "rejected_style": self.items["rejected_style"],
            "answer_number": self.answers["number"],
            "answer_label": self.answers["label"],
            "answer_slot": self.answers["slot"],
            "answer_style": self.answers["style"],
        }

    def _matrices(self) -> tuple[FloatArray | None, list[str]]:
        """Every model's `rmlab.matrix`, row by row, and why it is missing.

        The matrices are None where answers have no styles.
        """
        if self.items["level"].isna().any():
            return None, []
        by = ["model", "chosen_style", "rejected_style"]
        cells = metrics.accuracy(self.table, by=by)
        by_model = cells.groupby("model")
        shares = by_model["accuracy"].agg(list).loc[self.models]
        reasons = by_model["reason"].max().loc[self.models]
        return np.array(shares.tolist()), reasons.tolist()


def _answers_of(items: pd.DataFrame, label: str) -> pd.DataFrame:
    """The chosen or the rejected answer of each comparison."""
    names = {f"{label}_slot": "slot", f"{label}_style": "style"}
    answers = items.rename(columns=names).assign(label=label)
    return answers[[*KEY, "style", "number"]]


def _find_rows(table: pd.DataFrame, frame: pd.DataFrame) -> IntArray:
    """Row in `table`, whose keys are unique, of each row of `frame`; -1 for none."""
    return tables.answer_index(table).get_indexer(tables.answer_index(frame))


def _list_notes(rows: pd.DataFrame) -> list[list[str]]:
    """Headings and texts of the notes on a prompt's answers, each once."""
    notes = rows.reindex(columns=[*_NOTES]).rename(columns=_NOTES)
    notes = notes.melt().dropna().drop_duplicates()
    notes = notes.map(_cut_note)
    return notes[notes["value"] != ""].to_numpy().tolist()


def _cut_note(text: object) -> str:
    return visible(text)[: markup.LIMIT].strip()


def _shorten_prompt(prompt: object) -> str:
    """The first characters of a prompt on one line."""
    text = visible(markup.prompt_text(prompt))
    return " ".join(text[:_HEAD].split())


def _with_html(text: str, style: str | float) -> dict[str, object]:
    """A text as it is and as HTML, and its length where it is cut."""
    is_cut = len(text) > markup.LIMIT
    length = len(text) if is_cut else 0
    return {
        "raw": visible(text[: markup.LIMIT]),
        "html": markup.text_html(text, style),
        "length": length,
    }


def _encode_column(values: object, as_text: bool) -> dict[str, object]:
    if hasattr(values, "cat"):
        values = values.cat.codes
    array = np.asarray(values)
    if array.dtype.kind == "f":
        dtype = "float32" if as_text else "float64"
    else:
        dtype = "int8" if array.itemsize == 1 else "int32"
    data = np.ascontiguousarray(array, dtype).tobytes()
    if as_text:
        return {"dtype": dtype, "data": base64.b64encode(data).decode()}
    return {"dtype": dtype, "data": data}
