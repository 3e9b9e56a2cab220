"""A Ray cluster: workers for blocks of texts."""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from rmlab.records import install_command
from rmlab.scorers.base import Text
from rmlab.tables import DataError

B = TypeVar("B")
R = TypeVar("R")

_N_RESTARTS = 3
# Texts of a block: at least, at most, and how many blocks there are where both allow
# it.
_SMALLEST = 32
_LARGEST = 1024
_N_BLOCKS = 64


@dataclass(frozen=True)
class Ray:
    """Workers in a Ray cluster, for `cluster=` of `rmlab.score` and `rmlab.prefer`.

    Parameters
    ----------
    address : str, optional
        Of a running cluster, such as "ray://head:10001"; by default the one that Ray
        finds, else this machine.
    cpus : int
        CPUs of each worker.
    gpus : float, optional
        GPUs of each worker; by default one where the cluster has any.
    workers : int, optional
        The most workers; by default as many as the cluster has room for.
    """

    address: str | None = None
    cpus: int = 1
    gpus: float | None = None
    workers: int | None = None

    def map(self, work: Callable[[B], R], blocks: Sequence[B]) -> Iterator[R]:
        """Yield what `work`, copied once to each worker, returns for the blocks, as
        they come.

        A worker whose process ends is started again, three times, with the block that
        it was at. Raises DataError, with the traceback, where a worker raises.
        """
        _connect(self.address or os.environ.get("RAY_ADDRESS"))
        import ray
        from ray.exceptions import RayError, RayTaskError
        from ray.util import ActorPool

        resources = ray.cluster_resources()
        n_cpus = resources.get("CPU", 0.0)
        n_gpus = resources.get("GPU", 0.0)
        gpus = min(n_gpus, 1.0) if self.gpus is None else self.gpus
        most_workers = self._most_workers(n_cpus, n_gpus, gpus)
        n_workers = min(most_workers, self.workers or most_workers, len(blocks))

        make_actor = ray.remote(
            num_cpus=self.cpus,
            num_gpus=gpus,
            max_restarts=_N_RESTARTS,
            max_task_retries=_N_RESTARTS,
        )(_Actor)
        actors = [make_actor.remote(work) for _ in range(n_workers)]
        try:
            yield from ActorPool(actors).map_unordered(_send_block, blocks)
        except RayTaskError as error:
            raise DataError(f"{error.cause} (on the cluster)\n{error}") from error
        except RayError as error:
            problem = f"cluster: a worker ended {_N_RESTARTS + 1} times"
            raise DataError(f"{problem}. Ray says: {error}") from error
        finally:
            for actor in actors:
                ray.kill(actor)

    def _most_workers(self, n_cpus: float, n_gpus: float, gpus: float) -> int:
        """How many workers the cluster has room for; DataError where it has none."""
        room = n_cpus // self.cpus
        if gpus:
            room = min(room, n_gpus // gpus)
        if room < 1:
            size = f"{n_cpus:g} CPUs and {n_gpus:g} GPUs"
            worker = f"{self.cpus} CPUs and {gpus:g} GPUs"
            remedy = "ask for less with rmlab.scoring.Ray(cpus=, gpus=)"
            raise DataError(f"cluster: {size} hold no worker of {worker}", remedy)
        return int(room)


class _Actor:
    """Runs in a process of the cluster."""

    def __init__(self, work: Callable[[object], object]) -> None:
        self.work = work

    def process(self, block: object) -> object:
        return self.work(block)


def _send_block(actor: Any, block: object) -> object:
    return actor.process.remote(block)


def _connect(address: str | None) -> None:
    """Connect Ray to the cluster at the address, or to one on this machine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own affairs
        try:
            import ray
        except ImportError as error:
            command = install_command("ray")
            raise ImportError(f"cluster='ray' needs ray: run {command}") from error

        if ray.is_initialized():
            return
        options = {} if address else {"include_dashboard": False}
        try:
            ray.init(
                address=address,
                log_to_driver=False,
                configure_logging=False,
                **options,
            )
        except ConnectionError as error:
            problem = f"cluster: no Ray cluster answers at {address!r} ({error})"
            server = "give ray://host:port of its client server"
            remedy = f"{server}, and RAY_AUTH_MODE=token where it asks for one"
            raise DataError(problem, remedy) from error


class WorkBlock(NamedTuple):
    """Texts to score together, and the position of the first."""

    start: int
    texts: list[Text]


def cut_blocks(texts: Sequence[Text]) -> list[WorkBlock]:
    """Blocks of texts that end where a prompt does; neither tiny nor the whole."""
    size = min(_LARGEST, max(_SMALLEST, len(texts) // _N_BLOCKS))
    starts = [0]
    for i in range(1, len(texts)):
        is_full = i - starts[-1] >= size
        if is_full and texts[i].prompt != texts[i - 1].prompt:
            starts.append(i)
    bounds = pairwise([*starts, len(texts)])
    return [WorkBlock(start, list(texts[start:stop])) for start, stop in bounds]


def find_engine(name: str | Ray | None) -> Ray | None:
    """The engine that a word names: "ray", or "ray://head:10001" for a cluster that
    runs; an engine itself, and none, stay as they are.
    """
    if not isinstance(name, str):
        return name
    if name == "ray":
        return Ray()
    if name.startswith("ray://"):
        return Ray(name)
    allowed = "allowed: 'ray', 'ray://host:port', or a rmlab.scoring.Ray"
    raise DataError(f"cluster={name!r}", allowed)
