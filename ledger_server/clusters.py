"""The clusters of a ledger as its latest approvals have them, for people who look: found once for all who ask.

Louvain's method is Python and holds the interpreter: of 1,000 authors with sixty approvals each 1.4 s, of 10,000 38 s
(once each, on a busy core). So one thread finds at a time, others are answered as of a moment ago, and where it takes
long it is done again only after a while.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from fl_core.clusters import find_clusters, modularity
from fl_core.wire import v1
from ledger_server.reading import LedgerView

LATELY: Final = 20_000
"""Updates whose approvals are counted, the newest: in an older ledger, clusters are those of lately."""
_LONG_S: Final = 0.1
_REST: Final = 20
"""What takes long is done again after so many times as long: a twentieth of one core."""


class Clusters:
    """The clusters of one ledger; safe to ask from many threads.

    Args:
        view: The ledger.
        cpu_s: This thread's time, seconds.
        now_s: Seconds; only differences count.
    """

    def __init__(
        self,
        view: LedgerView,
        *,
        cpu_s: Callable[[], float] = time.thread_time,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._view, self._cpu_s, self._now_s = view, cpu_s, now_s
        self._finding = threading.Lock()
        self._found: v1.ClustersOut | None = None
        self._rests_until_s = 0.0

    def lately(self) -> v1.ClustersOut | None:
        """The clusters, of the ledger as it is or, where finding them takes long, as it was when they were found.

        None while another thread finds the first.
        """
        found = self._found
        if found is not None and (found.transactions == len(self._view.ledger) or self._now_s() < self._rests_until_s):
            return found
        if not self._finding.acquire(blocking=False):
            return self._found
        try:
            if self._found is found:
                began = self._cpu_s()
                self._found = self._find()
                if (took := self._cpu_s() - began) > _LONG_S:
                    self._rests_until_s = self._now_s() + _REST * took
            return self._found
        finally:
            self._finding.release()

    def _find(self) -> v1.ClustersOut:
        count, approvals = self._view.approvals(lately=LATELY)
        partition = find_clusters(approvals)
        number_of = {author: number for number, members in enumerate(partition) for author in members}
        inside, given = Counter[int](), Counter[int]()
        for (giver, receiver), times in approvals.counts.items():
            number = number_of[giver]
            given[number] += times
            inside[number] += times * (number_of[receiver] == number)
        clusters = [
            v1.ClusterOut(
                authors=list(members),
                approvals_inside=inside[number],
                approvals_outside=given[number] - inside[number],
            )
            for number, members in enumerate(partition)
        ]
        return v1.ClustersOut(
            ledger=self._view.id,
            transactions=count,
            modularity=modularity(approvals, partition) if approvals.counts else None,
            clusters=sorted(clusters, key=lambda cluster: (-len(cluster.authors), cluster.authors)),
        )
