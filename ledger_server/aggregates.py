"""Averages of updates' models: each set of parents is averaged once, so clients of one cluster get one digest."""

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, TypeVar

from cachetools import LRUCache

from fl_core.aggregation import AGGREGATORS, ArraySource
from fl_core.aggregation.model import aggregate_model
from fl_core.aggregation.span_pool import SpanPool
from fl_core.dag.graph import Node
from fl_core.errors import BaseUnknownError, ModelPrunedError, ModelUnknownError, UnknownError
from fl_core.models import Buffer, flat
from fl_core.step_coding import base_of, decode_step, encode_step
from fl_core.types import ZERO_ID, Digest, TxId, Vector32, digest_of
from ledger_server.model_store import ModelCorruptError
from ledger_server.reading import LedgerView
from ledger_server.store.errors import StoreInconsistentError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_MOST_REMEMBERED: Final = 1_000
"""Averages of which memory knows what they are the average of, some kilobytes each; the store knows of all."""
_CODED_BYTES: Final = 16 << 20
"""Memory for models as peers ask for them coded: most ask for the same, one soon after another."""
_AT_ONCE: Final = 2
"""Averages computed at a time: each reads many models, and more only push one another out of the caches."""


@dataclass(frozen=True, slots=True)
class Beside:
    """Updates that are about to become visible: their places in the DAG, and their models' values by digest."""

    nodes: dict[TxId, Node] = field(default_factory=dict)
    vectors: dict[Digest, Vector32] = field(default_factory=dict)


_NOTHING: Final = Beside()


class Aggregates:
    """Computes and remembers averages; their bytes share the models' memory, and are computed anew where it let go."""

    def __init__(self, view: LedgerView) -> None:
        self._view, self._models = view, view.models
        rule = view.genesis.aggregator
        self._aggregators = [AGGREGATORS.build(rule.name, rule.params, pool=SpanPool(threads)) for threads in (1, 2)]
        self._lock = threading.Lock()
        self._digests: LRUCache[tuple[TxId, ...], Digest] = LRUCache(_MOST_REMEMBERED)
        self._parents: LRUCache[Digest, tuple[TxId, ...]] = LRUCache(_MOST_REMEMBERED)
        self._coded: LRUCache[tuple[Digest, Digest], bytes] = LRUCache(_CODED_BYTES, getsizeof=len)
        self._once: SingleFlight[tuple[TxId, ...], tuple[Digest, Buffer]] = SingleFlight()
        self._slots = threading.BoundedSemaphore(_AT_ONCE)

    def average(self, parents: tuple[TxId, ...]) -> Digest:
        """The digest of the average of updates' models; of one, that of its model.

        Raises:
            ModelPrunedError, ModelUnknownError: A model is not here (any more).
            ModelCorruptError: A model's bytes are damaged.
        """
        if len(parents) == 1:
            return self._nodes_of(parents)[0].model_digest
        with self._lock:
            known = self._digests.get(parents)
            if known is not None:
                self._parents[known] = parents  # the asker may fetch it
        return self._average(parents)[0] if known is None else known

    def vector(self, parents: tuple[TxId, ...], *, beside: Beside = _NOTHING) -> Vector32:
        """The values of the average of updates' models, shape ``(P,)``; of one, those of its model.

        Args:
            parents: Visible, or among those beside.
            beside: What is about to become visible.

        Raises:
            ModelPrunedError, ModelUnknownError: A model is not here (any more).
            ModelCorruptError: A model's bytes are damaged.
        """
        if len(parents) == 1:
            digest = self._nodes_of(parents, beside)[0].model_digest
            found = beside.vectors.get(digest)
            return self._models.vector(digest) if found is None else found
        return flat(self._view.genesis.layout, self._average(parents, beside)[1])

    def model(self, digest: Digest) -> Buffer:
        """The bytes of an update's model or of an average, which is computed again if memory let it go.

        Raises:
            ModelPrunedError: An update's model that was pruned.
            ModelUnknownError: Neither; or an average that nobody asked for here lately.
            ModelCorruptError: Its bytes are damaged, or those of a model that it is the average of.
        """
        found = self._models.get(digest)
        with self._lock:
            parents = self._parents.get(digest)
        if found is None and parents is None and (parents := self._view.store.averaged(digest)) is not None:
            self._view.follow()  # another process has told of it, and may have written what it is the average of
        if found is None and parents is not None:
            with suppress(ModelPrunedError, KeyError):  # of one that it is the average of
                found = self._average(parents)[1]
        if found is None:
            if isinstance(missing := self._models.missing(digest), ModelPrunedError):
                raise missing
            raise ModelUnknownError(f"model {digest[:16]}… not found; request a new selection to get a fresh aggregate")
        return found

    def rebuilt(self, coded: Buffer) -> Buffer:
        """A model that came coded: by any that this server would give, an update's or an average of late.

        Raises:
            ModelMalformedError: It is no coded model of this ledger.
            BaseUnknownError: The model that it is coded by is not here (any more).
            ModelCorruptError: As ``model``.
        """
        base = base_of(coded)
        try:
            data = None if base == ZERO_ID else self.model(base)
        except UnknownError as error:
            raise BaseUnknownError(f"the model that it is coded by is not at hand ({error}); send it whole") from error
        return decode_step(self._view.genesis.layout, coded, data)

    def coded(self, digest: Digest, base: Digest) -> bytes | None:
        """A model by what it differs by from another one; None where that is not here, or it would save too little.

        Raises: As ``model``.
        """
        with self._lock:
            known = self._coded.get((digest, base))
        model = self.model(digest)
        if known is None and (other := self._models.get(base)) is not None:
            with self._slots:
                known = encode_step(self._view.genesis.layout, model, other, base_digest=base)
            with self._lock, suppress(ValueError):  # larger than the cache
                self._coded[digest, base] = known
        return known if known is not None and len(known) < len(model) else None

    def _average(self, parents: tuple[TxId, ...], beside: Beside = _NOTHING) -> tuple[Digest, Buffer]:
        """From memory, or computed by one of those who ask for it now."""
        return self._once(parents, partial(self._cached_or_computed, parents, beside))

    def _cached_or_computed(self, parents: tuple[TxId, ...], beside: Beside) -> tuple[Digest, Buffer]:
        with self._lock:
            known = self._digests.get(parents)
        if known is not None and (held := self._models.cached(known)) is not None:
            return known, held
        nodes, read_at = self._nodes_of(parents, beside), self._models.pruned_times
        with self._slots:
            try:
                model = self._computed(nodes, beside)
            except (ModelCorruptError, StoreInconsistentError):
                model = self._computed(nodes, beside, whole=True)
        digest = digest_of(model)
        self._models.put(digest, model, read_at=read_at)
        with self._lock:
            self._digests[parents], self._parents[digest] = digest, parents
        return digest, model

    def _computed(self, nodes: list[Node], beside: Beside, *, whole: bool = False) -> bytes:
        digests = [node.model_digest for node in nodes]
        self._models.read_together(each for each in digests if each not in beside.vectors)
        with self._models.sources(digests, beside=beside.vectors, whole=whole) as sources:
            # A model read from the store is hashed on the way, front to back, so by one thread.
            parallel = all(isinstance(source, ArraySource) for source in sources)
            return aggregate_model(
                self._view.genesis,
                self._aggregators[parallel],
                sources,
                num_examples=[node.num_examples for node in nodes],
            )

    def _nodes_of(self, parents: tuple[TxId, ...], beside: Beside = _NOTHING) -> list[Node]:
        with self._view.lock:
            return self._view.node.nodes_of(parents, beside.nodes)


class SingleFlight(Generic[K, V]):
    """Runs a computation per key once at a time; threads that ask meanwhile wait and share its result or error."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[K, Future[V]] = {}

    def __call__(self, key: K, compute: Callable[[], V]) -> V:
        """The result of ``compute`` for ``key``: computed here, or by the thread that is already at it."""
        with self._lock:
            running = self._running.get(key)
            if running is None:
                mine: Future[V] = Future()
                self._running[key] = mine
        if running is not None:
            return running.result()
        try:
            result = compute()
        except BaseException as error:
            mine.set_exception(error)
            raise
        else:
            mine.set_result(result)
            return result
        finally:
            with self._lock:
                del self._running[key]
