"""The last layers, narrowed: all that the rows read can see comes in, nothing else does, and no number changes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmlab.inference.layout import lay_out
from rmlab.inference.narrowing import layers, rows_out
from rmlab.inference.packing import packing_support
from rmlab.inference.passes import Shape, alone, packed_rows
from rmlab.inference.trie import pack

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.usefixtures("one_thread")


def side_by_side(lengths):
    """Texts of these lengths and the layout of their pack, in which they share no rows."""
    texts = [np.random.default_rng(i).integers(8, 490, n) for i, n in enumerate(lengths)]
    part = pack(texts, range(len(texts)), 10_000)[0]
    return [texts[i] for i in part.texts], lay_out(part, texts)


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 90), min_size=1, max_size=8),
    st.lists(st.none() | st.integers(1, 40), min_size=1, max_size=4),
    st.data(),
)
def test_whatever_a_row_sees_went_on_in_the_layer_before(lengths, windows, data):
    _, layout = side_by_side(lengths)
    rows = len(layout.ids)
    read = np.array(sorted(data.draw(st.sets(st.integers(0, rows - 1), max_size=rows))), int)
    made = rows_out(layout, read, windows)
    assert len(made) <= len(windows)
    if not made:
        assert len(read) == 0 or 2 * len(read) > rows
        return
    assert (made[-1] == read).all()
    same_text = layout.ends[:, None] == layout.ends[None, :]
    apart = np.abs(np.arange(rows)[:, None] - np.arange(rows)[None, :])
    # In front of the first of them nothing rests.
    before = [np.arange(rows), *made[:-1]]
    for came, went, window in zip(before, made, windows[-len(made) :], strict=True):
        assert 2 * len(went) <= rows
        near = apart < (window or rows)
        assert set(np.flatnonzero((same_text & near)[went].any(0))) <= set(came)


def entering(module):
    """How many rows each call of the module gets, filled as it runs."""
    sizes = []
    module.register_forward_hook(lambda layer, given, out: sizes.append(given[0].shape[1]))
    return sizes


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "gemma2", "gpt_neox", "gpt2", "bert", "modernbert"])
def test_only_rows_that_are_read_go_through_the_last_layer(load_backbone, architecture):
    backbone = load_backbone(architecture)
    texts, layout = side_by_side([70, 60, 40])
    packing = packing_support(backbone)
    read = np.array([path[-1 if packing.causal else 0] for path in layout.paths])
    first, *_, last = (
        next(module for name, module in layer.named_modules() if name in ("mlp", "intermediate"))
        for layer in layers(backbone)
    )
    before, sizes = entering(first), entering(last)
    narrow, calls = packed_rows(backbone, layout, read, packing.shape)
    assert (before, sizes) == ([len(layout.ids)], [len(read)])
    whole, _ = packed_rows(backbone, layout, read)
    assert sizes == [len(read), len(layout.ids)]
    assert len(calls) == backbone.config.num_hidden_layers
    torch.testing.assert_close(narrow, whole, rtol=1e-5, atol=1e-5)
    at = [np.array([len(text) - 1 if packing.causal else 0]) for text in texts]
    single = torch.cat([alone(backbone, text, place) for text, place in zip(texts, at, strict=True)])
    torch.testing.assert_close(narrow, single, rtol=1e-4, atol=1e-4)


def test_an_encoder_with_windows_is_narrowed_layer_by_layer(load_backbone):
    """The last two layers see 8 rows to either side: of a text read at its first row 17 rows go on, then 9, then 1."""
    backbone = load_backbone(
        "modernbert", num_hidden_layers=3, layer_types=["full_attention", *["sliding_attention"] * 2]
    )
    shape = packing_support(backbone).shape
    assert shape.windows == (None, 9, 9)
    texts, layout = side_by_side([150, 90, 5])
    read = np.array([path[0] for path in layout.paths])
    sizes = [entering(layer.mlp) for layer in backbone.layers]
    found, _ = packed_rows(backbone, layout, read, shape)
    assert sizes == [[17 + 17 + 5], [9 + 9 + 5], [3]]
    single = torch.cat([alone(backbone, text, np.array([0])) for text in texts])
    torch.testing.assert_close(found, single, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("architecture", ["llama", "modernbert"])
def test_half_precision_is_rounded_as_without_narrowing(load_backbone, architecture):
    backbone = load_backbone(architecture, torch.bfloat16)
    packing = packing_support(backbone)
    assert packing.shape.windows == (None,) * backbone.config.num_hidden_layers
    assert not packing.half_differs
    _, layout = side_by_side([300, 200, 90])
    read = np.array([path[-1 if packing.causal else 0] for path in layout.paths])
    narrow, whole = (packed_rows(backbone, layout, read, some)[0] for some in (packing.shape, Shape()))
    torch.testing.assert_close(narrow, whole, rtol=2**-8, atol=2**-8)


def test_a_model_that_needs_all_rows_is_left_whole(load_backbone):
    """Here the feed-forward network of the last layer refuses short inputs, as one that sorts rows into groups may."""
    backbone = load_backbone("bert")
    texts, layout = side_by_side([20, 14])

    def refuse(module, given):
        if given[0].shape[1] < 12:
            raise ValueError("too few rows")

    layers(backbone)[-1].intermediate.dense.register_forward_pre_hook(refuse)
    packing = packing_support(backbone)
    assert packing.packed
    assert packing.shape.windows == ()
    read = np.array([path[0] for path in layout.paths])
    single = torch.cat([alone(backbone, text, np.array([0])) for text in texts])
    torch.testing.assert_close(packed_rows(backbone, layout, read, packing.shape)[0], single, rtol=1e-4, atol=1e-4)


def test_nothing_is_left_behind_after_a_failure(load_backbone):
    backbone = load_backbone("llama")
    packing = packing_support(backbone)
    _, layout = side_by_side([20, 10])
    last = layers(backbone)[-1]
    broken = last.register_forward_hook(lambda layer, given, out: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        packed_rows(backbone, layout, np.array([19, 29]), packing.shape)
    broken.remove()
    for module in last.modules():
        assert not module._forward_pre_hooks
        assert not module._forward_hooks
    assert backbone.config._attn_implementation == "sdpa"
