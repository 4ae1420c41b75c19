"""Who made each update of a journal, where it was received and when: for filters and pictures of all of it.

It is read when a page first asks (of a million updates some seconds, once), kept in memory, 20 bytes an update, and
read on with each question.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fl_core.dag.transaction import author_of_bytes
from fl_core.types import AuthorId, TxId
from fl_core.wire import v1
from ledger_server.reading import LedgerView

Lanes: TypeAlias = Literal["author", "cluster", "server"]
Axis: TypeAlias = Literal["order", "depth", "time"]
Places: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

MOST_LANES: Final = 250
_READ: Final = 10_000
_PATIENCE_S: Final = 0.2
_KEY_BYTES: Final = 32
_ROW: Final = np.dtype([("author", "i4"), ("server", "i4"), ("depth", "i4"), ("received_at_ms", "i8")])

_AXES: Final = {"depth": "depth", "time": "received_at_ms"}


@dataclass(frozen=True, slots=True)
class Filter:
    """What updates are asked for; all that is said must hold.

    Attributes:
        author: How its author's id begins, with or without its kind.
        authors: One of these made it; None: anybody.
        server: How the key of the server begins that received it.
        since_ms: It was received then or later, milliseconds since 1970.
        until_ms: Before that.
        tips: Nobody names it as a parent yet.
        tainted: It has a quarantined step in it.
    """

    author: str = ""
    authors: frozenset[str] | None = None
    server: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    tips: bool = False
    tainted: bool = False


EVERYTHING: Final = Filter()


class Density(NamedTuple):
    """How many updates there are where.

    Attributes:
        found: How many there are together.
        low: What the first column begins with.
        high: What the last one ends with.
        lanes: Those with the most updates.
        left_out: How many lanes more there are.
    """

    found: int
    low: int
    high: int
    lanes: list[v1.LaneOut]
    left_out: int


class JournalIndex:
    """Of one ledger; safe to ask from many threads."""

    def __init__(self, view: LedgerView) -> None:
        self._view = view
        self._lock = threading.Lock()
        self._length = 0
        self._rows = np.empty(_READ, dtype=_ROW)
        self._authors: dict[bytes, int] = {}
        self._servers: dict[bytes, int] = {}
        self._names: list[AuthorId] = []
        self._tips_of = 0
        self._tips: dict[TxId, int] = {}
        self._tainted: dict[TxId, int] = {}

    def read_on(self, only: Filter) -> bool:
        """Take in what has arrived since, and what a filter needs beside it.

        Returns:
            False while another thread reads so much that nobody should wait for it.
        """
        if not self._lock.acquire(timeout=_PATIENCE_S):
            return False
        try:
            length = len(self._view.ledger)
            while self._length < length:
                self._take_in(self._view.store.who(after=self._length - 1, limit=min(_READ, length - self._length)))
            if only.tips and self._tips_of != length:
                with self._view.lock:
                    tips_of, tips = len(self._view.ledger), self._view.node.graph.tip_set()
                self._tips = self._placed(tips, self._tips)
                self._tips_of = tips_of
            if only.tainted:
                self._tainted = self._placed(self._tainted_now(), self._tainted)
            return True
        finally:
            self._lock.release()

    def _placed(self, ids: frozenset[TxId], known: Mapping[TxId, int]) -> dict[TxId, int]:
        """The arrivals of transactions; of those that are not known, as the journal has them: 15 µs each."""
        placed = dict(known)
        for gone in known.keys() - ids:
            del placed[gone]
        placed.update(self._view.store.arrivals([*ids - known.keys()]))
        return placed

    def _take_in(self, rows: Sequence[tuple[bytes, bytes, int]]) -> None:
        end = self._length + len(rows)
        if end > len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        self._rows[self._length : end] = [
            (
                self._authors.setdefault(author, len(self._authors)),
                self._servers.setdefault(receipt[:_KEY_BYTES], len(self._servers)),
                depth,
                int.from_bytes(receipt[_KEY_BYTES:], "big"),
            )
            for author, receipt, depth in rows
        ]
        self._names += [author_of_bytes(author) for author in [*self._authors][len(self._names) :]]
        self._length = end

    def find(self, first: int, end: int, only: Filter) -> Places:
        """The arrivals from ``first`` on and before ``end`` of the updates that are asked for, ascending."""
        rows, end = self._rows, min(end, self._length)
        fits = np.ones(max(0, end - first), dtype=bool)
        if only.author:
            fits &= self._fitting("author", lambda name: begins(name, only.author), first, end)
        if only.authors is not None:
            members = only.authors
            fits &= self._fitting("author", lambda name: name in members, first, end)
        if only.server:
            fits &= self._fitting("server", lambda name: name.startswith(only.server), first, end)
        if only.since_ms is not None:
            fits &= rows["received_at_ms"][first:end] >= only.since_ms
        if only.until_ms is not None:
            fits &= rows["received_at_ms"][first:end] < only.until_ms
        if only.tips:
            fits &= _at(self._tips, first, end)
        if only.tainted:
            fits &= _at(self._tainted, first, end)
        return np.flatnonzero(fits) + first

    def _fitting(self, name: str, fits: Callable[[str], bool], first: int, end: int) -> Mask:
        names = self._names if name == "author" else [server.hex() for server in [*self._servers]]
        wanted = np.array([fits(each) for each in names], dtype=bool)
        found: Mask = wanted[self._rows[name][first:end]]
        return found

    def _tainted_now(self) -> frozenset[TxId]:
        with self._view.lock:
            lineage = self._view.node.offering.lineage
            return frozenset(() if lineage is None else lineage.tainted())

    def density(
        self,
        first: int,
        end: int,
        only: Filter,
        *,
        by: Lanes,
        over: Axis,
        columns: int,
        clusters: Sequence[Sequence[str]] = (),
    ) -> Density:
        """How many of the updates that are asked for each lane has in each column.

        Args:
            first: As ``find`` has it.
            end: Likewise.
            only: Likewise.
            by: What a lane is of.
            over: What columns divide evenly, from the least to the greatest.
            columns: How many there are.
            clusters: Their members, where lanes are of clusters.
        """
        end = min(end, self._length)
        found = np.arange(first, end) if only == EVERYTHING else self.find(first, end, only)
        rows = self._rows[first:end] if only == EVERYTHING else self._rows[found]
        if not len(found):
            return Density(0, 0, 0, [], 0)
        values: Places = found if over == "order" else rows[_AXES[over]]
        low, high = int(values.min()), int(values.max())
        column = ((values - low) * (columns / (high - low + 1))).astype(np.int32)
        np.minimum(column, columns - 1, out=column)  # times beyond 2^53 ms, which a receipt may name, are rounded up
        lane, names = self._lanes(rows, by, clusters)
        each = np.bincount(lane, minlength=len(names))
        kept = np.argsort(-each, kind="stable")[: min(MOST_LANES, np.count_nonzero(each))]
        place = np.full(len(names), len(kept), dtype=np.int32)  # the others come together, behind
        place[kept] = np.arange(len(kept), dtype=np.int32)
        cells = np.bincount(place[lane] * np.int32(columns) + column, minlength=(len(kept) + 1) * columns)
        shown = cells.reshape(len(kept) + 1, columns)[:-1]
        lanes = [
            _lane_out(names[number], int(each[number]), counts) for number, counts in zip(kept, shown, strict=True)
        ]
        return Density(len(found), low, high, lanes, int(np.count_nonzero(each)) - len(kept))

    def _lanes(
        self, rows: npt.NDArray[Any], by: Lanes, clusters: Sequence[Sequence[str]]
    ) -> tuple[npt.NDArray[np.int32], list[str]]:
        """The number of each update's lane, and the lanes' names."""
        if by == "server":
            server: npt.NDArray[np.int32] = rows["server"]
            return server, [key.hex() for key in [*self._servers]]
        author: npt.NDArray[np.int32] = rows["author"]
        if by == "author":
            return author, [*self._names]
        of = {name: place for place, cluster in enumerate(clusters) for name in cluster}
        table = np.array([of.get(name, len(clusters)) for name in self._names], dtype=np.int32)
        return table[author], [*map(str, range(len(clusters))), "-1"]


def _at(placed: Mapping[TxId, int], first: int, end: int) -> Mask:
    places = np.fromiter(placed.values(), dtype=np.int64, count=len(placed))
    fits = np.zeros(max(0, end - first), dtype=bool)
    fits[places[(places >= first) & (places < end)] - first] = True
    return fits


def begins(author: str, beginning: str) -> bool:
    """Whether an author's id begins so, with its kind or without."""
    return author.startswith(beginning) or author.partition(":")[2].startswith(beginning)


def _lane_out(name: str, updates: int, counts: npt.NDArray[np.int64]) -> v1.LaneOut:
    some = np.flatnonzero(counts)
    start, stop = int(some[0]), int(some[-1]) + 1
    return v1.LaneOut(name=name, updates=updates, start=start, counts=counts[start:stop].tolist())
