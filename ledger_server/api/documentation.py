"""What OpenAPI says of every route: who may call it, and each status that can occur, with its problem types."""

from collections.abc import Iterable
from typing import Any, Final

from fastapi.routing import APIRoute

from fl_core.wire import v1
from ledger_server.http.access import Access, access_of

_MEANING: Final = {
    400: "The request cannot be read: not HTTP, not JSON, not a multipart form.",
    401: "The server asks for credentials here, or does not take those that were sent; WWW-Authenticate says which.",
    403: "The credentials are of another kind or scope than this route takes.",
    404: "What was asked for is not here.",
    405: "The method is not defined for this path.",
    406: "The requested representation does not exist.",
    408: "The request did not arrive in time.",
    409: "The request contradicts what this server holds.",
    410: "The cursor is not of this server.",
    413: "The body is larger than this route accepts.",
    415: "The media type or content coding is not accepted here.",
    416: "The range lies outside the model.",
    422: "The request was read and refused; the problem says why.",
    431: "The header fields are too large or too many.",
    500: "A fault of this server; the request id finds it in the log.",
    503: "Not now: overloaded, stopping, or the disk refuses; Retry-After says when to come back.",
}
_EVERYWHERE: Final = (400, 408, 413, 415, 422, 431, 500, 503)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI responses: the given statuses, and those that may come from any route."""
    return {
        status: {
            "description": _MEANING[status],
            "content": {v1.PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemOut"}}},
        }
        for status in sorted({*_EVERYWHERE, *statuses})
    }


_SCHEMES: Final = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "Asked for where the server's setting `auth.required_for` names the route's kind of access.",
    },
    "peer": {
        "type": "apiKey",
        "in": "header",
        "name": "Signature",
        "description": "A peer's RFC 9421 signature; docs/protocol.md has its one form.",
    },
}
_TOKEN_IF_SET: Final[list[dict[str, list[str]]]] = [{}, {"token": []}]
_SECURITY: Final = {
    Access.READ: _TOKEN_IF_SET,
    Access.WRITE: _TOKEN_IF_SET,
    Access.METRICS: _TOKEN_IF_SET,
    Access.OPERATE: [{"token": []}],
    Access.PEER: [{"peer": []}],
}


def describe_access(document: dict[str, Any], routes: Iterable[APIRoute]) -> None:
    """Add to an OpenAPI document who may call each route, as the routes declare it."""
    refusals = {str(status): answer for status, answer in problems(401, 403).items() if status in (401, 403)}
    document.setdefault("components", {})["securitySchemes"] = _SCHEMES
    for route in routes:
        access = access_of(route)
        if access is Access.OPEN or not route.include_in_schema:
            continue
        for method in route.methods or ():
            operation = document["paths"][route.path_format][method.lower()]
            operation["security"] = _SECURITY[access]
            operation["responses"] = dict(sorted({**operation["responses"], **refusals}.items()))


def binary(media_type: str, description: str) -> dict[str, Any]:
    """OpenAPI response of raw bytes."""
    schema = {"type": "string", "format": "binary"}
    return {"description": description, "content": {media_type: {"schema": schema}}}
