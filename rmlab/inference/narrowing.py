"""The last layers, narrowed: behind their attention they skip the rows that nothing later needs.

Of the last layer a head reads a row or two per text; the others only lend these their keys and values. All that comes
behind the attention (its output projection, norms, the feed-forward network: most of a layer) treats each row by
itself, so it is given only the rows that go on. Where a layer sees only so far to either side, the layer before it is
narrowed too. Rows that rest come out as zeros, so that every shape is what the model expects.

Nothing is guessed and nothing outlasts a pass: hooks on the modules of this one model choose and put back rows of
states whose shape (1, rows, width) is checked, no pass is cut short by an exception, and leaving the block removes the
hooks.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.layout import Layout

if TYPE_CHECKING:
    import torch
    from torch.utils.hooks import RemovableHandle
    from transformers import PreTrainedModel

__all__ = ["Recorder", "layers", "narrowed", "rows_out"]

Ints = NDArray[np.intp]


def rows_out(layout: Layout, read: Ints, windows: Sequence[int | None]) -> list[Ints]:
    """The rows that go on behind the attention of the last layers, in their order, ascending; maybe of no layer.

    `read`: the rows that are read, counted among the forwarded ones, ascending. `windows[l]`: layer l lets a row see
    less than so many rows to either side, in texts that share no rows; None: it may see all. Layers are left whole
    where few rows could rest.

    >>> from rmlab.inference.layout import lay_out
    >>> from rmlab.inference.trie import pack
    >>> texts = [np.arange(90), np.arange(50)]
    >>> made = rows_out(lay_out(pack(texts, [0, 1], 999)[0], texts), np.array([0, 90]), [None, 9])
    >>> [len(rows) for rows in made]
    [18, 2]
    """
    rows = read
    made: list[Ints] = []
    for window in reversed(windows):  # from the last layer down
        # Choosing rows and putting them back has its price: at least half of them must be able to rest.
        if not 0 < 2 * len(rows) <= layout.forwarded:
            break
        made.append(rows)
        if window is None:  # the rows that go on look at all of their texts: nothing rests below
            break
        rows = _seen(layout, rows, window)
    return made[::-1]


def layers(backbone: "PreTrainedModel") -> "list[torch.nn.Module] | None":
    """The model's layers, first to last: the first list of as many modules as its settings name; None without one."""
    import torch

    n = backbone.config.get_text_config().num_hidden_layers
    # By their number, as names of layers differ from model to model.
    lists = (module for module in backbone.modules() if isinstance(module, torch.nn.ModuleList))
    return next((list(modules) for modules in lists if len(modules) == n), None)


@contextmanager
def narrowed(
    layers: "Sequence[torch.nn.Module]", behind: Sequence[Sequence[str]], rows: "Sequence[torch.Tensor]"
) -> Iterator[None]:
    """Inside the block the last of the `layers` treat only these `rows` of theirs behind their attention.

    `behind[l]`: names of the modules of layer l that do so (see Recorder).
    """
    with ExitStack() as stack:
        for number, kept in zip(range(len(layers) - len(rows), len(layers)), rows, strict=True):
            for name in behind[number]:
                for handle in _narrow(layers[number].get_submodule(name), kept):
                    stack.callback(handle.remove)
        yield


def _narrow(module: "torch.nn.Module", kept: "torch.Tensor") -> "Iterator[RemovableHandle]":
    """Hooks that hand a module only the rows `kept` of its inputs (1, rows, width), and put what comes out in place."""
    import torch

    whole: list[int] = []  # rows that went in, for the hook that puts them back

    def choose(_: object, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        whole.append(given[0].shape[1])
        # A model may be spread over devices: the index follows the states.
        return tuple(states.index_select(1, kept.to(states.device)) for states in given)

    def put_back(_: object, given: object, out: torch.Tensor) -> torch.Tensor:
        full = out.new_zeros(1, whole.pop(), out.shape[2])
        return full.index_copy_(1, kept.to(out.device), out)

    yield module.register_forward_pre_hook(choose)
    yield module.register_forward_hook(put_back)


def _seen(layout: Layout, rows: Ints, window: int) -> Ints:
    """Each text's beginning, as far as the rows that go on see; texts share no rows."""
    parts = []
    for run in layout.runs:
        # The last row of the text that goes on decides how far it looks; all before it is kept, as one stretch.
        at = int(np.searchsorted(rows, run.stop))
        last = int(rows[at - 1]) if at and rows[at - 1] >= run.start else run.start
        parts.append(np.arange(run.start, min(last + window, run.stop)))
    return np.concatenate(parts)


class Recorder:
    """Which modules of each layer run behind its attention and treat states of all rows: seen in one pass.

    A module counts where it is given states (1, rows, width) and nothing else, and gives out one such tensor; modules
    within one that counts do not count themselves. `calls`: how many layers have come to their attention so far.
    """

    def __init__(self, layers: "Sequence[torch.nn.Module]", rows: int, calls: Callable[[], int]) -> None:
        self._rows, self._calls = rows, calls
        self._seen: list[list[str]] = [[] for _ in layers]
        self._entered: list[bool] = []  # a stack: modules call modules
        self._handles = [
            handle
            for number, layer in enumerate(layers)
            for name, module in layer.named_modules()
            if name
            for handle in self._watch(number, name, module)
        ]

    def close(self) -> tuple[tuple[str, ...], ...]:
        """Stop looking; the names of the modules that count, by layer."""
        for handle in self._handles:
            handle.remove()
        return tuple(
            tuple(name for name in names if not any(name.startswith(f"{other}.") for other in names))
            for names in map(dict.fromkeys, self._seen)
        )

    def _watch(self, number: int, name: str, module: "torch.nn.Module") -> "Iterator[RemovableHandle]":
        def enter(_: object, given: tuple[object, ...], named: dict[str, object]) -> None:
            # This layer has come to its attention, the next one has not.
            behind = self._calls() == number + 1
            self._entered.append(behind and not named and bool(given) and all(map(self._whole, given)))

        def leave(_: object, given: object, out: object) -> None:
            if self._entered.pop() and self._whole(out):
                self._seen[number].append(name)

        yield module.register_forward_pre_hook(enter, with_kwargs=True)
        yield module.register_forward_hook(leave)

    def _whole(self, value: object) -> bool:
        import torch

        # States of all rows, (1, rows, width): anything else might mix rows.
        return isinstance(value, torch.Tensor) and value.ndim == 3 and value.shape[:2] == (1, self._rows)
