"""Server-sent events of one connection, as the transactions that they announce."""

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from fl_client.errors import AnswerInvalidError, ConnectionFailedError
from fl_client.retry import Server
from fl_client.session import Session, refusal
from fl_client.transport import faults_mapped
from fl_core.wire import v1

_MAX_LINE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Event:
    """An admitted transaction as the server announced it; ``cursor`` continues after it on the same server."""

    cursor: str
    transaction: v1.TransactionOut


class EventStream(Iterator[Event]):
    """Server-sent events of one connection.

    Attributes:
        cursor: Continues on the same server after what was heard; known before the first event.

    Raises:
        RefusedError: The server refuses to send them.
        ConnectionFailedError: Cut, or silent for too long; also while iterating.
    """

    def __init__(self, session: Session, server: Server, cursor: str | None) -> None:
        self._session, self._server, self.cursor = session, server, cursor
        headers = {"accept": "text/event-stream"}
        if cursor is not None:
            headers["last-event-id"] = cursor
        with ExitStack() as stack:
            opened = server.endpoint.open("GET", v1.EVENTS, deadline=math.inf, headers=headers)
            response = stack.enter_context(opened)
            if response.status != 200:
                raise refusal(server, server.endpoint.whole(response))
            self._lines = _lines(server.endpoint.pieces(response))
            self._open = stack.pop_all()

    def __next__(self) -> Event:
        fields: dict[str, str] = {}
        for line in self._lines:
            if line:
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
                continue
            event = self._event(fields) if fields.get("event") == "transaction" else None
            if "id" in fields:
                self.cursor = fields["id"]
                self._session.remember_origin(self._server, self.cursor.partition("-")[0])
            if event is not None:
                return event
            fields = {}
        raise ConnectionFailedError("the server ended the stream")

    def _event(self, fields: Mapping[str, str]) -> Event:
        try:
            transaction = v1.TransactionOut.model_validate_json(fields.get("data", ""))
        except ValidationError as error:
            raise AnswerInvalidError("an event's data is not a transaction") from error
        self._session.check_ledger(self._server, transaction.ledger)
        return Event(fields.get("id", ""), transaction)

    def close(self) -> None:
        self._open.close()


def _lines(pieces: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    with faults_mapped():
        for piece in pieces:
            *whole, rest = (rest + piece).split(b"\n")
            if len(rest) > _MAX_LINE_BYTES:
                raise AnswerInvalidError(f"a line exceeds {_MAX_LINE_BYTES} bytes")
            yield from (line.removesuffix(b"\r").decode("utf-8", "replace") for line in whole)
