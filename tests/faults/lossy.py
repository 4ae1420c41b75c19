"""Three servers over a bad network: 200 ms there and back, jitter, loss, doubles and reordering, while clients write to
each. Once the writers stop, all become equal.

Writers and observers reach their server by a good link; only what the servers say to one another passes the bad one.
"""

import re
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from fl_core.models import ModelLayout, TensorSpec
from fl_core.types import TxId
from fl_core.wire import v1
from tests.builders import make_genesis
from tests.faults.harness.history import History
from tests.faults.harness.lossy_link import LossyLink, Weather
from tests.faults.harness.namespaces import apart
from tests.faults.harness.peers import ISSUER_SEED, PeerPlace, give_key, peer_list
from tests.faults.harness.servers import ServerProcess
from tests.faults.harness.writers import Author, Writer, model_of, stop
from tests.faults.report import Report, quantiles
from tests.serving import prepare

SERVERS = 3
PORT = 8900
PAUSE_S = 0.5
"""Between two publications of a server's one writer."""
WEATHER = Weather()
LAYOUT_20_KB = ModelLayout.of(
    [
        TensorSpec("body.weight", "F32", (50, 100)),
        TensorSpec("fc.weight", "F32", (1, 3)),
        TensorSpec("fc.bias", "F32", (1,)),
    ]
)
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


class Sight(threading.Thread):
    """Notes when each transaction was first seen on a server."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.seen_s: dict[TxId, float] = {}
        self.faults: list[str] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        """Follow the journal until told to stop; a child that is shown before a parent is a fault."""
        path = first = f"{v1.TRANSACTIONS}?limit=1000"
        while not self.stopping.wait(0.1):
            page = self.server.json(path)
            now_s = time.monotonic()
            for item in page["items"]:
                identity = TxId(item["id"])
                self.seen_s.setdefault(identity, now_s)
                self.faults += [
                    f"{self.server.name} showed {identity} before its parent {parent}"
                    for parent in item["parents"]
                    if parent not in self.seen_s
                ]
            if page["next"]:
                path = f"{first}&after={page['next']}"


def round_trips_ms(server: ServerProcess, other: ServerProcess) -> dict[str, float]:
    """What connecting from one server's namespace to another takes; a lost packet shows as a second more."""
    command = [*server.prefix, sys.executable, "-c", ROUND_TRIP, other.host, str(other.port)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {name: round(1000 * took_s, 1) for name, took_s in quantiles([float(each) for each in said.split()]).items()}


def digests(servers: list[ServerProcess]) -> set[str]:
    """Of the servers' tips; one if they are equal."""
    return {server.json(v1.TIPS)["digest"] for server in servers}


def incidents_of(server: ServerProcess) -> Counter[str]:
    """What a server says that its peers did wrong, by kind."""
    exposition = server.ask("/metrics")[1].decode()
    found: Counter[str] = Counter()
    for kind, count in re.findall(
        r'^dag_acfl_gossip_incidents_total{incident="(.*?)".*} (.*)$', exposition, re.MULTILINE
    ):
        found[kind] += round(float(count))
    return found


def visible_after_s(history: History, sights: list[Sight]) -> list[float]:
    """Seconds from each acknowledgement to the moment at which the last server showed the transaction."""
    return [
        max(sight.seen_s[event["transaction"]] for sight in sights) - event["at_s"]
        for event in history.events
        if event["event"] == "acknowledged" and all(event["transaction"] in sight.seen_s for sight in sights)
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
    genesis = make_genesis(layout=LAYOUT_20_KB, compared=("fc.bias", "fc.weight"))
    with ExitStack() as stack:
        network = stack.enter_context(apart(SERVERS))
        places = {
            f"server-{number}": PeerPlace(f"http://{network.address(number)}:{PORT}", ISSUER_SEED + number)
            for number in range(SERVERS)
        }
        link = LossyLink({network.namespace(n): network.address(n) for n in range(SERVERS)}, WEATHER, seed)
        stack.enter_context(link)
        servers: list[ServerProcess] = []
        for number, (name, place) in enumerate(places.items()):
            own = folder / name
            give_key(own, place.key)
            url = f"sqlite:///{own / 'ledger.sqlite3'}"
            ledger = prepare(url, own, genesis=genesis, first=model_of(LAYOUT_20_KB, 0, 0))
            server = ServerProcess(
                own,
                name,
                host=network.address(number),
                port=PORT,
                environment={"DAG_ACFL_PEERS": peer_list(places)},
                prefix=network.prefix(number),
            )
            servers.append(stack.enter_context(server))
        history.note("ledger", transaction=ledger)
        report.figures["round_trip_ms"] = round_trips_ms(servers[0], servers[1])
        sights = [Sight(server) for server in servers]
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
        for thread in (*sights, *writers):
            thread.start()
        time.sleep(size)
        stop(writers)
        stopped_s = time.monotonic()
        while len(digests(servers)) > 1 and time.monotonic() < stopped_s + CONVERGE_S:
            time.sleep(0.2)
        converged_s = time.monotonic()
        time.sleep(1)  # for the last page
        for sight in sights:
            sight.stopping.set()
            sight.join()
        for server in servers:
            server.show(history)
        incidents = sum(map(incidents_of, servers), Counter[str]())
    verdict = history.verdict()
    took_s = visible_after_s(history, sights)
    report.figures |= {
        **verdict.figures(),
        "converged_after_s": round(converged_s - stopped_s, 2),
        "visible_everywhere_after_s": {name: round(value, 3) for name, value in quantiles(took_s).items()},
        "published_per_s": round(verdict.acknowledged / size, 2),
        "model_bytes_delivered_per_s": round(
            verdict.acknowledged * genesis.layout.nbytes * (SERVERS - 1) / (converged_s - stopped_s + size)
        ),
        "incidents": dict(incidents),
    }
    if link.counts is not None:
        report.figures["link"] = asdict(link.counts)
    report.broken += [*verdict.faults, *(fault for sight in sights for fault in sight.faults)]
    if converged_s >= stopped_s + CONVERGE_S:
        report.broken.append(f"servers were not equal after {CONVERGE_S:.0f} s")
    if verdict.acknowledged < size:
        report.broken.append("the writers hardly wrote; the run shows nothing")
    report.histories.append(history.write(folder / "lossy.jsonl").name)
    return report
