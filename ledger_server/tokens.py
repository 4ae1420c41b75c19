"""Bearer tokens: 256 random bits for a client, an operator or a monitor, of which only a SHA-256 is kept.

Decides what a token looks like, what it may do, and where it is kept: a token that is made or revoked, by another
process, counts at once. Which routes ask for one is ``http.access``'s.
"""

import fcntl
import hashlib
import logging
import math
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fl_core.dag.author_list import AuthorList
from fl_core.errors import ParameterError, TokenAuthorError
from fl_core.types import AuthorId
from ledger_server.private_files import replace_private
from ledger_server.store.engine import our_errors
from ledger_server.store.errors import StoreUnavailableError

logger: logging.Logger = logging.getLogger(__name__)

FILE: Final = "tokens.jsonl"
_PREFIX: Final = "dagacfl_"
_FORM: Final = re.compile(_PREFIX + r"[A-Za-z0-9_-]{43}")
_MAX_NAME_CHARACTERS: Final = 64
MAX_DAYS: Final = 36_500
"""For which a token may be valid that expires."""
_DAY_MS: Final = 86_400_000


class Scope(StrEnum):
    """What a token's holder may do; an operator may do all that the others may."""

    CLIENT = "client"
    METRICS = "metrics"
    """Read metrics, and nothing else: what a monitor holds opens nothing to who steals it."""
    OPERATOR = "operator"

    def covers(self, wanted: "Scope") -> bool:
        """Whether this scope is enough for a route that wants ``wanted``."""
        return self is wanted or self is Scope.OPERATOR


class TokenRecord(BaseModel):
    """What is kept of a token: a line of ``tokens.jsonl``.

    Attributes:
        name: For whom it was made; unique.
        scope: What it may do.
        created_at_ms: Milliseconds since 1970 UTC.
        expires_at_ms: From then on it is refused; None: never.
        authors: Who may publish with it; none: anybody.
        sha256: Of its text.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, strict=True, extra="forbid")

    name: str
    scope: Scope
    created_at_ms: int
    expires_at_ms: int | None = None
    authors: tuple[AuthorId, ...] = ()
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    @property
    def id(self) -> str:
        """The first 12 digits of the digest: enough to name a token, useless to guess it."""
        return self.sha256[:12]

    def is_valid(self, now_ms: int) -> bool:
        """Whether it may be used at this time."""
        return self.expires_at_ms is None or now_ms < self.expires_at_ms

    def check_author(self, author: AuthorId, listed: AuthorList) -> None:
        """See that it may be used to publish for an author: one that it is bound to, or who goes on in its place.

        Raises:
            TokenAuthorError: It is bound to others.
        """
        if self.authors and author not in listed.with_successors(self.authors):
            raise TokenAuthorError(
                f"the token {self.name} publishes for {', '.join(self.authors)} alone, not for {author}; its operator "
                "says for whom with: dag-acfl tokens bind"
            )


def new_token() -> str:
    """A token's text: a prefix that secret scanners can know, and 256 random bits."""
    return _PREFIX + secrets.token_urlsafe(32)


def is_token(text: str) -> bool:
    return _FORM.fullmatch(text) is not None


def token_digest(token: str) -> str:
    """What is kept of a token. No salt and no slow hash: 256 random bits cannot be guessed from it."""
    return hashlib.sha256(token.encode("ascii")).hexdigest()


def new_record(
    token: str, *, name: str, scope: Scope, days: int | None, authors: Collection[AuthorId], now_ms: int
) -> TokenRecord:
    """What is to be kept of a token.

    Args:
        token: Its text.
        name: For whom it is.
        scope: What it may do.
        days: After which it expires, 1 to ``MAX_DAYS``; None: never.
        authors: Who may publish with it; none: anybody.
        now_ms: Milliseconds since 1970 UTC.

    Raises:
        ParameterError: That is no name.
    """
    if not (1 <= len(name) <= _MAX_NAME_CHARACTERS and name.isprintable() and name.strip() == name):
        raise ParameterError(f"a token's name has 1 to {_MAX_NAME_CHARACTERS} printable characters")
    return TokenRecord(
        sha256=token_digest(token),
        name=name,
        scope=scope,
        created_at_ms=now_ms,
        expires_at_ms=None if days is None else now_ms + days * _DAY_MS,
        authors=tuple(sorted(set(authors))),
    )


class TokenFile:
    """The tokens of one server: ``tokens.jsonl`` in its data folder, a line of JSON for each that is not revoked.

    A running server follows the file: it looks before every answer whether the file changed, and then reads it again;
    of a file that is damaged it says so in its log, and what was valid before stays valid. Changes are made by
    ``dag-acfl tokens`` or for an operator's page, one process at a time, in a new file that takes the old one's place.

    Args:
        path: The file; it need not exist.
        now_ms: Milliseconds since 1970 UTC, for expiry.
    """

    def __init__(self, path: Path, *, now_ms: Callable[[], int]) -> None:
        self._path, self._now_ms = path, now_ms
        self._seen: tuple[int, ...] | None = None
        self._known: Mapping[str, TokenRecord] = {}

    async def find(self, token: str) -> TokenRecord | None:
        """The record of a token that is valid now; None for any other text.

        Raises:
            StoreUnavailableError: The file cannot be read.
        """
        if not is_token(token):
            return None
        self._look()
        record = self._known.get(token_digest(token))  # how long that takes tells nothing: nobody can steer a digest
        return record if record is not None and record.is_valid(self._now_ms()) else None

    def next_end_s(self) -> float:
        """Seconds until the first of the valid tokens ends, as far as the file can be read; infinity: none does."""
        with suppress(StoreUnavailableError):
            self._look()
        now_ms = self._now_ms()
        ends = [each.expires_at_ms for each in self._known.values() if each.expires_at_ms and each.is_valid(now_ms)]
        return (min(ends) - now_ms) / 1000 if ends else math.inf

    def _look(self) -> None:
        """Read the file if it has changed."""
        with our_errors("the tokens cannot be read"):
            state = self._path.stat() if self._path.exists() else None
            seen = None if state is None else (state.st_ino, state.st_mtime_ns, state.st_size)
            if seen != self._seen:
                try:
                    self._known = {record.sha256: record for record in self.records()}
                except ParameterError as error:
                    logger.error("the tokens known before stay valid", extra={"reason": str(error)})  # noqa: TRY400
                self._seen = seen

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
                records.append(TokenRecord.model_validate_json(line))
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                fault = ": ".join([*map(str, first["loc"]), first["msg"]])[:200]
                message = f"{self._path}, line {number} is not a token's: {fault}; restore it, or make tokens anew"
                raise ParameterError(message) from error
        return records

    def add(self, record: TokenRecord) -> None:
        """Keep a new token, durably.

        Raises:
            ParameterError: A token has this name, or is this one.
            StoreUnavailableError: The file cannot be written.
        """
        with self._changing() as records:
            if any(record.sha256 == each.sha256 or record.name == each.name for each in records):
                raise ParameterError(f"there is a token {record.name!r} already, or this very token; revoke that first")
            records.append(record)

    def revoke(self, name_or_id: str) -> TokenRecord:
        """Remove the token of this name or id, durably; a running server refuses it from its next answer on.

        Raises:
            ParameterError: No token has this name or id, or several do.
            StoreUnavailableError: The file cannot be written.
        """
        with self._changing() as records:
            return records.pop(_place_of(name_or_id, records))

    def bind(self, name_or_id: str, authors: Collection[AuthorId]) -> TokenRecord:
        """Let only these authors publish with a token, in place of those before, durably; none: anybody again.

        Raises:
            ParameterError, StoreUnavailableError: As ``revoke``.
        """
        with self._changing() as records:
            place = _place_of(name_or_id, records)
            records[place] = records[place].model_copy(update={"authors": tuple(sorted(set(authors)))})
        return records[place]

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
                replace_private(self._path, "".join(f"{record.model_dump_json()}\n" for record in records))
            finally:
                os.close(folder)


def _place_of(name_or_id: str, records: Sequence[TokenRecord]) -> int:
    """Where the one record of this name or id stands."""
    meant = [place for place, each in enumerate(records) if name_or_id in (each.name, each.id)]
    if len(meant) != 1:
        fault = "several tokens have" if meant else "no token has"
        raise ParameterError(f"{fault} the name or id {name_or_id[:64]!r}; see: dag-acfl tokens list")
    return meant[0]
