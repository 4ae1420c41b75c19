"""One call of the API, on whichever of several servers answers: what is retried, where, and what is believed.

A call is an *attempt*: a function of a server and a deadline. It is made on each server in health order, and on all
of them again, until one does its work or the time is up; which faults another server may be without is decided here.
"""

import contextlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import stamina
from pydantic import BaseModel, ValidationError

from fl_client._http import Endpoint, Reply, Timeouts, Traffic
from fl_client._servers import Server, Servers
from fl_client.errors import (
    AnswerInvalidError,
    CertificateRefusedError,
    ConnectionFailedError,
    OutcomeUnknownError,
    ServerUnavailableError,
    error_from_problem,
)
from fl_core.errors import (
    DagAcflError,
    DigestMismatchError,
    ParameterError,
    SignatureError,
    UnknownError,
    WrongLedgerError,
)
from fl_core.types import is_hex_id
from fl_core.wire import v1

_REMEMBERED_ORIGINS: Final = 1024
_LONGEST_RETRY_AFTER_S: Final = 3600.0
_TRY_ELSEWHERE: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 507})

_WRONG: Final = (AnswerInvalidError, CertificateRefusedError, DigestMismatchError, SignatureError)
"""Faults that do not go away by waiting; another server may be without."""

A = TypeVar("A", bound=BaseModel)
T = TypeVar("T")
Attempt: TypeAlias = Callable[[Server, float], T]
"""Does a call on one server until a moment of ``time.monotonic``."""


class Calls:
    """The servers of one ledger and the calls to them. Safe to share between threads.

    Args:
        addresses: Of the servers, in order of preference.
        ledger: The only ledger to talk to; None takes that of the first server that answers.
        timeouts: Bounds in time.
        token: Bearer token, sent to all.
        ca_file: PEM of the authority behind the servers' certificates.

    Raises:
        ParameterError: No address, or one that is none; or ``ledger`` is no id.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        ledger: str | None,
        timeouts: Timeouts,
        token: str | None,
        ca_file: Path | None,
    ) -> None:
        if not addresses:
            raise ParameterError("name at least one server")
        if ledger is not None and not is_hex_id(ledger):
            raise ParameterError("a ledger's id is 64 lowercase hexadecimal digits")
        self.timeouts = timeouts
        self.traffic = Traffic()
        self.ledger = ledger
        self.servers = Servers(
            Endpoint(url, timeouts=timeouts, traffic=self.traffic, token=token, ca_file=ca_file) for url in addresses
        )
        self._lock = threading.Lock()
        self._origins: OrderedDict[str, str] = OrderedDict()

    def close(self) -> None:
        """Close all connections."""
        for server in self.servers:
            server.endpoint.close()

    def origin_of(self, name: str) -> str | None:
        """Which server something came from, and so knows it; None if that is not remembered."""
        return self._origins.get(name)

    def read(self, path: str, message: type[A], *, first: str | None = None) -> A:
        """A GET's answer as a message; ``first`` is the server that is asked before the others."""
        return self.retry(self.message(path, message), first=first)

    def message(self, path: str, message: type[A]) -> Attempt[A]:
        """The attempt of ``read``."""

        def attempt(server: Server, deadline: float) -> A:
            return self.answer(server, server.endpoint.read(path, deadline=deadline), message)

        return attempt

    def read_bytes(self, path: str) -> bytes:
        """A GET's body as it is."""

        def attempt(server: Server, deadline: float) -> bytes:
            return self.body_of(server, server.endpoint.read(path, deadline=deadline))

        return self.retry(attempt)

    @staticmethod
    def get(server: Server, path: str, deadline: float) -> Reply:
        """One GET on one server."""
        return server.endpoint.call("GET", path, deadline=deadline)

    def body_of(self, server: Server, reply: Reply) -> bytes:
        """The body of a 200."""
        if reply.status != 200:
            raise self.refusal(server, reply)
        return reply.body

    def answer(self, server: Server, reply: Reply, message: type[A]) -> A:
        """A reply as a message of this ledger."""
        if reply.status not in (200, 201):
            raise self.refusal(server, reply)
        try:
            answer = message.model_validate_json(reply.body)
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

    @staticmethod
    def refusal(server: Server, reply: Reply) -> "RefusedError":
        """What a server's no means."""
        problem: Any = None
        if "json" in reply.headers.get("content-type", ""):
            with contextlib.suppress(ValueError, RecursionError):
                problem = json.loads(reply.body)
        error = error_from_problem(
            reply.status, problem if isinstance(problem, dict) else {}, server=server.endpoint.url
        )
        return RefusedError(error, reply.status, retry_after_s(reply.headers.get("retry-after")))

    def _introduce(self, server: Server, deadline: float) -> None:
        """Ask a server which ledger it serves, once, before it is told or asked anything else."""
        if server.known_ledger is None:
            out = self.answer(server, self.get(server, "/version", deadline), v1.VersionOut)
            self.check_ledger(server, out.ledger)

    def remember_origin(self, server: Server, *names: str) -> None:
        """These came from this server, which is asked for them first."""
        with self._lock:
            for name in names:
                self._origins[name] = server.endpoint.url
                self._origins.move_to_end(name)
            while len(self._origins) > _REMEMBERED_ORIGINS:
                self._origins.popitem(last=False)

    def retry(
        self,
        attempt: Attempt[T],
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
                    return self.sweep(attempt, deadline, first=first, repeatable=repeatable, introduced=introduced)
                except ServerUnavailableError as error:
                    failed = error
                    raise
        raise AssertionError("stamina returns or raises")

    def sweep(
        self,
        attempt: Attempt[T],
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
        for server in self.servers.in_order(first=first):
            try:
                if introduced:
                    self._introduce(server, deadline)
                result = attempt(server, deadline)
            except RefusedError as refused:
                if isinstance(refused.error, UnknownError):
                    self.servers.answered(server)
                    unknown = refused.error
                    continue
                faults[server.endpoint.url] = self._refused(server, refused, repeatable=repeatable)
            except (ConnectionFailedError, *_WRONG) as error:
                faults[server.endpoint.url] = self._failed(server, error, repeatable=repeatable)
            else:
                self.servers.answered(server)
                return result
        wrong = [fault for fault in faults.values() if isinstance(fault, _WRONG)]
        if wrong and len(wrong) == len(faults):
            raise wrong[-1]
        if unknown is not None:
            raise unknown
        raise ServerUnavailableError({url: str(fault).removeprefix(f"{url} ") for url, fault in faults.items()})

    def _refused(self, server: Server, refused: "RefusedError", *, repeatable: bool) -> DagAcflError:
        """A refusal goes to the caller, except one that another server, or this one later, may not repeat."""
        if refused.status not in _TRY_ELSEWHERE:
            self.servers.answered(server)
            raise refused.error from None
        self.servers.failed(server, retry_after_s=refused.retry_after_s)
        if not repeatable and refused.status not in (429, 503):
            raise refused.error from None
        return refused.error

    def _failed(self, server: Server, error: DagAcflError, *, repeatable: bool) -> DagAcflError:
        """No answer, or not one to be believed."""
        self.servers.failed(server)
        if not repeatable and getattr(error, "sent", not isinstance(error, CertificateRefusedError)):
            raise OutcomeUnknownError(
                f"{server.endpoint.url} did not answer ({error}); the model may be published or not: ask for a "
                "selection and publish again, or use a key, which makes repeating safe"
            ) from error
        return error

    def _wait_until_open(self, deadline: float) -> None:
        pause = self.servers.reopens_in()
        if pause and pause < deadline - time.monotonic():
            time.sleep(pause)


class RefusedError(Exception):
    """A server answered no; tells a refusal from a fault that was found here. Never leaves this package."""

    def __init__(self, error: DagAcflError, status: int, retry_after_s: float | None) -> None:
        super().__init__(str(error))
        self.error, self.status, self.retry_after_s = error, status, retry_after_s


def retry_after_s(value: str | None) -> float | None:
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
