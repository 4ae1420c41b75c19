"""One who follows a server's journal page by page, and notes when each transaction was first shown."""

import http.client
import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fl_core.types import TxId
from fl_core.wire import v1
from tests.faults.harness.servers import ServerProcess


class Follower(threading.Thread):
    """Reads on until told to stop, and then to the end; a server that does not answer is asked again.

    Args:
        server: Whom to follow.
        page: Transactions at once.
        pause_s: Between two looks at the newest page.
        on_new: Told of each transaction, as the list has it.
    """

    def __init__(
        self,
        server: ServerProcess,
        *,
        page: int = 1000,
        pause_s: float = 0.05,
        on_new: Callable[[dict[str, Any]], None] = lambda item: None,
    ) -> None:
        super().__init__(daemon=True)
        self._server, self._page, self._pause_s, self._on_new = server, page, pause_s, on_new
        self._stopping = threading.Event()
        self.seen_s: dict[TxId, float] = {}
        self.faults: list[str] = []
        """A child that is shown before a parent is one."""

    def run(self) -> None:
        """Follow."""
        path = first = f"{v1.TRANSACTIONS}?limit={self._page}"
        while True:
            is_last = self._stopping.is_set()
            with suppress(OSError, http.client.HTTPException):
                status, body = self._server.ask(path)
                if status == http.client.OK:
                    page = json.loads(body)
                    self._read(page["items"])
                    if page["next"]:
                        path = f"{first}&after={page['next']}"
                        continue
            if is_last:
                return
            self._stopping.wait(self._pause_s)

    def _read(self, items: list[dict[str, Any]]) -> None:
        now_s = time.monotonic()
        for item in items:
            if item["id"] in self.seen_s:
                continue
            self.seen_s[TxId(item["id"])] = now_s
            self.faults += [
                f"{self._server.name} showed {item['id']} before its parent {parent}"
                for parent in item["parents"]
                if parent not in self.seen_s
            ]
            self._on_new(item)

    def stop(self) -> None:
        """Tell it to read to the end, and wait."""
        self._stopping.set()
        self.join(60)
