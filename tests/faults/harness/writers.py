"""Clients that do nothing but publish, and note what they attempted and what was acknowledged."""

import http.client
import json
import threading
import time
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.dag.building import build_update
from fl_core.dag.genesis import Genesis
from fl_core.models import ModelLayout, TensorSpec, encode_flat
from fl_core.types import TxId, digest_of
from fl_core.wire import v1
from tests.builders import CREATED_AT_MS, LAYOUT, START, author_of, genesis_transaction, key_from_seed, make_genesis
from tests.faults.harness.history import History

MULTIPART = {"Content-Type": "multipart/form-data; boundary=x"}


def layout_with(rows: int, columns: int) -> ModelLayout:
    """The tests' tiny layout and a layer of this size beneath it."""
    return ModelLayout.of([TensorSpec("body.weight", "F32", (rows, columns)), *LAYOUT.tensors])


LARGE_LAYOUT = layout_with(200, 200)
"""160 KB: large enough to lie outside the database."""


def genesis_of(layout: ModelLayout) -> Genesis:
    """Rules for a ledger whose models have this layout; the last layer is compared."""
    return make_genesis(layout=layout, compared=("fc.bias", "fc.weight"))


def model_of(layout: ModelLayout, seed: int, number: int) -> bytes:
    """A model that nobody else publishes."""
    vector = np.random.default_rng((seed, number)).standard_normal(layout.num_parameters, dtype=np.float32)
    return encode_flat(layout, vector)


def ledger_of(layout: ModelLayout) -> TxId:
    """The id of the ledger that a server of the harness begins with, whose models have this layout."""
    return genesis_transaction(genesis_of(layout), model_of(layout, 0, 0)).id


@dataclass(frozen=True, slots=True)
class Signed:
    """A publication that its author has signed, ready to be sent anywhere and again."""

    id: TxId
    body: bytes


@dataclass(slots=True)
class Author:
    """A key and its chain of transactions."""

    seed: int
    ledger: TxId
    layout: ModelLayout = LAYOUT
    sequence: int = 0
    parent: TxId = field(init=False)
    key: Ed25519PrivateKey = field(init=False)

    def __post_init__(self) -> None:
        self.parent, self.key = self.ledger, key_from_seed(self.seed)

    def next(self) -> Signed:
        """The next publication; the chain goes on from it once ``accepted``."""
        return self.signed(model_of(self.layout, self.seed, self.sequence))

    def signed(self, data: bytes) -> Signed:
        """The next publication, with this model."""
        unsigned = build_update(
            ledger=self.ledger,
            author=author_of(self.key),
            sequence=self.sequence,
            created_at_ms=CREATED_AT_MS,
            num_examples=1,
            start=START,
            model_digest=digest_of(data),
            model_size=len(data),
            parents=(self.parent,),
        )
        header, identity = unsigned.header, unsigned.id
        fields = {
            "parents": list(header.parents),
            "num_examples": 1,
            "start": header.start,
            "author": header.author,
            "sequence": header.sequence,
            "created_at_ms": header.created_at_ms,
            "signature": unsigned.sign_as_author(self.key).hex(),
            "id": identity,
        }
        body = (
            b'--x\r\nContent-Disposition: form-data; name="transaction"\r\n\r\n'
            + json.dumps(fields).encode()
            + b'\r\n--x\r\nContent-Disposition: form-data; name="model"\r\n\r\n'
            + data
            + b"\r\n--x--\r\n"
        )
        return Signed(identity, body)

    def accepted(self, signed: Signed) -> None:
        """The publication is in the ledger."""
        self.parent, self.sequence = signed.id, self.sequence + 1


class Writer(threading.Thread):
    """One author that publishes as fast as it may, until told to stop or the server is gone.

    Args:
        author: Who.
        host: Server's address.
        port: Server's port.
        server: Its name in the history.
        history: Where everything is noted.
        pause_s: Between two publications.
        stubborn: Go on after an error, with the same publication, as a client that retries does.
    """

    def __init__(
        self,
        author: Author,
        history: History,
        *,
        host: str = "127.0.0.1",
        port: int,
        server: str = "server",
        pause_s: float = 0.0,
        stubborn: bool = False,
    ) -> None:
        super().__init__(daemon=True)
        self.author, self.history = author, history
        self.host, self.port, self.server = host, port, server
        self.pause_s, self.stubborn = pause_s, stubborn
        self.statuses: dict[int, int] = {}
        self.stopping = threading.Event()

    def run(self) -> None:
        """Publish a chain of transactions."""
        while not self.stopping.is_set():
            connection = http.client.HTTPConnection(self.host, self.port, timeout=10)
            try:
                while not self.stopping.is_set():
                    self._publish(connection)
                    if self.pause_s:
                        self.stopping.wait(self.pause_s)
            except (OSError, http.client.HTTPException) as error:
                self.history.note("connection lost", server=self.server, why=type(error).__name__)
            finally:
                connection.close()
            if not self.stubborn:
                return
            time.sleep(0.05)

    def _publish(self, connection: http.client.HTTPConnection) -> None:
        signed = self.author.next()
        self.history.attempt(signed.id)
        connection.request("POST", v1.TRANSACTIONS, body=signed.body, headers=MULTIPART)
        response = connection.getresponse()
        answer = response.read()
        self.statuses[response.status] = self.statuses.get(response.status, 0) + 1
        if response.status not in (http.client.OK, http.client.CREATED):
            self.history.note("refused", transaction=signed.id, status=response.status, server=self.server)
            raise http.client.HTTPException(f"{response.status}: {answer[:200]!r}")
        self.history.acknowledge(signed.id, server=self.server)
        self.author.accepted(signed)


def start(writers: list[Writer]) -> None:
    """Start all, and wait until two publications were acknowledged, or all have given up.

    On a busy machine that may take a second. Two, so that a run of several such starts has more than one of each.
    """
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers) and sum(writer.author.sequence for writer in writers) < 2:
        time.sleep(0.001)  # late by so much at most, beside moments that are drawn from hundreds of milliseconds


def stop(writers: list[Writer], within_s: float = 20.0) -> None:
    """Tell all to stop, and wait."""
    for writer in writers:
        writer.stopping.set()
    for writer in writers:
        writer.join(within_s)
