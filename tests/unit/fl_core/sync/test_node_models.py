"""From whom a model is fetched, when, and how long it is needed."""

from fl_core.dag.figures import Figures
from fl_core.sync.effects import (
    Admit,
    DiscardModel,
    Failure,
)
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import (
    GetModel,
    GetTransactions,
    ModelComplete,
    Transactions,
)
from tests.gossip_desk import ANN, BOB, Desk, incidents, only


def test_two_transactions_with_one_model_fetch_it_once() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    y = desk.write("bob", [desk.ledger.id], 1)
    desk.serve([x, y])
    assert {effect.id for effect in desk.fetch(x) if isinstance(effect, Admit)} == {x, y}
    assert desk.asks(GetModel) == []


def test_a_model_that_is_gone_at_its_admission_is_fetched_again_and_holds_up_nobody() -> None:
    desk = Desk()
    x, y = (desk.write(name, [desk.ledger.id], value) for name, value in (("ann", 1), ("bob", 2)))
    desk.blobs.complete |= {desk.model_of(x), desk.model_of(y)}
    desk.serve([x, y])
    desk.blobs.complete.discard(desk.model_of(x))
    desk.node.model_lost(x)
    effects = desk.node.refused(y, desk.now_s, reason="its norm is too large")
    assert only(effects, DiscardModel).digest == desk.model_of(y)
    assert only(desk.fetch(x), Admit).id == x


def test_a_model_that_two_have_is_needed_until_both_are_admitted() -> None:
    desk = Desk()
    x, y = (desk.write(name, [desk.ledger.id], 1) for name in ("ann", "bob"))
    assert desk.model_of(x) == desk.model_of(y)
    desk.blobs.complete.add(desk.model_of(x))
    first, second = (effect for effect in desk.serve([x, y]) if isinstance(effect, Admit))
    desk.here.node.admit(first.bundle.transaction, None, figures=Figures(1.0))
    effects = desk.node.admitted(first.id, desk.now_s)
    assert not [effect for effect in effects if isinstance(effect, DiscardModel)]
    desk.here.node.admit(second.bundle.transaction, None, figures=Figures(1.0))
    effects = desk.node.admitted(second.id, desk.now_s)
    assert only(effects, DiscardModel).digest == desk.model_of(x)


def test_the_next_peer_is_asked_for_a_model_after_three_seconds_from_the_byte_reached() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.announce(x, BOB)
    ask = desk.ask(GetTransactions)
    desk.announce(x, ANN)
    desk.answer(ask, Transactions((desk.bundle(x),)))
    first = desk.ask(GetModel)
    desk.blobs.partial[desk.model_of(x)] = 7
    assert desk.node.model_progress(first, 0.5) is not None
    desk.now_s = 3.2
    second = desk.ask(GetModel)
    assert second.peer != first.peer
    assert isinstance(second.request, GetModel)
    assert second.request.start == 7
    assert desk.node.model_progress(first, 3.3) is None


def test_a_peer_that_did_not_deliver_a_model_is_asked_after_the_others_until_it_delivers_one() -> None:
    desk = Desk()
    x, y, z = (desk.write("ann", [desk.ledger.id], value) for value in (1, 2, 3))
    for transaction in (x, y):
        desk.announce_whole(transaction)
    first, second = desk.asks(GetModel)
    desk.node.failed(first, desk.now_s, kind=Failure.TIMEOUT)
    for peer in (ANN, BOB):
        desk.announce_whole(x, peer)  # its sender calls, so that it may be asked again at once
    assert desk.ask(GetModel).peer == BOB
    desk.blobs.complete.add(desk.model_of(y))
    desk.answer(second, ModelComplete())
    for peer in (ANN, BOB):
        desk.announce_whole(z, peer)
    assert desk.ask(GetModel).peer == ANN


def test_a_model_that_cannot_be_kept_here_is_asked_for_again_and_nobody_is_blamed() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.serve([x])
    ask = desk.ask(GetModel)
    assert incidents(desk.node.failed(ask, desk.now_s, kind=Failure.LOCAL)) == []
    assert desk.model_of(x) in desk.node.inbound.fetches


def test_a_client_that_publishes_what_is_being_fetched_ends_the_fetch() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.serve([x])
    ask = desk.ask(GetModel)
    desk.here.node.admit(desk.there.transactions[x], None, figures=Figures(1.0))
    effects = desk.node.published(desk.bundle(x), desk.now_s)
    assert only(effects, DiscardModel).digest == desk.model_of(x)
    assert desk.node.model_progress(ask, desk.now_s) is None
    assert x not in desk.node.inbound.pending


def test_models_that_are_far_ahead_of_admission_wait_until_half_of_them_are_admitted() -> None:
    size = Desk().there.genesis.layout.nbytes
    limits = GossipLimits(
        comparison_interval_s=1e9, models_per_peer=2, models_ahead_bytes=4 * size, admitted_together_bytes=size
    )
    desk = Desk(limits=limits)
    desk.serve([desk.write(f"author {number}", [desk.ledger.id], number) for number in range(12)])
    admits: list[Admit] = []
    for _ in range(2):
        for ask in desk.asks(GetModel):
            assert isinstance(ask.request, GetModel)
            desk.blobs.complete.add(ask.request.digest)
            admits += [effect for effect in desk.answer(ask, ModelComplete()) if isinstance(effect, Admit)]
    (admit,) = admits
    assert desk.asks(GetModel) == [], "four are here, one of them on its way in"
    admit = only(desk.admit(admit), Admit)
    assert desk.asks(GetModel) == [], "three are here"
    desk.admit(admit)
    assert len(desk.asks(GetModel)) == 2


def test_a_model_is_fetched_however_many_are_here_when_none_of_those_can_be_admitted() -> None:
    size = Desk().there.genesis.layout.nbytes
    desk = Desk(limits=GossipLimits(comparison_interval_s=1e9, models_per_peer=1, models_ahead_bytes=size))
    parent = desk.write("ann", [desk.ledger.id], 1)
    child = desk.write("bob", [parent], 2)
    desk.blobs.complete.add(desk.model_of(child))
    desk.serve([parent, child])
    admits = [effect for effect in desk.fetch(parent) if isinstance(effect, Admit)]
    assert [each.id for each in admits] == [parent, child]


def test_a_model_that_a_peer_was_to_serve_is_asked_of_another_when_it_leaves() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.announce_whole(x)
    desk.announce_whole(x, BOB)
    assert desk.ask(GetModel).peer == ANN
    desk.node.left(ANN, desk.now_s)
    assert desk.ask(GetModel).peer == BOB
