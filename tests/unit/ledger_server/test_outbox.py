"""Announcements to one peer, one message at a time."""

import asyncio
from typing import Any

from fl_core.sync.effects import Announce
from fl_core.sync.messages import Announcement
from fl_core.types import PublicKey, TxId
from ledger_server.gossip.outbox import Outbox
from ledger_server.peers import Peer

PEER = PublicKey("a" * 64)
X, Y = Announcement(ids=(TxId("1" * 64),)), Announcement(ids=(TxId("2" * 64),))


def sent(*announcements: Announcement) -> list[Announcement]:
    """What goes over the link when all of these are put while nothing could be sent."""
    arrived: list[Announcement] = []

    class Link:
        peer = Peer("a", "http://127.0.0.1:1", PEER)

        async def announce(self, announcement: Announcement) -> None:
            arrived.append(announcement)

    async def put_all() -> None:
        tasks: list[Any] = []
        links: Any = {PEER: Link()}
        outbox = Outbox(
            links, spawn=lambda work: tasks.append(asyncio.create_task(work)), model_in_memory=lambda _: None
        )
        for each in announcements:
            outbox.put(Announce(PEER, each, is_new=False))
        await asyncio.gather(*tasks)

    asyncio.run(put_all())
    return arrived


def test_what_waits_goes_together() -> None:
    assert sent(X, Y) == [Announcement(ids=X.ids + Y.ids)]


def test_that_acts_are_new_is_said_once_and_first_and_alone() -> None:
    assert sent(X, Announcement(), Y, Announcement()) == [Announcement(), Announcement(ids=X.ids + Y.ids)]
