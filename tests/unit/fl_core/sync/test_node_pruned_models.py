"""Models that all peers have pruned: a member's checkpoint stands for them."""

from fl_core.sync.effects import (
    Admit,
    Failure,
    Incident,
    SendRequest,
)
from fl_core.sync.limits import GossipLimits
from fl_core.sync.messages import (
    CheckpointAnswer,
    GetCheckpoint,
    GetModel,
    ModelComplete,
    ModelUnknown,
)
from fl_core.types import TxId
from tests.checkpoints import checkpoint_of
from tests.gossip_desk import ANN, BOB, Desk, incidents, only


def pruned_chain(desk: Desk) -> list[TxId]:
    """Three updates by ann on each other, of which the peers have pruned the first two; what is asked for the first."""
    parent, chain = desk.ledger.id, []
    for value in range(1, 4):
        parent = desk.write("ann", [parent], value)
        chain.append(parent)
    desk.serve(chain)
    for _ in range(2):  # ann says that she has pruned it, and so does bob, who had not listed it
        for ask in desk.asks(GetModel):
            assert isinstance(ask.request, GetModel)
            if ask.request.digest == desk.model_of(chain[2]):
                desk.blobs.complete.add(ask.request.digest)
                desk.answer(ask, ModelComplete())
            else:
                desk.answer(ask, ModelUnknown(pruned=True))
    return chain


def test_where_all_have_pruned_a_model_a_checkpoint_is_asked_for_and_stands_for_it() -> None:
    desk = Desk()
    first, second, third = pruned_chain(desk)
    ask = desk.ask(GetCheckpoint)
    served = checkpoint_of(desk.there, [first, second])
    admits = [effect for effect in desk.answer(ask, CheckpointAnswer(served)) if isinstance(effect, Admit)]
    bound = desk.there.genesis.bounds.max_norm
    assert [(each.id, each.norm) for each in admits] == [(first, bound), (second, bound), (third, None)]
    for each in admits[:2]:
        desk.admit_without_model(each)
    desk.admit(admits[2])
    assert desk.asks(GetCheckpoint) == []


def test_a_peer_that_kept_the_model_is_found_before_any_checkpoint_is_asked_for() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.write("ann", [x], 2)
    desk.serve([x])
    assert desk.answer(desk.ask(GetModel), ModelUnknown(pruned=True)) == []
    ask = desk.ask(GetModel)
    assert ask.peer == BOB
    assert desk.asks(GetCheckpoint) == []
    desk.blobs.complete.add(desk.model_of(x))
    assert only(desk.answer(ask, ModelComplete()), Admit).norm is None


def test_what_no_checkpoint_stands_for_is_dropped_when_every_peer_that_pruned_it_was_asked() -> None:
    desk = Desk()
    first, second, _ = pruned_chain(desk)
    ask = desk.ask(GetCheckpoint)
    assert ask.peer == ANN
    effects = desk.answer(ask, CheckpointAnswer(checkpoint_of(desk.there, [first])))
    assert only(effects, Admit).id == first
    ask = desk.ask(GetCheckpoint)
    assert ask.peer == BOB
    effects = desk.node.failed(ask, desk.now_s, kind=Failure.REFUSED)
    assert incidents(effects) == [(ANN, Incident.DROPPED)] * 2, "the second, and the third with it"
    assert second not in desk.node.inbound.pending


def test_a_checkpoint_that_came_is_not_asked_for_again_at_once() -> None:
    desk = Desk()
    first, second, _ = pruned_chain(desk)
    stands = CheckpointAnswer(checkpoint_of(desk.there, [first]))
    for _ in range(2):
        desk.answer(desk.ask(GetCheckpoint), stands)
    assert second not in desk.node.inbound.pending

    def again() -> list[SendRequest]:
        desk.serve([second])
        for _ in range(2):
            for ask in desk.asks(GetModel):
                desk.answer(ask, ModelUnknown(pruned=True))
        return desk.asks(GetCheckpoint)

    desk.admit_without_model(desk.admits[0])
    assert again() == []
    assert second not in desk.node.inbound.pending
    desk.now_s += GossipLimits().checkpoint_interval_s
    assert [each.peer for each in again()] == [ANN]


def test_a_checkpoint_from_before_a_restart_stands_for_models_at_once() -> None:
    before = Desk()
    first, second, _ = pruned_chain(before)
    desk = Desk(checkpoints=[checkpoint_of(before.there, [first, second])])
    assert pruned_chain(desk)[0] == first
    assert desk.asks(GetCheckpoint) == []
    assert [each.norm for each in desk.admits] == [desk.there.genesis.bounds.max_norm]


def test_a_peer_that_cannot_be_reached_is_not_waited_for_where_another_has_pruned_the_model() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.write("ann", [x], 2)
    desk.serve([x])
    desk.answer(desk.ask(GetModel), ModelUnknown(pruned=True))
    ask = desk.ask(GetModel)
    assert ask.peer == BOB
    desk.node.failed(ask, desk.now_s, kind=Failure.UNREACHABLE)
    assert desk.ask(GetCheckpoint).peer == ANN
