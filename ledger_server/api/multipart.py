"""The publication's body: two parts, read as they come, the model into one buffer of the right size."""

from collections.abc import AsyncIterator, Callable
from typing import Final, NoReturn

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from fl_core.models import Buffer
from ledger_server.api.requests import UPLOAD_SLACK, Received
from ledger_server.http.problems import Problem

MAX_TRANSACTION_BYTES: Final = 64 * 1024
_MAX_PART_HEADERS: Final = 4096

TRANSACTION_TYPES: Final = ("application/json",)
MODEL_TYPES: Final = ("application/vnd.safetensors", "application/octet-stream")


class _Part:
    """One part's headers and bytes."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.received = Received()
        self.name = ""
        self.limit = 0


class PublicationBody:
    """Parses ``multipart/form-data`` with exactly the parts ``transaction`` and ``model``.

    Args:
        content_type: The request's Content-Type.
        model_bytes: Size of this ledger's models.
        declared_bytes: Size of the whole body as the request states it, 0 for unknown: no more is allocated
            beforehand, so nobody gets memory by a promise that is cheaper than the bytes.
    """

    def __init__(
        self,
        content_type: str,
        *,
        model_bytes: int,
        declared_bytes: int = 0,
    ) -> None:
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data":
            raise Problem(415, "unsupported-media-type", "send multipart/form-data with transaction and model")
        if not 1 <= len(boundary) <= 70:
            _malformed("Content-Type names no boundary of 1 to 70 characters")
        self._limits = {"transaction": MAX_TRANSACTION_BYTES, "model": model_bytes + UPLOAD_SLACK}
        self._declared = declared_bytes
        self._parts: dict[str, _Part] = {}
        self._part = _Part()
        self._field, self._value = bytearray(), bytearray()
        self._header_bytes = 0
        self._ended = False
        callbacks: dict[str, Callable[..., None]] = {
            "on_part_begin": self._on_part_begin,
            "on_header_field": self._on_header_field,
            "on_header_value": self._on_header_value,
            "on_header_end": self._on_header_end,
            "on_headers_finished": self._on_headers_finished,
            "on_part_data": self._on_part_data,
            "on_end": self._on_end,
        }
        self._parser = MultipartParser(boundary, callbacks)  # type: ignore[arg-type]  # its TypedDict is private

    async def read(self, stream: AsyncIterator[bytes]) -> tuple[bytes, Buffer]:
        """Read the whole body; returns the transaction part and the model part.

        Raises:
            Problem: 400 for a body that is no such form, 413 for a part over its limit, 415 for a part of
                another type, 422 for missing, doubled or unknown parts.
        """
        try:
            async for chunk in stream:
                if chunk:
                    self._parser.write(chunk)
            self._parser.finalize()
        except FormParserError as error:
            raise Problem(400, "body-malformed", f"not a multipart body: {error}"[:200]) from error
        finally:
            # The parser holds our callbacks, and these hold the model: a cycle that would keep it until a collection.
            del self._parser
        if not self._ended:
            _malformed("the body ends before its closing boundary")
        if missing := self._limits.keys() - self._parts.keys():
            raise Problem(422, "parts-invalid", f"part {' and '.join(sorted(missing))} is missing")
        return bytes(self._parts["transaction"].received.take()), self._parts["model"].received.take()

    def _on_part_begin(self) -> None:
        self._part, self._header_bytes = _Part(), 0

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]
        self._count_header(end - start)

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]
        self._count_header(end - start)

    def _count_header(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > _MAX_PART_HEADERS:
            _malformed(f"a part's headers exceed {_MAX_PART_HEADERS} bytes")

    def _on_header_end(self) -> None:
        self._part.headers[self._field.decode("latin-1").lower()] = self._value.decode("latin-1")
        self._field.clear()
        self._value.clear()

    def _on_headers_finished(self) -> None:
        part = self._part
        disposition, options = parse_options_header(part.headers.get("content-disposition", ""))
        part.name = options.get(b"name", b"").decode("latin-1")
        if disposition != b"form-data" or part.name not in self._limits:
            raise Problem(422, "parts-invalid", f"unknown part {part.name[:40]!r}; send transaction and model")
        if part.name in self._parts:
            raise Problem(422, "parts-invalid", f"part {part.name!r} stands twice")
        self._check_type(part)
        part.limit = self._limits[part.name]
        self._parts[part.name] = part
        if part.name == "model":
            part.received = Received(min(self._declared, part.limit))

    def _check_type(self, part: _Part) -> None:
        encoding = part.headers.get("content-transfer-encoding", "binary").strip().lower()
        if encoding not in ("binary", "8bit", "7bit"):
            raise Problem(415, "unsupported-media-type", f"Content-Transfer-Encoding {encoding[:40]!r} is not read")
        stated = part.headers.get("content-type")
        allowed = TRANSACTION_TYPES if part.name == "transaction" else MODEL_TYPES
        # A part without a type is what `curl -F transaction='{…}'` sends.
        if stated is not None:
            kind, options = parse_options_header(stated)
            charset = options.get(b"charset", b"utf-8").lower()
            if kind.decode("latin-1") not in allowed or charset != b"utf-8":
                raise Problem(415, "unsupported-media-type", f"part {part.name!r} must be {' or '.join(allowed)}")

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        part = self._part
        if len(part.received) + end - start > part.limit:
            raise Problem(413, "body-too-large", f"part {part.name!r} exceeds {part.limit} bytes")
        part.received.add(memoryview(data)[start:end])

    def _on_end(self) -> None:
        self._ended = True


def _malformed(why: str) -> NoReturn:
    raise Problem(400, "body-malformed", why)
