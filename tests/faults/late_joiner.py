"""A server that joins late is killed again and again while it catches up: it ends equal, and fetches hardly anything
again.

What it fetched again is what the other server sent of models, by that server's own count (``gossip_served_bytes``,
which counts an answer whole as soon as it begins), beyond all models once.
"""

import random
import time
from contextlib import ExitStack
from pathlib import Path

from fl_core.dag.building import build_update
from fl_core.dag.figures import Figures
from fl_core.models import flat, model_norm
from fl_core.types import digest_of
from fl_core.wire import v1
from ledger_server.gossip.runtime import TOGETHER_BYTES
from ledger_server.store import open_store
from ledger_server.store.journal import StoredTransaction
from tests.builders import CREATED_AT_MS, ISSUER, START, author_of, key_from_seed
from tests.faults.harness.history import History
from tests.faults.harness.peers import introduce, join
from tests.faults.harness.servers import ServerProcess
from tests.faults.harness.writers import layout_with, model_of
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


def grown(server: ServerProcess, count: int, *, seed: int, history: History) -> int:
    """A server's ledger of ``count`` transactions, past HTTP but through the store; returns its models' bytes.

    Each of 50 authors approves its own newest and its neighbour's.
    """
    layout = LAYOUT_100_KB
    ledger = server.found(layout)
    history.note("ledger", transaction=ledger)
    keys = [key_from_seed(seed * 1000 + author) for author in range(AUTHORS)]
    newest = [ledger] * AUTHORS
    sent = 0
    with open_store(f"sqlite:///{server.folder / 'ledger.sqlite3'}", data_dir=server.folder) as store:
        for number in range(count):
            sequence, author = divmod(number, AUTHORS)
            data = model_of(layout, seed, number + 1)
            key = keys[author]
            unsigned = build_update(
                ledger=ledger,
                author=author_of(key),
                sequence=sequence,
                created_at_ms=CREATED_AT_MS + number,
                num_examples=1,
                start=START,
                model_digest=digest_of(data),
                model_size=len(data),
                parents=(newest[author],),
            )
            transaction = unsigned.issue(
                ISSUER, author_signature=unsigned.sign_as_author(key), received_at_ms=CREATED_AT_MS + number
            )
            history.attempt(transaction.id)
            figures = Figures(model_norm(flat(layout, data))).encode()
            new = StoredTransaction(store.length(), transaction, figures, CREATED_AT_MS + number)
            assert store.append(new, model=data, attachment=None)
            history.acknowledge(transaction.id, server=server.name)
            newest[author] = transaction.id
            sent += len(data)
    return sent


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
    needed = grown(early, size, seed=seed, history=history)
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
        early.show(history)
        late.show(history)
    again = sent / needed - 1
    report.judge(history, folder)
    report.figures |= {
        "kills": kills,
        "caught_up_in_s": round(ended_s - began_s, 1),
        "after_the_last_kill_s": round(ended_s - at_last_kill_s, 1),
        "after_the_last_kill_transactions": left,
        "model_bytes": needed,
        "model_bytes_sent": sent,
        "share_sent_again": round(again, 5),
    }
    if again > (AGAIN_AT_MOST if size >= ENOUGH else kills * IN_FLIGHT_BYTES / needed):
        report.broken.append(f"{again:.2%} of the models' bytes were sent again")
    if sent < needed:
        report.broken.append("fewer bytes were sent than the models have; the run shows nothing")
    return report
