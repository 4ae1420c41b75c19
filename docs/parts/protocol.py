"""The generated parts of docs/protocol.md: routes, problems, and the components that a genesis document names."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from fastapi.routing import APIRoute

from docs.parts import messages
from docs.parts.markdown import table
from docs.parts.parameters import part_table
from fl_core.aggregation import AGGREGATORS
from fl_core.errors import ERRORS_BY_CODE
from fl_core.registry import PartRegistry
from fl_core.selection import SELECTORS
from ledger_server.app import api_routes
from ledger_server.http.access import access_of
from ledger_server.http.problem_types import ERROR_TYPES, REFUSAL_TYPES


def routes_table() -> str:
    """Every route of the API."""

    def rows() -> Iterator[tuple[str, ...]]:
        for (path, methods), route in routes().items():
            said = route.summary or inspect.cleandoc(route.endpoint.__doc__ or "").partition("\n")[0].rstrip(".")
            yield f"`{methods} {path}`", access_of(route).value, said

    return table(("route", "access", "what it answers"), rows())


def routes() -> dict[tuple[str, str], APIRoute]:
    """The API's routes in order, by path and methods; HEAD stands with its GET."""
    every = list(api_routes())
    heads = {route.path for route in every if route.methods == {"HEAD"}}
    return {
        (route.path, " ".join(sorted(route.methods or ())) + (" HEAD" if route.path in heads else "")): route
        for route in every
        if route.methods != {"HEAD"}
    }


def problems_table() -> str:
    """Every code that the API can answer with."""

    def rows() -> Iterator[tuple[str, ...]]:
        for code, kind in sorted(ERROR_TYPES.items(), key=lambda item: (item[1].status, item[0])):
            error = ERRORS_BY_CODE.get(code)
            meaning = inspect.cleandoc(error.__doc__ or "").partition("\n\n")[0] if error else f"{kind.title}."
            if code == "error":
                meaning = "A failure of no better known kind."
            yield f"`{code}`", str(kind.status), meaning

    return table(("code", "status", "meaning"), rows())


def http_problems_table() -> str:
    """Every code that the server gives before the ledger is asked."""
    rows = ((f"`{code}`", str(kind.status), f"{kind.title}.") for code, kind in REFUSAL_TYPES.items())
    return table(("code", "status", "meaning"), rows)


def selector_tables() -> str:
    """The parameters of each selector."""
    return _component_tables(SELECTORS)


def aggregator_tables() -> str:
    """The parameters of each aggregator."""
    return _component_tables(AGGREGATORS)


def _component_tables(parts: PartRegistry[Any]) -> str:
    return "\n".join(part_table(name, parts.params_type(name)) for name in parts)


BLOCKS: Final[Mapping[str, Callable[[], str]]] = {
    "routes": routes_table,
    "publication": messages.publication_table,
    "transaction": messages.transaction_table,
    "selection": messages.selection_table,
    "signed-publication": messages.signed_publication,
    "problems": problems_table,
    "http-problems": http_problems_table,
    "selectors": selector_tables,
    "aggregators": aggregator_tables,
}
