from fl_core.sync.messages import Peer
from fl_core.sync.wanting import Wants
from fl_core.types import TxId

ANN, BOB = Peer("a" * 64), Peer("b" * 64)
X, Y, Z = (TxId(letter * 64) for letter in "123")


def wants(*, max_per_peer: int = 10, tries: int = 3) -> Wants:
    return Wants([ANN, BOB], max_per_peer=max_per_peer, tries=tries)


def test_an_id_is_asked_of_one_peer_at_a_time() -> None:
    wanted = wants()
    wanted.advertised(X, ANN)
    wanted.advertised(X, BOB)
    assert wanted.take(ANN, 100) == (X,)
    assert wanted.take(BOB, 100) == ()
    assert wanted.sources(X) == (ANN, BOB)


def test_the_next_peer_is_asked_when_the_first_does_not_serve() -> None:
    wanted = wants()
    wanted.advertised(X, ANN)
    wanted.advertised(X, BOB)
    wanted.take(ANN, 100)
    assert not wanted.not_served(X, ANN, for_good=True)
    assert wanted.take(ANN, 100) == ()
    assert wanted.take(BOB, 100) == (X,)
    assert wanted.not_served(X, BOB, for_good=True), "nobody is left"


def test_a_peer_may_try_three_times() -> None:
    wanted = wants()
    wanted.advertised(X, ANN)
    ends = []
    for _ in range(3):
        assert wanted.take(ANN, 100) == (X,)
        ends.append(wanted.not_served(X, ANN, for_good=False))
    assert ends == [False, False, True]
    assert len(wanted) == 0


def test_what_did_not_fit_is_asked_again_and_costs_no_try() -> None:
    wanted = wants(tries=1)
    wanted.advertised(X, ANN)
    for _ in range(5):
        assert wanted.take(ANN, 100) == (X,)
        wanted.put_back([X], ANN)


def test_ids_are_asked_in_the_order_advertised_and_a_failed_one_goes_to_the_end() -> None:
    wanted = wants()
    for transaction in (X, Y, Z):
        wanted.advertised(transaction, ANN)
    assert wanted.take(ANN, 1) == (X,)
    wanted.not_served(X, ANN, for_good=False)
    assert wanted.take(ANN, 100) == (Y, Z, X)


def test_a_better_peer_is_asked_for_what_both_list() -> None:
    wanted = wants()
    wanted.advertised(X, ANN)
    wanted.advertised(Y, ANN)
    wanted.advertised(X, BOB)
    assert wanted.take(ANN, 100, better=[BOB]) == (Y,)
    assert wanted.take(BOB, 100) == (X,)


def test_a_queue_is_bounded_and_an_id_in_it_is_noted_once() -> None:
    wanted = wants(max_per_peer=2)
    assert [wanted.advertised(each, ANN) for each in (X, X, Y, Z)] == [True, True, True, False]
    assert wanted.advertised(Z, BOB)
    assert len(wanted) == 3


def test_parents_have_a_queue_of_their_own_and_none_for_what_is_listed() -> None:
    wanted = wants()
    wanted.advertised(X, ANN)
    assert not wanted.walk_to(X, ANN)
    assert wanted.walk_to(Y, ANN)
    assert wanted.has_parents(ANN)
    assert wanted.take(ANN, 100) == (X,)
    assert wanted.take_parents(ANN, 100) == (Y,)
    assert not wanted.has_parents(ANN), "asked for"


def test_ending_a_walk_forgets_parents_but_not_those_on_their_way() -> None:
    wanted = wants()
    wanted.walk_to(X, ANN)
    wanted.take_parents(ANN, 1)
    wanted.walk_to(Y, ANN)
    assert wanted.end_walk(ANN) == (Y,)
    assert wanted.sources(X) == (ANN,)


def test_forgetting_a_peer_returns_what_only_it_had() -> None:
    wanted = wants()
    wanted.advertised(X, ANN)
    wanted.advertised(Y, ANN)
    wanted.advertised(Y, BOB)
    wanted.take(ANN, 100)
    assert wanted.forget_peer(ANN) == (X,)
    assert wanted.take(BOB, 100) == (Y,)


def test_what_is_settled_is_gone_everywhere() -> None:
    wanted = wants()
    wanted.advertised(X, ANN)
    wanted.walk_to(X, BOB)
    wanted.take(ANN, 1)
    wanted.settled(X)
    assert len(wanted) == 0
    assert wanted.advertised(X, BOB)
    assert wanted.take(BOB, 1) == (X,)
