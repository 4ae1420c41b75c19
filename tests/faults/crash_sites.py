"""``kill -9`` at every single write and sync of a publication, one after the other, until none is left to be met."""

from pathlib import Path

from tests.faults.harness.history import History
from tests.faults.harness.servers import ServerProcess
from tests.faults.harness.tracing import SYNC, WRITE, injected, was_met
from tests.faults.harness.writers import LARGE_LAYOUT, Author, Signed
from tests.faults.kill import Place, ledger_at
from tests.faults.report import Report

PUBLICATION = (
    Place("small, in rows"),
    Place("large, in rows", layout=LARGE_LAYOUT, blobs="database"),
    Place("large, in segment files", layout=LARGE_LAYOUT, blobs="directory"),
)


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


def sites(place: Place, folder: Path, *, most: int) -> tuple[History, dict[str, int]]:
    """Kill at the first ``most`` sites of each system call; returns how many of each a publication has, as far as met."""
    history = History()
    history.note("run", part="crash_sites", place=place.name, most=most)
    met: dict[str, int] = {}
    with ledger_at(place, folder) as (server, ledger):
        history.note("ledger", transaction=ledger)
        number = 0
        for syscall in (*WRITE, *SYNC):
            for when in range(1, most + 1):
                number += 1
                server.start()
                server.show(history)
                author = Author(20_000 + number, ledger, place.layout)
                # The thread that published before publishes again: what it does once in its life is done.
                first = author.next()
                assert attempt(server, history, first) == 201
                author.accepted(first)
                assert server.process is not None
                with injected(server.process.pid, syscall, "signal=SIGKILL", when=when) as trace:
                    attempt(server, history, author.next())
                server.kill()
                if not was_met(trace):
                    break
                met[syscall] = when
        server.start()
        server.show(history)
    return history, met


def run(folder: Path, size: int, seed: int) -> Report:
    """At most ``size`` sites of each system call."""
    report = Report(
        "crash_sites",
        "kill -9 at every pwrite, ftruncate, fallocate, fdatasync and fsync of a publication",
        "nothing acknowledged is lost, nothing is there in part",
        size,
        seed,
    )
    for place in PUBLICATION:
        history, met = sites(place, folder / place.name.replace(", ", "-").replace(" ", "-"), most=size)
        verdict = history.verdict()
        report.figures[place.name] = {"sites": met, **verdict.figures()}
        report.broken += [f"{place.name}: {fault}" for fault in verdict.faults]
        name = f"crash_sites-{place.name.replace(', ', '-').replace(' ', '-')}.jsonl"
        report.histories.append(history.write(folder / name).name)
        if not met:
            report.broken.append(f"{place.name}: no site was met; the run shows nothing")
    return report
