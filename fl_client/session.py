"""Calls to the servers of one ledger: answers are parsed, and all of them are of that ledger."""

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar

from cachetools import LRUCache
from pydantic import BaseModel, ValidationError

from fl_client.errors import AnswerInvalidError, error_from_response
from fl_client.retry import Attempt, RefusedError, Server, ServerPool
from fl_client.transport import ByteCounts, Endpoint, Response
from fl_core.errors import ParameterError, WrongLedgerError
from fl_core.types import is_hex_id
from fl_core.wire import v1

_REMEMBERED_ORIGINS: Final = 1024

A = TypeVar("A", bound=BaseModel)
T = TypeVar("T")


class Session:
    """The servers of one ledger and the calls to them. Safe to share between threads."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        ledger: str | None,
        total_s: float,
        token: str | None,
        ca_file: Path | None,
    ) -> None:
        if not addresses:
            raise ParameterError("name at least one server")
        if ledger is not None and not is_hex_id(ledger):
            raise ParameterError("a ledger's id is 64 lowercase hexadecimal digits")
        if not total_s > 0:
            raise ParameterError("timeout must be above 0")
        self.total_s: float = total_s
        self.traffic: ByteCounts = ByteCounts()
        self.ledger = ledger
        endpoints = [Endpoint(url, traffic=self.traffic, token=token, ca_file=ca_file) for url in addresses]
        self.servers: ServerPool = ServerPool(endpoints, total_s=total_s)
        self._lock = Lock()
        self._origins: LRUCache[str, str] = LRUCache(_REMEMBERED_ORIGINS)

    def call(self, attempt: Attempt[T], *, first: str | None = None) -> T:
        """As ``ServerPool.call``, on servers of this ledger only."""

        def introduced(server: Server, deadline: float) -> T:
            if server.known_ledger is None:  # before it is told or asked anything else
                out = self.get(server, "/version", v1.VersionOut, deadline)
                self.check_ledger(server, out.ledger)
            return attempt(server, deadline)

        return self.servers.call(introduced, first=first)

    def read(self, path: str, message: type[A], *, first: str | None = None) -> A:
        """A GET's answer as a message; ``first`` is the server that is asked before the others."""
        return self.call(lambda server, deadline: self.get(server, path, message, deadline), first=first)

    def read_bytes(self, path: str) -> bytes:
        """A GET's body as it is."""
        return self.call(lambda server, deadline: self.get_bytes(server, path, deadline))

    def get(self, server: Server, path: str, message: type[A], deadline: float) -> A:
        """One GET on one server, as a message."""
        return self.parse(server, server.endpoint.call("GET", path, deadline=deadline), message)

    @staticmethod
    def get_bytes(server: Server, path: str, deadline: float) -> bytes:
        """One GET on one server: the body."""
        response = server.endpoint.call("GET", path, deadline=deadline)
        if response.status != 200:
            raise refusal(server, response)
        return response.body

    def parse(self, server: Server, response: Response, message: type[A]) -> A:
        """A response as a message of this ledger."""
        if response.status not in (200, 201):
            raise refusal(server, response)
        try:
            answer = message.model_validate_json(response.body)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, fault["loc"])) or "body"
            raise AnswerInvalidError(f"not a {message.__name__}: {where}: {fault['msg']}"[:300]) from error
        ledger = getattr(answer, "ledger", None)
        if ledger is not None and message is not v1.VersionOut:
            self.check_ledger(server, ledger)
        return answer

    def check_ledger(self, server: Server, ledger: str) -> None:
        """Take the first ledger that is named, and insist on it from then on."""
        if self.ledger is None:
            self.ledger = ledger
        if ledger != self.ledger:
            raise WrongLedgerError(
                f"{server.endpoint.url} serves ledger {ledger[:16]}…, this client belongs to {self.ledger[:16]}…; "
                "take that server off the list"
            )
        server.known_ledger = ledger

    def origin_of(self, name: str) -> str | None:
        """Address of the server that something came from, and that so knows it; None if not remembered."""
        with self._lock:
            return self._origins.get(name)

    def remember_origin(self, server: Server, *names: str) -> None:
        """Remember that these came from this server."""
        with self._lock:
            self._origins.update(dict.fromkeys(names, server.endpoint.url))


def refusal(server: Server, response: Response) -> RefusedError:
    """A response that is no success, as what an attempt raises."""
    error = error_from_response(response.status, response.headers, response.body, server=server.endpoint.url)
    return RefusedError(error, response.status, response.headers.get("retry-after"))
