"""The device's memory: how many tokens go through a model at once, and copies between
host and device.

A budget keeps the device busy. Where memory runs out, it is halved, and the run goes
on.

A GPU works through what it is given in order, while the host goes on. A copy that the
host waits for empties that queue: the GPU then idles for as long as the host takes to
prepare the next pack. So everything a pack needs goes up in one copy from pinned
memory, which the host does not wait for, and a result is waited for one pack later.
"""

import logging
import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rmlab.inference.planning import CPU_BUDGET, Ints, Part

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

Key = TypeVar("Key")
Name = TypeVar("Name", bound=Hashable)
Result = TypeVar("Result")

# Tokens at once that keep any GPU busy; more would only take memory. Weights that are
# fetched anew in every pass take tens of GB over the bus, so the passes should be few.
_GPU_BUDGET = 16384
_OFFLOADED_BUDGET = 65536

# How a lack of memory shows beside torch.OutOfMemoryError: CPUs, Apple's GPU and
# kernels raise other errors.
_MESSAGES = re.compile(
    "can't allocate memory|out of memory|hipErrorOutOfMemory|CUBLAS_STATUS_ALLOC_FAILED"
)

# Only CUDA (and ROCm, which has its name) copies in the background. On Apple's GPU a
# copy that is not waited for would need memory that torch does not pin there.
COPIES_BEHIND = {"cuda"}

_log = logging.getLogger(__name__)


def model_budget(model: "PreTrainedModel") -> int:
    """The tokens at once of a loaded model, where nobody says; halved where memory is
    short.
    """
    if model.device.type == "cpu":
        return CPU_BUDGET
    return _OFFLOADED_BUDGET if offloaded(model) else _GPU_BUDGET


def offloaded(model: "PreTrainedModel") -> bool:
    """Do some of the model's weights wait in host memory or on disk, to be fetched anew
    in every pass?
    """
    device_map = getattr(model, "hf_device_map", {})
    return any(str(device) in ("cpu", "disk") for device in device_map.values())


def out_of_memory(error: BaseException) -> bool:
    """Does the error say that memory ran out?

    >>> out_of_memory(RuntimeError("MPS backend out of memory (MPS allocated: 8 GB)"))
    True
    >>> out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    False
    """
    import torch

    has_message = _MESSAGES.search(str(error)) is not None
    return has_message or isinstance(error, torch.OutOfMemoryError)


def until_it_fits(
    parts: list[Part],
    forward: Callable[[Part], Result],
    cut: Callable[[Ints, int], list[Part]],
) -> Iterator[Result]:
    """The results of `forward` for each part, in order; where memory runs out, what is
    left is cut for half the tokens.

    `cut(texts, budget)`: the texts in parts of at most `budget` tokens. A text that
    does not fit alone is named in a note on the error.
    """
    waiting = deque(parts)
    while waiting:
        part = waiting.popleft()
        budget = max(part.tokens // 2, 1)
        try:
            result = forward(part)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            if len(part.texts) == 1:
                pieces = cut(part.texts, budget)
                if max(piece.tokens for piece in pieces) >= part.tokens:
                    text = f"text {part.texts[0]} alone, {part.tokens} tokens"
                    error.add_note(f"{text}, does not fit into memory")
                    raise
        else:
            yield result
            continue

        # Freed only here: while the error is being handled it holds the tensors that
        # did not fit.
        _empty_caches()
        _log.warning(
            "out of memory at %d tokens; going on with at most %d at once",
            part.tokens,
            budget,
        )
        # A text that is cut stands in several parts.
        left = [part.texts, *(later.texts for later in waiting)]
        texts = list(dict.fromkeys(np.concatenate(left).tolist()))
        waiting = deque(cut(np.array(texts, np.intp), budget))


def _empty_caches() -> None:
    import torch

    # Does nothing where there is no GPU.
    torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()


def upload(
    arrays: Mapping[Name, Ints], device: "torch.device"
) -> "dict[Name, torch.Tensor]":
    """Arrays of integers on the device by name, as int64, in one copy that the host
    does not wait for.

    >>> import torch
    >>> arrays = {"ids": np.arange(3), "mask": np.ones((2, 2), int)}
    >>> uploaded = upload(arrays, torch.device("cpu"))
    >>> uploaded["ids"].tolist(), uploaded["mask"].shape
    ([0, 1, 2], torch.Size([2, 2]))
    """
    import torch

    flat = np.concatenate([values.ravel() for values in arrays.values()])
    tensor = torch.from_numpy(flat.astype(np.int64, copy=False))
    # From memory that is not pinned torch waits for the copy, and for all that was
    # queued before it. Only CUDA pins.
    pins = device.type == "cuda"
    if pins:
        tensor = tensor.pin_memory()
    tensor = tensor.to(device, non_blocking=pins)

    uploaded = {}
    start = 0
    for name, values in arrays.items():
        stop = start + values.size
        uploaded[name] = tensor[start:stop].view(values.shape)
        start = stop
    return uploaded


def read_late(
    launched: "Iterable[tuple[Key, torch.Tensor]]",
) -> Iterator[tuple[Key, NDArray[np.float64]]]:
    """Each tensor as float64 numbers, in order; on a CUDA GPU each is waited for only
    after the next was launched.

    `launched`: gives a key and a tensor per pack, as soon as the pack's work is queued.
    """
    waiting: deque[tuple[Key, Download]] = deque()
    for key, tensor in launched:
        # One pack may be on its way while the next is launched; without background
        # copies nothing is gained by holding it back.
        n_ahead = int(tensor.device.type in COPIES_BEHIND)
        download = start_download(tensor) if n_ahead else Download(tensor)
        waiting.append((key, download))
        if len(waiting) > n_ahead:
            earlier, download = waiting.popleft()
            yield earlier, download.read()
    for key, download in waiting:
        yield key, download.read()


class Download(NamedTuple):
    """A tensor on its way to the host, there when the `event` has come; without one it
    is copied when it is read.
    """

    tensor: "torch.Tensor"
    event: "torch.cuda.Event | None" = None

    def read(self) -> NDArray[np.float64]:
        """The numbers; waits for the copy. Float64 is made on the host: Apple's GPU
        does not have it.
        """
        if self.event is not None:
            self.event.synchronize()
        numbers: NDArray[np.float64] = self.tensor.cpu().double().numpy()
        return numbers


def start_download(tensor: "torch.Tensor") -> Download:
    """Copy a tensor in the background."""
    import torch

    copy = tensor.to("cpu", non_blocking=True)
    event = torch.cuda.Event()
    # Behind the copy on the same stream: when the event has come, so have the numbers.
    event.record(torch.cuda.current_stream(tensor.device))
    return Download(copy, event)
