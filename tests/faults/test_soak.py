"""Ordinary work makes nothing grow: the short version of ``make faults PART=soak``, which does not judge growth."""

import random
from pathlib import Path

import pytest

from tests.faults import soak
from tests.faults.soak import LAYOUT, Growth, growths, stays_of_an_update

MIB = 1 << 20
TIMES = [20.0 * number for number in range(180)]


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_servers_whose_clients_come_and_go_lose_nothing_and_hold_what_pruning_keeps(tmp_path: Path) -> None:
    report = soak.run(tmp_path, 10, 2026)
    assert report.broken == []
    assert report.figures["acknowledged"] > 0


def test_what_grows_is_told_from_what_only_varies() -> None:
    rng = random.Random(1)
    assert Growth.of(TIMES, [200.0 + rng.gauss(0, 5) for _ in TIMES]).is_flat
    assert not Growth.of(TIMES, [200.0 + 0.01 * at_s + rng.gauss(0, 5) for at_s in TIMES]).is_flat


def test_what_shrinks_is_flat() -> None:
    assert Growth.of(TIMES, [200.0 - 0.01 * at_s for at_s in TIMES]).is_flat


def test_only_the_second_half_is_judged_and_a_growth_is_told_by_the_hour() -> None:
    steep = [MIB * (at_s if at_s < 1800 else 1800 + (at_s - 1800) / 36) for at_s in TIMES]
    broken: list[str] = []
    samples = [{"at_s": at_s, "rows": {"pss_bytes": value}} for at_s, value in zip(TIMES, steep, strict=True)]
    found = growths(samples, broken)["rows"]["pss_mib"]
    assert found["per_hour"] == pytest.approx(100)
    assert found["level"] == pytest.approx(1825, abs=1)
    assert broken == ["rows: pss_mib grew by 49.44 from about 1824.7"]


def test_a_disk_may_grow_by_headers_and_not_by_models() -> None:
    broken: list[str] = []

    def grown(nbytes: int, *, held: int) -> dict[str, int]:
        counts = range(100, 200)
        models = held * LAYOUT.nbytes
        return stays_of_an_update(
            [
                {"at_s": at_s, "rows": {"transactions": count, "held": held, "disk_bytes": models + count * nbytes}}
                for at_s, count in zip(TIMES, counts, strict=False)
            ],
            broken,
        )

    assert grown(5_000, held=100) == {"rows": 5_000}
    assert broken == []
    assert grown(LAYOUT.nbytes, held=100) == {"rows": LAYOUT.nbytes}
    assert broken == [f"rows: the disk grew by {LAYOUT.nbytes} bytes with each update"]
