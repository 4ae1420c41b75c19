"""Asking the peers for transactions that a client names and that are not here: by id, bounded per client.

A client that moved here from another server selects by, or approves, what may be on its way. Its request waits for
``SEEK_S`` at most, and each peer is asked once for all that it names.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from fl_core.sync.messages import MAX_IDS_PER_CALL, Peer, Transactions
from fl_core.types import TxId

SEEK_S: Final = 3.0
"""How long a client waits."""

SEEKS_PER_CLIENT: Final = 4
"""Requests of one client that may wait at the same time; a further one is answered at once."""


class Seeker:
    """What clients wait for.

    Args:
        peers: Whom to ask, as of now.
        ask: Asks a peer for transactions; None when it has no answer.
        came: Told of what a peer holds.
        is_here: Whether a transaction is in the ledger.
    """

    def __init__(
        self,
        *,
        peers: Callable[[], Sequence[Peer]],
        ask: Callable[[Peer, tuple[TxId, ...]], Awaitable[Transactions | None]],
        came: Callable[[Peer, Transactions], None],
        is_here: Callable[[TxId], bool],
    ) -> None:
        self._peers, self._ask, self._came, self._is_here = peers, ask, came, is_here
        self._waiting: dict[TxId, set[asyncio.Event]] = {}
        self._seeks: Counter[str] = Counter()

    def arrived(self, transaction: TxId) -> None:
        """A transaction is in the ledger now."""
        for event in self._waiting.get(transaction, ()):
            event.set()

    async def seek(self, transactions: Collection[TxId], *, client: str) -> bool:
        """Ask the peers; whether all are here in time.

        Args:
            transactions: What lacks.
            client: Who waits for it.
        """
        if self._seeks[client] >= SEEKS_PER_CLIENT or len(transactions) > MAX_IDS_PER_CALL:
            return False
        self._seeks[client] += 1
        events = {transaction: asyncio.Event() for transaction in transactions}
        for transaction, event in events.items():
            self._waiting.setdefault(transaction, set()).add(event)
        try:
            lacking = tuple(each for each in events if not self._is_here(each))  # some may have come meanwhile
            async with asyncio.timeout(SEEK_S):
                return await self._wait([events[each] for each in lacking], lacking)
        except TimeoutError:
            return False
        finally:
            self._seeks -= Counter({client: 1})
            for transaction, event in events.items():
                self._waiting[transaction].discard(event)
                if not self._waiting[transaction]:
                    del self._waiting[transaction]

    async def _wait(self, arrivals: Sequence[asyncio.Event], lacking: tuple[TxId, ...]) -> bool:
        """Until all are here, or no peer holds what lacks. One that is slow to answer holds nobody up."""

        async def all_arrive() -> None:  # no gather, which logs an error when it is cancelled and nobody awaits it
            for arrival in arrivals:
                await arrival.wait()

        arrived = asyncio.ensure_future(all_arrive())
        asked = asyncio.ensure_future(self._ask_all(lacking))
        try:
            await asyncio.wait((asked, arrived), return_when=asyncio.FIRST_COMPLETED)
            if arrived.done() or set(lacking) <= asked.result():
                await arrived
                return True
            return False
        finally:
            arrived.cancel()
            asked.cancel()

    async def _ask_all(self, transactions: tuple[TxId, ...]) -> set[TxId]:
        """What any peer holds of these."""
        found: set[TxId] = set()
        if not transactions:
            return found

        async def ask(peer: Peer) -> None:
            answer = await self._ask(peer, transactions)
            if answer is not None:
                wanted = tuple(bundle for bundle in answer.found if bundle.id in transactions)
                self._came(peer, Transactions(wanted))
                found.update(bundle.id for bundle in wanted)

        await asyncio.gather(*map(ask, self._peers()))
        return found
