"""How models leave a store: recorded as pruned in the journal first, dropped from where their bytes lie after that.

What a crash leaves between the two, and between a model's bytes and the transaction that was to carry them, ``sweep``
drops.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Select, bindparam, exists, func, select, update

from fl_core.types import Digest
from ledger_server.store.appending import DROP_SKETCHES
from ledger_server.store.blobs.protocol import BlobStore
from ledger_server.store.database import Database
from ledger_server.store.engine import batches
from ledger_server.store.errors import StoreError, StoreInconsistentError
from ledger_server.store.tables import CHANGED, models, transactions

logger: logging.Logger = logging.getLogger(__name__)

_DROP_PAGE: Final = 20
"""A deletion in a bucket takes a round trip, and publications wait for a page of them."""
_PAGE: Final = 500
"""Digests that one question to the database names."""

# Statements are built once: SQLAlchemy then finds their SQL by identity instead of compiling it.
_HELD = (
    select(models.c.digest, models.c.size)
    .where(models.c.digest > bindparam("after"), models.c.pruned_at_ms.is_(None))
    .order_by(models.c.digest)
    .limit(bindparam("limit"))
)
_HELD_AMONG = select(models.c.digest).where(
    models.c.digest.in_(bindparam("digests", expanding=True)), models.c.pruned_at_ms.is_(None)
)
_PRUNED_AMONG = select(models.c.digest).where(
    models.c.digest.in_(bindparam("digests", expanding=True)), models.c.pruned_at_ms.is_not(None)
)
_IS_PRUNED = select(exists().where(models.c.digest == bindparam("digest"), models.c.pruned_at_ms.is_not(None)))
_PRUNED_COUNT = select(func.count()).select_from(models).where(models.c.pruned_at_ms.is_not(None))
_PRUNED_UP_TO = (
    select(transactions.c.arrival)
    .join(models, models.c.digest == transactions.c.model_digest)
    .where(models.c.pruned_at_ms.is_not(None))
    .order_by(transactions.c.arrival.desc())
    .limit(1)
)
_GENESIS_MODEL = select(transactions.c.model_digest).where(transactions.c.arrival == 0)
_TO_PRUNE = select(models.c.digest, models.c.size).where(
    models.c.digest.in_(bindparam("digests", expanding=True)),
    models.c.pruned_at_ms.is_(None),
    # What came after the caller had looked may carry one of these models.
    models.c.digest.not_in(select(transactions.c.model_digest).where(transactions.c.arrival >= bindparam("known"))),
)
_SET_PRUNED = (
    update(models)
    .where(models.c.digest == bindparam("of"))
    .values(pruned_at_ms=bindparam("at_ms"), base=None, packed_size=None)
)


@dataclass(frozen=True, slots=True)
class HeldModel:
    """A model whose bytes are here."""

    digest: Digest
    size: int


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many models were pruned, and the size of all of them."""

    models: int
    nbytes: int


class Removal:
    """The models that are pruned, and how more of them are; safe to use from many threads and processes.

    All methods raise only ``ledger_server.store.errors.StoreError``.

    Args:
        database: The journal's.
        blobs: Where models' bytes lie.
    """

    def __init__(self, database: Database, blobs: BlobStore) -> None:
        self._database, self._blobs = database, blobs

    def is_pruned(self, digest: Digest) -> bool:
        """Whether a transaction here carries this model, and its bytes were dropped by ``prune`` or never came."""
        with self._database.reading() as connection:
            return bool(connection.execute(_IS_PRUNED, {"digest": digest}).scalar_one())

    def pruned_among(self, digests: Iterable[Digest]) -> list[Digest]:
        """Those of these models that are pruned."""
        return self._among(_PRUNED_AMONG, digests)

    def held_among(self, digests: Iterable[Digest]) -> list[Digest]:
        """Those of these models that a transaction here carries, and that are not pruned."""
        return self._among(_HELD_AMONG, digests)

    def _among(self, statement: Select[Any], digests: Iterable[Digest]) -> list[Digest]:
        found: list[Digest] = []
        for page in batches(digests, _PAGE):
            with self._database.reading() as connection:
                found += connection.execute(statement, {"digests": page}).scalars()
        return found

    def count(self) -> int:
        """How many models are pruned."""
        with self._database.reading() as connection:
            return int(connection.execute(_PRUNED_COUNT).scalar_one())

    def up_to(self) -> int:
        """How many transactions there are up to the last whose model is pruned; 0: none is."""
        with self._database.reading() as connection:
            arrival: int | None = connection.execute(_PRUNED_UP_TO).scalar_one_or_none()
        return 0 if arrival is None else arrival + 1

    def held(self, *, after: Digest | None, limit: int) -> list[HeldModel]:
        """At most ``limit`` models whose bytes are here, by digest, beyond ``after`` (None: from the first)."""
        with self._database.reading() as connection:
            rows = connection.execute(_HELD, {"after": after or "", "limit": limit}).all()
        return [HeldModel(*row) for row in rows]

    def prune(self, digests: Sequence[Digest], *, known: int, now_ms: int) -> Pruned:
        """Record models as pruned, durably, tell all processes and drop the bytes; ``Store.model`` then answers None.

        A model is left as it is when a transaction of arrival ``known`` or later carries it: the caller has not
        seen that one. Publications wait meanwhile, so some dozens of models at a time. Bytes that cannot be dropped now
        are dropped by ``sweep``.

        Args:
            digests: Of ``HeldModel``; those that are pruned already are passed over.
            known: How many transactions the caller knew when it decided.
            now_ms: Milliseconds since 1970 UTC.

        Raises:
            StoreUnavailableError: Nothing is pruned.
            StoreInconsistentError: Genesis's model is among them, which is never pruned.
        """
        with self._database.writing(durable=True) as connection:
            if connection.execute(_GENESIS_MODEL).scalar_one_or_none() in digests:
                raise StoreInconsistentError("genesis's model is never pruned")
            rows = connection.execute(_TO_PRUNE, {"digests": digests, "known": known}).all()
            if rows:
                connection.execute(_SET_PRUNED, [{"of": row.digest, "at_ms": now_ms} for row in rows])
                connection.execute(DROP_SKETCHES, {"models": [row.digest for row in rows]})
                connection.execute(CHANGED)
        try:
            self._drop([row.digest for row in rows])
        except StoreError as error:
            logger.warning("pruned models still take space", extra={"reason": str(error)})
        return Pruned(len(rows), sum(row.size for row in rows))

    def sweep(self) -> int:
        """Drop models' bytes that no transaction holds: what a crash left between prune and drop, or put and append.

        Returns:
            How many were dropped.

        Raises:
            StoreUnavailableError: What is left is dropped by the next call.
        """
        for digest in self.held_among(self._blobs.dropped()):  # the journal is an older one, put back from a copy
            self._blobs.take_back(digest)
        dropped = sum(self._drop(page) for page in batches(self._blobs.settled(), _PAGE))
        self.collect()
        return dropped

    def collect(self) -> int:
        """Delete the models that all servers of a shared bucket have dropped; returns how many.

        Raises:
            StoreUnavailableError: What is left is deleted by the next call, here or by another server.
        """
        return self._blobs.collect(self._holds)

    def _holds(self, digest: Digest) -> bool:
        return bool(self.held_among([digest]))

    def _drop(self, digests: Sequence[Digest]) -> int:
        """Drop those blobs that no transaction holds, a few at a time, since publications wait meanwhile."""
        with self._database.reading() as connection:
            candidates = self._unneeded(connection, digests)
        dropped = 0
        for batch in batches(candidates, _DROP_PAGE):
            with self._database.writing(durable=False) as connection:
                # Asked again where no publication can come in between: a digest may come back at any time.
                for digest in self._unneeded(connection, batch):
                    self._blobs.drop(connection, digest)
                    dropped += 1
        return dropped

    def _unneeded(self, connection: Connection, digests: Sequence[Digest]) -> list[Digest]:
        """Those blobs that no transaction holds; in a shared place only where it is known that none does any more."""
        found = set(
            connection.execute(_PRUNED_AMONG if self._blobs.is_shared else _HELD_AMONG, {"digests": digests}).scalars()
        )
        return [each for each in digests if (each in found) == self._blobs.is_shared]
