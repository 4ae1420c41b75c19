"""One peer's standing: backoff after failures, and the ban."""

import random

from fl_core.sync.comparison import LedgerComparison
from fl_core.sync.items import ItemSet
from fl_core.sync.journal_pull import JournalPull
from fl_core.sync.peer_table import BANNED_AFTER, MAX_BACKOFF_S, PeerEntry


def entry() -> PeerEntry:
    return PeerEntry(random.Random(1), JournalPull(None), LedgerComparison(ItemSet(), first_s=0.0))


def test_a_pause_doubles_up_to_its_bound() -> None:
    peer = entry()
    for longest_s in [0.5, 1.0, 2.0, 4.0, MAX_BACKOFF_S, MAX_BACKOFF_S]:
        peer.failed(100.0)
        assert not peer.can_ask(100.0 + longest_s / 2 - 0.01), "at least half of it"
        assert peer.can_ask(100.0 + longest_s), "at most all of it"


def test_an_answer_ends_the_pause_and_hurries_the_next_page() -> None:
    peer = entry()
    peer.pull.ask(0.0)
    peer.pull.failed(0.0, pause_s=5.0)
    peer.failed(0.0)
    assert not peer.pull.is_due(1.0)
    peer.heard()
    assert peer.can_ask(0.0)
    assert peer.pull.is_due(1.0)


def test_the_ban_stays() -> None:
    peer = entry()
    brought_it = [peer.count_invalid() for _ in range(BANNED_AFTER + 1)]
    assert brought_it == [False] * (BANNED_AFTER - 1) + [True, False]
    assert peer.is_banned
    peer.heard()
    assert not peer.can_ask(1e9)
