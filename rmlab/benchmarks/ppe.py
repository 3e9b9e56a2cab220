"""PPE, Preference Proxy Evaluations: votes of people between two answers, and right
answers against wrong ones on five sets of questions.
"""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from rmlab import records
from rmlab.benchmarks import hub
from rmlab.benchmarks.benchmark import Benchmark, own_domains
from rmlab.benchmarks.hub import HubPlace
from rmlab.benchmarks.layout import Files, Layout, all_files
from rmlab.benchmarks.rows import FileRow, read_answers
from rmlab.estimation.items import Items, Parts
from rmlab.estimation.weights import weighted_parts
from rmlab.records import Row
from rmlab.tables import DataError

_SIDES = {
    "model_a": ("response_1", "response_2"),
    "model_b": ("response_2", "response_1"),
}
_TIES = ("tie", "tie (bothbad)")
_N_LANGUAGES = 6
_SETS = ("MMLU-Pro", "MATH", "GPQA", "MBPP-Plus", "IFEval")
SETS = tuple(map(str.lower, _SETS))
_CORRECTNESS_HUB = HubPlace(
    [f"lmarena-ai/PPE-{name}-Best-of-K" for name in _SETS], "main"
)


def read_preference(files: Files) -> pd.DataFrame:
    """Responses of the votes that have a winner.

    The domain is the language, or "other" but for the six with most votes; `language`
    names all of them.
    """
    decided = []
    for file, rows in files:
        kept = []
        for number, cells in enumerate(rows):
            winner = cells.get("winner")
            if winner not in (*_SIDES, *_TIES):
                allowed = f"one of {', '.join((*_SIDES, *_TIES))}"
                FileRow(file, number, cells).refuse("winner", allowed)
            if winner in _SIDES:
                kept.append(cells)
        decided.append((file, kept))
    languages = pd.Series(
        [str(cells.get("language")) for _, rows in decided for cells in rows]
    )
    largest = languages.value_counts().index[:_N_LANGUAGES]

    def rename(row: FileRow) -> Row:
        language = str(row.cells.get("language"))
        return {
            **row.read_sides("winner", _SIDES),
            "id": row.read_id("question_id"),
            "domain": language if language in largest else "other",
            "prompt": row.read_prompt(),
            "language": language,
        }

    return read_answers(decided, "ppe-preference", rename, 1, names_question=True)


def read_correctness(files: Files) -> pd.DataFrame:
    """Responses of the sampled pairs of a right and a wrong answer, an item each; the
    set of questions is the domain.
    """
    pairs = []
    for file, rows in files:
        of_file: list[Row] = []
        for row in _number_rows(file, rows):
            of_file += _list_pairs(row)
        pairs.append((file, of_file))
    return read_answers(
        pairs, "ppe-correctness", lambda row: dict(row.cells), 1, names_question=True
    )


def fetch_candidates() -> list[Row]:
    """All candidates, a row each, from the hub."""
    candidates: list[Row] = []
    for file in hub.fetch_benchmark(_CORRECTNESS_HUB, "load_pool(rows)"):
        for row in _number_rows(file, records.read_rows(file)):
            shared = _describe(row) | {"benchmark": "ppe-correctness"}
            for number, is_right in enumerate(_read_marks(row), 1):
                (text,) = row.read_texts(f"response_{number}", 1)
                candidates.append(shared | {"response": text, "correct": is_right})
    return candidates


def _number_rows(file: Path, rows: list[Row]) -> Iterator[FileRow]:
    for number, cells in enumerate(rows):
        yield FileRow(file, number, cells)


def _describe(row: FileRow) -> Row:
    """What all candidates of a row share: one question, answered by one model."""
    model = row.read_name("model_name")
    return {
        "domain": _find_set(row.file),
        "id": f"{row.read_id('question_id')}/{model}",
        "prompt": row.read_prompt(),
        "response_model": model,
    }


def _find_set(file: Path) -> str:
    """The set of questions that a file's name says, or else the nearest folder's."""
    for part in reversed(file.parts):
        for name in SETS:
            if name in part.lower():
                return name
    remedy = f"name one of {', '.join(SETS)} in its path"
    raise DataError(f"{file}: no set of PPE's questions in its name", remedy)


def _read_marks(row: FileRow) -> list[bool]:
    """Whether each candidate is right."""
    marks = row.cells.get("scores")
    if not isinstance(marks, list) or not {*map(type, marks)} <= {bool}:
        row.refuse("scores", "a list of true and false, one for each response")
    return marks


def _list_pairs(row: FileRow) -> list[Row]:
    marks = _read_marks(row)
    shared = _describe(row)
    pairs = []
    sampled = row.cells.get("sampled_conflict_pairs")
    for number, pair in enumerate(sampled if isinstance(sampled, list) else [sampled]):
        try:
            right, wrong = sorted(pair, key=marks.__getitem__, reverse=True)
            is_conflict = marks[right] and not marks[wrong]
        except (TypeError, ValueError, IndexError):
            is_conflict = False
        if not is_conflict:
            allowed = "a list of [i, j], the numbers from 0 of a right and a wrong one"
            row.refuse("sampled_conflict_pairs", allowed)
        pairs.append(
            shared
            | {
                "id": f"{shared['id']}/{number}",
                "chosen": row.read_texts(f"response_{right + 1}", 1),
                "rejected": row.read_texts(f"response_{wrong + 1}", 1),
            }
        )
    return pairs


def _weigh_sets(items: Items, _: object) -> Parts:
    """The five sets alike."""
    return weighted_parts(items.frame["domain"], dict.fromkeys(SETS, 1.0))


PPE_PREFERENCE = Benchmark(
    name="ppe-preference",
    title="PPE Preference",
    source="arXiv 2410.14872",
    cluster=("question",),
    layout=Layout(
        read=read_preference,
        hub=HubPlace("lmarena-ai/PPE-Human-Preference-V1", "main"),
    ),
)
"""The overall score is the share of all votes with a winner."""

PPE_CORRECTNESS = Benchmark(
    name="ppe-correctness",
    title="PPE Correctness",
    source="arXiv 2410.14872",
    cluster=("question",),
    subsets=own_domains(SETS),
    columns=SETS,
    layout=Layout(
        read=read_correctness,
        folder_files=all_files,
        hub=_CORRECTNESS_HUB,
    ),
    make_parts=_weigh_sets,
    variants={"all pairs count alike, not all sets": {"average": "prompts"}},
)
"""The overall score is the mean of the five sets."""
