"""Short versions of fault parts are left out, with a line each, where the machine cannot run the part.

``test_<part>.py`` is the short version of a part of the registry; of its tests only those marked ``faults`` ask
anything of the machine.
"""

import pytest

from tests.faults.machine import missing
from tests.faults.registry import FAULTS

LEFT_OUT = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what cannot run here."""
    left_out: list[pytest.Item] = []
    lines = config.stash.setdefault(LEFT_OUT, [])
    for item in items:
        fault = FAULTS.get(item.path.stem.removeprefix("test_")) if item.path.parent.name == "faults" else None
        if fault is None or item.get_closest_marker("faults") is None:
            continue
        if (why := missing(fault)) is not None:
            left_out.append(item)
            lines.append(f"left out: {item.nodeid}: {why}")
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Say what was left out, and why."""
    return config.stash.get(LEFT_OUT, [])
