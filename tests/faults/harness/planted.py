"""Bugs that real systems have had, each to be planted in the product for one process, to see it caught.

Each function patches the product where the bug would be.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from fl_core import models as weights
from fl_core.dag.figures import step_from
from fl_core.dag.graph import Graph, Node
from fl_core.dag.transaction import Header
from fl_core.ledger import Ledger, WaitingForParents
from fl_core.models import Buffer
from fl_core.sync.pending import PendingPool
from fl_core.types import Digest, TxId
from ledger_server import model_store
from ledger_server import publishing as service
from ledger_server.http import peer_signature
from ledger_server.store import database, engine, journal
from ledger_server.store.blobs import directory

LATE_S = 0.3
"""How long a planted bug leaves undone what the product does at once."""
GAP_S = 1.0
"""The same of a page's gap: on a busy machine a follower is so far behind."""


def plant(where: Any, name: str, instead: Any) -> None:
    """Put ``instead`` in the place of an attribute, for the rest of this process."""
    patch.object(where, name, instead).start()


def synchronous_normal() -> None:
    """A commit does not wait for the disk: a power cut takes what was acknowledged."""
    plant(database, "writing", lambda of, **_: engine.writing(of, durable=False))
    plant(os, "fdatasync", lambda _: None)


def row_before_blob() -> None:
    """A model's bytes are written a moment after the row that names them."""
    write_file = directory.DirectoryBlobs._write_file

    def later(self: directory.DirectoryBlobs, path: Path, data: Buffer) -> None:
        threading.Timer(LATE_S, write_file, (self, path, bytes(data))).start()

    plant(directory.DirectoryBlobs, "_write_file", later)


def acknowledged_before_commit() -> None:
    """Publications are answered at once; what they wrote is committed together, a moment later."""
    lock = threading.RLock()
    under_way: dict[Any, Any] = {}

    def commit(of: Any) -> None:
        with lock:
            under_way.pop(of)[1].__exit__(None, None, None)

    @contextmanager
    def batched(of: Any, *, durable: bool = True, alone: bool = True) -> Iterator[Any]:
        with lock:
            if of not in under_way:
                block = engine.writing(of, durable=durable, alone=alone)
                under_way[of] = (block.__enter__(), block)
                threading.Timer(LATE_S, commit, (of,)).start()
            yield under_way[of][0]

    plant(database, "writing", batched)


def cursor_gap() -> None:
    """A page holds what came later and not yet what came before it, as sequence numbers that commit out of order do."""
    page = journal.Store.page

    def with_gap(self: journal.Store, *, after: int, limit: int) -> list[Any]:
        rows = page(self, after=after, limit=limit + 1)
        now_ms = time.time() * 1000
        late = [row for row in rows[:-1] if now_ms - row.received_at_ms < GAP_S * 1000]
        return [row for row in rows if not late or row is not late[0]][:limit]

    plant(journal.Store, "page", with_gap)


def no_hash_check() -> None:
    """Stored bytes are served as they are read."""
    asked: list[Digest] = []
    get = model_store.CachedModelStore.get

    def trusting(self: model_store.CachedModelStore, digest: Digest, **named: Any) -> Any:
        asked.append(digest)
        return get(self, digest, **named)

    plant(model_store.CachedModelStore, "get", trusting)
    plant(model_store, "digest_of", lambda _: asked[-1])


def sum_in_order_of_arrival() -> None:
    """Float32 sums depend on their order, and the order is that of arrival instead of that of ids."""
    plant(Graph, "tips", lambda self: tuple(node.id for node in self.nodes if node.id in self._tips))


def unbounded_orphans() -> None:
    """What waits for its parents may be as much as anybody sends, for ever."""
    bounded = PendingPool.__init__

    def unbounded(self: PendingPool, *args: Any, **named: Any) -> None:
        bounded(self, *args, **{**named, "max_count": 10**9, "max_bytes": 10**15, "lifetime_s": 1e9})

    plant(PendingPool, "__init__", unbounded)


def no_foreign_keys() -> None:
    """A transaction is taken in whether its parents are there or not."""
    prepare = PendingPool.__init__

    class Everything:
        def __contains__(self, _: object) -> bool:
            return True

    def blind(self: PendingPool, _: Any, *args: Any, **named: Any) -> None:
        prepare(self, Everything(), *args, **named)

    plant(PendingPool, "__init__", blind)
    place = Ledger.place

    def rootless(self: Ledger, transaction: TxId, header: Header, **named: Any) -> Node | WaitingForParents:
        there = tuple(parent for parent in header.parents if parent in self) or (self.id,)
        node = place(self, transaction, replace(header, parents=there), **named)
        assert isinstance(node, Node)
        return replace(node, parents=header.parents)

    plant(Ledger, "place", rootless)


def accepts_nan() -> None:
    """Values are not looked at, and those that are no numbers count nothing in a norm, which would give them away."""
    plant(service, "check_model", lambda layout, data, **_: weights.flat(layout, data))
    plant(service, "model_norm", lambda vector: weights.model_norm(np.nan_to_num(vector)))
    plant(service, "step_from", lambda average, model, **named: step_from(average, np.nan_to_num(model), **named))


def no_replay_cache() -> None:
    """A signed request works as often as it is sent."""
    plant(peer_signature._Nonces, "use", lambda *_, **__: None)


def locks_dropped() -> None:
    """Each new connection opens and closes the database's file, which drops the locks of all that are open.

    This product had it, until c9430f0: the next command beside the server took SQLite's log away under it.
    """

    def reopened(_dialect: object, _record: object, arguments: list[str], _named: object) -> None:
        os.close(os.open(arguments[0], os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    plant(engine, "_make_private", reopened)


BUGS: dict[str, Callable[[], None]] = {
    "synchronous-normal": synchronous_normal,
    "row-before-blob": row_before_blob,
    "acknowledged-before-commit": acknowledged_before_commit,
    "cursor-gap": cursor_gap,
    "no-hash-check": no_hash_check,
    "sum-in-order-of-arrival": sum_in_order_of_arrival,
    "unbounded-orphans": unbounded_orphans,
    "no-foreign-keys": no_foreign_keys,
    "accepts-nan": accepts_nan,
    "no-replay-cache": no_replay_cache,
    "locks-dropped": locks_dropped,
}
