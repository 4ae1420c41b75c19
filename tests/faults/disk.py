"""A disk that is full, and one that fails at a write or a sync: 503, nothing acknowledged falsely, and reads go on.

Errors are put in place of every write and sync of a publication, one after the other. After a sync that failed, for
whatever reason, nobody knows what is on the disk, so the server must write no more until it is started again; after a
write for which there was no room it goes on as soon as there is some. One sync may fail: that of the folder of SQLite's
log, which SQLite ignores, and which the store has done itself when it was opened.
"""

import http.client
from pathlib import Path

from tests.faults.crash_sites import FIRST, PUBLICATION, attempt, sites
from tests.faults.harness.history import History
from tests.faults.harness.servers import ServerProcess
from tests.faults.harness.tracing import SYNC
from tests.faults.harness.volumes import volume
from tests.faults.harness.writers import Author, layout_with
from tests.faults.kill import Place
from tests.faults.report import Report, file_name

ERRORS = ("EIO", "ENOSPC")
VOLUME_MIB = 40
BALLAST_MIB = 8
SQLITES_FOLDER_SYNC = "fdatasync"
"""Ours are fsync."""
REFUSALS = 20
AFTERWARDS = 5
MANY_PIECES = Place(
    "models of 6 MB, in files",
    layout=layout_with(1500, 1000),
    blobs="directory",
)
"""Each is written in two pieces, so that the disk is full in the middle of one."""


def failing_calls(place: Place, folder: Path, *, error: str, most: int) -> tuple[History, dict[str, int], list[str]]:
    """An error at the first ``most`` sites of each call; returns the sites met, and what was not as it must be."""
    history = History()
    history.note("run", part="disk", place=place.name, error=error, most=most)
    met: dict[str, int] = {}
    broken: list[str] = []
    for site in sites(place, folder, f"error={error}", most=most, history=history):
        met[site.syscall] = site.when
        where = f"{place.name}: {error} at {site.syscall} {site.when}"
        if site.file == site.server.folder and site.syscall == SQLITES_FOLDER_SYNC:
            if site.status != http.client.CREATED:
                broken.append(f"{where}: answered {site.status}")
            continue
        if site.status != http.client.SERVICE_UNAVAILABLE:
            broken.append(f"{where}: answered {site.status}")
        broken += _reads(site.server, where)
        again = attempt(site.server, history, site.signed)
        expected = (503,) if site.syscall in SYNC or error == "EIO" else (200, 201)
        if again not in expected:
            broken.append(f"{where}: the same publication again is answered {again}, not {expected}")
    return history, met, broken


def _reads(server: ServerProcess, where: str) -> list[str]:
    """What cannot be read from a server whose disk has just failed."""
    shown = server.listed()
    statuses = {server.ask(item["model"]["href"])[0] for item in shown.values()}
    return [] if statuses == {http.client.OK} else [f"{where}: models are answered {sorted(statuses)}"]


def full_disk(place: Place, folder: Path) -> tuple[History, dict[str, int], list[str]]:
    """Write until the disk is full, be refused, make room, and go on."""
    history = History()
    history.note("run", part="disk", place=place.name, error="full")
    broken: list[str] = []
    with volume(folder, "ext4", size_mib=VOLUME_MIB) as disk:
        server = ServerProcess(disk.place / "data", blobs=place.blobs, log_file=folder / "full.log")
        ledger = server.found(place.layout)
        history.note("ledger", transaction=ledger)
        ballast = disk.place / "ballast"
        ballast.write_bytes(bytes(BALLAST_MIB << 20))
        with server:
            author = Author(1, ledger, place.layout)
            taken = refused = room = 0
            while refused < REFUSALS:
                signed = author.next()
                room = disk.free_bytes() if not refused else room
                status = attempt(server, history, signed)
                if status == 201:
                    author.accepted(signed)
                    taken += 1
                elif status == 503:
                    refused += 1
                else:
                    broken.append(f"{place.name}: a full disk was answered {status}")
                    break
            broken += _reads(server, f"{place.name}: full")
            ballast.unlink()
            for _ in range(AFTERWARDS if place is not MANY_PIECES else 1):
                signed = author.next()
                again = attempt(server, history, signed)
                if again not in (200, 201):
                    broken.append(f"{place.name}: with room again, a publication is answered {again}")
                    break
                author.accepted(signed)
            server.kill()
            server.start()
            server.show(history)
    return history, {"taken": taken, "refused": refused, "room_at_the_first_refusal": room}, broken


def run(folder: Path, size: int, seed: int) -> Report:
    """At most ``size`` sites of each system call, and a full disk of each kind."""
    report = Report(
        "disk",
        "EIO and ENOSPC at every write and sync of a publication, and a disk that is full",
        "503, reads go on, nothing acknowledged falsely, nothing lost; with room again it goes on",
        size,
        seed,
    )

    def keep(name: str, history: History, figures: dict[str, int], broken: list[str]) -> None:
        report.judge(history, folder, name, **figures)
        report.broken += broken

    for place in (*PUBLICATION, FIRST):
        for error in ERRORS:
            name = f"{place.name}, {error}"
            keep(name, *failing_calls(place, folder / file_name(name), error=error, most=size))
    for place in (*PUBLICATION[1:], MANY_PIECES):
        keep(f"{place.name}, full", *full_disk(place, folder / f"full-{file_name(place.name)}"))
    return report
