"""Whom a server gossips with: every server works out the same graph from the same list."""

from typing import get_args

import pytest

from fl_core.dag.signature import public_key_of
from fl_core.errors import ParameterError
from fl_core.types import PublicKey
from ledger_server.gossip.overlay import overlay_neighbours
from ledger_server.peers import Peer
from ledger_server.settings import Overlay, load_settings
from tests.builders import key_from_seed

SERVERS = [Peer(f"s{i}", f"http://s{i}:8900", PublicKey(public_key_of(key_from_seed(i)))) for i in range(9)]
IN_ORDER = sorted(SERVERS, key=lambda peer: peer.public_key)


def others(peers: list[Peer], own_key: PublicKey) -> list[Peer]:
    return [peer for peer in peers if peer.public_key != own_key]


def near(own: Peer, name: str) -> set[str]:
    found = overlay_neighbours(own.public_key, others(SERVERS, own.public_key), name)
    return {peer.name for peer in found}


def test_on_a_ring_a_server_speaks_to_the_one_before_and_the_one_after_by_key() -> None:
    assert near(IN_ORDER[4], "ring") == {IN_ORDER[3].name, IN_ORDER[5].name}
    assert near(IN_ORDER[0], "ring") == {IN_ORDER[8].name, IN_ORDER[1].name}


def test_complete_is_everybody_else() -> None:
    assert near(SERVERS[0], "complete") == {peer.name for peer in SERVERS[1:]}


@pytest.mark.parametrize("name", get_args(Overlay))
def test_neighbours_agree_that_they_are_neighbours_whatever_the_order_of_their_lists(name: str) -> None:
    by_name = {peer.name: peer for peer in SERVERS}
    for peer in SERVERS:
        assert all(peer.name in near(by_name[other], name) for other in near(peer, name))
    backwards = overlay_neighbours(SERVERS[0].public_key, others(SERVERS[::-1], SERVERS[0].public_key), name)
    assert {peer.name for peer in backwards} == near(SERVERS[0], name)


def test_a_small_world_of_nine_reaches_doubling_distances() -> None:
    assert near(IN_ORDER[0], "small-world") == {IN_ORDER[place].name for place in (1, 2, 4, 8, 7, 5)}


def test_other_topologies_are_no_overlay() -> None:
    with pytest.raises(ParameterError, match="'complete', 'ring' or 'small-world'"):
        load_settings(overlay="erdos-renyi")
