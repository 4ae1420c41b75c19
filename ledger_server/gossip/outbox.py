"""Announcements on their way to peers: one message at a time to each, and what comes meanwhile goes with the next."""

import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from opentelemetry.context import Context

from fl_core.models import Buffer
from fl_core.sync.effects import Announce
from fl_core.sync.messages import MAX_ANNOUNCED_MODEL_BYTES, MAX_IDS_PER_CALL, Announcement, TransactionBundle
from fl_core.types import Digest, PublicKey, TxId
from ledger_server import tracing
from ledger_server.gossip.errors import LinkError

if TYPE_CHECKING:
    from ledger_server.gossip.link import PeerLink

logger: logging.Logger = logging.getLogger(__name__)

ANNOUNCED_BYTES: Final = 640 << 10
"""At this many bytes an announcement is full; with the largest last one it stays below ``MAX_PEER_BODY``."""
MAX_ANNOUNCEMENTS: Final = 1000
"""Announcements that wait for one peer; a page of the journal brings what is left out."""

_Waiting: TypeAlias = deque[tuple[Announce, Context | None]]
"""Announcements, each with the trace that it belongs to."""


class Outbox:
    """What waits for each peer.

    Args:
        links: By peer.
        spawn: Runs a coroutine as a task.
        model_in_memory: A model that is at hand; None otherwise.
    """

    def __init__(
        self,
        links: Mapping[PublicKey, "PeerLink"],
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        model_in_memory: Callable[[Digest], Buffer | None],
    ) -> None:
        self._links, self._spawn, self._model_in_memory = links, spawn, model_in_memory
        self._waiting: dict[PublicKey, _Waiting] = {}

    def put(self, effect: Announce) -> None:
        """Announce as soon as the peer has taken what went before."""
        waiting = self._waiting.get(effect.peer)
        if waiting is None:
            self._waiting[effect.peer] = deque([(effect, tracing.current())])
            self._spawn(self._empty(effect.peer))
        elif effect.announcement == Announcement():
            if not waiting or waiting[0][0].announcement != effect.announcement:
                waiting.appendleft((effect, None))  # it goes alone
        elif len(waiting) < MAX_ANNOUNCEMENTS:
            waiting.append((effect, tracing.current()))

    async def _empty(self, peer: PublicKey) -> None:
        link = self._links[peer]
        try:
            while waiting := self._waiting[peer]:
                with tracing.resumed(waiting[0][1]), tracing.span("gossip announce", peer=link.peer.name):
                    await link.announce(self._next(waiting))
        except LinkError as error:
            logger.debug("announcement lost", extra={"peer": link.peer.name, "reason": str(error)})
        finally:
            del self._waiting[peer]

    def _next(self, waiting: _Waiting) -> Announcement:
        """As many of those that wait as go together, with small models that are at hand."""
        if waiting[0][0].announcement == Announcement():
            return waiting.popleft()[0].announcement
        bundles: list[TransactionBundle] = []
        ids: list[TxId] = []
        models: list[Buffer] = []
        size = 0
        while waiting and size <= ANNOUNCED_BYTES and len(bundles) + len(ids) < MAX_IDS_PER_CALL:
            effect, _ = waiting.popleft()
            ids += effect.announcement.ids
            for bundle in effect.announcement.bundles:
                bundles.append(bundle)
                size += bundle.nbytes
                header = bundle.transaction.header
                if effect.is_new and header.model_size <= MAX_ANNOUNCED_MODEL_BYTES:
                    model = self._model_in_memory(header.model_digest)
                    if model is not None:
                        models.append(model)
                        size += len(model)
        return Announcement(tuple(bundles), tuple(ids), tuple(models))
