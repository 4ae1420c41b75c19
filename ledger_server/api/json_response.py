"""JSON over HTTP: compressed for who takes that, and not sent again to who has it.

What is compressed tells nothing by its length that its reader may not see: no answer holds a token or a secret, and a
page of elsewhere cannot ask in the name of a browser's user, as there are no cookies (BREACH needs both). Models do not
compress, and are sent in ranges.
"""

import gzip
import re
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fl_core.types import digest_of
from fl_core.wire import v1
from ledger_server.api.model_response import matches
from ledger_server.http.threads import in_worker
from ledger_server.publishing import LedgerService

_MIN_BYTES: Final = 1400
"""What is shorter fits into one packet as it is."""
_MAX_INLINE_BYTES: Final = 64 * 1024
"""What is longer is compressed in a thread: the event loop would stand still for some milliseconds."""
_LEVEL: Final = 1
"""A page of 100 transactions becomes a sixth in 1 ms; with 6 it takes twice as long and saves a tenth of that."""
_GZIP: Final = re.compile(r"\s*gzip\s*(;\s*q\s*=\s*(?!0(\.0*)?\s*$).*)?", re.IGNORECASE)
"""One coding of a field Accept-Encoding; not with a weight of 0, which refuses it."""


class JsonResponse(Response):
    """A JSON text, by gzip where the client takes it and it is worth it."""

    media_type = "application/json"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        if len(self.body) >= _MIN_BYTES:
            self.headers.add_vary_header("Accept-Encoding")
            if takes_gzip(Headers(scope=scope).get("accept-encoding", "")):
                is_long = len(self.body) > _MAX_INLINE_BYTES
                self.body = await in_worker(_compressed, self.body) if is_long else _compressed(self.body)
                self.headers.update({"content-encoding": "gzip", "content-length": str(len(self.body))})
        await super().__call__(scope, receive, send)


def answer(
    message: v1.Answer, *, status: int = 200, headers: dict[str, str] | None = None, brief: bool = False
) -> Response:
    """A message as a JSON response; a brief one without what its class names."""
    return JsonResponse(message.model_dump_json(exclude=set(message.not_in_brief) if brief else None), status, headers)


def tag_of(service: LedgerService, transactions: int) -> str:
    """Names what follows from the first so many transactions of this very ledger.

    It is weak, as compressed and plain bytes share it.
    """
    return f'W/"{service.epoch[:16]}-{transactions}"'


def answer_unless_known(request: Request, tag: str, make: Callable[[], Response]) -> Response:
    """What a tag names; 304 where the client has it."""
    headers = {"etag": tag, "cache-control": "no-cache"}
    if matches(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    made = make()
    for name, value in headers.items():
        made.headers.setdefault(name, value)
    return made


class PackedJson:
    """A JSON text for many who ask: compressed once, and not sent again to who has it.

    Args:
        text: The JSON.
        tag: Names it; default: by its digest.

    Attributes:
        text: As it was given.
    """

    def __init__(self, text: bytes, tag: str = "") -> None:
        self.text: bytes = text
        self._packed = _compressed(text) if len(text) >= _MIN_BYTES else None
        self._tag = tag or f'W/"{digest_of(text)[:32]}"'

    def response(self, request: Request) -> Response:
        """The answer to one of them."""
        return answer_unless_known(request, self._tag, lambda: self._whole(request))

    def _whole(self, request: Request) -> Response:
        if self._packed is None:
            return Response(self.text, media_type="application/json")
        headers = {"vary": "Accept-Encoding"}
        if not takes_gzip(request.headers.get("accept-encoding", "")):
            return Response(self.text, headers=headers, media_type="application/json")
        return Response(self._packed, headers={**headers, "content-encoding": "gzip"}, media_type="application/json")


def _compressed(body: bytes | memoryview) -> bytes:
    return gzip.compress(body, _LEVEL, mtime=0)


def takes_gzip(accepted: str) -> bool:
    return any(map(_GZIP.fullmatch, accepted.split(",")))
