"""A whole server in the test's process: a fresh database with a tiny ledger, and a client for its app.

with serving(database_url, tmp_path) as server:
    server.publish(parents=[server.ledger_id], model=model(1))
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any, cast

from fastapi import FastAPI
from httpx2 import Client, Response
from starlette.testclient import TestClient

from fl_core.dag.author import author_of_secret
from fl_core.dag.building import build_update
from fl_core.dag.genesis import Genesis
from fl_core.errors import UnknownError
from fl_core.selection import SELECTORS, Selection
from fl_core.selection.evidence import evidence_id
from fl_core.types import Digest, TxId, digest_of
from fl_core.wire import v1
from ledger_server.app import create_app
from ledger_server.buckets import S3Address
from ledger_server.founding import create_ledger
from ledger_server.pending_selections import SelectionRecord
from ledger_server.publishing import LedgerService
from ledger_server.settings import Settings, load_settings
from ledger_server.store import open_store, schema
from ledger_server.store.opening import BlobPlace
from tests.builders import (
    CREATED_AT_MS,
    ISSUER,
    START,
    author_of,
    key_from_seed,
    known_secret,
    make_genesis,
    model,
    new_secret,
    secret_of,
)

NOW_MS = CREATED_AT_MS + 1000


class Running:
    """A server in this process: what it serves, and how a client asks it."""

    app: FastAPI | None
    client: Client

    @property
    def service(self) -> LedgerService:
        assert self.app is not None, "the server is down"
        service = self.app.state.service
        assert isinstance(service, LedgerService)
        return service

    @property
    def ledger_id(self) -> TxId:
        return self.service.id

    def get(self, path: str) -> Response:
        return self.client.get(path)

    def select(self, transaction: str) -> Response:
        """Ask by hash."""
        return self.client.post(v1.SELECTIONS, json={"transaction": transaction})

    def join(self, model_bytes: bytes) -> Response:
        """Ask with a model."""
        return self.client.post(v1.SELECTIONS, content=model_bytes, headers={"content-type": v1.MODEL_MEDIA_TYPE})

    def post(self, fields: Mapping[str, Any] | bytes, model_bytes: bytes) -> Response:
        """Publish with exactly these fields."""
        return self.client.post(v1.TRANSACTIONS, files=publication(fields, model_bytes))

    def publish(self, *, parents: Sequence[str] | None = None, model: bytes, **fields: Any) -> dict[str, Any]:
        """Publish and insist on success; returns the transaction."""
        given = {"num_examples": 1, **fields}
        if not {"author", "secret"} & given.keys():
            given["secret"] = secret_for(self.service, given.get("selection"))
        if "secret" in given:
            known_secret(given["secret"])
        if parents is not None:
            given = {**named(self.service, sorted(parents), given), "start": START, **given}
        response = self.post(given, model)
        assert response.status_code == 201, response.text
        transaction: dict[str, Any] = response.json()
        return transaction


@dataclass
class Server(Running):
    """A running app and the client that talks to it."""

    app: FastAPI
    client: TestClient
    settings: Settings


def named(service: LedgerService, parents: Sequence[str], fields: Mapping[str, Any]) -> dict[str, Any]:
    """How a publication names its parents: by themselves where they are its author's to name, else by a selection.

    The selection is made by hand, whoever resembles whom.
    """
    found = [service.ledger.graph.get(TxId(each)) for each in parents]
    author = fields["author"] if "author" in fields else author_of_secret(fields["secret"])
    own = len(found) == 1 and found[0] is not None and (not found[0].parents or found[0].author == author)
    if own or None in found:
        return {"parents": tuple(parents)}
    chosen = tuple(TxId(each) for each in parents)
    try:
        aggregate = service.aggregates.average(chosen)
    except UnknownError:
        aggregate = START
    evidence = service.node.evidence(
        Selection(chosen, "parents", "by hand", 0, ()),
        selector=SELECTORS.build("top-k", {}),
        author=None,
        reference=None,
        reference_model=START,
        aggregate=aggregate,
    )
    encoded = evidence.encode()
    service._pending.keep(record := SelectionRecord(evidence_id(encoded), encoded, evidence))
    return {"selection": record.id}


def secret_for(service: LedgerService, selection: str | None) -> str:
    """What shows the author that a selection was made for; a new one's without."""
    reference = None if selection is None else service.selections.selection(Digest(selection)).evidence.reference
    return new_secret() if reference is None else secret_of(service.view(reference).stored.transaction.header.author)


@cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ledger.sqlite3"
        schema.upgrade(f"sqlite:///{file}")
        return file.read_bytes()


def prepare(
    database_url: str,
    data_dir: Path,
    *,
    genesis: Genesis | None = None,
    first: bytes | None = None,
    blobs: BlobPlace | None = None,
    s3: S3Address | None = None,
) -> TxId:
    """A database with a new ledger in it; returns the ledger's id. A new SQLite file is a copy of one that was migrated."""
    kind, _, file = database_url.partition(":///")
    if kind == "sqlite" and Path(file).parent.is_dir() and not Path(file).exists():
        Path(file).touch(0o600)
        Path(file).write_bytes(_migrated())
    store = open_store(database_url, data_dir=data_dir, blobs=blobs, s3=s3)
    try:
        return create_ledger(
            store,
            genesis or make_genesis(),
            first or model(1, 1, 1, 1),
            key=ISSUER,
            now_ms=CREATED_AT_MS,
        ).id
    finally:
        store.close()


def publication(fields: Mapping[str, Any] | bytes, model_bytes: bytes) -> dict[str, tuple[str, bytes, str]]:
    """The two parts of a publication, as an HTTP library takes them."""
    document = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return {
        "transaction": ("transaction.json", document, "application/json"),
        "model": ("model.safetensors", model_bytes, v1.MODEL_MEDIA_TYPE),
    }


@contextmanager
def serving(
    database_url: str,
    data_dir: Path,
    *,
    genesis: Genesis | None = None,
    first: bytes | None = None,
    new: bool = True,
    **flags: Any,
) -> Iterator[Server]:
    """A server over a new ledger, or (``new=False``) over the one that the database holds."""
    settings = load_settings(data_dir=data_dir, database_url=database_url, **flags)
    if new:
        blobs = settings.blobs
        prepare(database_url, data_dir, genesis=genesis, first=first, blobs=blobs.store, s3=blobs.s3)
    app = create_app(settings, key=ISSUER, clock_ms=lambda: NOW_MS)
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield Server(app, client, settings)


def signed(
    server: Running, model_bytes: bytes, *, seed: int = 50, sequence: int = 0, **changes: object
) -> dict[str, object]:
    """The fields of a publication that a client with a key has signed; ``changes`` come after signing."""
    key = key_from_seed(seed)
    unsigned = build_update(
        ledger=server.ledger_id,
        author=author_of(key),
        sequence=sequence,
        created_at_ms=CREATED_AT_MS,
        num_examples=5,
        start=START,
        model_digest=digest_of(model_bytes),
        model_size=len(model_bytes),
        parents=(server.ledger_id,),
        metrics={"accuracy": 0.25},
    )
    return {
        "parents": [server.ledger_id],
        "num_examples": 5,
        "start": START,
        "metrics": {"accuracy": 0.25},
        "author": author_of(key),
        "sequence": sequence,
        "created_at_ms": CREATED_AT_MS,
        "id": unsigned.id,
        "model_digest": digest_of(model_bytes),
        "signature": unsigned.sign_as_author(key).hex(),
        **changes,
    }


class InTurn:
    """The client of several servers that serve one ledger: each request goes to the next of them."""

    def __init__(self, clients: Sequence[TestClient]) -> None:
        self._next = cycle(clients)

    def __getattr__(self, name: str) -> Any:
        return getattr(next(self._next), name)


@contextmanager
def serving_together(database_url: str, data_dir: Path, *, count: int = 2, **flags: Any) -> Iterator[Server]:
    """As ``serving``, by several applications on one database that are asked in turn, as the processes of one server."""
    with ExitStack() as stack:
        new = flags.pop("new", True)
        servers = [
            stack.enter_context(serving(database_url, data_dir, new=new and not number, **flags))
            for number in range(count)
        ]
        yield Together(
            servers[0].app, cast("TestClient", InTurn([each.client for each in servers])), servers[0].settings
        )


class Together(Server):
    """Several applications; a test looks into the first."""

    @property
    def service(self) -> LedgerService:
        super().service.follow()
        return super().service
