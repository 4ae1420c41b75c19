"""What a server asks of a peer ends in time, whatever the peer does: here it sends a byte now and then, for ever."""

import asyncio
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from fl_core.dag.signature import public_key_of
from fl_core.sync.effects import Failure
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import (
    GetChanges,
    GetCheckpoint,
    GetModel,
    GetSummary,
    GetTransactions,
    ModelUnknown,
    Request,
)
from fl_core.types import Digest, PublicKey, TxId
from fl_core.wire import gossip_v1 as wire
from ledger_server.gossip.authorities import authorities
from ledger_server.gossip.errors import LinkError
from ledger_server.gossip.framing import LENGTH
from ledger_server.gossip.link import PeerLink
from ledger_server.peers import Peer
from tests.builders import TinyLedger, key_from_seed
from tests.certificates import Authority
from tests.checkpoints import checkpoint_of

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n" + LENGTH.pack(65_536)
"""With the length of a model, for where one is asked for."""
LIMITS = GossipLimits(answer_deadline_s=0.2)
SOME_ID = "ab" * 32


class DrippingPeer:
    """Answers with ``head`` at once, and then with a byte every 10 ms until the other side hangs up."""

    def __init__(self, head: bytes) -> None:
        self.open, self.head = 0, head

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self.head)
            while not writer.is_closing():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.01)
        self.open -= 1
        writer.close()


@asynccontextmanager
async def dripping(head: bytes = HEAD, tls: Path | None = None) -> AsyncIterator[tuple[DrippingPeer, PeerLink]]:
    """A dripping peer and a link to it, over TLS with certificates in the folder ``tls``."""
    peer, theirs, trust = DrippingPeer(head), None, None
    if tls is not None:
        authority = Authority(tls)
        pair = authority.issue("drip")
        theirs, trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), authorities(authority.certificate)
        theirs.load_cert_chain(pair["certificate"], pair["key"])
    server = await asyncio.start_server(peer.answer, "127.0.0.1", 0, ssl=theirs)
    host, port = server.sockets[0].getsockname()
    scheme = "http" if tls is None else "https"
    known = Peer("drip", f"{scheme}://{host}:{port}", PublicKey(public_key_of(key_from_seed(2))))
    link = PeerLink(known, key=key_from_seed(1), limits=LIMITS, nonce=secrets.token_bytes, trust=trust)
    try:
        yield peer, link
        until_s = time.monotonic() + 10
        while peer.open:
            assert time.monotonic() < until_s, "the connection of an answer that was given up stays open"
            await asyncio.sleep(0.02)
    finally:
        link.close()
        server.close()


def refused_by(
    call: Callable[[PeerLink], Awaitable[object]], *, head: bytes = HEAD, tls: Path | None = None
) -> LinkError:
    async def asked() -> LinkError:
        async with dripping(head, tls) as (_, link):
            with pytest.raises(LinkError) as caught:
                await call(link)
            return caught.value

    return asyncio.run(asyncio.wait_for(asked(), 30))


@pytest.mark.parametrize("request_", [GetChanges(None), GetTransactions((TxId(SOME_ID),)), GetSummary()], ids=repr)
def test_an_answer_that_drips_ends_at_the_deadline(request_: Request) -> None:
    assert refused_by(lambda link: link.ask(request_)).kind is Failure.TIMEOUT


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nx-filler: ", HEAD], ids=["head", "body"])
@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
def test_head_and_body_end_at_the_deadline(head: bytes, *, is_tls: bool, tmp_path: Path) -> None:
    refused = refused_by(lambda link: link.ask(GetChanges(None)), head=head, tls=tmp_path if is_tls else None)
    assert refused.kind is Failure.TIMEOUT


@pytest.mark.parametrize(("signer", "cut"), [(3, 0), (2, 64), (2, 1)], ids=["another", "unsigned", "cut"])
def test_a_checkpoint_that_is_not_the_peer_s_own_is_refused(signer: int, cut: int) -> None:
    data = checkpoint_of(TinyLedger(), [], key=key_from_seed(signer)).data
    head = (
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % (len(data) - cut)
        + data[: len(data) - cut]
    )
    assert refused_by(lambda link: link.ask(GetCheckpoint()), head=head).kind is Failure.MALFORMED


@pytest.mark.parametrize("code", ["peer-unknown", "peer-banned", "too-busy", "made-up"])
def test_a_refusal_says_by_its_code_what_the_peer_has_against_this_server(code: str) -> None:
    body = b'{"type":"/problems/%s","title":"no"}' % code.encode()
    head = b"HTTP/1.1 403 no\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    refused = refused_by(lambda link: link.ask(GetChanges(None)), head=head)
    assert (refused.kind, refused.status) == (Failure.REFUSED, 403)
    assert refused.code == ("" if code == "made-up" else code)


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


@pytest.mark.parametrize(
    ("target", "kind"),
    [(wire.ACTS, "acts"), (wire.TRANSACTIONS, "transactions"), (f"{wire.CHANGES}?limit=1", "changes")],
)
def test_bytes_are_counted_by_kind(target: str, kind: str) -> None:
    counted: list[tuple[str, int, int]] = []
    peer = Peer("ann", "http://127.0.0.1:1", PublicKey(public_key_of(key_from_seed(2))))
    link = PeerLink(
        peer,
        key=key_from_seed(1),
        limits=LIMITS,
        nonce=secrets.token_bytes,
        moved=lambda *exchange: counted.append(exchange),
    )
    link._exchanged(target, 1, 2)
    assert counted == [(kind, 1, 2)]
