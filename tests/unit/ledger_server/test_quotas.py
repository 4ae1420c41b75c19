"""So many updates within an hour, of one author and with one token."""

import pytest

import ledger_server.quotas as module
from fl_core.errors import QuotaExceededError
from fl_core.types import AuthorId
from ledger_server.quotas import Quotas

ANN, BEN = AuthorId("hash:" + "a" * 64), AuthorId("hash:" + "b" * 64)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def is_taken(quotas: Quotas, author: AuthorId, token: str | None = None) -> bool:
    try:
        quotas.take(author, token)
    except QuotaExceededError:
        return False
    return True


def test_an_hours_worth_may_come_at_once_and_then_one_by_one(clock: Clock) -> None:
    quotas = Quotas(per_author=1000, now_s=clock)
    assert all(is_taken(quotas, ANN) for _ in range(1000))
    with pytest.raises(QuotaExceededError, match="author may publish 1,000 updates") as refused:
        quotas.take(ANN, None)
    assert refused.value.retry_after_s == 4, "3,600 s for a thousand are 3.6 s for one"
    clock.now_s = 3.6
    assert [is_taken(quotas, ANN) for _ in range(2)] == [True, False]
    clock.now_s = 7300.0
    assert sum(is_taken(quotas, ANN) for _ in range(1001)) == 1000


def test_an_author_takes_nothing_from_another_nor_from_a_token_that_refuses_it(clock: Clock) -> None:
    quotas = Quotas(per_author=2, per_token=3, now_s=clock)
    assert [is_taken(quotas, ANN, "t") for _ in range(4)] == [True, True, False, False]
    assert [is_taken(quotas, BEN, "t") for _ in range(2)] == [True, False], "the token's third was still there"
    assert is_taken(quotas, BEN, "u"), "and Ben's second"


def test_without_a_limit_nothing_is_remembered(clock: Clock) -> None:
    quotas = Quotas(now_s=clock)
    assert all(is_taken(quotas, ANN, "t") for _ in range(10_000))


def test_what_is_remembered_of_many_names_is_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEYS", 10)
    quotas = Quotas(per_author=1, now_s=clock)
    for name in range(100):
        assert is_taken(quotas, AuthorId(f"hash:{name:064x}"))
    assert len(quotas._authors._full_at_s) == 10
