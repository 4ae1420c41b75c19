"""A run's memory, apart from that of whoever used the process before."""

import sys
from pathlib import Path

import pytest

from fl_simulator.run import peak_memory
from fl_simulator.run.peak_memory import PeakMemory

LARGE = 64 * 2**20


def hold(size: int) -> None:
    """Have so much memory for a moment, every page of it written."""
    bytearray(b"\1") * size


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux resets a process's mark")
def test_each_run_has_its_own_peak() -> None:
    first = PeakMemory()
    before = first.read_bytes()
    hold(LARGE)
    earlier = first.read_bytes()
    later = PeakMemory().read_bytes()
    assert before is not None
    assert earlier is not None
    assert later is not None
    # Half of it: what the process freed meanwhile may have come first.
    assert earlier - before > LARGE // 2
    assert earlier - later > LARGE // 2


def test_no_peak_where_the_mark_cannot_be_reset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peak_memory, "_RESET", tmp_path / "absent" / "clear_refs")
    assert PeakMemory().read_bytes() is None
