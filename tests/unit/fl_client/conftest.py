"""Pauses between attempts are skipped: they count as time, and take none."""

import time

import pytest

from fl_client import retry


class SkippedTime:
    """The ``time`` module with a ``sleep`` that moves the clock; ``pauses`` lists what was slept."""

    time = staticmethod(time.time)

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return time.monotonic() + sum(self.pauses)

    def sleep(self, pause_s: float) -> None:
        if pause_s:
            self.pauses.append(pause_s)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    skipped = SkippedTime()
    monkeypatch.setattr(retry, "time", skipped)
    return skipped.pauses
