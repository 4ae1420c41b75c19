"""Whom this server gossips with, of all servers on its list: a topology over them in the order of their keys.

Every server that has the same list and the same topology comes to the same overlay, without asking anybody.
"""

from collections.abc import Sequence

import numpy as np

from fl_core.topology import Topology, neighbours
from fl_core.types import PublicKey
from ledger_server.peers import Peer


def overlay_neighbours(own_key: PublicKey, peers: Sequence[Peer], topology: Topology) -> tuple[Peer, ...]:
    """The peers next to this server.

    Args:
        own_key: This server's key, which places it among the others.
        peers: The other servers of the ledger, all of them.
        topology: Their overlay.
    """
    if not peers:
        return ()
    by_key = {peer.public_key: peer for peer in peers}
    order = sorted([own_key, *by_key])
    # Servers must agree without a word, so a topology that draws draws the same everywhere.
    edges = topology.edges(len(order), rng=np.random.default_rng(0))
    return tuple(by_key[order[node]] for node in neighbours(order.index(own_key), edges))
