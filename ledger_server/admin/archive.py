"""Archive old evidence: to a bundle first, proven there and on the disk, and only then out of the database.

Headers stay, as every later update refers to them; the evidence of selections is the bulk of what pruning leaves. The
bundle holds the beginning of the ledger up to what is kept: all headers and signatures, and the evidence that is still
here, so that ``verify`` takes it by itself and beside the ledger.

What goes out of the database is what the bundle holds, read from the file: who was interrupted runs it again with the
same file. Safe beside running servers: what they take in meanwhile keeps its evidence.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import Final

from fl_core.dag.transaction import Transaction
from fl_core.errors import DagAcflError
from fl_core.types import Digest
from fl_core.verify import verify
from ledger_server.admin.bundle import Bundle, write_bundle
from ledger_server.admin.store_source import StoreSource
from ledger_server.store.blobs.directory import sync
from ledger_server.store.engine import our_errors
from ledger_server.store.evidence import Named
from ledger_server.store.journal import REPLAY_PAGE, Store

_BATCH: Final = 100
"""Pieces of evidence that go together: publications wait meanwhile."""

Progress = Callable[[str, int, int], None]
"""What is being done, how much of it, and the whole."""


class ArchiveError(DagAcflError):
    """Nothing was archived; the message says why."""

    code = "archive-refused"


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """What was archived, or would be.

    Attributes:
        transactions: In the archive, genesis included.
        evidence: Selections whose evidence went out of the database.
        nbytes: The size of that.
    """

    transactions: int
    evidence: int
    nbytes: int


class _Beginning(StoreSource):
    """The first transactions of a server's database, as an archive has them."""

    is_archive = True

    def __init__(self, store: Store, count: int) -> None:
        super().__init__(store)
        self._count = count
        first = store.genesis()
        assert first is not None, "there is one"
        self._genesis_model = first[0].header.model_digest

    def transactions(self) -> Iterator[tuple[str, Transaction]]:
        return islice(super().transactions(), self._count)

    def model_size(self, digest: Digest) -> int | None:
        return super().model_size(digest) if digest == self._genesis_model else None

    def is_pruned(self, digest: Digest) -> bool:
        return digest != self._genesis_model


def measure(store: Store, *, before_ms: int) -> ArchiveReport:
    """What could be archived of what this server stored before a time, milliseconds since 1970 UTC."""
    count = _count_before(store, before_ms)
    sizes = store.evidence_here(list(_carried(store, by=lambda each: each.arrival < count)))
    return ArchiveReport(count, len(sizes), sum(sizes.values()))


def archive(
    store: Store,
    path: Path,
    *,
    before_ms: int,
    progress: Progress = lambda _what, _done, _total: None,
    rest: Callable[[float], object] = time.sleep,
) -> ArchiveReport:
    """Move the evidence of what this server stored before a time to an archive; or finish what has begun.

    Args:
        store: The journal.
        path: The archive. Where it exists already, what it holds goes out of the database, whatever the time.
        before_ms: Milliseconds since 1970 UTC, by this server's clock.
        progress: Told what is done.
        rest: Waits some seconds between two batches.

    Raises:
        ArchiveError: There is nothing to archive, the file is no archive of this ledger, or a fault was found in it.
        BundleError: The file is damaged.
        OSError: It cannot be written.
        StoreError: The journal cannot be read or written; the next run goes on from there.
    """
    is_new = not path.exists()
    if is_new:
        found = measure(store, before_ms=before_ms)
        if found.evidence == 0:
            raise ArchiveError("nothing here is so old that it could be archived")
        source = _Beginning(store, found.transactions)
        write_bundle(source, path, progress=lambda done, total: progress("writing", done, total))
    with our_errors(f"{path} is not on the disk"):
        sync(path.parent)
    with Bundle(path) as bundle:
        held = store.genesis()
        if not bundle.is_archive or held is None or bundle.ledger != held[0].id:
            raise ArchiveError(f"{path} is there already, and no archive of this ledger; choose another name")
        _prove(bundle, progress, is_new=is_new)
        return _empty(store, bundle, progress=progress, rest=rest)


def _count_before(store: Store, before_ms: int) -> int:
    return sum(1 for _ in takewhile(lambda stored: stored.received_at_ms < before_ms, store.replay()))


def _carried(store: Store, *, by: Callable[[Named], bool]) -> dict[Digest, int]:
    """The evidence that only such transactions carry, and the arrival of the last that does, in order of these."""
    found: dict[Digest, int] = {}
    by_others: set[Digest] = set()
    after = 0  # genesis's attachment is its document
    while page := store.named(after=after, limit=REPLAY_PAGE):
        for each in page:
            if each.attachment is not None and by(each):
                found.pop(each.attachment, None)
                found[each.attachment] = each.arrival
            elif each.attachment is not None:
                by_others.add(each.attachment)
        after = page[-1].arrival
    return {digest: arrival for digest, arrival in found.items() if digest not in by_others}


def _prove(bundle: Bundle, progress: Progress, *, is_new: bool) -> None:
    """See that the archive is sound before anything goes; a new one that is not is removed."""
    findings = verify(bundle, progress=lambda at: progress("verifying", at.checked, at.total))
    fault = next((each for each in findings if not each.kind.is_warning), None)
    if fault is None:
        return
    if is_new:
        bundle.path.unlink()
    raise ArchiveError(
        f"nothing is archived: {fault.kind} in {fault.transaction or 'the ledger'}, {fault.message}; "
        "dag-acfl ledger verify says all that is wrong"
    )


def _empty(store: Store, bundle: Bundle, *, progress: Progress, rest: Callable[[float], object]) -> ArchiveReport:
    """Let go of what the archive holds and no transaction carries but those that it holds."""
    known = store.length()
    inside = {claimed for claimed, _ in bundle.transactions()}
    carried = _carried(store, by=lambda each: each.transaction in inside)
    going = [digest for digest in carried if not bundle.is_archived(digest)]  # the others lie in an earlier one
    evidence = nbytes = 0
    for start in range(0, len(going), _BATCH):
        batch = going[start : start + _BATCH]
        began_s = time.monotonic()
        gone = store.archive(batch, known=known, up_to=1 + carried[batch[-1]])
        evidence, nbytes = evidence + len(gone), nbytes + sum(gone.values())
        progress("archiving", min(start + _BATCH, len(going)), len(going))
        rest(time.monotonic() - began_s)  # publications wait for a batch: half of the time is theirs
    return ArchiveReport(bundle.count, evidence, nbytes)
