"""Followers of a growing ledger miss nothing: a cursor never skips what was committed late.

Each follower pages on from its newest cursor while writers write, five transactions at a time; at the end it must
have seen what the server lists. Shared among SQLite and PostgreSQL, where sequence numbers may commit out of order.
"""

import json
import random
import threading
import time
from pathlib import Path

from fl_core.wire import v1
from tests.faults.harness.history import History
from tests.faults.harness.servers import ServerProcess
from tests.faults.harness.writers import Author, Writer, stop
from tests.faults.kill import PLACES, WRITERS, Place, ledger_at
from tests.faults.report import Report

FOLLOWERS = 2
PAGE = 5


class Follower(threading.Thread):
    """Reads page after page, and the newest page again until there is another."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.seen: set[str] = set()
        self.pages = 0
        self.finishing = threading.Event()

    def run(self) -> None:
        """Follow until told to finish, and then to the end."""
        path = f"{v1.TRANSACTIONS}?limit={PAGE}"
        while True:
            was_finishing = self.finishing.is_set()
            status, body = self.server.ask(path)
            assert status == 200, body
            page = json.loads(body)
            self.pages += 1
            self.seen |= {item["id"] for item in page["items"]}
            if page["next"]:
                path = f"{v1.TRANSACTIONS}?limit={PAGE}&after={page['next']}"
            elif was_finishing:
                return


def follow(place: Place, folder: Path, *, transactions: int, seed: int, bug: str | None = None) -> History:
    """Until ``transactions`` are acknowledged; each follower is shown as a server of its own."""
    rng = random.Random(f"{seed} {place.name}")
    history = History()
    history.note("run", part="cursor", place=place.name, seed=seed, transactions=transactions)
    with ledger_at(place, folder) as (server, ledger):
        history.note("ledger", transaction=ledger)
        server.bug = bug
        server.start()
        followers = [Follower(server) for _ in range(FOLLOWERS)]
        authors = [Author(50_000 + number, ledger, place.layout) for number in range(WRITERS)]
        writers = [Writer(author, history, port=server.port, pause_s=rng.uniform(0.0, 0.02)) for author in authors]
        for thread in (*followers, *writers):
            thread.start()
        while sum(author.sequence for author in authors) < transactions:
            assert all(writer.is_alive() for writer in writers), server.tail()
            time.sleep(0.02)
        stop(writers)
        for number, follower in enumerate(followers):
            follower.finishing.set()
            follower.join(60)
            history.show(f"follower-{number}", follower.seen)
        server.show(history, models=False)
    return history


def run(folder: Path, size: int, seed: int) -> Report:
    """``size`` transactions on each kind of database."""
    report = Report(
        "cursor",
        f"{FOLLOWERS} followers page through a ledger that {WRITERS} writers append to",
        "each follower has seen every acknowledged transaction",
        size,
        seed,
    )
    for place in (PLACES[0], PLACES[2]):
        history = follow(place, folder / place.name, transactions=size, seed=seed)
        verdict = history.verdict()
        report.figures[place.name] = verdict.figures()
        report.broken += [f"{place.name}: {fault}" for fault in verdict.faults]
        report.histories.append(history.write(folder / f"cursor-{place.name}.jsonl").name)
    return report
