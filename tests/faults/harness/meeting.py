"""A server, an honest peer and bad peers: honest publications go on between the first two, and are timed.

Two writers publish, one at each server; what the one acknowledged must arrive at the other. What must not be: anything
that no writer sent, an answer of 5xx beyond the documented refusal of a busy server, a traceback in a log.
"""

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fl_core.dag.signature import public_key_of
from fl_core.models import ModelLayout
from fl_core.types import PublicKey
from tests.builders import LAYOUT, key_from_seed
from tests.faults.harness.bad_peer_server import BadPeer, Line, Listener, answering
from tests.faults.harness.follower import Follower
from tests.faults.harness.history import History
from tests.faults.harness.peers import ISSUER_SEED, introduce
from tests.faults.harness.servers import ServerProcess, running
from tests.faults.harness.writers import Author, Writer, ledger_of, stop
from tests.faults.report import quantiles
from tests.live import free_ports

HONEST_SEED = ISSUER_SEED + 1
BAD_SEED = 100
SETTLE_S = 60.0
LEAST = 3
"""Publications below which a run shows nothing."""
MIB = 1 << 20
RSS_GROWTH_BYTES = 64 * MIB
ARRIVES_WITHIN_S = 10.0
"""Two pull intervals (``GossipLimits.pull_interval_s``): what an announcement loses, a pull brings by then."""


def bad_key(number: int) -> Ed25519PrivateKey:
    """The key of a bad peer."""
    return key_from_seed(BAD_SEED + number)


def _memory_bytes(server: ServerProcess, field_name: str) -> int:
    """A figure of the process's memory: ``VmRSS`` now, ``VmHWM`` the most since the last ``_forget_peak``."""
    text = Path(f"/proc/{server.pid}/status").read_text(encoding="ascii")
    found = re.search(rf"^{field_name}:\s+(\d+) kB$", text, re.MULTILINE)
    assert found is not None, text
    return int(found[1]) * 1024


def _forget_peak(server: ServerProcess) -> int:
    """Let the peak begin anew; returns what the process has now."""
    Path(f"/proc/{server.pid}/clear_refs").write_text("5", encoding="ascii")
    return _memory_bytes(server, "VmRSS")


@dataclass
class Meeting:
    """See the module's docstring.

    Attributes:
        target: The server that is attacked.
        honest: Its honest peer.
        bad: The bad peers.
        layout: Of the ledger's models.
        history: Of both servers.
        listener: Where the bad peers answer.
        broken: What must not be, in sentences.
    """

    target: ServerProcess
    honest: ServerProcess
    bad: Sequence[BadPeer]
    layout: ModelLayout
    history: History
    listener: Listener
    broken: list[str] = field(default_factory=list)
    _writers: list[Writer] = field(default_factory=list)
    _followers: list[Follower] = field(default_factory=list)
    _incidents: Counter[tuple[str, str]] = field(default_factory=Counter)
    _statuses: Counter[str] = field(default_factory=Counter)
    _grown_bytes: int = 0

    def line(self, peer: BadPeer, victim: ServerProcess | None = None) -> Line:
        """From a bad peer to the target, or to the honest peer."""
        seed = HONEST_SEED if victim is self.honest else ISSUER_SEED
        return Line(peer, victim or self.target, PublicKey(public_key_of(key_from_seed(seed))))

    def publish(self, *, at_target: bool = True, pause_s: float = 0.1) -> None:
        """Begin to publish at both servers, and to time what arrives at the other."""
        for number, server in enumerate((self.honest, self.target) if at_target else (self.honest,)):
            author = Author(10_000 + number, ledger_of(self.layout), self.layout)
            writer = Writer(author, self.history, port=server.port, server=server.name, pause_s=pause_s, stubborn=True)
            self._writers.append(writer)
        self._followers = [Follower(self.target), Follower(self.honest)]
        for thread in (*self._writers, *self._followers):
            thread.start()

    def restart_target(self) -> None:
        """End the target as its operator would, and start it again; its metrics are read before they are gone."""
        self._count()
        assert self.target.stop() == 0, self.target.tail()
        self.target.start()

    @contextmanager
    def bounded_memory(self) -> Iterator[None]:
        """Hold the target to ``RSS_GROWTH_BYTES`` inside the block."""
        before_bytes = _forget_peak(self.target)
        yield
        self._grown_bytes = _memory_bytes(self.target, "VmHWM") - before_bytes
        if self._grown_bytes > RSS_GROWTH_BYTES:
            self.broken.append(f"memory grew by {self._grown_bytes / MIB:.0f} MiB")

    def is_banned(self, peer: BadPeer) -> bool:
        """Whether the target has said so, in this life."""
        return self._read_incidents()[peer.name, "banned"] > 0

    def _read_incidents(self) -> Counter[tuple[str, str]]:
        found = self.target.metrics("gossip_incidents_total")
        return Counter({(labels["peer"], labels["incident"]): count for labels, count in found})

    def _count(self) -> None:
        self._incidents += self._read_incidents()
        for labels, count in self.target.metrics("requests_total"):
            self._statuses[labels["status"]] += count

    def settle(self) -> None:
        """Stop writing, and wait until each server shows what the other acknowledged."""
        until_s = time.monotonic() + SETTLE_S
        while time.monotonic() < until_s and sum(writer.author.sequence for writer in self._writers) < LEAST:
            time.sleep(0.02)
        stop(self._writers)
        self.history.note("settling")
        wanted = {event["transaction"] for event in self.history.events if event["event"] == "acknowledged"}
        until_s = time.monotonic() + SETTLE_S
        while time.monotonic() < until_s and any(wanted - each.seen_s.keys() for each in self._followers):
            time.sleep(0.05)
        for follower in self._followers:
            follower.stop()
            self.broken += follower.faults
        self._count()
        for server in (self.target, self.honest):
            server.show(self.history)

    def arrival_s(self) -> list[float]:
        """Seconds from each acknowledgement at one server to the transaction's being shown by the other, ascending."""
        seen_s = {
            self.honest.name: self._followers[0].seen_s,
            self.target.name: self._followers[1].seen_s,
        }
        took = []
        for event in self.history.events:
            if event["event"] == "acknowledged":
                arrived = seen_s[event["server"]].get(event["transaction"])
                took.append(SETTLE_S if arrived is None else max(arrived - event["at_s"], 0.0))
        return sorted(took)

    def judged(self, *, may_be_busy: bool = False, within_s: float = ARRIVES_WITHIN_S) -> dict[str, Any]:
        """Figures, after ``settle``; what must not be is added to ``broken``.

        Args:
            may_be_busy: 503 is allowed.
            within_s: The latest arrival.
        """
        verdict, arrival_s = self.history.verdict(), self.arrival_s()
        self.broken += verdict.faults
        if verdict.acknowledged < LEAST:
            self.broken.append(f"only {verdict.acknowledged} honest publications; the run shows nothing")
        if arrival_s and arrival_s[-1] > within_s:
            self.broken.append(f"an honest publication took {arrival_s[-1]:.1f} s to arrive")
        failures = {status: count for status, count in self._statuses.items() if status.startswith("5")}
        if may_be_busy:
            failures.pop("503", None)
        if failures:
            self.broken.append(f"the server answered {failures}")
        for server in (self.target, self.honest):
            log = server.log.read_text(encoding="utf-8", errors="replace")
            for sign in ("Traceback", "gossip failed", "unexpected"):
                if sign in log:
                    at = log.index(sign)
                    self.broken.append(f"{server.name} logged {sign!r}: {log[at : at + 1500]}")
        self.broken += [f"a bad peer's own fault: {error}" for error in self.listener.errors]
        if self.listener.strangers:
            self.broken.append(f"{self.listener.strangers} requests followed a redirect")
        return {
            **verdict.figures(),
            "arrival_s": quantiles(arrival_s, digits=3),
            "incidents": self.incidents(),
            "statuses": dict(sorted(self._statuses.items())),
            "rss_growth_mib": round(self._grown_bytes / MIB, 1),
        }

    def incidents(self) -> Mapping[str, int]:
        """What the target noticed about the bad peers, by kind."""
        bad = {peer.name for peer in self.bad}
        counts: Counter[str] = Counter()
        for (name, incident), count in self._incidents.items():
            if name in bad:
                counts[incident] += count
            elif incident in ("banned", "invalid"):
                self.broken.append(f"the honest peer was found {incident}")
        return dict(sorted(counts.items()))


@contextmanager
def meeting(
    folder: Path,
    bad: Sequence[BadPeer],
    *,
    layout: ModelLayout = LAYOUT,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Meeting]:
    """Both servers, running, over a new ledger that each has; and the bad peers, answering.

    The history is written beside ``folder`` at the end.
    """
    target, honest = (
        ServerProcess(folder / name, name, environment=environment or {}) for name in ("target", "honest")
    )
    (port,) = free_ports(1)
    introduce([target, honest], *(f"{peer.name}=http://127.0.0.1:{port}#{peer.public_key}" for peer in bad))
    (ledger,) = {server.found(layout) for server in (target, honest)}
    history = History()
    history.note("ledger", transaction=ledger)
    with answering(port, bad) as listener, running([target, honest]):
        yield Meeting(target, honest, bad, layout, history, listener)
    history.write(folder.with_suffix(".jsonl"))
