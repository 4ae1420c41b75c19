"""``kill -9`` of the server loses nothing that was acknowledged.

Ten points here and in CI; ``make faults`` asks for more by DAG_ACFL_FAULT_POINTS and keeps the figures.
"""

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.faults.crash_harness import crash_points
from tests.serving import prepare

POINTS = int(os.environ.get("DAG_ACFL_FAULT_POINTS", "10"))
RESULTS = os.environ.get("DAG_ACFL_FAULT_RESULTS")


@pytest.mark.faults
@pytest.mark.timeout(60 + 10 * POINTS)
def test_kill_at_random_moments_under_four_writers_loses_no_acknowledged_transaction(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    ledger = prepare(database, tmp_path)
    outcome, history = crash_points(tmp_path, ledger, points=POINTS, writers=4, seed=2026)
    history.write(tmp_path / "history.jsonl")
    if RESULTS is not None:
        Path(RESULTS).write_text(json.dumps({"fault": "kill -9", "seed": 2026, **asdict(outcome)}, indent=2) + "\n")
    assert outcome.acknowledged > POINTS, "the writers wrote, or the test shows nothing"
    assert outcome.lost == ()
    assert outcome.unexpected == ()
    assert outcome.partial == ()
