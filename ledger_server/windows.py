"""Parts of a journal as columns, for pages that draw it: what a part holds never changes, so it is made once.

A part of at most ``MOST`` updates is whole; of a longer one every n-th update stands for the others, without parents.
What is asked for by author, time and the like is found over the whole journal (``journal_index``).
"""

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from typing import Final

from cachetools import LRUCache

from fl_core.dag.figures import decode_figures
from fl_core.errors import CursorUnknownError
from fl_core.types import TxId
from fl_core.wire import v1
from ledger_server.journal_index import EVERYTHING, Axis, Filter, JournalIndex, Lanes
from ledger_server.reading import LedgerView
from ledger_server.store.stored import StoredTransaction

MOST: Final = 500
"""Updates of one part: some 20 ms of a core."""
_KEPT_BYTES: Final = 16 << 20
_MOST_NAMES: Final = 24
"""Metrics of one part, those that most of its updates state: authors may name as many as they like."""
_LOOKED_UP: Final = 10_000
"""Parents beyond a part, and not remembered, whose places one answer looks up."""
_ARRIVALS: Final = 50_000
"""Updates whose places in the journal are remembered: parents are mostly of lately."""


class Windows:
    """Parts of one ledger's journal; safe to ask from many threads."""

    def __init__(self, view: LedgerView) -> None:
        self._view = view
        self._lock = threading.Lock()
        self._index = JournalIndex(view)
        self._made: LRUCache[Hashable, str] = LRUCache(_KEPT_BYTES, getsizeof=len)
        self._arrivals: LRUCache[TxId, int] = LRUCache(_ARRIVALS)

    def part(self, first: int, end: int, *, most: int = MOST) -> str:
        """The updates that arrived from ``first`` on and before ``end``, as the JSON of ``v1.UpdatesViewOut``.

        Args:
            first: 0: from genesis.
            end: At most the ledger's length is meant.
            most: So many of them are shown at most; up to ``MOST``.

        Raises:
            CursorUnknownError: The part begins beyond the newest arrival.
        """
        length, end = self._part(first, end)
        every = -(-(end - first) // most)
        wanted = range(first, end, every)
        made = self._remembered((first, end, every), lambda: self._columns(first, end, wanted, every, end - first))
        return f'{{"transactions":{length},{made[1:]}'

    def only(self, asked: Filter, first: int, end: int, *, most: int = MOST) -> str | None:
        """As ``part``, of the updates that are asked for.

        Returns:
            None: the journal is being read for the first question of its kind; ask again.
        """
        length, end = self._part(first, end)
        if not self._index.read_on(asked):
            return None
        found = self._index.find(first, end, asked)
        every = max(1, -(-len(found) // most))
        made = self._columns(first, end, found[::every].tolist(), every, len(found))
        return f'{{"transactions":{length},{made[1:]}'

    def density(
        self,
        first: int,
        end: int,
        *,
        by: Lanes,
        over: Axis,
        columns: int,
        clusters: v1.ClustersOut | None = None,
        asked: Filter = EVERYTHING,
    ) -> str | None:
        """How many updates of a part are where, as the JSON of ``v1.DensityViewOut``.

        Args:
            first: As ``part`` has it.
            end: Likewise.
            by: What a lane is of.
            over: What columns divide evenly, from the least to the greatest.
            columns: How many there are at most.
            clusters: Where lanes are of clusters: which there are.
            asked: Which updates.

        Returns, Raises:
            As ``only``.
        """
        length, end = self._part(first, end)
        if not self._index.read_on(asked):
            return None

        def count() -> str:
            members = [] if clusters is None else [cluster.authors for cluster in clusters.clusters]
            divided = min(columns, end - first)
            counted = self._index.density(first, end, asked, by=by, over=over, columns=divided, clusters=members)
            return v1.DensityViewOut(
                ledger=self._view.id,
                transactions=length,
                first=first,
                end=end,
                found=counted.found,
                low=counted.low,
                high=counted.high,
                columns=divided,
                lanes=counted.lanes,
                left_out=counted.left_out,
            ).model_dump_json()

        if asked.tainted:  # as members decide, whatever arrives
            return count()
        found_of = None if clusters is None else clusters.transactions
        return self._remembered((length, first, end, by, over, columns, found_of, asked), count)

    def _part(self, first: int, end: int) -> tuple[int, int]:
        """The ledger's length, and where a part ends; raises as ``part``."""
        length = len(self._view.ledger)
        if first >= length:
            raise CursorUnknownError("the journal has no update there yet; ask for an earlier part")
        return length, max(first + 1, min(end, length))

    def _remembered(self, key: Hashable, make: Callable[[], str]) -> str:
        with self._lock:
            made = self._made.get(key)
        if made is None:
            made = make()
            with self._lock:
                if len(made) <= self._made.maxsize:
                    self._made[key] = made
        return made

    def _columns(self, first: int, end: int, wanted: Sequence[int], every: int, found: int) -> str:
        store, is_whole = self._view.store, len(wanted) == end - first
        rows = store.page(after=first - 1, limit=end - first) if is_whole else store.at(wanted)
        headers = [row.transaction.header for row in rows]
        authors, servers = _Places(), _Places()
        stated = Counter(name for header in headers for name in header.metrics)
        names = sorted(name for name, _ in stated.most_common(_MOST_NAMES))
        return v1.UpdatesViewOut(
            ledger=self._view.id,
            transactions=0,
            first=first,
            end=end,
            found=found,
            every=every,
            arrivals=[row.arrival for row in rows],
            ids=[row.transaction.id for row in rows],
            author=[authors.of(header.author) for header in headers],
            authors=authors.names,
            server=[servers.of(row.transaction.receipt.issuer) for row in rows],
            servers=servers.names,
            parents=self._parents(rows) if every == 1 else [[] for _ in rows],
            depth=[row.depth for row in rows],
            received_at_ms=[row.transaction.receipt.received_at_ms for row in rows],
            num_examples=[header.num_examples for header in headers],
            step=[None if (step := decode_figures(row.figures).step) is None else step.norm for row in rows],
            metrics={name: [header.metrics.get(name) for header in headers] for name in names},
        ).model_dump_json(exclude={"transactions"})

    def _parents(self, rows: Sequence[StoredTransaction]) -> list[list[int]]:
        """The arrivals of each update's parents, ascending; -1 of those that would be too many to look up."""
        arrivals = {row.transaction.id: row.arrival for row in rows}
        wanted = {parent for row in rows for parent in row.transaction.header.parents} - arrivals.keys()
        with self._lock:
            remembered = {parent: self._arrivals[parent] for parent in wanted & self._arrivals.keys()}
        remembered.update(self._view.store.arrivals([*islice(wanted - remembered.keys(), _LOOKED_UP)]))
        arrivals.update(remembered)
        with self._lock:
            self._arrivals.update(arrivals)
        return [sorted(arrivals.get(parent, -1) for parent in row.transaction.header.parents) for row in rows]


class _Places:
    """Numbers names from 0, in the order in which they come."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    @property
    def names(self) -> list[str]:
        return [*self._numbers]
