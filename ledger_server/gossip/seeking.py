"""Asking the peers for transactions that a client names and that are not here: by id, each peer once for all of them.

A client that moved here from another server selects by, or approves, what may be on its way. Its request waits for
``SEEK_S`` at most, and no longer than some peer may have it. So that naming what nobody has costs others little, it is
answered after ``PAUSE_S``, keeps its place among ``MAX_SEEKS`` until then, and is remembered for ``UNKNOWN_S``.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from cachetools import TTLCache

from fl_core.sync.messages import MAX_IDS_PER_CALL, Peer, Transactions
from fl_core.types import TxId
from ledger_server.shares import Shares

SEEK_S: Final = 3.0
"""How long a client waits."""

PAUSE_S: Final = 1.0
"""How much longer it waits when no peer has it, or none may be asked: it may yet come."""

MAX_SEEKS: Final = 16
"""Requests for which peers may be asked at the same time, ``PAUSE_S`` included; each client has its share of them."""

UNKNOWN_S: Final = 5.0
"""How long peers are not asked again for what none of them had."""
_MAX_UNKNOWN: Final = 10_000


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
        self._seeks = Shares(MAX_SEEKS)
        self._unknown: TTLCache[TxId, None] = TTLCache(_MAX_UNKNOWN, ttl=UNKNOWN_S)

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
        if len(transactions) > MAX_IDS_PER_CALL or not self._peers():
            return False
        events = {transaction: asyncio.Event() for transaction in transactions}
        for transaction, event in events.items():
            self._waiting.setdefault(transaction, set()).add(event)
        try:
            lacking = tuple(each for each in events if not self._is_here(each))  # some may have come meanwhile
            async with asyncio.timeout(SEEK_S):
                return not lacking or await self._wait([events[each] for each in lacking], lacking, client)
        except TimeoutError:
            return False
        finally:
            for transaction, event in events.items():
                self._waiting[transaction].discard(event)
                if not self._waiting[transaction]:
                    del self._waiting[transaction]

    async def _wait(self, arrivals: Sequence[asyncio.Event], lacking: tuple[TxId, ...], client: str) -> bool:
        """Until all are here, or no peer holds what lacks. One that is slow to answer holds nobody up."""

        async def all_arrive() -> None:  # no gather, which logs an error when it is cancelled and nobody awaits it
            for arrival in arrivals:
                await arrival.wait()

        arrived = asyncio.ensure_future(all_arrive())
        found = asyncio.ensure_future(self._find(lacking, client))
        try:
            await asyncio.wait((found, arrived), return_when=asyncio.FIRST_COMPLETED)
            if arrived.done() or found.result():
                await arrived
                return True
            return False
        finally:
            arrived.cancel()
            found.cancel()

    async def _find(self, transactions: tuple[TxId, ...], client: str) -> bool:
        """Whether the peers hold all of these; that they do not is said late."""
        self._seeks.take(client)
        has_place = self._seeks.excess(client) <= 0
        try:
            if has_place and not any(each in self._unknown for each in transactions):
                lacking = set(transactions) - await self._ask_all(transactions)
                if not lacking:
                    return True
                self._unknown.update(dict.fromkeys(lacking))
                await asyncio.sleep(PAUSE_S)
                return False
        finally:
            self._seeks.give_back(client)
        await asyncio.sleep(PAUSE_S)
        return False

    async def _ask_all(self, transactions: tuple[TxId, ...]) -> set[TxId]:
        """What any peer holds of these."""
        found: set[TxId] = set()

        async def ask(peer: Peer) -> None:
            answer = await self._ask(peer, transactions)
            if answer is not None:
                wanted = tuple(bundle for bundle in answer.found if bundle.id in transactions)
                self._came(peer, Transactions(wanted))
                found.update(bundle.id for bundle in wanted)

        await asyncio.gather(*map(ask, self._peers()))
        return found
