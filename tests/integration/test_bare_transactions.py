"""A transaction whose model was pruned everywhere, at the service's door."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from fl_core.errors import DigestMismatchError, ModelPrunedError, ParentsUnknownError, WrongLedgerError
from fl_core.sync.messages import CarriedTransaction
from fl_core.types import TxId
from ledger_server.publishing import LedgerService, Publication, create_ledger
from ledger_server.store.sql import SqlStore
from tests.builders import CREATED_AT_MS, ISSUER, TinyLedger, make_genesis, model, seal
from tests.integration.test_service import service_on


@pytest.fixture
def service(store: SqlStore) -> Iterator[LedgerService]:
    create_ledger(store, make_genesis(selector_params={"k": 3}), model(1, 1, 1, 1), key=ISSUER, now_ms=CREATED_AT_MS)
    running = service_on(store)
    yield running
    running.close()


def test_what_is_admitted_bare_is_held_to_every_other_rule(service: LedgerService) -> None:
    """The caller decides that the model may lack; header, parents and attachment are asked about again."""
    tiny = TinyLedger(genesis=service.genesis)
    header = replace(tiny.draft("ann", [tiny.genesis_id], model(1)).header, ledger=service.id, parents=(service.id,))
    sound = seal(header, author_key=tiny.key("ann"))
    lost = seal(replace(header, parents=(TxId("f" * 64),)), author_key=tiny.key("ann"))
    with pytest.raises(ParentsUnknownError):
        service.admit_bare(CarriedTransaction(lost))
    with pytest.raises(DigestMismatchError):
        service.admit_bare(CarriedTransaction(sound, b"not named"))
    foreign = seal(replace(header, ledger=TxId("e" * 64)), author_key=tiny.key("ann"))
    with pytest.raises(WrongLedgerError):
        service.admit_bare(CarriedTransaction(foreign))
    assert len(service.ledger) == 1
    assert service.admit_bare(CarriedTransaction(sound))
    assert not service.admit_bare(CarriedTransaction(sound)), "it is here"
    with pytest.raises(ModelPrunedError):
        service.model(sound.header.model_digest)
    with pytest.raises(ModelPrunedError):
        service.select_for(sound.id)
    record, _ = service.select_with(model(1, 1))
    assert record.evidence.selection.candidates == (), "nobody is offered what is not here"
    node = service.ledger.graph.get(sound.id)
    assert node is not None
    assert node.norm == service.genesis.policy.max_norm


def test_a_model_that_is_here_after_all_is_admitted_with_it(service: LedgerService) -> None:
    published = service.publish(Publication(num_examples=1, parents=(service.id,)), model(1))
    bob = TinyLedger()
    header = replace(published.view.stored.transaction.header, author=bob.author("bob"))
    same = seal(header, author_key=bob.key("bob"))
    assert service.admit_bare(CarriedTransaction(same))
    node = service.ledger.graph.get(same.id)
    assert node is not None
    assert node.norm == 1.0
    assert service.store.pruned_models() == 0
