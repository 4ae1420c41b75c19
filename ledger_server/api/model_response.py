"""Content-addressed bytes over HTTP: ETag, If-None-Match, one Range, HEAD, and caching for ever."""

import base64
import re
from collections.abc import Mapping
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fl_core.models import Buffer
from fl_core.types import Digest
from fl_core.wire import v1
from ledger_server.http.problems import Problem

_PIECE: Final = 1 << 19
"""Bytes handed to the socket at a time: large enough to be fast, small enough for back pressure to bound memory."""
_BASE: Final = re.compile(re.escape(v1.STEP_MEDIA_TYPE) + r" *; *base=([0-9a-f]{64})\b")
_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


class BytesResponse(Response):
    """Sends a slice of a buffer piece by piece, without copying the whole."""

    def __init__(self, data: memoryview, *, status: int, headers: Mapping[str, str], media_type: str) -> None:
        self._data = data
        super().__init__(None, status, dict(headers), media_type)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        """Answer; for HEAD without the body."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        size = 0 if scope["method"] == "HEAD" else len(self._data)
        for start in range(0, size, _PIECE):
            piece = self._data[start : start + _PIECE]
            await send({"type": "http.response.body", "body": piece, "more_body": start + _PIECE < size})
        if not size:
            await send({"type": "http.response.body", "body": b""})


def bytes_response(digest: Digest, data: Buffer, *, method: str, request_headers: Mapping[str, str]) -> Response:
    """The answer to a GET or HEAD for a model's bytes, which are addressed by their content.

    A request for several ranges, for a malformed one, or by HEAD, is answered in full (RFC 9110, 14.2).

    Raises:
        Problem: 416 for a range outside the bytes.
    """
    etag = f'"{digest}"'
    headers = {
        "etag": etag,
        "cache-control": "public, max-age=31536000, immutable",
        "accept-ranges": "bytes",
        "repr-digest": f"sha-256=:{_base64(digest)}:",
    }
    if matches(request_headers.get("if-none-match", ""), etag):
        return Response(status_code=304, headers=headers)
    view = memoryview(data)
    wanted = None
    if method == "GET" and request_headers.get("if-range", etag) == etag:
        wanted = _range(request_headers.get("range", ""), len(view))
    if wanted is None:
        headers["content-length"] = str(len(view))
        return BytesResponse(view, status=200, headers=headers, media_type=v1.MODEL_MEDIA_TYPE)
    start, stop = wanted
    headers["content-range"] = f"bytes {start}-{stop - 1}/{len(view)}"
    headers["content-length"] = str(stop - start)
    return BytesResponse(view[start:stop], status=206, headers=headers, media_type=v1.MODEL_MEDIA_TYPE)


def accepted_base(request_headers: Mapping[str, str]) -> Digest | None:
    """By which model a coded one is accepted: ``Accept: application/vnd.dag-acfl.step; base=DIGEST``."""
    found = _BASE.search(request_headers.get("accept", ""))
    return None if found is None else Digest(found[1])


def matches(header: str, etag: str) -> bool:
    """Whether a field If-None-Match names this entity tag; compared weakly (RFC 9110, 13.1.2)."""
    tags = {tag.strip().removeprefix("W/") for tag in header.split(",")}
    return etag.removeprefix("W/") in tags or "*" in tags


def _range(header: str, size: int) -> tuple[int, int] | None:
    match = _RANGE.fullmatch(header.strip())
    if match is None or match.group(0) == "bytes=-":
        return None
    first, last = match.groups()
    if first:
        start, stop = int(first), min(int(last) + 1, size) if last else size
        if last and int(last) < start:
            return None
    else:
        start, stop = max(size - int(last), 0), size
    if start >= stop:
        outside = {"content-range": f"bytes */{size}"}
        raise Problem("range-not-satisfiable", f"the model has {size} bytes", headers=outside)
    return start, stop


def _base64(digest: Digest) -> str:
    return base64.b64encode(bytes.fromhex(digest)).decode("ascii")
