from fl_core.sync.journal_pull import PAGE_REPEATS, PAGE_STALL_S, JournalPull
from fl_core.sync.messages import Changes, GetChanges
from fl_core.types import TxId

X, Y = TxId("1" * 64), TxId("2" * 64)


def pull(cursor: str | None = None) -> JournalPull:
    return JournalPull(cursor)


def test_a_page_without_news_moves_the_cursor_and_waits_for_the_interval() -> None:
    cursor = pull("e.5")
    assert cursor.is_due(0.0)
    assert cursor.ask(0.0) == GetChanges("e.5")
    assert not cursor.is_due(0.0), "one page at a time"
    assert cursor.came(Changes((X,), "e.6", more=False), [], 0.0, pause_s=5.0) == "e.6"
    assert not cursor.is_due(4.9)
    assert cursor.is_due(5.0)
    assert cursor.ask(5.0) == GetChanges("e.6")


def test_the_cursor_moves_when_every_id_of_the_page_is_settled_and_the_next_page_follows_at_once() -> None:
    cursor = pull()
    cursor.ask(0.0)
    assert cursor.came(Changes((X, Y), "e.2", more=True), [X, Y], 0.0, pause_s=5.0) is None
    assert cursor.settled(X, 1.0, pause_s=5.0, dropped=False) is None
    assert not cursor.is_due(1.0)
    assert cursor.settled(Y, 2.0, pause_s=5.0, dropped=False) == "e.2"
    assert cursor.is_due(2.0)


def test_a_page_of_which_something_was_dropped_is_asked_again_and_then_passed_over() -> None:
    cursor = pull("e.0")
    kept = []
    for repeat in range(PAGE_REPEATS + 1):
        now_s = 5.0 * repeat
        assert cursor.ask(now_s) == GetChanges("e.0")
        cursor.came(Changes((X,), "e.1", more=False), [X], now_s, pause_s=5.0)
        kept.append(cursor.settled(X, now_s, pause_s=5.0, dropped=True))
    assert kept == [None] * PAGE_REPEATS + ["e.1"]


def test_an_unknown_cursor_begins_at_the_beginning() -> None:
    cursor = pull("old.9")
    cursor.ask(0.0)
    cursor.restart()
    assert cursor.is_due(1.0)
    assert cursor.ask(1.0) == GetChanges(None)


def test_hurrying_brings_the_next_pull_forward_but_not_without_end() -> None:
    cursor = pull()
    cursor.ask(10.0)
    cursor.came(Changes((), "e.0", more=False), [], 10.1, pause_s=5.0)
    cursor.hurry()
    assert not cursor.is_due(10.2)
    assert cursor.is_due(10.3)


def test_hurry_during_a_page_counts_after_it() -> None:
    cursor = pull()
    cursor.ask(0.0)
    cursor.came(Changes((X,), "e.1", more=False), [X], 0.1, pause_s=5.0)
    cursor.hurry()
    cursor.settled(X, 1.0, pause_s=5.0, dropped=False)
    assert cursor.is_due(1.0)


def test_a_page_that_stands_still_is_let_go() -> None:
    cursor = pull("e.0")
    cursor.ask(0.0)
    cursor.came(Changes((X,), "e.1", more=False), [X], 0.0, pause_s=5.0)
    assert cursor.stalled(PAGE_STALL_S - 1, pause_s=5.0) is None
    assert not cursor.is_due(PAGE_STALL_S - 1)
    cursor.stalled(PAGE_STALL_S, pause_s=5.0)
    assert cursor.ask(PAGE_STALL_S + 5.0) == GetChanges("e.0")


def test_a_journal_is_read_when_its_last_page_is_settled_and_an_unreachable_one_is_known_as_such() -> None:
    cursor = pull()
    assert cursor.was_read is None
    cursor.ask(0.0)
    cursor.failed(0.0, pause_s=5.0)
    assert cursor.was_read is False
    cursor.ask(5.0)
    cursor.came(Changes((X,), "e.1", more=True), [X], 5.0, pause_s=5.0)
    assert cursor.was_read is None, "it answers now"
    cursor.settled(X, 5.0, pause_s=5.0, dropped=False)
    cursor.ask(5.0)
    cursor.came(Changes((Y,), "e.2", more=False), [Y], 5.0, pause_s=5.0)
    assert cursor.was_read is None
    cursor.settled(Y, 5.0, pause_s=5.0, dropped=False)
    assert cursor.was_read is True
    cursor.ask(10.0)
    cursor.failed(10.0, pause_s=5.0)
    assert cursor.was_read is True, "once is enough"
