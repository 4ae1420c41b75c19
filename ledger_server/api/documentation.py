"""What OpenAPI says of every route: who may call it, and each status that can occur, with its problem types."""

from collections.abc import Iterable
from typing import Any, Final

from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from fl_core.wire import operator_v1, v1
from ledger_server.http.access import Access, access_of
from ledger_server.http.problem_types import PROBLEM_TYPES

_REFERENCE: Final = "#/components/schemas/{model}"
_NAMED: Final = (
    v1.AskerRequest,
    v1.ProblemOut,
    v1.PublishRequest,
    v1.SelectRequest,
    operator_v1.LiftRequest,
    operator_v1.MembersRequest,
    operator_v1.PruneRequest,
    operator_v1.QuarantineRequest,
    operator_v1.RemovalRequest,
    operator_v1.RevocationRequest,
    operator_v1.SignatureRequest,
    operator_v1.TokenRequest,
)
"""What FastAPI does not see: problems, and bodies that are read as they come."""


def named(model: type[BaseModel]) -> dict[str, str]:
    """OpenAPI reference to one of the models that ``describe`` adds."""
    return {"$ref": _REFERENCE.format(model=model.__name__)}


def json_of(message: type[BaseModel]) -> dict[str, Any]:
    """What OpenAPI says of a route that reads such a body as it comes; one of ``_NAMED``."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": named(message)}}}}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI responses of these statuses, with their problem types."""
    return {
        status: {
            "description": ", ".join(f"`{code}`" for code, kind in PROBLEM_TYPES.items() if kind.status == status),
            "content": {v1.PROBLEM_MEDIA_TYPE: {"schema": named(v1.ProblemOut)}},
        }
        for status in statuses
    }


EVERYWHERE: Final = problems(400, 408, 413, 415, 422, 431, 500, 503)
"""What may come from any route."""


_SCHEMES: Final = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "Asked for by servers that others than their own machine reach, unless they are public.",
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


def describe(document: dict[str, Any], routes: Iterable[APIRoute]) -> None:
    """Add to an OpenAPI document the models of ``named``, and who may call each route, as the routes declare it."""
    _, unseen = models_json_schema([(model, "validation") for model in _NAMED], ref_template=_REFERENCE)
    document["components"]["schemas"] |= unseen["$defs"]
    document["components"]["securitySchemes"] = _SCHEMES
    for route in routes:
        access = access_of(route)
        if access is Access.OPEN or not route.include_in_schema:
            continue
        for method in route.methods or ():
            operation = document["paths"][route.path_format][method.lower()]
            operation["security"] = _SECURITY[access]
            statuses = (401, 403) if access is Access.PEER else (401, 403, 421)
            refusals = {str(status): answer for status, answer in problems(*statuses).items()}
            operation["responses"] = dict(sorted({**operation["responses"], **refusals}.items()))


def binary(media_type: str, description: str) -> dict[str, Any]:
    """OpenAPI response of raw bytes."""
    schema = {"type": "string", "format": "binary"}
    return {"description": description, "content": {media_type: {"schema": schema}}}
