"""Pruning: drop the bytes of models that nobody can be offered any more.

Which models may go is the ledger's rule (``fl_core.retention``), how they go safely the store's (record, drop, finish
after a crash). Here is what lies between: a model goes when every transaction that carries it lets it go, a few
hundred at a time so that publications hardly wait, and on a running server by itself where the settings say so.

    report = prune(store, snapshot_of(store, keep_ms=7 * DAY_MS), now_ms=now_ms)

Safe beside a running server, in this process or another: the store itself looks at what has arrived since the snapshot
on which the decision is based, and what may be pruned once may be pruned for ever.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from fl_core.types import Digest
from ledger_server.packing import pack
from ledger_server.reading import LedgerSnapshot, LedgerView
from ledger_server.store.errors import StoreError
from ledger_server.store.journal import Store
from ledger_server.store.removal import HeldModel

logger: logging.Logger = logging.getLogger(__name__)

HOUR_MS: Final = 3600 * 1000
DAY_MS: Final = 24 * HOUR_MS
_PAGE: Final = 1000
_BATCH_MODELS: Final = 64
_BATCH_BYTES: Final = 2 << 20
"""So much keeps a publication waiting for some ten milliseconds. After each batch pruning rests for as long as that
took: the writer's lock knows no order, and who takes it again at once would keep it from all others."""


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What was pruned, or would be.

    Attributes:
        transactions: In the ledger.
        kept: Of these, the transactions whose models are here and stay by the rule.
        models: Models that went.
        nbytes: Their size.
        held: Models whose bytes are still here.
        is_whole: Whether all models have been looked at; if not, it was stopped.
        after: Where to go on then; None: from the first.
    """

    transactions: int
    kept: int
    models: int
    nbytes: int
    held: int
    is_whole: bool = True
    after: Digest | None = None


Progress = Callable[[int, int], None]
"""How many models have been looked at, and how many transactions there are: at least as many."""


def snapshot_of(store: Store, *, keep_ms: int) -> LedgerSnapshot:
    """A stored ledger as it is now, read without its server.

    Raises:
        GenesisError: There is no ledger, or the journal lacks something.
        ParameterError: ``keep_ms`` is below 0.
    """
    return LedgerView(store, cache_bytes=0).snapshot(keep_ms=keep_ms)


def prune(
    store: Store,
    snapshot: LedgerSnapshot,
    *,
    now_ms: Callable[[], int],
    dry_run: bool = False,
    after: Digest | None = None,
    progress: Progress = lambda _done, _total: None,
    stop: Callable[[], bool] = lambda: False,
    rest: Callable[[float], object] = time.sleep,
) -> PruneReport:
    """Drop the models that the snapshot lets go; what an earlier run left half done is finished first.

    Args:
        store: The journal.
        snapshot: What may go.
        now_ms: Milliseconds since 1970 UTC.
        dry_run: Only look.
        after: Where to go on, of the report of one that was stopped, which had the same ``snapshot`` but for what came
            since; this report then counts what comes behind it.
        progress: Called after every page of models.
        stop: Asked between two batches; what was pruned until then stays pruned, and the report says how much.
        rest: Waits some seconds between two batches.

    Raises:
        StoreError: The journal cannot be read or written; the next run goes on from there.
    """
    if not dry_run and after is None:
        store.removal.sweep()
    models = nbytes = held = kept = 0
    while not (stopped := stop()) and (page := store.removal.held(after=after, limit=_PAGE)):
        needed = _needed(store, snapshot, [model.digest for model in page])
        for batch in _batches([model for model in page if model.digest not in needed]):
            if stop():  # what lies behind has not been looked at
                page = [model for model in page if model.digest < batch[0].digest]
                break
            if dry_run:
                models, nbytes = models + len(batch), nbytes + sum(model.size for model in batch)
                continue
            began_s = time.monotonic()
            digests = _with_packed(store, snapshot, [model.digest for model in batch])
            done = store.removal.prune(digests, known=snapshot.transactions, now_ms=now_ms())
            models, nbytes = models + done.models, nbytes + done.nbytes
            rest(time.monotonic() - began_s)
        held += len(page)
        kept += sum(needed[model.digest] for model in page)
        after = page[-1].digest if page else after
        progress(held, snapshot.transactions)
    if not dry_run and not stopped:
        store.removal.collect()
    progress(snapshot.transactions, snapshot.transactions)
    return PruneReport(
        snapshot.transactions, kept, models, nbytes, held - models, not stopped, after if stopped else None
    )


def prune_served(
    service: LedgerView,
    *,
    keep_ms: int | None,
    now_ms: Callable[[], int],
    after: Digest | None = None,
    stop: Callable[[], bool],
    rest: Callable[[float], object] = time.sleep,
) -> PruneReport:
    """Prune the ledger of a running server, in this process.

    Args:
        service: The ledger.
        keep_ms: As of ``LedgerView.snapshot``.
        now_ms: As of ``prune``, as are the others.
        after: Where to go on.
        stop: Asked between two batches.
        rest: Waits some seconds between two batches.

    Raises:
        StoreError: As ``prune``.
    """
    snapshot = service.snapshot(keep_ms=keep_ms)
    report = prune(service.store, snapshot, now_ms=now_ms, after=after, stop=stop, rest=rest)
    if report.models:
        logger.info("models pruned", extra={"models": report.models, "freed_bytes": report.nbytes, "held": report.held})
        service.forget_pruned()
    return report


def _needed(store: Store, snapshot: LedgerSnapshot, digests: Sequence[Digest]) -> Counter[Digest]:
    """Of these models, those that stay, and how many transactions keep each."""
    found: Counter[Digest] = Counter()
    for stored in store.carrying(digests):
        if stored.arrival >= snapshot.transactions or snapshot.retention.keeps(stored.node):
            found[stored.transaction.header.model_digest] += 1
    return found


def _with_packed(store: Store, snapshot: LedgerSnapshot, digests: list[Digest]) -> list[Digest]:
    """These, which go, and what is packed by them and goes too; what is packed by them and stays is unpacked."""
    going = dict.fromkeys(digests)
    level = digests
    while packed := [each for each in store.packed_by(level) if each not in going]:
        needed = _needed(store, snapshot, packed)
        for each in needed:
            store.unpack(each)
        level = [each for each in packed if each not in needed]
        going.update(dict.fromkeys(level))
    return list(going)


def _batches(models: list[HeldModel]) -> list[list[HeldModel]]:
    """Parts that are small enough for one database transaction; a model larger than that is a part of its own."""
    batches: list[list[HeldModel]] = []
    nbytes = 0
    for model in models:
        if not batches or len(batches[-1]) == _BATCH_MODELS or nbytes + model.size > _BATCH_BYTES:
            batches.append([])
            nbytes = 0
        batches[-1].append(model)
        nbytes += model.size
    return batches


class AutomaticPruning:
    """Prunes a running server's ledger, now and again, in a thread of its own; and erased models when it is woken.

    Args:
        service: The ledger.
        keep_ms: For how long superseded updates keep their models; None: for ever, and only what is erased goes.
        pack_ms: For how long they keep them whole (``ledger_server.packing``); None: for as long.
        every_s: Seconds between the end of one run and the next.
        now_ms: Milliseconds since 1970 UTC.
        on_pruned: Told of each run that pruned something.
    """

    def __init__(
        self,
        service: LedgerView,
        *,
        keep_ms: int | None,
        pack_ms: int | None = None,
        every_s: float,
        now_ms: Callable[[], int],
        on_pruned: Callable[[PruneReport], None] = lambda _: None,
    ) -> None:
        self._service, self._now_ms, self._on_pruned = service, now_ms, on_pruned
        self._keep_ms, self._pack_ms, self._every_s = keep_ms, pack_ms, every_s
        self._stopped, self._woken = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin with a run."""
        self._stopped.clear()
        self._thread = threading.Thread(target=self._run, name="pruning", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Run again soon: the members have decided something."""
        self._woken.set()

    def stop(self) -> None:
        """End after the batch that is at work; what has not begun needs no end."""
        self._stopped.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._woken.clear()
            try:
                self._once()
            except StoreError as error:
                logger.warning("models are not pruned or packed", extra={"reason": str(error)})
            except Exception:  # else erasures, too, would wait for a restart
                logger.exception("models are not pruned or packed")
            self._woken.wait(None if self._keep_ms is None and self._pack_ms is None else self._every_s)

    def _once(self) -> None:
        """What goes, goes first: it need not be packed."""
        self._prune()
        if self._pack_ms is not None:
            began = time.monotonic()
            packed = pack(
                self._service.store,
                self._service.genesis.layout,
                before_ms=self._now_ms() - self._pack_ms,
                stop=self._stopped.is_set,
                rest=self._stopped.wait,
            )
            if packed:
                logger.info("models packed", extra={"models": packed, "seconds": round(time.monotonic() - began, 1)})

    def _prune(self) -> None:
        if self._keep_ms is None and not self._service.acts.quarantine.erased:
            self._service.store.removal.sweep()
            return
        report = prune_served(
            self._service,
            keep_ms=self._keep_ms,
            now_ms=self._now_ms,
            stop=self._stopped.is_set,
            rest=self._stopped.wait,
        )
        if report.models:
            self._on_pruned(report)
