"""Scoring on a Ray cluster: blocks of whole prompts go to workers, which put the scores
into the store.
"""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rmlab.records import install_command
from rmlab.scorers.base import Ints, Provenance, Rows, Scorer, Stream, Text
from rmlab.scoring.run import check_company, describe_scorer, score_batches
from rmlab.store import Store
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


class ClusterScorer(Scorer):
    """A scorer, or one model of its weighted sum, whose texts go to workers.

    `number`: 0 for the scorer, 1 and more for the models of its sum. `described`: the
    provenance on the workers.
    """

    writes_store = True

    def __init__(
        self,
        scorer: Scorer,
        number: int,
        engine: Ray,
        store: Store | None,
        described: Provenance,
    ) -> None:
        model = _list_models(scorer)[number]
        self.scorer = scorer
        self.model = model
        self.engine = engine
        self.described = described
        self.name = model.name
        self.columns = model.columns
        self.hidden_columns = model.hidden_columns
        self.has_objects = model.has_objects
        self.fingerprint = str(described["fingerprint"] or "")
        self.work = partial(_score_block, scorer, number, self.fingerprint, store)

    def provenance(self) -> Provenance:
        """The provenance where the models run."""
        return self.described

    def count_cut(self, texts: Sequence[Text]) -> Provenance:
        """The count of the scorer, which needs no worker."""
        return self.scorer.count_cut(texts)

    def require_like(self, runs: Iterable[Mapping[str, object]], /) -> None:
        """Raise DataError where the model does."""
        self.model.require_like(runs)

    def restore(self, texts: Sequence[Text], rows: list[Rows], /) -> list[Rows]:
        """Return the rows as the model reads them, here and not on a worker."""
        return self.model.restore(texts, rows)

    def stream(self, texts: Sequence[Text], /) -> Stream:
        """Yield positions and rows as workers send them; an error names the scorer."""
        try:
            yield from self.engine.map(self.work, cut_blocks(texts))
        except DataError as error:
            if repr(self.name) in error.problem:
                raise
            problem = f"scorer {self.name!r}: {error.problem}"
            raise DataError(problem, error.remedy) from error


def spread_scorer(scorer: Scorer, engine: Ray, store: Store | None) -> ClusterScorer:
    """The scorer with its work on the cluster; one that is made anew there is described
    there.
    """
    describe = partial(_describe_models, scorer)
    if hasattr(scorer, "remake"):
        descriptions = next(engine.map(describe, [None]))
    else:
        descriptions = describe(None)

    total = ClusterScorer(scorer, 0, engine, store, descriptions[0])
    terms = []
    for number, (weight, _) in enumerate(scorer.terms, start=1):
        model = ClusterScorer(scorer, number, engine, store, descriptions[number])
        terms.append((weight, model))
    total.terms = terms
    return total


def _list_models(scorer: Scorer) -> list[Scorer]:
    """The scorer itself, then the models of its weighted sum."""
    return [scorer, *(model for _, model in scorer.terms)]


def _describe_models(scorer: Scorer, _: None) -> list[Provenance]:
    return [describe_scorer(model) for model in _list_models(scorer)]


def _score_block(
    scorer: Scorer, number: int, fingerprint: str, store: Store | None, block: WorkBlock
) -> tuple[Ints, Rows]:
    """On a worker: positions and rows of the texts by the scorer, or by one model of
    its sum.
    """
    model = _list_models(scorer)[number]
    if (model.fingerprint or "") != fingerprint:
        worker = "a worker of the cluster has other weights or settings than the driver"
        remedy = "give all machines the same files and releases"
        raise DataError(f"scorer {scorer.name!r}: {worker}", remedy)
    if block.start == 0 and len(block.texts) >= _SMALLEST:
        check_company(scorer, block.texts)

    batches = score_batches(model, block.texts, store, scorer.name)
    positions_of, rows_of = zip(*batches, strict=True)
    positions = np.concatenate(positions_of)
    rows = np.concatenate(rows_of)
    return block.start + positions, rows if rows.shape[1] > 1 else rows[:, 0]


def find_engine(name: str, cpus: int = 1) -> Ray:
    """The engine that a word names: "ray", or "ray://head:10001" for a cluster that
    runs.
    """
    if name == "ray":
        return Ray(cpus=cpus)
    if name.startswith("ray://"):
        return Ray(name, cpus)
    allowed = "allowed: 'ray', 'ray://host:port', or a rmlab.scoring.Ray"
    raise DataError(f"cluster={name!r}", allowed)
