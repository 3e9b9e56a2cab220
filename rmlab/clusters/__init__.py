"""Engines that move work: they carry blocks to workers and bring back what became of them, and know nothing of scores.

Nothing that an engine remembers is believed: what is done is told by the content keys in the store.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from rmlab.clusters.on_ray import Ray
from rmlab.tables import DataError

__all__ = ["Engine", "Ray", "engine"]

B = TypeVar("B")
R = TypeVar("R")


class Engine(Protocol):
    """Moves blocks to workers."""

    def has_gpus(self) -> bool:
        """Whether each worker has a GPU."""

    def map(self, make: Callable[[], Callable[[B], R]], blocks: Sequence[B]) -> Iterator[R]:
        """What a worker, made once in each place, returns for each block, in any order, each once.

        What a worker raises is a DataError here, with its traceback and the end of its log.
        """


def engine(cluster: "str | Engine") -> Engine:
    """The engine that a word names: "ray", or "ray://head:10001" for a cluster that runs."""
    if not isinstance(cluster, str):
        return cluster
    if cluster == "ray":
        return Ray()
    if cluster.startswith("ray://"):
        return Ray(address=cluster)
    raise DataError(f"cluster={cluster!r}; allowed: 'ray', 'ray://host:port', or a rmlab.clusters.Ray")
