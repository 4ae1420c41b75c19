"""Selections that wait for their publication: in memory at once, in the store soon after, several together.

A client is answered before its selection is on disk. Nothing is promised of it: whoever holds one that a crash took
asks for a new selection, as after a power cut (``Store.keep_selections``). What a client publishes before that never
goes through the store's waiting list at all.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cachetools import LRUCache

from fl_core.selection.evidence import Evidence
from fl_core.types import Digest
from ledger_server.store.errors import StoreError
from ledger_server.store.journal import Store

logger: logging.Logger = logging.getLogger(__name__)

_FLUSH_AFTER_S: Final = 0.05
"""How long a selection may be in memory only."""
_RETRY_AFTER_S: Final = 1.0
_MOST_PENDING: Final = 1024
"""Beyond it, whoever asks writes: a store that fails is then the asker's 503, not this process's memory."""
_REFRESH_MS: Final = 60_000
"""A selection that was kept less than this ago is not written again only to be younger."""
_FORGET_EVERY: Final = 256
"""Selections written between two sweeps of those that led to nothing: rare enough to cost nothing; a soft bound."""


@dataclass(frozen=True, slots=True)
class SelectionRecord:
    """A selection with its evidence's exact bytes; ``id`` is their SHA-256."""

    id: Digest
    encoded: bytes
    evidence: Evidence


class PendingSelections:
    """Keeps selections for their publication, and forgets those that led to none.

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
        self._recent: LRUCache[Digest, tuple[SelectionRecord, int]] = LRUCache(recent)  # with the time of keeping
        self._pending: dict[Digest, SelectionRecord] = {}
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._written = 0
        self._wake, self._closed = threading.Event(), threading.Event()
        self._writer: threading.Thread | None = None

    def keep(self, record: SelectionRecord) -> bool:
        """Keep a selection; False when memory knows it, which counts as new use.

        Raises:
            StoreError: The store has refused for so long that no more can wait; the selection is not kept.
        """
        now_ms = self._now_ms()
        with self._lock:
            known = self._recent.get(record.id)
            if known is not None and now_ms - known[1] < _REFRESH_MS:
                return False
            waited_before = record.id in self._pending
            self._recent[record.id] = record, now_ms
            self._pending[record.id] = record
            pending = len(self._pending)
            if self._writer is None and not self._closed.is_set():
                self._writer = threading.Thread(target=self._write_behind, name="selections", daemon=True)
                self._writer.start()
        if pending == 1:
            self._wake.set()
        if pending > _MOST_PENDING or self._closed.is_set():
            try:
                self.flush()
            except BaseException:
                if not waited_before:
                    with self._lock:
                        self._pending.pop(record.id, None)
                        self._recent.pop(record.id, None)
                raise
        return known is None

    def get(self, selection: Digest) -> SelectionRecord | None:
        """A selection that memory holds."""
        with self._lock:
            recent = self._recent.get(selection)
            return self._pending.get(selection) if recent is None else recent[0]

    def published(self, selection: Digest) -> None:
        """The selection is part of the ledger now and need not be kept here."""
        with self._lock:
            self._pending.pop(selection, None)

    def flush(self) -> None:
        """Write what waits.

        Raises:
            StoreError: Not written; it waits on.
        """
        with self._flushing:
            with self._lock:
                waiting = dict(self._pending)
            if not waiting:
                return
            now_ms = self._now_ms()
            self._store.keep_selections([record.encoded for record in waiting.values()], now_ms=now_ms)
            with self._lock:
                for written, record in waiting.items():
                    if self._pending.get(written) is record:
                        del self._pending[written]
            before, self._written = self._written, self._written + len(waiting)
            if before // _FORGET_EVERY != self._written // _FORGET_EVERY:
                self._store.forget_selections(before_ms=now_ms - self._lifetime_ms, keep=self._max_unpublished)

    def _write_behind(self) -> None:
        while not self._closed.is_set():
            self._wake.wait()
            self._wake.clear()
            self._closed.wait(_FLUSH_AFTER_S)
            try:
                self.flush()
            except StoreError:
                logger.warning("selections wait: the store does not take them", exc_info=True)
                self._closed.wait(_RETRY_AFTER_S)
                self._wake.set()

    def close(self) -> None:
        """Write what waits and end; further closing does nothing, and what still comes is written at once."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._wake.set()
        if self._writer is not None:
            self._writer.join()
        try:
            self.flush()
        except StoreError:
            logger.warning("selections are lost: the store did not take them", exc_info=True)
