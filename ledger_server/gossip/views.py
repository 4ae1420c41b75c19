"""The servers as they see one another, for people: each neighbour is asked, now and again, for whoever looks.

A peer says what it likes, up to a MiB; so what is made of it is kept, and not made again for each who looks.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from anyio.to_thread import run_sync

from fl_core.types import PublicKey
from fl_core.wire import gossip_v1 as wire
from ledger_server.gossip.errors import LinkError
from ledger_server.peers import Peer

T = TypeVar("T")

_ASK_S: Final = 3.0
"""How long a peer may take; who looks waits for the slowest."""
_EVERY_S: Final = 5.0
"""Peers are asked no more often, whoever looks how often."""


@dataclass(frozen=True, slots=True)
class PeerView:
    """A peer, and what it said of itself and its peers; or why it did not."""

    peer: Peer
    said: wire.PeersSeenOut | None
    problem: str = ""


class PeerViews:
    """What peers see. For one event loop.

    Args:
        peers: Whom to ask, as of now.
        ask: Asks one of them within so many seconds; raises ``LinkError``.
        now_s: Seconds; only differences count.
    """

    def __init__(
        self,
        *,
        peers: Callable[[], Sequence[Peer]],
        ask: Callable[[PublicKey, float], Awaitable[wire.PeersSeenOut]],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._peers, self._ask, self._now_s = peers, ask, now_s
        self._asking = asyncio.Lock()
        self._made: tuple[float, Any] | None = None

    async def lately(self, make: Callable[[Sequence[PeerView]], T]) -> T:
        """What is made of each neighbour's, in a thread: all are asked at once, others given the same meanwhile.

        Args:
            make: Always the same.
        """
        async with self._asking:
            if self._made is None or self._now_s() >= self._made[0] + _EVERY_S:
                said = await asyncio.gather(*map(self._view, self._peers()))
                made = await run_sync(partial(make, said))
                self._made = self._now_s(), made
            shown: T = self._made[1]
            return shown

    async def _view(self, peer: Peer) -> PeerView:
        try:
            return PeerView(peer, await self._ask(peer.public_key, _ASK_S))
        except LinkError as error:
            return PeerView(peer, None, str(error))
