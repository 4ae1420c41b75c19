"""One call on whichever of several servers answers: the order of servers, the pauses, and what is tried again.

A call is an *attempt*: a function of a server and a deadline. It is made on each server, healthy ones first, and on all
of them again after a pause, until one does its work or the time is up.
"""

import logging
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from threading import Lock
from typing import Final, TypeAlias, TypeVar

from fl_client.errors import (
    AnswerInvalidError,
    CertificateRefusedError,
    ConnectionFailedError,
    ServerUnavailableError,
)
from fl_client.transport import Endpoint
from fl_core.errors import DagAcflError, DigestMismatchError, PartFailedError, SignatureError, UnknownError

FIRST_REST_S: Final = 0.5
LONGEST_REST_S: Final = 60.0
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
_LONGEST_RETRY_AFTER_S: Final = 3600.0
_FIRST_SILENCE_S: Final = 5.0
TRY_ELSEWHERE: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 507})
_JITTER: Final = random.Random()  # noqa: S311 -- of its own: what a training draws from the module stays as it seeded it
_WRONG: Final = (AnswerInvalidError, CertificateRefusedError, DigestMismatchError, PartFailedError, SignatureError)
"""Faults that do not go away by waiting; another server may be without."""

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Server:
    """An endpoint and how it has been doing; moments are on ``time.monotonic``'s scale.

    Attributes:
        known_ledger: The ledger that it serves; None until it was asked, and when it did not answer.
        failures: In a row.
        resting_until: Until when it is asked last.
        closed_until: Until when it has asked to be left alone (Retry-After).
        takes_steps: Whether it takes coded models, as far as is known.
    """

    endpoint: Endpoint
    known_ledger: str | None = None
    failures: int = 0
    resting_until: float = 0.0
    closed_until: float = 0.0
    takes_steps: bool = True


Attempt: TypeAlias = Callable[[Server, float], T]
"""Does a call on one server until a deadline on ``time.monotonic``'s scale."""


class RefusedError(Exception):
    """A server's refusal, as an attempt raises it; never leaves this package."""

    def __init__(self, error: DagAcflError, status: int, retry_after: str | None) -> None:
        super().__init__(str(error))
        self.error: DagAcflError = error
        self.status: int = status
        self.retry_after_s: float | None = retry_after_s(retry_after)


class ServerPool:
    """Servers that can do the same work. Safe to share between threads.

    Args:
        endpoints: In order of preference.
        total_s: Bound of a call, in seconds.

    Attributes:
        patience_s: For how long a call is tried again, in seconds, where ``total_s`` leaves more; calls under way
            heed a change.
    """

    def __init__(self, endpoints: Iterable[Endpoint], *, total_s: float) -> None:
        self._servers = [Server(endpoint) for endpoint in endpoints]
        self._total_s = self.patience_s = total_s
        self._failing_since: float | None = None
        self._tell_again_at = 0.0
        self._lock = Lock()

    def close(self) -> None:
        for server in self._servers:
            server.endpoint.close()

    def in_order(self, *, first: str | None = None) -> list[Server]:
        """All servers: healthy ones as given, then resting ones by when their rest ends.

        Args:
            first: Address of a server to ask before its healthy peers, such as the one that computed an aggregate.
        """
        now = time.monotonic()
        with self._lock:
            # sorted is stable: equal keys keep the caller's order.
            return sorted(
                self._servers, key=lambda server: (max(server.resting_until, now), server.endpoint.url != first)
            )

    def call(self, attempt: Attempt[T], *, first: str | None = None) -> T:
        """Make an attempt on one server after another until it succeeds.

        Args:
            attempt: Doing it twice must be doing it once. Raises ``RefusedError`` for a server's refusal.
            first: As for ``in_order``.

        Raises:
            ServerUnavailableError: No server could be used in time.
            DagAcflError: A refusal, or a fault that does not go away by waiting.
        """
        begun = time.monotonic()
        deadline = begun + self._total_s
        failed: ServerUnavailableError | None = None
        pause_s = 0.0
        while True:
            with self._lock:
                closed_s = min(server.closed_until for server in self._servers) - time.monotonic()
            wait_s = max(pause_s * _JITTER.uniform(0.5, 1.0), closed_s, 0.0)
            retry_until = begun + min(self._total_s, self.patience_s)
            if failed is not None:
                if time.monotonic() + wait_s >= retry_until:
                    failed.after_s = time.monotonic() - begun
                    raise failed
                self._tell_of(failed)
            if time.monotonic() + wait_s < retry_until:
                time.sleep(wait_s)
            try:
                return self.sweep(attempt, deadline, first=first)
            except ServerUnavailableError as error:
                failed = error
            pause_s = min(max(2 * pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)

    def sweep(self, attempt: Attempt[T], deadline: float, *, first: str | None = None) -> T:
        """As ``call``, asking each server once and without a pause."""
        faults: dict[str, DagAcflError] = {}
        unknown: UnknownError | None = None
        for server in self.in_order(first=first):
            url = server.endpoint.url
            try:
                result = attempt(server, deadline)
            except RefusedError as refused:
                if refused.status not in TRY_ELSEWHERE:
                    self.answered(server)
                    if not isinstance(refused.error, UnknownError):
                        raise refused.error from None
                    unknown = refused.error  # another server may know it
                    continue
                self.failed(server, retry_after_s=refused.retry_after_s)
                faults[url] = refused.error
            except (ConnectionFailedError, *_WRONG) as error:
                self.failed(server)
                faults[url] = error
            else:
                self.answered(server)
                return result
        raise _verdict(faults, unknown)

    def failed(self, server: Server, *, retry_after_s: float | None = None) -> None:
        """Send a server to the end, for a rest that doubles with each failure in a row."""
        server.endpoint.close()  # a server that shuts down waits for idle TLS connections to say goodbye
        now = time.monotonic()
        with self._lock:
            server.failures += 1
            if retry_after_s is None:  # it did not answer: what comes back there has to introduce itself again
                server.known_ledger = None
            rest_s = min(FIRST_REST_S * 2 ** min(server.failures - 1, 16), LONGEST_REST_S)
            server.resting_until = now + max(rest_s, retry_after_s or 0.0)
            server.closed_until = now + (retry_after_s or 0.0)

    def answered(self, server: Server) -> None:
        """A server did its work: it is healthy again."""
        with self._lock:
            server.failures, server.resting_until, server.closed_until = 0, 0.0, 0.0
            since, self._failing_since = self._failing_since, None
        if since is not None:
            logger.info("%s answers, after %.0f s without a server", server.endpoint.url, time.monotonic() - since)

    def _tell_of(self, failed: ServerUnavailableError) -> None:
        """Say that calls are tried again: at once, and then each time that this has lasted twice as long."""
        now = time.monotonic()
        with self._lock:
            if self._failing_since is None:
                self._failing_since = self._tell_again_at = now
            if now < self._tell_again_at:
                return
            self._tell_again_at = now + max(_FIRST_SILENCE_S, now - self._failing_since)
        logger.info("%s; trying again", failed)


def _verdict(faults: dict[str, DagAcflError], unknown: UnknownError | None) -> DagAcflError:
    """What to tell the caller when no server, by address, did the work."""
    wrong = [fault for fault in faults.values() if isinstance(fault, _WRONG)]
    if wrong and len(wrong) == len(faults):
        return wrong[-1]
    if unknown is not None:
        return unknown
    return ServerUnavailableError({url: str(fault).removeprefix(f"{url} ") for url, fault in faults.items()})


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
