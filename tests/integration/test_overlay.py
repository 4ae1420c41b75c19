"""Servers that speak to their neighbours only: what one publishes reaches all, and each says who its neighbours are."""

from pathlib import Path

import pytest

from fl_core.dag.signature import public_key_of
from fl_core.wire import v1
from tests.builders import key_from_seed, model
from tests.databases import DatabaseUrls
from tests.network import Node, network, settle

SERVERS = 5

# Who talks to whom is nothing to a database; test_gossip.py has both kinds.
pytestmark = pytest.mark.parametrize("database_urls", ["sqlite"], indirect=True)


def by_key(nodes: list[Node]) -> list[Node]:
    """The servers in the order in which a ring places them."""
    return sorted(nodes, key=lambda node: public_key_of(key_from_seed(1000 + node.number)))


def neighbours_of(node: Node) -> set[str]:
    peers = v1.PeersOut.model_validate(node.get(v1.PEERS).json()).items
    assert len(peers) == SERVERS - 1, "all that it is configured with"
    return {peer.name for peer in peers if peer.is_neighbour}


def test_on_a_ring_a_publication_reaches_the_farthest_server(database_urls: DatabaseUrls, tmp_path: Path) -> None:
    with network(tmp_path, SERVERS, urls=database_urls(SERVERS), overlay="ring") as servers:
        ring = by_key(servers)
        assert neighbours_of(ring[0]) == {f"server-{ring[1].number}", f"server-{ring[-1].number}"}
        made = ring[0].publish(parents=[ring[0].ledger_id], model=model(1, 2))["id"]
        settle(servers)
        assert made in ring[2].ids()
        assert ring[2].select(made).status_code in (200, 201)


def test_a_ring_goes_on_as_a_line_without_one_server(database_urls: DatabaseUrls, tmp_path: Path) -> None:
    with network(tmp_path, SERVERS, urls=database_urls(SERVERS), overlay="ring") as servers:
        ring = by_key(servers)
        ring[0].stop()
        made = ring[1].publish(parents=[ring[1].ledger_id], model=model(1, 2))["id"]
        assert made in settle(ring[1:])
        ring[0].start()
        assert made in settle(servers)


@pytest.mark.parametrize("overlay", ["complete", "small-world"])
def test_other_overlays_carry_everything_too(overlay: str, database_urls: DatabaseUrls, tmp_path: Path) -> None:
    with network(tmp_path, SERVERS, urls=database_urls(SERVERS), overlay=overlay) as servers:
        made = {node.publish(parents=[node.ledger_id], model=model(1, node.number))["id"] for node in servers}
        assert made <= settle(servers)
