"""The last layers, narrowed: all that the rows read can see comes in, nothing else does, and no number changes."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmlab.inference.attention import paths
from rmlab.inference.narrowing import layers, steps
from rmlab.inference.passes import alone, packed_rows
from rmlab.inference.probe import way
from rmlab.inference.trie import lay_out, pack

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
def test_whatever_a_row_sees_comes_in(lengths, windows, data):
    _, layout = side_by_side(lengths)
    rows = len(layout.ids)
    read = np.array(sorted(data.draw(st.sets(st.integers(0, rows - 1), max_size=rows))), int)
    made = steps(layout, read, windows)
    assert len(made) <= len(windows)
    if not made:
        assert len(read) == 0 or 2 * len(read) > rows
        return
    assert len(made[0].come) == rows, "before the first of them nothing is left out"
    assert (made[-1].go == read).all()
    for before, after in pairwise(made):
        assert (before.go == after.come).all()
    for step, window in zip(made, windows[-len(made) :], strict=True):
        assert 2 * len(step.go) <= rows
        same_text = layout.ends[:, None] == layout.ends[None, :]
        near = np.abs(np.arange(rows)[:, None] - np.arange(rows)[None, :]) < (window or rows)
        assert set(np.flatnonzero((same_text & near)[step.go].any(0))) <= set(step.come)
        assert (step.layout.ids == layout.ids[step.come]).all()
        assert (step.layout.positions == layout.positions[step.come]).all()
        for path, whole in zip(step.layout.paths, layout.paths, strict=True):
            assert (step.come[path] == whole[: len(path)]).all()
            assert (step.layout.ends[path] == path[-1] + 1).all()


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "gemma2", "gpt_neox", "bert", "modernbert"])
def test_only_rows_that_are_read_go_through_the_last_layer(load_backbone, architecture):
    backbone = load_backbone(architecture)
    texts, layout = side_by_side([70, 60, 40])
    causal = way(backbone).causal
    read = np.array([path[-1 if causal else 0] for path in layout.paths])
    last = layers(backbone)[-1]
    mlp = next(module for name, module in last.named_modules() if name in ("mlp", "intermediate"))
    sizes = []
    handle = mlp.register_forward_hook(lambda layer, given, out: sizes.append(given[0].shape[1]))
    narrow, calls = packed_rows(backbone, layout, read, way(backbone).windows)
    assert sizes == [len(read)]
    whole, _ = packed_rows(backbone, layout, read)
    assert sizes == [len(read), len(layout.ids)]
    handle.remove()
    assert len(calls) == backbone.config.num_hidden_layers
    torch.testing.assert_close(narrow, whole, rtol=1e-5, atol=1e-5)
    at = [np.array([len(text) - 1 if causal else 0]) for text in texts]
    single = torch.cat([alone(backbone, text, place) for text, place in zip(texts, at, strict=True)])
    torch.testing.assert_close(narrow, single, rtol=1e-4, atol=1e-4)


def test_an_encoder_with_windows_is_narrowed_layer_by_layer(load_backbone):
    """The last two layers see 8 rows to either side: of a text read at its first row 17 rows go on, then 9, then 1."""
    backbone = load_backbone(
        "modernbert", num_hidden_layers=3, layer_types=["full_attention", *["sliding_attention"] * 2]
    )
    assert way(backbone).windows == (None, 9, 9)
    texts, layout = side_by_side([150, 90, 5])
    read = np.array([path[0] for path in layout.paths])
    sizes = []
    for layer in backbone.layers:
        layer.mlp.register_forward_hook(lambda layer, given, out: sizes.append(given[0].shape[1]))
    found, _ = packed_rows(backbone, layout, read, way(backbone).windows)
    assert sizes == [17 + 17 + 5, 9 + 9 + 5, 3]
    single = torch.cat([alone(backbone, text, np.array([0])) for text in texts])
    torch.testing.assert_close(found, single, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("architecture", ["llama", "modernbert"])
def test_half_precision_is_rounded_as_without_narrowing(load_backbone, architecture):
    backbone = load_backbone(architecture, torch.bfloat16)
    windows = way(backbone).windows
    assert windows == (None,) * backbone.config.num_hidden_layers
    _, layout = side_by_side([300, 200, 90])
    read = np.array([path[-1 if way(backbone).causal else 0] for path in layout.paths])
    narrow, whole = (packed_rows(backbone, layout, read, some)[0] for some in (windows, ()))
    torch.testing.assert_close(narrow, whole, rtol=2**-8, atol=2**-8)


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_a_model_that_needs_all_rows_is_left_whole(load_backbone, architecture):
    """GPT-2 gives its output the shape of its input; here a Llama's last layer looks at its neighbours."""
    backbone = load_backbone(architecture)
    if architecture == "llama":
        backbone.layers[-1].mlp.register_forward_hook(lambda layer, given, out: out * given[0].shape[1] / 100)
        assert not way(backbone).packed
    else:
        assert way(backbone).packed
    assert way(backbone).windows == ()


def test_a_layer_without_attention_is_an_error_and_nothing_is_left_behind(load_backbone):
    backbone = load_backbone("llama")
    _, layout = side_by_side([20, 10])
    made = steps(layout, np.array([19, 29]), [None, None])
    backbone.layers[-1].self_attn.forward = lambda hidden_states, **options: (hidden_states, None)
    ids = torch.from_numpy(layout.ids)[None]
    with pytest.raises(RuntimeError, match="without attention"), paths(backbone, layout, made):
        backbone(input_ids=ids, position_ids=torch.from_numpy(layout.positions)[None], use_cache=False)
    assert not backbone.layers[-1]._forward_pre_hooks
    assert backbone.config._attn_implementation == "sdpa"
