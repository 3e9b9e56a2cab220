"""The callback for trainers: it logs and keeps a benchmark, and leaves the training as
it would be without it.
"""

import os
import random
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import rmlab
from rmlab import toy
from rmlab.tables import DataError
from rmlab.training import BenchmarkCallback

TEXTS = ["Paris, a city.", "I am sorry.", "Because 7 + 8 = 15.", "No."] * 4


@pytest.fixture(scope="module")
def responses():
    """Whole prompts of all domains and levels, enough for intervals."""
    mini = rmlab.load("mini")
    firsts = mini.drop_duplicates(["domain", "id"]).groupby("subset").head(3)
    return mini[mini["id"].isin(firsts["id"])].reset_index(drop=True)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A tiny model whose dropout draws random numbers."""
    folder = tmp_path_factory.mktemp("training") / "model"
    return toy.save_model(folder, attention_dropout=0.2)


class Log(TrainerCallback):
    """What the trainer's loggers are given, and where the generators of random numbers
    are when a step begins.
    """

    def __init__(self):
        self.logs = {}
        self.states = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        if any(name.endswith("/overall") for name in logs):
            self.logs[state.global_step] = dict(logs)

    def on_step_begin(self, args, state, control, **kwargs):
        _, numbers, *place = np.random.get_state()  # noqa: NPY002
        torch_state = torch.get_rng_state().tolist()
        self.states.append([random.getstate(), numbers.tolist(), place, torch_state])


def make_trainer(base, folder, callbacks, **options):
    model = AutoModelForSequenceClassification.from_pretrained(
        base, dtype=torch.float32
    )
    tokenizer = PreTrainedTokenizerFast.from_pretrained(base)
    rows = []
    for number, text in enumerate(TEXTS):
        ids = tokenizer(text)["input_ids"][:6]
        rows.append({"input_ids": ids + [0] * (6 - len(ids)), "labels": number % 2.0})
    args = TrainingArguments(
        output_dir=str(folder / "run-7"),
        per_device_train_batch_size=2,
        learning_rate=1e-2,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=5,
        **{"max_steps": 2} | options,
    )
    return Trainer(
        model=model,
        args=args,
        train_dataset=rows,
        eval_dataset=rows[:2],
        processing_class=tokenizer,
        callbacks=callbacks,
    )


def train(*arguments, **options):
    trainer = make_trainer(*arguments, **options)
    trainer.train()
    return trainer


@pytest.fixture(scope="module")
def runs(base, responses, tmp_path_factory):
    """Two trainings of two steps, one without the callback and one with it."""
    # Under either of its names.
    names = {field.name for field in fields(TrainingArguments)}
    options = {
        min(names & {"gradient_checkpointing", "activation_checkpointing"}): True
    }
    folder = tmp_path_factory.mktemp("runs")
    log = Log()
    plain = train(base, folder, [log], **options)
    callback = BenchmarkCallback(responses, every=1, store=folder / "store")
    scored_log = Log()
    scored = train(base, folder, [callback, scored_log], run_name="run-9", **options)
    return SimpleNamespace(
        plain=plain,
        scored=scored,
        states=(log.states, scored_log.states),
        logs=scored_log.logs,
        scores=callback.scores,
        store=folder / "store",
    )


def of_step(scores, step):
    return scores[scores["model"] == f"run-9 step {step}"]


def test_training_gives_the_same_weights_and_draws_the_same_numbers(base, runs):
    without, after = runs.plain.model.state_dict(), runs.scored.model.state_dict()
    start = AutoModelForSequenceClassification.from_pretrained(base).state_dict()
    for name, weight in without.items():
        assert torch.equal(weight, after[name]), name
    assert any(not torch.equal(start[name], after[name]) for name in start)
    plain, scored = runs.states
    assert len(plain) == 2
    assert plain == scored
    assert runs.plain.model.config.use_cache == runs.scored.model.config.use_cache
    modules = zip(runs.plain.model.modules(), runs.scored.model.modules(), strict=True)
    for one, other in modules:
        for name in ("training", "gradient_checkpointing"):
            assert getattr(one, name, None) == getattr(other, name, None)


def test_its_numbers_are_those_of_the_model_at_each_step(base, responses, runs):
    names = [f"run-9 step {step}" for step in (0, 1, 2)]
    assert list(runs.scores["model"].unique()) == names
    assert set(runs.scores.attrs["provenance"]) == set(names)
    trained = rmlab.classifier(
        runs.scored.model, tokenizer=runs.scored.processing_class
    )
    start = rmlab.classifier(base, device="cpu", dtype="float32")
    for step, scorer in ((0, start), (2, trained)):
        expected = rmlab.score(responses, scorer)["score"]
        np.testing.assert_allclose(
            of_step(runs.scores, step)["score"], expected, atol=1e-5
        )

    assert list(runs.logs) == [0, 1, 2]
    estimates = rmlab.estimates(of_step(runs.scores, 1))
    for name in ("overall", "easy", "normal", "hard"):
        (row,) = estimates[estimates["name"] == name].to_dict("records")
        logged = runs.logs[1]
        shown = [logged[f"mini/{name}{end}"] for end in ("", "_low", "_high")]
        assert shown == [row["value"], row["low"], row["high"]]
    in_history = [entry["step"] for entry in runs.scored.state.log_history]
    assert in_history.count(1) == 2, "the loss and the benchmark"
    drawn = rmlab.plots.plot_training(runs.scores).get_lines()
    assert list(drawn[-1].get_xdata()) == [0, 1, 2]


def test_a_store_keeps_run_and_step(base, responses, runs):
    model = AutoModelForSequenceClassification.from_pretrained(base)
    with torch.no_grad():
        model.score.weight.zero_()
    name = "run-9 step 2"
    tokenizer = PreTrainedTokenizerFast.from_pretrained(base)
    named = rmlab.classifier(model, tokenizer, fingerprint=name, name=name)
    again = rmlab.score(responses, named, store=runs.store)["score"]
    np.testing.assert_array_equal(again, of_step(runs.scores, 2)["score"])


def test_data_without_levels_are_scored_after_each_evaluation(base, tmp_path):
    pairs = pd.DataFrame({"prompt": list("abcdef"), "chosen": TEXTS[:6]})
    pairs["rejected"] = "Never."
    pairs["domain"] = ["first"] * 3 + ["second"] * 3
    log = Log()
    callback = BenchmarkCallback(rmlab.load_preferences(pairs, name="mine"))
    train(base, tmp_path, [log, callback], eval_strategy="steps", eval_steps=1)
    assert list(log.logs) == [0, 1, 2]
    last = callback.scores[callback.scores["model"] == "run-7 step 2"]
    (row,) = rmlab.summary(last).to_dict("records")
    for column in ("overall", "first", "second"):
        assert log.logs[2][f"mine/{column}"] == row[column]


def test_a_crash_is_a_warning_and_the_training_ends(base, tmp_path, responses):
    callback = BenchmarkCallback(responses, every=1, head="absent")
    with pytest.warns(RuntimeWarning, match="step [012]") as caught:
        trainer = train(base, tmp_path, [callback])
    assert len([w for w in caught if "BenchmarkCallback" in str(w.message)]) == 3
    assert trainer.state.global_step == 2


def test_a_model_in_parts_is_refused_before_training(base, tmp_path, responses):
    trainer = make_trainer(base, tmp_path, [BenchmarkCallback(responses, every=100)])
    trainer.model.score.weight.ds_id = 3
    with pytest.raises(DataError):
        trainer.train()
    assert trainer.state.global_step == 0


def test_the_main_process_alone_scores(base, tmp_path, responses, monkeypatch):
    callback = BenchmarkCallback(responses, every=1)
    trainer = make_trainer(base, tmp_path, [callback])
    monkeypatch.setattr(type(trainer), "is_world_process_zero", lambda _: False)
    trainer.train()
    assert callback.scores.empty


@pytest.mark.parametrize("every", ["epoch", 0, 2.5])
def test_another_rhythm_is_refused(responses, every):
    with pytest.raises(ValueError, match="every"):
        BenchmarkCallback(responses, every=every)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_it_works_with_the_trainer_of_trl(base, tmp_path, responses):
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    rows = [{"prompt": "Why? ", "chosen": "Because 7 + 8 = 15.", "rejected": "No."}] * 8
    args = trl.RewardConfig(
        output_dir=str(tmp_path / "run-7"),
        max_steps=4,
        per_device_train_batch_size=2,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
        bf16=False,
    )
    callback = BenchmarkCallback(responses, every=2)
    log = Log()
    trainer = trl.RewardTrainer(
        model=AutoModelForSequenceClassification.from_pretrained(base),
        args=args,
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=PreTrainedTokenizerFast.from_pretrained(base),
        callbacks=[callback, log],
    )
    trainer.train()
    names = [f"run-7 step {step}" for step in (0, 2, 4)]
    assert list(callback.scores["model"].unique()) == names
    assert list(log.logs) == [0, 2, 4]


@pytest.mark.long
def test_the_recipe_for_sharded_models_on_two_processes(tmp_path):
    folder = toy.save_model(tmp_path / "m")
    script = Path(__file__).parent / "sharded.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(script), str(folder)]
    path = os.pathsep.join([str(script.parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "equal" in done.stdout, done.stderr
