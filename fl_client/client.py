"""The SDK: every call of the API as a typed, synchronous method, against one server or a list of them.

    client = LedgerClient("http://localhost:8900", key=key)
    selection = client.select(transaction=newest)
    model = client.download(selection.aggregate.digest)
    published = client.publish(trained, selection=selection, num_examples=600)

Nothing that a server says is believed where it can be computed: ids, digests, the genesis document and
signatures are checked here. Calls are retried, on all servers in health order, only where doing them twice
is doing them once: reading, selecting, and publishing under an id that was computed beforehand.
"""

import contextlib
import json
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import stamina
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ValidationError

from fl_client._http import Download, Endpoint, Reply, Timeouts, Traffic
from fl_client._servers import Server, Servers
from fl_client.errors import (
    AnswerInvalidError,
    CertificateRefusedError,
    ConnectionFailedError,
    OutcomeUnknownError,
    ServerUnavailableError,
    error_from_problem,
)
from fl_core.dag.genesis import Genesis, parse_genesis
from fl_core.dag.signature import Role, public_key_of, sign, verify
from fl_core.dag.transaction import (
    AuthorKind,
    Header,
    Kind,
    Transaction,
    decode_header,
    split_author,
    transaction_id,
)
from fl_core.errors import (
    CursorUnknownError,
    DagAcflError,
    DigestMismatchError,
    GenesisError,
    ParameterError,
    SelectionUnknownError,
    SequenceConflictError,
    SignatureError,
    UnknownError,
    WrongLedgerError,
)
from fl_core.selection.evidence import Evidence, evidence_id
from fl_core.selection.protocol import RankedCandidate, Selection
from fl_core.types import ZERO_ID, AuthorId, Digest, PublicKey, TxId, digest_of, is_hex_id
from fl_core.weights import Buffer
from fl_core.wire import v1

DEFAULT_CACHE_BYTES: Final = 64 << 20
MAX_MODEL_BYTES: Final = 4 << 30
"""Bound of a download while the ledger's own size is not known yet."""

_JSON: Final = {"content-type": "application/json"}
_REMEMBERED_SELECTIONS: Final = 4
_REMEMBERED_ORIGINS: Final = 1024
_LONGEST_RETRY_AFTER_S: Final = 3600.0
_TRY_ELSEWHERE: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 507})

_WRONG: Final = (AnswerInvalidError, CertificateRefusedError, DigestMismatchError, SignatureError)
"""Faults that do not go away by waiting; another server may be without."""

A = TypeVar("A", bound=BaseModel)
T = TypeVar("T")


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
        """SHA-256 of the initial model."""
        return self.transaction.header.model_digest

    @property
    def model_size(self) -> int:
        """Size of every model of this ledger, in bytes."""
        return self.genesis.layout.nbytes


@dataclass(frozen=True, slots=True)
class Published:
    """A publication's outcome.

    Attributes:
        created: False when the server held this very transaction before.
        server: Address of the server that acknowledged it.
    """

    id: TxId
    sequence: int
    author: AuthorId
    created: bool
    server: str


@dataclass(frozen=True, slots=True)
class Event:
    """An admitted transaction as the server announced it; ``cursor`` continues after it on the same server."""

    cursor: str
    transaction: v1.TransactionOut


class LedgerClient:
    """A ledger's client. Safe to share between threads; close it, or use it as a context manager.

    Args:
        servers: Addresses such as ``http://localhost:8900``, in order of preference. All must serve one
            ledger.
        key: Signs what is published. Without it the server names an anonymous author.
        author: Instead of a key: this client's own anonymous name, ``anon:<64 hexadecimal digits>``.
        ledger: The only ledger to talk to; None takes that of the first server that answers.
        timeout: Seconds for a call with all its retries, or all bounds in time.
        token: Bearer token, where the servers (or a proxy) ask for one; sent to all of them.
        ca_file: PEM of the authority behind the servers' certificates.
        cache_bytes: Memory for models that went through this client.

    Raises:
        ParameterError: An argument is out of range.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        key: Ed25519PrivateKey | None = None,
        author: AuthorId | None = None,
        ledger: str | None = None,
        timeout: float | Timeouts = Timeouts(),  # noqa: B008 (frozen)
        token: str | None = None,
        ca_file: Path | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        addresses = [servers] if isinstance(servers, str) else list(dict.fromkeys(servers))
        if not addresses:
            raise ParameterError("name at least one server")
        if ledger is not None and not is_hex_id(ledger):
            raise ParameterError("a ledger's id is 64 lowercase hexadecimal digits")
        if author is not None and (key is not None or split_author(author)[0] is not AuthorKind.ANONYMOUS):
            raise ParameterError("author is an anonymous name (anon:…), and excludes a key")
        self.timeouts = timeout if isinstance(timeout, Timeouts) else Timeouts(total_s=timeout)
        self.traffic = Traffic()
        self._key = key
        self.author: AuthorId | None = AuthorKind.ED25519.author(public_key_of(key)) if key else author
        self._servers = Servers(
            Endpoint(url, timeouts=self.timeouts, traffic=self.traffic, token=token, ca_file=ca_file)
            for url in addresses
        )
        self._ledger = ledger
        self._genesis: GenesisInfo | None = None
        self._next_sequence = 0
        self._lock = threading.Lock()
        self._models = _ModelCache(cache_bytes)
        self._origins: OrderedDict[str, str] = OrderedDict()
        self._selections: OrderedDict[Digest, v1.SelectionOut | v1.CarriedEvidence] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for server in self._servers:
            server.endpoint.close()

    # -- a round ----------------------------------------------------------------------------------

    def genesis(self) -> GenesisInfo:
        """The ledger's rules; verified once, then remembered.

        Raises:
            DigestMismatchError, GenesisError, SignatureError: The server's genesis is not what its ids say.
            WrongLedgerError: It is another ledger than the pinned one.
        """
        if self._genesis is None:
            self._genesis = self._retry(self._fetch_genesis, introduced=False)
            self._ledger = self._genesis.ledger
        return self._genesis

    def _fetch_genesis(self, server: Server, deadline: float) -> GenesisInfo:
        out = self._answer(server, self._get(server, v1.GENESIS, deadline), v1.GenesisOut)
        path = v1.path(v1.TRANSACTION_ATTACHMENT, transaction=out.ledger)
        document = self._bytes(server, self._get(server, path, deadline))
        transaction = _transaction_of(out.transaction)
        if transaction.id != out.ledger:  # before the header is read: its bytes are nobody's until then
            raise DigestMismatchError(
                f"{server.endpoint.url} calls its ledger {out.ledger[:16]}…, its genesis transaction hashes to "
                f"{transaction.id[:16]}…",
                claimed=out.ledger,
                computed=transaction.id,
            )
        header = transaction.header
        if header.kind is not Kind.GENESIS:
            raise GenesisError("the transaction that the server calls genesis is not one")
        if (computed := digest_of(document)) != header.attachment_digest:
            raise DigestMismatchError(
                "the genesis document is not the one that the genesis transaction names",
                claimed=header.attachment_digest,
                computed=computed,
            )
        transaction.verify_signatures()
        genesis = parse_genesis(document)
        if header.model_size != genesis.layout.nbytes:
            raise DigestMismatchError(
                f"the genesis model has {header.model_size} bytes, its layout {genesis.layout.nbytes}"
            )
        return GenesisInfo(genesis, transaction)

    def genesis_model(self) -> memoryview:
        """The initial model's bytes; read-only."""
        return self.download(self.genesis().model_digest)

    def select(self, *, transaction: str | None = None, model: Buffer | None = None) -> v1.SelectionOut:
        """Ask for tips and their average, by one's newest transaction or (joining) with one's model.

        Raises:
            TransactionUnknownError: No server knows the transaction.
            ModelPrunedError: It is not this author's newest any more, and no server holds its model.
            ModelError: The model does not fit the ledger.
        """
        if (transaction is None) == (model is None):
            raise ParameterError("select by transaction or with model: one of them")
        if model is not None:
            body: Buffer = model
            headers = {"content-type": v1.MODEL_MEDIA_TYPE}
        else:
            body = json.dumps({"transaction": transaction}).encode()
            headers = _JSON

        def attempt(server: Server, deadline: float) -> v1.SelectionOut:
            reply = server.endpoint.call("POST", v1.SELECTIONS, deadline=deadline, body=[body], headers=headers)
            selection = self._answer(server, reply, v1.SelectionOut)
            if transaction is not None and selection.reference != transaction:
                raise AnswerInvalidError("the selection is for another transaction than the one sent")
            self._remember_origin(server, selection.id, selection.aggregate.digest)
            self._keep_selection(selection)
            return selection

        selection = self._retry(attempt)
        if model is not None:
            self._models.put(digest_of(model), bytes(model))
        return selection

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
        if (known := self._models.get(wanted)) is not None:
            return known
        limit = MAX_MODEL_BYTES if self._genesis is None else self._genesis.model_size
        download = Download(limit=limit, etag=f'"{wanted}"')
        path = v1.path(v1.MODEL, digest=wanted)

        def attempt(server: Server, deadline: float) -> memoryview:
            reply = server.endpoint.fetch(path, download, deadline=deadline)
            if reply is not None:
                if reply.status == 416:
                    download.filled = 0
                raise self._refusal(server, reply)
            if (computed := digest_of(download.buffer)) != wanted:
                download.filled = 0
                raise DigestMismatchError(
                    f"{server.endpoint.url} sent other bytes than {wanted[:16]}…", claimed=wanted, computed=computed
                )
            return memoryview(download.buffer).toreadonly()

        model = self._retry(attempt, first=self._origins.get(wanted))
        self._models.put(wanted, model)
        return model

    def holds(self, digest: str) -> bool:
        """Whether ``download`` needs no server for this model."""
        return self._models.get(Digest(digest)) is not None

    def publish(
        self,
        model: Buffer,
        *,
        selection: v1.SelectionOut | str | None = None,
        parents: Sequence[str] | None = None,
        num_examples: int,
        metrics: Mapping[str, float] | None = None,
        sequence: int | None = None,
        created_at_ms: int | None = None,
    ) -> Published:
        """Publish a trained model. With a key (or an own anonymous name) any fault on the way is retried.

        Args:
            model: Canonical safetensors bytes (``fl_core.weights.encode_model``).
            selection: The selection that led to the model, or its id; its parents are approved.
            parents: Instead: the approved transactions.
            num_examples: Examples that it was trained on, at least 1.
            metrics: Up to 32 finite numbers to keep beside it.
            sequence: This author's count of transactions. None: the next one.
            created_at_ms: Milliseconds since 1970 UTC. None: now.

        Raises:
            ModelError, TransactionError, SelectionUnknownError: Refused; nothing was published.
            OutcomeUnknownError: An anonymous publication was sent, but not answered.
        """
        if (selection is None) == (parents is None):
            raise ParameterError("publish with selection or with parents: one of them")
        if self.author is None:
            return self._publish_unnamed(model, selection, parents, num_examples, metrics or {})
        if isinstance(selection, str):
            selection = self.selection(selection)
        header = self.header_for(
            model,
            selection=selection,
            parents=parents,
            num_examples=num_examples,
            metrics=metrics or {},
            sequence=self._next_sequence if sequence is None else sequence,
            created_at_ms=time.time_ns() // 1_000_000 if created_at_ms is None else created_at_ms,
        )
        try:
            return self.publish_header(header, model)
        except SequenceConflictError as conflict:
            if sequence is not None or conflict.next_sequence <= header.sequence:
                raise
            return self.publish_header(replace(header, sequence=conflict.next_sequence), model)

    def header_for(
        self,
        model: Buffer,
        *,
        selection: v1.SelectionOut | None,
        parents: Sequence[str] | None = None,
        num_examples: int,
        metrics: Mapping[str, float],
        sequence: int,
        created_at_ms: int,
    ) -> Header:
        """The header that ``publish_header`` sends: with it the transaction's id is known before anyone is asked.

        Raises:
            TransactionError: A field is out of range.
        """
        if self.author is None:
            raise ParameterError("a header names its author: give the client a key")
        approved = parents if selection is None else selection.parents
        return Header(
            ledger=self._known_ledger(),
            kind=Kind.SITE,
            author=self.author,
            sequence=sequence,
            created_at_ms=created_at_ms,
            num_examples=num_examples,
            model_digest=digest_of(model),
            model_size=len(model),
            attachment_digest=Digest(ZERO_ID if selection is None else selection.id),
            parents=tuple(sorted(TxId(parent) for parent in approved or ())),
            metrics=metrics,
        )

    def _keep_selection(self, selection: v1.SelectionOut) -> None:
        with self._lock:
            self._selections[Digest(selection.id)] = selection
            while len(self._selections) > _REMEMBERED_SELECTIONS:
                self._selections.popitem(last=False)

    def evidence(self, selection: str) -> v1.CarriedEvidence | None:
        """The evidence of a selection that was lately asked for or brought; None if it is not at hand.

        Raises:
            AnswerInvalidError: The selection's fields do not hash to its id.
        """
        kept = self._selections.get(Digest(selection))
        return evidence_of(kept) if isinstance(kept, v1.SelectionOut) else kept

    def bring(self, evidence: v1.CarriedEvidence) -> None:
        """Have a selection's evidence at hand, for publishing on another server than the one that made it."""
        with self._lock:
            self._selections[digest_of(evidence.document.encode())] = evidence

    def publish_header(self, header: Header, model: Buffer) -> Published:
        """Publish exactly this transaction; sending it again is answered with the same one, on any server.

        A server that did not make the selection is sent its evidence as well, where that is at hand.

        Raises:
            As ``publish``.
        """
        identity = transaction_id(header.encode())
        by_selection = header.attachment_digest != ZERO_ID
        message = {
            "selection": header.attachment_digest if by_selection else None,
            "parents": None if by_selection else list(header.parents),
            "num_examples": header.num_examples,
            "metrics": dict(header.metrics),
            "author": header.author,
            "sequence": header.sequence,
            "created_at_ms": header.created_at_ms,
            "signature": None if self._key is None else sign(self._key, identity, role=Role.AUTHOR).hex(),
            "id": identity,
            "model_digest": header.model_digest,
        }

        def attempt(server: Server, deadline: float) -> Published:
            try:
                reply = _send_publication(server, message, model, deadline, repeatable=True)
                out = self._answer(server, reply, v1.TransactionOut)
            except _RefusedError as refused:
                is_elsewhere = isinstance(refused.error, SelectionUnknownError)
                evidence = self.evidence(header.attachment_digest) if is_elsewhere else None
                if evidence is None:
                    raise
                brought = {**message, "evidence": evidence.model_dump()}
                reply = _send_publication(server, brought, model, deadline, repeatable=True)
                out = self._answer(server, reply, v1.TransactionOut)
            if out.id != identity:
                raise DigestMismatchError(
                    f"{server.endpoint.url} made {out.id[:16]}… of transaction {identity[:16]}…",
                    claimed=out.id,
                    computed=identity,
                )
            _verify_receipt(out)
            return Published(identity, header.sequence, header.author, reply.status == 201, server.endpoint.url)

        published = self._retry(attempt, first=self._origins.get(header.attachment_digest))
        with self._lock:
            self._next_sequence = max(self._next_sequence, published.sequence + 1)
        self._models.put(header.model_digest, bytes(model))
        return published

    def _publish_unnamed(
        self,
        model: Buffer,
        selection: v1.SelectionOut | str | None,
        parents: Sequence[str] | None,
        num_examples: int,
        metrics: Mapping[str, float],
    ) -> Published:
        chosen = selection.id if isinstance(selection, v1.SelectionOut) else selection
        digest = digest_of(model)
        message = {
            "selection": chosen,
            "parents": None if parents is None else sorted(parents),
            "num_examples": num_examples,
            "metrics": dict(metrics),
            "model_digest": digest,
        }

        def attempt(server: Server, deadline: float) -> Published:
            reply = _send_publication(server, message, model, deadline, repeatable=False)
            out = self._answer(server, reply, v1.TransactionOut)
            if transaction_id(bytes.fromhex(out.header)) != out.id or out.model.digest != digest:
                raise DigestMismatchError("the answer's transaction is not that of the model sent", claimed=out.id)
            _verify_receipt(out)
            return Published(TxId(out.id), out.sequence, AuthorId(out.author), reply.status == 201, server.endpoint.url)

        published = self._retry(attempt, repeatable=False, first=self._origins.get(chosen or ""))
        self._models.put(digest, bytes(model))
        return published

    # -- reading the ledger -----------------------------------------------------------------------

    def selection(self, selection: str) -> v1.SelectionOut:
        """A selection with its evidence."""
        path = v1.path(v1.SELECTION, selection=selection)
        return self._read(path, v1.SelectionOut, first=self._origins.get(selection))

    def transactions(self, after: str | None = None, *, limit: int = 100) -> v1.TransactionPage:
        """A page in the server's order of arrival; give its ``next`` as ``after`` until that is None.

        Raises:
            CursorUnknownError: Another server answered than the one that gave the cursor; start again.
        """
        query = f"?limit={limit}" + ("" if after is None else f"&after={after}")
        epoch = (after or "").partition("-")[0]
        return self._retry(self._page(f"{v1.TRANSACTIONS}{query}"), first=self._origins.get(epoch))

    def _page(self, path: str) -> Callable[[Server, float], v1.TransactionPage]:
        def attempt(server: Server, deadline: float) -> v1.TransactionPage:
            reply = server.endpoint.read(path, deadline=deadline)
            page = self._answer(server, reply, v1.TransactionPage)
            for item in page.items:
                self._check_ledger(server, item.ledger)
            if page.next is not None:
                self._remember_origin(server, page.next.partition("-")[0])
            return page

        return attempt

    def transaction(self, transaction: str) -> v1.TransactionOut:
        """One transaction; its header bytes are checked against its id."""
        out = self._read(v1.path(v1.TRANSACTION, transaction=transaction), v1.TransactionOut)
        if out.id != transaction or _transaction_of(out).id != transaction:
            raise DigestMismatchError("the header is not that of the transaction", claimed=transaction)
        return out

    def header_bytes(self, transaction: str) -> bytes:
        """A transaction's canonical bytes, checked against its id."""
        data = self._read_bytes(v1.path(v1.TRANSACTION_HEADER, transaction=transaction))
        if (computed := transaction_id(data)) != transaction:
            raise DigestMismatchError(
                "the header is not that of the transaction", claimed=transaction, computed=computed
            )
        return data

    def attachment_bytes(self, transaction: str) -> bytes:
        """A transaction's attachment (genesis document or selection evidence), checked against its header."""
        claimed = decode_header(self.header_bytes(transaction)).attachment_digest
        data = self._read_bytes(v1.path(v1.TRANSACTION_ATTACHMENT, transaction=transaction))
        if (computed := digest_of(data)) != claimed:
            raise DigestMismatchError(
                "the attachment is not the one that the header names", claimed=claimed, computed=computed
            )
        return data

    def model(self, transaction: str) -> memoryview:
        """A transaction's model, as ``download``."""
        return self.download(decode_header(self.header_bytes(transaction)).model_digest)

    def tips(self) -> v1.TipsOut:
        """Transactions that nobody approves."""
        return self._read(v1.TIPS, v1.TipsOut)

    def clusters(self) -> v1.ClustersOut:
        """Communities of the approval graph."""
        return self._read(v1.CLUSTERS, v1.ClustersOut)

    def clients(self) -> v1.ClientsOut:
        """All authors and what each published last."""
        return self._read(v1.CLIENTS, v1.ClientsOut)

    def peers(self) -> v1.PeersOut:
        """The server's own key and its peers."""
        return self._read(v1.PEERS, v1.PeersOut)

    def costs(self) -> v1.CostsOut:
        """Bytes moved and stored, beside the paper's formulas."""
        return self._read(v1.COSTS, v1.CostsOut)

    def version(self) -> v1.VersionOut:
        """What the first server that answers runs, whatever its ledger."""
        return self._retry(self._message("/version", v1.VersionOut), introduced=False)

    def health(self) -> v1.HealthOut:
        """Whether the first server that answers can serve; not retried.

        Raises:
            ServerUnavailableError: None answers.
        """
        deadline = time.monotonic() + self.timeouts.total_s
        return self._sweep(
            self._message("/readyz", v1.HealthOut), deadline, first=None, repeatable=True, introduced=False
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
        cursor, origin = after, None if after is None else self._origins.get(after.partition("-")[0])
        while True:
            stream, origin, cursor = self._retry(self._open_events(cursor), first=origin)
            try:
                for event in stream:
                    cursor = event.cursor
                    yield event
            except (ConnectionFailedError, AnswerInvalidError):
                time.sleep(0.2)  # a server that accepts and hangs up at once is not asked in a tight loop
            finally:
                stream.close()

    def _open_events(self, cursor: str | None) -> "Callable[[Server, float], tuple[_EventStream, str, str | None]]":
        def attempt(server: Server, _: float) -> "tuple[_EventStream, str, str | None]":
            try:
                return _EventStream(self, server, cursor), server.endpoint.url, cursor
            except _RefusedError as refused:
                if not isinstance(refused.error, CursorUnknownError):
                    raise
                return _EventStream(self, server, None), server.endpoint.url, None

        return attempt

    # -- one call ---------------------------------------------------------------------------------

    def _read(self, path: str, message: type[A], *, first: str | None = None) -> A:
        return self._retry(self._message(path, message), first=first)

    def _message(self, path: str, message: type[A]) -> Callable[[Server, float], A]:
        def attempt(server: Server, deadline: float) -> A:
            return self._answer(server, server.endpoint.read(path, deadline=deadline), message)

        return attempt

    def _read_bytes(self, path: str) -> bytes:
        def attempt(server: Server, deadline: float) -> bytes:
            return self._bytes(server, server.endpoint.read(path, deadline=deadline))

        return self._retry(attempt)

    @staticmethod
    def _get(server: Server, path: str, deadline: float) -> Reply:
        return server.endpoint.call("GET", path, deadline=deadline)

    def _bytes(self, server: Server, reply: Reply) -> bytes:
        if reply.status != 200:
            raise self._refusal(server, reply)
        return reply.body

    def _answer(self, server: Server, reply: Reply, message: type[A]) -> A:
        """A reply as a message of this ledger."""
        if reply.status not in (200, 201):
            raise self._refusal(server, reply)
        try:
            answer = message.model_validate_json(reply.body)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, fault["loc"])) or "body"
            raise AnswerInvalidError(f"not a {message.__name__}: {where}: {fault['msg']}"[:300]) from error
        ledger = getattr(answer, "ledger", None)
        if ledger is not None and message is not v1.VersionOut:
            self._check_ledger(server, ledger)
        return answer

    def _check_ledger(self, server: Server, ledger: str) -> None:
        if self._ledger is None:
            self._ledger = ledger
        if ledger != self._ledger:
            raise WrongLedgerError(
                f"{server.endpoint.url} serves ledger {ledger[:16]}…, this client belongs to {self._ledger[:16]}…; "
                "take that server off the list"
            )
        server.known_ledger = ledger

    def _known_ledger(self) -> TxId:
        return TxId(self._ledger) if self._ledger is not None else self.genesis().ledger

    @staticmethod
    def _refusal(server: Server, reply: Reply) -> "_RefusedError":
        problem: Any = None
        if "json" in reply.headers.get("content-type", ""):
            with contextlib.suppress(ValueError, RecursionError):
                problem = json.loads(reply.body)
        error = error_from_problem(
            reply.status, problem if isinstance(problem, dict) else {}, server=server.endpoint.url
        )
        return _RefusedError(error, reply.status, _retry_after_s(reply.headers.get("retry-after")))

    def _introduce(self, server: Server, deadline: float) -> None:
        """Ask a server which ledger it serves, once, before it is told or asked anything else."""
        if server.known_ledger is None:
            out = self._answer(server, self._get(server, "/version", deadline), v1.VersionOut)
            self._check_ledger(server, out.ledger)

    def _remember_origin(self, server: Server, *names: str) -> None:
        with self._lock:
            for name in names:
                self._origins[name] = server.endpoint.url
                self._origins.move_to_end(name)
            while len(self._origins) > _REMEMBERED_ORIGINS:
                self._origins.popitem(last=False)

    def _retry(
        self,
        attempt: Callable[[Server, float], T],
        *,
        first: str | None = None,
        repeatable: bool = True,
        introduced: bool = True,
    ) -> T:
        """Sweep over the servers until one answers or the time is up."""
        deadline = time.monotonic() + self.timeouts.total_s
        failed: ServerUnavailableError | None = None
        for again in stamina.retry_context(
            on=ServerUnavailableError,
            attempts=None,
            timeout=self.timeouts.total_s,
            wait_initial=0.1,
            wait_max=5.0,
            wait_jitter=0.5,
        ):
            with again:
                if failed is not None and time.monotonic() >= deadline:
                    raise failed  # it says more than that the time is up
                try:
                    return self._sweep(attempt, deadline, first=first, repeatable=repeatable, introduced=introduced)
                except ServerUnavailableError as error:
                    failed = error
                    raise
        raise AssertionError("stamina returns or raises")

    def _sweep(
        self,
        attempt: Callable[[Server, float], T],
        deadline: float,
        *,
        first: str | None,
        repeatable: bool,
        introduced: bool,
    ) -> T:
        """Ask each server once, in health order, until one does its work."""
        self._wait_until_open(deadline)
        faults: dict[str, DagAcflError] = {}
        unknown: UnknownError | None = None
        for server in self._servers.in_order(first=first):
            try:
                if introduced:
                    self._introduce(server, deadline)
                result = attempt(server, deadline)
            except _RefusedError as refused:
                if isinstance(refused.error, UnknownError):
                    self._servers.answered(server)
                    unknown = refused.error
                    continue
                faults[server.endpoint.url] = self._refused(server, refused, repeatable=repeatable)
            except (ConnectionFailedError, *_WRONG) as error:
                faults[server.endpoint.url] = self._failed(server, error, repeatable=repeatable)
            else:
                self._servers.answered(server)
                return result
        wrong = [fault for fault in faults.values() if isinstance(fault, _WRONG)]
        if wrong and len(wrong) == len(faults):
            raise wrong[-1]
        if unknown is not None:
            raise unknown
        raise ServerUnavailableError({url: str(fault).removeprefix(f"{url} ") for url, fault in faults.items()})

    def _refused(self, server: Server, refused: "_RefusedError", *, repeatable: bool) -> DagAcflError:
        """A refusal goes to the caller, except one that another server, or this one later, may not repeat."""
        if refused.status not in _TRY_ELSEWHERE:
            self._servers.answered(server)
            raise refused.error from None
        self._servers.failed(server, retry_after_s=refused.retry_after_s)
        if not repeatable and refused.status not in (429, 503):
            raise refused.error from None
        return refused.error

    def _failed(self, server: Server, error: DagAcflError, *, repeatable: bool) -> DagAcflError:
        """No answer, or not one to be believed."""
        self._servers.failed(server)
        if not repeatable and getattr(error, "sent", not isinstance(error, CertificateRefusedError)):
            raise OutcomeUnknownError(
                f"{server.endpoint.url} did not answer ({error}); the model may be published or not: ask for a "
                "selection and publish again, or use a key, which makes repeating safe"
            ) from error
        return error

    def _wait_until_open(self, deadline: float) -> None:
        pause = self._servers.reopens_in()
        if pause and pause < deadline - time.monotonic():
            time.sleep(pause)


class _RefusedError(Exception):
    """A server answered no; tells a refusal from a fault that was found here. Never leaves this module."""

    def __init__(self, error: DagAcflError, status: int, retry_after_s: float | None) -> None:
        super().__init__(str(error))
        self.error, self.status, self.retry_after_s = error, status, retry_after_s


class _EventStream(Iterator[Event]):
    """Server-sent events of one connection."""

    def __init__(self, client: LedgerClient, server: Server, cursor: str | None) -> None:
        self._client, self._server = client, server
        self._stack = contextlib.ExitStack()
        headers = {"accept": "text/event-stream"}
        if cursor is not None:
            headers["last-event-id"] = cursor
        with self._stack:
            opened = self._stack.enter_context(server.endpoint.lines(v1.EVENTS, headers))
            if isinstance(opened, Reply):
                raise client._refusal(server, opened)  # noqa: SLF001 (same module)
            self._lines = opened
            self._stack = self._stack.pop_all()

    def __next__(self) -> Event:
        fields: dict[str, str] = {}
        for line in self._lines:
            if line:
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
            elif fields.get("event") == "transaction":
                return self._event(fields)
            else:
                fields = {}
        raise ConnectionFailedError("the server ended the stream", sent=True)

    def _event(self, fields: Mapping[str, str]) -> Event:
        try:
            transaction = v1.TransactionOut.model_validate_json(fields.get("data", ""))
        except ValidationError as error:
            raise AnswerInvalidError("an event's data is not a transaction") from error
        self._client._check_ledger(self._server, transaction.ledger)  # noqa: SLF001
        cursor = fields.get("id", "")
        self._client._remember_origin(self._server, cursor.partition("-")[0])  # noqa: SLF001
        return Event(cursor, transaction)

    def close(self) -> None:
        self._stack.close()


class _ModelCache:
    """Models by digest, the most recently used ones, up to a number of bytes."""

    def __init__(self, capacity: int) -> None:
        self._capacity, self._held = capacity, 0
        self._lock = threading.Lock()
        self._models: OrderedDict[Digest, memoryview] = OrderedDict()

    def get(self, digest: Digest) -> memoryview | None:
        with self._lock:
            if digest in self._models:
                self._models.move_to_end(digest)
            return self._models.get(digest)

    def put(self, digest: Digest, model: Buffer) -> None:
        view = memoryview(model).toreadonly()
        with self._lock:
            if digest in self._models or len(view) > self._capacity:
                return
            self._models[digest] = view
            self._held += len(view)
            while self._held > self._capacity:
                _, dropped = self._models.popitem(last=False)
                self._held -= len(dropped)


def evidence_of(selection: v1.SelectionOut) -> v1.CarriedEvidence | None:
    """A selection's evidence as its server signed it; None from a server that does not sign, or if it is too long.

    Raises:
        AnswerInvalidError: The answer is not what its id says.
    """
    if selection.issuer is None or selection.issuer_signature is None:
        return None
    evidence = Evidence(
        ledger=TxId(selection.ledger),
        reference=None if selection.reference is None else TxId(selection.reference),
        reference_model=Digest(selection.reference_model),
        selector=selection.selector,
        params=selection.params,
        selection=Selection(
            parents=tuple(map(TxId, selection.parents)),
            source=selection.source,
            rule=selection.rule,
            cut=selection.cut,
            candidates=tuple(
                RankedCandidate(
                    transaction=TxId(candidate.transaction),
                    author=AuthorId(candidate.author),
                    similarity=candidate.similarity,
                    update_similarity=candidate.update_similarity,
                    probability=candidate.probability,
                    selected=candidate.selected,
                )
                for candidate in selection.candidates
            ),
        ),
        aggregate=Digest(selection.aggregate.digest),
        aggregate_size=selection.aggregate.size,
    ).encode()
    if evidence_id(evidence) != selection.id:
        raise AnswerInvalidError("the selection's fields do not hash to its id")
    if len(evidence) > v1.MAX_CARRIED_EVIDENCE:
        return None
    return v1.CarriedEvidence(
        document=evidence.decode("ascii"), issuer=selection.issuer, signature=selection.issuer_signature
    )


def _send_publication(
    server: Server, message: Mapping[str, Any], model: Buffer, deadline: float, *, repeatable: bool
) -> Reply:
    """One multipart body in three pieces, so that the model is never copied."""
    boundary = secrets.token_hex(16)  # 128 random bits do not occur in a model by chance
    stated = {name: value for name, value in message.items() if value is not None}
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="transaction"\r\n'
        f"Content-Type: application/json\r\n\r\n{json.dumps(stated, allow_nan=False)}\r\n"
        f'--{boundary}\r\nContent-Disposition: form-data; name="model"; filename="model.safetensors"\r\n'
        f"Content-Type: {v1.MODEL_MEDIA_TYPE}\r\n\r\n"
    )
    return server.endpoint.call(
        "POST",
        v1.TRANSACTIONS,
        deadline=deadline,
        body=[head.encode("ascii"), model, f"\r\n--{boundary}--\r\n".encode("ascii")],
        headers={"content-type": f"multipart/form-data; boundary={boundary}"},
        repeatable=repeatable,
    )


def _transaction_of(out: v1.TransactionOut) -> Transaction:
    """What the server sent, as the values that the ids and signatures are computed over."""
    try:
        header = bytes.fromhex(out.header)
    except ValueError as error:
        raise AnswerInvalidError("header is not hexadecimal") from error
    return Transaction(
        header_bytes=header,
        author_signature=None if out.author_signature is None else bytes.fromhex(out.author_signature),
        issuer=PublicKey(out.issuer),
        issuer_signature=bytes.fromhex(out.issuer_signature),
    )


def _verify_receipt(out: v1.TransactionOut) -> None:
    """The issuer's signature: proof, later, that this server did admit the transaction."""
    verify(PublicKey(out.issuer), TxId(out.id), bytes.fromhex(out.issuer_signature), role=Role.ISSUER)


def _retry_after_s(value: str | None) -> float | None:
    """Retry-After, either form (RFC 9110, 10.2.3), in seconds; None for none or nonsense."""
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        return min(float(value[:9]), _LONGEST_RETRY_AFTER_S)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    return min(max(0.0, moment.timestamp() - time.time()), _LONGEST_RETRY_AFTER_S)
