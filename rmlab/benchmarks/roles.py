"""Columns of people's own data by their roles: the usual names, and those that a user
gives.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from rmlab.benchmarks.conversations import read_messages
from rmlab.benchmarks.sources import Cells, Source, open_paths, unpack_texts
from rmlab.tables import LABELS, DataError, nearest
from rmlab.text import short

OwnColumns = Mapping[str, str | Sequence[str] | None]
"""Roles to the columns of a file."""

_SIDE_WORDS = (
    "",
    "response",
    "response_",
    "answer_",
    "completion_",
    "output_",
    "conversation_",
    "human_ref_",
)
_SIDE_NAMES = (("a", "b"), ("1", "2"), ("0", "1"))
_SCORE_NAMES = (
    "{}_score",
    "score_{}",
    "scores_{}",
    "{}_reward",
    "reward_{}",
    "{}_rewards",
)


def _score_names(name: str) -> tuple[str, ...]:
    return tuple(spelling.format(name) for spelling in _SCORE_NAMES)


ROLES: dict[str, tuple[str, ...]] = {
    "prompt": (
        "prompt",
        "question",
        "input",
        "messages",
        "instruction",
        "conversations",
        "context",
        "problem",
    ),
    "system": ("system", "system_prompt"),
    "history": ("history",),
    "tools": ("tools",),
    "images": ("images", "image"),
    "id": ("id", "item_id", "prompt_id", "question_id"),
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
        "winner",
        "better_response_id",
        "safer_response_id",
        "preference",
        "overall_preference",
        "preference_strength",
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

SCORE_COLUMNS = {
    name for role, names in ROLES.items() if "score" in role for name in names
}
"""Usual names of columns with scores."""
SCORE_ROLES = ("chosen_score", "score_a", "score", "scores")
# Of these one column is read, though several may be there.
_FIRST = {"prompt", "id", "domain", "subset", "rating", "system", "images"}
_TEXTS = {
    *("prompt", "history", "tools", "images"),
    *("responses", "labels", "ratings", "scores"),
    *("chosen_score", "rejected_score"),
}
_PARTS = ("input", "context")
_ANSWERS = ("chosen", "rejected", "a", "b", "response")


def name_column(role: str, column: str = "<column>") -> str:
    """How a column is named, in Python and in the shell, for messages."""
    return f"columns={{{role!r}: {column!r}}} (in the shell: --column {role}={column})"


@dataclass(frozen=True)
class OwnTable:
    """People's own data with the columns of each role: none, one or several.

    `left_out` counts rows and comparisons that name no winner, `extra` holds columns
    that a layout adds, by row, `used` the roles that were read, and `bad` the errors of
    prompts that a layout cannot read.
    """

    source: Source
    roles: Mapping[str, Sequence[str]]
    better: str | None = None
    left_out: Counter[str] = field(default_factory=Counter)
    extra: dict[str, Cells] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    bad: dict[Hashable, DataError] = field(default_factory=dict)

    def has(self, *roles: str) -> bool:
        """Whether the data have a column for each of the roles."""
        return all(map(self.roles.get, roles))

    def cells(self, role: str) -> Cells:
        """The cells of a role's column; nothing but None without one.

        Raises DataError where several columns may have the role.
        """
        if not self.has(role):
            return [None] * len(self.source)
        self.used.add(role)
        names = self.roles[role]
        if len(names) > 1:
            listed = " and ".join(repr(name) for name in names)
            problem = f"{self.source.place}: {listed} may both be {role!r}"
            remedy = f"choose one, such as {name_column(role, names[0])}"
            raise DataError(problem, remedy)
        return self.source.columns[self.roles[role][0]]

    def columns(self, role: str) -> list[Cells]:
        """The cells of all columns of a role."""
        self.used.add(role)
        return [self.source.columns[name] for name in self.roles.get(role, ())]

    def refuse(
        self, row: int, role: str, allowed: str, remedy: str = "repair the row"
    ) -> NoReturn:
        """Raise DataError naming the row and the file's own column."""
        if not self.has(role):
            problem = f"{self.source.place}: row {row}: no {role}, and it must be "
            raise DataError(f"{problem}{allowed}", f"name it: {name_column(role)}")
        self.source.refuse(row, self.roles[role][0], allowed, remedy)

    def require(self, *roles: str) -> None:
        """Raise DataError where the data lack a role."""
        missing = [role for role in roles if not self.has(role)]
        if missing:
            raise missing_columns(self.source, missing)

    def names(self, role: str) -> list[str | None]:
        """Names such as those of domains; None where a cell is empty."""
        names: list[str | None] = []
        for row, value in enumerate(self.cells(role)):
            if isinstance(value, list | dict):
                self.refuse(row, role, "one name", "write a string, or leave it empty")
            is_empty = value is None or value == ""
            names.append(None if is_empty else name_value(value))
        return names


def name_value(value: object) -> str:
    """An id or a name as text: 7 and 7.0 are "7"."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)


def missing_columns(source: Source, roles: Sequence[str]) -> DataError:
    """The error where data have no column for some roles."""
    problem = f"{source.place}: no column for {' and '.join(roles)}"
    present = short(list(source.columns), 400)
    return DataError(f"{problem}; found: {present}", f"pass {name_column(roles[0])}")


def match_roles(source: Source, mapping: OwnColumns, better: str | None) -> OwnTable:
    """The columns of each role: those that a user names, or else of the usual names.

    Capitals and spaces around a name do not matter where no other column has the usual
    spelling. Lists and objects in text are unpacked.
    """
    source = open_paths(source, _list_names(mapping))
    mapped = _check_mapping(source, mapping)
    spelled = {name.strip().lower(): name for name in source.columns}
    spelled |= {name: name for name in source.columns}
    roles: dict[str, list[str]] = {}
    for role, usual in ROLES.items():
        present = [spelled[name] for name in usual if name in spelled]
        roles[role] = present[:1] if role in _FIRST else present
    roles |= _match_sides(spelled)
    if roles["a"] and not roles["winner"] and not roles["winner_a"]:
        roles["winner"] = roles["label"][:1] or roles["labels"]  # as in SHP
    if "prompt" not in mapping:
        _refuse_two_prompts(source, spelled, roles["prompt"])
    if mapped.get("family") == roles["id"]:
        roles["id"] = []
    roles |= mapped

    columns = dict(source.columns)
    for role in _TEXTS:
        for name in roles[role]:
            cells = unpack_texts(columns[name])
            if role != "prompt" or _are_messages(cells) or _are_lists(cells):
                columns[name] = cells
    prompts = [name for name in roles["prompt"] if _is_packed(source, columns, name)]
    for role in _ANSWERS:
        for name in roles[role]:
            # A list in text is an answer of its own, such as one that asks for JSON.
            cells = unpack_texts(columns[name])
            if prompts or _are_messages(cells):
                columns[name] = cells
    unpacked = replace(source, columns=columns)
    if all(_are_numbers(columns[name]) for label in LABELS for name in roles[label]):
        # As RewardBench writes scores alone.
        for label in LABELS:
            roles[f"{label}_score"] = roles[label] or roles[f"{label}_score"]
            roles[label] = []
    is_scored = any(roles[role] for role in SCORE_ROLES)
    if not is_scored and "model" not in mapped:
        roles["model"] = []  # The model that wrote the answer, not one that scores.
    return OwnTable(unpacked, roles, better)


def _is_packed(source: Source, columns: Mapping[str, Cells], name: str) -> bool:
    """Whether a column held lists or objects in texts, and was unpacked."""
    packed = source.columns[name]
    is_text = any(isinstance(cell, str) for cell in packed)
    return is_text and columns[name] is not packed


def _are_messages(cells: Cells) -> bool:
    return all(cell is None or read_messages(cell) is not None for cell in cells)


def _are_lists(cells: Cells) -> bool:
    return all(cell is None or isinstance(cell, list) for cell in cells)


def _refuse_two_prompts(
    source: Source, spelled: Mapping[str, str], prompt: Sequence[str]
) -> None:
    """Raise DataError where a context or an input stands beside the question."""
    names = [
        spelled[name]
        for name in ("prompt", "question", "instruction", "problem", *_PARTS)
        if name in spelled
    ]
    for part in _PARTS:
        name = spelled.get(part)
        if name is None or len(names) < 2:
            continue
        if any(cell not in (None, "") for cell in source.columns[name]):
            question = next(other for other in names if other != name)
            problem = (
                f"{source.place}: the prompt may be {question!r}, {name!r} or both"
            )
            remedy = f"name one: {name_column('prompt', question)}"
            raise DataError(problem, f"{remedy}, or join them in a column first")


def _are_numbers(cells: Cells) -> bool:
    return all(isinstance(cell, int | float) for cell in cells)


def _match_sides(spelled: Mapping[str, str]) -> dict[str, list[str]]:
    """Columns of two answers side by side: response_a and response_b, or numbered."""
    sides: dict[str, list[str]] = {"a": [], "b": []}
    for word in _SIDE_WORDS:
        for names in _SIDE_NAMES:
            present = [spelled.get(word + name) for name in names]
            if None not in present and (word or names[0] == "a"):
                for side, name in zip("ab", present, strict=True):
                    sides[side].append(str(name))
    return sides


def _list_names(mapping: OwnColumns) -> list[str]:
    """The columns that a user names."""
    names: list[str] = []
    for columns in mapping.values():
        names += [columns] if isinstance(columns, str) else columns or ()
    return names


def _check_mapping(source: Source, mapping: OwnColumns) -> dict[str, list[str]]:
    """The columns that a user names; DataError for a role or a column that is not
    there.
    """
    mapped: dict[str, list[str]] = {}
    for role, names in mapping.items():
        if role not in ROLES:
            problem = f"columns: unknown name {short(role)}"
            raise DataError(problem, nearest(role, list(ROLES)))
        columns = [names] if isinstance(names, str) else list(names or ())
        for column in columns:
            if column not in source.columns:
                problem = (
                    f"{source.place}: columns[{role!r}]: no column {short(column)}"
                )
                raise DataError(problem, nearest(column, list(source.columns)))
        mapped[role] = columns
    return mapped
