"""The usual layouts of people's own files, brought to rows with `chosen`, `rejected` and their scores."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rmlab.benchmarks.rows import Record
from rmlab.benchmarks.winners import SIDES, choose_sides
from rmlab.records import Row
from rmlab.tables import LABELS, DataError

_USUAL = {
    "chosen_score": ("chosen_score", "score_chosen", "chosen_reward", "reward_chosen", "chosen_rewards"),
    "rejected_score": ("rejected_score", "score_rejected", "rejected_reward", "reward_rejected", "rejected_rewards"),
    "score_a": ("score_a", "a_score", "reward_a", "a_reward"),
    "score_b": ("score_b", "b_score", "reward_b", "b_reward"),
    "score": ("score", "reward"),
    "scores": ("scores", "rewards"),
    "response": ("response", "answer", "completion", "output"),
    "responses": ("responses", "answers", "completions"),
    "label": ("label", "is_chosen", "is_correct", "preferred"),
    "labels": ("labels",),
}
LAYOUT_NAMES = tuple(_USUAL)
_LABEL_WORDS = dict.fromkeys(("chosen", "1", "1.0", "true"), "chosen") | dict.fromkeys(
    ("rejected", "0", "0.0", "false"), "rejected"
)


def usual_rows(
    place: Path, rows: list[Record], columns: Mapping[str, object], prompt_columns: Sequence[str]
) -> tuple[list[Record], dict[str, object]]:
    """Rows with `chosen`, `rejected`, `chosen_score` and `rejected_score`, as far as the file has them.

    Parameters
    ----------
    place
        The file, for messages.
    rows
        A pair a row; two answers and a `winner`; a response and its label; or lists of responses and labels.
    columns
        Our names to those of the file, where these are not the usual ones.
    prompt_columns
        Columns that name a prompt, the first that is there: rows with one response are put together by it.

    Returns
    -------
    The rows, and what was left out for want of a winner.
    """
    names = list(dict.fromkeys(name for record in rows for name in record.row))
    ours = {name: columns.get(name) or _find(place, names, name) for name in _USUAL}
    renames = {theirs: name for name, theirs in ours.items() if isinstance(theirs, str) and theirs in names}
    is_pair = {*LABELS} <= {*names} or bool({*LABELS, *SIDES} & {*columns})
    rows = [replace(record, row=_rename(record.row, renames)) for record in rows]
    present = set(renames.values())
    left_out: dict[str, object] = {}
    if not is_pair:
        sides = {side: [name for name in candidates if name in names][:1] for side, candidates in SIDES.items()}
        if "winner" in names and all(sides.values()):
            rows, left_out = choose_sides(place, rows, sides | {"winner": ["winner"]})
        elif "label" in present and {"response", "score"} & present:
            rows = _group_responses(place, rows, [name for name in prompt_columns if name in names])
        elif {"responses", "labels"} <= present:
            rows = [_split_lists(record) for record in rows]
    return [_split_scores(record) for record in rows], left_out


def _find(place: Path, names: Sequence[str], ours: str) -> str | None:
    """The one of the usual names that a file has; DataError where it has two."""
    present = [name for name in _USUAL[ours] if name in names]
    if len(present) > 1:
        problem = f"{' and '.join(map(repr, present))} may both be {ours!r}"
        option = f"columns={{{ours!r}: {present[0]!r}}} (in the shell: --column {ours}={present[0]})"
        raise DataError(f"{place}: {problem}; choose one, such as {option}")
    return present[0] if present else None


def _rename(row: Row, renames: Mapping[str, str]) -> Row:
    return {renames.get(name, name): value for name, value in row.items()}


def _group_responses(place: Path, rows: list[Record], prompt_columns: Sequence[str]) -> list[Record]:
    """One row per prompt from one row per response."""
    if not prompt_columns:
        raise DataError(
            f"{place}: rows of single responses need a column for their prompt; pass columns={{'id': '<column>'}}"
        )
    prompts: dict[str, Row] = {}
    for record in rows:
        word = str(record.row["label"]).strip().lower()
        if word not in _LABEL_WORDS:
            record.refuse("label", "chosen or rejected, 1 or 0, true or false", "or pass columns={'label': '<column>'}")
        key = str(record.row[prompt_columns[0]])
        prompt = prompts.setdefault(key, {name: value for name, value in record.row.items() if name != "label"})
        for ours in ("response", "score"):
            name = f"{_LABEL_WORDS[word]}{'' if ours == 'response' else '_score'}"
            if ours in record.row:
                answers = prompt.setdefault(name, [])
                assert isinstance(answers, list)
                answers.append(record.row[ours])
    for row in prompts.values():
        row.pop("response", None)
        row.pop("score", None)
    return [Record(place, number, row) for number, row in enumerate(prompts.values())]


def _split_lists(record: Record) -> Record:
    """Lists of responses, and of scores, by the label of each."""
    labels = [_LABEL_WORDS.get(str(label).lower()) for label in _as_list(record.row["labels"])]
    row = {name: value for name, value in record.row.items() if name not in ("responses", "labels", "scores")}
    for ours, suffix in (("responses", ""), ("scores", "_score")):
        if ours not in record.row:
            continue
        values = _as_list(record.row[ours])
        if None in labels or len(values) != len(labels):
            record.refuse("labels", f"1 or 0 for each of the {len(values)} {ours}")
        for label in LABELS:
            row[label + suffix] = [value for value, word in zip(values, labels, strict=True) if word == label]
    return replace(record, row=row)


def _split_scores(record: Record) -> Record:
    """`scores` of a pair as `chosen_score` and `rejected_score`: an object with both, or a list, the chosen first."""
    scores = record.row.get("scores")
    if isinstance(scores, dict) and {*LABELS} <= scores.keys():
        return replace(record, row=record.row | {f"{label}_score": scores[label] for label in LABELS})
    if isinstance(scores, list) and "chosen_score" not in record.row:
        n_chosen = len(_as_list(record.row.get("chosen"))) if "chosen" in record.row else 1
        return replace(
            record, row=record.row | {"chosen_score": scores[:n_chosen], "rejected_score": scores[n_chosen:]}
        )
    return record


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]
