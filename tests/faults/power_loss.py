"""Power is cut under a server whose folder lies on a file system of its own: what was acknowledged is there afterwards.

Acknowledgements count up to the moment before the cut, which the history has as ``power off``. On ext4 and on xfs, half
with models in rows, half in files. A canary runs the same with ``synchronous=NORMAL`` planted, and must lose
something: a harness in which nothing can be lost shows nothing.
"""

import random
import time
from pathlib import Path

from tests.faults.harness.history import History, judge
from tests.faults.harness.servers import ServerProcess
from tests.faults.harness.volumes import FileSystem, Volume, volume
from tests.faults.harness.writers import Author, Writer, start, stop
from tests.faults.kill import PLACES, Place
from tests.faults.report import Report

WRITERS = 8
ON_SQLITE = PLACES[:2]
FILE_SYSTEMS: tuple[FileSystem, ...] = ("ext4", "xfs")
VOLUME_MIB = 512
CUTS_PER_VOLUME = 25
"""A ledger that grows makes every look at it longer; a new volume begins with none."""
CANARY_CUTS = 40
"""At most so many with the planted bug where the first loss ends them."""
CANARY_SHARE = 5
"""In a long run there is a cut with the planted bug for so many without, and no loss ends them."""


def cuts(
    place: Place,
    file_system: FileSystem,
    folder: Path,
    *,
    count: int,
    seed: int,
    bug: str | None = None,
    until_loss: bool = True,
) -> History:
    """Cut the power ``count`` times, 50 to 600 ms into the writing, which begins with its second acknowledgement.

    Args:
        place: Where the models lie.
        file_system: What is cut.
        folder: To work in.
        count: Cuts.
        seed: Decides their moments.
        bug: Planted in the server.
        until_loss: With a planted bug, end at the first loss.
    """
    rng = random.Random(f"{seed} {place.name} {file_system}")
    history = History()
    history.note("run", part="power_loss", place=place.name, file_system=file_system, seed=seed, cuts=count)
    done = 0
    for number in range(-(-count // CUTS_PER_VOLUME)):
        with volume(folder / f"volume-{number}", file_system, size_mib=VOLUME_MIB) as disk:
            name = f"server-{number}"
            log_file = folder / f"{file_system}-{number}.log"
            server = ServerProcess(disk.place / "data", name, blobs=place.blobs, bug=bug, log_file=log_file)
            ledger = server.found(place.layout)
            history.note("ledger", transaction=ledger)
            try:
                while done < count and done < (number + 1) * CUTS_PER_VOLUME:
                    server.start()
                    server.show(history)
                    authors = [
                        Author(1_000_000 * number + done * WRITERS + i, ledger, place.layout) for i in range(WRITERS)
                    ]
                    writers = [Writer(each, history, port=server.port, server=name) for each in authors]
                    _cut(disk, server, writers, history, rng)
                    done += 1
                    if bug is not None and until_loss and _look(server, history):
                        return history
                server.start()
                server.show(history)
            finally:
                server.kill()
    return history


def _cut(disk: Volume, server: ServerProcess, writers: list[Writer], history: History, rng: random.Random) -> None:
    start(writers)
    time.sleep(rng.uniform(0.05, 0.6))
    history.note("power off", server=server.name)
    disk.cut_power()
    server.kill()
    stop(writers)
    disk.restore_power()


def _look(server: ServerProcess, history: History) -> bool:
    server.start()
    server.show(history)
    server.kill()
    return bool(history.verdict(everywhere=False).faults)


def run(folder: Path, size: int, seed: int) -> Report:
    """``size`` cuts on each file system, half of them with models in rows, half in files."""
    report = Report(
        "power_loss",
        f"power cut under {WRITERS} writers, 50 to 600 ms into the writing, on loop-mounted ext4 and xfs",
        "nothing acknowledged is lost, nothing is there in part; with synchronous=NORMAL something is lost",
        size,
        seed,
    )
    for file_system in FILE_SYSTEMS:
        for number, place in enumerate(ON_SQLITE):
            name = f"{file_system}, {place.name}"
            count = size // 2 + (number < size % 2)
            history = cuts(place, file_system, folder / f"{file_system}-{place.name}", count=count, seed=seed)
            verdict = report.judge(history, folder, name, everywhere=False, cuts=count)
            if verdict.acknowledged <= count:
                report.broken.append(f"{name}: the writers hardly wrote; the run shows nothing")
    canary = canary_losses(folder / "canary", size=size, seed=seed)
    report.figures["canary, synchronous=NORMAL"] = canary
    if not canary["lost"]:
        report.broken.append("the canary lost nothing, so the run shows nothing")
    return report


def canary_losses(folder: Path, *, size: int, seed: int) -> dict[str, int]:
    """What the planted ``synchronous=NORMAL`` loses, and at how many of how many cuts; see ``CANARY_SHARE``.

    Where the share is too small to show anything, cuts go on until the first loss.
    """
    share = size // CANARY_SHARE
    is_long = share >= CANARY_CUTS // 2
    history = cuts(
        ON_SQLITE[0],
        "xfs",
        folder,
        count=share if is_long else CANARY_CUTS,
        seed=seed,
        bug="synchronous-normal",
        until_loss=not is_long,
    )
    losing, lost = 0, 0
    for number, event in enumerate(history.events, 1):
        if event["event"] == "shown":
            before, lost = lost, len(judge(history.events[:number], everywhere=False).lost)
            losing += lost > before
    made = sum(event["event"] == "power off" for event in history.events)
    return {"cuts": made, "cuts_that_lost": losing, "lost": lost}
