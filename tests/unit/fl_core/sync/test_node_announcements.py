"""Whom a server tells of what is new."""

import pytest

from fl_core.dag.figures import Figures
from fl_core.sync.effects import (
    Admit,
    Announce,
    Failure,
)
from fl_core.sync.messages import (
    Announcement,
    GetTransactions,
    Peer,
)
from tests.gossip_desk import ANN, BOB, Desk, only


def test_publishing_the_same_again_adds_nothing() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.here.node.admit(desk.there.transactions[x], None, figures=Figures(1.0))
    for _ in range(2):
        desk.node.published(desk.bundle(x), desk.now_s)
    assert len(desk.items) == 2


def test_what_is_published_is_told_to_every_peer_that_answers() -> None:
    desk = Desk()
    x = desk.write("ann", [desk.ledger.id], 1)
    y = desk.write("ann", [x], 2)
    desk.here.node.admit(desk.there.transactions[x], None, figures=Figures(1.0))
    announcement = Announcement.of(desk.bundle(x))
    assert desk.node.published(desk.bundle(x), 0.0) == [
        Announce(ANN, announcement, True),
        Announce(BOB, announcement, True),
    ]
    desk.announce(y)
    desk.node.failed(desk.ask(GetTransactions), 0.0, kind=Failure.UNREACHABLE)
    desk.here.node.admit(desk.there.transactions[y], None, figures=Figures(1.0))
    announcement = Announcement.of(desk.bundle(y))
    assert desk.node.published(desk.bundle(y), 0.0) == [Announce(BOB, announcement, True)]


@pytest.mark.parametrize(("relay", "told"), [(True, [BOB]), (False, [])])
def test_a_relay_tells_those_that_do_not_have_it(*, relay: bool, told: list[Peer]) -> None:
    desk = Desk(relay=relay)
    x = desk.write("ann", [desk.ledger.id], 1)
    desk.blobs.complete.add(desk.model_of(x))
    effects = desk.admit(only(desk.serve([x]), Admit))
    assert [effect.peer for effect in effects if isinstance(effect, Announce)] == told
