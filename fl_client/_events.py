"""Server-sent events of one connection, as the transactions that they announce."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from fl_client._calls import Calls
from fl_client._http import Reply
from fl_client._servers import Server
from fl_client.errors import AnswerInvalidError, ConnectionFailedError
from fl_core.wire import v1


@dataclass(frozen=True, slots=True)
class Event:
    """An admitted transaction as the server announced it; ``cursor`` continues after it on the same server."""

    cursor: str
    transaction: v1.TransactionOut


class EventStream(Iterator[Event]):
    """Server-sent events of one connection."""

    def __init__(self, calls: Calls, server: Server, cursor: str | None) -> None:
        self._calls, self._server = calls, server
        self._stack = contextlib.ExitStack()
        headers = {"accept": "text/event-stream"}
        if cursor is not None:
            headers["last-event-id"] = cursor
        with self._stack:
            opened = self._stack.enter_context(server.endpoint.lines(v1.EVENTS, headers))
            if isinstance(opened, Reply):
                raise calls.refusal(server, opened)
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
        self._calls.check_ledger(self._server, transaction.ledger)
        cursor = fields.get("id", "")
        self._calls.remember_origin(self._server, cursor.partition("-")[0])
        return Event(cursor, transaction)

    def close(self) -> None:
        self._stack.close()
