"""What other libraries raise while they load a model, as one sentence."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmlab.tables import DataError


@contextmanager
def explain(model: str | Path, task: str, remedy: str) -> Iterator[None]:
    """Turn whatever transformers raises at a `task` into one sentence.

    Its warnings, bars and tables are silenced.
    """
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    has_bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    # The files are somebody's: it may raise whatever it likes.
    except Exception as error:
        cause = first_line(error)
        problem = f"model={str(model)!r}: transformers cannot {task} ({cause})"
        raise DataError(problem, remedy) from error
    finally:
        logging.set_verbosity(verbosity)
        if has_bars:
            logging.enable_progress_bar()


def first_line(error: Exception, longest: int = 200) -> str:
    """The first line of another library's message, short enough for a sentence."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:longest]
