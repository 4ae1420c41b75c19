"""Archived evidence: gone but known of, kept where a later update carries it, back when one carries it again."""

from collections.abc import Sequence

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from fl_core.dag.transaction import Transaction
from fl_core.types import Digest, digest_of
from ledger_server.store.errors import StoreInconsistentError
from ledger_server.store.journal import Store
from tests.builders import TinyLedger, model
from tests.contract.test_store import engine_of, found, ids, put

EVIDENCE = [b'{"evidence":"%d"}' % number + b" " * 50_000 for number in range(3)]
"""Of 50 KB, which both databases keep apart from its row."""
FIRST, SECOND, THIRD = map(digest_of, EVIDENCE)


@pytest.fixture
def tiny() -> TinyLedger:
    return TinyLedger()


def draft(tiny: TinyLedger, name: str, number: int) -> Transaction:
    return tiny.draft(name, [tiny.genesis_id], model(number), attachment=EVIDENCE[number])


@pytest.fixture
def ledger(store: Store, tiny: TinyLedger) -> Store:
    """Genesis, and an update each of ann, bob and cat, with evidence of its own."""
    found(store, tiny)
    for number, name in enumerate(("ann", "bob", "cat")):
        put(store, draft(tiny, name, number), model(number), attachment=EVIDENCE[number])
    return store


def kept(store: Store) -> list[bytes | None]:
    return [store.attachment(each) for each in (FIRST, SECOND, THIRD)]


def archive(store: Store, digests: Sequence[Digest], *, known: int = 4, up_to: int = 3) -> set[Digest]:
    return set(store.archive(digests, known=known, up_to=up_to))


def test_evidence_that_is_archived_is_gone_and_its_updates_stay(ledger: Store) -> None:
    before = list(ledger.replay())
    assert ledger.archived() == 0
    assert ledger.archive([FIRST, SECOND], known=4, up_to=3) == {each: len(EVIDENCE[0]) for each in (FIRST, SECOND)}
    assert kept(ledger) == [b"", b"", EVIDENCE[2]]
    assert ledger.archived() == 3
    assert list(ledger.replay()) == before
    assert ledger.evidence_here([FIRST, SECOND, THIRD]) == {THIRD: len(EVIDENCE[2])}


def test_archiving_again_changes_nothing(ledger: Store) -> None:
    archive(ledger, [FIRST, SECOND])
    assert archive(ledger, [FIRST], up_to=2) == set()
    assert ledger.archived() == 3


def test_what_an_update_carries_that_came_meanwhile_stays(ledger: Store, tiny: TinyLedger) -> None:
    put(ledger, draft(tiny, "dan", 0), model(0), attachment=EVIDENCE[0])
    assert archive(ledger, [FIRST, SECOND], known=4) == {SECOND}
    assert kept(ledger) == [EVIDENCE[0], b"", EVIDENCE[2]]


def test_evidence_comes_back_with_an_update_that_carries_it(ledger: Store, tiny: TinyLedger) -> None:
    archive(ledger, [FIRST])
    put(ledger, draft(tiny, "dan", 0), model(0), attachment=EVIDENCE[0])
    assert ledger.attachment(FIRST) == EVIDENCE[0]


def test_an_update_comes_without_evidence_that_was_archived_elsewhere(ledger: Store, tiny: TinyLedger) -> None:
    number = [b"other evidence", b"{}"]
    for place, evidence in enumerate(number):
        transaction = tiny.draft("dan", [tiny.genesis_id], model(place), attachment=evidence)
        put(ledger, transaction, model(place), attachment=b"" if place == 0 else evidence)
    assert [ledger.attachment(digest_of(each)) for each in number] == [b"", b"{}"]
    assert ledger.archived() == 5


def test_what_is_here_is_not_emptied_by_an_update_that_comes_without(ledger: Store, tiny: TinyLedger) -> None:
    put(ledger, draft(tiny, "dan", 0), model(0), attachment=b"")
    assert ledger.attachment(FIRST) == EVIDENCE[0]
    assert ledger.archived() == 0


def test_the_genesis_document_is_never_archived(ledger: Store, tiny: TinyLedger) -> None:
    with pytest.raises(StoreInconsistentError, match="genesis document"):
        archive(ledger, [FIRST, tiny.genesis.digest])
    assert kept(ledger) == EVIDENCE


def test_updates_are_listed_with_what_they_name(ledger: Store, tiny: TinyLedger) -> None:
    found = ledger.named(after=0, limit=2)
    assert [(each.arrival, each.attachment) for each in found] == [(1, FIRST), (2, SECOND)]
    assert [each.transaction for each in found] == ids(ledger.page(after=0, limit=2))
    assert [each.attachment for each in ledger.named(after=-1, limit=1)] == [tiny.genesis.digest]
    assert ledger.named(after=3, limit=10) == []


@pytest.mark.parametrize("change", ["data = X'01'", "digest = X'{}', data = ''".format("00" * 32)])
def test_the_database_refuses_any_other_change_of_evidence(ledger: Store, change: str) -> None:
    if not ledger.database.is_sqlite:
        change = change.replace("X'", "'\\x")
    with pytest.raises(DBAPIError, match="attachments never change"), engine_of(ledger).begin() as connection:
        connection.execute(text(f"UPDATE attachments SET {change}"))
    assert kept(ledger) == EVIDENCE
