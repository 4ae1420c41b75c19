"""Clients that select, average and publish without training, and note what they attempted and what was acknowledged.

A model is the average that its author was given, or its own newest, with about 1 added to or taken from each value: all
steps are about as long, so that no honest one is beyond the bound that others' steps set.
"""

import http.client
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_client.evidence import evidence_of
from fl_core.dag.building import build_update
from fl_core.dag.genesis import Component, Genesis, compare_layers
from fl_core.dag.profiles import PROFILES
from fl_core.models import ModelLayout, TensorSpec, encode_flat, flat
from fl_core.types import Digest, TxId, Vector32, digest_of
from fl_core.wire import v1
from tests.builders import CREATED_AT_MS, LAYOUT, START, author_of, genesis_transaction, key_from_seed
from tests.faults.harness.history import History

MULTIPART = {"Content-Type": "multipart/form-data; boundary=x"}
JSON = {"Content-Type": "application/json"}


def layout_with(rows: int, columns: int) -> ModelLayout:
    """The tests' tiny layout and a layer of this size beneath it."""
    return ModelLayout.of([TensorSpec("body.weight", "F32", (rows, columns)), *LAYOUT.tensors])


COMPARED = ("fc.bias", "fc.weight")
LARGE_LAYOUT = layout_with(200, 200)
"""160 KB: large enough to lie outside the database."""


def genesis_of(layout: ModelLayout) -> Genesis:
    """The profile ``open`` for models of this layout, whose last layer is compared.

    The selector apart: nobody trains these models, so nothing but a fixed number of others is to be taken.
    """
    rules = {**PROFILES["open"], "selector": Component("top-k"), "comparison": compare_layers(COMPARED)}
    return Genesis(name="test", layout=layout, **rules)


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
    model: bytes


@dataclass(frozen=True, slots=True)
class Selected:
    """A selection, with the evidence that any server believes, and its average."""

    answer: v1.SelectionOut
    evidence: v1.CarriedEvidence
    average: Vector32


@dataclass(slots=True)
class Author:
    """A key and its transactions.

    Attributes:
        parent: Its newest that was accepted, or genesis.
        newest: The values of that one's model.
        pending: What was sent and not accepted yet.
    """

    seed: int
    ledger: TxId
    layout: ModelLayout = LAYOUT
    sequence: int = 0
    parent: TxId = field(init=False)
    newest: Vector32 = field(init=False)
    pending: Signed | None = field(init=False)
    key: Ed25519PrivateKey = field(init=False)

    def __post_init__(self) -> None:
        self.parent, self.key, self.pending = self.ledger, key_from_seed(self.seed), None
        self.newest = flat(self.layout, model_of(self.layout, 0, 0))

    def again(self) -> Signed | None:
        """What is to be sent once more, as no answer came."""
        return self.pending

    def next(self, selected: Selected | None = None) -> Signed:
        """The next publication, upon a selection or the author's own newest."""
        rng, size = np.random.default_rng((self.seed, self.sequence)), self.layout.num_parameters
        step = rng.uniform(0.9, 1.1, size) * rng.choice((-1.0, 1.0), size)
        start = self.newest if selected is None else selected.average
        self.pending = self.signed(encode_flat(self.layout, start + step.astype(np.float32)), selected)
        return self.pending

    def signed(self, data: bytes, selected: Selected | None = None) -> Signed:
        """The next publication, with this model."""
        parents, start, evidence = (self.parent,), START, None
        if selected is not None:
            parents = tuple(map(TxId, selected.answer.parents))
            start, evidence = Digest(selected.answer.aggregate.digest), Digest(selected.answer.id)
        unsigned = build_update(
            ledger=self.ledger,
            author=author_of(self.key),
            sequence=self.sequence,
            created_at_ms=CREATED_AT_MS,
            num_examples=1,
            start=start,
            model_digest=digest_of(data),
            model_size=len(data),
            parents=parents,
            evidence=evidence,
        )
        header, identity = unsigned.header, unsigned.id
        fields = {
            **_upon(parents, selected),
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
        return Signed(identity, body, data)

    def accepted(self, signed: Signed) -> None:
        """The publication is in the ledger."""
        self.parent, self.newest, self.sequence = signed.id, flat(self.layout, signed.model), self.sequence + 1
        self.pending = None


class Writer(threading.Thread):
    """One author that selects and publishes as fast as it may, until told to stop or the server is gone.

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
                    self.publish(connection)
                    if self.pause_s:
                        self.stopping.wait(self.pause_s)
            except (OSError, http.client.HTTPException) as error:
                self.history.note("connection lost", server=self.server, why=type(error).__name__)
            finally:
                connection.close()
            if not self.stubborn:
                return
            time.sleep(0.05)

    def publish(self, connection: http.client.HTTPConnection) -> None:
        """Once, upon a selection from the second on.

        Raises:
            OSError, HTTPException: It was not acknowledged.
        """
        author = self.author
        signed = author.again() or author.next(self._selected(connection))
        self.history.attempt(signed.id)
        status, answer = _asked(connection, "POST", v1.TRANSACTIONS, signed.body, MULTIPART)
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if status not in (http.client.OK, http.client.CREATED):
            self.history.note("refused", transaction=signed.id, status=status, server=self.server)
            raise http.client.HTTPException(f"{status}: {answer[:200]!r}")
        self.history.acknowledge(signed.id, server=self.server)
        author.accepted(signed)

    def _selected(self, connection: http.client.HTTPConnection) -> Selected | None:
        if not self.author.sequence:
            return None
        question = json.dumps({"transaction": self.author.parent}).encode()
        answer = v1.SelectionOut.model_validate_json(self._read(connection, "POST", v1.SELECTIONS, question))
        evidence = evidence_of(answer)
        assert evidence is not None, "it is signed, and of few candidates"
        return Selected(
            answer, evidence, flat(self.author.layout, self._read(connection, "GET", answer.aggregate.href))
        )

    def _read(self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None) -> bytes:
        status, answer = _asked(connection, method, path, body, {} if body is None else JSON)
        if status not in (http.client.OK, http.client.CREATED):
            self.statuses[status] = self.statuses.get(status, 0) + 1
            raise http.client.HTTPException(f"{status}: {answer[:200]!r}")
        return answer


def _upon(parents: Sequence[TxId], selected: Selected | None) -> dict[str, object]:
    """What a publication says of where it comes from."""
    if selected is None:
        return {"parents": parents}
    return {"selection": selected.answer.id, "evidence": selected.evidence.model_dump()}


def _asked(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
) -> tuple[int, bytes]:
    connection.request(method, path, body, dict(headers))
    response = connection.getresponse()
    return response.status, response.read()


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
