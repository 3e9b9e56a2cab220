"""Benchmarks while a reward model is trained, with transformers' Trainer or trl's.

Loaded on first access, as it imports transformers.
"""

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_callback import CallbackHandler

from rmlab import metrics, scorers, scoring, tables
from rmlab.scorers.in_memory import ModelInMemory

__all__ = ["BenchmarkCallback"]


class BenchmarkCallback(TrainerCallback):
    """Score a benchmark before and while a reward model is trained.

    The trainer's loggers get `<benchmark>/overall` and the other columns of
    `rmlab.summary`, such as `/hard`, each also with `_low` and `_high`. Training goes
    on as it would without: weights, modes and random numbers stay as they are. An error
    while scoring or logging is a warning and never ends the training.

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
        **options: Any,
    ) -> None:
        is_number = isinstance(every, int) and every >= 1
        if every != "eval" and not is_number:
            raise ValueError(f"every={every!r}; allowed: 'eval' or a number of steps")
        self.responses = tables.check_responses(responses)
        self.every = every
        self.store = store
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
        """Refuse a sharded model, and score the model before training."""
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
        """Score and log; any error is a warning."""
        step = state.global_step
        if not state.is_world_process_zero or step == self._last_step:
            return
        self._last_step = step
        run = Path(args.run_name or args.output_dir or "run").name
        # A benchmark is never worth a training run.
        try:
            name = f"{run} step {step}"
            scores = self._score(name, kwargs["model"], kwargs["processing_class"])
            _log(args, state, control, _list_estimates(scores))
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


def _list_estimates(scores: pd.DataFrame) -> dict[str, float]:
    """The estimates that have a column in the summary, and their limits, by the names
    that are logged.
    """
    numbers = {}
    for benchmark, rows in scores.groupby("benchmark", sort=False, observed=True):
        estimates = metrics.estimates(rows)
        is_shown = estimates["name"].isin(metrics.summary(rows).columns)
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
    """Pass numbers to the trainer's history and to all of its callbacks, as its own
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
