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

import httpx2
from fastapi import FastAPI

from fl_core.dag.genesis import Genesis
from fl_core.dag.signature import public_key_of
from fl_core.types import TxId
from fl_core.wire import v1
from ledger_server.app import create_app
from ledger_server.gossip.runtime import Gossip
from ledger_server.publishing import LedgerService
from ledger_server.settings import Settings, load_settings
from tests.builders import START, key_from_seed
from tests.live import Live, run_app
from tests.serving import prepare, publication, secret_for

SETTLE_S = 20.0


@dataclass
class Node:
    """One server of the network; it can be stopped and started again."""

    number: int
    folder: Path
    settings: Settings
    port: int
    stack: ExitStack = field(default_factory=ExitStack)
    app: FastAPI | None = None
    live: Live | None = None

    @property
    def url(self) -> str:
        return f"{_scheme(self.settings)}://127.0.0.1:{self.port}"

    @property
    def service(self) -> LedgerService:
        assert self.app is not None, "the server is down"
        service = self.app.state.service
        assert isinstance(service, LedgerService)
        return service

    @property
    def gossip(self) -> Gossip:
        assert self.app is not None, "the server is down"
        gossip = self.app.state.gossip
        assert isinstance(gossip, Gossip)
        return gossip

    @property
    def ledger_id(self) -> TxId:
        return self.service.id

    def start(self) -> None:
        """Serve, with what the folder holds."""
        self.app = create_app(self.settings, key=key_from_seed(1000 + self.number))
        listening = _bound(self.port)
        listening.listen(128)
        self.live = self.stack.enter_context(run_app(self.app, self.settings, listening=listening))

    def stop(self) -> None:
        """Drain and end; nobody answers at the port until the next start."""
        self.stack.close()
        self.app = self.live = None

    def get(self, path: str) -> httpx2.Response:
        return httpx2.get(self.url + path, timeout=30)

    def select(self, transaction: str) -> httpx2.Response:
        return httpx2.post(self.url + v1.SELECTIONS, json={"transaction": transaction}, timeout=30)

    def post(self, fields: dict[str, Any], model_bytes: bytes) -> httpx2.Response:
        return httpx2.post(self.url + v1.TRANSACTIONS, files=publication(fields, model_bytes), timeout=30)

    def publish(self, *, parents: Sequence[str] | None = None, model: bytes, **fields: Any) -> dict[str, Any]:
        """Publish and insist on success; returns the transaction."""
        given = {"num_examples": 1, **fields}
        if not {"author", "secret"} & given.keys():
            given["secret"] = secret_for(self.service, given.get("selection"))
        if parents is not None:
            given = {"parents": sorted(parents), "start": START, **given}
        response = self.post(given, model)
        assert response.status_code == 201, response.text
        transaction: dict[str, Any] = response.json()
        return transaction

    def ids(self) -> set[TxId]:
        return {node.id for node in list(self.service.ledger)}


def _scheme(settings: Settings) -> str:
    return "http" if settings.tls.certificate is None else "https"


def _bound(port: int = 0) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    return made


def _free_ports(count: int) -> list[int]:
    held = [_bound() for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


@contextmanager
def network(
    folder: Path,
    count: int,
    *,
    genesis: Genesis | None = None,
    first: bytes | None = None,
    urls: Sequence[str] | None = None,
    tls: Sequence[Mapping[str, Path]] | None = None,
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
        settings: Further settings of all.
    """
    ports = _free_ports(count)
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
            prepare(url, own, genesis=genesis, first=first)
            pair = None if tls is None else tls[number]
            loaded = load_settings(data_dir=own, database_url=url, peers=peers, tls=pair, **settings)
            node = Node(number, own, loaded, port)
            stack.callback(node.stack.close)
            nodes.append(node)
        for node in nodes:
            node.start()
        yield nodes


def settle(nodes: Sequence[Node], *, within_s: float = SETTLE_S) -> set[TxId]:
    """Wait until all servers hold the same; returns what they hold."""
    end_s = time.monotonic() + within_s
    while True:
        held = [node.ids() for node in nodes]
        if all(each == held[0] for each in held):
            return held[0]
        assert time.monotonic() < end_s, f"servers hold {[len(each) for each in held]} transactions"
        time.sleep(0.02)
