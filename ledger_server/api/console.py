"""The console: pages that show the ledger as it is. Their files lie in this package and load nothing from elsewhere."""

import gzip
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from fl_core.types import Digest, digest_of
from ledger_server.api.dependencies import ServerDep
from ledger_server.api.json_response import takes_gzip
from ledger_server.api.model_response import matches
from ledger_server.http.access import Access, requires
from ledger_server.http.problems import Problem

router: APIRouter = APIRouter(include_in_schema=False)

_PACKAGE: Final = Path(__file__).resolve().parents[1]
_TYPES: Final = MappingProxyType(
    {
        ".css": "text/css; charset=utf-8",
        ".html": "text/html; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".svg": "image/svg+xml",
    }
)
_NODES: Final = "folder.js"
"""Of the JavaScript client, what Node.js alone can use."""
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class File:
    """A file of the console: its bytes, the same by gzip, their SHA-256, and what they are."""

    data: bytes
    packed: bytes
    digest: Digest
    media_type: str


def client_folder() -> Path:
    """The JavaScript client, which checks signatures in the console: in a wheel inside this package."""
    installed = _PACKAGE / "_client"
    return installed if installed.is_dir() else _PACKAGE.parent / "clients" / "js" / "src"


@cache
def files() -> dict[str, File]:
    """All files by the path under ``/ui/``; some 150 KB by gzip."""
    folders = {"": _PACKAGE / "console", "client/": client_folder()}
    return {
        f"{prefix}{path.relative_to(folder).as_posix()}": _read(path)
        for prefix, folder in folders.items()
        for path in sorted(folder.rglob("*"))
        if path.suffix in _TYPES and path.name != _NODES
    }


@cache
def page_digest() -> Digest:
    """SHA-256 of all files' digests: another one is another page."""
    return digest_of("".join(f"{path} {file.digest}\n" for path, file in files().items()).encode())


def _read(path: Path) -> File:
    data = path.read_bytes()
    return File(data, gzip.compress(data, mtime=0), digest_of(data), _TYPES[path.suffix])


@router.get("/ui/{path:path}")
@router.head("/ui/{path:path}")
@requires(Access.OPEN)
def get_file(path: str, request: Request, server: ServerDep) -> Response:
    """A file of the console; it holds nothing of the ledger, which its scripts ask for with the reader's token."""
    if not server.settings.console_enabled:
        raise Problem("not-found", "this server shows no console")
    found = files().get(path or "index.html")
    if found is None:
        raise Problem("not-found", "the console has no such file")
    headers = {
        "cache-control": "no-cache",
        "content-security-policy": _POLICY,
        "content-type": found.media_type,
        "etag": f'W/"{found.digest[:32]}"',
        "vary": "Accept-Encoding",
    }
    if matches(request.headers.get("if-none-match", ""), headers["etag"]):
        return Response(status_code=304, headers=headers)
    if takes_gzip(request.headers.get("accept-encoding", "")):
        return Response(found.packed, headers={**headers, "content-encoding": "gzip"})
    return Response(found.data, headers=headers)
