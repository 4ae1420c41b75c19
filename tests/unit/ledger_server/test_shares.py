"""Room that many share: nobody may hold more of it than is left for the others."""

import pytest

from ledger_server.shares import Shares, address_of


def most(shares: Shares, holder: str | None) -> int:
    """How many one can take without excess."""
    taken = 0
    while True:
        shares.take(holder)
        if shares.excess(holder) > 0:
            shares.give_back(holder)
            return taken
        taken += 1


def test_one_alone_gets_half_and_leaves_room_to_whoever_comes() -> None:
    shares = Shares(12)
    assert [most(shares, each) for each in ("a", "b", "c", "d")] == [6, 3, 2, 1]
    assert most(shares, "e") == 0
    shares.give_back("a", 6)
    assert (most(shares, "e"), shares.total) == (3, 9)


def test_all_room_is_used_where_enough_come() -> None:
    shares = Shares(4)
    assert [most(shares, each) for each in "abcde"] == [2, 1, 1, 0, 0]


def test_who_is_not_looked_at_may_hold_all() -> None:
    shares = Shares(4)
    assert most(shares, None) == 4


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("testclient", "testclient"),
    ],
)
def test_a_network_of_64_bits_counts_as_one_address(host: str, address: str) -> None:
    assert address_of(host) == address
