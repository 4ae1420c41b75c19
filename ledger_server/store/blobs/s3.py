"""Models as objects of a bucket, one each, by their digest: the ``s3`` store, for Amazon S3 and what speaks like it.

``s3://bucket/prefix`` holds ``prefix/DIGEST`` for each model, of one server or of several (``shared``). S3 answers a
PUT when the object is durable, and shows the old object or the new one, never half of one; larger models go up in
parts, and appear with the last.

Who asks has to wait: every request is tried again a few times, for some seconds, and then the store is unavailable.
While it is, one request at a time finds out whether it still is, and all others are told at once: a service that hangs
would otherwise hold every thread of the server, and what needs no bucket would wait with the rest.
Credentials are read from AWS's own environment variables, never from our settings, and never shown.
"""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Final

from cachetools import TTLCache
from sqlalchemy import Connection

from fl_core.models import Buffer
from fl_core.types import Digest, digest_of, is_hex_id
from ledger_server.buckets import S3Address
from ledger_server.store.blobs.protocol import BlobStore, ModelReader
from ledger_server.store.blobs.shared import Sharing
from ledger_server.store.errors import StoreLocationError, StoreUnavailableError

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Store

PART_BYTES: Final = 8 << 20
"""Larger models go up in parts of this size, and come down in such pieces: none of it is one long request."""
_FIRST_AHEAD_BYTES: Final = 256 << 10
"""Read beyond what was asked for: a round trip takes as long as this. It doubles while reading goes on behind it."""
_OWNER: Final = "journal"
"""The object that holds the id of the journal whose models these are, or says that several servers' are."""
_SHARED: Final = "shared "
"""What it begins with then, before the ledger's id."""
YOUNG: Final = timedelta(days=1)
"""Objects of this age may wait for their transaction to be committed: a sweep leaves them."""
LINK_LIFE: Final = timedelta(minutes=5)
"""A link is a token for one model: whoever sees it can fetch that. A clock that is minutes off still gets by."""
_NEW_S: Final = 3600
"""Far less than ``YOUNG``, since S3's clock says how old an object is, and ours how long ago it was put."""
_MOST_NEW: Final = 10_000
_CONNECT_S: Final = 5
_STALL_S: Final = 15
_REQUEST_S: Final = 60
_RETRIES: Final = 3
_RETRY_FOR_S: Final = 15

_READING: Final = "the models' bucket cannot be read"
_WRITING: Final = "the models' bucket cannot be written"

_CODE: Final = re.compile(r"<Code>([A-Za-z0-9]{1,64})</Code>")
_STATUS: Final = re.compile(r"status code: ([0-9]{3})")
_BAD_KEYS: Final = frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken"})
_SET_KEYS: Final = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_WITHOUT_KEYS: Final = ("MissingAccessKeyId", "MissingSecretAccessKey", "/latest/api/token", "/latest/meta-data/")
"""Signs in a failure's text that there are none: without keys, a machine of Amazon's is asked for its own."""


class S3Blobs(BlobStore):
    """A bucket's objects under a prefix. Building it asks nothing of S3, ``owner`` and ``check`` do.

    Args:
        address: Where.
        journal: Whose models these are, where it is made already.

    Raises:
        StoreLocationError: The package that speaks S3 is not installed, or a setting or credential is missing.
    """

    def __init__(self, address: S3Address, *, journal: str | None = None) -> None:
        self._address, self._journal = address, journal
        self.is_shared = address.shared
        self._damaged: TTLCache[Digest, None] = TTLCache(_MOST_NEW, ttl=_NEW_S)
        """What others have put, or somebody else, and does not hash to its digest."""
        try:
            import obstore  # noqa: PLC0415 (an extra)
        except ImportError:
            raise StoreLocationError("models in S3 need its client; run: pip install obstore") from None
        self._obstore: ModuleType = obstore
        self._store = _opened(address)
        self._new: TTLCache[Digest, None] = TTLCache(_MOST_NEW, ttl=_NEW_S)
        """What was not there when ``prepare`` looked, and has been put since: too young for a sweep. In a shared place
        also what others have put and this server holds no pruned row of: nobody deletes that."""
        self._new_lock = threading.Lock()
        self._sharing: Sharing | None = None
        self._away = False
        self._finding_out = threading.Lock()

    def __str__(self) -> str:
        return str(self._address)

    def prepare(self, digest: Digest, data: Buffer) -> None:
        with self._new_lock:
            is_damaged, is_new = digest in self._damaged, self.is_shared and digest in self._new
        if is_new or (not is_damaged and self._is_here(digest)):
            return
        self.write(digest, data)
        with self._new_lock:
            self._damaged.pop(digest, None)
            self._new[digest] = None

    def put(self, connection: Connection, digest: Digest, data: Buffer) -> None:  # noqa: ARG002 -- only its lock is needed
        """As ``BlobStore.put``; asks S3 only for what may have been dropped since ``prepare`` saw it there."""
        with self._new_lock:
            is_here = digest in self._new
        if not is_here:
            self.prepare(digest, data)

    def replace(self, connection: Connection, digest: Digest, data: Buffer) -> None:  # noqa: ARG002 -- only its lock is needed
        self.take_back(digest)
        self.write(digest, data)

    def write(self, key: str, data: Buffer) -> None:
        """Put an object under the prefix."""
        with self._our_errors(_WRITING):
            self._obstore.put(self._store, key, data, chunk_size=PART_BYTES, max_concurrency=4)

    def _is_here(self, digest: Digest) -> bool:
        # Not by a HEAD, which has no words for whether it is the object that is missing, or the bucket, or a key.
        return self.piece(digest, 0, 1) is not None

    def get(self, digest: Digest, size: int) -> bytes | None:
        return self.read(digest, 0, size)

    def read(self, digest: Digest, start: int, stop: int) -> bytes | None:
        """Bytes ``[start, stop)`` of an object, fewer where it ends before; None where there is none."""
        pieces = []
        for at in range(start, stop, PART_BYTES):
            piece = self.piece(digest, at, min(at + PART_BYTES, stop))
            if piece is None:
                return None
            pieces.append(piece)
            if not piece:
                break
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def piece(self, digest: Digest, start: int, stop: int) -> bytes | None:
        """As ``read``, in one request."""
        with self._our_errors(_READING):
            try:
                return bytes(self._obstore.get_range(self._store, digest, start=start, end=stop))
            except Exception as error:
                if _is_missing(error):
                    return None
                if _code(error) == "InvalidRange":
                    return b""  # a damaged object, which ends before: its digest is not right either
                raise

    def open(self, digest: Digest, size: int) -> "S3Reader | None":
        return S3Reader(self, digest, size) if self._is_here(digest) else None

    def link(self, digest: Digest) -> str | None:
        """As ``BlobStore.link``; none while S3 is known to be away, or without credentials. S3 is not asked."""
        from obstore.exceptions import BaseError  # noqa: PLC0415

        if self._away:
            return None
        try:
            return str(self._obstore.sign(self._store, "GET", digest, LINK_LIFE))
        except (BaseError, OSError, ValueError):
            return None

    def drop(self, connection: Connection, digest: Digest) -> None:  # noqa: ARG002 -- only its lock is needed
        """As ``BlobStore.drop``, and in a shared place let go of it, for ``collect``.

        In a bucket with versions, the older version stays until its lifecycle rule.
        """
        if self._sharing is None:
            assert not self.is_shared, "who drops has asked for the owner, or claimed the place"
            self.delete(digest)
            return
        with self._new_lock:
            self._new.pop(digest, None)
        self._sharing.let_go(digest)

    def delete(self, key: str) -> None:
        """Delete an object under the prefix; one that is not there is no error."""
        with self._our_errors(_WRITING):
            try:
                self._obstore.delete(self._store, key)
            except FileNotFoundError as error:
                if not _is_missing(error):
                    raise

    def dropped(self) -> set[Digest]:
        return set() if self._sharing is None else self._sharing.mine()

    def take_back(self, digest: Digest) -> None:
        if self._sharing is not None:
            self._sharing.take_back(digest)

    def collect(self, holds: Callable[[Digest], bool]) -> int:
        return 0 if self._sharing is None else self._sharing.collect(holds)

    def digests(self) -> Iterator[Digest]:
        return (digest for digest, _ in self._models())

    def settled(self) -> Iterator[Digest]:
        """As ``BlobStore.settled``: less the objects of the last day, whose transactions may be on their way, and what
        this server of several has let go already.
        """
        before = datetime.now(UTC) - YOUNG
        dropped = self.dropped()
        return (digest for digest, put_at in self._models() if put_at < before and digest not in dropped)

    def _models(self) -> Iterator[tuple[Digest, datetime]]:
        return ((Digest(key), put_at) for key, put_at in self.objects() if is_hex_id(key))

    def objects(self, folder: str | None = None) -> Iterator[tuple[str, datetime]]:
        """The keys below the prefix, or in one of its folders, and when each was put, in S3's order."""
        pages = iter(self._obstore.list(self._store, folder, chunk_size=1000))
        while True:
            with self._our_errors(_READING):
                page = next(pages, None)
            if page is None:
                return
            for each in page:
                yield each["path"], each["last_modified"]

    def owner(self) -> str | None:
        """As ``BlobStore.owner``; of a shared place it is this server's journal, if that is one of those that share it.

        Raises:
            StoreLocationError: One server's place is to be shared, or the other way round; or this server was taken
                off those that share it.
            BucketRefusedError: There is no such bucket, or the credentials do not open it.
            StoreUnavailableError: It does not answer.
        """
        found = self._owner()
        if found is None:
            return None
        if found.startswith(_SHARED) != self.is_shared:
            raise StoreLocationError(
                f"{self} is one server's alone; servers that are to share a prefix begin with an empty one"
                if self.is_shared
                else f"{self} is shared by several servers; set blobs.s3_shared, or choose another prefix"
            )
        if not self.is_shared:
            return found
        if self._journal is None:
            return None  # it may take part: see claim
        self._sharing = Sharing(self, self._journal)
        if not self._sharing.is_registered():
            raise StoreLocationError(
                f"this server was taken off those that share {self}, so its models may have been deleted; "
                f"if they are to be kept again, put the empty object servers/{self._journal} back"
            )
        return self._journal

    def _owner(self) -> str | None:
        with self._our_errors(_READING):
            try:
                return bytes(self._obstore.get(self._store, _OWNER).bytes()).decode("ascii", "replace").strip()
            except Exception as error:
                if _is_missing(error):
                    return None
                raise

    def claim(self, journal: str, *, ledger: str) -> None:
        if not self.is_shared:
            self.write(_OWNER, f"{journal}\n".encode("ascii"))
            return
        wanted = f"{_SHARED}{ledger}"
        found = self._owner()
        if found not in (None, wanted):
            raise StoreLocationError(f"{self} holds the models of another ledger; choose another prefix for this one's")
        if found is None:
            self.write(_OWNER, f"{wanted}\n".encode("ascii"))
        self._sharing = Sharing(self, journal)
        self._sharing.register()

    def others(self, digest: Digest, size: int) -> bytes | None:
        data = self.get(digest, size)
        is_sound = data is not None and digest_of(data) == digest
        with self._new_lock:
            (self._new if is_sound else self._damaged)[digest] = None
        return data if is_sound else None

    def check(self) -> None:
        """Raises ``BucketRefusedError`` and ``StoreUnavailableError`` as ``owner``."""
        self._owner()

    @contextmanager
    def _our_errors(self, doing: str) -> Iterator[None]:
        from obstore.exceptions import BaseError  # noqa: PLC0415

        finds_out = self._away
        if finds_out and not self._finding_out.acquire(blocking=False):
            raise StoreUnavailableError(f"{doing}: {_no_answer(self._address)}")
        try:
            yield
        # FileNotFoundError and PermissionError are among what obstore raises.
        except (BaseError, OSError, ValueError, NotImplementedError) as error:
            message, refused = _reason(error, code=_code(error), address=self._address)
            self._away = not refused
            kind = BucketRefusedError if refused else StoreUnavailableError
            raise kind(f"{doing}: {message}") from error
        else:
            self._away = False
        finally:
            if finds_out:
                self._finding_out.release()


class BucketRefusedError(StoreUnavailableError):
    """S3 answers, and will answer so until a person changes settings, credentials or the bucket."""


class S3Reader(ModelReader):
    """A model in a bucket. It keeps the piece that it read last."""

    def __init__(self, blobs: S3Blobs, digest: Digest, size: int) -> None:
        super().__init__(size)
        self._blobs, self._digest = blobs, digest
        self._window: tuple[int, bytes, int] = (0, b"", _FIRST_AHEAD_BYTES // 2)
        """Where the piece begins, the piece, and how much was read ahead for it."""
        self._lock = threading.Lock()

    def _read(self, start: int, stop: int) -> bytes:
        """Fewer bytes where the object was damaged, or dropped meanwhile."""
        with self._lock:
            begin, held, ahead = self._window
            if begin <= start and stop <= begin + len(held):
                return held[start - begin : stop - begin]
            goes_on = begin <= start <= begin + len(held)
            ahead = min(2 * ahead, PART_BYTES) if goes_on else _FIRST_AHEAD_BYTES
            found = self._blobs.read(self._digest, start, min(max(stop, start + ahead), self.size)) or b""
            self._window = (start, found, ahead)
        return found[: stop - start]


def _opened(address: S3Address) -> "S3Store":
    from obstore.exceptions import BaseError  # noqa: PLC0415
    from obstore.store import S3Store  # noqa: PLC0415

    client: ClientConfig = {
        "allow_http": address.allow_http,
        "connect_timeout": timedelta(seconds=_CONNECT_S),
        "read_timeout": timedelta(seconds=_STALL_S),
        "timeout": timedelta(seconds=_REQUEST_S),
        "user_agent": "dag-acfl",
    }
    retry: RetryConfig = {
        "max_retries": _RETRIES,
        "retry_timeout": timedelta(seconds=_RETRY_FOR_S),
        "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
    }
    given = {"endpoint": address.endpoint, "region": address.region, "prefix": address.prefix or None}
    options = {name: value for name, value in given.items() if value is not None}
    try:
        return S3Store(address.bucket, client_options=client, retry_config=retry, **options)  # type: ignore[arg-type]
    except (BaseError, OSError, ValueError) as error:
        message, _ = _reason(error, code=_code(error), address=address)
        raise StoreLocationError(f"{address} cannot be used: {message}") from error


def _is_missing(error: Exception) -> bool:
    """Whether the bucket is there and the object is not; a 404 of somebody who is no S3 says neither."""
    return isinstance(error, FileNotFoundError) and _code(error) == "NoSuchKey"


def _code(error: Exception) -> str:
    """S3's own word for what is wrong; empty where it gave none."""
    found = _CODE.search(str(error))
    return found[1] if found else ""


def _reason(error: Exception, *, code: str, address: S3Address) -> tuple[str, bool]:
    """What a person can do about it, and whether waiting cannot help.

    Nothing of the client's own text is shown: it may hold a URL with a token.
    """
    text = str(error)
    status = found[1] if (found := _STATUS.search(text)) else ""
    refused = True
    if code == "NoSuchBucket":
        reason = f"there is no bucket {address.bucket!r}; make it, or correct blobs.s3_url"
    elif any(each in text for each in _WITHOUT_KEYS):
        reason = f"there are no credentials for {address}; {_SET_KEYS}"
    elif code in _BAD_KEYS:
        reason = f"S3 does not accept the credentials for {address} ({code}); {_SET_KEYS}"
    elif code == "RequestTimeTooSkewed":
        reason = "this machine's clock and S3's differ by minutes; set the clock"
    elif status in {"401", "403"}:
        reason = (
            f"S3 refuses {code or status} at {address}; its credentials must allow GetObject, PutObject, DeleteObject, "
            "AbortMultipartUpload and ListBucket"
        )
    elif status in {"301", "307", "400", "404", "405"}:
        reason = f"S3 answers {code or status} at {address}; check blobs.s3_region and blobs.s3_endpoint"
    elif status:
        refused, reason = False, f"S3 answers {status} {code}".rstrip() + f" at {address}"
    else:
        refused, reason = False, _no_answer(address)
    return reason, refused


def _no_answer(address: S3Address) -> str:
    return f"S3 does not answer at {address}" + (f" ({address.endpoint})" if address.endpoint else "")
