"""The callback for trainers: it logs and keeps a benchmark, and leaves the training as
it would be without it.
"""

import os
import random
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from statsmodels.stats.multitest import multipletests
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
    firsts = mini.drop_duplicates(["domain", "id"]).groupby("subset").head(5)
    return mini[mini["id"].isin(firsts["id"])].reset_index(drop=True)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A tiny model whose dropout draws random numbers."""
    folder = tmp_path_factory.mktemp("training") / "model"
    return toy.save_model(folder, attention_dropout=0.2)


class Noise(TrainerCallback):
    """What the trainer's loggers are given."""

    def __init__(self):
        self.logs = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.logs.append((state.global_step, dict(logs)))


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
        max_steps=4,
        per_device_train_batch_size=2,
        learning_rate=1e-2,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=5,
        **options,
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


def test_training_gives_the_same_weights_with_and_without_it(base, tmp_path, responses):
    # Under either of its names.
    names = {field.name for field in fields(TrainingArguments)}
    (*_, switch) = sorted(
        names & {"gradient_checkpointing", "activation_checkpointing"}, reverse=True
    )
    options = {switch: True}
    plain = train(base, tmp_path, [], **options)
    callback = BenchmarkCallback(responses, every=1)
    scored = train(base, tmp_path, [callback], **options)
    assert callback.scores["model"].nunique() == 5
    without, after = plain.model.state_dict(), scored.model.state_dict()
    start = AutoModelForSequenceClassification.from_pretrained(base).state_dict()
    for name, weight in without.items():
        assert torch.equal(weight, after[name]), name
    assert any(not torch.equal(start[name], after[name]) for name in start)
    assert plain.model.training == scored.model.training
    assert plain.model.config.use_cache == scored.model.config.use_cache
    modules = zip(plain.model.modules(), scored.model.modules(), strict=True)
    for one, other in modules:
        assert one.training == other.training
        assert getattr(one, "gradient_checkpointing", None) == getattr(
            other, "gradient_checkpointing", None
        )


class RandomStates(TrainerCallback):
    """Where the generators of random numbers are when each step begins."""

    def __init__(self):
        self.states = []

    def on_step_begin(self, args, state, control, **kwargs):
        _, numbers, *place = np.random.get_state()  # noqa: NPY002
        self.states.append(
            [
                random.getstate(),
                numbers.tolist(),
                place,
                torch.get_rng_state().tolist(),
            ]
        )


def test_training_draws_the_same_numbers_whatever_a_metric_draws(
    base, tmp_path, responses
):
    def draw(scores):
        return random.random() + np.random.rand() + torch.rand(1).item()  # noqa: NPY002

    plain = RandomStates()
    train(base, tmp_path, [plain])
    scored = RandomStates()
    callback = BenchmarkCallback(responses, every=1, metrics={"drawn": draw})
    train(base, tmp_path, [callback, scored])
    assert callback.scores["model"].nunique() == 5
    assert len(plain.states) == 4
    assert scored.states == plain.states


def test_its_numbers_are_those_of_the_model_at_each_step(base, tmp_path, responses):
    noise = Noise()
    callback = BenchmarkCallback(
        responses, every=2, metrics={"mean score": lambda table: table["score"].mean()}
    )
    trainer = train(base, tmp_path, [callback, noise])
    scores = callback.scores
    names = [f"run-7 step {step}" for step in (0, 2, 4)]
    assert list(scores["model"].unique()) == names
    assert set(scores.attrs["provenance"]) == set(names)

    start = rmlab.classifier(base, device="cpu", dtype="float32")
    for name, scorer in (
        (names[0], start),
        (
            names[2],
            rmlab.classifier(trainer.model, tokenizer=trainer.processing_class),
        ),
    ):
        expected = rmlab.score(responses, scorer)["score"]
        found = scores.loc[scores["model"] == name, "score"]
        np.testing.assert_allclose(found, expected, atol=1e-5)

    logged = {step: logs for step, logs in noise.logs if "mini/overall" in logs}
    assert list(logged) == [0, 2, 4]
    estimates = rmlab.estimates(scores[scores["model"] == names[1]])
    for quantity in ("overall", "easy", "normal", "hard"):
        (row,) = estimates[estimates["name"] == quantity].to_dict("records")
        assert logged[2][f"mini/{quantity}"] == row["value"]
        assert logged[2][f"mini/{quantity}_low"] == row["low"]
        assert logged[2][f"mini/{quantity}_high"] == row["high"]
    assert "mini/chat" not in logged[2]
    of_step = scores[scores["model"] == names[1]]
    assert logged[2]["mean score"] == of_step["score"].mean()
    in_history = [entry["step"] for entry in trainer.state.log_history]
    assert in_history.count(2) == 2, "the loss and the benchmark"


def test_its_table_is_compared_ranked_and_drawn(base, tmp_path, responses):
    callback = BenchmarkCallback(responses, every=2)
    train(base, tmp_path, [callback])
    first, *_, last = callback.scores["model"].unique()
    compared = rmlab.compare(callback.scores, first, last)
    assert len(compared) == 1
    assert len(rmlab.rank(callback.scores)) == 3
    ax = rmlab.plots.plot_training(callback.scores)
    gap = rmlab.style_gap(callback.scores)["gap"]
    drawn = ax.get_lines()[-1]
    assert list(drawn.get_xdata()) == [0, 2, 4]
    np.testing.assert_allclose(drawn.get_ydata(), gap)
    assert len(ax.get_lines()) == 4


def test_data_without_levels_log_the_columns_of_the_summary(base, tmp_path):
    pairs = pd.DataFrame({"prompt": ["Why?", "How?"] * 3, "chosen": TEXTS[:2] * 3})
    pairs["prompt"] += pd.Series(map(str, range(6)))
    pairs["rejected"] = "No."
    pairs["domain"] = ["first"] * 3 + ["second"] * 3
    responses = rmlab.load_preferences(pairs)
    noise = Noise()
    callback = BenchmarkCallback(responses)
    train(base, tmp_path, [noise, callback], eval_strategy="steps", eval_steps=2)
    (benchmark,) = responses["benchmark"].unique()
    logged = {step: logs for step, logs in noise.logs if f"{benchmark}/overall" in logs}
    assert list(logged) == [0, 2, 4]
    last = callback.scores[callback.scores["model"] == "run-7 step 4"]
    (row,) = rmlab.summary(last).to_dict("records")
    for column in ("overall", "first", "second"):
        assert logged[4][f"{benchmark}/{column}"] == row[column]
    ax = rmlab.plots.plot_training(callback.scores)
    assert len(ax.get_lines()) == 1


class FullDisk(TrainerCallback):
    """A logger that raises for the numbers of a benchmark."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "mini/overall" in logs:
            raise OSError("no space left")


def fail(table):
    raise KeyError("no such column")


@pytest.mark.parametrize(
    ("metrics", "others"), [({"broken": fail}, []), ({}, [FullDisk()])]
)
def test_a_crash_is_a_warning_and_the_training_ends(
    base, tmp_path, responses, metrics, others
):
    callback = BenchmarkCallback(responses, every=2, metrics=metrics)
    with pytest.warns(RuntimeWarning, match="step [024]") as caught:
        trainer = train(base, tmp_path, [callback, *others])
    assert len([w for w in caught if "BenchmarkCallback" in str(w.message)]) == 3
    assert trainer.state.global_step == 4
    assert callback.scores["model"].nunique() == 3


def test_a_store_keeps_run_and_step(base, tmp_path, responses):
    store = tmp_path / "store"
    callback = BenchmarkCallback(responses, every=4, store=store)
    train(base, tmp_path, [callback], run_name="run-9")
    model = AutoModelForSequenceClassification.from_pretrained(base)
    with torch.no_grad():
        model.score.weight.zero_()
    named = rmlab.classifier(
        model,
        tokenizer=PreTrainedTokenizerFast.from_pretrained(base),
        fingerprint="run-9 step 4",
        name="run-9 step 4",
    )
    again = rmlab.score(responses, named, store=store)["score"]
    last = callback.scores.loc[callback.scores["model"] == "run-9 step 4", "score"]
    np.testing.assert_array_equal(again, last)


def test_a_model_in_parts_is_refused_before_training(base, tmp_path, responses):
    trainer = make_trainer(base, tmp_path, [BenchmarkCallback(responses, every=100)])
    trainer.model.score.weight.ds_id = 3
    with pytest.raises(DataError):
        trainer.train()
    assert trainer.state.global_step == 0


def test_the_main_process_alone_scores(base, tmp_path, responses, monkeypatch):
    trainer = make_trainer(base, tmp_path, [BenchmarkCallback(responses, every=1)])
    monkeypatch.setattr(type(trainer), "is_world_process_zero", lambda _: False)
    trainer.train()
    (callback,) = (
        one
        for one in trainer.callback_handler.callbacks
        if isinstance(one, BenchmarkCallback)
    )
    assert callback.scores.empty


@pytest.mark.parametrize("every", ["epoch", 0, -3, 2.5])
def test_another_rhythm_is_refused(responses, every):
    with pytest.raises(ValueError, match="every"):
        BenchmarkCallback(responses, every=every)


def test_steps_are_compared_with_the_first_by_holm_over_all_steps(responses):
    callback = BenchmarkCallback(responses)
    assert len(callback.changes()) == 0
    step = [responses.assign(model=f"run step {i}") for i in range(4)]
    rng = np.random.default_rng(0)
    for i, scores in enumerate(step):
        right = (scores["label"] == "chosen") * 0.4 * i
        scores["score"] = right + rng.normal(size=len(scores))
    callback.scores = pd.concat(step).drop(columns=["prompt", "response"])
    changes = callback.changes()
    assert changes["model_a"].tolist() == [f"run step {i}" for i in (1, 2, 3)]
    adjusted = multipletests(changes["p"], method="holm")[1]
    np.testing.assert_allclose(changes["p_holm"], adjusted)


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
    noise = Noise()
    trainer = trl.RewardTrainer(
        model=AutoModelForSequenceClassification.from_pretrained(base),
        args=args,
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=PreTrainedTokenizerFast.from_pretrained(base),
        callbacks=[callback, noise],
    )
    trainer.train()
    names = [f"run-7 step {step}" for step in (0, 2, 4)]
    assert list(callback.scores["model"].unique()) == names
    logged = [step for step, logs in noise.logs if "mini/overall" in logs]
    assert logged == [0, 2, 4]


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
