"""The harness catches what it is there for: each planted bug is found, and nothing is found without it.

``synchronous-normal`` needs a file system of its own: see ``test_power_loss.py``.
"""

from pathlib import Path

import pytest

from tests.faults.harness.planted import BUGS
from tests.faults.planted_bugs import PLANTED, Look, by_damage, by_followers, by_nan, by_replay


@pytest.mark.faults
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", sorted(PLANTED.keys() - {"synchronous-normal"}))
def test_a_planted_bug_is_caught(name: str, tmp_path: Path) -> None:
    assert PLANTED[name].look(name, tmp_path) != []


@pytest.mark.faults
@pytest.mark.parametrize("look", [by_damage, by_followers, by_nan, by_replay])
def test_nothing_is_found_without_a_bug(look: Look, tmp_path: Path) -> None:
    """By kills, power cuts and in the simulation nothing is found in ``test_kill.py`` and others beside it."""
    assert look(None, tmp_path) == []


def test_every_bug_has_a_look_that_must_find_it() -> None:
    assert PLANTED.keys() == BUGS.keys()
