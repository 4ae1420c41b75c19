"""The SDK: every call of the API as a typed, synchronous method, against one server or a list of them.

    client = LedgerClient("http://localhost:8900", key=key)
    selection = client.select(transaction=newest)
    model = client.download(selection.aggregate.digest)
    published = client.publish(trained, selection=selection, num_examples=600)

Nothing that a server says is believed where it can be computed: ids, digests, the genesis document and
signatures are checked here. Calls are retried, on all servers in health order, only where doing them twice
is doing them once: reading, selecting, and publishing under an id that was computed beforehand.
"""

import json
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from cachetools import LRUCache
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_client.errors import AnswerInvalidError
from fl_client.evidence import evidence_of
from fl_client.reader import DEFAULT_CACHE_BYTES, DEFAULT_TIMEOUT_S, LedgerReader, receipt_of
from fl_client.retry import RefusedError, Server
from fl_client.tracing import span
from fl_client.transport import Response
from fl_core.dag.author import AuthorKind, author_of_secret
from fl_core.dag.building import build_update
from fl_core.dag.signature import Role, public_key_of, sign
from fl_core.dag.transaction import Header, transaction_id
from fl_core.errors import (
    BaseUnknownError,
    DigestMismatchError,
    ParameterError,
    SelectionUnknownError,
    SequenceConflictError,
)
from fl_core.models import Buffer
from fl_core.selection.evidence import LED_BACK_FROM
from fl_core.step_coding import LEAST_BYTES, encode_step
from fl_core.trust.refusal import refused_in
from fl_core.types import ZERO_ID, AuthorId, Digest, TxId, digest_of
from fl_core.wire import v1

_JSON: Final = {"content-type": "application/json"}
_REMEMBERED_SELECTIONS: Final = 4
_UNSUPPORTED: Final = 415
"""A server's answer to a part of a media type that it does not know."""
_WORTH_CODING: Final = 0.9
"""Of a model's size: what is hardly smaller is not worth a server's while to unfold."""


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


class LedgerClient(LedgerReader):
    """A reader that takes part: it selects and publishes. Safe to share between threads.

    Args:
        servers: As for ``LedgerReader``.
        key: Signs what is published.
        secret: Instead of a key: 64 random hexadecimal digits, shown to servers with each publication; the author is
            a digest of them. Without either a new one is drawn, for this client's life.
        ledger, timeout, token, ca_file, cache_bytes, bucket: As for ``LedgerReader``.

    Raises:
        ParameterError: An argument is out of range.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        key: Ed25519PrivateKey | None = None,
        secret: str | None = None,
        ledger: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
        token: str | None = None,
        ca_file: Path | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        bucket: str | None = None,
    ) -> None:
        super().__init__(
            servers,
            ledger=ledger,
            timeout=timeout,
            token=token,
            ca_file=ca_file,
            cache_bytes=cache_bytes,
            bucket=bucket,
        )
        if key is not None and secret is not None:
            raise ParameterError("an author has a key or a secret: one of them")
        self._key = key
        self._secret = None if key else secret or secrets.token_hex(32)
        self.author: AuthorId = (
            AuthorKind.ED25519.author(public_key_of(key)) if key else author_of_secret(self._secret or "")
        )
        self._next_sequence = 0
        self._lock = threading.Lock()
        self._selections: LRUCache[Digest, v1.SelectionOut | v1.CarriedEvidence] = LRUCache(_REMEMBERED_SELECTIONS)

    @span("select")
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
            response = server.endpoint.call("POST", v1.SELECTIONS, deadline=deadline, body=[body], headers=headers)
            selection = self._session.parse(server, response, v1.SelectionOut)
            if transaction not in (None, selection.reference, selection.extensions.get(LED_BACK_FROM)):
                raise AnswerInvalidError("the selection is for another transaction than the one sent")
            self._session.remember_origin(server, selection.id, selection.aggregate.digest)
            with self._lock:
                self._selections[Digest(selection.id)] = selection
            return selection

        selection = self._session.call(attempt)
        if model is not None:
            self._remember_model(digest_of(model), bytes(model))
        return selection

    def without(self, selection: str, parent: str) -> Digest:
        """The digest of an own selection's average without one of its parents, on the server that has just made it.

        Raises:
            SelectionUnknownError: The server has forgotten the selection, or the parent is none of those to measure.
        """
        if self._key is None:
            shown = {"secret": self._secret}
        else:
            shown = {"author": self.author, "signature": sign(self._key, TxId(selection), role=Role.ASKER).hex()}
        body = json.dumps(shown).encode()

        def attempt(server: Server, deadline: float) -> Digest:
            where = v1.path(v1.SELECTION_WITHOUT, selection=selection, parent=parent)
            response = server.endpoint.call("POST", where, deadline=deadline, body=[body], headers=_JSON)
            found = self._session.parse(server, response, v1.ModelReference)
            self._session.remember_origin(server, found.digest)
            return Digest(found.digest)

        return self._session.call(attempt, first=self._session.origin_of(selection))

    def publish(
        self,
        model: Buffer,
        *,
        selection: v1.SelectionOut | None = None,
        parents: Sequence[str] | None = None,
        num_examples: int,
        start: str | None = None,
        metrics: Mapping[str, float] | None = None,
        sequence: int | None = None,
        created_at_ms: int | None = None,
        coded: bool = False,
    ) -> Published:
        """Publish a trained model; any fault on the way is retried.

        Args:
            model: Canonical safetensors bytes (``fl_core.models.encode_model``).
            selection: The selection that led to the model; its parents are approved.
            parents: Instead: one update of the author's own, or genesis.
            num_examples: Examples that it was trained on, at least 1.
            start: Digest of the model that training began from. None: the selection's aggregate, or the model of
                the only parent.
            metrics: Up to 32 finite numbers to keep beside it.
            sequence: This author's count of transactions. None: the next one.
            created_at_ms: Milliseconds since 1970 UTC. None: now.
            coded: Send the model by what it differs by from the one that training began from, where that is in memory
                and the server takes it (``fl_core.step_coding``); else whole.

        Raises:
            ModelError, TransactionError, SelectionUnknownError: Refused; nothing was published.
        """
        if (selection is None) == (parents is None):
            raise ParameterError("publish with selection or with parents: one of them")
        header = self.header_for(
            model,
            selection=selection,
            parents=parents,
            num_examples=num_examples,
            start=start,
            metrics=metrics or {},
            sequence=self._next_sequence if sequence is None else sequence,
            created_at_ms=time.time_ns() // 1_000_000 if created_at_ms is None else created_at_ms,
        )
        try:
            return self.publish_header(header, model, coded=coded)
        except SequenceConflictError as conflict:
            if sequence is not None or conflict.next_sequence <= header.sequence:
                raise
            return self.publish_header(replace(header, sequence=conflict.next_sequence), model, coded=coded)

    def header_for(
        self,
        model: Buffer,
        *,
        selection: v1.SelectionOut | None,
        parents: Sequence[str] | None = None,
        num_examples: int,
        start: str | None = None,
        metrics: Mapping[str, float],
        extensions: Mapping[str, bytes] | None = None,
        noise_std: float = 0.0,
        sequence: int,
        created_at_ms: int,
    ) -> Header:
        """The header that ``publish_header`` sends: with it the transaction's id is known before anyone is asked.

        Raises:
            TransactionError: A field is out of range.
        """
        approved = selection.parents if selection is not None and parents is None else parents
        return build_update(
            ledger=self.ledger_id(),
            author=self.author,
            sequence=sequence,
            created_at_ms=created_at_ms,
            num_examples=num_examples,
            start=Digest(start) if start is not None else self._start_of(selection, parents),
            model_digest=digest_of(model),
            model_size=len(model),
            parents=tuple(sorted(TxId(parent) for parent in approved or ())),
            evidence=None if selection is None else Digest(selection.id),
            metrics=metrics,
            extensions=extensions,
            noise_std=noise_std,
        ).header

    def _start_of(self, selection: v1.SelectionOut | None, parents: Sequence[str] | None) -> Digest:
        if selection is not None:
            return Digest(selection.aggregate.digest)
        if parents is None or len(parents) != 1:
            raise ParameterError("with several parents, start says which model training began from")
        if parents[0] == self.ledger_id():
            return self.genesis().model_digest
        return Digest(self.transaction(parents[0]).model.digest)

    def evidence(self, selection: str) -> v1.CarriedEvidence | None:
        """The evidence of a selection that was lately asked for or brought; None if it is not at hand.

        Raises:
            AnswerInvalidError: The selection's fields do not hash to its id.
        """
        with self._lock:
            kept = self._selections.get(Digest(selection))
        return evidence_of(kept) if isinstance(kept, v1.SelectionOut) else kept

    def bring(self, evidence: v1.CarriedEvidence) -> None:
        """Have a selection's evidence at hand, for publishing on another server than the one that made it."""
        with self._lock:
            self._selections[digest_of(evidence.document.encode())] = evidence

    @span("publish")
    def publish_header(self, header: Header, model: Buffer, *, coded: bool = False) -> Published:
        """Publish exactly this transaction; sending it again is answered with the same one, on any server.

        A server that did not make the selection is sent its evidence as well, where that is at hand. ``coded`` as for
        ``publish``.

        Raises:
            As ``publish``.
        """
        identity = transaction_id(header.encode())
        by_selection = header.attachment_digest != ZERO_ID
        message = {
            "selection": header.attachment_digest if by_selection else None,
            "parents": None if by_selection and not refused_in(header) else list(header.parents),
            "num_examples": header.num_examples,
            "start": header.start,
            "noise_std": header.noise_std,
            "metrics": dict(header.metrics),
            "extensions": {name: value.hex() for name, value in header.extensions.items()},
            "author": header.author,
            "secret": self._secret,
            "sequence": header.sequence,
            "created_at_ms": header.created_at_ms,
            "signature": None if self._key is None else sign(self._key, identity, role=Role.AUTHOR).hex(),
            "id": identity,
            "model_digest": header.model_digest,
        }

        short = self._coded(header, model) if coded else None

        def send(server: Server, deadline: float, **more: Any) -> tuple[v1.TransactionOut, bool]:
            nonlocal short
            stated = {**message, **more}
            if short is not None and server.takes_steps:
                response = _send_publication(server, stated, short, deadline, media_type=v1.STEP_MEDIA_TYPE)
                server.takes_steps = response.status != _UNSUPPORTED
                try:
                    if server.takes_steps:
                        return self._session.parse(server, response, v1.TransactionOut), response.status == 201
                except RefusedError as refused:
                    if not isinstance(refused.error, BaseUnknownError):
                        raise
                    short = None
            response = _send_publication(server, stated, model, deadline, media_type=v1.MODEL_MEDIA_TYPE)
            return self._session.parse(server, response, v1.TransactionOut), response.status == 201

        def attempt(server: Server, deadline: float) -> Published:
            try:
                out, created = send(server, deadline)
            except RefusedError as refused:
                is_elsewhere = isinstance(refused.error, SelectionUnknownError)
                evidence = self.evidence(header.attachment_digest) if is_elsewhere else None
                if evidence is None:
                    raise
                out, created = send(server, deadline, evidence=evidence.model_dump())
            if out.id != identity:
                raise DigestMismatchError(
                    f"{server.endpoint.url} made {out.id[:16]}… of transaction {identity[:16]}…",
                    claimed=out.id,
                    computed=identity,
                )
            receipt_of(out.receipt).verify(identity)
            return Published(identity, header.sequence, header.author, created, server.endpoint.url)

        published = self._session.call(attempt, first=self._session.origin_of(header.attachment_digest))
        with self._lock:
            self._next_sequence = max(self._next_sequence, published.sequence + 1)
        self._remember_model(header.model_digest, bytes(model))
        return published

    def _coded(self, header: Header, model: Buffer) -> bytes | None:
        """The model by what it differs by from the one that its training began from, or from the selection's average.

        None where neither is in memory, the ledger's layout is not known, or it would save too little.
        """
        if self._genesis is None or len(model) < LEAST_BYTES:
            return None
        with self._lock:
            selection = self._selections.get(header.attachment_digest)
        given = [Digest(selection.aggregate.digest)] if isinstance(selection, v1.SelectionOut) else []
        for digest in (*given, header.start):
            if (base := self._known_model(digest)) is not None:
                coded = encode_step(self._genesis.genesis.layout, model, base, base_digest=digest)
                return coded if len(coded) < _WORTH_CODING * len(model) else None
        return None


def _send_publication(
    server: Server, message: Mapping[str, Any], model: Buffer, deadline: float, *, media_type: str
) -> Response:
    """One multipart body in three pieces, so that the model is never copied."""
    boundary = secrets.token_hex(16)  # 128 random bits do not occur in a model by chance
    stated = {name: value for name, value in message.items() if value is not None}
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="transaction"\r\n'
        f"Content-Type: application/json\r\n\r\n{json.dumps(stated, allow_nan=False)}\r\n"
        f'--{boundary}\r\nContent-Disposition: form-data; name="model"; filename="model.safetensors"\r\n'
        f"Content-Type: {media_type}\r\n\r\n"
    )
    return server.endpoint.call(
        "POST",
        v1.TRANSACTIONS,
        deadline=deadline,
        body=[head.encode("ascii"), model, f"\r\n--{boundary}--\r\n".encode("ascii")],
        headers={"content-type": f"multipart/form-data; boundary={boundary}"},
    )
