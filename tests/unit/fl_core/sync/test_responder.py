from dataclasses import dataclass

import pytest

from fl_core.sync.act_set import ActSet
from fl_core.sync.items import ItemSet
from fl_core.sync.messages import (
    Changes,
    CursorUnknown,
    GetChanges,
    GetSummary,
    GetTransactions,
    SummaryAnswer,
    TransactionBundle,
    Transactions,
)
from fl_core.sync.responder import Responder
from fl_core.sync.summary import StateSummary
from fl_core.types import PublicKey, TxId, digest_of
from tests.builders import TinyLedger, model


@dataclass
class Rows:
    """A journal over a list."""

    tiny: TinyLedger
    epoch: str = "ab"

    def count(self) -> int:
        return len(self.tiny.transactions)

    def ids_from(self, arrival: int, limit: int) -> list[TxId]:
        return list(self.tiny.transactions)[arrival : arrival + limit]

    def bundle(self, transaction: TxId) -> TransactionBundle | None:
        found = self.tiny.transactions.get(transaction)
        return None if found is None else TransactionBundle(found)


class Counter:
    """A responder over genesis and a chain of four."""

    def __init__(self) -> None:
        self.tiny = TinyLedger()
        self.ids = [self.tiny.genesis_id]
        for number in range(4):
            self.ids.append(self.tiny.publish("ann", [self.ids[-1]], model(1.0, number)))
        items = ItemSet()
        for node in self.tiny.ledger:
            items.add(node.depth, node.id)
        self.acts = ActSet(self.ids[0])
        self.summary = StateSummary(
            ledger=self.ids[0],
            server=PublicKey("a" * 64),
            epoch="0" * 32,
            count=5,
            tips_digest=digest_of(b"tips"),
            set_sum=digest_of(b"sum"),
            acts_digest=self.acts.digest,
            created_at_ms=0,
        )
        self.responder = Responder(Rows(self.tiny), items, self.acts, summary=lambda: self.summary)


def test_changes_come_in_pages_and_the_last_cursor_brings_what_came_since() -> None:
    desk = Counter()
    first = desk.responder.answer(GetChanges(None, 3))
    assert first == Changes(tuple(desk.ids[:3]), "ab.3", more=True)
    assert desk.responder.answer(GetChanges("ab.3", 3)) == Changes(tuple(desk.ids[3:]), "ab.5", more=False)
    assert desk.responder.answer(GetChanges("ab.5", 3)) == Changes((), "ab.5", more=False)
    new = desk.tiny.publish("ann", [desk.ids[-1]], model(2.0))
    assert desk.responder.answer(GetChanges("ab.5", 3)) == Changes((new,), "ab.6", more=False)


@pytest.mark.parametrize(
    "cursor", ["", "5", "ab.", "ab.-1", "ab.6", "cd.2", "ab.٢", "ab.1e1", f"ab.{10**20}", "ab.2\n"]
)
def test_a_cursor_that_was_not_given_here_is_unknown(cursor: str) -> None:
    assert Counter().responder.answer(GetChanges(cursor, 3)) == CursorUnknown()


def test_transactions_come_in_the_order_asked_and_the_unknown_are_named() -> None:
    desk = Counter()
    nobody = TxId("f" * 64)
    answer = desk.responder.answer(GetTransactions((desk.ids[2], nobody, desk.ids[1])))
    assert isinstance(answer, Transactions)
    assert [bundle.transaction.id for bundle in answer.found] == [desk.ids[2], desk.ids[1]]
    assert answer.unknown == (nobody,)


def test_an_answer_ends_at_its_bound_but_holds_one_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fl_core.sync.responder.MAX_ANSWER_BYTES", 1)
    desk = Counter()
    answer = desk.responder.answer(GetTransactions(tuple(desk.ids[1:])))
    assert isinstance(answer, Transactions)
    assert [bundle.transaction.id for bundle in answer.found] == [desk.ids[1]]
    assert answer.unknown == ()


def test_a_summary_is_that_of_the_moment() -> None:
    desk = Counter()
    assert desk.responder.answer(GetSummary()) == SummaryAnswer(desk.summary)
