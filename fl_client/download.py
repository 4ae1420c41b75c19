"""A model on its way in: what has come survives a cut, and the next attempt, on any server, asks for the rest."""

from collections.abc import Mapping

from fl_client.errors import AnswerInvalidError
from fl_client.transport import Endpoint, Response
from fl_core.errors import DigestMismatchError
from fl_core.types import Digest, digest_of
from fl_core.wire import v1


class ModelDownload:
    """The bytes of one digest, over as many attempts as it takes; used by one thread at a time.

    Args:
        digest: SHA-256 of the bytes; it is their ETag as well.
        limit: Most bytes accepted.
    """

    def __init__(self, digest: Digest, *, limit: int) -> None:
        self._digest, self._limit = digest, limit
        self._buffer, self._filled = bytearray(), 0

    def resume(self, endpoint: Endpoint, *, deadline: float) -> memoryview | Response:
        """The bytes, read-only, or what the server answers instead.

        Raises:
            TransportError: Cut short, or not the bytes that were asked for.
            DigestMismatchError: All bytes have come, and they are others.
        """
        path = v1.path(v1.MODEL, digest=self._digest)
        headers = {"range": f"bytes={self._filled}-", "if-range": f'"{self._digest}"'} if self._filled else {}
        with endpoint.open("GET", path, deadline=deadline, headers=headers) as response:
            if response.status not in (200, 206):
                self._filled = 0 if response.status == 416 else self._filled
                return endpoint.whole(response)
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
