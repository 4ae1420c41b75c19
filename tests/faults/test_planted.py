"""The harness catches what it is there for: the short version of ``make faults PART=planted_bugs``.

``synchronous-normal`` is planted in ``test_power_loss.py``, and without a bug nothing is found in ``test_kill.py`` and
others beside it.
"""

from pathlib import Path

import pytest

from tests.faults.harness.planted import BUGS
from tests.faults.planted_bugs import PLANTED


@pytest.mark.faults
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "name",
    [
        "acknowledged-before-commit",
        "row-before-blob",
        "no-hash-check",
        "sum-in-order-of-arrival",
        "unbounded-orphans",
        "no-foreign-keys",
        "accepts-nan",
        "no-replay-cache",
    ],
)
def test_a_planted_bug_is_caught(name: str, tmp_path: Path) -> None:
    assert PLANTED[name].look(name, tmp_path) != []


def test_every_bug_has_a_look_that_must_find_it() -> None:
    assert PLANTED.keys() == BUGS.keys()
