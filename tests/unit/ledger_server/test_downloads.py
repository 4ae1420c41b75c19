"""A model that this server cannot keep is its own failure, not the peer's."""

import asyncio
import errno
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from fl_core.sync.effects import Failure, SendRequest
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import GetModel
from fl_core.types import Digest, PublicKey
from ledger_server.gossip.contacts import Contacts
from ledger_server.gossip.downloads import Downloads
from ledger_server.gossip.errors import LinkError
from ledger_server.metrics import Metrics
from ledger_server.peers import Peer

PEER = PublicKey(b"p" * 32)
SENT = SendRequest(1, PEER, GetModel(Digest("ab" * 32), start=0, size=7), deadline_s=10.0)


class Link:
    async def model(self, _request: GetModel, *, base: Digest | None) -> AsyncGenerator[bytes]:
        return self._pieces()

    async def _pieces(self) -> AsyncGenerator[bytes]:
        yield b"a model"

    async def models(self, digests: list[Digest], *, within_s: float) -> AsyncGenerator[tuple[Digest, bytes]]:
        assert within_s > 0
        for digest in digests:
            yield digest, b"a model"


class FullDisk:
    def begin(self, _digest: Digest, *, start: int) -> bool:
        raise OSError(errno.ENOSPC, f"No space left on device at {start}")


class Node:
    def answered(self, *_: object) -> list[Any]:
        return []


@pytest.mark.parametrize("together", [False, True])
def test_a_full_disk_is_no_fault_of_the_peer(*, together: bool) -> None:
    failures: list[Failure] = []

    def failed(_sent: SendRequest, error: LinkError) -> None:
        failures.append(error.kind)

    parts: Any = {"node": Node(), "links": {PEER: Link()}, "incoming": FullDisk()}
    downloads = Downloads(**parts, limits=GossipLimits(), then=lambda _: None, failed=failed)
    asyncio.run(downloads.fetch_together([SENT]) if together else downloads.fetch(SENT))
    assert failures == [Failure.LOCAL]


@pytest.mark.parametrize(("kind", "is_reachable"), [(Failure.LOCAL, True), (Failure.UNREACHABLE, False)])
def test_only_the_peers_own_failures_show_it_unreachable(kind: Failure, *, is_reachable: bool) -> None:
    contacts = Contacts(metrics=Metrics(), now_ms=lambda: 1_000)
    contacts.set_peers([Peer("ann", "http://127.0.0.1:1", PEER)], [])
    contacts.answered(PEER)
    contacts.failed(PEER, LinkError(kind, "why"))
    assert [peer.is_reachable for peer in contacts.states(is_banned=lambda _: False)] == [is_reachable]
