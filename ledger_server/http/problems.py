"""Refusals: each is an RFC 9457 problem of a stable type, from the socket up to the domain.

Decides the form of an error; which status and title a code has stands in ``problem_types``. What a client sent is
repeated at most as the name of a place, short and printable; a bug tells the client nothing but an id.
"""

import json
import logging
import secrets
from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from prometheus_client import Counter
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fl_core.errors import DagAcflError, QuotaExceededError
from fl_core.wire.v1 import PROBLEM_MEDIA_TYPE
from ledger_server.http.problem_types import ERROR_TYPES, PROBLEM_TYPES
from ledger_server.store.errors import StoreError

logger: logging.Logger = logging.getLogger(__name__)

RETRY_AFTER_S: Final = 1
"""Default of Retry-After where waiting helps (503)."""

_MAX_ERRORS: Final = 20
_MAX_DETAIL: Final = 500
_MAX_PLACE: Final = 64
_FRAMEWORK: Final = {
    404: ("not-found", "there is nothing at this path"),
    405: ("method-not-allowed", "this path has other methods; see the Allow header"),
}
"""What the router refuses by itself."""


class Problem(Exception):  # noqa: N818 -- RFC 9457 calls it so, and the wire does
    """A refusal: raise it anywhere below ``RequestMiddleware``.

    Args:
        code: A row of ``PROBLEM_TYPES``; the contract for programs.
        detail: One sentence for a person.
        extensions: Further members of the body; JSON values.
        headers: Further header fields, lower case, such as ``allow`` or ``retry-after``.
    """

    def __init__(
        self,
        code: str,
        detail: str = "",
        *,
        extensions: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status: int
        self.title: str
        self.status, self.title = PROBLEM_TYPES[code]
        self.code: str = code
        self.detail: str = _printable(detail, _MAX_DETAIL)
        super().__init__(f"{self.status} {code}: {self.detail}")
        self.extensions: dict[str, Any] = dict(extensions or {})
        self.headers: dict[str, str] = dict(headers or {})
        if self.status == 503:
            self.headers.setdefault("retry-after", str(RETRY_AFTER_S))

    def response(self, request_id: str | None = None) -> Response:
        """The answer to the request of this id; its body is ASCII only."""
        content: dict[str, Any] = {
            "type": f"/problems/{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            **({"request_id": request_id} if request_id else {}),
            **self.extensions,
        }
        body = json.dumps(content, allow_nan=False, separators=(",", ":"))
        headers = {"content-type": PROBLEM_MEDIA_TYPE, "cache-control": "no-store", **self.headers}
        return Response(body, self.status, headers)


def new_request_id() -> str:
    """An id for a request that brought none."""
    return secrets.token_hex(8)


def register(app: FastAPI, *, rejected: Counter | None = None) -> None:
    """Answer every expected exception of ``app`` with a problem; others are ``RequestMiddleware``'s."""

    async def answer(request: Request, error: Exception) -> Response:
        problem = problem_of(error)
        if rejected is not None:
            rejected.labels(problem.code).inc()
        request.scope.setdefault("state", {})["code"] = problem.code  # for the log
        return problem.response(request.scope.get("state", {}).get("request_id"))

    for kind in (Problem, DagAcflError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, answer)


def problem_of(error: BaseException) -> Problem:
    """Any exception as the problem that it is answered with; a bug, and what is the server's fault, is logged."""
    match error:
        case Problem():
            return error
        case DagAcflError(code=code) if code in ERROR_TYPES:
            if ERROR_TYPES[code].status >= 500:
                logger.error("request failed", extra={"error": code, "reason": str(error)})
            fields = {name: value for name, value in vars(error).items() if not name.startswith("_")}
            detail = error.public if isinstance(error, StoreError) else str(error)
            headers = {"retry-after": str(error.retry_after_s)} if isinstance(error, QuotaExceededError) else {}
            return Problem(code, detail, extensions=_jsonable(fields), headers=headers)
        case HTTPException(status_code=status) if status in _FRAMEWORK:
            headers = {name.lower(): value for name, value in (error.headers or {}).items()}
            return Problem(*_FRAMEWORK[status], headers=headers)
        case RequestValidationError():
            return invalid(error)
        case _:
            logger.error("request failed", exc_info=error, extra={"error": type(error).__name__})
            return Problem("internal-error", "the server failed; its log has the reason under this request id")


def invalid(error: RequestValidationError | ValidationError) -> Problem:
    """What is wrong with a query, a path or a message: where and why, without the values that were sent."""
    errors = [
        {
            "where": "/".join(_printable(str(part), _MAX_PLACE) for part in fault["loc"]) or "body",
            "why": _printable(fault["msg"], _MAX_DETAIL),
        }
        for fault in error.errors()[:_MAX_ERRORS]
    ]
    return Problem("request-invalid", f"{errors[0]['where']}: {errors[0]['why']}", extensions={"errors": errors})


def _printable(text: str, length: int) -> str:
    """So many printable characters at most: a message carries no terminal controls and no body."""
    return "".join(char if char.isprintable() else "?" for char in text[:length])


def _jsonable(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Public attributes as JSON: empty ones left out, tuples as lists, non-finite numbers as text."""
    return {name: _jsonable_value(value) for name, value in fields.items() if value not in ("", (), None)}


def _jsonable_value(value: object) -> object:
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else repr(value)
    if isinstance(value, tuple | list | set | frozenset):
        return [_jsonable_value(item) for item in value]
    return str(value)
