import pytest

from fl_core.sync import request_queue
from fl_core.sync.messages import Peer
from fl_core.sync.request_queue import MAX_TRIES, RequestQueue
from fl_core.types import TxId

ANN, BOB = Peer("a" * 64), Peer("b" * 64)
X, Y, Z = (TxId(letter * 64) for letter in "123")


def queue_of(*listed: tuple[TxId, Peer]) -> RequestQueue:
    queue = RequestQueue()
    for transaction, peer in listed:
        queue.add(transaction, peer)
    return queue


def test_an_id_is_asked_of_one_peer_at_a_time() -> None:
    queue = queue_of((X, ANN), (X, BOB))
    assert queue.take(ANN, 100) == (X,)
    assert queue.take(BOB, 100) == ()
    assert queue.sources(X) == (ANN, BOB)


def test_the_next_peer_is_asked_when_the_first_does_not_serve() -> None:
    queue = queue_of((X, ANN), (X, BOB))
    queue.take(ANN, 100)
    assert queue.not_served(X, ANN, for_good=True) == (BOB,)
    assert queue.take(ANN, 100) == ()
    assert queue.take(BOB, 100) == (X,)
    assert queue.not_served(X, BOB, for_good=True) == ()


def test_a_peer_may_try_a_few_times() -> None:
    queue = queue_of((X, ANN))
    left = []
    for _ in range(MAX_TRIES):
        assert queue.take(ANN, 100) == (X,)
        left.append(queue.not_served(X, ANN, for_good=False))
    assert left == [(ANN,)] * (MAX_TRIES - 1) + [()]
    assert len(queue) == 0


def test_what_did_not_fit_costs_no_try() -> None:
    queue = queue_of((X, ANN))
    for _ in range(2 * MAX_TRIES):
        assert queue.take(ANN, 100) == (X,)
        queue.put_back([X], ANN)


def test_ids_keep_their_order_and_a_failed_one_goes_to_the_end() -> None:
    queue = queue_of((X, ANN), (Y, ANN), (Z, ANN))
    assert queue.take(ANN, 1) == (X,)
    queue.not_served(X, ANN, for_good=False)
    assert queue.take(ANN, 100) == (Y, Z, X)


def test_a_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_queue, "MAX_LISTED", 2)
    queue = RequestQueue()
    assert [queue.add(each, ANN) for each in (X, X, Y, Z)] == [True, True, True, False]
    assert queue.add(Z, BOB)
    assert len(queue) == 3


def test_what_is_settled_is_gone_everywhere() -> None:
    queue = queue_of((X, ANN), (X, BOB))
    queue.take(ANN, 1)
    queue.settled(X)
    assert len(queue) == 0
    assert queue.add(X, BOB)
    assert queue.take(BOB, 1) == (X,)
