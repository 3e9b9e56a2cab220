"""The last layers, narrowed: rows that no head reads, and nothing that is read attends to, do not go through them.

Of the last layer a head reads a row or two per text; the others only lend these their keys and values. So the layer is
entered twice: with all rows, up to its attention, and then with the rows that are read, whose attention is known by
then. Where a layer sees only so far to either side, the layer before it is narrowed too.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.trie import Layout, Run

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

__all__ = ["Step", "layers", "narrowed", "steps"]

Ints = NDArray[np.intp]


@dataclass(frozen=True)
class Step:
    """One layer of a pack of `rows` rows: the rows that come in, and those of them that go on, ascending.

    `layout`: the rows that come in, laid out.
    """

    rows: int
    come: Ints
    go: Ints
    layout: Layout


Attend = Callable[[Step, Callable[[], object]], None]
"""Calls its second argument, which enters a layer with the rows of the step, and ends that at its attention."""


def steps(layout: Layout, read: Ints, windows: Sequence[int | None]) -> list[Step]:
    """Steps of the last layers, in their order, for a pack whose rows `read` are read, ascending; maybe none.

    `windows[l]`: layer l lets a row see less than so many rows to either side, in texts that share no rows; None: it
    may see all. A layer is left whole where narrowing it would cost about as much as it saves.

    >>> from rmlab.inference.trie import lay_out, pack
    >>> texts = [np.arange(90), np.arange(50)]
    >>> made = steps(lay_out(pack(texts, [0, 1], 999)[0], texts), np.array([0, 90]), [None, 9])
    >>> [(len(step.come), len(step.go)) for step in made]
    [(140, 18), (18, 2)]
    """
    rows = len(layout.ids)
    if not 0 < 2 * len(read) <= rows:
        return []
    found: list[Step] = []
    go = read
    for number in reversed(range(len(windows))):
        window = windows[number]
        come = np.arange(rows) if window is None or number == 0 else _seen(layout, go, window)
        if 2 * len(come) > rows:
            found.append(Step(rows, np.arange(rows), go, layout))
            break
        found.append(Step(rows, come, go, _beginnings(layout, come)))
        go = come
    return found[::-1]


def layers(backbone: "PreTrainedModel") -> "list[torch.nn.Module] | None":
    """The model's layers, first to last: the first list of as many modules as its settings name; None without one."""
    import torch

    n = backbone.config.get_text_config().num_hidden_layers
    lists = (module for module in backbone.modules() if isinstance(module, torch.nn.ModuleList))
    return next((list(modules) for modules in lists if len(modules) == n), None)


@contextmanager
def narrowed(layers: "Sequence[torch.nn.Module]", steps: Sequence[Step], attend: Attend) -> Iterator[None]:
    """Inside the block the last of the `layers` take the `steps`."""
    with ExitStack() as stack:
        for layer, step in zip(layers[len(layers) - len(steps) :], steps, strict=True):
            stack.callback(layer.register_forward_pre_hook(_entering(step, attend), with_kwargs=True).remove)
        yield


def _entering(step: Step, attend: Attend) -> Callable[..., Any]:
    """A hook that runs before a layer: it has the rows that come attend, and hands on those that go."""
    kept = np.searchsorted(step.come, step.go)

    def enter(layer: Any, given: tuple[Any, ...], options: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        states, *rest = given
        others = (tuple(rest), options)
        come, go = (_only(others, step.rows, rows) for rows in (step.come, step.go))
        attend(step, lambda: layer.forward(states, *come[0], **come[1]))
        return (_only(states, len(step.come), kept), *go[0]), go[1]

    return enter


def _only(value: Any, rows: int, kept: Ints) -> Any:
    """The value with `kept` of its `rows` rows: tensors (1, rows, ...) or (rows,), also in tuples and dictionaries."""
    import torch

    if isinstance(value, torch.Tensor):
        dim = next((dim for dim in range(min(value.ndim, 2)) if value.shape[dim] == rows), None)
        if dim is None or len(kept) == rows:
            return value
        return value.index_select(dim, torch.as_tensor(kept, device=value.device))
    if isinstance(value, tuple | list):
        return type(value)(_only(one, rows, kept) for one in value)
    if isinstance(value, dict):
        return {name: _only(one, rows, kept) for name, one in value.items()}
    return value


def _seen(layout: Layout, go: Ints, window: int) -> Ints:
    """Each text's beginning, as far as the rows that go on see; texts share no rows."""
    parts = []
    for run in layout.runs:
        at = int(np.searchsorted(go, run.stop))
        last = int(go[at - 1]) if at and go[at - 1] >= run.start else run.start
        parts.append(np.arange(run.start, min(last + window, run.stop)))
    return np.concatenate(parts)


def _beginnings(layout: Layout, rows: Ints) -> Layout:
    """The layout of `rows`, a beginning of each text."""
    lengths = [int(np.searchsorted(rows, run.stop) - np.searchsorted(rows, run.start)) for run in layout.runs]
    stops = np.cumsum(lengths)
    runs = [Run(int(stop) - length, int(stop), ()) for stop, length in zip(stops, lengths, strict=True)]
    paths = [np.arange(run.start, run.stop) for run in runs]
    return Layout(layout.ids[rows], layout.positions[rows], paths, runs, np.repeat(stops, lengths))
