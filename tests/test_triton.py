"""The kernels that a GPU runs, torch's own Triton template, run on a CPU by Triton's
interpreter.

Slow, and tied to exact releases: `make test-long` installs these and sets what has to
be set. bfloat16 and capped logits are left out: the interpreter itself gets them wrong.
"""

import os
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from as_alone import masks

from rmlab.inference import attention, flex
from rmlab.inference.planning import lay_out, pack

pytestmark = [
    pytest.mark.long,
    pytest.mark.usefixtures("interpreter"),
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning",
        "ignore::UserWarning:torch",
        "ignore::UserWarning:triton",
    ),
]


@pytest.fixture(scope="module")
def interpreter():
    if find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("needs triton and TRITON_INTERPRET=1: run `make test-long`")
    from triton_on_cpu import enable

    enable()


def a_pack(rng, causal, lengths=(300, 10, 100), alone=133):
    """Texts with a common prefix of 150 tokens, one of another prompt; as whole
    texts for an encoder.
    """
    prompt = rng.integers(0, 9, 150)
    texts = [np.r_[prompt, rng.integers(0, 9, n)] for n in lengths] + [
        rng.integers(0, 9, alone)
    ]
    groups = [0] * len(lengths) + [1] if causal else range(len(texts))
    return lay_out(pack(texts, groups, 100_000)[0], texts)


def assert_kernel_is_right(layout, kind, heads, size):
    make = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(1, n, len(layout.ids), size, generator=make) for n in heads
    )
    kernels = flex.Kernels()
    with torch.inference_mode():
        found = kernels.attend(kind, query, key, value, masks(layout))
        assert found is not None, kernels.trouble
        assert str(kernels) == "flex attention"
        expected = attention.attend(layout, kind, query, key, value)
    torch.testing.assert_close(
        found, expected, rtol=0, atol=1e-6 * max(1.0, float(expected.abs().max()))
    )


@pytest.mark.parametrize("size", [16, 64, 128])
@pytest.mark.parametrize("window", [None, 50])
@pytest.mark.parametrize("causal", [True, False])
def test_head_sizes_windows_and_directions(size, window, causal):
    layout = a_pack(np.random.default_rng(0), causal)
    assert_kernel_is_right(
        layout, flex.Kind(window, None, None, causal), (4, 2, 2), size
    )


def test_keys_that_three_heads_share():
    assert_kernel_is_right(
        a_pack(np.random.default_rng(1), True),
        flex.Kind(None, 0.3, None),
        (3, 1, 1),
        32,
    )


def test_more_rows_than_the_first_size():
    layout = a_pack(np.random.default_rng(2), True, lengths=(700, 900), alone=200)
    assert flex.filled(len(layout.ids)) == 4096
    assert_kernel_is_right(layout, flex.Kind(None, None, None), (1, 1, 1), 16)
