"""Where a ledger can be read from: a bundle, a server's database, or a live server. Each is a ``LedgerSource``.

``open_source`` tells them apart by what the person wrote. None of them decides whether the ledger is sound.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dag_acfl.commands.options import retries_shown
from fl_core.dag.genesis import Genesis, parse_genesis
from fl_core.dag.transaction import Header, Kind, Transaction
from fl_core.errors import (
    DigestMismatchError,
    EvidenceArchivedError,
    GenesisError,
    ModelPrunedError,
    ParameterError,
    UnknownError,
)
from fl_core.types import Digest, TxId
from fl_core.verify import LedgerSource
from ledger_server.admin.bundle import Bundle
from ledger_server.admin.store_source import open_store_source
from ledger_server.peers import Peer, parse_peer

if TYPE_CHECKING:
    from fl_client.client import LedgerClient

SERVER_TIMEOUT_S = 15.0
"""For one request to a live server, all attempts included."""

_PAGE = 100
_URL_SCHEMES = ("http://", "https://")
_DATABASE_SCHEMES = ("sqlite:", "postgresql:", "postgresql+")


def open_source(target: str | None, *, token: str | None = None) -> AbstractContextManager[LedgerSource]:
    """Open what ``target`` names: a bundle's file, a data folder, a database URL, or a server's URL.

    Args:
        target: None stands for the ledger that ``serve`` would serve without options.
        token: Bearer token for a live server.

    Raises:
        ParameterError: ``target`` is none of these.
        GenesisError: There is no ledger in the database.
        DagAcflError: Whatever the source raises when it cannot be opened.
    """
    if target is None:
        return open_store_source(None, None)
    if target.startswith(_URL_SCHEMES):
        return _open_server(target, token)
    if target.startswith(_DATABASE_SCHEMES):
        return open_store_source(None, target)
    path = Path(target)
    if (path / "ledger.sqlite3").is_file():
        # Whatever DAG_ACFL_DATABASE_URL says: a backup is looked at beside a server that has it set.
        from sqlalchemy.engine import URL  # noqa: PLC0415 (half a second)

        url = URL.create("sqlite", database=str(path / "ledger.sqlite3"))
        return open_store_source(path, url.render_as_string(hide_password=False))
    if path.is_dir():
        return open_store_source(path, None)
    if path.is_file():
        return Bundle(path)
    raise ParameterError(f"{target}: no such file or folder, and no URL of a server or a database")


def genesis_and_headers(source: LedgerSource) -> tuple[Genesis, dict[TxId, Header]]:
    """A ledger's rules, and all its headers, in its order.

    Raises:
        GenesisError: It has no whole genesis.
    """
    headers = {transaction.id: transaction.header for _, transaction in source.transactions()}
    first = next((each for each in headers.values() if each.kind is Kind.GENESIS), None)
    document = None if first is None else source.attachment(first.attachment_digest)
    if document is None:
        raise GenesisError("there is no whole genesis here; run: dag-acfl ledger verify")
    return parse_genesis(document), headers


@contextmanager
def _open_server(url: str, token: str | None) -> Iterator[LedgerSource]:
    from fl_client.client import LedgerClient  # noqa: PLC0415

    with (
        retries_shown(),
        LedgerClient(url, timeout=SERVER_TIMEOUT_S, token=token) as client,
        tempfile.TemporaryDirectory(prefix="dag-acfl-") as folder,
    ):
        yield ServerSource(client, Path(folder))


class ServerSource:
    """A live server, asked through its public API; models are kept in ``folder``, each fetched once."""

    def __init__(self, client: "LedgerClient", folder: Path) -> None:
        self._client, self._folder = client, folder
        self._ledger = client.version().ledger
        self._carriers: dict[str, str] = {}
        """Of each attachment, a transaction that carries it."""
        self._pruned: set[str] = set()
        self._archived: set[str] = set()
        self.is_archive: bool = False

    @property
    def ledger(self) -> str:
        """The ledger that the server says it serves."""
        return self._ledger

    def servers(self, url: str) -> tuple[Peer, ...]:
        """This server, which ``url`` reaches, and those that it knows; what is no address or no key is left out."""
        known, parts = self._client.peers(), urlsplit(url)
        entries = [(f"{parts.scheme}://{parts.netloc}", known.public_key)]
        entries += [(each.url, each.public_key) for each in known.items]
        found = []
        for number, (address, key) in enumerate(entries, 1):
            with suppress(ParameterError):
                found.append(parse_peer(f"server-{number}={address}#{key}"))
        return tuple(found)

    def transactions(self) -> Iterator[tuple[str, Transaction]]:
        """All transactions up to the moment when the last page was asked for."""
        from fl_client.reader import transaction_of  # noqa: PLC0415

        cursor: str | None = None
        while True:
            page = self._client.transactions(cursor, limit=_PAGE)
            for item in page.items:
                if item.attachment is not None:
                    self._carriers[item.attachment.digest] = item.id
                yield item.id, transaction_of(item)
            cursor = page.next
            if cursor is None:
                return

    def attachment(self, digest: Digest) -> bytes | None:
        carrier = self._carriers.get(digest)
        if carrier is None:
            return None
        try:
            return self._client.attachment_bytes(carrier)
        except EvidenceArchivedError:
            self._archived.add(digest)
            return None
        except UnknownError:
            return None
        except DigestMismatchError:
            return b""  # the SDK keeps wrong bytes to itself; these hash to something else as well

    def figures(self, _: str) -> None:
        """See ``LedgerSource``: a server does not show them."""

    def model_size(self, digest: Digest) -> int | None:
        """A model's size in bytes; 0 for one whose bytes were wrong."""
        path = self._folder / digest
        if not path.exists():
            try:
                path.write_bytes(self._client.download(digest))
            except ModelPrunedError:
                self._pruned.add(digest)
                return None
            except UnknownError:
                return None
            except DigestMismatchError:
                path.write_bytes(b"")
        return path.stat().st_size

    @property
    def pruned(self) -> int:
        """How many models the server says it has pruned."""
        return self._client.costs().pruned_models

    def acts(self) -> bytes:
        return self._client.acts()

    def checkpoints(self) -> Sequence[bytes]:
        """None: a server shows them to nobody; its database and its bundles have them."""
        return ()

    def is_pruned(self, digest: Digest) -> bool:
        """Whether the server answered ``model_size`` that it has pruned this model."""
        return digest in self._pruned

    def is_archived(self, digest: Digest) -> bool:
        """Whether the server answered ``attachment`` that this evidence was archived."""
        return digest in self._archived

    def read_model(self, digest: Digest, start: int, stop: int) -> bytes:
        """A piece of a model that ``model_size`` has fetched."""
        with (self._folder / digest).open("rb") as file:
            file.seek(start)
            return file.read(stop - start)
