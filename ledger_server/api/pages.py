"""Pages for a person with a browser: where she has landed, and what can be asked. They load nothing from elsewhere."""

import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ledger_server.api.dependencies import LatelyDep, ServerDep
from ledger_server.build import build
from ledger_server.http.access import Access, requires
from ledger_server.http.problems import Problem

router: APIRouter = APIRouter(include_in_schema=False)

_STYLE: Final = (
    "body{font:1rem/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "code{overflow-wrap:anywhere}h2{margin:2rem 0 0}h3{margin:1.2rem 0 0}p{margin:.2rem 0}"
)
_POLICY: Final = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}


@router.get("/", response_class=HTMLResponse)
@requires(Access.OPEN)
async def get_start(service: LatelyDep, server: ServerDep) -> Response:
    """The console, or where there is none, what this server is, for a person who opens its address."""
    if server.settings.console_enabled:
        return RedirectResponse("/ui/")
    names = ["readyz", "version", *(["docs"] if server.settings.docs_enabled else [])]
    links = " · ".join(f"<a href='/{name}'>/{name}</a>" for name in names)
    what = "{version}, commit {commit}".format_map(build())
    return _page(
        "DAG-ACFL ledger server",
        f"<p>Federated learning without a coordinator. Ledger <code>{service.id}</code>, release {escape(what)}.</p>"
        "<p>Take part: <code>dag-acfl client run my_client.py --server URL</code></p>"
        f"<p>{links}</p>",
    )


@router.get("/docs", response_class=HTMLResponse)
@requires(Access.OPEN)
async def get_docs(request: Request, server: ServerDep) -> Response:
    """The API, as ``/openapi.json`` describes it to programs."""
    if not server.settings.docs_enabled:
        raise Problem("not-found", "this server shows no documents")
    lead = "<p>For programs: <a href='/openapi.json'>/openapi.json</a>; <code>docs/protocol.md</code> has the rest.</p>"
    return _page("DAG-ACFL API", lead + "".join(_operations(request.app.openapi())))


def _operations(document: Mapping[str, Any]) -> Iterator[str]:
    group = ""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method == "head":  # as its GET
                continue
            if operation["tags"][0] != group:
                group = operation["tags"][0]
                yield f"<h2>{escape(group)}</h2>"
            yield f"<h3><code>{method.upper()} {escape(path)}</code></h3>"
            for line in _said(operation):
                yield "<p>" + re.sub("``(.+?)``", r"<code>\1</code>", escape(line)) + "</p>"


def _said(operation: Mapping[str, Any]) -> Iterator[str]:
    description, _, _ = operation.get("description", "").partition("\n\n")
    yield f"{operation['summary']}. {description}"
    if parameters := [each["name"] for each in operation.get("parameters", [])]:
        yield f"Parameters: {', '.join(parameters)}."
    if bodies := list(operation.get("requestBody", {}).get("content", {})):
        yield f"Body: {' or '.join(bodies)}."
    callers = [name for each in operation.get("security", []) for name in each]
    yield f"Answers: {', '.join(operation['responses'])}." + (f" Asks for: {', '.join(callers)}." if callers else "")


def _page(title: str, body: str) -> Response:
    html = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    return HTMLResponse(f"{html}<h1>{title}</h1>{body}</html>", headers=_POLICY)
