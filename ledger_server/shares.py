"""Room that many share: beside the first piece, nobody may hold more of it than is left for the others.

Alone, one may hold half, each of two a third, and whoever comes next finds as much as each of them has. All of it is
used where enough come.
"""

from collections import Counter
from functools import lru_cache
from ipaddress import IPv6Address, ip_address


class Shares:
    """Who holds how much.

    Args:
        room: How much there is.
    """

    def __init__(self, room: int) -> None:
        self._room, self.total = room, 0
        self._held: Counter[str] = Counter()

    def take(self, holder: str | None, amount: int = 1) -> None:
        """Count it, whether there is room or not; None is somebody whose holdings are not looked at."""
        self.total += amount
        if holder is not None:
            self._held[holder] += amount

    def give_back(self, holder: str | None, amount: int = 1) -> None:
        """The opposite."""
        self.total -= amount
        if holder is not None:
            self._held[holder] -= amount
            if not self._held[holder]:
                del self._held[holder]

    def excess(self, holder: str | None, more: int = 0) -> int:
        """How many pieces one holds too many, if it had so many more; 0 or less is right."""
        return (1 if holder is None else self._held[holder] + more) - 1 - (self._room - self.total - more)


@lru_cache(4096)
def address_of(host: str) -> str:
    """Whom an address counts as: of IPv6, all that begin with the same 64 bits, which one customer has alone."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    return str(address.ipv4_mapped or IPv6Address(int(address) >> 64 << 64))
