"""Scoring on a Ray cluster: blocks of whole prompts go to actors, which keep their
scores in the store.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np

from rmlab.records import install_command
from rmlab.scorers.base import (
    Floats,
    Ints,
    Judge,
    Judged,
    Provenance,
    Scorer,
    Stream,
    Text,
)
from rmlab.scoring.run import check_company, describe_scorer, score_batches
from rmlab.store import Store
from rmlab.tables import DataError

B = TypeVar("B")
R = TypeVar("R")

_N_RESTARTS = 3
# Texts of a block: at least, at most, and how many blocks there are where both allow
# it.
_SMALLEST, _LARGEST, _N_BLOCKS = 32, 1024, 64


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

        n_cpus, n_gpus = (
            ray.cluster_resources().get(kind, 0.0) for kind in ("CPU", "GPU")
        )
        gpus = min(n_gpus, 1.0) if self.gpus is None else self.gpus
        room = int(min(n_cpus // self.cpus, n_gpus // gpus if gpus else n_cpus))
        if room < 1:
            size = f"{n_cpus:g} CPUs and {n_gpus:g} GPUs hold no worker of {self.cpus} CPUs and {gpus:g} GPUs"
            raise DataError(
                f"cluster: {size}. Ask for less with rmlab.scoring.Ray(cpus=, gpus=)."
            )
        restarts = {"max_restarts": _N_RESTARTS, "max_task_retries": _N_RESTARTS}
        actor = ray.remote(num_cpus=self.cpus, num_gpus=gpus, **restarts)(_Actor)
        actors = [
            actor.remote(work)
            for _ in range(min(room, self.workers or room, len(blocks)))
        ]
        try:
            yield from ActorPool(actors).map_unordered(
                lambda actor, block: actor.run.remote(block), blocks
            )
        except RayTaskError as error:
            raise DataError(f"{error.cause} (on the cluster)\n{error}") from error
        except RayError as error:
            raise DataError(
                f"cluster: a worker ended {_N_RESTARTS + 1} times. Ray says: {error}"
            ) from error
        finally:
            for worker in actors:
                ray.kill(worker)


class _Actor:
    """Runs in a process of the cluster."""

    def __init__(self, work: Callable[[object], object]) -> None:
        self.work = work

    def run(self, block: object) -> object:
        return self.work(block)


def _connect(address: str | None) -> None:
    """Connect Ray to the cluster at the address, or to one on this machine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own affairs
        try:
            import ray
        except ImportError as error:
            raise ImportError(
                f"cluster='ray' needs ray: run {install_command('ray')}"
            ) from error
        if not ray.is_initialized():
            options = {} if address else {"include_dashboard": False}
            try:
                ray.init(
                    address=address,
                    log_to_driver=False,
                    configure_logging=False,
                    **options,
                )
            except ConnectionError as error:
                remedy = "Give ray://host:port of its client server, and RAY_AUTH_MODE=token where it asks for one."
                raise DataError(
                    f"cluster: no Ray cluster answers at {address!r} ({error}). {remedy}"
                ) from error


def find_engine(name: str, cpus: int = 1) -> Ray:
    """The engine that a word names: "ray", or "ray://head:10001" for a cluster that
    runs.
    """
    if name == "ray" or name.startswith("ray://"):
        return Ray(None if name == "ray" else name, cpus)
    raise DataError(
        f"cluster={name!r}. Allowed: 'ray', 'ray://host:port', or a rmlab.scoring.Ray."
    )


class Block(NamedTuple):
    """Texts to score together, or items to judge, and the position of the first."""

    start: int
    texts: list[Text]


def cut_blocks(texts: Sequence[Text]) -> list[Block]:
    """Blocks of texts that end where a prompt does; neither tiny nor the whole."""
    size, starts = min(_LARGEST, max(_SMALLEST, len(texts) // _N_BLOCKS)), [0]
    for i in range(1, len(texts)):
        if i - starts[-1] >= size and texts[i].prompt != texts[i - 1].prompt:
            starts.append(i)
    return [
        Block(start, list(texts[start:stop]))
        for start, stop in pairwise([*starts, len(texts)])
    ]


class Spread(Scorer):
    """A scorer (part 0), or a model of its weighted sum, that workers score with;
    `described`: its provenance there.
    """

    writes_store = True

    def __init__(
        self,
        scorer: Scorer,
        part: int,
        engine: Ray,
        store: Store | None,
        described: Provenance,
    ) -> None:
        model, self.engine, self.described = (
            _list_models(scorer)[part],
            engine,
            described,
        )
        self.name, self.columns, self.fingerprint = (
            model.name,
            model.columns,
            str(described["fingerprint"] or ""),
        )
        self.work = partial(_score_block, scorer, part, self.fingerprint, store)

    def provenance(self) -> Provenance:
        """The provenance where the models run."""
        return self.described

    def stream(self, texts: Sequence[Text], /) -> Stream:
        """Yield positions and scores as workers send them."""
        yield from map_blocks(f"scorer {self.name!r}", self.engine, self.work, texts)


def spread_scorer(scorer: Scorer, engine: Ray, store: Store | None) -> Spread:
    """The scorer with its work on the cluster; a model that is made anew there tells
    who it is.
    """
    identify = partial(_identify, scorer)
    descriptions = (
        next(engine.map(identify, [None]))
        if hasattr(scorer, "remake")
        else identify(None)
    )
    total, *parts = [
        Spread(scorer, part, engine, store, described)
        for part, described in enumerate(descriptions)
    ]
    total.terms = [
        (weight, part) for (weight, _), part in zip(scorer.terms, parts, strict=True)
    ]
    return total


def map_blocks(
    title: str, engine: Ray, work: Callable[[Block], R], texts: Sequence[Text]
) -> Iterator[R]:
    """Yield the results of blocks of texts; an error names who failed."""
    try:
        yield from engine.map(work, cut_blocks(texts))
    except DataError as error:
        raise DataError(
            str(error) if title in str(error) else f"{title}: {error}"
        ) from error


def judge_block(judge: Judge, store: Store | None, block: Block) -> tuple[int, Judged]:
    """On a worker: the number of the block's first item, and the verdicts."""
    return block.start, judge.judge(block.texts, store=store, progress=False)


def _score_block(
    scorer: Scorer, part: int, fingerprint: str, store: Store | None, block: Block
) -> tuple[Ints, Floats]:
    """On a worker: positions and scores of the texts by the scorer, or by one model of
    its sum (0: the whole).
    """
    model = _list_models(scorer)[part]
    if (model.fingerprint or "") != fingerprint:
        message = f"scorer {scorer.name!r}: a worker of the cluster has other weights or settings than the driver"
        raise DataError(f"{message}. Give all machines the same files and releases.")
    if block.start == 0 and len(block.texts) >= _SMALLEST:
        check_company(scorer, block.texts)
    positions, rows = map(
        np.concatenate,
        zip(*score_batches(model, block.texts, store, scorer.name), strict=True),
    )
    return block.start + positions, rows if model.columns else rows[:, 0]


def _list_models(scorer: Scorer) -> list[Scorer]:
    return [scorer, *(model for _, model in scorer.terms)]


def _identify(scorer: Scorer, _: None) -> list[Provenance]:
    return [describe_scorer(model) for model in _list_models(scorer)]
