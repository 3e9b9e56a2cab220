"""Scores of many texts in packs or batches beside those of each text alone, by a fixed
direction of the states.
"""

import numpy as np
import torch

from rmlab.inference import flex

# The default of transformers before 5, torch's attention, drops the cap of Gemma 2.
EAGER = {"attn_implementation": "eager"}


def direction(backbone):
    return torch.randn(
        backbone.model.config.hidden_size, generator=torch.Generator().manual_seed(0)
    )


def states(backbone, world, reads, budget=None):
    """The states at the positions read in each text; every text comes out once."""
    texts, groups = world
    rows = {}
    for batch in backbone.hidden(texts, reads, groups=groups, budget=budget):
        assert len(batch.texts)
        assert batch.rows.dtype == torch.float32
        for text, where in zip(batch.texts.tolist(), batch.where, strict=True):
            assert text not in rows
            assert len(where) == len(reads[text])
            rows[text] = batch.rows[where]
    assert len(rows) == len(texts)
    return rows


def scores(backbone, world, budget=None, position=-1):
    """One number per text, at its last position."""
    rows = states(
        backbone, world, [np.arange(len(ids))[[position]] for ids in world[0]], budget
    )
    return np.array(
        [float(rows[text][0] @ direction(backbone)) for text in range(len(rows))]
    )


def scores_alone(backbone, texts, position=-1):
    rows = [backbone.alone(ids, np.arange(len(ids))[[position]])[0] for ids in texts]
    return np.array([float(row @ direction(backbone)) for row in rows])


def padded_scores(backbone, texts, at):
    """Scores as the public runners batch: eight in file order, padded on the left
    (encoders: right), with a mask.
    """
    if len(texts) > 8:
        return np.concatenate(
            [
                padded_scores(backbone, texts[i : i + 8], at)
                for i in range(0, len(texts), 8)
            ]
        )
    real = np.arange(max(map(len, texts)))[None, :] < np.array(
        [[len(text)] for text in texts]
    )
    real = real[:, ::-1] if at else real
    ids = np.zeros(real.shape, int)
    ids[real] = np.concatenate(texts)
    with torch.no_grad():
        mask = torch.from_numpy(real.astype(int))
        rows = backbone.model(
            input_ids=torch.from_numpy(ids), attention_mask=mask
        ).last_hidden_state[:, at]
    return (rows.float() @ direction(backbone)).numpy()


def assert_as_alone(backbone, world, budgets=(None,), position=-1):
    reference = scores_alone(backbone, world[0], position)
    for budget in budgets:
        assert_same(scores(backbone, world, budget, position), reference)


def assert_states_as_alone(backbone, world, reads, budget=None, tolerance=1e-4):
    for text, rows in states(backbone, world, reads, budget).items():
        single = backbone.alone(world[0][text], reads[text])
        torch.testing.assert_close(rows, single, rtol=tolerance, atol=tolerance)


def assert_same(values, reference):
    """Within a share of the scores' spread, and no comparison turns around; the last
    text may repeat another.
    """
    assert np.abs(values - reference).max() <= 1e-5 * reference.std()
    signs = [
        np.sign(numbers[:-1, None] - numbers[:-1]) for numbers in (values, reference)
    ]
    assert (signs[0] == signs[1]).all()


def masks(layout):
    """The layout's block masks as kernels get them."""
    table = torch.from_numpy(flex.key_table(layout))
    return flex.Masks(table, flex.filled(layout.forwarded))
