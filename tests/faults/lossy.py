"""Three servers over a bad network: 200 ms there and back, jitter, loss, doubles and reordering, while clients write to
each. Once the writers stop, all become equal.

Writers and observers reach their server by a good link; only what the servers say to one another passes the bad one.
"""

import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from fl_core.types import TxId
from fl_core.wire import v1
from tests.faults.harness.follower import Follower
from tests.faults.harness.history import History
from tests.faults.harness.lossy_link import LossyLink, Weather
from tests.faults.harness.namespaces import apart
from tests.faults.harness.peers import introduce
from tests.faults.harness.servers import ServerProcess, approvals_between_authors, running
from tests.faults.harness.writers import Author, Writer, layout_with, stop
from tests.faults.report import Report, quantiles

SERVERS = 3
PORT = 8900
PAUSE_S = 0.5
"""Between two publications of a server's one writer."""
WEATHER = Weather()
LAYOUT_20_KB = layout_with(50, 100)
CONVERGE_S = 300.0
ROUND_TRIP = """
import socket, sys, time
for _ in range(15):
    began = time.monotonic()
    try:
        socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3).close()
    except OSError:
        continue
    print(time.monotonic() - began)
"""


def round_trips_ms(server: ServerProcess, other: ServerProcess) -> dict[str, float]:
    """What connecting from one server's namespace to another takes; a lost packet shows as a second more."""
    command = [
        "ip",
        "netns",
        "exec",
        str(server.namespace),
        sys.executable,
        "-c",
        ROUND_TRIP,
        other.host,
        str(other.port),
    ]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return quantiles([1000 * float(each) for each in said.split()], digits=1)


def digests(servers: list[ServerProcess]) -> set[str]:
    """Of the servers' tips; one if they are equal."""
    return {server.json(v1.TIPS)["digest"] for server in servers}


def incidents_of(server: ServerProcess) -> Counter[str]:
    """What a server says that its peers did wrong, by kind."""
    found: Counter[str] = Counter()
    for labels, count in server.metrics("gossip_incidents_total"):
        found[labels["incident"]] += count
    return found


def visible_after_s(history: History, followers: list[Follower]) -> list[float]:
    """Seconds from each acknowledgement to the moment at which the last server showed the transaction."""
    found_s = {
        transaction: max(follower.seen_s[transaction] for follower in followers)
        for transaction in set[TxId].intersection(*(set(follower.seen_s) for follower in followers))
    }
    return [
        found_s[event["transaction"]] - event["at_s"]
        for event in history.events
        if event["event"] == "acknowledged" and event["transaction"] in found_s
    ]


def run(folder: Path, size: int, seed: int) -> Report:
    """Write for ``size`` seconds, then wait until all are equal."""
    report = Report(
        "lossy",
        f"{SERVERS} servers with {2 * WEATHER.delay_s * 1000:.0f} ms there and back, {WEATHER.loss:.0%} loss, "
        f"{WEATHER.doubles:.0%} doubles, {WEATHER.late:.0%} overtaken packets and jitter of "
        f"{WEATHER.jitter_s * 1000:.0f} ms between them, a writer on each",
        f"all are equal within {CONVERGE_S:.0f} s of the last publication; nothing acknowledged is lost",
        size,
        seed,
    )
    history = History()
    history.note("run", part="lossy", seed=seed, seconds=size, servers=SERVERS)
    with ExitStack() as stack:
        network = stack.enter_context(apart(SERVERS))
        link = LossyLink({network.namespace(n): network.address(n) for n in range(SERVERS)}, WEATHER, seed)
        stack.enter_context(link)
        servers = [
            ServerProcess(
                folder / name, name, host=network.address(number), port=PORT, namespace=network.namespace(number)
            )
            for number, name in enumerate(f"server-{number}" for number in range(SERVERS))
        ]
        introduce(servers)
        (ledger,) = {server.found(LAYOUT_20_KB) for server in servers}
        stack.enter_context(running(servers))
        history.note("ledger", transaction=ledger)
        followers = [Follower(server) for server in servers]
        writers = [
            Writer(
                Author(seed * 1000 + number, ledger, LAYOUT_20_KB),
                history,
                host=server.host,
                port=PORT,
                server=server.name,
                pause_s=PAUSE_S,
                stubborn=True,
            )
            for number, server in enumerate(servers)
        ]
        for thread in (*followers, *writers):
            thread.start()
        began_s = time.monotonic()
        report.figures["round_trip_ms"] = round_trips_ms(servers[0], servers[1])
        time.sleep(max(began_s + size - time.monotonic(), 0))
        stop(writers)
        stopped_s = time.monotonic()
        while len(digests(servers)) > 1 and time.monotonic() < stopped_s + CONVERGE_S:
            time.sleep(0.2)
        converged_s = time.monotonic()
        for follower in followers:
            follower.stop()
        *_, shown = [server.show(history) for server in servers]
        incidents = sum(map(incidents_of, servers), Counter[str]())
    verdict = report.judge(history, folder)
    report.figures |= {
        "approvals_between_authors": approvals_between_authors(shown),
        "converged_after_s": round(converged_s - stopped_s, 2),
        "visible_everywhere_after_s": quantiles(visible_after_s(history, followers), digits=3),
        "published_per_s": round(verdict.acknowledged / (stopped_s - began_s), 2),
        "model_bytes_delivered_per_s": round(
            verdict.acknowledged * LAYOUT_20_KB.nbytes * (SERVERS - 1) / (converged_s - began_s)
        ),
        "incidents": dict(incidents),
    }
    if link.counts is not None:
        report.figures["link"] = asdict(link.counts)
    report.broken += [fault for follower in followers for fault in follower.faults]
    if converged_s >= stopped_s + CONVERGE_S:
        report.broken.append(f"servers were not equal after {CONVERGE_S:.0f} s")
    if verdict.acknowledged < size:
        report.broken.append("the writers hardly wrote; the run shows nothing")
    return report
