"""One selection on a running server: compare, choose, average, and keep the evidence.

Vectors of those tips that can be candidates are kept in memory and change by a row with each publication; one whose
turn comes when a pile of tips above it is approved is read then. The vector of an asking transaction that is no tip
any more is read once and remembered. Equal sets of parents are averaged once:
clients of one cluster get one digest. Only the comparison holds the ledger's lock (one matrix-vector
product); BEAST and the average run outside it.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Final, Generic, TypeVar

from fl_core.aggregation import AGGREGATORS, ArraySource
from fl_core.aggregation.model import aggregate_model
from fl_core.errors import TransactionInvalidError, TransactionUnknownError, UnknownError
from fl_core.ledger import Ledger
from fl_core.models import Buffer, check_model, similarity_vector
from fl_core.selection import SELECTORS, SelectionRequest
from fl_core.selection.change_points import ChangePointDetector
from fl_core.selection.evidence import Evidence, evidence_id
from fl_core.selection.protocol import Selection
from fl_core.similarity import TipMatrix
from fl_core.types import AuthorId, Digest, TxId, Vector32, digest_of
from ledger_server.model_cache import SingleFlight
from ledger_server.model_store import CachedModelStore, ModelCorruptError

logger = logging.getLogger(__name__)

_VECTOR_BYTES: Final = 64 << 20
"""Memory for the vectors of asking transactions; those of a last layer are a few KB each, of a whole model more."""
_REMEMBERED_AGGREGATES: Final = 10_000
_MIN_EVIDENCE: Final = 64
_MIN_SPARE_ROWS: Final = 64

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class SelectionRecord:
    """A selection with its evidence's exact bytes; ``id`` is their SHA-256."""

    id: Digest
    encoded: bytes
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class _Reference:
    """Who asks, and the model that is compared."""

    transaction: TxId | None
    author: AuthorId | None
    model: Digest
    model_size: int
    vector: Vector32


class TipSelectionService:
    """Answers selections for one ledger.

    Args:
        ledger: The rules and the graph; read under ``lock`` only.
        lock: Guards ``ledger`` and the tips' vectors.
        models: Models' bytes.
        model_of: Digest of a transaction's model.
        detect: Runs BEAST, elsewhere than in this process if need be.
        genesis_vector: Flat vector of the genesis model.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        lock: threading.RLock,
        models: CachedModelStore,
        model_of: "ModelDigests",
        detect: ChangePointDetector,
        genesis_vector: Vector32,
    ) -> None:
        genesis = ledger.genesis
        self._ledger, self._lock, self._models, self._model_of = ledger, lock, models, model_of
        self._selector = SELECTORS.build(genesis.selector.name, genesis.selector.params, detect=detect)
        self._aggregators = [
            AGGREGATORS.build(genesis.aggregator.name, genesis.aggregator.params, threads=threads) for threads in (1, 2)
        ]
        # Kept only where averages are clipped: they measure what each model learned since genesis.
        self._genesis_model = ArraySource(genesis_vector) if genesis.policy.norm_rule == "clip" else None
        compared = self._compared(genesis_vector)
        self._tips = TipMatrix(compared)
        most = genesis.policy.max_candidates + 1
        # More than can be asked for: rows that fell behind may be wanted again, and are cleared away together.
        self._most_rows = most + max(_MIN_SPARE_ROWS, most // 4)
        self._damaged: set[TxId] = set()
        self._filling = threading.Lock()
        self._vectors: Remembered[TxId, Vector32] = Remembered(max(1, _VECTOR_BYTES // compared.nbytes))
        self._aggregates: Remembered[tuple[TxId, ...], Digest] = Remembered(_REMEMBERED_AGGREGATES)
        self._parents_of: Remembered[Digest, tuple[TxId, ...]] = Remembered(_REMEMBERED_AGGREGATES)
        self._once: SingleFlight[tuple[TxId, ...], tuple[Digest, Buffer]] = SingleFlight()
        # Two averages at a time: each reads many models, and more only push one another out of the caches.
        self._slots = threading.BoundedSemaphore(2)

    def _compared(self, flat: Vector32) -> Vector32:
        genesis = self._ledger.genesis
        return similarity_vector(genesis.layout, flat, genesis.similarity_layers)

    def admitted(self, transaction: TxId, gone: Sequence[TxId], flat: Vector32 | None) -> None:
        """Take a newly admitted transaction's vector in, and the ``gone`` of ``Ledger.add`` out; under the lock.

        One that came without its model (None) is offered to nobody; what it waits for is on its way here.
        """
        for each in gone:
            self._tips.discard(each)
            self._damaged.discard(each)
        if flat is None:
            if self._ledger.is_eligible(transaction):
                self._damaged.add(transaction)
            return
        vector = self._compared(flat).copy()  # not a view that keeps the whole model alive
        self._vectors.put(transaction, vector)
        if self._ledger.is_eligible(transaction):
            self._tips.add(transaction, vector)
            if len(self._tips) > self._most_rows:
                self._tips.retain({candidate.transaction for candidate in self._ledger.front()})

    def load(self) -> None:
        """Read the vectors of all that can be offered now, at start."""
        self._fill(None)

    def _fill(self, asker: AuthorId | None) -> None:
        """Bring in the rows of candidates that have none, one thread at a time; reading happens outside the lock."""
        with self._filling:
            with self._lock:
                wanted = [each.transaction for each in self._ledger.candidates(asker) if self._lacks(each.transaction)]
            for transaction in wanted:
                try:
                    vector = self._vector_of(transaction)
                except (ModelCorruptError, UnknownError):
                    # One damaged model must not keep the others from being served; it is never offered itself.
                    digest = self._model_of(transaction)
                    logger.exception("stored model is damaged", extra={"transaction": transaction, "model": digest})
                    self._damaged.add(transaction)
                    continue
                with self._lock:
                    if self._ledger.is_eligible(transaction):
                        self._tips.add(transaction, vector)

    def _lacks(self, transaction: TxId) -> bool:
        return transaction not in self._tips and transaction not in self._damaged

    def _vector_of(self, transaction: TxId) -> Vector32:
        """What is compared of a transaction's model: remembered, or read.

        Raises:
            ModelPrunedError, ModelUnknownError: The model is not here (any more).
            ModelCorruptError: Its bytes are damaged.
        """
        vector = self._vectors.get(transaction)
        if vector is None:
            vector = self._compared(self._models.vector(self._model_of(transaction))).copy()
        return vector

    def select_for(self, transaction: TxId) -> SelectionRecord:
        """Select for the author of a transaction, compared by that transaction's model.

        Raises:
            TransactionUnknownError: It is not here.
            TransactionInvalidError: It is genesis, which nobody trained.
            ModelPrunedError: It is not its author's newest any more, and its model was pruned.
        """
        with self._lock:  # a transaction that is being published is here with its model, or not at all
            node = self._ledger.graph.get(transaction)
        if node is None:
            raise TransactionUnknownError(
                f"transaction {transaction[:16]}… is not known here; ask with your model instead",
                transaction=transaction,
            )
        if not node.parents:
            raise TransactionInvalidError(
                "genesis is nobody's result: train its model for initial_epochs, then ask with what comes out"
            )
        vector = self._vector_of(transaction)
        self._vectors.put(transaction, vector)
        digest = self._model_of(transaction)
        size = self._ledger.genesis.layout.nbytes
        return self._select(_Reference(transaction, node.author, digest, size, vector))

    def select_with(self, model: Buffer) -> SelectionRecord:
        """Select for a client that joins with its model.

        Raises:
            ModelError: The model does not pass the gate.
        """
        genesis = self._ledger.genesis
        flat = check_model(genesis.layout, model, max_abs=genesis.policy.max_abs_value)
        digest = digest_of(model)
        self._models.put(digest, model)
        return self._select(_Reference(None, None, digest, len(model), self._compared(flat)))

    def _select(self, reference: _Reference) -> SelectionRecord:
        selection = self._selector.choose(self._ask(reference))
        aggregate = self._aggregate(selection, reference)
        evidence = Evidence(
            ledger=self._ledger.id,
            reference=reference.transaction,
            reference_model=reference.model,
            selector=self._selector.name,
            params=asdict(self._selector.params),
            selection=replace(selection, candidates=selection.candidates[: self._evidence_length]),
            aggregate=aggregate,
            aggregate_size=self._ledger.genesis.layout.nbytes,
        )
        encoded = evidence.encode()
        return SelectionRecord(evidence_id(encoded), encoded, evidence)

    @property
    def _evidence_length(self) -> int:
        """Candidates beyond this rank could not have been taken; their number does not bound a request."""
        return max(_MIN_EVIDENCE, 2 * self._ledger.genesis.policy.max_parents)

    def _ask(self, reference: _Reference) -> SelectionRequest:
        while True:
            with self._lock:
                graph = self._ledger.graph
                offered = self._ledger.candidates(reference.author)
                # A tip whose stored model is damaged has no vector, and is no candidate until it is repaired.
                candidates = tuple(candidate for candidate in offered if candidate.transaction in self._tips)
                if len(candidates) == len(offered) or not any(self._lacks(each.transaction) for each in offered):
                    similarities = self._tips.compare(reference.vector, [c.transaction for c in candidates])
                    newest = None if reference.author is None else graph.newest_of(reference.author)
                    own_tip = None if reference.author is None else self._ledger.own_tip(reference.author)
                    break
            self._fill(reference.author)
        return SelectionRequest(
            candidates=candidates,
            similarities=similarities.models,
            update_similarities=similarities.updates,
            genesis_similarity=similarities.genesis,
            own_tip=own_tip,
            own_newest=None if newest is None else newest.id,
            genesis=self._ledger.id,
            max_selected=self._ledger.genesis.policy.max_parents,
        )

    def _aggregate(self, selection: Selection, reference: _Reference) -> Digest:
        if selection.source == "own" and reference.transaction is None:
            return reference.model
        if len(selection.parents) == 1:
            return self._model_of(selection.parents[0])
        known = self._aggregates.get(selection.parents)
        if known is None:
            return self._average(selection.parents)[0]
        self._parents_of.put(known, selection.parents)  # who is told of it may fetch it
        return known

    def _average(self, parents: tuple[TxId, ...]) -> tuple[Digest, Buffer]:
        """The mean of several transactions' models: from memory, or computed by one of those who ask for it now."""
        return self._once(parents, partial(self._held_or_computed, parents))

    def _held_or_computed(self, parents: tuple[TxId, ...]) -> tuple[Digest, Buffer]:
        known = self._aggregates.get(parents)
        held = None if known is None else self._models.cached(known)
        return self._compute(parents) if known is None or held is None else (known, held)

    def _compute(self, parents: tuple[TxId, ...]) -> tuple[Digest, Buffer]:
        genesis = self._ledger.genesis
        nodes = [self._ledger.graph.get(parent) for parent in parents]
        counts = [node.num_examples for node in nodes if node is not None]
        with self._slots, self._models.sources([self._model_of(parent) for parent in parents]) as sources:
            # A model read from the store is hashed on the way, front to back, so by one thread.
            parallel = all(isinstance(source, ArraySource) for source in sources)
            aggregator = self._aggregators[parallel]
            model = aggregate_model(
                genesis, aggregator, sources, num_examples=counts, genesis_model=self._genesis_model
            )
        digest = digest_of(model)
        self._models.put(digest, model)
        self._aggregates.put(parents, digest)
        self._parents_of.put(digest, parents)
        return digest, model

    def aggregate_bytes(self, digest: Digest) -> Buffer | None:
        """An aggregate's bytes, computed again if memory let them go; None if nobody asked for it here."""
        parents = self._parents_of.get(digest)
        return None if parents is None else self._average(parents)[1]


class ModelDigests:
    """Digest of each transaction's model: 32 bytes a transaction instead of a query a question."""

    def __init__(self) -> None:
        self._digests: dict[TxId, bytes] = {}

    def put(self, transaction: TxId, digest: Digest) -> None:
        """Remember a transaction's model."""
        self._digests[transaction] = bytes.fromhex(digest)

    def __call__(self, transaction: TxId) -> Digest:
        return Digest(self._digests[transaction].hex())


class Remembered(Generic[K, V]):
    """A bounded map; what was used longest ago goes first. Safe to share between threads."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The value, which thereby becomes the most recently used."""
        with self._lock:
            value = self._entries.get(key)
            if value is not None:
                self._entries.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> None:
        """Keep a value."""
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            if len(self._entries) > self._capacity:
                self._entries.popitem(last=False)
