"""A run's memory, apart from that of whoever used the process before."""

import subprocess
import sys
from pathlib import Path

import pytest

from fl_simulator.run import memory
from fl_simulator.run.memory import PeakMemory

LARGE = 64 * 2**20
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forgets a process's mark")


def hold(size: int) -> None:
    """Have so much memory for a moment, every page of it written."""
    bytearray(b"\1") * size


@on_linux
def test_peak_is_what_was_held_for_a_moment_and_is_free_again() -> None:
    peak = PeakMemory()
    before = peak.read_bytes()
    assert before is not None
    hold(LARGE)
    after = peak.read_bytes()
    assert after is not None
    # Half of it: what the process freed meanwhile may have come first.
    assert after - before > LARGE // 2
    assert peak.read_bytes() == after, "it does not fall"


@on_linux
def test_peak_of_an_earlier_run_is_forgotten() -> None:
    first = PeakMemory()
    hold(LARGE)
    earlier = first.read_bytes()
    second = PeakMemory()
    later = second.read_bytes()
    assert earlier is not None
    assert later is not None
    assert earlier - later > LARGE // 2


@on_linux
def test_what_nobody_holds_any_more_is_not_counted_for_the_next_run() -> None:
    class Knot:
        """Holds itself: only the collector of cycles frees it."""

        def __init__(self) -> None:
            self.me, self.pages = self, b"\1" * LARGE

    first = PeakMemory()
    Knot()
    earlier = first.read_bytes()
    later = PeakMemory().read_bytes()
    assert earlier is not None
    assert later is not None
    assert earlier - later > LARGE // 2


@on_linux
def test_who_began_earlier_measures_nothing_more() -> None:
    first = PeakMemory()
    second = PeakMemory()
    assert first.read_bytes() is None
    assert second.read_bytes() is not None


def test_system_that_cannot_forget_has_no_peak(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "_FORGET", tmp_path / "absent" / "clear_refs")
    assert PeakMemory().read_bytes() is None


@on_linux
def test_status_without_a_mark_has_no_peak(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tpython\n")
    peak = PeakMemory()
    monkeypatch.setattr(memory, "_STATUS", status)
    assert peak.read_bytes() is None


ROUNDS = """
import resource
from fl_simulator.run.memory import keep_freed

def faults_of_a_round():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    models = [b"\\1" * 400_000 for _ in range(100)]
    del models
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

assert keep_freed()
first, *_, last = [faults_of_a_round() for _ in range(5)]
print(first, last)
"""


@on_linux
def test_what_a_round_frees_the_next_one_has_without_fresh_pages() -> None:
    told = subprocess.run([sys.executable, "-c", ROUNDS], check=True, capture_output=True, text=True).stdout
    first, last = map(int, told.split())
    assert first > 5_000, "40 MB are ten thousand pages"
    assert last < first // 10
