"""What writers attempted and what was acknowledged, what servers showed afterwards, and the judgement of both.

A transaction is *attempted* before it is sent and *acknowledged* once 200 or 201 has been read. Shown at the end:
acknowledged and missing is **lost** (never allowed), present and never attempted is **unexpected** (never allowed),
present and not acknowledged is **recovered** (allowed: the answer was lost, not the transaction), and what does not
hold together (a parent that is missing, bytes that do not hash, a signature that fails) is **partial** (never allowed).
An acknowledgement between a server's ``power off`` and the next look at it does not count: it may be of a server that
has no disk any more.

Everything is an event, in the order it happened; a history that was written to a file is judged again without its
servers (``python -m tests.faults.check``), by the same function.
"""

import json
import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Event = dict[str, Any]


@dataclass
class History:
    """Events of one run; safe to share between threads."""

    events: list[Event] = field(default_factory=list)
    _shown: dict[str, set[str]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, event: str, **fields: Any) -> None:
        """Keep an event with its moment."""
        with self._lock:
            self.events.append({"event": event, "at_s": round(time.monotonic(), 6), **fields})

    def attempt(self, transaction: str) -> None:
        """A writer is about to send a transaction."""
        self.note("attempt", transaction=transaction)

    def acknowledge(self, transaction: str, *, server: str = "server") -> None:
        """A writer has read 200 or 201."""
        self.note("acknowledged", transaction=transaction, server=server)

    def acknowledged_by(self, server: str) -> set[str]:
        """What a server has acknowledged up to now."""
        with self._lock:
            events = list(self.events)
        return {each["transaction"] for each in events if each["event"] == "acknowledged" and each["server"] == server}

    def show(self, server: str, transactions: Collection[str], *, faults: Collection[str] = ()) -> None:
        """A server shows these transactions, and these faults in them; noted as the change since it was last looked at."""
        before, now = self._shown.get(server, set()), set(transactions)
        self._shown[server] = now
        self.note("shown", server=server, new=sorted(now - before), gone=sorted(before - now), faults=sorted(faults))

    def write(self, path: Path) -> Path:
        """All events as JSON lines; returns the path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock:
            path.write_text("".join(json.dumps(event) + "\n" for event in self.events), encoding="utf-8")
        return path

    def verdict(self, *, everywhere: bool = True) -> "Verdict":
        """The judgement of what is noted so far."""
        with self._lock:
            return judge(list(self.events), everywhere=everywhere)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a history came to."""

    attempted: int
    acknowledged: int
    recovered: int
    lost: tuple[str, ...]
    unexpected: tuple[str, ...]
    partial: tuple[str, ...]

    @property
    def faults(self) -> tuple[str, ...]:
        """Sentences about what must never be."""
        return (
            *(f"lost: {each}" for each in self.lost),
            *(f"unexpected: {each}" for each in self.unexpected),
            *(f"partial: {each}" for each in self.partial),
        )

    def figures(self) -> dict[str, int]:
        """Counts, for a report."""
        return {
            "attempted": self.attempted,
            "acknowledged": self.acknowledged,
            "recovered": self.recovered,
            "lost": len(self.lost),
            "unexpected": len(self.unexpected),
            "partial": len(self.partial),
        }


def judge(events: Iterable[Event], *, everywhere: bool = True) -> Verdict:
    """Judge a history.

    Every ``shown`` is held against what had been acknowledged *before it*: by that server itself while its set must
    not shrink, and at each server's last ``shown`` by anybody, if ``everywhere``.

    Args:
        events: In the order they happened. ``ledger`` events name the genesis, which nobody attempted.
        everywhere: Servers have converged at the end: each must show what any of them acknowledged.
    """
    attempted: set[str] = set()
    acknowledged: dict[str, set[str]] = {}
    given: set[str] = set()
    without_power: set[str] = set()
    last: dict[str, set[str]] = {}
    """What each server showed when it was last looked at; what disappeared is lost, and stays so."""
    lost: set[str] = set()
    unexpected: set[str] = set()
    partial: list[str] = []
    for event in events:
        kind = event["event"]
        if kind == "attempt":
            attempted.add(event["transaction"])
        elif kind == "power off":
            without_power.add(event["server"])
        elif kind == "acknowledged" and event["server"] not in without_power:
            acknowledged.setdefault(event["server"], set()).add(event["transaction"])
        elif kind == "ledger":
            given.add(event["transaction"])
        elif kind == "shown":
            without_power.discard(event["server"])
            shown = last.setdefault(event["server"], set())
            shown.difference_update(event["gone"])
            shown.update(event["new"])
            lost |= set(event["gone"]) | acknowledged.get(event["server"], set()) - shown
            unexpected |= set(event["new"]) - attempted - given
            partial += [f"{event['server']}: {fault}" for fault in event["faults"]]
    everything = set().union(*acknowledged.values())
    if everywhere:
        for shown in last.values():
            lost |= everything - shown
    recovered = set().union(*last.values()) - everything - given
    return Verdict(
        len(attempted),
        len(everything),
        len(recovered),
        tuple(sorted(lost)),
        tuple(sorted(unexpected)),
        tuple(partial),
    )
