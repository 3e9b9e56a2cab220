"""Copies between host and device: one upload per pack, and results read only once the next pack is on its way.

A GPU works through what it is given in order, while the host goes on. A copy that the host waits for empties that
queue: the GPU then idles for as long as the host takes to prepare the next pack. So everything a pack needs goes up in
one copy from pinned memory, which the host does not wait for, and a result is waited for one pack later.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Key = TypeVar("Key")
Name = TypeVar("Name", bound=Hashable)

_ALIGNED = 16  # bytes; every number type begins at a multiple of its own size


def upload(arrays: Mapping[Name, NDArray[np.generic]], device: "torch.device") -> "dict[Name, torch.Tensor]":
    """The arrays on the device by name, in one copy that the host does not wait for.

    >>> import torch
    >>> sent = upload({"ids": np.arange(3), "mask": np.ones((2, 2), np.int32)}, torch.device("cpu"))
    >>> sent["ids"].tolist(), sent["mask"].dtype
    ([0, 1, 2], torch.int32)
    """
    import torch

    if device.type == "cpu":
        return {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in arrays.items()}
    # Rounded up to where the next array may begin.
    starts = [0, *accumulate(-(-values.nbytes // _ALIGNED) * _ALIGNED for values in arrays.values())]
    size = starts.pop()
    # From memory that is not pinned torch waits for the copy, and for all that was queued before it. Only CUDA pins.
    pins = device.type == "cuda"
    buffer = pinned(size) if pins else torch.empty(size, dtype=torch.uint8)
    memory = buffer.numpy()
    # All arrays in one buffer, of which the tensors on the device are views.
    for start, values in zip(starts, arrays.values(), strict=True):
        np.ndarray(values.shape, values.dtype, memory, start)[...] = values
    sent = buffer.to(device, non_blocking=pins)
    return {
        name: sent[start : start + values.nbytes].view(getattr(torch, values.dtype.name)).view(values.shape)
        for start, (name, values) in zip(starts, arrays.items(), strict=True)
    }


def read_late(launched: "Iterable[tuple[Key, torch.Tensor]]") -> Iterator[tuple[Key, NDArray[np.float64]]]:
    """Each tensor as float64 numbers, in order; on a CUDA GPU each is waited for only after the next was launched.

    `launched`: gives a key and a tensor per pack, as soon as the pack's work is queued. Where launching fails, the
    result before it is still handed out before the error goes on.
    """
    waiting: deque[tuple[Key, Download]] = deque()
    try:
        for key, tensor in launched:
            started = Download(tensor)
            waiting.append((key, started))
            # One pack may be on its way while the next is launched; without background copies nothing is gained by
            # holding it back.
            while len(waiting) > (1 if started.overlaps else 0):
                first, download = waiting.popleft()
                yield first, download.read()
    except Exception:
        yield from ((key, download.read()) for key, download in waiting)
        raise
    yield from ((key, download.read()) for key, download in waiting)


class Download:
    """One tensor on its way to the host.

    Only CUDA (and ROCm, which has its name) copies in the background. On Apple's GPU a copy that is not waited for
    would need memory that torch does not pin there.
    """

    def __init__(self, tensor: "torch.Tensor") -> None:
        import torch

        self.overlaps = tensor.device.type == "cuda"
        self.tensor = tensor.to("cpu", non_blocking=self.overlaps)
        self.event = None
        if self.overlaps:
            self.event = torch.cuda.Event()
            # Behind the copy on the same stream: when the event has come, so have the numbers.
            self.event.record(torch.cuda.current_stream(tensor.device))

    def read(self) -> NDArray[np.float64]:
        """The numbers; waits for the copy. Float64 is made on the host: Apple's GPU does not have it."""
        if self.event is not None:
            self.event.synchronize()
        numbers: NDArray[np.float64] = self.tensor.cpu().double().numpy()
        return numbers


def pinned(size: int) -> "torch.Tensor":
    """So many bytes of memory on the host that a GPU copies from by itself; torch reuses it once the copy is done."""
    import torch

    return torch.empty(size, dtype=torch.uint8, pin_memory=True)
