"""The service on its journal, without HTTP: order of a publication, selections, what a failure leaves."""

import asyncio
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import event

from fl_core.dag.acts import Act, ActKind, sign_act
from fl_core.dag.author import author_of_secret
from fl_core.dag.genesis import Member
from fl_core.dag.signature import public_key_of
from fl_core.errors import (
    CursorUnknownError,
    DagAcflError,
    ModelNotFiniteError,
    ModelUnknownError,
    ParentsUnknownError,
    QuotaExceededError,
    SelectionUnknownError,
    TransactionInvalidError,
    TransactionUnknownError,
)
from fl_core.models import flat
from fl_core.node import Publication
from fl_core.sync.items import ItemSet
from fl_core.trust.lineage import Suspects
from fl_core.trust.quarantine import Quarantine
from fl_core.types import Digest, TxId, digest_of
from fl_core.wire.v1 import ClustersOut
from ledger_server.clusters import Clusters
from ledger_server.founding import create_ledger
from ledger_server.gossip.runtime import Gossip
from ledger_server.metrics import Metrics
from ledger_server.pruning import prune
from ledger_server.publishing import LedgerService, PublicationResult, Received
from ledger_server.quotas import Quotas
from ledger_server.store import open_store
from ledger_server.store.appending import Entry
from ledger_server.store.errors import StoreInconsistentError, StoreUnavailableError
from ledger_server.store.journal import Appending, Store
from tests.builders import (
    CREATED_AT_MS,
    ISSUER,
    LAYOUT,
    START,
    known_secret,
    make_genesis,
    model,
)
from tests.live import eventually
from tests.postgres import commit_and_lose_the_answer
from tests.reference.aggregation import fedavg
from tests.serving import named, secret_for

NOW_MS = CREATED_AT_MS + 1000
WAIT_S = 30.0


_started: list[LedgerService] = []


def service_on(
    store: Store,
    *,
    cache_bytes: int = 1 << 20,
    now_ms: Callable[[], int] = lambda: NOW_MS,
    quotas: Quotas | None = None,
) -> LedgerService:
    """A service that ends with the test's journal, whatever else a test does to it."""
    service = LedgerService(
        store, key=ISSUER, now_ms=now_ms, cache_bytes=cache_bytes, recent_selections=4, quotas=quotas
    )
    _started.append(service)
    return service


def end_services() -> None:
    while _started:
        _started.pop().close()


@contextmanager
def tiny_journal(url: str, folder: Path) -> Iterator[Store]:
    """A journal with a tiny ledger: tips are taken up to three at a time."""
    genesis = make_genesis(selector_params={"k": 3}, max_parents=4)
    genesis = replace(genesis, members=(Member(public_key_of(ISSUER), "issuer"),))
    with open_store(url, data_dir=folder) as store:
        create_ledger(store, genesis, model(1, 1, 1, 1), key=ISSUER, now_ms=CREATED_AT_MS)
        yield store
        end_services()


@pytest.fixture
def journal(database_url: str, tmp_path: Path) -> Iterator[Store]:
    """On each kind of database, for tests of what a failure leaves there."""
    with tiny_journal(database_url, tmp_path) as journal:
        yield journal


@pytest.fixture
def service(sqlite_url: str, tmp_path: Path) -> Iterator[LedgerService]:
    """On one kind, for tests of what the service answers."""
    with tiny_journal(sqlite_url, tmp_path) as journal:
        yield service_on(journal)


class Faulty:
    """A journal whose named calls do something else first, or instead, while ``on`` is set."""

    def __init__(self, store: Store, **instead: Callable[..., Any]) -> None:
        self.on, self._store, self._instead = True, store, instead

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        if name not in self._instead:
            return real
        return self._instead[name] if self.on else real


def publish(service: LedgerService, *values: float, **fields: Any) -> PublicationResult:
    given = {"num_examples": 1, **fields}
    if not {"author", "secret"} & given.keys():
        given["secret"] = secret_for(service, given.get("selection"))
    if "secret" in given:
        known_secret(given["secret"])
    if "selection" not in given:
        parents = given.pop("parents", (service.id,))
        given = {"start": START, **named(service, parents, given), **given}
    return service.publish(Publication(**given), model(*values))


def stored_but_silent(journal: Store) -> Callable[..., Any]:
    """Instead of ``Store.appending``: what is appended is stored, and nobody is told."""

    @contextmanager
    def appending(nbytes: int) -> Iterator[Appending]:
        with journal.appending(nbytes) as appending:
            yield appending
        raise StoreUnavailableError("the connection is gone")

    return appending


def seen(service: LedgerService) -> list[TxId]:
    return [view.stored.transaction.id for view in service.page(after=-1, limit=1000)]


def everything(service: LedgerService) -> tuple[object, ...]:
    """What others can see of the ledger."""
    count, tips = service.tips()
    return count, tips, seen(service), service.approvals(lately=1000)[1].counts, service.header_bytes()


def test_clusters_that_take_long_to_find_keep_nobody_waiting_and_are_found_again_after_twenty_times_as_long(
    service: LedgerService,
) -> None:
    now_s, spent_s, meanwhile = 0.0, 0.0, []

    def cpu_s() -> float:
        nonlocal spent_s
        spent_s += 2  # from before to after
        meanwhile.append(clusters.lately())
        return spent_s

    def found() -> ClustersOut:
        lately = clusters.lately()
        assert lately is not None
        return lately

    clusters = Clusters(service, cpu_s=cpu_s, now_s=lambda: now_s)
    publish(service, 2, 1, 1, 1)
    assert found().transactions == 2
    assert meanwhile[0] is None, "who asks while the first are being found is told to come again"
    publish(service, 3, 1, 1, 1)
    now_s = 39
    assert found().transactions == 2
    now_s = 40
    assert [len(each.authors) for each in found().clusters] == [1, 1]


# -- publishing ---------------------------------------------------------------------------------------


def test_a_publication_that_the_journal_refuses_leaves_nothing_and_the_next_one_works(journal: Store) -> None:
    def full(*_: object, **__: object) -> int:
        raise StoreUnavailableError("the disk is full")

    faulty = Faulty(journal, appending=full)
    service = service_on(faulty)  # type: ignore[arg-type]
    before = everything(service)
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="full"):
            publish(service, 1)
    assert everything(service) == before
    assert service.models.cached(digest_of(model(1))) is None
    faulty.on = False
    published = publish(service, 1)
    assert seen(service) == [service.id, published.transaction]
    assert everything(service_on(journal)) == everything(service), "a restart finds the same"


def test_an_acknowledgement_lost_after_the_commit_is_found_by_the_retry(journal: Store) -> None:
    """The commit happens, the answer does not come: as when a connection breaks while committing."""
    faulty = Faulty(journal, appending=stored_but_silent(journal))
    service = service_on(faulty)  # type: ignore[arg-type]
    mine: dict[str, Any] = {"secret": "a" * 64, "sequence": 0, "created_at_ms": NOW_MS}
    with pytest.raises(StoreUnavailableError):
        publish(service, 1, **mine)
    assert seen(service) == [service.id], "what was not acknowledged is not shown"
    faulty.on = False
    again = publish(service, 1, **mine)
    assert seen(service) == [service.id, again.transaction]
    assert not publish(service, 1, **mine).created
    publish(service, 2)
    assert everything(service_on(journal)) == everything(service)


def test_what_is_read_in_the_journal_reaches_gossip_even_with_a_damaged_model(journal: Store, tmp_path: Path) -> None:
    faulty = Faulty(journal, appending=stored_but_silent(journal))
    service = service_on(faulty)  # type: ignore[arg-type]

    async def reconcilable() -> None:
        gossip = Gossip(
            service, key=ISSUER, peers=tuple, metrics=Metrics(), data_dir=tmp_path / "gossip", now_ms=lambda: NOW_MS
        )
        gossip.start()
        with pytest.raises(StoreUnavailableError):
            publish(service, 1)
        faulty._instead = {"model": lambda digest: b"damaged" if digest == digest_of(model(1)) else None}
        publish(service, 2)
        await asyncio.sleep(0)
        nodes = list(service.ledger)
        assert len(nodes) == 3
        assert gossip.summary().set_sum == ItemSet((node.depth, node.id) for node in nodes).total_sum
        await gossip.stop()

    asyncio.run(reconcilable())


@pytest.mark.parametrize("is_retried", [True, False])
def test_a_commit_whose_answer_was_lost_holds_nobody_up_whether_or_not_its_author_comes_back(
    postgresql_url: str, tmp_path: Path, *, is_retried: bool
) -> None:
    mine: dict[str, Any] = {"secret": "a" * 64, "sequence": 0, "created_at_ms": NOW_MS}
    with open_store(postgresql_url, data_dir=tmp_path) as store:
        create_ledger(store, make_genesis(), model(1, 1, 1, 1), key=ISSUER, now_ms=CREATED_AT_MS)
        service = service_on(store)
        event.listen(store.database.engine, "commit", commit_and_lose_the_answer)
        with pytest.raises(StoreUnavailableError, match="closed the connection"):
            publish(service, 1, **mine)
        event.remove(store.database.engine, "commit", commit_and_lose_the_answer)
        assert seen(service) == [service.id], "what was not acknowledged is not shown"
        if is_retried:
            assert not publish(service, 1, **mine).created
        other = publish(service, 2)
        assert seen(service)[2:] == [other.transaction]
        assert not publish(service, 1, **mine).created
        assert len(service.tips()[1]) == 2
        assert everything(service_on(store)) == everything(service), "a restart finds the same"
        end_services()


def test_nothing_shows_a_transaction_between_commit_and_its_last_step(journal: Store) -> None:
    service: LedgerService
    found: list[object] = []

    @contextmanager
    def committed(nbytes: int) -> Iterator[Appending]:
        written: list[Entry] = []
        with journal.appending(nbytes) as appending:
            yield replace(appending, append=lambda entries: appending.append(entries) and not written.extend(entries))
        (new,) = [entry.stored for entry in written]
        transaction = new.transaction
        found.append(seen(service))
        found.append(service.tips()[0])
        for refused in (
            lambda: service.view(transaction.id),
            lambda: service.page(after=new.arrival, limit=1),
            lambda: service.selections.select_for(transaction.id),
        ):
            with pytest.raises((TransactionUnknownError, CursorUnknownError)):
                refused()

    service = service_on(Faulty(journal, appending=committed))  # type: ignore[arg-type]
    published = publish(service, 1)
    assert found == [[service.id], 1]
    assert seen(service) == [service.id, published.transaction]
    assert service.page(after=1, limit=1) == []


class Together(Faulty):
    """A journal whose first append waits until all that is published together waits for it."""

    def __init__(self, store: Store, *, fails: Callable[[Sequence[Entry]], None] = lambda _: None) -> None:
        super().__init__(store, appending=self._appending)
        self._fails = fails
        self.batches: list[int] = []
        self.all_wait: Callable[[], bool] = lambda: True

    @contextmanager
    def _appending(self, nbytes: int) -> Iterator[Appending]:
        with self._store.appending(nbytes) as appending:

            def noted(entries: Sequence[Entry]) -> bool:
                self.batches.append(len(entries))
                if len(self.batches) == 1:
                    eventually(self.all_wait)
                self._fails(entries)
                return appending.append(entries)

            yield replace(appending, append=noted)

    def publish(self, service: LedgerService, fields: Sequence[dict[str, Any]]) -> list[Any]:
        """Publish the models 0, 1, 2, …: the first, and while it is written all others; results, or exceptions."""
        self.all_wait = lambda: len(service._append._waiting) == len(fields) - 1

        def one(value: int) -> object:
            try:
                return publish(service, value, **fields[value])
            except DagAcflError as error:
                return error

        with ThreadPoolExecutor(len(fields)) as pool:
            first = pool.submit(one, 0)
            eventually(lambda: bool(self.batches))
            rest = [pool.submit(one, value) for value in range(1, len(fields))]
            return [call.result(WAIT_S) for call in (first, *rest)]


def test_what_is_published_together_is_committed_together_and_all_there(journal: Store) -> None:
    together = Together(journal)
    service = service_on(together)  # type: ignore[arg-type]
    announced: list[TxId] = []
    service.on_published = lambda transaction, _: announced.append(transaction.id)
    results = together.publish(service, [{"secret": f"{number:064x}"} for number in range(8)])
    assert together.batches == [1, 7]
    assert all(each.created for each in results)
    assert sorted(seen(service)[1:]) == sorted(each.transaction for each in results)
    assert announced == seen(service)[1:], "in their order of arrival"
    assert [stored.arrival for stored in journal.replay()] == list(range(9))
    assert everything(service_on(journal)) == everything(service), "a restart finds the same"


def test_an_author_who_publishes_twice_at_once_is_refused_the_second_and_nobody_else(journal: Store) -> None:
    together = Together(journal)
    service = service_on(together)  # type: ignore[arg-type]
    fields: list[dict[str, Any]] = [{"secret": f"{number:064x}"} for number in range(3)]
    mine = {"secret": "a" * 64, "sequence": 0}
    results = together.publish(service, [*fields, mine, mine])
    refused = [each for each in results if isinstance(each, DagAcflError)]
    assert [each.code for each in refused] == ["sequence-conflict"]
    assert len(seen(service)) == 1 + len(results) - 1
    assert everything(service_on(journal)) == everything(service)


def test_a_row_that_the_database_refuses_fails_alone(journal: Store) -> None:
    def fails(entries: Sequence[Entry]) -> None:
        if digest_of(model(2)) in [entry.stored.transaction.header.model_digest for entry in entries]:
            raise StoreInconsistentError("a constraint")

    together = Together(journal, fails=fails)
    service = service_on(together)  # type: ignore[arg-type]
    results = together.publish(service, [{"secret": f"{number:064x}"} for number in range(4)])
    assert [isinstance(each, StoreInconsistentError) for each in results] == [False, False, True, False]
    assert together.batches == [1, 3, 1, 1, 1]
    assert sorted(seen(service)[1:]) == sorted(results[place].transaction for place in (0, 1, 3))
    assert everything(service_on(journal)) == everything(service)


def test_a_full_disk_is_told_to_exactly_those_that_it_has_not_taken(journal: Store) -> None:
    def full(entries: Sequence[Entry]) -> None:
        if len(entries) > 1:
            raise StoreUnavailableError("the disk is full")

    together = Together(journal, fails=full)
    service = service_on(together)  # type: ignore[arg-type]
    fields: list[dict[str, Any]] = [{"secret": f"{number:064x}"} for number in range(4)]
    results = together.publish(service, fields)
    assert [isinstance(each, StoreUnavailableError) for each in results] == [False, True, True, True]
    assert together.batches == [1, 3]
    assert seen(service) == [service.id, results[0].transaction]
    together.on = False
    assert all(publish(service, value, **fields[value]).created for value in (1, 2, 3))
    assert everything(service_on(journal)) == everything(service)


def test_two_writers_follow_one_journal(journal: Store) -> None:
    one, two = service_on(journal), service_on(journal)
    first = publish(two, 1)
    child = publish(two, 2, parents=(first.transaction,))
    mine: dict[str, Any] = {"secret": "a" * 64, "sequence": 0, "created_at_ms": NOW_MS}
    third = publish(one, 3, **mine)
    assert seen(one) == [one.id, first.transaction, child.transaction, third.transaction]
    assert not publish(two, 3, **mine).created
    assert everything(one) == everything(two) == everything(service_on(journal))


def test_what_was_looked_for_before_it_came_is_found_once_it_has_come(journal: Store) -> None:
    one, two = service_on(journal), service_on(journal)
    update = publish(one, 1).transaction
    assert update not in two.ledger, "two has not read on"
    assert two.follow()
    assert update in two.ledger


def test_who_is_told_by_one_process_is_served_by_another(journal: Store) -> None:
    one, two = service_on(journal), service_on(journal)
    first, second = publish(one, 1, secret="a" * 64), publish(one, 2, secret="b" * 64)
    assert two.follow()
    record, _ = two.selections.select_for(first.transaction)
    assert len(record.evidence.selection.parents) == 2
    assert one.aggregates.model(record.evidence.aggregate) == two.aggregates.model(record.evidence.aggregate)
    again: dict[str, Any] = {"selection": record.id, "secret": "a" * 64, "sequence": 1, "created_at_ms": NOW_MS}
    third = publish(one, 3, **again)
    assert not publish(two, 3, **again).created
    asker = record.evidence.author
    assert asker is not None
    assert one.selections.without(record.id, second.transaction, asker=asker) == digest_of(model(1))
    assert seen(two)[3:] == [third.transaction]


def test_an_act_that_one_process_keeps_holds_for_the_next_publication_at_another(journal: Store) -> None:
    one, two = service_on(journal), service_on(journal)
    suspect = author_of_secret("a" * 64)
    act = Act(ledger=one.id, number=1, created_at_ms=1, kind=ActKind.QUARANTINE, subject=suspect)
    one.acts.admit(sign_act(act, ISSUER))
    assert suspect in one.acts.quarantine.suspects.authors
    publish(two, 2, secret="b" * 64)
    assert two.acts.quarantine == one.acts.quarantine


def test_an_author_has_one_quota_at_all_processes(journal: Store) -> None:
    one, two = (service_on(journal, quotas=Quotas(per_author=2)) for _ in range(2))
    first = publish(one, 1, secret="a" * 64)
    newest = publish(two, 2, parents=(first.transaction,), secret="a" * 64)
    assert one.follow()
    with pytest.raises(QuotaExceededError):
        publish(one, 3, parents=(newest.transaction,), secret="a" * 64)


def received(service: LedgerService) -> list[Received]:
    """What a server holds, as its peers receive it."""
    updates = []
    for view in service.page(after=0, limit=99):
        header = view.stored.transaction.header
        evidence = service.store.attachment(header.attachment_digest)
        model = service.store.model(header.model_digest)
        updates.append(Received(transaction=view.stored.transaction, attachment=evidence, model=model))
    return updates


def test_what_is_received_together_comes_in_as_one_by_one_and_a_bad_one_spoils_only_what_stands_upon_it(
    service: LedgerService, tmp_path: Path
) -> None:
    first, second = publish(service, 1).transaction, publish(service, 2).transaction
    publish(service, 3, parents=tuple(sorted((first, second))))
    publish(service, 4, parents=(second,))
    updates = received(service)
    spoilt = [replace(updates[0], model=model(math.nan)), *updates[1:]]
    stores = [tiny_journal(f"sqlite:///{tmp_path}/{name}.sqlite", tmp_path / name) for name in ("one", "all", "bad")]
    with stores[0] as one, stores[1] as all_, stores[2] as bad:
        one_by_one, together, spoiling = service_on(one), service_on(all_), service_on(bad)
        assert [one_by_one.admit_received([each]) for each in updates] == [[True]] * 4
        assert together.admit_received(updates) == [True] * 4
        assert together.admit_received(updates) == [False] * 4
        outcomes = spoiling.admit_received(spoilt)
        figures = [
            [view.stored.figures for view in each.page(after=0, limit=9)] for each in (service, one_by_one, together)
        ]
        assert figures == [figures[0]] * 3
        assert everything(one_by_one) == everything(together)
    refused = [each if isinstance(each, bool) else type(each) for each in outcomes]
    assert refused == [ModelNotFiniteError, True, ParentsUnknownError, True]


def test_a_server_that_took_updates_without_their_models_finds_the_same_taint(
    service: LedgerService, tmp_path: Path
) -> None:
    bad, good = publish(service, 1).transaction, publish(service, 2).transaction
    publish(service, 3, parents=tuple(sorted((bad, good))))
    quarantine = Quarantine(Suspects(updates=frozenset({bad})))
    taints = []
    with tiny_journal(f"sqlite:///{tmp_path}/joined.sqlite", tmp_path / "joined") as journal:
        joined = service_on(journal)
        assert joined.admit_received([replace(each, model=None, norm=1e9) for each in received(service)]) == [True] * 3
        for each in (service, joined):
            each.node.go_by(each.acts.effect, each.acts.authors, quarantine)
            taints.append([each.node.offering.taint(node) for node in each.ledger])
    assert taints == [[0.0, 1.0, 0.0, 0.25]] * 2


def test_a_journal_that_became_shorter_is_an_error(journal: Store) -> None:
    @contextmanager
    def appending(nbytes: int) -> Iterator[Appending]:
        with journal.appending(nbytes) as appending:
            yield replace(appending, position=appending.position._replace(length=0))

    service = service_on(Faulty(journal, appending=appending))  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailableError, match="restart the server"):
        publish(service, 1)


def test_a_writer_catches_up_past_a_pruned_model(journal: Store) -> None:
    service, other = service_on(journal), service_on(journal)
    first = publish(other, 1, secret="a" * 64)
    newest = publish(other, 2, parents=(first.transaction,), secret="a" * 64)
    report = prune(journal, other.snapshot(keep_ms=0), now_ms=lambda: NOW_MS)
    assert report.models == 1
    last = publish(service, 3)
    assert seen(service) == [service.id, first.transaction, newest.transaction, last.transaction]
    assert service.tips() == (4, service.node.graph.tips())


# -- selecting ----------------------------------------------------------------------------------------


def test_a_ledger_of_genesis_alone_selects_genesis_and_nobodys_model(service: LedgerService) -> None:
    record, created = service.selections.select_with(model(1, 2))
    assert (created, record.evidence.selection.parents, record.evidence.selection.source) == (
        True,
        (service.id,),
        "own",
    )
    assert record.evidence.aggregate == digest_of(model(1, 2))
    with pytest.raises(TransactionInvalidError, match="genesis"):
        service.selections.select_for(service.id)
    with pytest.raises(TransactionUnknownError):
        service.selections.select_for(TxId("0" * 63 + "1"))


def test_an_older_transaction_is_compared_but_the_newest_is_approved(service: LedgerService) -> None:
    first = publish(service, 1, 0, 0)
    selection, _ = service.selections.select_for(first.transaction)
    second = publish(service, 0, 0, 5, selection=selection.id)
    other = publish(service, 1, 0, 0.1)
    old, new = service.selections.select_for(first.transaction)[0], service.selections.select_for(second.transaction)[0]
    for record in (old, new):
        assert set(record.evidence.selection.parents) == {second.transaction, other.transaction}
    assert old.evidence.reference_model == digest_of(model(1, 0, 0))
    (compared_old,) = old.evidence.selection.candidates
    (compared_new,) = new.evidence.selection.candidates
    assert compared_old.similarity > 0.99 > compared_new.similarity
    assert old.evidence.aggregate == new.evidence.aggregate
    assert old.id != new.id


def test_a_device_keeps_its_name_from_selection_to_selection(service: LedgerService) -> None:
    joined = publish(service, 1, selection=service.selections.select_with(model(1))[0].id)
    author = joined.view.stored.transaction.header.author
    newest = joined.transaction
    for sequence in (1, 2, 3):
        selection, _ = service.selections.select_for(newest)
        header = publish(service, sequence, selection=selection.id).view.stored.transaction.header
        assert (header.author, header.sequence, header.parents) == (author, sequence, (newest,))
        newest = service.ledger.graph.newest_of(author).id  # type: ignore[union-attr]
    other = publish(service, 1, selection=service.selections.select_with(model(1))[0].id)
    assert other.view.stored.transaction.header.author != author


@pytest.mark.parametrize("cache_models", [0, 1, 100])
def test_an_average_can_be_fetched_whatever_memory_holds(journal: Store, cache_models: int) -> None:
    service = service_on(journal, cache_bytes=cache_models * LAYOUT.nbytes)
    examples = {1.0: 3, 5.0: 1, 9.0: 4}
    newest = [publish(service, value, 2, num_examples=count) for value, count in examples.items()]
    selection = service.selections.select_for(newest[0].transaction)[0].evidence
    assert len(selection.selection.parents) == 3
    order = sorted(range(3), key=lambda index: newest[index].transaction)
    expected = fedavg(
        [flat(LAYOUT, model(list(examples)[index], 2)) for index in order],
        [float(list(examples.values())[index]) for index in order],
    )
    for crowd in (0, 10):
        for value in range(crowd):
            service.selections.select_with(model(value, value))  # pushes others out of memory
        data = service.aggregates.model(selection.aggregate)
        assert digest_of(data) == selection.aggregate
        assert flat(LAYOUT, data).tobytes() == expected.tobytes()


def test_an_average_that_nobody_asked_for_is_unknown(service: LedgerService) -> None:
    with pytest.raises(ModelUnknownError, match="new selection"):
        service.aggregates.model(Digest("0" * 64))


class Counting:
    """An aggregator that counts, and begins only when it may."""

    def __init__(self, real: Any) -> None:
        self.real, self.calls, self.may_begin = real, 0, threading.Event()

    def aggregate(self, sources: Any, weights: Any) -> Any:
        self.calls += 1
        assert self.may_begin.wait(WAIT_S)
        return self.real.aggregate(sources, weights)


def counting(service: LedgerService) -> Counting:
    counted = Counting(service.aggregates._aggregators[0])
    service.aggregates._aggregators = [counted, counted]
    return counted


def test_equal_questions_at_the_same_time_are_averaged_once(service: LedgerService) -> None:
    tips = [publish(service, value, 1).transaction for value in (1, 2, 3)]
    counted = counting(service)
    got: list[Digest] = []
    threads = [
        threading.Thread(target=lambda tip=tip: got.append(service.selections.select_for(tip)[0].evidence.aggregate))
        for tip in tips * 4
    ]
    for thread in threads:
        thread.start()
    counted.may_begin.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert (len(got), len(set(got)), counted.calls) == (12, 1, 1)


def test_a_failed_average_fails_its_askers_and_is_tried_again(service: LedgerService) -> None:
    tip, _ = (publish(service, value, 1).transaction for value in (1, 2))
    counted = counting(service)
    real, counted.real = counted.real, None  # an AttributeError when it is asked
    counted.may_begin.set()
    with pytest.raises(AttributeError):
        service.selections.select_for(tip)
    counted.real = real
    service.selections.select_for(tip)
    assert counted.calls == 2


def test_a_selection_is_found_again_or_refused(service: LedgerService) -> None:
    record, created = service.selections.select_with(model(1))
    assert (created, service.selections.select_with(model(1))[1]) == (True, False)
    assert service.selections.selection(record.id) == record
    for other in (Digest("0" * 64), service.genesis.digest):
        with pytest.raises(SelectionUnknownError):
            service.selections.selection(other)


def test_damaged_evidence_is_no_selection(journal: Store) -> None:
    record, _ = service_on(journal).selections.select_with(model(1))
    other = record.encoded.replace(b'"top-k"', b'"top-x"')
    assert other != record.encoded
    damaged = service_on(Faulty(journal, attachment=lambda _: other))  # type: ignore[arg-type]
    with pytest.raises(SelectionUnknownError):
        damaged.selections.selection(record.id)
    with pytest.raises(SelectionUnknownError):
        publish(damaged, 1, selection=record.id)


def test_a_publication_is_possible_long_after_its_selection(service: LedgerService) -> None:
    record, _ = service.selections.select_with(model(1))
    for value in range(20):
        service.selections.select_with(model(value, 1))  # memory holds four
    header = publish(service, 1, selection=record.id).view.stored.transaction.header
    assert header.attachment_digest == record.id
    assert service.attachment(publish(service, 2, selection=record.id).transaction) == record.encoded


# -- starting -----------------------------------------------------------------------------------------


def test_a_restart_finds_what_was_there(journal: Store) -> None:
    rng = np.random.default_rng(5)
    before = service_on(journal)
    newest = [publish(before, *rng.standard_normal(3)).transaction for _ in range(4)]
    for _ in range(20):
        index = int(rng.integers(4))
        selection, _created = before.selections.select_for(newest[index])
        newest[index] = publish(before, *rng.standard_normal(3), selection=selection.id).transaction
    after = service_on(journal)
    assert everything(after) == everything(before)
    for transaction in newest:
        assert after.view(transaction) == before.view(transaction)
        # BLAS may add up rows that lie elsewhere in another order: what is chosen and averaged is the same.
        ours, theirs = (each.selections.select_for(transaction)[0].evidence for each in (after, before))
        assert (ours.selection.parents, ours.aggregate) == (theirs.selection.parents, theirs.aggregate)


def test_a_tip_whose_model_is_missing_is_not_offered_and_the_rest_is_served(
    journal: Store, caplog: pytest.LogCaptureFixture
) -> None:
    before = service_on(journal)
    lost, sound = publish(before, 1), publish(before, 2)
    lost_model = digest_of(model(1))
    after = service_on(
        Faulty(journal, model=lambda digest: None if digest == lost_model else journal.model(digest))  # type: ignore[arg-type]
    )
    damaged = [record for record in caplog.records if record.message == "stored model is damaged"]
    assert [record.__dict__["transaction"] for record in damaged] == [lost.transaction]
    evidence = after.selections.select_with(model(3))[0].evidence
    assert evidence.selection.parents == (sound.transaction,)
