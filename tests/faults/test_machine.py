"""What a fault part needs is looked for, and a part that cannot run is left out in words."""

from pathlib import Path

import pytest

from tests.faults import machine
from tests.faults.machine import missing
from tests.faults.registry import Fault
from tests.faults.report import Report


def run(folder: Path, size: int, seed: int) -> Report:
    return Report("none", str(folder), "nothing", size, seed)


def part(*needs: str, as_root: bool = False) -> Fault:
    return Fault(run, full=1, unit="points", needs=needs, as_root=as_root)


def test_a_part_that_needs_nothing_can_run() -> None:
    assert missing(part()) is None
    assert missing(part("sh", "/proc/self/status")) is None


def test_programs_and_devices_that_are_not_there_are_named() -> None:
    assert missing(part("sh", "no-such-program", "/dev/no-such-device")) == "needs no-such-program, /dev/no-such-device"


@pytest.mark.parametrize(
    ("capabilities", "why"),
    [
        (1 << 12 | 1 << 21, None),
        (1 << 12, "needs root with CAP_SYS_ADMIN"),
        (0, "needs root with CAP_NET_ADMIN, CAP_SYS_ADMIN"),
    ],
)
def test_root_is_who_may_make_namespaces(monkeypatch: pytest.MonkeyPatch, capabilities: int, why: str | None) -> None:
    monkeypatch.setattr(machine, "_may", lambda: capabilities)
    assert missing(part(as_root=True)) == why
    assert missing(part()) is None
