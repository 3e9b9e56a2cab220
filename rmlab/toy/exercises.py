"""Exercises of the course: stubs that say what to do, and checks that say what is wrong without giving the answer."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, TypeVar, cast

from rmlab.tables import DataError, nearest

__all__ = ["EXERCISES", "Exercise", "Verdict", "asks", "check", "todo"]

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Verdict:
    """What `check` says of an answer: `right`, and `why` or why not."""

    exercise: str
    right: bool
    why: str

    def __repr__(self) -> str:
        return f"{self.exercise}: {'right' if self.right else 'not yet'}. {self.why}"


@dataclass(frozen=True)
class Exercise:
    """A question of the course: what kind of answer it `wants`, what it teaches, and what is wrong with an answer."""

    wants: str
    lesson: str
    fault: Callable[[object], str | None]


EXERCISES: dict[str, Exercise] = {}
"""The exercises by number, "1.1" to "6.3"."""


def todo(task: str) -> NoReturn:
    """Stand where a solution belongs: raises NotImplementedError that says what to do."""
    raise NotImplementedError(f"Your turn: {task}. Replace this line by your answer, then run the cell again.")


def check(exercise: str, answer: object) -> Verdict:
    """Whether `answer` solves the exercise of that number, and why not, without giving the solution away.

    A function is tried on small examples; what it raises is reported, never raised. Raises DataError for an exercise
    that does not exist.

    >>> check("2.3", 0.25)
    2.3: not yet. At 0.25 Markdown is worth 0.5 of being right: the right answer still wins.
    """
    if exercise not in EXERCISES:
        raise DataError(f"exercise={exercise!r}; {nearest(str(exercise), list(EXERCISES))}")
    asked = EXERCISES[exercise]
    try:
        fault = asked.fault(answer)
    except NotImplementedError as stub:
        fault = str(stub)
    except _WrongType:
        fault = f"This exercise wants {asked.wants}; you gave {_called(answer)}."
    except Exception as error:
        fault = f"Your answer stopped with {type(error).__name__}: {error}"
    return Verdict(exercise, fault is None, asked.lesson if fault is None else fault)


class _WrongType(Exception):
    """The answer is not of the kind that the exercise wants."""


def asks(
    number: str, kind: type[Answer] | tuple[type, ...], wants: str, lesson: str, *, arguments: int | None = None
) -> Callable[[Callable[[Answer], str | None]], None]:
    """Register a judge of answers: it gets an answer of `kind` and says what is wrong with it, None for nothing.

    `arguments`: how many a function that answers the exercise must take.
    """

    def register(judge: Callable[[Answer], str | None]) -> None:
        def fault(answer: object) -> str | None:
            if isinstance(answer, bool) or not isinstance(answer, kind) or not _takes(answer, arguments):
                raise _WrongType
            return judge(cast(Answer, answer))

        EXERCISES[number] = Exercise(wants, lesson, fault)

    return register


def _takes(answer: object, arguments: int | None) -> bool:
    if arguments is None:
        return True
    return callable(answer) and len(inspect.signature(answer).parameters) == arguments


def _called(answer: object) -> str:
    if callable(answer):
        return f"a function of {len(inspect.signature(answer).parameters)} arguments"
    shown = repr(answer)
    return f"{type(answer).__name__} {shown if len(shown) < 60 else shown[:57] + '...'}"
