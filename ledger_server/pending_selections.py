"""Selections that wait for their publication: in the store before their client is told, several together.

So each process that serves the ledger knows them, and a crash takes none; a power cut may (``Store.keep_selections``).
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from cachetools import LRUCache

from fl_core.selection.evidence import Evidence
from fl_core.types import Digest, TxId
from ledger_server.group_commit import GroupCommit
from ledger_server.store.journal import Store

_REFRESH_MS: Final = 60_000
"""What was kept less than this ago is not written again only to be younger."""
_FORGET_EVERY: Final = 256
"""Selections written between two sweeps of those that led to nothing: rare enough to cost nothing; a soft bound."""
_AVERAGES: Final = 10_000


@dataclass(frozen=True, slots=True)
class SelectionRecord:
    """A selection with its evidence's exact bytes; ``id`` is their SHA-256."""

    id: Digest
    encoded: bytes
    evidence: Evidence


_Told: TypeAlias = tuple[SelectionRecord | None, Mapping[Digest, Sequence[TxId]]]
"""A selection, and of which updates its average is the average; either may be known already."""


class PendingSelections:
    """Keeps selections for their publication, and forgets those that led to none. Safe to share between threads.

    Args:
        store: Where they are kept.
        now_ms: The clock, milliseconds since 1970 UTC.
        recent: How many memory holds for their publication.
        max_unpublished: How many are kept for clients still training.
        lifetime_ms: For how long, in milliseconds; 30 days.
    """

    def __init__(
        self,
        store: Store,
        *,
        now_ms: Callable[[], int],
        recent: int,
        max_unpublished: int = 10_000,
        lifetime_ms: int = 30 * 86_400_000,
    ) -> None:
        self._store, self._now_ms = store, now_ms
        self._max_unpublished, self._lifetime_ms = max_unpublished, lifetime_ms
        # Each with the time of keeping.
        self._recent: LRUCache[Digest, tuple[SelectionRecord, int]] = LRUCache(recent)
        self._averages: LRUCache[Digest, int] = LRUCache(_AVERAGES)
        self._lock = threading.Lock()
        self._written = 0
        self._write = GroupCommit[_Told, None](self._write_together, fits=lambda *_: True)

    def keep(self, record: SelectionRecord, averaged: tuple[TxId, ...] = ()) -> bool:
        """Keep a selection, and of which updates its average is; False when memory knows it, which counts as new use.

        Raises:
            StoreError: The store refuses; the selection is not kept.
        """
        now_ms = self._now_ms()
        with self._lock:
            known = self._recent.get(record.id)
        if known is None or now_ms - known[1] >= _REFRESH_MS:
            self._tell(record, record.evidence.aggregate, averaged, now_ms)
            with self._lock:
                self._recent[record.id] = record, now_ms
        return known is None

    def keep_average(self, digest: Digest, parents: tuple[TxId, ...]) -> None:
        """Keep of which updates a model is the average, for whichever process is asked for it.

        Raises:
            StoreError: The store refuses.
        """
        self._tell(None, digest, parents, self._now_ms())

    def _tell(self, record: SelectionRecord | None, average: Digest, parents: tuple[TxId, ...], now_ms: int) -> None:
        with self._lock:
            is_known = now_ms - self._averages.get(average, -_REFRESH_MS) < _REFRESH_MS
        new = {average: parents} if len(parents) > 1 and not is_known else {}  # that of one is its model
        if record is not None or new:
            self._write((record, new))
        with self._lock:
            self._averages.update(dict.fromkeys(new, now_ms))

    def get(self, selection: Digest) -> SelectionRecord | None:
        """A selection that memory holds."""
        with self._lock:
            recent = self._recent.get(selection)
        return None if recent is None else recent[0]

    def _write_together(self, items: Sequence[_Told]) -> list[None]:
        now_ms = self._now_ms()
        encoded = list({record.id: record.encoded for record, _ in items if record is not None}.values())
        averaged = {digest: parents for _, each in items for digest, parents in each.items()}
        self._store.keep_selections(encoded, averaged=averaged, now_ms=now_ms)
        before, self._written = self._written, self._written + len(encoded)
        if before // _FORGET_EVERY != self._written // _FORGET_EVERY:
            self._store.forget_selections(before_ms=now_ms - self._lifetime_ms, keep=self._max_unpublished)
        return [None] * len(items)
