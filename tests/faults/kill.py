"""``kill -9`` of a server again and again while clients write: what was acknowledged is there after each restart.

The points are shared among SQLite with models in its rows, SQLite with models in segment files, and PostgreSQL.
"""

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fl_core.types import TxId
from fl_core.weights import ModelLayout
from tests.builders import LAYOUT
from tests.faults.harness.history import History
from tests.faults.harness.servers import ServerProcess
from tests.faults.harness.writers import LARGE_LAYOUT, Author, Writer, genesis_of, model_of, stop
from tests.faults.report import Report
from tests.postgres import databases
from tests.serving import prepare

WRITERS = 8


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server keeps its ledger."""

    name: str
    layout: ModelLayout = LAYOUT
    on_postgresql: bool = False
    blobs: str = "auto"


PLACES = (
    Place("sqlite"),
    Place("sqlite-directory", layout=LARGE_LAYOUT, blobs="directory"),
    Place("postgresql", on_postgresql=True),
    Place("postgresql-directory", layout=LARGE_LAYOUT, on_postgresql=True, blobs="directory"),
)


@contextmanager
def ledger_at(place: Place, folder: Path) -> Iterator[tuple[ServerProcess, TxId]]:
    """A server, not started, over a new ledger in ``folder``."""
    data = folder / "data"
    data.mkdir(parents=True)
    with ExitStack() as stack:
        url = f"sqlite:///{data / 'ledger.sqlite3'}"
        if place.on_postgresql:
            url = stack.enter_context(stack.enter_context(databases()).fresh())
        ledger = prepare(url, data, genesis=genesis_of(place.layout), first=model_of(place.layout, 0, 0))
        server = ServerProcess(data, database_url=url, environment={"DAG_ACFL_BLOBS__STORE": place.blobs})
        stack.callback(server.kill)
        yield server, ledger


def kill_points(place: Place, folder: Path, *, points: int, seed: int, bug: str | None = None) -> History:
    """Kill the server at ``points`` random moments, 20 to 400 ms into the writing, and look after each restart.

    With a planted ``bug`` it ends at the first fault.
    """
    rng = random.Random(f"{seed} {place.name}")
    history = History()
    history.note("run", part="kill", place=place.name, seed=seed, points=points, writers=WRITERS)
    with ledger_at(place, folder) as (server, ledger):
        history.note("ledger", transaction=ledger)
        server.bug = bug
        for point in range(points):
            server.start()
            # What each restart shows is compared; hashing every model again each time would take the time of the
            # kills, so that all are hashed every fiftieth time and at the end.
            server.show(history, models=bug is not None or point % 50 == 0)
            if bug is not None and history.verdict(everywhere=False).faults:
                return history
            # Authors of each point's own: an unanswered publication must not block the next by its sequence.
            writers = [
                Writer(
                    Author(10_000 + point * WRITERS + i, ledger, place.layout),
                    history,
                    port=server.port,
                )
                for i in range(WRITERS)
            ]
            for writer in writers:
                writer.start()
            time.sleep(rng.uniform(0.02, 0.4))
            history.note("kill", point=point)
            server.kill()
            stop(writers)
        server.start()
        server.show(history)
    return history


def run(folder: Path, size: int, seed: int) -> Report:
    """``size`` points, shared among the places."""
    report = Report(
        "kill",
        f"kill -9 of a server under {WRITERS} writers, 20 to 400 ms into the writing",
        "nothing acknowledged is lost, nothing is there in part",
        size,
        seed,
    )
    for number, place in enumerate(PLACES):
        points = size // len(PLACES) + (number < size % len(PLACES))
        history = kill_points(place, folder / place.name, points=points, seed=seed)
        verdict = history.verdict()
        report.figures[place.name] = {"points": points, **verdict.figures()}
        report.broken += [f"{place.name}: {fault}" for fault in verdict.faults]
        if verdict.acknowledged <= points:
            report.broken.append(f"{place.name}: the writers hardly wrote; the run shows nothing")
        report.histories.append(history.write(folder / f"kill-{place.name}.jsonl").name)
    return report
