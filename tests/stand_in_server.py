"""A ledger of a few numbers over real sockets, that can be told to misbehave: for the client's tests.

with StandIn() as server:
    server.spoil("/v1/models", cut_after=100)
    LedgerClient(server.url).download(digest)      # the first answer is cut, the second is whole

It selects trivially (whoever asks keeps its own model, or gets ``average``); what it publishes goes through the real ``Ledger``.
"""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from fl_core.dag.author import author_of_secret
from fl_core.dag.building import build_update
from fl_core.dag.figures import Figures
from fl_core.dag.signature import public_key_of
from fl_core.dag.transaction import Kind, Transaction
from fl_core.errors import DagAcflError, SelectionUnknownError, SequenceConflictError, TransactionUnknownError
from fl_core.ledger import AlreadyKnown
from fl_core.models import check_model
from fl_core.types import Digest, TxId, digest_of
from fl_core.wire import v1
from tests.builders import ISSUER, TinyLedger


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoiled:
    """How one request goes wrong: the connection is closed before the work is done, or after it, or within
    the answer; or another answer is given.
    """

    hang_up: str = ""
    cut_after: int | None = None
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]


def problem(status: int, code: str, **fields: Any) -> Answer:
    """A refusal; ``headers`` are sent as header fields, the others are members."""
    headers = fields.pop("headers", {})
    content = {"type": f"/problems/{code}", "title": "no", "status": status, "detail": f"no: {code}", **fields}
    return Answer(status, json.dumps(content).encode(), {"content-type": v1.PROBLEM_MEDIA_TYPE, **headers})


class StandIn:
    """The server; ``asked`` lists what came, in order."""

    def __init__(self, tiny: TinyLedger | None = None) -> None:
        self.tiny = tiny or TinyLedger()
        self.asked: list[Asked] = []
        self.selections: dict[str, bytes] = {}
        self.average: bytes | None = None
        self.max_step: float | None = None
        self.events: list[bytes] = []
        self.cuts_events = False
        self._spoiled: list[tuple[str, Spoiled]] = []
        self._lock = threading.Lock()
        self._http = _Sockets(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def spoil(self, path: str, *, times: int = 1, **how: Any) -> None:
        """Spoil the next requests whose path starts so; calls add up."""
        self._spoiled += [(path, Spoiled(**how))] * times

    def recover(self) -> None:
        """Spoil no more requests."""
        self._spoiled.clear()

    def paths(self) -> list[str]:
        return [f"{asked.method} {asked.path}" for asked in self.asked]

    def take_spoiled(self, path: str) -> Spoiled | None:
        with self._lock:
            for place, (prefix, how) in enumerate(self._spoiled):
                if path.startswith(prefix):
                    del self._spoiled[place]
                    return how
        return None

    def answer(self, asked: Asked, body: bytes) -> Answer:
        with self._lock:
            try:
                return self._answer(asked, body)
            except DagAcflError as error:
                fields = {name: value for name, value in vars(error).items() if value not in ("", ())}
                status = 404 if isinstance(error, SelectionUnknownError | TransactionUnknownError) else 409
                return problem(status, error.code, **fields, detail=str(error))

    def _answer(self, asked: Asked, body: bytes) -> Answer:
        path, _, _ = asked.path.partition("?")
        if asked.method == "POST":
            return (self._select if path == v1.SELECTIONS else self._publish)(asked, body)
        first = self.transaction_out(self.tiny.genesis_transaction)
        common: dict[str, Any] = {"ledger": self.tiny.genesis_id, "name": "test", "model": first["model"]}
        fixed: dict[str, dict[str, Any]] = {
            "/version": {"version": "0", "api": "v1", "public_key": public_key_of(ISSUER)},
            v1.GENESIS: {"document": {}, "document_href": "", "transaction": first},
            v1.TIPS: {"transactions": 1, "digest": "0" * 64, "items": self._tips_out()},
            v1.CLIENTS: {"items": [self._client_out(node.id) for node in self.tiny.ledger.graph.newest_nodes()]},
        }
        if path in fixed:
            return _json(**common, **fixed[path])
        kind, name, *rest = path.removeprefix("/v1/").split("/")
        if kind == "models":
            return self._model(asked, Digest(name))
        return self._transaction(TxId(name), rest)

    def _transaction(self, name: TxId, rest: list[str]) -> Answer:
        transaction = self.tiny.transactions.get(name)
        if transaction is None:
            return problem(404, "transaction-unknown", transaction=name)
        if rest == ["header"]:
            return Answer(200, transaction.header_bytes)
        if rest == ["attachment"]:
            return Answer(200, self.tiny.attachments[transaction.header.attachment_digest])
        return _json(**self.transaction_out(transaction))

    def _model(self, asked: Asked, digest: Digest) -> Answer:
        if digest not in self.tiny.models:
            return problem(404, "model-unknown")
        data, etag = self.tiny.models[digest], f'"{digest}"'
        wanted = asked.headers.get("range")
        if wanted is None or asked.headers.get("if-range") != etag:
            return Answer(200, data, {"etag": etag})
        start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        return Answer(206, data[start:], {"content-range": f"bytes {start}-{len(data) - 1}/{len(data)}"})

    def _select(self, asked: Asked, body: bytes) -> Answer:
        if asked.headers["content-type"] == "application/json":
            reference: TxId | None = TxId(json.loads(body)["transaction"])
            if reference not in self.tiny.transactions:
                return problem(404, "transaction-unknown", transaction=reference)
            digest, parent = self.tiny.transactions[reference].header.model_digest, reference
        else:
            check_model(self.tiny.genesis.layout, body)
            reference, digest, parent = None, digest_of(body), self.tiny.genesis_id
            self.tiny.models[digest] = body
        aggregate, source = digest, "own"
        if self.average is not None:
            aggregate, source, parent = digest_of(self.average), "parents", self.tiny.genesis_id
            self.tiny.models[aggregate] = self.average
        content = {
            "ledger": self.tiny.genesis_id,
            "author": None if reference is None else self.tiny.transactions[reference].header.author,
            "reference": reference,
            "reference_model": digest,
            "selector": "top-k",
            "rule": "nobody else",
            "source": source,
            "cut": 0,
            "parents": [parent],
            "candidates": [],
            "weights": [],
            "too_few": None,
            "max_step": {"norm": self.max_step},
            "max_step_alone": {"norm": self.max_step},
            "aggregate": {"digest": aggregate, "size": self.tiny.genesis.layout.nbytes, "href": ""},
        }
        identity = digest_of(json.dumps(content).encode())
        created = identity not in self.selections
        self.selections[identity] = json.dumps([parent]).encode()
        return Answer(201 if created else 200, json.dumps({"id": identity, **content}).encode(), _JSON)

    def _publish(self, asked: Asked, body: bytes) -> Answer:
        fields, model = _parts(asked, body)
        selection = fields.get("selection")
        if selection is not None and selection not in self.selections:
            raise SelectionUnknownError
        parents = fields.get("parents") or json.loads(self.selections[selection])
        unsigned = build_update(
            ledger=self.tiny.genesis_id,
            author=fields.get("author", author_of_secret(fields.get("secret", "5" * 64))),
            sequence=fields.get("sequence", len(self.tiny.transactions)),
            created_at_ms=fields.get("created_at_ms", 1),
            num_examples=fields["num_examples"],
            start=Digest(fields.get("start", digest_of(self.tiny.genesis_model))),
            model_digest=digest_of(model),
            model_size=len(model),
            parents=tuple(parents),
            evidence=None if selection is None else Digest(selection),
            metrics=fields.get("metrics", {}),
            extensions={name: bytes.fromhex(value) for name, value in fields.get("extensions", {}).items()},
            noise_std=fields.get("noise_std", 0.0),
        )
        header, identity = unsigned.header, unsigned.id
        signature = fields.get("signature")
        transaction = unsigned.issue(
            ISSUER, author_signature=None if signature is None else bytes.fromhex(signature), received_at_ms=1
        )
        newest = self.tiny.ledger.graph.newest_of(header.author)
        if identity not in self.tiny.transactions and newest and newest.sequence >= header.sequence:
            raise SequenceConflictError("used", existing=newest.id, next_sequence=newest.sequence + 1)
        outcome = self.tiny.node.admit(transaction, None, figures=Figures(self.tiny.norm(model)))
        self.tiny.transactions[identity] = transaction
        self.tiny.models[header.model_digest] = model
        status = 200 if isinstance(outcome, AlreadyKnown) else 201
        return Answer(status, json.dumps(self.transaction_out(transaction)).encode(), _JSON)

    def _tips_out(self) -> list[dict[str, Any]]:
        outs = [self.transaction_out(self.tiny.transactions[tip]) for tip in self.tiny.ledger.graph.tips()]
        return [
            {"transaction": out["id"], **{key: out[key] for key in ("author", "sequence", "depth")}} for out in outs
        ]

    def _client_out(self, newest: TxId) -> dict[str, Any]:
        out = self.transaction_out(self.tiny.transactions[newest])
        kept = ("author", "sequence", "depth", "is_tip", "created_at", "num_examples", "metrics")
        return {"newest": newest, **{name: out[name] for name in kept}}

    def transaction_out(self, transaction: Transaction) -> dict[str, Any]:
        header = transaction.header
        return {
            "id": transaction.id,
            "ledger": self.tiny.genesis_id,
            "kind": "genesis" if header.kind is Kind.GENESIS else "update",
            "author": header.author,
            "sequence": header.sequence,
            "created_at": "2023-11-14T22:13:20.000Z",
            "created_at_ms": header.created_at_ms,
            "num_examples": header.num_examples,
            "noise_std": header.noise_std,
            "metrics": dict(header.metrics),
            "extensions": {},
            "start": header.start,
            "parents": list(header.parents),
            "depth": 0,
            "is_tip": True,
            "model": {"digest": header.model_digest, "size": header.model_size, "href": ""},
            "attachment": None,
            "author_signature": None if transaction.author_signature is None else transaction.author_signature.hex(),
            "receipt": {
                "issuer": transaction.receipt.issuer,
                "received_at": "2023-11-14T22:13:20.000Z",
                "received_at_ms": transaction.receipt.received_at_ms,
                "members_version": transaction.receipt.members_version,
                "signature": transaction.receipt.signature.hex(),
            },
            "header": transaction.header_bytes.hex(),
        }


class _Sockets(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up on purpose is no news."""


_JSON = {"content-type": "application/json"}


def _json(**content: Any) -> Answer:
    return Answer(200, json.dumps(content).encode(), _JSON)


def _parts(asked: Asked, body: bytes) -> tuple[dict[str, Any], bytes]:
    """The two parts, by the standard library's own MIME parser: another reader than the server's."""
    head = f"Content-Type: {asked.headers['content-type']}\r\n\r\n".encode()
    message = BytesParser().parsebytes(head + body)
    parts = message.get_payload()
    assert isinstance(parts, list)
    boundary = b"\r\n--" + message.get_boundary().encode()
    model = body.split(b"\r\n\r\n", 2)[2].removesuffix(boundary + b"--\r\n")
    return json.loads(parts[0].get_payload()), model


def _handler(server: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 10
        wbufsize = 1 << 16  # head and body in one packet: two would wait for the client's delayed ACK

        def do_GET(self) -> None:
            self._handle()

        def do_POST(self) -> None:
            self._handle()

        def _handle(self) -> None:
            asked = Asked(self.command, self.path, {name.lower(): value for name, value in self.headers.items()})
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            server.asked.append(asked)
            spoiled = server.take_spoiled(self.path) or Spoiled()
            if spoiled.hang_up == "before":
                self.close_connection = True
                return
            if self.path == v1.EVENTS and spoiled.answer is None:
                self._events()
                return
            answer = spoiled.answer or server.answer(asked, body)
            if spoiled.hang_up == "after":
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            if spoiled.cut_after is not None:
                self.wfile.write(answer.body[: spoiled.cut_after])
                self.close_connection = True
            else:
                self.wfile.write(answer.body)

        def _events(self) -> None:
            """The event after Last-Event-ID, then the connection ends; cut where that is asked for."""
            self.send_response(200)
            if server.cuts_events:
                self.send_header("content-length", "1000000")
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            last = int(self.headers.get("last-event-id", "x-0").split("-")[1])
            connected = f": connected\nid: e-{last}\n\n".encode()
            self.wfile.write(connected + b"".join(server.events[last : last + 1]))
            self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class calls it so)
            pass

    return Handler
