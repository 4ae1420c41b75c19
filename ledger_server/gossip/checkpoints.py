"""This server's checkpoint, for peers that join: made of its ledger and journal when one asks."""

import logging
import threading
from collections.abc import Callable
from itertools import islice

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.dag.checkpoint import sign_checkpoint
from fl_core.joining import LedgerState, ServedCheckpoint, make_checkpoint
from fl_core.retention import Retention
from ledger_server.publishing import LedgerService

logger: logging.Logger = logging.getLogger(__name__)


class OwnCheckpoint:
    """The newest that was made; another is made when models have been pruned since, or evidence archived.

    Safe to share between threads.

    Args:
        service: The ledger.
        key: This server's.
        now_ms: Milliseconds since 1970 UTC.
    """

    def __init__(self, service: LedgerService, *, key: Ed25519PrivateKey, now_ms: Callable[[], int]) -> None:
        self._service, self._key, self._now_ms = service, key, now_ms
        self._lock = threading.Lock()
        self._made: tuple[tuple[int, int], bytes] | None = None

    def served(self) -> bytes:
        """The checkpoint as it travels; reads the whole journal when it must be made anew.

        Raises:
            StoreError: The journal cannot be read.
        """
        with self._lock:
            gone = self._service.store.removal.count(), self._service.store.archived()
            if self._made is None or self._made[0] != gone:
                self._made = gone, self._make()
            return self._made[1]

    def _make(self) -> bytes:
        service, store = self._service, self._service.store
        with service.lock:
            graphs, count = (service.ledger.graph, service.node.offering.graph), len(service.ledger)
            retention = Retention.of(graphs[0], service.genesis, keep_ms=0, offering=service.node.offering)
            newest = {node.id: node for graph in graphs for node in graph.newest_nodes()}
        arrivals = ((each.transaction.id, each.transaction.receipt) for each in islice(store.replay(), count))
        state = LedgerState(
            ledger=service.id,
            arrivals=arrivals,
            below=min(max(store.removal.up_to(), store.archived()), count),
            eligible=[node for node in newest.values() if node.id in retention.singled_out and retention.keeps(node)],
            members_version=service.acts.effect.members_version,
            acts=service.acts.in_effect(),
        )
        checkpoint, ids = make_checkpoint(state, member=service.public_key, now_ms=self._now_ms())
        about = {"updates": checkpoint.below.count, "horizon_ms": checkpoint.horizon_ms}
        logger.info("made a checkpoint for a peer", extra=about)
        return ServedCheckpoint.of(sign_checkpoint(checkpoint, self._key), ids).data
