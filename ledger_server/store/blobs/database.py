"""Models in rows of the journal's database, in pieces of 1 MiB: the ``database`` store."""

from collections.abc import Collection, Iterator
from typing import Final

from sqlalchemy import Connection, bindparam, delete, exists, insert, select

from fl_core.models import Buffer
from fl_core.types import Digest
from ledger_server.store.blobs.protocol import BlobStore, ModelReader
from ledger_server.store.database import Database
from ledger_server.store.errors import StoreInconsistentError
from ledger_server.store.tables import PIECE_BYTES, model_pieces, models, padded

_DIGESTS_PER_PAGE: Final = 1000

_IS_HERE = select(exists().where(model_pieces.c.digest == bindparam("digest")))
_PIECES = (
    select(model_pieces.c.data)
    .where(
        model_pieces.c.digest == bindparam("digest"),
        model_pieces.c.number.between(bindparam("first"), bindparam("last")),
    )
    .order_by(model_pieces.c.number)
)
_SMALL = (
    select(model_pieces.c.digest, model_pieces.c.data)
    .join(models, models.c.digest == model_pieces.c.digest)
    .where(
        model_pieces.c.digest.in_(bindparam("digests", expanding=True)),
        models.c.pruned_at_ms.is_(None),
        models.c.base.is_(None),
        models.c.size <= PIECE_BYTES,
    )
)
_ADD = insert(model_pieces)
_DROP = delete(model_pieces).where(model_pieces.c.digest == bindparam("of"))
_DIGESTS = (
    select(model_pieces.c.digest)
    .where(model_pieces.c.number == 0, model_pieces.c.digest > bindparam("after"))
    .order_by(model_pieces.c.digest)
    .limit(_DIGESTS_PER_PAGE)
)


class DatabaseBlobs(BlobStore):
    """A model is written in the transaction that names it, so none is left over but by a drop that failed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, connection: Connection, digest: Digest, data: Buffer) -> None:
        # Slices of a memoryview: SQLite copies each once, into its own pages; Python copies nothing.
        view = memoryview(data)
        pieces = enumerate(range(0, len(view), PIECE_BYTES))
        rows = [{"digest": digest, "number": n, "data": view[start : start + PIECE_BYTES]} for n, start in pieces]
        connection.execute(_ADD, rows)

    def replace(self, connection: Connection, digest: Digest, data: Buffer) -> None:
        self.drop(connection, digest)
        self.put(connection, digest, data)

    def get(self, digest: Digest, size: int) -> bytes | None:
        pieces = self.pieces(digest, 0, (size - 1) // PIECE_BYTES)
        if not pieces:
            return None
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def small(self, digests: Collection[Digest]) -> dict[Digest, bytes]:
        with self._database.reading() as connection:
            rows = connection.execute(_SMALL, {"digests": padded(digests)}).all()
        return {row.digest: row.data for row in rows}

    def pieces(self, digest: Digest, first: int, last: int) -> list[bytes]:
        """Pieces ``first`` to ``last`` of a model, as far as they are here."""
        with self._database.reading() as connection:
            return list(connection.execute(_PIECES, {"digest": digest, "first": first, "last": last}).scalars())

    def open(self, digest: Digest, size: int) -> "DatabaseReader | None":
        with self._database.reading() as connection:
            is_here = connection.execute(_IS_HERE, {"digest": digest}).scalar_one()
        return DatabaseReader(self, digest, size) if is_here else None

    def drop(self, connection: Connection, digest: Digest) -> None:
        connection.execute(_DROP, {"of": digest})

    def digests(self) -> Iterator[Digest]:
        after = ""
        while True:
            with self._database.reading() as connection:
                page: list[Digest] = list(connection.execute(_DIGESTS, {"after": after}).scalars())
            yield from page
            if len(page) < _DIGESTS_PER_PAGE:
                return
            after = page[-1]


class DatabaseReader(ModelReader):
    """A model in pieces. It keeps its latest piece and no connection, so threads may share it."""

    def __init__(self, blobs: DatabaseBlobs, digest: Digest, size: int) -> None:
        super().__init__(size)
        self._blobs, self._digest = blobs, digest
        self._latest: tuple[int, bytes] = (-1, b"")

    def _read(self, start: int, stop: int) -> bytes:
        first, last = start // PIECE_BYTES, (stop - 1) // PIECE_BYTES
        number, latest = self._latest  # one read of the pair: another thread may replace it
        pieces = [latest] if number == first else []
        if first + len(pieces) <= last:
            pieces += self._blobs.pieces(self._digest, first + len(pieces), last)
            if len(pieces) != last - first + 1:
                raise StoreInconsistentError(
                    f"pieces of model {self._digest[:16]}… are missing; run: dag-acfl ledger verify"
                )
            self._latest = (last, pieces[-1])
        base = first * PIECE_BYTES
        if len(pieces) == 1:
            return pieces[0][start - base : stop - base]
        pieces[0] = pieces[0][start - base :]
        pieces[-1] = pieces[-1][: stop - last * PIECE_BYTES]
        return b"".join(pieces)
