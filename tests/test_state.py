"""A pass through a model, the probes' passes among them, leaves nothing behind that changes the next one."""

import numpy as np
import pytest
import torch
from test_sweep import ENCODERS, conversations, encoder_words, one_by_one

from rmlab import toy
from rmlab.inference.packing import packing_support
from rmlab.inference.state import changes, keep_state, put_back, remember
from rmlab.scorers import classifier
from rmlab.tables import DataError


@pytest.fixture(autouse=True)
def _quiet(one_thread):
    pass


@pytest.fixture
def save(tmp_path, monkeypatch):
    """Saves a tiny encoder of the sweep."""

    def made(architecture, **settings):
        monkeypatch.setitem(toy.ARCHITECTURES, architecture, ENCODERS[architecture] | settings)
        words = encoder_words("[CLS] $A [SEP]")
        return toy.save_model(tmp_path / architecture, architecture, words=words), words

    return made


@pytest.mark.parametrize("architecture", toy.ARCHITECTURES)
def test_probes_leave_no_state_behind(load_backbone, architecture):
    backbone = load_backbone(architecture)
    before = remember(backbone)
    packing_support(backbone)
    assert put_back(before) == []
    assert keep_state(backbone) == []


def test_a_short_text_does_not_change_what_long_ones_get(save):
    """BigBird goes over to full attention for good when a short text comes; here it comes back."""
    folder, words = save("big_bird")
    prompts, responses = conversations()
    reference = one_by_one(folder, words, special=True)
    scorer = classifier(folder)
    orders = [np.arange(len(prompts)), np.arange(len(prompts))[::-1]]
    for order in orders:
        found = scorer([prompts[i] for i in order], [responses[i] for i in order])
        assert np.abs(found - reference[order]).max() <= 2.5e-5 * reference.std()
    prepared = scorer.prepare(prompts, responses)
    alone = scorer.alone(prepared, np.arange(len(prompts)))
    assert np.abs(alone - reference).max() <= 2.5e-5 * reference.std()
    assert changes(scorer.backbone) == ["attention_type", "self"]
    assert "a pass changes the model (attention_type, self)" in scorer.provenance()["packs"]
    assert scorer.backbone.attention_type == "block_sparse"


def test_full_attention_by_the_configuration_is_left_alone(save):
    folder, words = save("big_bird", attention_type="original_full")
    scorer = classifier(folder)
    reference = one_by_one(folder, words, special=True)
    assert np.abs(scorer(*conversations()) - reference).max() <= 2.5e-5 * reference.std()
    assert changes(scorer.backbone) == []


def test_what_changed_is_named_and_undone():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.seen, self.config = 0, [], type("Config", (), {})()
            self.inner = torch.nn.Linear(2, 2)

        def forward(self):
            self.calls += 1
            self.seen.append(1)
            self.inner = torch.nn.Linear(2, 2)
            self.config.asked = True
            self.register_buffer("scale", torch.ones(1))

    model = Counting()
    inner, before = model.inner, remember(model)
    model()
    assert put_back(before) == ["asked", "calls", "inner", "scale", "seen"]
    assert (model.calls, model.seen, model.inner) == (0, [], inner)
    assert not hasattr(model.config, "asked")
    assert put_back(before) == []


@pytest.mark.parametrize("architecture", ["deberta", "xlnet"])
def test_architectures_that_do_not_run_in_half_precision_say_so(save, architecture):
    folder, _ = save(architecture)
    with pytest.raises(DataError, match=r"does not run in bfloat16 .*score with dtype='float32'"):
        classifier(folder, dtype="bfloat16")(*conversations())
    assert np.isfinite(classifier(folder, dtype="float32")(*conversations())).all()


@pytest.mark.parametrize("architecture", ["bert", "deberta-v2", "modernbert", "longformer", "big_bird"])
def test_architectures_that_run_in_half_precision_do(save, architecture):
    folder, _ = save(architecture)
    exact = classifier(folder)(*conversations())
    half = classifier(folder, dtype="bfloat16")(*conversations())
    assert np.abs(half - exact).max() < exact.std()
