"""Scoring on a Ray cluster: parts of whole prompts go to actors, which keep their scores in the store."""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from rmlab.scorers.base import Floats, Ints, Judge, Judged, Prompt, Provenance, Scorer, Stream, Text
from rmlab.scoring.batches import describe_scorer, store_batches
from rmlab.scoring.self_check import LONG, check_company
from rmlab.store import Store
from rmlab.tables import DataError

if TYPE_CHECKING:
    from types import ModuleType

B = TypeVar("B")
R = TypeVar("R")

_N_RESTARTS = 3
_SMALLEST, _LARGEST, _N_BLOCKS = 32, 1024, 64
"""Texts of a block: at least, at most, and how many blocks there are where both allow it."""


class Engine(Protocol):
    """Moves blocks to workers."""

    def map(self, make: Callable[[], Callable[[B], R]], blocks: Sequence[B]) -> Iterator[R]:
        """Yield what a worker, made once in each place, returns for each block, in any order."""


@dataclass(frozen=True)
class Ray:
    """Workers in a Ray cluster, for `cluster=` of `rmlab.score` and `rmlab.prefer`.

    Parameters
    ----------
    address : str, optional
        Of a running cluster, such as "ray://head:10001"; by default the one that Ray finds, else this machine.
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

    def map(self, make: Callable[[], Callable[[B], R]], blocks: Sequence[B]) -> Iterator[R]:
        """Yield what workers return for the blocks, as they come.

        A worker whose process ends is started again, three times, with the block that it was at. Raises DataError,
        with the traceback, where a worker raises.
        """
        ray = _connect(self.address)
        from ray.exceptions import RayError, RayTaskError
        from ray.util import ActorPool

        resources = ray.cluster_resources()
        n_cpus, n_gpus = int(resources.get("CPU", 0)), resources.get("GPU", 0.0)
        gpus = min(n_gpus, 1.0) if self.gpus is None else self.gpus
        room = min(n_cpus // self.cpus, int(n_gpus // gpus) if gpus else n_cpus)
        if room < 1:
            raise DataError(
                f"cluster: {n_cpus} CPUs and {n_gpus:g} GPUs hold no worker of {self.cpus} CPUs and {gpus:g} GPUs. "
                "Start Ray with more, or ask for less with rmlab.scoring.Ray(cpus=, gpus=)."
            )
        options = {"max_restarts": _N_RESTARTS, "max_task_retries": _N_RESTARTS}
        actor = ray.remote(num_cpus=self.cpus, num_gpus=gpus, **options)(_Actor)
        actors = [actor.remote(make) for _ in range(min(room, self.workers or room, len(blocks)))]
        try:
            yield from ActorPool(actors).map_unordered(lambda worker, block: worker.work.remote(block), blocks)
        except RayTaskError as error:
            raise DataError(f"{error.cause} (on the cluster)\n{error}") from error
        except RayError as error:
            raise DataError(
                f"cluster: a worker's process ended and was started {_N_RESTARTS} times in vain, as where memory runs "
                f"out. Scores before that are in the store. Ray says: {error}"
            ) from error
        finally:
            for worker in actors:
                ray.kill(worker)


class _Actor(Generic[B, R]):
    """Runs in a process of the cluster: makes a worker once, and gives it one block after the other."""

    def __init__(self, make: Callable[[], Callable[[B], R]]) -> None:
        self.make = make
        self.worker: Callable[[B], R] | None = None

    def work(self, block: B) -> R:
        self.worker = self.worker or self.make()
        return self.worker(block)


def _connect(address: str | None) -> "ModuleType":
    """Ray, connected: to the address, to the cluster that the environment names, or to one on this machine."""
    address = address or os.environ.get("RAY_ADDRESS")
    is_client = address is not None and address.startswith("ray://")
    if find_spec("ray") is None or (is_client and find_spec("grpc") is None):
        raise ImportError("cluster='ray' needs ray and its client: run pip install -e '.[ray]' in the clone")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own affairs
        import ray

        if not ray.is_initialized():
            options = {} if address else {"include_dashboard": False}
            try:
                ray.init(address=address, log_to_driver=False, configure_logging=False, **options)
            except ConnectionError as error:
                raise DataError(
                    f"cluster: no Ray cluster answers at {address!r} ({error}). Give ray://host:port with the port of "
                    "its client server (10001), and set RAY_AUTH_MODE=token where the cluster asks for a token."
                ) from error
    connected: ModuleType = ray
    return connected


def find_engine(cluster: str | Engine | None) -> Engine | None:
    """The engine that a word names: "ray", or "ray://head:10001" for a cluster that runs."""
    if not isinstance(cluster, str):
        return cluster
    if cluster == "ray" or cluster.startswith("ray://"):
        return Ray(address=None if cluster == "ray" else cluster)
    raise DataError(f"cluster={cluster!r}. Allowed: 'ray', 'ray://host:port', or a rmlab.scoring.Ray.")


class Block(NamedTuple):
    """Texts to score together, or items to judge, and the position of the first."""

    start: int
    texts: list[Text]
    must_check: bool = False


@dataclass(frozen=True)
class Task:
    """What workers do for a scorer, or for one `part` of a sum (0: the whole). `store`: an address, or None."""

    make: Callable[[], Scorer]
    part: int
    fingerprint: str
    store: str | None


class Spread(Scorer):
    """A scorer whose texts are scored by workers, which keep the scores in the store."""

    def __init__(self, model: Scorer, engine: Engine, task: Task, about: Provenance) -> None:
        self.name, self.columns, self.fingerprint = model.name, model.columns, task.fingerprint
        self.engine, self.task, self.about = engine, task, about
        self.parts: list[tuple[float, Scorer]] = []

    @property
    def terms(self) -> list[tuple[float, Scorer]]:
        """Weights and scorers of a sum."""
        return self.parts

    def provenance(self) -> Provenance:
        """The provenance where the models run."""
        return self.about

    def stream(self, texts: Sequence[Text], /) -> Stream:
        """Yield positions and scores as workers send them."""
        blocks = [Block(part.start, list(texts[part])) for part in cut_blocks([text.prompt for text in texts])]
        blocks[0] = blocks[0]._replace(must_check=len(texts) >= LONG)
        yield from name_failures(f"scorer {self.name!r}", self.engine.map(partial(_start_scoring, self.task), blocks))


def spread_scorer(scorer: Scorer, engine: Engine, store: Store | None) -> Spread:
    """The scorer with its work on the cluster; a model that is made anew there tells who it is."""
    remake: Callable[[], Scorer] | None = getattr(scorer, "remake", None)
    make = remake or partial(_return, scorer)
    abouts = next(engine.map(partial(_start_identifying, make), [None])) if remake else _identify(scorer)
    whole, *parts = [
        Spread(
            model, engine, Task(make, part, str(about["fingerprint"] or ""), store.address if store else None), about
        )
        for part, (model, about) in enumerate(zip(_models(scorer), abouts, strict=True))
    ]
    whole.parts = [(weight, part) for (weight, _), part in zip(scorer.terms, parts, strict=True)]
    return whole


def spread_judge(
    judge: Judge, items: Sequence[Text], engine: Engine, store: Store | None
) -> Iterator[tuple[int, Judged]]:
    """Number of the first item of each block, and the verdicts on the block."""
    blocks = [Block(part.start, list(items[part])) for part in cut_blocks([item.prompt for item in items])]
    start = partial(_start_judging, judge, store.address if store else None)
    return name_failures(f"judge {judge.name!r}", engine.map(start, blocks))


def name_failures(title: str, results: Iterator[R]) -> Iterator[R]:
    """The results; an error names who failed."""
    try:
        yield from results
    except DataError as error:
        raise DataError(str(error) if title in str(error) else f"{title}: {error}") from error


def cut_blocks(prompts: Sequence[Prompt]) -> Iterator[slice]:
    """Slices of texts that end where a prompt does; neither tiny nor the whole."""
    size, start, n = min(_LARGEST, max(_SMALLEST, len(prompts) // _N_BLOCKS)), 0, len(prompts)
    for stop in range(1, n + 1):
        if stop == n or (stop - start >= size and prompts[stop] != prompts[stop - 1]):
            yield slice(start, stop)
            start = stop


def _models(scorer: Scorer) -> list[Scorer]:
    return [scorer, *(model for _, model in scorer.terms)]


def _identify(scorer: Scorer) -> list[Provenance]:
    return [describe_scorer(model) for model in _models(scorer)]


# These run on the workers: each makes the scorer once, and returns what works on one block after the other.
def _start_identifying(make: Callable[[], Scorer]) -> Callable[[None], list[Provenance]]:
    return lambda _: _identify(make())


def _start_scoring(task: Task) -> Callable[[Block], tuple[Ints, Floats]]:
    scorer, store = task.make(), Store(task.store) if task.store else None
    model = _models(scorer)[task.part]
    if (model.fingerprint or "") != task.fingerprint:
        raise DataError(
            f"scorer {scorer.name!r}: a worker of the cluster has other weights or settings than the driver, so that "
            "its scores would be another model's. Give all machines the same files and releases."
        )

    def score_block(block: Block) -> tuple[Ints, Floats]:
        if block.must_check:
            check_company(scorer, block.texts)
        batches = list(store_batches(model, block.texts, model.stream(block.texts), store, scorer.name))
        rows = np.concatenate([rows for _, rows in batches])
        positions = np.concatenate([positions for positions, _ in batches])
        return block.start + positions, rows if model.columns else rows[:, 0]

    return score_block


def _start_judging(judge: Judge, address: str | None) -> Callable[[Block], tuple[int, Judged]]:
    store = Store(address) if address else None

    def judge_block(block: Block) -> tuple[int, Judged]:
        prompts, candidates = [item.prompt for item in block.texts], [item.answers for item in block.texts]
        return block.start, judge.judge(prompts, candidates, store=store, progress=False)

    return judge_block


def _return(scorer: B) -> B:
    return scorer
