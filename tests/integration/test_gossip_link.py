"""What a server asks of a peer ends in time, whatever the peer does: here it sends a byte now and then, for ever."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from fl_core.dag.signature import public_key_of
from fl_core.sync.effects import Failure
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import GetChanges, GetCheckpoint, GetModel, GetTransactions, ModelUnknown, Request
from fl_core.types import Digest, PublicKey, TxId
from ledger_server.gossip.errors import LinkError
from ledger_server.gossip.framing import LENGTH
from ledger_server.gossip.link import PeerLink
from ledger_server.peers import Peer
from tests.builders import key_from_seed

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n" + LENGTH.pack(65_536)
"""With the length of a model, for where one is asked for."""
LIMITS = GossipLimits(answer_deadline_s=0.2)
SOME_ID = "ab" * 32


class DrippingPeer:
    """Answers the head at once, and then a byte every 10 ms until the other side hangs up."""

    def __init__(self) -> None:
        self.open = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(HEAD)
            while not writer.is_closing():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.01)
        self.open -= 1
        writer.close()


@asynccontextmanager
async def dripping() -> AsyncIterator[tuple[DrippingPeer, PeerLink]]:
    peer = DrippingPeer()
    server = await asyncio.start_server(peer.answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    known = Peer("drip", f"http://{host}:{port}", PublicKey(public_key_of(key_from_seed(2))))
    link = PeerLink(known, key=key_from_seed(1), limits=LIMITS, nonce=secrets.token_bytes)
    try:
        yield peer, link
        until_s = time.monotonic() + 10
        while peer.open:
            assert time.monotonic() < until_s, "the connection of an answer that was given up stays open"
            await asyncio.sleep(0.02)
    finally:
        await link.close()
        server.close()


def refused_by(call: Callable[[PeerLink], Awaitable[object]]) -> LinkError:
    async def asked() -> LinkError:
        async with dripping() as (_, link):
            with pytest.raises(LinkError) as caught:
                await call(link)
            return caught.value

    return asyncio.run(asyncio.wait_for(asked(), 30))


@pytest.mark.parametrize("request_", [GetChanges(None), GetTransactions((TxId(SOME_ID),)), GetCheckpoint()], ids=repr)
def test_an_answer_that_drips_ends_at_the_deadline(request_: Request) -> None:
    assert refused_by(lambda link: link.ask(request_)).kind is Failure.TIMEOUT


def test_small_models_that_drip_end_in_time() -> None:
    async def fetched(link: PeerLink) -> list[object]:
        return [each async for each in link.models([Digest(SOME_ID)], within_s=0.2)]

    assert refused_by(fetched).kind is Failure.TIMEOUT


def test_a_model_that_drips_is_handed_on_byte_by_byte_so_that_who_asked_can_give_up() -> None:
    async def first_piece() -> bytes:
        async with dripping() as (_, link):
            pieces = await link.model(GetModel(Digest(SOME_ID), 0, 1_000_000))
            assert not isinstance(pieces, ModelUnknown)
            async for piece in pieces:
                await pieces.aclose()
                return piece
            raise AssertionError("no piece came")

    assert 0 < len(asyncio.run(asyncio.wait_for(first_piece(), 30))) < 1000
