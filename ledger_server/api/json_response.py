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


def answer_unless_known(
    request: Request, service: LedgerService, make: Callable[[], v1.Answer], *, transactions: int | None = None
) -> Response:
    """What follows from the transactions, all or the first so many; 304 where the client has it of this very ledger.

    The tag is weak, as compressed and plain bytes share it; it names the journal, and how many transactions it has.
    """
    count = len(service.ledger) if transactions is None else transactions
    headers = {"etag": f'W/"{service.epoch[:16]}-{count}"', "cache-control": "no-cache"}
    if matches(request.headers.get("if-none-match", ""), headers["etag"]):
        return Response(status_code=304, headers=headers)
    return answer(make(), headers=headers)


class PackedJson:
    """A JSON text for many who ask: compressed once, and not sent again to who has it."""

    def __init__(self, text: bytes) -> None:
        self._text, self._packed = text, _compressed(text)
        self._tag = f'W/"{digest_of(text)[:32]}"'

    def response(self, request: Request) -> Response:
        """The answer to one of them."""
        headers = {"etag": self._tag, "cache-control": "no-cache", "vary": "Accept-Encoding"}
        if matches(request.headers.get("if-none-match", ""), self._tag):
            return Response(status_code=304, headers=headers)
        if not takes_gzip(request.headers.get("accept-encoding", "")):
            return Response(self._text, headers=headers, media_type="application/json")
        return Response(self._packed, headers={**headers, "content-encoding": "gzip"}, media_type="application/json")


def _compressed(body: bytes | memoryview) -> bytes:
    return gzip.compress(body, _LEVEL, mtime=0)


def takes_gzip(accepted: str) -> bool:
    return any(map(_GZIP.fullmatch, accepted.split(",")))
