"""``kill -9`` at every single write and sync of a publication, one after the other, until none is left to be met.

Which system calls these are is seen by watching a publication. One that also copies SQLite's log into the database has
thousands of sites, of which some are drawn.
"""

import random
from pathlib import Path

from tests.faults.harness.history import History
from tests.faults.harness.servers import ServerProcess
from tests.faults.harness.tracing import changes, injected, was_met, watched
from tests.faults.harness.writers import LARGE_LAYOUT, Author, Signed
from tests.faults.kill import Place, ledger_at
from tests.faults.report import Report

PUBLICATION = (
    Place("small, in rows"),
    Place("large, in rows", layout=LARGE_LAYOUT, blobs="database"),
    Place("large, in files", layout=LARGE_LAYOUT, blobs="directory"),
)
FIRST = Place("large, in files, first after a start", layout=LARGE_LAYOUT, blobs="directory")
"""A thread's first publication, with what it does once in its life."""
COPYING = Place("large, in rows, copying the log", layout=LARGE_LAYOUT, blobs="database")
PUBLICATIONS_UNTIL_COPIED = 120
"""More than fill SQLite's log."""
COPIED_PAGES = 1500
"""Fewer than are copied from a full log."""


def attempt(server: ServerProcess, history: History, signed: Signed) -> int | None:
    """Send a publication, and note what came of it; the status, or None when there was no answer."""
    history.attempt(signed.id)
    try:
        status, _ = server.send(signed.body)
    except OSError:
        return None
    if status in (200, 201):
        history.acknowledge(signed.id)
    return status


def written_by(place: Place, folder: Path) -> dict[str, int]:
    """How often a publication calls what changes a file or makes the change durable."""
    with ledger_at(place, folder) as (server, ledger):
        server.start()
        author = Author(10_000, ledger, place.layout)
        warm_up(place, server, History(), author)
        assert server.process is not None
        with watched(server.process.pid) as trace:
            assert attempt(server, History(), author.next()) == 201
    return dict(changes(trace))


def warm_up(place: Place, server: ServerProcess, history: History, author: Author) -> None:
    """What a thread does once in its life it has done then, unless the first publication is the one to be looked at."""
    if place is FIRST:
        return
    first = author.next()
    assert attempt(server, history, first) == 201
    author.accepted(first)


def sites(place: Place, folder: Path, *, most: int) -> tuple[History, dict[str, int]]:
    """Kill at the first ``most`` sites of each system call; returns how many of each a publication has, as far as met."""
    history = History()
    history.note("run", part="crash_sites", place=place.name, most=most)
    met: dict[str, int] = {}
    written = written_by(place, folder / "watched")
    with ledger_at(place, folder / "killed") as (server, ledger):
        history.note("ledger", transaction=ledger)
        number = 0
        for syscall in sorted(written):
            for when in range(1, most + 1):
                number += 1
                server.start()
                server.show(history)
                author = Author(20_000 + number, ledger, place.layout)
                warm_up(place, server, history, author)
                assert server.process is not None
                with injected(server.process.pid, syscall, "signal=SIGKILL", when=when) as trace:
                    attempt(server, history, author.next())
                server.kill()
                if not was_met(trace):
                    break
                met[syscall] = when
            assert met.get(syscall), f"no kill at a {syscall}, of which a publication has {written[syscall]}"
        server.start()
        server.show(history)
    return history, met


def copying_sites(place: Place, folder: Path, *, most: int, seed: int) -> tuple[History, dict[str, int]]:
    """Kill while SQLite's log is copied into the database: at some of the pages, and at the sync behind them."""
    rng = random.Random(seed)
    pages = [1, 2, *sorted(rng.sample(range(3, COPIED_PAGES), max(most - 3, 0)))][: max(most - 1, 1)]
    history = History()
    history.note("run", part="crash_sites", place=place.name, seed=seed, most=most)
    met: dict[str, int] = {}
    with ledger_at(place, folder) as (server, ledger):
        history.note("ledger", transaction=ledger)
        database = server.folder / "ledger.sqlite3"
        for number, (syscall, when) in enumerate([("fdatasync", 1), *(("pwrite64", page) for page in pages)]):
            server.start()
            server.show(history, models=number % 10 == 0)
            author = Author(40_000 + number, ledger, place.layout)
            assert server.process is not None
            with injected(server.process.pid, syscall, "signal=SIGKILL", when=when, file=database) as trace:
                for _ in range(PUBLICATIONS_UNTIL_COPIED):
                    signed = author.next()
                    if attempt(server, history, signed) != 201:
                        break
                    author.accepted(signed)
            server.kill()
            met[syscall] = met.get(syscall, 0) + was_met(trace)
        server.start()
        server.show(history)
    return history, met


def run(folder: Path, size: int, seed: int) -> Report:
    """At most ``size`` sites of each system call."""
    report = Report(
        "crash_sites",
        "kill -9 at every write, rename and sync of a publication",
        "nothing acknowledged is lost, nothing is there in part",
        size,
        seed,
    )
    for place in (*PUBLICATION, FIRST, COPYING):
        file = place.name.replace(", ", "-").replace(" ", "-")
        if place is COPYING:
            history, met = copying_sites(place, folder / file, most=min(size, 40), seed=seed)
        else:
            history, met = sites(place, folder / file, most=size)
        verdict = history.verdict()
        report.figures[place.name] = {"sites": met, **verdict.figures()}
        report.broken += [f"{place.name}: {fault}" for fault in verdict.faults]
        report.histories.append(history.write(folder / f"crash_sites-{file}.jsonl").name)
        if not met or not all(met.values()):
            report.broken.append(f"{place.name}: sites were not met; the run shows nothing of them")
    return report
