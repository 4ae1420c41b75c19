"""Peers that are on the list, sign as they should, and do not keep to the protocol otherwise: over real HTTP.

One small server stands for any number of them; a request says by its ``Dag-Acfl-To`` whom it is for. A ``BadPeer``
answers like a peer that holds nothing; kinds of it override what they lie about. What it answers is written as it is:
lengths that are wrong, bodies that never end, bytes that are no HTTP.
"""

import http.client
import json
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.dag.signature import public_key_of
from fl_core.sync.messages import Announcement
from fl_core.types import PublicKey, TxId
from fl_core.wire import gossip_v1 as wire
from ledger_server.gossip.framing import encode_announcement
from ledger_server.http.peer_signature import NONCE_BYTES, RECIPIENT, sign_request
from tests.faults.harness.servers import ServerProcess

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Reply:
    """What is written to the socket.

    Attributes:
        status: Status code.
        body: Bytes, or pieces that are sent as they come, with the connection's end as theirs.
        fields: Header fields, beside the content's length.
        claimed_bytes: Content-Length; None: what is true, or nothing for pieces.
        raw: Instead of all that: these bytes, and the connection's end.
    """

    status: int = 200
    body: bytes | Iterable[bytes] = b""
    fields: Mapping[str, str] = field(default_factory=dict)
    claimed_bytes: int | None = None
    raw: bytes | Iterable[bytes] | None = None


NOT_FOUND = Reply(404)


def json_reply(document: Any) -> Reply:
    """A JSON document."""
    return Reply(body=json.dumps(document).encode(), fields={"content-type": JSON})


class BadPeer:
    """A peer that holds nothing and says so.

    Args:
        name: As the list calls it.
        key: It is on the list.
    """

    def __init__(self, name: str, key: Ed25519PrivateKey) -> None:
        self.name, self.key = name, key
        self.public_key = PublicKey(public_key_of(key))
        self.asked: dict[str, int] = {}
        """Requests that came, by route."""
        self._lock = threading.Lock()

    def answer(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> Reply:
        """The reply to a request, counted."""
        route = path.removeprefix("/v1/gossip/").partition("/")[0]
        with self._lock:
            self.asked[route] = self.asked.get(route, 0) + 1
        return self.reply(method, path, query, body)

    def reply(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> Reply:  # noqa: PLR0911 -- routes
        """By route."""
        match method, path:
            case "GET", wire.CHANGES:
                return self.changes(query.get("after"))
            case "POST", wire.TRANSACTIONS:
                return self.transactions(json.loads(body)["ids"])
            case "POST", wire.MODELS:
                return self.models(json.loads(body)["digests"])
            case "GET", wire.SUMMARY:
                return self.summary()
            case "POST", wire.RECONCILIATION:
                return self.reconciliation(body)
            case "POST", wire.ANNOUNCEMENTS:
                return Reply(204)
            case "GET", _ if path.startswith(wire.MODELS + "/"):
                return self.model(path.rpartition("/")[2])
        return NOT_FOUND

    def changes(self, after: str | None) -> Reply:
        """A page of what came to it."""
        return json_reply({"ids": [], "next": after or "nothing.0", "more": False})

    def transactions(self, ids: Sequence[str]) -> Reply:
        """Transactions by id."""
        return Reply(body=b"\0\0" + len(ids).to_bytes(2, "big") + b"".join(map(bytes.fromhex, ids)))

    def models(self, digests: Sequence[str]) -> Reply:
        """Small models: none is here."""
        return Reply(body=b"\0\0\0\0" * len(digests))

    def model(self, digest: str) -> Reply:
        """One model."""
        return NOT_FOUND

    def summary(self) -> Reply:
        """What it holds, signed."""
        return NOT_FOUND

    def reconciliation(self, frame: bytes) -> Reply:
        """A frame in answer to a frame."""
        return NOT_FOUND


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Listener"

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        parts = urlsplit(self.path)
        peer = self.server.peers.get(self.headers.get(RECIPIENT, ""))
        if peer is None or not parts.path.startswith("/v1/gossip/"):
            self.server.strangers += 1
            self._send(NOT_FOUND)
            return
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        self._send(peer.answer(self.command, parts.path, query, body))

    do_GET = do_POST = _handle  # noqa: N815 -- http.server's names

    def _send(self, reply: Reply) -> None:
        with suppress(OSError):
            if reply.raw is not None:
                self.close_connection = True
                self._write(reply.raw)
                return
            self.send_response_only(reply.status)
            for name, value in reply.fields.items():
                self.send_header(name, value)
            length = reply.claimed_bytes
            if length is None and isinstance(reply.body, bytes) and reply.status != http.client.NO_CONTENT:
                length = len(reply.body)
            if length is not None:
                self.send_header("content-length", str(length))
            # A length that is not the truth ends with the connection, as does a body without one.
            if (length is None and reply.status != http.client.NO_CONTENT) or reply.claimed_bytes is not None:
                self.close_connection = True
            self.end_headers()
            self._write(reply.body)

    def _write(self, body: bytes | Iterable[bytes]) -> None:
        for piece in [body] if isinstance(body, bytes) else body:
            if self.server.is_ending.is_set():
                return
            self.wfile.write(piece)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- http.server's name
        """Say nothing."""


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, port: int, peers: Sequence[BadPeer]) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.peers = {str(peer.public_key): peer for peer in peers}
        self.strangers = 0
        """Requests that are for none of them: something followed a redirect."""
        self.errors: list[str] = []
        """Faults of the bad peers themselves."""
        self.is_ending = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A victim that hangs up is no error here."""
        if not isinstance(sys.exception(), OSError):
            self.errors.append(traceback.format_exc())


@contextmanager
def answering(port: int, peers: Sequence[BadPeer]) -> Iterator[Listener]:
    """All of them at one port, until the block ends."""
    listener = Listener(port, peers)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield listener
    finally:
        listener.is_ending.set()
        listener.shutdown()
        listener.server_close()
        thread.join(10)


class Line:
    """What a bad peer says to a victim of its own accord: signed requests over one kept connection.

    Args:
        peer: Who signs.
        victim: The server.
        recipient: Its public key.
    """

    def __init__(self, peer: BadPeer, victim: ServerProcess, recipient: PublicKey) -> None:
        self.peer, self._victim, self._recipient = peer, victim, recipient
        self.statuses: dict[int, int] = {}
        """Answers by status; 0: the connection broke."""
        self._connection: http.client.HTTPConnection | None = None
        self._nonces = int.from_bytes(self.peer.key.sign(str(time.time_ns()).encode())[:12], "big")

    def signed(self, method: str, target: str, body: bytes = b"") -> dict[str, str]:
        """The fields of a request that passes."""
        self._nonces += 1
        return sign_request(
            self.peer.key,
            method=method,
            target=target,
            body=body,
            recipient=self._recipient,
            created_s=int(time.time()),
            nonce=self._nonces.to_bytes(NONCE_BYTES, "big"),
        )

    def say(
        self,
        method: str,
        target: str,
        body: bytes | Iterable[bytes] = b"",
        *,
        fields: Mapping[str, str] | None = None,
        timeout_s: float = 10.0,
    ) -> int:
        """Send, and return the status; 0 when none came. Without ``fields`` it is signed as it should be."""
        if fields is None:
            assert isinstance(body, bytes), "what is signed is known"
            fields = self.signed(method, target, body)
            fields |= {"content-type": JSON} if body else {}
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection(self._victim.host, self._victim.port, timeout=timeout_s)
                self._connection.connect()
                self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connection.request(method, target, body or None, dict(fields))
            response = self._connection.getresponse()
            response.read()
            status = response.status
            if response.will_close:
                self.hang_up()
        except (OSError, http.client.HTTPException):
            self.hang_up()
            status = 0
        self.statuses[status] = self.statuses.get(status, 0) + 1
        return status

    def announce(self, announcement: Announcement) -> int:
        """Say that it holds a transaction."""
        body = encode_announcement(announcement)
        return self.say("POST", wire.ANNOUNCEMENTS, body)

    def claim(self, transaction: TxId) -> int:
        """Say by id that it holds something, that there may or may not be."""
        return self.announce(Announcement(ids=(transaction,)))

    def hang_up(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
