"""All updates of a served ledger by id: those asked for lately from memory, older ones from the journal."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from cachetools import LRUCache

from fl_core.dag.graph import Node
from fl_core.types import TxId
from ledger_server.store.errors import StoreError
from ledger_server.store.journal import REPLAY_PAGE, Store

REMEMBERED: Final = 4096
"""Updates in memory, a kilobyte each: parents are nearly always among the newest."""


class JournalNodes:
    """See ``fl_core.dag.graph.Nodes``; safe to use from many threads. Its methods raise ``StoreError``.

    Args:
        store: The journal. What it holds beyond what was added here is not among these yet.
        remembered: Updates in memory.
    """

    def __init__(self, store: Store, *, remembered: int = REMEMBERED) -> None:
        self._store, self._count = store, 1  # genesis, which its graph holds
        self._remembered = remembered
        # By age and not by use: what is looked up twenty times for each publication is better looked up quickly.
        self._lately: OrderedDict[TxId, Node] = OrderedDict()
        self._absent: LRUCache[TxId, None] = LRUCache(remembered)
        """Looked for and not found; gossip asks for what has just been announced again and again."""
        self._lock = threading.Lock()

    def add(self, node: Node) -> None:
        with self._lock:
            self._remember([node])
            self._absent.pop(node.id, None)
            self._count += 1

    def _remember(self, nodes: Iterable[Node]) -> None:
        self._lately.update((node.id, node) for node in nodes)
        while len(self._lately) > self._remembered:
            self._lately.popitem(last=False)

    def resume(self, count: int, newest: Iterable[Node]) -> None:
        """Go on as if the first ``count`` of the journal had been added, these among them."""
        self._count = count
        with self._lock:
            self._remember(newest)

    def get(self, transaction: TxId) -> Node | None:
        node = self._lately.get(transaction)
        return self.read([transaction]).get(transaction) if node is None else node

    def read(self, transactions: Iterable[TxId]) -> dict[TxId, Node]:
        """Those of them that are not in memory, by one query; then they are."""
        with self._lock:
            count = self._count
            lacking = [each for each in transactions if each not in self._lately and each not in self._absent]
        stored = self._store.transactions(lacking) if lacking else ()
        found = {node.id: node for node in (each.node for each in stored if each.arrival < self._count)}
        with self._lock:
            self._remember(found.values())
            if count == self._count:  # else one may have been added meanwhile
                self._absent.update((each, None) for each in lacking if each not in found)
        return found

    def look_up(self, transactions: Iterable[TxId]) -> None:
        with suppress(StoreError):  # /readyz says it
            self.read(transactions)

    def __contains__(self, transaction: TxId, /) -> bool:
        try:
            return self.get(transaction) is not None
        except StoreError:  # /readyz says it
            return False

    def __iter__(self) -> Iterator[Node]:
        after = 0
        while page := self._store.page(after=after, limit=REPLAY_PAGE):
            for stored in page:
                if stored.arrival >= self._count:
                    return
                yield stored.node
            after = page[-1].arrival
