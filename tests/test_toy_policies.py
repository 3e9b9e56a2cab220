"""DPO on toy preferences: the loss begins at log 2, and the saved pair scores as the training counted."""

import numpy as np
import pytest

import rmlab
from rmlab import toy

pytest.importorskip("torch")


def test_dpo_begins_where_policy_and_reference_agree_and_learns(tmp_path):
    pairs = toy.preferences(400, topics=["ordering"])
    made = toy.train_dpo(pairs, tmp_path / "dpo", sft_steps=30, steps=40, progress=False)
    dpo = made.history[made.history["stage"] == "dpo"]
    assert dpo["loss"].iloc[0] == pytest.approx(np.log(2), abs=1e-6)
    assert dpo["loss"].iloc[-10:].mean() < np.log(2)
    sft = made.history[made.history["stage"] == "sft"]
    assert sft["loss"].iloc[-1] < sft["loss"].iloc[0] / 2

    scores = rmlab.score(pairs, rmlab.implicit_reward(made.folder, made.reference))
    wide = scores.pivot(index="id", columns="label", values="score")
    accuracy = (wide["chosen"] > wide["rejected"]).mean()
    assert abs(accuracy - dpo["accuracy"].iloc[-10:].mean()) < 0.15
    itself = rmlab.score(pairs.head(20), rmlab.implicit_reward(made.reference, made.reference, name="itself"))
    assert (itself["score"] == 0).all()


def test_beta_is_positive(tmp_path):
    for wrong in ({"beta": 0.0}, {"steps": 0}, {"sft_steps": 0}, {"learning_rate": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong)).removeprefix("sft_")):
            toy.train_dpo(toy.preferences(300), tmp_path, **wrong)
    assert not list(tmp_path.iterdir())
