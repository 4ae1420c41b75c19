"""Commands beside a server that clients write to and that is killed again and again: they take nothing away from it.

Between two kills a backup is made and other commands read the ledger; the kill meets the last of them. Each command
must end well, and each backup can be restored and proven and holds what had been acknowledged before it began.
On SQLite only, whose file every command opens beside the server.
"""

import random
import time
from pathlib import Path

from dag_acfl.sources import open_source
from tests.faults.harness.history import History
from tests.faults.harness.servers import ServerProcess
from tests.faults.harness.writers import Author, Writer, start, stop
from tests.faults.kill import PLACES, Place, ledger_at
from tests.faults.report import Report

WRITERS = 4
PAUSE_S = 0.1
"""Between two publications of a writer: most commands read the whole ledger."""
POINTS_PER_LEDGER = 10
READING = (
    ("ledger", "verify"),
    ("ledger", "inspect"),
    ("ledger", "prune", "--dry-run", "--keep-days", "0"),
    ("members", "list"),
)


def command_points(place: Place, folder: Path, *, points: int, seed: int, bug: str | None = None) -> History:
    """Kill the server at ``points`` moments, each in the middle of a command that follows others, and look after each.

    With a planted ``bug`` it ends at the first fault.
    """
    rng = random.Random(f"{seed} {place.name}")
    history = History()
    history.note("run", part="commands", place=place.name, seed=seed, points=points, writers=WRITERS)
    for first in range(0, points, POINTS_PER_LEDGER):
        with ledger_at(place, folder / f"ledger-{first}") as (server, ledger):
            history.note("ledger", transaction=ledger)
            server.name, server.bug = f"server-{first}", bug
            for point in range(first, min(first + POINTS_PER_LEDGER, points)):
                authors = [Author(70_000 + point * WRITERS + i, ledger, place.layout) for i in range(WRITERS)]
                _point(server, authors, history, rng, folder / f"backup-{point}")
                if bug is not None and history.verdict(everywhere=False).faults:
                    return history
            _run(server, history, "ledger", "verify")
    return history


def _point(server: ServerProcess, authors: list[Author], history: History, rng: random.Random, backup: Path) -> None:
    server.start()
    writers = [Writer(each, history, port=server.port, server=server.name, pause_s=PAUSE_S) for each in authors]
    start(writers)
    before = history.acknowledged_by(server.name)
    _run(server, history, "ledger", "backup", backup)
    *others, last = rng.sample(READING, k=rng.randint(2, len(READING)))
    for words in others:
        _run(server, history, *words)
    _run(server, history, *last, kill_after_s=rng.uniform(0.0, 0.3))
    stop(writers)
    server.start()
    server.show(history)
    server.kill()
    restored = backup.with_name(f"{backup.name}-restored")
    if _run(server, history, "ledger", "restore", backup, "--data-dir", restored):  # which proves it, averages and all
        with open_source(str(restored)) as source:
            there = {identity for identity, _ in source.transactions()}
        faults = [f"{each} is missing, acknowledged before it began" for each in sorted(before - there)]
        history.show(backup.name, there, faults=faults)


def _run(server: ServerProcess, history: History, *words: object, kill_after_s: float | None = None) -> bool:
    """Run a command beside the server, which is killed meanwhile or not, and note whether it ended well."""
    command = server.command(*words)
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        history.note("kill")
        server.kill()
    command.join()
    line = " ".join(map(str, words))
    history.note("command", words=line, status=command.exitcode)
    if command.exitcode == 0:
        return True
    history.show("commands", (), faults=[f"{line} ended with {command.exitcode}: {server.output.read_text()[-300:]}"])
    return False


def run(folder: Path, size: int, seed: int) -> Report:
    """``size`` points, half of them with models in rows, half in files."""
    report = Report(
        "commands",
        f"backups and reading commands beside a server under {WRITERS} writers, which kill -9 meets in the middle of one",
        "nothing acknowledged is lost; each command ends well, each backup is proven and has what was acknowledged before",
        size,
        seed,
    )
    for number, place in enumerate(PLACES[:2]):
        points = size // 2 + (number < size % 2)
        history = command_points(place, folder / place.name, points=points, seed=seed)
        commands = sum(event["event"] == "command" for event in history.events)
        verdict = report.judge(history, folder, place.name, everywhere=False, points=points, commands=commands)
        if verdict.acknowledged <= points:
            report.broken.append(f"{place.name}: the writers hardly wrote; the run shows nothing")
    return report
