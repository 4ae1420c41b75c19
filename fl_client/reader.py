"""Reading a ledger: every question of the API as a typed call, and nothing in the answers believed unchecked."""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Final, Self

from cachetools import LRUCache

from fl_client.bucket import Bucket
from fl_client.download import ModelDownload
from fl_client.errors import AnswerInvalidError, ConnectionFailedError
from fl_client.events import Event, EventStream
from fl_client.retry import RefusedError, Server
from fl_client.session import Session, refusal
from fl_client.transport import ByteCounts, Response
from fl_core.dag.genesis import Genesis, parse_genesis
from fl_core.dag.receipt import Receipt
from fl_core.dag.transaction import Kind, Transaction, decode_header, transaction_id
from fl_core.errors import CursorUnknownError, DigestMismatchError, GenesisError, ParameterError
from fl_core.models import Buffer
from fl_core.types import Digest, PublicKey, TxId, digest_of, is_hex_id
from fl_core.wire import v1

DEFAULT_CACHE_BYTES: Final = 64 << 20
DEFAULT_TIMEOUT_S: Final = 300.0
MAX_MODEL_BYTES: Final = 4 << 30
"""Bound of a download while the ledger's own size is not known yet."""


@dataclass(frozen=True, slots=True)
class GenesisInfo:
    """A ledger's rules, verified: the document is the one that the genesis transaction names."""

    genesis: Genesis
    transaction: Transaction

    @property
    def ledger(self) -> TxId:
        """The ledger's id: that of its genesis transaction."""
        return self.transaction.id

    @property
    def model_digest(self) -> Digest:
        return self.transaction.header.model_digest

    @property
    def model_size(self) -> int:
        """Size of every model of this ledger, in bytes."""
        return self.genesis.layout.nbytes


class LedgerReader:
    """Reads one ledger. Safe to share between threads; close it, or use it as a context manager.

    Args:
        servers: Addresses such as ``http://localhost:8900``, in order of preference. All must serve one
            ledger.
        ledger: The only ledger to talk to; None takes that of the first server that answers.
        timeout: Seconds for a call with all its retries, above 0.
        token: Bearer token, where the servers (or a proxy) ask for one; sent to all of them.
        ca_file: PEM of the authority behind the servers' certificates.
        cache_bytes: Memory for models that went through this reader.
        bucket: What links of the servers' bucket begin with, such as ``https://s3.example.org/models``: updates' models
            may come from there, without the token. None: servers give all models themselves.

    Raises:
        ParameterError: An argument is out of range.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        ledger: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
        token: str | None = None,
        ca_file: Path | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        bucket: str | None = None,
    ) -> None:
        addresses = [servers] if isinstance(servers, str) else list(dict.fromkeys(servers))
        self._session = Session(addresses, ledger=ledger, total_s=timeout, token=token, ca_file=ca_file)
        self._bucket = None if bucket is None else Bucket(bucket, addresses, traffic=self.traffic, ca_file=ca_file)
        self._genesis: GenesisInfo | None = None
        self._models: LRUCache[Digest, memoryview] = LRUCache(cache_bytes, getsizeof=len)
        self._models_lock = Lock()

    @property
    def traffic(self) -> ByteCounts:
        """Bytes that have gone over the network so far."""
        return self._session.traffic

    def be_patient(self, patience_s: float) -> float:
        """From now on, try a call again for so many seconds at most, as far as ``timeout`` allows; returns the old."""
        before_s, self._session.servers.patience_s = self._session.servers.patience_s, patience_s
        return before_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._session.servers.close()
        if self._bucket is not None:
            self._bucket.endpoint.close()

    def genesis(self) -> GenesisInfo:
        """The ledger's rules; verified once, then remembered.

        Raises:
            DigestMismatchError, GenesisError, SignatureError: The server's genesis is not what its ids say.
            WrongLedgerError: It is another ledger than the pinned one.
        """
        if self._genesis is None:
            self._genesis = self._session.servers.call(self._fetch_genesis)
            self._session.ledger = self._genesis.ledger
        return self._genesis

    def _fetch_genesis(self, server: Server, deadline: float) -> GenesisInfo:
        out = self._session.get(server, v1.GENESIS, v1.GenesisOut, deadline)
        path = v1.path(v1.TRANSACTION_ATTACHMENT, transaction=out.ledger)
        document = self._session.get_bytes(server, path, deadline)
        transaction = transaction_of(out.transaction)
        # Before the header is read: its bytes are nobody's until then.
        fault = f"{server.endpoint.url} calls its ledger {out.ledger[:16]}…, its genesis transaction is another"
        _check_digest(fault, claimed=out.ledger, computed=transaction.id)
        header = transaction.header
        if header.kind is not Kind.GENESIS:
            raise GenesisError("the transaction that the server calls genesis is not one")
        fault = "the genesis document is not the one that the genesis transaction names"
        _check_digest(fault, claimed=header.attachment_digest, computed=digest_of(document))
        transaction.verify_signatures()
        genesis = parse_genesis(document)
        if header.model_size != genesis.layout.nbytes:
            raise DigestMismatchError(
                f"the genesis model has {header.model_size} bytes, its layout {genesis.layout.nbytes}"
            )
        return GenesisInfo(genesis, transaction)

    def genesis_model(self) -> memoryview:
        return self.download(self.genesis().model_digest)

    def ledger_id(self) -> TxId:
        """The ledger's id, asked for if it is not known yet."""
        return TxId(self._session.ledger) if self._session.ledger is not None else self.genesis().ledger

    def download(self, digest: str) -> memoryview:
        """A model's bytes by their SHA-256, from memory if they have been here; read-only.

        A download that is cut continues where it stopped, on whichever server answers.

        Raises:
            ModelUnknownError: No server holds it.
            ModelPrunedError: None does, for it was pruned.
            DigestMismatchError: What came are other bytes.
        """
        if not is_hex_id(digest):
            raise ParameterError("a digest is 64 lowercase hexadecimal digits")
        wanted = Digest(digest)
        if (known := self._known_model(wanted)) is not None:
            return known
        limit = MAX_MODEL_BYTES if self._genesis is None else self._genesis.model_size
        download = ModelDownload(wanted, limit=limit, bucket=self._bucket)

        def attempt(server: Server, deadline: float) -> memoryview:
            outcome = download.resume(server.endpoint, deadline=deadline)
            if isinstance(outcome, Response):
                raise refusal(server, outcome)
            return outcome

        model = self._session.call(attempt, first=self._session.origin_of(wanted))
        self._remember_model(wanted, model)
        return model

    def _known_model(self, digest: Digest) -> memoryview | None:
        with self._models_lock:
            return self._models.get(digest)

    def _remember_model(self, digest: Digest, model: Buffer) -> None:
        with self._models_lock, suppress(ValueError):  # it is larger than the cache
            self._models[digest] = memoryview(model).toreadonly()

    def holds(self, digest: str) -> bool:
        """Whether ``download`` needs no server for this model."""
        return self._known_model(Digest(digest)) is not None

    def selection(self, selection: str) -> v1.SelectionOut:
        """A selection with its evidence."""
        path = v1.path(v1.SELECTION, selection=selection)
        return self._session.read(path, v1.SelectionOut, first=self._session.origin_of(selection))

    def transactions(self, after: str | None = None, *, limit: int = 100) -> v1.TransactionPage:
        """A page in the server's order of arrival; give its ``next`` as ``after`` until that is None.

        Raises:
            CursorUnknownError: Another server answered than the one that gave the cursor; start again.
        """
        query = f"?limit={limit}" + ("" if after is None else f"&after={after}")

        def attempt(server: Server, deadline: float) -> v1.TransactionPage:
            page = self._session.get(server, f"{v1.TRANSACTIONS}{query}", v1.TransactionPage, deadline)
            for item in page.items:
                self._session.check_ledger(server, item.ledger)
            if page.next is not None:
                self._session.remember_origin(server, _epoch(page.next))
            return page

        return self._session.call(attempt, first=self._session.origin_of(_epoch(after)))

    def transaction(self, transaction: str) -> v1.TransactionOut:
        """One transaction; its header bytes are checked against its id."""
        out = self._session.read(v1.path(v1.TRANSACTION, transaction=transaction), v1.TransactionOut)
        fault = "the header is not that of the transaction"
        _check_digest(fault, claimed=transaction, computed=out.id)
        _check_digest(fault, claimed=transaction, computed=transaction_of(out).id)
        return out

    def header_bytes(self, transaction: str) -> bytes:
        """A transaction's canonical bytes, checked against its id."""
        data = self._session.read_bytes(v1.path(v1.TRANSACTION_HEADER, transaction=transaction))
        _check_digest("the header is not that of the transaction", claimed=transaction, computed=transaction_id(data))
        return data

    def attachment_bytes(self, transaction: str) -> bytes:
        """A transaction's attachment (genesis document or selection evidence), checked against its header."""
        claimed = decode_header(self.header_bytes(transaction)).attachment_digest
        data = self._session.read_bytes(v1.path(v1.TRANSACTION_ATTACHMENT, transaction=transaction))
        _check_digest("the attachment is not the one that the header names", claimed=claimed, computed=digest_of(data))
        return data

    def acts(self) -> bytes:
        """The members' signed acts, one behind the other, as the server gives them (``fl_core.dag.acts``)."""
        return bytes(self._session.read_bytes(v1.ACTS))

    def model(self, transaction: str) -> memoryview:
        """A transaction's model, as ``download``."""
        return self.download(decode_header(self.header_bytes(transaction)).model_digest)

    def tips(self) -> v1.TipsOut:
        """Transactions that nobody approves."""
        return self._session.read(v1.TIPS, v1.TipsOut)

    def clusters(self) -> v1.ClustersOut:
        """Communities of the approval graph."""
        return self._session.read(v1.CLUSTERS, v1.ClustersOut)

    def clients(self) -> v1.ClientsOut:
        """All authors and what each published last."""
        return self._session.read(v1.CLIENTS, v1.ClientsOut)

    def alarms(self) -> v1.AlarmsOut:
        """What is odd about updates, as the server that answers has seen them come in."""
        return self._session.read(v1.ALARMS, v1.AlarmsOut)

    def quarantine(self) -> v1.QuarantineOut:
        """Who and what is quarantined or erased, and which clients that affects."""
        return self._session.read(v1.QUARANTINE, v1.QuarantineOut)

    def peers(self) -> v1.PeersOut:
        """The server's own key and its peers."""
        return self._session.read(v1.PEERS, v1.PeersOut)

    def costs(self) -> v1.CostsOut:
        """Bytes moved and stored, beside the formulas of [DAG-ACFL Eq. 8 and 10]."""
        return self._session.read(v1.COSTS, v1.CostsOut)

    def version(self) -> v1.VersionOut:
        """What the first server that answers runs, whatever its ledger."""
        return self._session.servers.call(
            lambda server, deadline: self._session.get(server, "/version", v1.VersionOut, deadline)
        )

    def health(self) -> v1.HealthOut:
        """Whether the first server that answers can serve; not retried.

        Raises:
            ServerUnavailableError: None answers.
        """
        return self._session.servers.sweep(
            lambda server, deadline: self._session.get(server, "/readyz", v1.HealthOut, deadline),
            time.monotonic() + self._session.total_s,
        )

    def events(self, *, after: str | None = None) -> Iterator[Event]:
        """Transactions as they are admitted, without end; a lost connection is taken up again.

        On the same server nothing is missed. After a change of server, whose order of arrival is its own, the stream
        goes on with what that server admits from then on.

        Args:
            after: Cursor of an earlier event.

        Raises:
            ServerUnavailableError: No server answered for the client's total time.
        """
        cursor, origin = after, self._session.origin_of(_epoch(after))

        def attempt(server: Server, _: float) -> tuple[EventStream, str]:
            try:
                return EventStream(self._session, server, cursor), server.endpoint.url
            except RefusedError as refused:
                if not isinstance(refused.error, CursorUnknownError):
                    raise
                return EventStream(self._session, server, None), server.endpoint.url

        while True:
            stream, origin = self._session.call(attempt, first=origin)
            try:
                yield from stream
            except (ConnectionFailedError, AnswerInvalidError):
                time.sleep(0.2)  # a server that accepts and hangs up at once is not asked in a tight loop
            finally:
                cursor = stream.cursor
                stream.close()


def _check_digest(fault: str, *, claimed: str, computed: str) -> None:
    if computed != claimed:
        raise DigestMismatchError(fault, claimed=claimed, computed=computed)


def _epoch(cursor: str | None) -> str:
    """The order of arrival that a cursor is of: one server's, until a backup is put back there."""
    return (cursor or "").partition("-")[0]


def receipt_of(out: v1.ReceiptOut) -> Receipt:
    """A server's receipt, as the values that it signed."""
    return Receipt(PublicKey(out.issuer), out.received_at_ms, out.members_version, bytes.fromhex(out.signature))


def transaction_of(out: v1.TransactionOut) -> Transaction:
    """What the server sent, as the values that the ids and signatures are computed over."""
    try:
        header = bytes.fromhex(out.header)
    except ValueError as error:
        raise AnswerInvalidError("header is not hexadecimal") from error
    return Transaction(
        header_bytes=header,
        author_signature=None if out.author_signature is None else bytes.fromhex(out.author_signature),
        receipt=receipt_of(out.receipt),
    )
