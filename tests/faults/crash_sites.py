"""``kill -9`` at every single write and sync of a publication, one after the other, until none is left to be met.

Which system calls these are is seen by watching a publication. One that also copies SQLite's log into the database has
thousands of sites, of which some are drawn.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.faults.harness.history import History
from tests.faults.harness.servers import ServerProcess
from tests.faults.harness.tracing import changes, injected, met, watched
from tests.faults.harness.writers import LARGE_LAYOUT, Author, Signed
from tests.faults.kill import Place, ledger_at
from tests.faults.report import Report, file_name

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
        with watched(server.pid) as trace:
            assert attempt(server, History(), author.next()) == 201
    return dict(changes(trace))


def warm_up(place: Place, server: ServerProcess, history: History, author: Author) -> None:
    """What a thread does once in its life it has done then, unless the first publication is the one to be looked at."""
    if place is FIRST:
        return
    first = author.next()
    assert attempt(server, history, first) == 201
    author.accepted(first)


@dataclass(frozen=True, slots=True)
class Site:
    """A system call of a publication that met what was to happen there.

    Attributes:
        syscall: Its name.
        when: Which of them, from 1.
        server: The server, as that left it.
        signed: The publication.
        status: The answer's; None: there was none.
        file: What an error was about; None for a kill.
    """

    syscall: str
    when: int
    server: ServerProcess
    signed: Signed
    status: int | None
    file: Path | None


def sites(place: Place, folder: Path, what: str, *, most: int, history: History) -> Iterator[Site]:
    """Let ``what`` happen at the first ``most`` sites of each system call of a publication, as far as it has so many.

    Each is in a life of the server of its own, which ends after the site was yielded.

    Raises:
        AssertionError: Of a system call that a publication has no site was met.
    """
    written = written_by(place, folder / "watched")
    with ledger_at(place, folder / "met") as (server, ledger):
        history.note("ledger", transaction=ledger)
        number = 0
        for syscall in sorted(written):
            for when in range(1, most + 1):
                number += 1
                server.start()
                server.show(history)
                author = Author(20_000 + number, ledger, place.layout)
                warm_up(place, server, history, author)
                signed = author.next()
                with injected(server.pid, syscall, what, when=when) as trace:
                    status = attempt(server, history, signed)
                is_met, file = met(trace)
                if is_met:
                    yield Site(syscall, when, server, signed, status, file)
                server.kill()
                if not is_met:
                    assert when > 1, f"{what}: no {syscall} was met, of which a publication has {written[syscall]}"
                    break
        server.start()
        server.show(history)


def killed(place: Place, folder: Path, *, most: int) -> tuple[History, dict[str, int]]:
    """Kill at the first ``most`` sites of each system call; returns how many of each a publication has, as far as met."""
    history = History()
    history.note("run", part="crash_sites", place=place.name, most=most)
    found = sites(place, folder, "signal=SIGKILL", most=most, history=history)
    return history, {site.syscall: site.when for site in found}


def copying_sites(place: Place, folder: Path, *, most: int, seed: int) -> tuple[History, dict[str, int]]:
    """Kill while SQLite's log is copied into the database: at some of the pages, and at the sync behind them."""
    rng = random.Random(seed)
    pages = [1, 2, *sorted(rng.sample(range(3, COPIED_PAGES), max(most - 3, 0)))][: max(most - 1, 1)]
    history = History()
    history.note("run", part="crash_sites", place=place.name, seed=seed, most=most)
    counts = Counter[str]()
    with ledger_at(place, folder) as (server, ledger):
        history.note("ledger", transaction=ledger)
        database = server.folder / "ledger.sqlite3"
        for number, (syscall, when) in enumerate([("fdatasync", 1), *(("pwrite64", page) for page in pages)]):
            server.start()
            server.show(history, models=number % 10 == 0)
            author = Author(40_000 + number, ledger, place.layout)
            with injected(server.pid, syscall, "signal=SIGKILL", when=when, file=database) as trace:
                for _ in range(PUBLICATIONS_UNTIL_COPIED):
                    signed = author.next()
                    if attempt(server, history, signed) != 201:
                        break
                    author.accepted(signed)
            server.kill()
            counts[syscall] += met(trace)[0]
        server.start()
        server.show(history)
    return history, dict(counts)


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
        own = folder / file_name(place.name)
        if place is COPYING:
            history, counts = copying_sites(place, own, most=min(size, 40), seed=seed)
        else:
            history, counts = killed(place, own, most=size)
        report.judge(history, folder, place.name, sites=counts)
        if not counts or not all(counts.values()):
            report.broken.append(f"{place.name}: sites were not met; the run shows nothing of them")
    return report
