"""A disk that is full or fails is answered 503, and loses nothing: the short version of ``make faults PART=disk``."""

from pathlib import Path

import pytest

from tests.faults import disk
from tests.faults.crash_sites import FIRST, PUBLICATION
from tests.faults.harness.writers import model_of
from tests.faults.kill import Place


@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize("error", disk.ERRORS)
def test_an_error_at_the_first_write_or_sync_of_a_large_model_is_503_and_no_more(error: str, tmp_path: Path) -> None:
    history, met, broken = disk.failing_calls(FIRST, tmp_path, error=error, most=1)
    assert broken == []
    assert met == {"ftruncate": 1, "pwrite64": 1, "fdatasync": 1, "fsync": 1, "rename": 1}
    assert history.verdict().faults == ()


@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize("place", [*PUBLICATION[1:], disk.MANY_PIECES], ids=lambda place: place.name)
def test_a_full_disk_refuses_reads_on_and_goes_on_when_there_is_room(place: Place, tmp_path: Path) -> None:
    history, figures, broken = disk.full_disk(place, tmp_path / "volume")
    assert broken == []
    assert figures["taken"] >= 3
    if place is disk.MANY_PIECES:
        assert 0 < figures["room_at_the_first_refusal"] < len(model_of(place.layout, 0, 0))
    assert history.verdict().faults == ()
