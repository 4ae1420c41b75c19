from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import Peer
from fl_core.sync.model_fetches import MIN_BYTES_PER_S, ModelFetches
from fl_core.types import Digest

ANN, BOB = Peer("a" * 64), Peer("b" * 64)
X, Y = Digest("1" * 64), Digest("2" * 64)
SIZE = MIN_BYTES_PER_S  # one second at the slowest rate that is put up with


def fetches(**named: int) -> ModelFetches:
    return ModelFetches(GossipLimits(model_stall_s=3.0, **named))


def begin(models: ModelFetches, peer: Peer, *, start: int = 0, now_s: float = 0.0) -> float:
    (fetch,) = models.take(peer)
    return models.began(fetch, start, now_s)


def test_a_model_is_fetched_from_one_peer_at_a_time() -> None:
    models = fetches()
    models.want(X, SIZE, sources=[ANN, BOB])
    assert [fetch.digest for fetch in models.take(ANN)] == [X]
    assert models.take(BOB) == []


def test_the_next_peer_goes_on_after_the_first_stalls() -> None:
    models = fetches()
    models.want(X, SIZE, sources=[ANN, BOB])
    assert begin(models, ANN) == 3.0
    assert models.progressed(X, ANN, 1.0) == 4.0
    assert models.not_delivered(X, ANN) is not None
    assert [fetch.digest for fetch in models.take(BOB)] == [X]
    assert models.progressed(X, ANN, 2.0) is None, "the first is not listened to any more"


def test_a_drip_ends_even_when_it_never_stalls() -> None:
    models = fetches()
    models.want(X, SIZE, sources=[ANN])
    begin(models, ANN)
    assert models.progressed(X, ANN, 2.5) == 4.0, "3 s and one second for its size, not 5.5"


def test_a_peer_gets_so_many_at_once_and_a_finished_one_makes_place() -> None:
    models = fetches(models_per_peer=1)
    models.want(X, SIZE, sources=[ANN])
    models.want(Y, SIZE, sources=[ANN])
    assert [fetch.digest for fetch in models.take(ANN)] == [X]
    assert models.take(ANN) == []
    models.end(X)
    assert [fetch.digest for fetch in models.take(ANN)] == [Y]


def test_when_every_source_has_failed_three_times_nobody_is_left() -> None:
    models = fetches()
    models.want(X, SIZE, sources=[ANN, BOB])
    left = []
    for peer in (ANN, BOB) * 3:
        models.take(peer)
        fetch = models.not_delivered(X, peer)
        assert fetch is not None
        left.append(len(fetch.sources))
    assert left == [2, 2, 2, 2, 1, 0]


def test_a_broken_link_costs_no_try() -> None:
    models = fetches()
    models.want(X, SIZE, sources=[ANN])
    for _ in range(10):
        begin(models, ANN)
        models.interrupted(X, ANN)
    assert X in models


def test_who_sent_all_the_bytes_is_to_blame_for_them() -> None:
    models = fetches()
    models.want(X, SIZE, sources=[ANN])
    begin(models, ANN)
    models.progressed(X, ANN, 1.0)
    assert models.corrupt(X, ANN)


def test_bytes_of_two_peers_prove_nothing_against_either() -> None:
    models = fetches()
    models.want(X, SIZE, sources=[ANN, BOB])
    begin(models, ANN)
    models.progressed(X, ANN, 1.0)
    models.not_delivered(X, ANN)
    begin(models, BOB, start=100)
    models.progressed(X, BOB, 1.0)
    assert not models.corrupt(X, BOB)


def test_bytes_from_before_a_restart_prove_nothing_either() -> None:
    models = fetches()
    models.want(X, SIZE, sources=[ANN])
    begin(models, ANN, start=100)
    models.progressed(X, ANN, 1.0)
    assert not models.corrupt(X, ANN)
    models.not_delivered(X, ANN)
    begin(models, ANN)
    models.progressed(X, ANN, 2.0)
    assert models.corrupt(X, ANN), "from the first byte on, this time"
