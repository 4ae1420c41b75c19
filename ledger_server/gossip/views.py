"""The servers as they see one another, for people: each neighbour is asked, now and again, for whoever looks."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from fl_core.types import PublicKey
from fl_core.wire import gossip_v1 as wire
from ledger_server.gossip.errors import LinkError
from ledger_server.peers import Peer

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
        self._found: list[PeerView] = []
        self._asked_s = -_EVERY_S

    async def lately(self) -> list[PeerView]:
        """Each neighbour's, all asked at once; those who come meanwhile wait for the same answers."""
        async with self._asking:
            if self._now_s() >= self._asked_s + _EVERY_S:
                self._found = list(await asyncio.gather(*map(self._view, self._peers())))
                self._asked_s = self._now_s()
            return self._found

    async def _view(self, peer: Peer) -> PeerView:
        try:
            return PeerView(peer, await self._ask(peer.public_key, _ASK_S))
        except LinkError as error:
            return PeerView(peer, None, str(error))
