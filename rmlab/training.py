"""Benchmarks while a reward model is trained, with transformers' Trainer or trl's.

Loaded on first access, as it imports transformers.
"""

import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_callback import CallbackHandler

from rmlab import metrics as estimation
from rmlab import scorers, scoring, stats, tables
from rmlab.estimation.difference import holm
from rmlab.scorers.in_memory import ModelInMemory

__all__ = ["BenchmarkCallback"]

Metric = Callable[[pd.DataFrame], float]


class BenchmarkCallback(TrainerCallback):
    """Score a benchmark before and while a reward model is trained.

    The trainer's loggers get `<benchmark>/overall`, `/easy`, `/normal` and `/hard`
    (of data without levels all columns of `rmlab.summary`), each also with `_low` and
    `_high`, `p_holm` (of the change since the first step, adjusted over the steps so
    far).
    Training goes on as it would without: weights, modes and random numbers stay as they
    are. An error while scoring or logging is a warning and never ends the training.

    Parameters
    ----------
    responses : DataFrame
        A table of responses, such as a sample of RM-Bench.
    every : "eval" or int
        Score after each evaluation of the trainer, or after so many steps. The model is
        also scored before the first step.
    store : str or Path, optional
        Where scores are kept, as in `rmlab.score`, under the run's name and the step:
        each run needs a name of its own (`run_name` of the training arguments).
    metrics : mapping, optional
        From names to functions of the scores of one step that return one number, which
        is logged under that name.
    **options
        Options of `rmlab.classifier`, such as `template` or `max_length`.

    Attributes
    ----------
    scores : DataFrame
        The scores of all steps. The model is called "<run> step <number>", so that
        `rmlab.compare`, `rmlab.rank` and `rmlab.plots.plot_training` take the table.

    Raises
    ------
    ValueError
        For another `every`.
    DataError
        At the start of the training, for a model that the main process does not hold
        whole (FSDP, DeepSpeed 3).

    Notes
    -----
    In distributed runs the main process alone scores, and the others wait.

    Examples
    --------
    >>> import rmlab
    >>> from rmlab.training import BenchmarkCallback
    >>> callback = BenchmarkCallback(rmlab.load("mini"), every=100)
    """

    def __init__(
        self,
        responses: pd.DataFrame,
        every: str | int = "eval",
        *,
        store: str | Path | None = None,
        metrics: Mapping[str, Metric] | None = None,
        **options: Any,
    ) -> None:
        is_number = isinstance(every, int) and every >= 1
        if every != "eval" and not is_number:
            raise ValueError(f"every={every!r}; allowed: 'eval' or a number of steps")
        self.responses = tables.check_responses(responses)
        self.every = every
        self.store = store
        self.metrics = dict(metrics or {})
        self.options = options
        self.scores = pd.DataFrame()
        self._last_step: int | None = None

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Refuse a model in parts, and score the model as it is before training."""
        ModelInMemory(kwargs["model"], kwargs["processing_class"])
        self._last_step = None
        self._examine(args, state, control, kwargs)

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Score after every so many steps."""
        if isinstance(self.every, int) and state.global_step % self.every == 0:
            self._examine(args, state, control, kwargs)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Score after an evaluation of the trainer."""
        if self.every == "eval":
            self._examine(args, state, control, kwargs)

    def _examine(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        kwargs: Mapping[str, Any],
    ) -> None:
        """Score and log; whatever fails is a warning."""
        step = state.global_step
        if not state.is_world_process_zero or step == self._last_step:
            return
        self._last_step = step
        run = Path(args.run_name or args.output_dir or "run").name
        # A benchmark is never worth a training run.
        try:
            with _kept_random_state():
                name = f"{run} step {step}"
                scores = self._score(name, kwargs["model"], kwargs["processing_class"])
                numbers = self._summarize(scores)
            _log(args, state, control, numbers)
        except Exception as error:
            message = f"BenchmarkCallback failed at step {step}: {error!r}"
            # Of the method that the trainer has called.
            warnings.warn(message, RuntimeWarning, stacklevel=3)

    def _score(
        self, name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
    ) -> pd.DataFrame:
        """The scores of a step, which `self.scores` gets too."""
        scorer = scorers.classifier(
            model, tokenizer=tokenizer, fingerprint=name, name=name, **self.options
        )
        scores = scoring.score(self.responses, scorer, store=self.store, progress=False)
        provenance = self.scores.attrs.get("provenance", {})
        self.scores = pd.concat([self.scores, scores], ignore_index=True)
        self.scores.attrs["provenance"] = provenance | scores.attrs["provenance"]
        return scores

    def changes(self) -> pd.DataFrame:
        """Compare each step with the first one.

        Returns
        -------
        DataFrame
            One row per benchmark and step, as `rmlab.compare` returns it; `p_holm` is
            adjusted over the steps of the benchmark (Holm's method). The best of many
            steps looks better than it is: its own interval does not allow for the
            choice. Without rows before the first score.
        """
        frames = [pd.DataFrame()]
        for benchmark, rows in _split(self.scores):
            first, *later = rows["model"].unique()
            steps = [stats.compare(rows, name, first) for name in later]
            if steps:
                frame = pd.concat(steps, ignore_index=True)
                frame.insert(0, "benchmark", benchmark)
                frame["p_holm"] = holm(frame["p"].to_numpy())
                frames.append(frame)
        return pd.concat(frames, ignore_index=True)

    def _summarize(self, scores: pd.DataFrame) -> dict[str, float]:
        """The numbers to log, by name."""
        numbers: dict[str, float] = {}
        for benchmark, rows in _split(scores):
            numbers |= _list_estimates(benchmark, rows)
        for row in self.changes().to_dict("records"):
            numbers[f"{row['benchmark']}/p_holm"] = row["p_holm"]  # the last step's
        for name, metric in self.metrics.items():
            numbers[name] = float(metric(scores))
        return numbers


def _split(scores: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Benchmarks and their scores."""
    if len(scores):
        for name, rows in scores.groupby("benchmark", sort=False, observed=True):
            yield str(name), rows


def _list_estimates(benchmark: str, scores: pd.DataFrame) -> dict[str, float]:
    """A benchmark's estimates and their limits, by the names that are logged.

    Overall and the levels; without levels all that have a column in the summary.
    """
    estimates = estimation.estimates(scores)
    is_shown = estimates["quantity"].isin(["overall", "level"])
    if "level" not in set(estimates["quantity"]):
        is_shown = estimates["name"].isin(estimation.summary(scores).columns)

    numbers = {}
    for row in estimates[is_shown].to_dict("records"):
        name = f"{benchmark}/{row['name']}"
        numbers[name] = row["value"]
        numbers[f"{name}_low"] = row["low"]
        numbers[f"{name}_high"] = row["high"]
    # What cannot be estimated, such as an interval of four prompts, is left out.
    return {name: value for name, value in numbers.items() if np.isfinite(value)}


def _log(
    args: TrainingArguments,
    state: TrainerState,
    control: TrainerControl,
    numbers: Mapping[str, float],
) -> None:
    """Give numbers to the trainer's history and to all of its callbacks, as its own
    method `log` does.
    """
    entry = {**numbers, "step": state.global_step}
    if state.epoch is not None:
        entry["epoch"] = state.epoch
    state.log_history.append(entry)
    handler = _find_handler()
    # Its own method would also take back a log that the trainer has asked for.
    handler.call_event("on_log", args, state, control, logs=dict(entry))


def _find_handler() -> CallbackHandler:
    """The list of callbacks that called this one; transformers passes it to none."""
    frame = sys._getframe()
    while not isinstance(frame.f_locals.get("self"), CallbackHandler):
        if frame.f_back is None:
            raise RuntimeError("a BenchmarkCallback is called by a trainer alone")
        frame = frame.f_back
    handler: CallbackHandler = frame.f_locals["self"]
    return handler


@contextmanager
def _kept_random_state() -> Iterator[None]:
    """Give Python's, numpy's and torch's generators the state that they had."""
    python_state = random.getstate()
    numpy_state = np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
