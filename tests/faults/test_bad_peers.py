"""Peers that lie get nothing in and hold nobody up: the short version of ``make faults PART=bad_peers``."""

from pathlib import Path

import pytest

from tests.faults import bad_peers


@pytest.mark.faults
@pytest.mark.timeout(240)
def test_nothing_of_mutators_and_of_an_endless_chain_is_stored_and_honest_publications_arrive(tmp_path: Path) -> None:
    report = bad_peers.run(tmp_path, 40, 2026, scenarios=[bad_peers.mutants, bad_peers.endless_chain])
    assert report.broken == []
    assert report.figures["mutants"]["sent"] == 40
    assert report.figures["mutants"]["incidents"]["banned"] == 2
