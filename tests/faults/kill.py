"""``kill -9`` of a server again and again while clients write: what was acknowledged is there after each restart.

The points are shared among SQLite with models in its rows, SQLite with models in a directory, and PostgreSQL.
"""

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fl_core.models import ModelLayout
from fl_core.types import TxId
from ledger_server.store.opening import BlobPlace
from tests.builders import LAYOUT
from tests.faults.harness.history import History
from tests.faults.harness.servers import ServerProcess
from tests.faults.harness.writers import LARGE_LAYOUT, Author, Writer, start, stop
from tests.faults.report import Report
from tests.postgres import databases

WRITERS = 8
POINTS_PER_LEDGER = 50
"""A ledger that grows makes every look at it longer."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server keeps its ledger."""

    name: str
    layout: ModelLayout = LAYOUT
    on_postgresql: bool = False
    blobs: BlobPlace = "database"


PLACES = (
    Place("sqlite"),
    Place("sqlite-directory", layout=LARGE_LAYOUT, blobs="directory"),
    Place("postgresql", on_postgresql=True),
    Place("postgresql-directory", layout=LARGE_LAYOUT, on_postgresql=True, blobs="directory"),
)


@contextmanager
def ledger_at(place: Place, folder: Path) -> Iterator[tuple[ServerProcess, TxId]]:
    """A server, not started, over a new ledger in ``folder``."""
    with ExitStack() as stack:
        url = stack.enter_context(stack.enter_context(databases()).fresh()) if place.on_postgresql else None
        server = ServerProcess(folder / "data", database_url=url, blobs=place.blobs)
        stack.callback(server.kill)
        yield server, server.found(place.layout)


def kill_points(place: Place, folder: Path, *, points: int, seed: int, bug: str | None = None) -> History:
    """Kill the server at ``points`` random moments, and look after each restart.

    Each is 20 to 400 ms into the writing, which begins with its second acknowledgement.
    With a planted ``bug`` it ends at the first fault.
    """
    rng = random.Random(f"{seed} {place.name}")
    history = History()
    history.note("run", part="kill", place=place.name, seed=seed, points=points, writers=WRITERS)
    for first in range(0, points, POINTS_PER_LEDGER):
        with ledger_at(place, folder / f"ledger-{first}") as (server, ledger):
            history.note("ledger", transaction=ledger)
            server.name, server.bug = f"server-{first}", bug
            for point in range(first, min(first + POINTS_PER_LEDGER, points)):
                server.start()
                # What each restart shows is compared; hashing every model again each time would take the time of the
                # kills, so that all are hashed every tenth time and at the end.
                server.show(history, models=bug is not None or point % 10 == 0)
                if bug is not None and history.verdict(everywhere=False).faults:
                    return history
                _kill_while_written_to(server, ledger, place, history, point=point, after_s=rng.uniform(0.02, 0.4))
            server.start()
            server.show(history)
    return history


def _kill_while_written_to(
    server: ServerProcess, ledger: TxId, place: Place, history: History, *, point: int, after_s: float
) -> None:
    # Authors of each point's own: an unanswered publication must not block the next by its sequence.
    authors = [Author(10_000 + point * WRITERS + i, ledger, place.layout) for i in range(WRITERS)]
    writers = [Writer(author, history, port=server.port, server=server.name) for author in authors]
    start(writers)
    time.sleep(after_s)
    history.note("kill", point=point)
    server.kill()
    stop(writers)


def run(folder: Path, size: int, seed: int) -> Report:
    """``size`` points, shared among the places."""
    report = Report(
        "kill",
        f"kill -9 of a server under {WRITERS} writers, 20 to 400 ms into the writing",
        "nothing acknowledged is lost, nothing is there in part",
        size,
        seed,
    )
    with databases():
        for number, place in enumerate(PLACES):
            points = size // len(PLACES) + (number < size % len(PLACES))
            history = kill_points(place, folder / place.name, points=points, seed=seed)
            verdict = report.judge(history, folder, place.name, everywhere=False, points=points)
            if verdict.acknowledged <= points:
                report.broken.append(f"{place.name}: the writers hardly wrote; the run shows nothing")
    return report
