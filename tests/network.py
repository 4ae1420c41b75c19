"""Several real servers of one ledger in this process, each with its own database, that gossip over loopback.

with network(tmp_path, 3, urls=database_urls(3)) as servers:
    servers[0].publish(parents=[servers[0].ledger_id], model=model(1))
    settle(servers)
"""

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import FastAPI

from fl_core.dag.genesis import Genesis
from fl_core.dag.signature import public_key_of
from fl_core.types import TxId
from ledger_server.app import create_app, now_ms
from ledger_server.gossip.contacts import PeerState
from ledger_server.gossip.runtime import Gossip
from ledger_server.settings import Settings, load_settings
from tests.builders import key_from_seed
from tests.live import Live, client_of, eventually, free_ports, run_app
from tests.serving import Running, prepare

SETTLE_S = 20.0


@dataclass
class Node(Running):
    """One server of the network; it can be stopped and started again."""

    number: int
    folder: Path
    settings: Settings
    port: int
    key: Ed25519PrivateKey
    stack: ExitStack = field(default_factory=ExitStack)
    ahead_ms: int = 0
    app: FastAPI | None = None
    live: Live | None = None

    @property
    def url(self) -> str:
        return f"{_scheme(self.settings)}://127.0.0.1:{self.port}"

    @property
    def gossip(self) -> Gossip:
        assert self.app is not None, "the server is down"
        gossip = self.app.state.gossip
        assert isinstance(gossip, Gossip)
        return gossip

    def start(self, listening: socket.socket | None = None) -> None:
        """Serve, with what the folder holds."""
        self.app = create_app(self.settings, key=self.key, clock_ms=lambda: now_ms() + self.ahead_ms)
        listening = listening or _listening(self.port)
        self.live = self.stack.enter_context(run_app(self.app, self.settings, listening=listening))
        self.client = self.stack.enter_context(client_of(self.url))

    def stop(self) -> None:
        """Drain and end; nobody answers at the port until the next start."""
        self.stack.close()
        self.app = self.live = None

    def ids(self) -> set[TxId]:
        return {node.id for node in list(self.service.ledger)}


def _scheme(settings: Settings) -> str:
    return "http" if settings.tls.certificate is None else "https"


def _listening(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    made.listen(128)
    return made


@contextmanager
def network(
    folder: Path,
    count: int,
    *,
    genesis: Genesis | None = None,
    first: bytes | None = None,
    urls: Sequence[str] | None = None,
    tls: Sequence[Mapping[str, Path]] | None = None,
    ahead_ms: Sequence[int] | None = None,
    **settings: Any,
) -> Iterator[list[Node]]:
    """``count`` servers that are peers of one another, each with its own database.

    Args:
        folder: For their folders.
        count: How many.
        genesis: Rules; default: a tiny ledger's.
        first: Initial model.
        urls: Databases, one each; default: a new SQLite file each.
        tls: Certificate and key, one pair each; default: plain HTTP.
        ahead_ms: How far their clocks are ahead, one each; default: not at all.
        settings: Further settings of all.
    """
    ports = free_ports(count)
    peers = " ".join(
        f"server-{number}={'http' if tls is None else 'https'}://127.0.0.1:{port}#{public_key_of(key_from_seed(1000 + number))}"
        for number, port in enumerate(ports)
    )
    nodes: list[Node] = []
    with ExitStack() as stack:
        for number, port in enumerate(ports):
            own = folder / f"server-{number}"
            own.mkdir(parents=True, exist_ok=True)
            url = urls[number] if urls is not None else f"sqlite:///{own / 'ledger.sqlite3'}"
            pair = None if tls is None else tls[number]
            loaded = load_settings(data_dir=own, database_url=url, peers=peers, tls=pair, **settings)
            prepare(url, own, genesis=genesis, first=first, blobs=loaded.blobs.store, s3=loaded.blobs.s3)
            ahead = 0 if ahead_ms is None else ahead_ms[number]
            node = Node(number, own, loaded, port, key_from_seed(1000 + number), ahead_ms=ahead)
            stack.callback(node.stack.close)
            nodes.append(node)
        # All listen before the first one starts: who finds nobody at a peer's port asks again only after a while.
        listening = [stack.enter_context(_listening(port)) for port in ports]
        for node, each in zip(nodes, listening, strict=True):
            node.start(each)
        yield nodes


def acquaint(nodes: Sequence[Node]) -> None:
    """Wait until each has had a good answer of all its peers: announcements go to nobody else.

    That a peer asked is not enough: in the second in which it starts a server refuses what is asked of it.
    """

    def has_answered(peer: PeerState) -> bool:
        return peer.is_reachable and peer.transactions is not None

    eventually(lambda: all(has_answered(peer) for node in nodes for peer in node.gossip.peers()))


def settle(nodes: Sequence[Node], *, within_s: float = SETTLE_S) -> set[TxId]:
    """Wait until all servers hold the same; returns what they hold."""
    end_s = time.monotonic() + within_s
    while True:
        held = [node.ids() for node in nodes]
        if all(each == held[0] for each in held):
            return held[0]
        assert time.monotonic() < end_s, f"servers hold {[len(each) for each in held]} transactions"
        time.sleep(0.02)
