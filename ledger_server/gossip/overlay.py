"""Which peers a server gossips with: a graph over all servers of the ledger, in the order of their keys.

Every server that has the same list comes to the same graph, without asking anybody: nothing is drawn.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from fl_core.types import PublicKey
from ledger_server.peers import Peer


def complete(count: int) -> set[int]:
    """Everybody is everybody's neighbour: one hop, for up to ten servers or so."""
    return set(range(1, count))


def ring(count: int) -> set[int]:
    """The server before and the one after: fewest links, up to ``count / 2`` hops."""
    return {1, count - 1}


def small_world(count: int) -> set[int]:
    """Servers 1, 2, 4, 8, … places away, both ways round: about ``2 log2(count)`` links, ``log2(count)`` hops."""
    forward = {1 << power for power in range((count - 1).bit_length()) if 1 << power < count}
    return forward | {count - distance for distance in forward}


OVERLAYS: Final[Mapping[str, Callable[[int], set[int]]]] = {
    "complete": complete,
    "ring": ring,
    "small-world": small_world,
}
"""By name: the distances, along the ring of ``count`` servers, at which a server has neighbours."""


def overlay_neighbours(own_key: PublicKey, peers: Sequence[Peer], overlay: str) -> tuple[Peer, ...]:
    """The peers next to this server, in the order of their keys.

    Args:
        own_key: This server's key, which places it among the others.
        peers: The other servers of the ledger, all of them.
        overlay: A name in ``OVERLAYS``.
    """
    by_key = {peer.public_key: peer for peer in peers}
    order = sorted([own_key, *by_key])
    own_place = order.index(own_key)
    near = {order[(own_place + distance) % len(order)] for distance in OVERLAYS[overlay](len(order))}
    return tuple(by_key[key] for key in order if key in near and key != own_key)
