"""Bearer tokens: 256 random bits for a client or an operator, of which only a SHA-256 is kept.

Decides what a token looks like, what it may do, and where it is kept: a token that is made or revoked, by another
process, counts at once. Which routes ask for one is ``http.access``'s.
"""

import fcntl
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from fl_core.errors import ParameterError
from ledger_server.private_files import write_private
from ledger_server.store.engine import our_errors

logger = logging.getLogger(__name__)

FILE: Final = "tokens.jsonl"
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
        name: For whom it was made; unique.
        scope: What it may do.
        created_at_ms: Milliseconds since 1970 UTC.
        expires_at_ms: From then on it is refused; None: never.
    """

    digest: bytes
    name: str
    scope: Scope
    created_at_ms: int
    expires_at_ms: int | None = None

    @property
    def id(self) -> str:
        """The first 12 digits of the digest: enough to name a token, useless to guess it."""
        return self.digest.hex()[:12]

    def is_valid(self, now_ms: int) -> bool:
        """Whether it may be used at this time."""
        return self.expires_at_ms is None or now_ms < self.expires_at_ms


def new_token() -> str:
    """A token's text: a prefix that secret scanners can know, and 256 random bits."""
    return _PREFIX + secrets.token_urlsafe(32)


def is_token(text: str) -> bool:
    """Whether the text has the form of a token."""
    return _FORM.fullmatch(text) is not None


def token_digest(token: str) -> bytes:
    """What is kept of a token. No salt and no slow hash: 256 random bits cannot be guessed from it."""
    return hashlib.sha256(token.encode("ascii")).digest()


class TokenFile:
    """The tokens of one server: ``tokens.jsonl`` in its data folder, a line of JSON for each that is not revoked.

    A running server follows the file: it looks before every answer whether the file changed, and then reads it again;
    of a file that is damaged it says so in its log, and what was valid before stays valid. Changes are made by
    ``dag-acfl tokens``, one process at a time, in a new file that takes the old one's place.

    Args:
        path: The file; it need not exist.
        now_ms: Milliseconds since 1970 UTC, for expiry.
    """

    def __init__(self, path: Path, *, now_ms: Callable[[], int]) -> None:
        self._path, self._now_ms = path, now_ms
        self._seen: tuple[int, ...] | None = None
        self._known: Mapping[bytes, TokenRecord] = {}

    async def find(self, token: str) -> TokenRecord | None:
        """The record of a token that is valid now; None for any other text.

        Raises:
            StoreUnavailableError: The file cannot be read.
        """
        if not is_token(token):
            return None
        with our_errors("the tokens cannot be read"):
            state = self._path.stat() if self._path.exists() else None
            seen = None if state is None else (state.st_ino, state.st_mtime_ns, state.st_size)
            if seen != self._seen:
                try:
                    self._known = {record.digest[:8]: record for record in self.records()}
                except ParameterError as error:
                    logger.error("the tokens known before stay valid", extra={"reason": str(error)})  # noqa: TRY400
                self._seen = seen
        digest = token_digest(token)
        # Looked up by a part of the digest, which nobody can steer; compared in full in constant time.
        record = self._known.get(digest[:8])
        if record is None or not hmac.compare_digest(record.digest, digest) or not record.is_valid(self._now_ms()):
            return None
        return record

    def records(self) -> list[TokenRecord]:
        """All tokens, oldest first.

        Raises:
            StoreUnavailableError: The file cannot be read.
            ParameterError: A line of it is no token's; the message names the line.
        """
        with our_errors("the tokens cannot be read"):
            data = self._path.read_bytes() if self._path.exists() else b""
        records = []
        for number, line in enumerate(data.splitlines(), start=1):
            try:
                records.append(_record(json.loads(line)))
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                fault = f"{self._path}, line {number} is not a token's: {type(error).__name__}: {error}"
                raise ParameterError(f"{fault[:300]}; restore the file, or make tokens anew") from error
        return records

    def add(self, record: TokenRecord) -> None:
        """Keep a new token, durably.

        Raises:
            ParameterError: A token has this name, or is this one.
            StoreUnavailableError: The file cannot be written.
        """
        with self._changing() as records:
            if any(record.digest == each.digest or record.name == each.name for each in records):
                raise ParameterError(f"there is a token {record.name!r} already, or this very token; revoke that first")
            records.append(record)

    def revoke(self, name_or_id: str) -> TokenRecord:
        """Remove the token of this name or id, durably; a running server refuses it from its next answer on.

        Raises:
            ParameterError: No token has this name or id, or several do.
            StoreUnavailableError: The file cannot be written.
        """
        with self._changing() as records:
            meant = [each for each in records if name_or_id in (each.name, each.id)]
            if len(meant) != 1:
                fault = "several tokens have" if meant else "no token has"
                raise ParameterError(f"{fault} the name or id {name_or_id[:64]!r}; see: dag-acfl tokens list")
            records.remove(meant[0])
        return meant[0]

    @contextmanager
    def _changing(self) -> Iterator[list[TokenRecord]]:
        """The tokens, to be changed in the block and written at its end, while no other process changes them."""
        with our_errors("the tokens cannot be written"):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX)
                records = self.records()
                yield records
                draft = self._path.with_name(f"{self._path.name}.new")
                draft.unlink(missing_ok=True)
                write_private(draft, "".join(f"{json.dumps(_facts(record))}\n" for record in records).encode())
                draft.rename(self._path)
                os.fsync(folder)
            finally:
                os.close(folder)


def _facts(record: TokenRecord) -> dict[str, object]:
    return {
        "name": record.name,
        "scope": record.scope.value,
        "created_at_ms": record.created_at_ms,
        "expires_at_ms": record.expires_at_ms,
        "sha256": record.digest.hex(),
    }


def _record(facts: Any) -> TokenRecord:
    digest, name, expires_at_ms = bytes.fromhex(facts["sha256"]), facts["name"], facts["expires_at_ms"]
    if len(digest) != 32 or not isinstance(name, str):
        raise ValueError("sha256 must be 64 hexadecimal digits, name a text")
    if type(facts["created_at_ms"]) is not int or (expires_at_ms is not None and type(expires_at_ms) is not int):
        raise ValueError("created_at_ms must be a whole number, expires_at_ms one or null")
    return TokenRecord(digest, name, Scope(facts["scope"]), facts["created_at_ms"], expires_at_ms)
