import random

import pytest

from fl_core.sync.limits import GossipLimits
from fl_core.sync.peers import PeerHealth


def health() -> PeerHealth:
    return PeerHealth(GossipLimits(max_backoff_s=10.0, banned_after=20), random.Random(1))


def test_a_pause_doubles_with_every_failure_in_a_row_up_to_its_bound() -> None:
    peer = health()
    longest = [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    for pause_s in longest:
        peer.failed(100.0)
        assert not peer.can_ask(100.0 + pause_s / 2 - 0.01), "at least half of it"
        assert peer.can_ask(100.0 + pause_s), "at most all of it"


def test_an_answer_ends_the_pause_and_says_that_it_was_a_reconnection() -> None:
    peer = health()
    assert not peer.reached()
    peer.failed(0.0)
    assert peer.is_failing
    assert peer.reached()
    assert peer.can_ask(0.0)


def test_a_broken_promise_counts_half_after_a_minute() -> None:
    peer = health()
    peer.unserved(0.0)
    assert peer.score(0.0) == 1.0
    assert peer.score(60.0) == pytest.approx(0.5)
    peer.unserved(60.0)
    assert peer.score(60.0) == pytest.approx(1.5)


def test_the_ban_comes_with_the_twentieth_and_stays() -> None:
    peer = health()
    assert [peer.invalid() for _ in range(21)] == [False] * 19 + [True, False]
    assert peer.is_banned
    peer.reached()
    assert not peer.can_ask(1e9)
