"""A server that joins late is killed again and again while it catches up: it ends equal, and fetches hardly anything
again.

What it fetched again is what the other server sent of models, by that server's own count (``gossip_served_bytes``,
which counts an answer whole as soon as it begins), beyond all models once.
"""

import random
import re
import time
from contextlib import ExitStack
from pathlib import Path

from fl_core.dag.building import build_update
from fl_core.dag.figures import Figures
from fl_core.models import ModelLayout, TensorSpec, flat, model_norm
from fl_core.types import digest_of
from fl_core.wire import v1
from ledger_server.gossip.runtime import TOGETHER_BYTES
from ledger_server.store import open_store
from ledger_server.store.journal import StoredTransaction
from tests.builders import CREATED_AT_MS, ISSUER, START, author_of, key_from_seed, make_genesis
from tests.faults.harness.history import History
from tests.faults.harness.peers import join, peers_on_loopback
from tests.faults.harness.servers import ServerProcess
from tests.faults.harness.writers import model_of
from tests.faults.report import Report
from tests.serving import prepare

LAYOUT_100_KB = ModelLayout.of(
    [
        TensorSpec("body.weight", "F32", (100, 250)),
        TensorSpec("fc.weight", "F32", (1, 3)),
        TensorSpec("fc.bias", "F32", (1,)),
    ]
)
AUTHORS = 50
KILLS_IN_FULL = 20
AGAIN_AT_MOST = 0.01
"""Share of all models' bytes that may be sent again, where there are enough of them for a share to say something."""
ENOUGH = 5000
IN_FLIGHT_BYTES = TOGETHER_BYTES
"""What a kill may cost at most: one answer, counted whole as soon as it begins."""
CATCH_UP_S = 1800.0


def grown(folder: Path, count: int, *, seed: int, history: History, server: str) -> int:
    """A ledger of ``count`` transactions in a new folder, past HTTP but through the store; returns its models' bytes.

    Each of 50 authors approves its own newest and its neighbour's.
    """
    url = f"sqlite:///{folder / 'ledger.sqlite3'}"
    layout = LAYOUT_100_KB
    genesis = make_genesis(layout=layout, compared=("fc.bias", "fc.weight"))
    ledger = prepare(url, folder, genesis=genesis, first=model_of(layout, 0, 0))
    history.note("ledger", transaction=ledger)
    keys = [key_from_seed(seed * 1000 + author) for author in range(AUTHORS)]
    newest = [ledger] * AUTHORS
    sent = 0
    with open_store(url, data_dir=folder) as store:
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
                parents=tuple(sorted({newest[author], newest[(author + 1) % AUTHORS]})),
            )
            transaction = unsigned.issue(
                ISSUER, author_signature=unsigned.sign_as_author(key), received_at_ms=CREATED_AT_MS + number
            )
            history.attempt(transaction.id)
            figures = Figures(model_norm(flat(layout, data))).encode()
            new = StoredTransaction(store.length(), transaction, figures, CREATED_AT_MS + number)
            assert store.append(new, model=data, attachment=None)
            history.acknowledge(transaction.id, server=server)
            newest[author] = transaction.id
            sent += len(data)
    return sent


def served_model_bytes(server: ServerProcess) -> int:
    """Bytes of models that peers fetched from a server, as it counts them."""
    exposition = server.ask("/metrics")[1].decode()
    lines = re.findall(r"^dag_acfl_gossip_served_bytes_total{(.*)} (.*)$", exposition, re.MULTILINE)
    return round(sum(float(count) for labels, count in lines if 'kind="model"' in labels))


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
    began_s = time.monotonic()
    needed = grown(folder / "early", size, seed=seed, history=history, server="early")
    report.figures["grown_in_s"] = round(time.monotonic() - began_s, 1)
    servers = peers_on_loopback(folder, "early", "late")
    late = servers["late"]
    with servers["early"] as early, ExitStack() as stack:
        stack.callback(late.kill)
        join(f"http://127.0.0.1:{early.port}", late.folder)
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
    verdict = history.verdict()
    report.figures |= {
        **verdict.figures(),
        "kills": kills,
        "caught_up_in_s": round(ended_s - began_s, 1),
        "after_the_last_kill_s": round(ended_s - at_last_kill_s, 1),
        "after_the_last_kill_transactions": left,
        "model_bytes": needed,
        "model_bytes_sent": sent,
        "share_sent_again": round(again, 5),
    }
    report.broken += verdict.faults
    if again > (AGAIN_AT_MOST if size >= ENOUGH else kills * IN_FLIGHT_BYTES / needed):
        report.broken.append(f"{again:.2%} of the models' bytes were sent again")
    if sent < needed:
        report.broken.append("fewer bytes were sent than the models have; the run shows nothing")
    report.histories.append(history.write(folder / "late_joiner.jsonl").name)
    return report
