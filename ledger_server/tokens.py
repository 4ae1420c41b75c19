"""Bearer tokens: 256 random bits for a client or an operator, of which only a SHA-256 is kept.

Decides what a token looks like, what it may do, and how long a server goes by what it has read: a token that is
revoked or made, in this process or another, counts after ``FRESH_S`` at the latest. Where tokens are kept is
``store.tokens``'s; which routes ask for one is decided in ``http.access``.
"""

import asyncio
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from anyio.to_thread import run_sync

FRESH_S: Final = 0.5
"""Seconds for which tokens once read are believed: half of the second within which a revocation counts."""
_PREFIX: Final = "dagacfl_"
_FORM: Final = re.compile(_PREFIX + r"[A-Za-z0-9_-]{43}")


class Scope(StrEnum):
    """What a token's holder may do; an operator may do all that a client may."""

    CLIENT = "client"
    OPERATOR = "operator"

    def covers(self, wanted: "Scope") -> bool:
        """Whether this scope is enough for a route that wants ``wanted``."""
        return self is wanted or self is Scope.OPERATOR


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """What is kept of a token.

    Attributes:
        digest: SHA-256 of its text, 32 bytes.
        name: For whom it was made; unique among tokens that are not revoked.
        scope: What it may do.
        created_at_ms: Milliseconds since 1970 UTC.
        expires_at_ms: From then on it is refused; None: never.
        revoked_at_ms: When it was revoked; None: it is not.
    """

    digest: bytes
    name: str
    scope: Scope
    created_at_ms: int
    expires_at_ms: int | None = None
    revoked_at_ms: int | None = None

    @property
    def id(self) -> str:
        """The first 12 digits of the digest: enough to name a token, useless to guess it."""
        return self.digest.hex()[:12]

    def is_valid(self, now_ms: int) -> bool:
        """Whether it may be used at this time."""
        return self.revoked_at_ms is None and (self.expires_at_ms is None or now_ms < self.expires_at_ms)


def new_token() -> str:
    """A token's text: a prefix that secret scanners can know, and 256 random bits."""
    return _PREFIX + secrets.token_urlsafe(32)


def is_token(text: str) -> bool:
    """Whether the text has the form of a token."""
    return _FORM.fullmatch(text) is not None


def token_digest(token: str) -> bytes:
    """What is kept of a token. No salt and no slow hash: 256 random bits cannot be guessed from it."""
    return hashlib.sha256(token.encode("ascii")).digest()


class TokenBook:
    """The valid tokens as this process knows them, read again when they are older than ``FRESH_S``.

    A request waits for at most one such reading; a flood of unknown tokens causes none of its own.

    Args:
        read: Reads all tokens that are not revoked; called in a worker thread.
        now_ms: Milliseconds since 1970 UTC, for expiry.
        monotonic_s: A clock that only goes forward.
    """

    def __init__(
        self, read: Callable[[], Sequence[TokenRecord]], *, now_ms: Callable[[], int], monotonic_s: Callable[[], float]
    ) -> None:
        self._read, self._now_ms, self._monotonic_s = read, now_ms, monotonic_s
        self._reading = asyncio.Lock()
        self._read_at_s: float | None = None
        self._known: Mapping[bytes, TokenRecord] = {}

    async def find(self, token: str) -> TokenRecord | None:
        """The record of a token that is valid now; None for any other text.

        Raises:
            StoreError: The tokens cannot be read; nobody is let in on what was known before.
        """
        if not is_token(token):
            return None
        if not self._is_fresh():
            async with self._reading:
                if not self._is_fresh():
                    began_s = self._monotonic_s()
                    records = await run_sync(self._read)
                    self._known = {record.digest[:8]: record for record in records}
                    self._read_at_s = began_s
        digest = token_digest(token)
        # Looked up by a part of the digest, which nobody can steer; compared in full in constant time.
        record = self._known.get(digest[:8])
        if record is None or not hmac.compare_digest(record.digest, digest) or not record.is_valid(self._now_ms()):
            return None
        return record

    def _is_fresh(self) -> bool:
        return self._read_at_s is not None and self._monotonic_s() - self._read_at_s < FRESH_S
