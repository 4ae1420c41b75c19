"""Models of the past are kept by what they differ by from their authors' next ones, and nobody notices."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fl_core.dag.author import author_of_secret
from fl_core.models import ModelLayout, TensorSpec, encode_flat
from fl_core.node import Publication
from fl_core.step_coding import round_step
from fl_core.types import TxId, digest_of
from fl_core.verify import verify
from ledger_server.admin.store_source import StoreSource
from ledger_server.founding import create_ledger
from ledger_server.packing import MAX_CHAIN, pack
from ledger_server.pruning import prune, snapshot_of
from ledger_server.publishing import LedgerService
from ledger_server.store import journal, open_store
from ledger_server.store.journal import Store
from ledger_server.store.stored import StoredTransaction
from tests.builders import CREATED_AT_MS, ISSUER, START, known_secret, make_genesis

WIDE = ModelLayout.of([TensorSpec("fc.weight", "F32", (100, 90)), TensorSpec("fc.bias", "F32", (90,))])
NOW_MS, LATER_MS = CREATED_AT_MS + 1000, 1 << 60
rng = np.random.default_rng(5)


@pytest.fixture(params=["database", "directory"])
def store(
    request: pytest.FixtureRequest, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Store]:
    monkeypatch.setattr(journal, "LEAST_BYTES", 0)
    first = encode_flat(WIDE, rng.standard_normal(WIDE.num_parameters, dtype=np.float32))
    with open_store(sqlite_url, data_dir=tmp_path, blobs=request.param) as opened:
        create_ledger(opened, make_genesis(layout=WIDE), first, key=ISSUER, now_ms=CREATED_AT_MS)
        yield opened


def service_on(store: Store, *, now_ms: int = NOW_MS) -> LedgerService:
    return LedgerService(store, key=ISSUER, now_ms=lambda: now_ms, cache_bytes=0)


def publish(service: LedgerService, author: int, *, model: bytes | None = None) -> bytes:
    """One update upon the author's newest, rounded as clients do; its model."""
    secret = known_secret(f"{author:064x}")
    newest = service.node.graph.newest_of(author_of_secret(secret))
    parent = service.node.graph.genesis if newest is None else newest
    begun = service.models.vector(parent.model_digest)
    step = np.float32(0.01) * rng.standard_normal(WIDE.num_parameters, dtype=np.float32)
    model = model or encode_flat(WIDE, round_step(WIDE, begun + step, begun))
    service.publish(Publication(num_examples=1, parents=(parent.id,), start=START, secret=secret), model)
    return model


def published(service: LedgerService, *, times: int, authors: int = 1) -> list[bytes]:
    """Models in order of arrival; authors take turns."""
    return [publish(service, number % authors + 1) for number in range(times)]


def lies_there(store: Store, model: bytes) -> int:
    """Bytes that the store keeps of a model."""
    return len(store._blobs.get(digest_of(model), WIDE.nbytes) or b"")


def test_all_but_the_newest_are_packed_and_read_as_they_were(store: Store) -> None:
    models = published(service_on(store), times=2 * MAX_CHAIN + 4, authors=2)
    assert pack(store, WIDE, before_ms=LATER_MS) == 2 * MAX_CHAIN + 2
    assert pack(store, WIDE, before_ms=LATER_MS) == 0, "nothing is left to do"
    sizes = [lies_there(store, model) / WIDE.nbytes for model in models]
    assert sizes[-2:] == [1, 1]
    assert max(sizes[:-2]) < 0.55, "the ends of chains, coded by none"
    assert sorted(sizes)[MAX_CHAIN] < 0.3
    assert sum(sizes) < 0.4 * len(sizes)
    service = service_on(store)
    for model in models:
        assert service.models.get(digest_of(model)) == model
        with store.open_model(digest_of(model)) or pytest.fail("gone") as reader:
            assert (reader.size, reader.read(100, 300)) == (len(model), model[100:300])


def test_a_packed_ledger_verifies_and_a_damaged_one_does_not(store: Store) -> None:
    models = published(service_on(store), times=5)
    pack(store, WIDE, before_ms=LATER_MS)
    assert list(verify(StoreSource(store))) == []
    with store.database.writing(durable=True) as connection:
        coded = bytearray(store._blobs.get(digest_of(models[3]), WIDE.nbytes) or b"")
        coded[-200] ^= 1
        store._blobs.replace(connection, digest_of(models[3]), bytes(coded))
    store.unpacked.clear()
    spoilt = [*store.carrying([digest_of(model) for model in models[:4]])]  # it, and what is packed by it
    assert {finding.transaction for finding in verify(StoreSource(store))} >= {
        stored.transaction.id for stored in spoilt
    }


def test_averages_are_of_packed_models_too(store: Store) -> None:
    service = service_on(store)
    published(service, times=4, authors=2)
    earlier = [stored.transaction.id for stored in store.page(after=0, limit=2)]
    before = service.aggregates.average(tuple(sorted(earlier)))
    pack(store, WIDE, before_ms=LATER_MS)
    assert service_on(store).aggregates.average(tuple(sorted(earlier))) == before


def test_what_came_lately_stays_whole(store: Store) -> None:
    published(service_on(store), times=3)
    assert pack(store, WIDE, before_ms=NOW_MS) == 0
    assert pack(store, WIDE, before_ms=NOW_MS + 1) == 2


def test_a_model_that_becomes_somebodys_newest_again_is_whole_again(store: Store) -> None:
    service = service_on(store)
    models = published(service, times=3)
    pack(store, WIDE, before_ms=LATER_MS)
    publish(service, 1, model=models[0])
    assert lies_there(store, models[0]) == WIDE.nbytes
    pack(store, WIDE, before_ms=LATER_MS)
    store.unpacked.clear()
    assert [store.model(digest_of(model)) == model for model in models] == [True] * 3


def test_pruning_takes_packed_models_and_leaves_none_without_its_base(store: Store) -> None:
    models = published(service_on(store), times=6)
    pack(store, WIDE, before_ms=LATER_MS)
    kept = digest_of(models[1])  # as a quarantine may have it: an older one stays, and the newer ones go

    snapshot = snapshot_of(store, keep_ms=0)
    retention = replace(snapshot.retention, singled_out=snapshot.retention.singled_out | {only(store.carrying([kept]))})
    report = prune(store, replace(snapshot, retention=retention), now_ms=lambda: LATER_MS)
    assert report.models == 4
    store.unpacked.clear()
    held = [model for model in models if store.model(digest_of(model)) is not None]
    assert [store.model(digest_of(model)) for model in held] == held == [models[1], models[5]]
    assert [lies_there(store, model) for model in models] == [0, WIDE.nbytes, 0, 0, 0, WIDE.nbytes]


def only(found: Iterable[StoredTransaction]) -> TxId:
    (stored,) = found
    return stored.transaction.id


def test_a_kill_between_the_row_and_the_bytes_loses_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    models = published(service_on(store), times=3)
    with monkeypatch.context() as patch:
        patch.setattr(store._blobs, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            pack(store, WIDE, before_ms=LATER_MS)
    assert [store.model(digest_of(model)) for model in models] == models
    snapshot = snapshot_of(store, keep_ms=0)
    prune(store, snapshot, now_ms=lambda: LATER_MS)
    assert [store.model(digest_of(model)) for model in models] == [None, None, models[2]]


def killed(*_: object) -> None:
    raise KeyboardInterrupt
