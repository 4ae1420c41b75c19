"""Processes that serve together and PostgreSQL are killed: the short version of ``make faults PART=workers``."""

from pathlib import Path

import pytest

from tests.faults import workers
from tests.faults.workers import KINDS, go_on, pauses


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_a_killed_worker_a_killed_leader_and_a_killed_postgresql_take_nothing_away(tmp_path: Path) -> None:
    report = workers.run(tmp_path, len(KINDS), 2026)
    assert report.broken == []
    assert report.figures["acknowledged"] > 0


def test_a_pause_is_the_longest_from_one_acknowledgement_to_the_next_after_a_kill() -> None:
    assert pauses([0, 1, 4, 5, 7], kills_s=[2]) == [3]


def test_a_pause_that_begins_after_the_kill_is_its_too() -> None:
    assert pauses([0, 1, 2, 9, 10], kills_s=[1.5]) == [7]


def test_a_pause_that_spans_two_kills_counts_for_both() -> None:
    assert pauses([0, 1, 6, 7], kills_s=[2, 3]) == [5, 5]


def test_a_pause_belongs_to_the_kill_that_it_follows() -> None:
    assert pauses([0, 1, 6, 7, 9], kills_s=[2, 6.5]) == [5, 2]


def test_what_was_before_the_first_kill_is_nobodys() -> None:
    assert pauses([0, 50, 51], kills_s=[50.5]) == [1]


def test_an_order_that_grows_is_one_order() -> None:
    assert go_on(["ab", "ab", "abc"])


def test_a_process_that_does_not_show_what_another_one_has_shown_breaks_the_order() -> None:
    assert not go_on(["abc", "ab"])


def test_two_processes_that_show_the_same_in_other_places_have_no_one_order() -> None:
    assert not go_on(["abc", "acb"])
