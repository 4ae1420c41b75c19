"""One who reads a server all the time, whatever happens to it, and holds it to what it shows.

No transaction is shown before its parents, in the order of the journal and one by one; no tip without its model; and
what was shown stays, in its place. A server that does not answer is no fault here.
"""

import http.client
import json
import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fl_core.types import TxId, digest_of
from fl_core.wire import v1
from tests.faults.harness.servers import ServerProcess

PAGE = 50
ANSWER_S = 2.0
AWAY = frozenset({http.client.SERVICE_UNAVAILABLE})


@dataclass
class Observer(threading.Thread):
    """Follows one server's journal and looks behind its tips until told to stop.

    Attributes:
        faults: Sentences about what must never be.
        reads: Transactions that were looked at, again and again ones included.
        statuses: How often which status was answered; 0: no answer.
    """

    server: ServerProcess
    seed: int
    pause_s: float = 0.25
    faults: list[str] = field(default_factory=list)
    reads: int = 0
    statuses: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self.rng = random.Random(f"{self.seed} {self.server.name}")
        self.stopping = threading.Event()
        self._shown: list[TxId] = []
        self._known: set[TxId] = set()
        self._page, self._from = v1.TRANSACTIONS + f"?limit={PAGE}", 0

    __hash__ = threading.Thread.__hash__

    def recent(self) -> list[TxId]:
        """The newest that were shown."""
        return self._shown[-PAGE:]

    def run(self) -> None:
        """Read on."""
        while not self.stopping.is_set():
            if not self._follow():
                self._look_behind_a_tip()
                self.stopping.wait(self.pause_s)

    def stop(self) -> None:
        """Tell it to stop, and wait."""
        self.stopping.set()
        self.join(4 * ANSWER_S)

    def _follow(self) -> bool:
        """Read the page where the journal ended last time, again; True if there is more behind it."""
        page = self._json(self._page)
        if page is None:
            return False
        ids = [TxId(item["id"]) for item in page["items"]]
        before = self._shown[self._from :]
        if ids[: len(before)] != before:
            self._fault(f"the journal from place {self._from} is not what it was")
        for identity, item in zip(ids, page["items"], strict=True):
            missing = [parent for parent in item["parents"] if parent not in self._known]
            if missing:
                self._fault(f"{identity} is shown before its parents {missing}")
            self._known.add(identity)
        self._shown[self._from :] = ids
        self.reads += len(ids)
        if page["next"] is None:
            return False
        self._page, self._from = f"{v1.TRANSACTIONS}?limit={PAGE}&after={page['next']}", self._from + len(ids)
        return True

    def _look_behind_a_tip(self) -> None:
        tips = self._json(v1.TIPS)
        if tips is None:
            return
        tip = self._json(v1.path(v1.TRANSACTION, transaction=self.rng.choice(tips["items"])["transaction"]), of="a tip")
        if tip is None:
            return
        for parent in tip["parents"]:
            self._json(v1.path(v1.TRANSACTION, transaction=parent), of=f"a parent of the tip {tip['id']}")
        answer = self._ask(tip["model"]["href"])
        if answer is not None and (answer[0] != http.client.OK or digest_of(answer[1]) != tip["model"]["digest"]):
            self._fault(f"the model of the tip {tip['id']} is not there whole ({answer[0]})")
        self.reads += 1 + len(tip["parents"])

    def _json(self, path: str, *, of: str = "the list") -> Any:
        answer = self._ask(path)
        if answer is None:
            return None
        status, body = answer
        if status != http.client.OK:
            self._fault(f"{of} is not shown: {path} is {status} {body[:200]!r}")
            return None
        return json.loads(body)

    def _ask(self, path: str) -> tuple[int, bytes] | None:
        """Status and body; None while the server is away."""
        try:
            answer = self.server.ask(path, timeout_s=ANSWER_S)
        except (OSError, http.client.HTTPException):
            self.statuses[0] += 1
            return None
        self.statuses[answer[0]] += 1
        return None if answer[0] in AWAY else answer

    def _fault(self, sentence: str) -> None:
        self.faults.append(f"{self.server.name}: {sentence}")
