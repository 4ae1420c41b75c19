"""The parts of ``make faults``: one file and one line each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults import (
    bad_peers,
    commands,
    crash_sites,
    cursor,
    disk,
    gossip_simulation,
    hospital,
    kill,
    late_joiner,
    lossy,
    partitions,
    planted_bugs,
    postgresql,
    power_loss,
    soak,
    workers,
)
from tests.faults.report import Report


@dataclass(frozen=True, slots=True)
class Fault:
    """A part: a function of a folder to work in, a size and a seed.

    Attributes:
        run: Runs it; writes histories into the folder.
        full: Size of the long run.
        unit: What the size counts.
        needs: Programs that must be there, beside Python, and devices by their paths.
        as_root: Whether it needs to be root (mounts, namespaces).
    """

    run: Callable[[Path, int, int], Report]
    full: int
    unit: str
    needs: Sequence[str] = ()
    as_root: bool = False


ON_LOOP = ("mkfs.ext4", "mkfs.xfs", "losetup", "/dev/loop-control")

FAULTS: dict[str, Fault] = {
    "kill": Fault(kill.run, full=1000, unit="points"),
    "commands": Fault(commands.run, full=60, unit="points"),
    "cursor": Fault(cursor.run, full=10_000, unit="transactions"),
    "bad_peers": Fault(bad_peers.run, full=10_000, unit="mutants"),
    "hospital": Fault(hospital.run, full=360, unit="seconds"),
    "power_loss": Fault(power_loss.run, full=200, unit="cuts", needs=(*ON_LOOP, "unshare"), as_root=True),
    "crash_sites": Fault(crash_sites.run, full=100, unit="sites", needs=("strace",), as_root=True),
    "disk": Fault(disk.run, full=100, unit="sites", needs=("strace", *ON_LOOP), as_root=True),
    "simulation": Fault(gossip_simulation.run, full=10_000, unit="seeds"),
    "planted_bugs": Fault(planted_bugs.run, full=11, unit="bugs", needs=ON_LOOP, as_root=True),
    "late_joiner": Fault(late_joiner.run, full=10_000, unit="transactions"),
    "lossy": Fault(lossy.run, full=1800, unit="seconds", needs=("ip", "/dev/net/tun"), as_root=True),
    "partitions": Fault(partitions.run, full=200, unit="faults", needs=("ip",), as_root=True),
    "postgresql": Fault(postgresql.run, full=200, unit="kills"),
    "workers": Fault(workers.run, full=300, unit="kills"),
    "soak": Fault(soak.run, full=7200, unit="seconds"),
}
