"""Refusals: each is an RFC 9457 problem of a stable type, from the socket up to the domain.

Decides the form of an error; which status a domain error has is the application's table, given to ``register``.
A problem never repeats what a client sent, and an unexpected exception tells the client nothing but an id.
"""

import http
import json
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from prometheus_client import Counter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fl_core.errors import DagAcflError
from fl_core.wire.v1 import PROBLEM_MEDIA_TYPE

logger = logging.getLogger(__name__)

RETRY_AFTER_S: Final = 1
"""Default of Retry-After where waiting helps (429, 503)."""

_MAX_ERRORS: Final = 20
_MAX_TEXT: Final = 200
_CODES: Final = {
    400: "bad-request",
    404: "not-found",
    405: "method-not-allowed",
    413: "body-too-large",
    415: "unsupported-media-type",
    416: "range-not-satisfiable",
    422: "request-invalid",
    500: "internal-error",
    503: "unavailable",
}


class Problem(Exception):  # noqa: N818 -- RFC 9457 calls it so, and the wire does
    """A refusal: raise it anywhere below ``RequestMiddleware``.

    Args:
        status: HTTP status.
        code: Kebab-case; the problem type is ``/problems/<code>``. The contract for programs.
        detail: One sentence for a person.
        title: Short name of the kind; default: the status's phrase.
        extensions: Further members of the body; JSON values.
        headers: Further header fields, lower case, such as ``allow`` or ``retry-after``.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str = "",
        *,
        title: str | None = None,
        extensions: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status, self.code, self.detail = status, code, detail
        self.title = title or _phrase(status)
        self.extensions = dict(extensions or {})
        self.headers = dict(headers or {})
        if status in (429, 503):
            self.headers.setdefault("retry-after", str(RETRY_AFTER_S))

    def body(self, request_id: str | None = None) -> bytes:
        """The problem as JSON, ASCII only."""
        content: dict[str, Any] = {
            "type": f"/problems/{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            **({"request_id": request_id} if request_id else {}),
            **self.extensions,
        }
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")

    def response_headers(self) -> dict[str, str]:
        """The header fields that go with ``body``, without its length."""
        return {"content-type": PROBLEM_MEDIA_TYPE, "cache-control": "no-store", **self.headers}

    def response(self, request_id: str | None) -> Response:
        """The answer to the request of this id."""
        return Response(self.body(request_id), self.status, self.response_headers())


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """A row of the catalogue: how a domain error of one code is answered."""

    status: int
    title: str


def new_request_id() -> str:
    """An id for a request that brought none."""
    return secrets.token_hex(8)


def request_id_of(request: Request) -> str | None:
    """The id that the middleware gave this request, if it passed one."""
    value = request.scope.get("state", {}).get("request_id")
    return value if isinstance(value, str) else None


def register(app: FastAPI, catalogue: Mapping[str, ProblemKind], *, rejected: Counter | None = None) -> None:
    """Answer every expected exception of ``app`` with a problem; others are ``RequestMiddleware``'s.

    Args:
        app: The application.
        catalogue: Per code of ``fl_core.errors``, its status and title. An error whose code has no row is a bug
            and is answered 500. An error's public attributes become members of the problem.
        rejected: Counts problems by code.
    """

    async def answer(request: Request, error: Exception) -> Response:
        problem = problem_of(error, catalogue)
        if rejected is not None:
            rejected.labels(problem.code).inc()
        return problem.response(request_id_of(request))

    for kind in (Problem, DagAcflError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, answer)


def problem_of(error: Exception, catalogue: Mapping[str, ProblemKind]) -> Problem:
    """Any exception as the problem that it is answered with."""
    match error:
        case Problem():
            return error
        case DagAcflError():
            return from_domain(error, catalogue)
        case HTTPException():
            return from_http(error)
        case RequestValidationError():
            return from_validation(error)
        case _:
            return unexpected(error)


def from_domain(error: DagAcflError, catalogue: Mapping[str, ProblemKind]) -> Problem:
    """A domain error as the problem of its row; one that is no fault of the client's is logged as well."""
    kind = catalogue.get(error.code)
    if kind is None:
        return unexpected(error)
    if kind.status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
        logger.error("request failed", extra={"error": error.code, "reason": str(error)})
    fields = {name: value for name, value in vars(error).items() if not name.startswith("_")}
    return Problem(kind.status, error.code, str(error), title=kind.title, extensions=_jsonable(fields))


def from_http(error: HTTPException) -> Problem:
    """A framework's exception; its 405 keeps Allow."""
    code = _CODES.get(error.status_code, "error")
    phrase = _phrase(error.status_code)
    detail = error.detail if error.detail != phrase else _DETAILS.get(error.status_code, "")
    return Problem(
        error.status_code,
        code,
        _plain(detail),
        headers={name.lower(): value for name, value in (error.headers or {}).items()},
    )


_DETAILS: Final = {
    404: "there is nothing at this path",
    405: "this path has other methods; see the Allow header",
}


def from_validation(error: RequestValidationError) -> Problem:
    """FastAPI's findings without the values that were sent."""
    found = error.errors()
    errors = [
        {"where": ".".join(_plain(str(part))[:64] for part in fault["loc"]), "why": _plain(fault["msg"])}
        for fault in found[:_MAX_ERRORS]
    ]
    if any(fault["type"] == "json_invalid" for fault in found):
        return Problem(400, "json-malformed", "the body is not JSON")
    first = f"{errors[0]['where']}: {errors[0]['why']}" if errors else "the request is not valid"
    return Problem(422, "request-invalid", first, extensions={"errors": errors})


def unexpected(error: BaseException) -> Problem:
    """A bug: everything to the log, nothing to the client but the request's id."""
    logger.error("request failed", exc_info=error, extra={"error": type(error).__name__})
    return Problem(500, "internal-error", "the server failed; its log has the reason under this request id")


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def _plain(text: str) -> str:
    """At most 200 printable characters, so that a message cannot carry terminal controls or a body."""
    return "".join(char if char.isprintable() else "?" for char in text[:_MAX_TEXT])


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
