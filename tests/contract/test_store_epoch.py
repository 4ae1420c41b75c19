"""A journal's epoch: drawn once, kept, and drawn anew when somebody says that the journal is a copy put back."""

from pathlib import Path

import pytest

from ledger_server.store import open_store
from ledger_server.store.errors import StoreInconsistentError
from ledger_server.store.journal import Store
from tests.builders import TinyLedger, model
from tests.contract.test_store import found, put


def test_an_epoch_is_drawn_with_genesis_and_kept(database_url: str, tmp_path: Path) -> None:
    tiny = TinyLedger()
    with open_store(database_url, data_dir=tmp_path) as store:
        with pytest.raises(StoreInconsistentError):
            store.epoch()
        found(store, tiny)
        epoch = store.epoch()
        put(store, tiny.draft("ann", [tiny.genesis_id], model(1)), model(1))
        assert store.epoch() == epoch
    assert len(bytes.fromhex(epoch)) == 16
    with open_store(database_url, data_dir=tmp_path) as again:
        assert again.epoch() == epoch


def test_an_epoch_is_renewed_and_no_other_row_changes(store: Store) -> None:
    tiny = TinyLedger()
    with pytest.raises(StoreInconsistentError, match="no ledger"):
        store.renew_epoch()
    found(store, tiny)
    before = store.epoch()
    renewed = store.renew_epoch()
    assert renewed == store.epoch() != before
    assert store.renew_epoch() != renewed
    assert [each.transaction.id for each in store.replay()] == [tiny.genesis_id]
