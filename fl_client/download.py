"""A model on its way in: what has come survives a cut, and the next attempt, on any server, asks for the rest."""

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fl_client.bucket import Bucket
from fl_client.errors import AnswerInvalidError, TransportError
from fl_client.transport import Endpoint, Response
from fl_core.errors import DigestMismatchError
from fl_core.types import Digest, digest_of
from fl_core.wire import v1

if TYPE_CHECKING:
    import urllib3


logger: logging.Logger = logging.getLogger(__name__)


class ModelDownload:
    """The bytes of one digest, over as many attempts as it takes; used by one thread at a time.

    Args:
        digest: SHA-256 of the bytes; it is their ETag as well.
        limit: Most bytes accepted.
        bucket: Where a server may say that they are; None: servers are to give them themselves.
    """

    def __init__(self, digest: Digest, *, limit: int, bucket: Bucket | None = None) -> None:
        self._digest, self._limit, self._bucket = digest, limit, bucket
        self._buffer, self._filled = bytearray(), 0

    def resume(self, endpoint: Endpoint, *, deadline: float) -> memoryview | Response:
        """The bytes, read-only, or what the server answers instead.

        Raises:
            TransportError: Cut short, or not the bytes that were asked for.
            DigestMismatchError: All bytes have come, and they are others.
        """
        path = v1.path(v1.MODEL, digest=self._digest)
        if self._bucket is not None and self._bucket.is_at_hand and not self._filled:
            found = self._by_way_of(self._bucket, endpoint, f"{path}?redirect=true", deadline=deadline)
            if found is not None:
                return found
        headers = {"range": f"bytes={self._filled}-", "if-range": f'"{self._digest}"'} if self._filled else {}
        with endpoint.open("GET", path, deadline=deadline, headers=headers) as response:
            if response.status not in (200, 206):
                self._filled = 0 if response.status == 416 else self._filled
                return endpoint.whole(response)
            return self._received(endpoint, response)

    def _by_way_of(
        self, bucket: Bucket, endpoint: Endpoint, path: str, *, deadline: float
    ) -> memoryview | Response | None:
        """As ``resume``; None where the server sends to the bucket, and that does not give the bytes."""
        with endpoint.open("GET", path, deadline=deadline) as response:
            if response.status == 200:  # it has no bucket, or the model does not lie there
                return self._received(endpoint, response)
            if response.status != 307:
                return endpoint.whole(response)
            link = response.headers.get("location", "")
        until = (time.monotonic() + deadline) / 2  # the server is to have time, too
        try:
            with bucket.endpoint.open("GET", bucket.path_of(link), deadline=until) as response:
                if response.status == 200:
                    return self._received(bucket.endpoint, response)
            reason = f"{bucket.endpoint.url} answers {response.status}"
        except (TransportError, DigestMismatchError) as error:
            reason = str(error)
        logger.warning("a model is asked of the server itself: %s", reason)
        self._filled = 0
        bucket.failed()
        return None

    def _received(self, endpoint: Endpoint, response: "urllib3.BaseHTTPResponse") -> memoryview:
        """All bytes, once the body has come to its end; raises as ``resume``."""
        self._begin(response.status, response.headers, response.length_remaining)
        for piece in endpoint.pieces(response):
            self._buffer[self._filled : self._filled + len(piece)] = piece
            self._filled += len(piece)
        if (computed := digest_of(self._buffer)) != self._digest:
            self._filled = 0
            raise DigestMismatchError(
                f"{endpoint.url} sent other bytes than {self._digest[:16]}…", claimed=self._digest, computed=computed
            )
        return memoryview(self._buffer).toreadonly()

    def _begin(self, status: int, headers: Mapping[str, str], length: int | None) -> None:
        """Check that the body begins with the next byte, and make room."""
        if length is None:
            raise AnswerInvalidError("the server sends a model without its length")
        if status == 200:
            if length > self._limit:
                raise AnswerInvalidError(f"the server offers {length} bytes, at most {self._limit} were expected")
            self._buffer, self._filled = bytearray(length), 0
            return
        size = len(self._buffer)
        expected = f"bytes {self._filled}-{size - 1}/{size}"
        if headers.get("content-range") != expected or length != size - self._filled:
            self._filled = 0
            raise AnswerInvalidError(f"the server sends another range than {expected}")
