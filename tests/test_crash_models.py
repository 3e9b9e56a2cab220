"""Kill -9 of real models: forwarded again is one batch of a policy, of a reference or
of comparisons in one order.

Of a prompt that goes through in several packs, that is the answers that were not done
yet.
"""

import os

import pytest
from crashes import KINDS, check_against_undisturbed, drive

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture(params=KINDS)
def kind(request, tmp_path):
    """The name of a way to use models, which stand in the test's folder."""
    KINDS[request.param].save(tmp_path)
    return request.param


def test_killed_eight_times(tmp_path, kind):
    killed, batches = drive(tmp_path, kind, "kill")
    assert len(killed) == 8
    again, batch = check_against_undisturbed(tmp_path, kind, killed, batches)
    assert again <= 8 * batch
    assert kind != "both orders" or batch < KINDS[kind].texts, (
        "a prompt's comparisons are several batches"
    )
    last = {process: model for process, model, _ in batches}
    assert set(last.values()) == set(KINDS[kind].models), "killed in the turn of each"
    assert len(batches) >= 24


def test_one_of_two_processes_dies_and_the_other_finishes(tmp_path, kind):
    killed, batches = drive(tmp_path, kind, "two")
    assert len(killed) == 1
    assert len({process for process, _, _ in batches}) == 2
    texts = {(model, text) for _, model, texts in batches for text in texts}
    assert (
        len(texts) == len(KINDS[kind].models) * KINDS[kind].prompts * KINDS[kind].texts
    )
    check_against_undisturbed(tmp_path, kind, killed, batches, shares=True)
