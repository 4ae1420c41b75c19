"""Selections on a running server: put the node's question, choose, average, keep the evidence.

Only the question holds the ledger's lock (one product of a matrix with a vector); change points and averages are
computed outside it.
"""

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from cachetools import LRUCache
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.dag.admission import check_norm
from fl_core.dag.graph import Node
from fl_core.dag.signature import Role, public_key_of, sign, verify
from fl_core.errors import (
    DigestMismatchError,
    ModelPrunedError,
    SelectionUnknownError,
    TransactionInvalidError,
    TransactionUnknownError,
    UnknownError,
)
from fl_core.models import Buffer, check_model, model_norm
from fl_core.node import VectorsMissing
from fl_core.registry import installed_part
from fl_core.selection import SELECTORS, Selection
from fl_core.selection.evidence import evidence_id, parse_evidence
from fl_core.trust.contribution import to_measure
from fl_core.types import AuthorId, Digest, PublicKey, TxId, Vector32, digest_of
from ledger_server import tracing
from ledger_server.aggregates import Aggregates
from ledger_server.model_store import ModelCorruptError
from ledger_server.pending_selections import PendingSelections, SelectionRecord
from ledger_server.reading import LedgerView

logger: logging.Logger = logging.getLogger(__name__)

_READ_TOGETHER: Final = 16
"""Models of a megabyte at most."""
_VECTOR_BYTES: Final = 64 << 20
"""Memory for the vectors of updates that may ask; those of a last layer are a few KB each, of a whole model more."""


@dataclass(frozen=True, slots=True)
class ForwardedEvidence:
    """A selection's evidence that a client brings from the server that made and signed it."""

    encoded: bytes
    issuer: PublicKey
    signature: bytes


class SelectionService:
    """Answers selections for one ledger; safe to call from many threads.

    Args:
        view: The ledger.
        aggregates: Averages the chosen models.
        pending: Keeps selections for their publication.
        key: This server's key; it signs the evidence that it gives.

    Attributes:
        trusted_issuers: Servers whose selections are taken from clients: this one and its peers.
    """

    def __init__(
        self,
        view: LedgerView,
        aggregates: Aggregates,
        pending: PendingSelections,
        *,
        key: Ed25519PrivateKey,
    ) -> None:
        selector = view.genesis.selector
        self._view, self._node, self._lock = view, view.node, view.lock
        self._aggregates, self._pending, self._key = aggregates, pending, key
        self.trusted_issuers: frozenset[PublicKey] = frozenset({public_key_of(key)})
        self._selector = SELECTORS.build(selector.name, selector.params)
        self._filling = threading.Lock()
        self._vectors_lock = threading.Lock()
        self._vectors: LRUCache[TxId, Vector32] = LRUCache(_VECTOR_BYTES, getsizeof=lambda vector: vector.nbytes)
        self.bring_vectors(keep=False)  # of all authors: most are not asked for

    # -- asking -------------------------------------------------------------------------------------

    def select_for(self, transaction: TxId) -> tuple[SelectionRecord, bool]:
        """Select for the author of an update, compared by that update's model; the flag says whether this is new.

        Where that update is withheld, its author's newest one that is not stands for it, or genesis.

        Raises:
            TransactionUnknownError: It is not here.
            TransactionInvalidError: It is genesis, which nobody trained.
            ModelPrunedError: It is not its author's newest any more, and its model was pruned.
            PartFailedError: The ledger's selector or aggregator is another package's, and raised something.
        """
        with self._lock:  # an update that is being published is here with its model, or not at all
            node = self._node.graph.get(transaction)
            author_list = self._node.graph.author_list
        if node is None:
            raise TransactionUnknownError(
                f"transaction {transaction[:16]}… is not known here; ask with your model instead",
                transaction=transaction,
            )
        if not node.parents:
            raise TransactionInvalidError(
                "genesis is nobody's result: train its model for initial_epochs, then ask with what comes out"
            )
        with self._lock:
            compared = self._node.compared_for(node)
        try:
            vector = self._vector_of(compared)
        except ModelPrunedError:
            if compared is node:
                raise
            compared = self._node.graph.genesis
            vector = self._vector_of(compared)
        self.keep_vector(compared.id, vector)
        reference = compared.id if compared.parents else None
        led_back_from = None if compared is node else node.id
        author = author_list.current(node.author)
        return self._select(
            author, reference, compared.model_digest, vector, compared.noise_std, led_back_from=led_back_from
        )

    def select_with(self, model: Buffer) -> tuple[SelectionRecord, bool]:
        """Select for a client that joins with its model; the flag says whether this is new.

        Raises:
            ModelError: The model does not pass the gate.
            PartFailedError: As ``select_for``.
        """
        genesis = self._view.genesis
        vector = check_model(genesis.layout, model, max_abs=genesis.bounds.max_abs_value)
        check_norm(model_norm(vector), max_norm=genesis.bounds.max_norm, slack=0.0)
        digest = digest_of(model)
        self._view.models.put(digest, model)
        return self._select(None, None, digest, self._node.compared(vector))

    def _select(
        self,
        author: AuthorId | None,
        reference: TxId | None,
        model: Digest,
        vector: Vector32,
        noise_std: float = 0.0,
        *,
        led_back_from: TxId | None = None,
    ) -> tuple[SelectionRecord, bool]:
        """Choose for an author, compared by an update's model; both are None for a client that joins.

        The update alone is None for one that begins anew, led back from one that is withheld.
        """
        self._view.store.require_room()  # before the client trains for a publication that there would be no room for
        aggregate: Digest | None = None
        while aggregate is None:
            with self._lock:
                request = self._node.question(None if reference is None else author, vector, noise_std=noise_std)
            if isinstance(request, VectorsMissing):
                self.bring_vectors()
                continue
            with tracing.span("choose"), installed_part("selector", self._selector):
                selection = self._selector.choose(request)
                if not isinstance(selection, Selection):
                    raise TypeError(f"choose() returned {type(selection).__name__}, not a Selection")
            parents = self._node.parents_to_average(selection)
            try:
                aggregate = self._aggregates.average(parents) if parents else model
            except ModelCorruptError as error:
                self._leave_out(error, among=parents, own=reference)
        evidence = self._node.evidence(
            selection,
            selector=self._selector,
            author=author,
            reference=reference,
            reference_model=model,
            aggregate=aggregate,
            led_back_from=led_back_from,
        )
        encoded = evidence.encode()
        record = SelectionRecord(evidence_id(encoded), encoded, evidence)
        is_new = self._pending.keep(record, parents)
        if is_new and (few := evidence.too_few) is not None:
            about = {"selection": record.id, "models": few.models, "needed": few.needed}
            logger.info("an average of fewer models than the ledger's aggregator needs keeps nobody out", extra=about)
        return record, is_new

    def _leave_out(self, error: ModelCorruptError, *, among: Sequence[TxId], own: TxId | None) -> None:
        """Offer the update with a damaged model to nobody; raises the error where it is the asker's own."""
        with self._lock:
            damaged = [node.id for node in self._node.nodes_of(among) if node.model_digest == error.digest]
            for each in damaged:
                self._node.mark_damaged(each)
        if not damaged or own in damaged:
            raise error
        logger.error("stored model is damaged", extra={"transactions": damaged, "model": error.digest})

    def bring_vectors(self, *, keep: bool = True) -> None:
        """Read the vectors of all that can be offered now and have none, one thread at a time, outside the lock.

        Args:
            keep: Whether memory keeps the models, too: what another process has just taken in is averaged soon.
        """
        with self._filling:
            with self._lock:
                missing = self._node.nodes_of(self._node.missing_vectors())
            for place, each in enumerate(missing):
                if keep and place % _READ_TOGETHER == 0 and not self._node.compares_sketches:
                    together = missing[place : place + _READ_TOGETHER]
                    self._view.models.read_together(each.model_digest for each in together)
                try:
                    vector = self._vector_of(each, keep=keep)
                except ModelPrunedError:
                    with self._lock:  # a server that joins has not come yet to what took its place
                        self._node.mark_damaged(each.id)
                except (ModelCorruptError, UnknownError):
                    # One damaged model must not keep the others from being served; it is never offered itself.
                    about = {"transaction": each.id, "model": each.model_digest}
                    logger.exception("stored model is damaged", extra=about)
                    with self._lock:
                        self._node.mark_damaged(each.id)
                else:
                    with self._lock:
                        self._node.bring(each.id, vector)

    def keep_vector(self, transaction: TxId, vector: Vector32) -> None:
        """Keep what is compared of an update's model in memory: its author is likely to ask with it."""
        with self._vectors_lock:
            if vector.nbytes <= self._vectors.maxsize:
                self._vectors[transaction] = vector

    def forget_vectors(self) -> None:
        """Let go of the vectors in memory: their models may have been erased."""
        with self._vectors_lock:
            self._vectors.clear()

    def _vector_of(self, node: Node, *, keep: bool = True) -> Vector32:
        """What is compared of an update's model: from memory, or read, and the model then kept there.

        Raises:
            ModelPrunedError, ModelUnknownError: The model is not here (any more).
            ModelCorruptError: Its bytes are damaged.
        """
        with self._vectors_lock:
            vector = self._vectors.get(node.id)
        if vector is None and self._node.compares_sketches:
            kept = self._view.store.sketch(node.model_digest)
            vector = None if kept is None else np.frombuffer(kept, "<f4")
        if vector is None:  # a copy, as a view would keep the whole model in memory
            vector = self._node.compared(self._view.models.vector(node.model_digest, keep=keep)).copy()
        return vector

    def without(self, selection: Digest, parent: TxId, *, asker: AuthorId) -> Digest:
        """The digest of a late selection's average without one of its parents, for its asker to measure what that one
        is worth; of the few that are drawn to be measured.

        Raises:
            SelectionUnknownError: The selection was not made here lately, or the parent is none of those.
            TransactionInvalidError: It was made for another author.
            ModelPrunedError, ModelUnknownError: A parent's model is not here (any more).
        """
        evidence = self.selection(selection).evidence
        if evidence.selection.source == "own":
            raise SelectionUnknownError(f"no late average of a selection {selection[:16]}… here")
        parents = evidence.selection.parents
        if evidence.author not in (None, asker):
            raise TransactionInvalidError("the selection was made for another author; ask for your own")
        if parent not in (drawn := to_measure(selection, parents, own=evidence.reference)):
            left_out = ", ".join(drawn) or "none, as it has no others"
            raise SelectionUnknownError(f"of this selection's average these can be left out: {left_out}")
        rest = tuple(each for each in parents if each != parent)
        digest = self._aggregates.average(rest)
        self._pending.keep_average(digest, rest)
        return digest

    # -- evidence -----------------------------------------------------------------------------------

    def selection(self, selection: Digest) -> SelectionRecord:
        """A selection's evidence.

        Raises:
            SelectionUnknownError: It is not kept here (any more), or was damaged.
        """
        if (held := self._pending.get(selection)) is not None:
            return held
        encoded = self._view.store.attachment(selection)
        if encoded is None or selection == self._view.genesis.digest or digest_of(encoded) != selection:
            raise SelectionUnknownError(f"no selection {selection[:16]}… here; ask for a new one")
        return SelectionRecord(selection, encoded, parse_evidence(encoded))

    def selection_or_forwarded(self, selection: Digest, forwarded: ForwardedEvidence | None) -> SelectionRecord:
        """A selection's evidence from here, or as a client forwards it from a server that is trusted.

        Raises:
            SelectionUnknownError: It is not kept here, and no evidence came that this server takes.
            SignatureError, TransactionInvalidError, DigestMismatchError: What came is not what it says.
        """
        try:
            return self.selection(selection)
        except SelectionUnknownError:
            if forwarded is None or forwarded.issuer not in self.trusted_issuers:
                raise
        if (computed := digest_of(forwarded.encoded)) != selection:
            raise DigestMismatchError("the evidence is not that of the selection", claimed=selection, computed=computed)
        verify(forwarded.issuer, TxId(computed), forwarded.signature, role=Role.SELECTION)
        return SelectionRecord(computed, forwarded.encoded, parse_evidence(forwarded.encoded))

    def sign(self, selection: Digest) -> bytes:
        """This server's signature of a selection that it made, for the client to publish elsewhere."""
        return sign(self._key, TxId(selection), role=Role.SELECTION)
