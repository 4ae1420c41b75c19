"""One origin as a browser sees it: the JavaScript client's files, a page's reports, and a ledger server behind it.

What goes to ``/v1`` is passed on, and a test may look on while a publication passes.
"""

import json
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.docs.test_docs import ROOT
from tests.live import Live

CLIENT: Final = ROOT / "clients" / "js"
_TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".json": "application/json"}
_SENT_ON: Final = ("authorization", "content-type", "last-event-id")

Watch: TypeAlias = Callable[[str], None]
"""Told how far a publication is: ``begun`` (its head is here), ``half`` of its body, ``answered`` (the server has, the
client not yet), ``told`` (the client has, too)."""


class Origin(ThreadingHTTPServer):
    """Serves until it is shut down.

    Attributes:
        reports: What pages posted to ``/report``.
        watch: Looks on while publications pass.
    """

    daemon_threads = True

    def __init__(self, live: Live) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.live = live
        self.reports: queue.Queue[Any] = queue.Queue()
        self.watch: Watch = lambda _: None

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed hangs up: nothing to tell."""


@contextmanager
def origin(live: Live) -> Iterator[Origin]:
    """In front of a running server, on a free port."""
    with Origin(live) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: Origin

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        if self.path.startswith("/v1/"):
            self._pass_on(b"", lambda _: None)
            return
        file = (ROOT / self.path.partition("?")[0].lstrip("/")).resolve()
        if not (file.is_file() and file.is_relative_to(ROOT)):
            self.send_error(404)
            return
        self._answer(200, _TYPES.get(file.suffix, "application/octet-stream"), file.read_bytes())

    def do_POST(self) -> None:
        watch: Watch = self.server.watch if self.path == "/v1/transactions" else lambda _: None
        size = int(self.headers["content-length"])
        watch("begun")
        body = self.rfile.read(size // 2)
        watch("half")
        body += self.rfile.read(size - size // 2)
        if self.path == "/report":
            self.server.reports.put(json.loads(body))
            self._answer(200, "text/plain", b"")
        else:
            self._pass_on(body, watch)

    def _pass_on(self, body: bytes, watch: Watch) -> None:
        connection = HTTPConnection(self.server.live.host, self.server.live.port, timeout=30)
        sent = {name: value for name in _SENT_ON if (value := self.headers.get(name)) is not None}
        try:
            connection.request(self.command, self.path, body or None, sent)
            response = connection.getresponse()
            watch("answered")
            self._give(response)
            watch("told")
        finally:
            connection.close()

    def _give(self, response: HTTPResponse) -> None:
        """An answer as it comes: server-sent events have no end."""
        self.send_response(response.status)
        for name in ("content-type", "content-length", "retry-after"):
            if (value := response.headers.get(name)) is not None:
                self.send_header(name, value)
        self.end_headers()
        while piece := response.read1(1 << 16):
            self.wfile.write(piece)
            self.wfile.flush()

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def path_of(file: Path) -> str:
    """Where the origin serves a file of the repository."""
    return "/" + file.relative_to(ROOT).as_posix()
