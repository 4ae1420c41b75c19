"""A server that joins late is killed again and again while it catches up: it ends equal, and fetches hardly anything
again.

What it fetched again is what the other server sent of models, by that server's own count (``gossip_served_bytes``,
which counts an answer whole as soon as it begins), beyond all models once.
"""

import http.client
import random
import time
from contextlib import ExitStack, closing
from pathlib import Path

from fl_core.wire import v1
from ledger_server.gossip.runtime import TOGETHER_BYTES
from tests.faults.harness.history import History
from tests.faults.harness.peers import introduce, join
from tests.faults.harness.servers import ServerProcess, approvals_between_authors
from tests.faults.harness.writers import Author, Writer, layout_with, ledger_of
from tests.faults.report import Report

LAYOUT_100_KB = layout_with(100, 250)
AUTHORS = 50
KILLS_IN_FULL = 20
AGAIN_AT_MOST = 0.01
"""Share of all models' bytes that may be sent again, where there are enough of them for a share to say something."""
ENOUGH = 5000
IN_FLIGHT_BYTES = TOGETHER_BYTES
"""What a kill may cost at most: one answer, counted whole as soon as it begins."""
CATCH_UP_S = 1800.0


def grow(server: ServerProcess, count: int, *, seed: int, history: History) -> None:
    """Have 50 authors publish ``count`` transactions in turn at a running server, upon selections."""
    ledger = ledger_of(LAYOUT_100_KB)
    history.note("ledger", transaction=ledger)
    writers = [
        Writer(Author(seed * 1000 + number, ledger, LAYOUT_100_KB), history, port=server.port, server=server.name)
        for number in range(AUTHORS)
    ]
    with closing(http.client.HTTPConnection(server.host, server.port, timeout=20)) as connection:
        for number in range(count):
            writers[number % AUTHORS].publish(connection)


def served_model_bytes(server: ServerProcess) -> int:
    """Bytes of models that peers fetched from a server, as it counts them."""
    return sum(count for labels, count in server.metrics("gossip_served_bytes_total") if labels["kind"] == "model")


def held(server: ServerProcess) -> int:
    """How many transactions a server shows, genesis included."""
    count: int = server.json(v1.TIPS)["transactions"]
    return count


def killed_again_and_again(late: ServerProcess, history: History, rng: random.Random, *, size: int, kills: int) -> None:
    """Kill ``late`` at ``kills`` moments spread at random over its catching up; it is down afterwards.

    Every fifth kill strikes within half a second of the start, ready or not.
    """
    for kill, reached in enumerate(sorted(rng.sample(range(size), kills))):
        if kill % 5 == 4:
            late.start(wait=False)
            time.sleep(rng.uniform(0, 0.5))
        else:
            late.start()
            history.show(late.name, late.listed())
            while held(late) < reached:
                time.sleep(0.01)
            time.sleep(rng.uniform(0, 0.2))
        history.note("kill", kill=kill, reached=reached)
        late.kill()


def run(folder: Path, size: int, seed: int) -> Report:
    """``size`` transactions; one kill for every 500 of them, at least 3."""
    kills = max(3, round(size * KILLS_IN_FULL / 10_000))
    report = Report(
        "late_joiner",
        f"kill -9 of an empty server, {kills} times while it catches up with {size} transactions of 100 KB each",
        f"it ends equal with every model whole, and at most {AGAIN_AT_MOST:.0%} of the models' bytes are sent again",
        size,
        seed,
    )
    rng, history = random.Random(f"{seed} late joiner"), History()
    history.note("run", part="late_joiner", seed=seed, transactions=size, kills=kills)
    early, late = (ServerProcess(folder / name, name) for name in ("early", "late"))
    introduce([early, late])
    began_s = time.monotonic()
    early.found(LAYOUT_100_KB)
    with early:
        grow(early, size, seed=seed, history=history)
    needed = size * LAYOUT_100_KB.nbytes
    report.figures["grown_in_s"] = round(time.monotonic() - began_s, 1)
    with early, ExitStack() as stack:
        stack.callback(late.kill)
        join(early, late.folder)
        before = served_model_bytes(early)
        began_s = time.monotonic()
        killed_again_and_again(late, history, rng, size=size, kills=kills)
        at_last_kill_s = time.monotonic()
        late.start()
        left = size + 1 - held(late)
        while held(late) <= size and time.monotonic() < began_s + CATCH_UP_S:
            time.sleep(0.1)
        ended_s = time.monotonic()
        sent = served_model_bytes(early) - before
        approvals = approvals_between_authors(early.show(history))
        late.show(history)
    again = sent / needed - 1
    report.judge(history, folder)
    report.figures |= {
        "kills": kills,
        "approvals_between_authors": approvals,
        "caught_up_in_s": round(ended_s - began_s, 1),
        "after_the_last_kill_s": round(ended_s - at_last_kill_s, 1),
        "after_the_last_kill_transactions": left,
        "model_bytes": needed,
        "model_bytes_sent": sent,
        "share_sent_again": round(again, 5),
    }
    if again > (AGAIN_AT_MOST if size >= ENOUGH else kills * IN_FLIGHT_BYTES / needed):
        report.broken.append(f"{again:.2%} of the models' bytes were sent again")
    if approvals < size:
        report.broken.append("authors hardly approved one another; the run shows nothing")
    if sent < needed:
        report.broken.append("fewer bytes were sent than the models have; the run shows nothing")
    return report
