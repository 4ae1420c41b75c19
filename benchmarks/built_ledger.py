"""Ledgers of a known shape, in a database of their own and in this process: for what HTTP would only blur.

Models are one tensor of ``DIMENSIONS`` float32 values, all of which are compared, in clusters: a client's update is its
cluster's direction plus noise, so that similarity falls in steps, as after real training.
"""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import harness  # noqa: F401  # pins the threads before NumPy loads
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import insert

from fl_core.dag.author import AuthorKind
from fl_core.dag.building import build_update
from fl_core.dag.figures import Figures, Step
from fl_core.dag.genesis import Bounds, Component, Genesis, compare_layers
from fl_core.dag.signature import public_key_of
from fl_core.dag.transaction import Transaction
from fl_core.models import ModelLayout, TensorSpec, encode_flat, model_norm
from fl_core.node import Publication
from fl_core.types import AuthorId, Digest, TxId, Vector32, digest_of
from ledger_server.founding import create_ledger
from ledger_server.publishing import LedgerService
from ledger_server.store import open_store
from ledger_server.store.engine import make_engine, parse_url, writing
from ledger_server.store.stored import StoredTransaction
from ledger_server.store.tables import transactions as transaction_rows

DIMENSIONS = 20_000
CACHE_BYTES = 96 << 20
"""The server's default."""
LAYOUT = ModelLayout.of([TensorSpec("weight", "F32", (DIMENSIONS,))])
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
STARTED_MS = 1_790_000_000_000
NOISE = 0.3


@dataclass(frozen=True, slots=True)
class Models:
    """A genesis model, and clients' models around their clusters' centres."""

    genesis: Vector32
    clients: tuple[Vector32, ...]

    @classmethod
    def of(cls, clients: int, *, clusters: int, seed: int = 11, dimensions: int = DIMENSIONS) -> "Models":
        rng = np.random.default_rng(seed)
        genesis = rng.standard_normal(dimensions, dtype=np.float32)
        centres = rng.standard_normal((clusters, dimensions), dtype=np.float32)
        noise = np.float32(NOISE)
        return cls(
            genesis,
            tuple(
                genesis + centres[each % clusters] + noise * rng.standard_normal(dimensions, dtype=np.float32)
                for each in range(clients)
            ),
        )

    @property
    def layout(self) -> ModelLayout:
        return ModelLayout.of([TensorSpec("weight", "F32", self.genesis.shape)])


def make_genesis(selector: str, layout: ModelLayout) -> Genesis:
    return Genesis(
        name="benchmark",
        layout=layout,
        comparison=compare_layers(["weight"]),
        selector=Component(selector),
        aggregator=Component("fedavg"),
        bounds=Bounds(max_candidates=1000),
    )


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def new_ledger(folder: Path, models: Models, *, selector: str) -> Path:
    """Make a ledger that holds nothing but genesis, in the new ``folder``; returns the database's file."""
    folder.mkdir()
    file = folder / "ledger.sqlite3"
    with open_store(f"sqlite:///{file}", data_dir=folder) as store:
        genesis = make_genesis(selector, models.layout)
        create_ledger(store, genesis, encode_flat(models.layout, models.genesis), key=KEY, now_ms=STARTED_MS)
    return file


@contextmanager
def serving(file: Path) -> Iterator[LedgerService]:
    """The service over a ledger's file, as ``create_app`` builds it."""
    with open_store(f"sqlite:///{file}", data_dir=file.parent) as store:
        service = LedgerService(store, key=KEY, now_ms=now_ms, cache_bytes=CACHE_BYTES)
        try:
            yield service
        finally:
            service.close()


def publish_all(service: LedgerService, models: Models) -> list[TxId]:
    """One transaction of one new author each, all on genesis, by the service's own way of publishing."""
    return [
        service.publish(
            Publication(num_examples=100, parents=(service.id,), secret=secrets.token_hex(32)),
            encode_flat(models.layout, vector),
        ).transaction
        for vector in models.clients
    ]


def grow(file: Path, *, authors: int, generations: int, is_stating: bool = False) -> list[TxId]:
    """Append ``generations`` transactions of each of ``authors`` by rows, all naming genesis's model.

    With ``is_stating`` each states an accuracy and a loss, as clients that train do.

    Each approves its author's newest and another author's, so only the last generation has tips. Written past the
    store, in one database transaction, because a durable append each would take minutes; the tables' own
    constraints and triggers watch over it, and a start reads it as any other journal. Signatures are real.

    Returns:
        The last generation.
    """
    with open_store(f"sqlite:///{file}", data_dir=file.parent) as store:
        held = store.genesis()
    assert held is not None
    genesis = held[0]
    keys = [Ed25519PrivateKey.from_private_bytes(bytes([i // 256, i % 256]) + bytes(30)) for i in range(authors)]
    newest: list[TxId] = [genesis.id] * authors
    engine = make_engine(parse_url(f"sqlite:///{file}"))
    try:
        with writing(engine) as connection:
            for generation in range(generations):
                rows, newest = _generation(genesis, keys, generation, newest, is_stating=is_stating)
                connection.execute(insert(transaction_rows), rows)
    finally:
        engine.dispose()
    return newest


def _generation(
    genesis: Transaction, keys: list[Ed25519PrivateKey], generation: int, before: list[TxId], *, is_stating: bool
) -> tuple[list[dict[str, object]], list[TxId]]:
    authors, newest = len(keys), list[TxId]()
    rows: list[dict[str, object]] = []
    for author, key in enumerate(keys):
        approved = tuple(sorted({before[author], before[(author + 1 + generation) % authors]}))
        right = 1 - 0.9 * 0.999**generation
        metrics = {"accuracy": right, "loss": 1 - right} if is_stating else None
        sealed = seal(key, genesis, sequence=generation, parents=approved, metrics=metrics)
        newest.append(sealed.id)
        rows.append(
            {
                "arrival": 1 + generation * authors + author,
                "id": sealed.id,
                "header": sealed.header_bytes,
                "author_signature": sealed.author_signature,
                "receipt": sealed.receipt.encode(),
                "model_digest": genesis.header.model_digest,
                "attachment_digest": None,
                "figures": Figures(1.0, Step(1.0, (1.0,)), (1 / len(approved),) * len(approved)).encode(),
                "received_at_ms": STARTED_MS,
                "depth": generation + 1,
            }
        )
    return rows, newest


def first_publication(service: LedgerService) -> Publication:
    """On genesis, by an author who has not published before."""
    return Publication(num_examples=100, parents=(service.id,), secret=secrets.token_hex(32))


def seal(
    key: Ed25519PrivateKey,
    genesis: Transaction,
    *,
    sequence: int,
    parents: tuple[TxId, ...],
    model_digest: Digest | None = None,
    metrics: dict[str, float] | None = None,
) -> Transaction:
    """A site's transaction, signed by its author and by this server's key."""
    unsigned = build_update(
        ledger=genesis.id,
        author=author_of(key),
        sequence=sequence,
        created_at_ms=STARTED_MS + sequence,
        num_examples=100,
        start=genesis.header.model_digest,
        model_digest=model_digest or genesis.header.model_digest,
        model_size=genesis.header.model_size,
        parents=parents,
        metrics=metrics,
    )
    return unsigned.issue(KEY, author_signature=unsigned.sign_as_author(key), received_at_ms=STARTED_MS + sequence)


def author_of(key: Ed25519PrivateKey) -> AuthorId:
    return AuthorKind.ED25519.author(public_key_of(key))


def crown(file: Path, models: Models, newest: list[TxId]) -> list[TxId]:
    """One more generation, each with a model of its own: the tips, alike whatever lies below them."""
    tips = []
    with open_store(f"sqlite:///{file}", data_dir=file.parent) as store:
        held = store.genesis()
        assert held is not None
        length = store.length()
        for author, (vector, own) in enumerate(zip(models.clients, newest, strict=True)):
            key = Ed25519PrivateKey.from_private_bytes(bytes([author // 256, author % 256]) + bytes(30))
            data = encode_flat(models.layout, vector)
            sealed = seal(key, held[0], sequence=100_000, parents=(own,), model_digest=digest_of(data))
            new = StoredTransaction(length + author, sealed, Figures(model_norm(vector)).encode(), STARTED_MS)
            store.append(new, model=data, attachment=None)
            tips.append(sealed.id)
    return tips
