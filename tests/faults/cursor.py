"""Followers of a growing ledger miss nothing: a cursor never skips what was committed late.

Each follower pages on from its newest cursor while writers write, five transactions at a time; at the end it must
have seen what the server lists. Shared among SQLite and PostgreSQL, where sequence numbers may commit out of order.
"""

import random
import time
from pathlib import Path

from tests.faults.harness.follower import Follower
from tests.faults.harness.history import History
from tests.faults.harness.writers import Author, Writer, stop
from tests.faults.kill import PLACES, WRITERS, Place, ledger_at
from tests.faults.report import Report

FOLLOWERS = 2
PAGE = 5


def follow(place: Place, folder: Path, *, transactions: int, seed: int, bug: str | None = None) -> History:
    """Until ``transactions`` are acknowledged; each follower is shown as a server of its own."""
    rng = random.Random(f"{seed} {place.name}")
    history = History()
    history.note("run", part="cursor", place=place.name, seed=seed, transactions=transactions)
    with ledger_at(place, folder) as (server, ledger):
        history.note("ledger", transaction=ledger)
        server.bug = bug
        server.start()
        followers = [Follower(server, page=PAGE, pause_s=0) for _ in range(FOLLOWERS)]
        authors = [Author(50_000 + number, ledger, place.layout) for number in range(WRITERS)]
        writers = [Writer(author, history, port=server.port, pause_s=rng.uniform(0.0, 0.02)) for author in authors]
        for thread in (*followers, *writers):
            thread.start()
        while sum(author.sequence for author in authors) < transactions:
            assert all(writer.is_alive() for writer in writers), server.tail()
            time.sleep(0.02)
        stop(writers)
        for number, follower in enumerate(followers):
            follower.stop()
            history.show(f"follower-{number}", follower.seen_s.keys(), faults=follower.faults)
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
        report.judge(history, folder, place.name)
    return report
