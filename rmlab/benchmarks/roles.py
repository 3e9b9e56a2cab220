"""Columns of people's own data by their roles: the usual names, and those that a user
gives.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NoReturn

from rmlab import records
from rmlab.benchmarks.conversations import read_messages
from rmlab.benchmarks.sources import Cells, Source, unpack_texts
from rmlab.tables import LABELS, DataError, nearest
from rmlab.text import short

OwnColumns = Mapping[str, str | Sequence[str] | None]
"""Roles to the columns of a file."""

_SIDE_WORDS = (
    *("response", "response_", "answer_", "completion_"),
    *("output_", "conversation_", "human_ref_"),
)
_SIDES = [("a", "b")]
"""Names of two columns side by side."""
for _word in _SIDE_WORDS:
    for _first, _second in ("ab", "12", "01"):
        _SIDES.append((f"{_word}{_first}", f"{_word}{_second}"))
_SCORE_FORMS = (
    *("{}_score", "{}_reward", "{}_rewards"),
    *("score_{}", "scores_{}", "reward_{}", "scores.{}"),
)


def _score_names(name: str) -> tuple[str, ...]:
    return tuple(form.format(name) for form in _SCORE_FORMS)


ROLES: dict[str, tuple[str, ...]] = {
    "prompt": (
        *("prompt", "question", "input", "messages", "instruction"),
        *("conversations", "context", "problem"),
    ),
    "system": ("system", "system_prompt"),
    "history": ("history",),
    "tools": ("tools",),
    "images": ("images", "image"),
    "id": ("id", "item_id", "prompt_id", "question_id", "item"),
    "candidate": ("candidate", "candidate_id", "sample_id"),
    "family": ("family",),
    "model": ("model",),
    "benchmark": ("benchmark",),
    "domain": ("domain", "subset", "category"),
    "subset": ("subset",),
    "chosen": ("chosen",),
    "rejected": ("rejected",),
    "chosen_score": _score_names("chosen"),
    "rejected_score": _score_names("rejected"),
    "a": (),
    "b": (),
    "winner": (
        *("winner", "better_response_id", "safer_response_id", "preference"),
        *("overall_preference", "preference_strength"),
    ),
    "winner_a": ("winner_model_a", "winner_a"),
    "winner_b": ("winner_model_b", "winner_b"),
    "score_a": _score_names("a"),
    "score_b": _score_names("b"),
    "response": ("response", "answer", "completion", "output", "text"),
    "label": ("label", "is_chosen", "is_correct", "preferred", "correct"),
    "rating": ("rating", "overall_score", "helpfulness"),
    "rank": ("rank",),
    "score": ("score", "reward"),
    "responses": ("responses", "answers", "completions"),
    "labels": ("labels",),
    "ratings": ("ratings",),
    "scores": ("scores", "rewards"),
    "num_correct": ("num_correct",),
}
"""Roles and the usual names of their columns, the first that is there first."""

SCORE_ROLES = (
    *("chosen_score", "rejected_score", "score_a", "score_b", "score", "scores"),
)
SCORE_COLUMNS = set[str]().union(*map(ROLES.__getitem__, SCORE_ROLES))
"""Usual names of columns with scores."""

CONTEXT = ("tools", "system", "history")
"""Roles of columns that belong to the prompt."""

# Of these one column is read, though several may be there.
_FIRST = {"prompt", "id", "domain", "subset", "rating", "system", "images"}
# Columns of these roles hold lists and objects, which files may have as text.
_NESTED = (
    *("history", "tools", "images", "responses", "labels", "ratings"),
    *("scores", "chosen_score", "rejected_score"),
)
_TEXTS = ("prompt", "chosen", "rejected", "a", "b", "response")
# Beside another question the last two are a part of it.
_QUESTIONS = ("prompt", "question", "instruction", "problem", "input", "context")


def name_column(role: str, column: str = "<column>") -> str:
    """How a column is named, in Python and in the shell, for messages."""
    return f"columns={{{role!r}: {column!r}}} (in the shell: --column {role}={column})"


@dataclass(frozen=True)
class OwnTable(Source):
    """People's own data with the columns of each role: none, one or several.

    `is_scored`: scores are read, not texts alone. `better`: the side that larger
    numbers of a winner favour. `found` holds the cells of the roles that were read,
    `left_out` counts what has no winner or is bad, and `notes` are said in the line on
    what was understood.
    """

    roles: dict[str, list[str]]
    is_scored: bool = False
    better: str | None = None
    found: dict[str, Cells] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def has(self, *roles: str) -> bool:
        """Whether the data have a column for each of the roles."""
        return all(map(self.roles.get, roles))

    def has_any(self, *roles: str) -> bool:
        """Whether the data have a column for one of the roles."""
        return any(map(self.roles.get, roles))

    def cells(self, role: str) -> Cells:
        """The cells of a role's column; nothing but None without one.

        Of several columns of answers those that are not empty are a list. Raises
        DataError where several columns may have another role.
        """
        if role in self.found:
            return self.found[role]
        names = self.roles.get(role, [])
        if len(names) > 1 and role not in LABELS:
            listed = " and ".join(map(repr, names))
            problem = f"{self.place}: {listed} may both be {role!r}"
            remedy = f"choose one, such as {name_column(role, names[0])}"
            raise DataError(problem, remedy)
        cells: Cells = [None] * len(self)
        if len(names) == 1:
            cells = self.columns[names[0]]
        elif names:
            rows = zip(*map(self.columns.__getitem__, names), strict=True)
            cells = [[cell for cell in row if cell not in (None, "")] for row in rows]
        self.found[role] = cells
        return cells

    def add(self, role: str, cells: Sequence[object], source: str) -> None:
        """Give a role cells that were made from those of another role."""
        self.roles[role] = self.roles[source]
        self.found[role] = [*cells]

    def is_called(self, role: str, *names: str) -> bool:
        """Whether the first column of a role has one of the names."""
        columns = self.roles[role]
        return bool(columns) and spell(columns[0]) in names

    def refuse(
        self, row: int, role: str, allowed: str, remedy: str = "repair the row"
    ) -> NoReturn:
        """Raise DataError naming the row and the file's own column."""
        if not self.has(role):
            problem = f"{self.place}: row {row}: no {role}, and it must be {allowed}"
            raise DataError(problem, f"name it: {name_column(role)}")
        name = self.roles[role][0]
        cells = {key: self.columns[key][row] for key in (*self.roles["id"], name)}
        records.fail(self.place, row, cells, name, allowed, remedy)

    def require(self, *roles: str) -> None:
        """Raise DataError where the data lack a role."""
        missing = [role for role in roles if not self.has(role)]
        if missing:
            columns = short(list(self.columns), 400)
            problem = f"{self.place}: no column for {' and '.join(missing)}"
            remedy = f"pass {name_column(missing[0])}"
            raise DataError(f"{problem}; found: {columns}", remedy)

    def names(self, role: str) -> list[str | None]:
        """Names such as those of domains; None where a cell is empty."""
        names: list[str | None] = []
        for row, value in enumerate(self.cells(role)):
            if isinstance(value, list | dict):
                self.refuse(row, role, "one name", "write a string, or leave it empty")
            names.append(None if value in (None, "") else name_value(value))
        return names


def name_value(value: object) -> str:
    """An id or a name as text: 7 and 7.0 are "7"."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)


def match_roles(
    source: Source,
    mapping: OwnColumns,
    better: str | None = None,
    *,
    is_scored: bool = False,
) -> OwnTable:
    """The columns of each role: those that a user names, or else of the usual names.

    Capitals and spaces around a name do not matter where no other column has the usual
    spelling. Lists and objects in text are unpacked.
    """
    mapped = {role: _list_names(role, names) for role, names in mapping.items()}
    columns = dict(source.columns)
    for role, names in mapped.items():
        columns |= {name: source.find(name, role) for name in names}
    for label in LABELS:
        with suppress(DataError):
            columns[f"scores.{label}"] = source.find(f"scores.{label}", label)

    spelled = spell_names(columns) | {name: name for name in columns}
    roles: dict[str, list[str]] = {}
    for role, usual in ROLES.items():
        present = [spelled[name] for name in usual if name in spelled]
        roles[role] = present[:1] if role in _FIRST else present
    for first, second in _SIDES:
        if first in spelled and second in spelled:
            roles["a"].append(spelled[first])
            roles["b"].append(spelled[second])
    if roles["a"] and not roles["winner"] and not roles["winner_a"]:
        roles["winner"] = roles["label"][:1] or roles["labels"]  # as in SHP
    if "prompt" not in mapped:
        _refuse_two_prompts(source, spelled)
    if mapped.get("family") == roles["id"]:
        roles["id"] = []
    roles |= mapped

    _unpack_columns(columns, roles)
    texts = [columns[name] for name in roles["chosen"] + roles["rejected"]]
    if all({*map(type, cells)} <= {bool, int, float} for cells in texts):
        # As reward-bench writes scores alone.
        for label in LABELS:
            roles[f"{label}_score"] = roles[label] or roles[f"{label}_score"]
            roles[label] = []
    if not any(map(roles.get, SCORE_ROLES)) and "model" not in mapped:
        roles["model"] = []  # The model that wrote the answer, not one that scores.
    if not is_scored:
        roles |= {role: [] for role in SCORE_ROLES}
    return OwnTable(source.place, columns, roles, is_scored, better)


def spell(name: object) -> str:
    """A name without capitals, and without space around it."""
    return str(name).strip().lower()


def spell_names(names: Iterable[str]) -> dict[str, str]:
    """Names by their spelling without capitals."""
    return {spell(name): name for name in names}


def _list_names(role: str, names: str | Sequence[str] | None) -> list[str]:
    """The columns that a user names for a role."""
    if role not in ROLES:
        problem = f"columns: unknown name {short(role)}"
        raise DataError(problem, nearest(role, list(ROLES)))
    return [names] if isinstance(names, str) else list(names or ())


def _refuse_two_prompts(source: Source, spelled: Mapping[str, str]) -> None:
    """Raise DataError where a context or an input stands beside the question."""
    present = [spelled[name] for name in _QUESTIONS if name in spelled]
    for other in present[1:]:
        is_part = spell(other) in ("input", "context")
        if is_part and any(source.columns[other]):
            problem = (
                f"{source.place}: the prompt may be {present[0]!r}, {other!r} or both"
            )
            remedy = f"name one: {name_column('prompt', present[0])}"
            raise DataError(problem, f"{remedy}, or join them in a column first")


def _unpack_columns(columns: dict[str, Cells], roles: Mapping[str, list[str]]) -> None:
    """Unpack the columns that hold lists and objects as text.

    A prompt or an answer may be a text that looks like a list: it is unpacked where the
    column holds messages, or where all prompts are lists of texts.
    """
    has_turns = False
    for role in (*_NESTED, *_TEXTS):
        for name in roles[role]:
            cells = unpack_texts(columns[name])
            if role == "prompt":
                has_turns = all(map(_are_texts, cells))
            are_messages = all(cell is None or read_messages(cell) for cell in cells)
            if role in _NESTED or has_turns or are_messages:
                columns[name] = cells


def _are_texts(cell: object) -> bool:
    """Whether a cell is a list of texts, as LMArena writes the turns of a prompt."""
    return isinstance(cell, list) and all(isinstance(turn, str | None) for turn in cell)
