"""A journal's epoch: drawn once, kept, and drawn anew when somebody says that the journal is a copy put back."""

from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config

from ledger_server.store import open_store, schema
from ledger_server.store.engine import make_engine, parse_url, writing
from ledger_server.store.errors import StoreInconsistentError
from ledger_server.store.sql import SqlStore
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


def test_an_epoch_is_renewed_and_no_other_row_changes(store: SqlStore) -> None:
    tiny = TinyLedger()
    with pytest.raises(StoreInconsistentError, match="no ledger"):
        store.renew_epoch()
    found(store, tiny)
    before = store.epoch()
    renewed = store.renew_epoch()
    assert renewed == store.epoch() != before
    assert store.renew_epoch() != renewed
    assert [each.transaction.id for each in store.replay()] == [tiny.genesis_id]


def test_a_ledger_of_before_epochs_draws_its_first_when_it_is_upgraded(database_url: str, tmp_path: Path) -> None:
    with open_store(database_url, data_dir=tmp_path) as store:
        found(store, TinyLedger())
        epoch = store.epoch()
    _downgrade(database_url, to="0004")
    assert schema.current(database_url) == "0004"
    schema.upgrade(database_url)
    with open_store(database_url, data_dir=tmp_path) as store:
        assert store.epoch() != epoch


def test_a_database_without_a_ledger_goes_down_and_up_without_drawing_one(database_url: str, tmp_path: Path) -> None:
    _downgrade(database_url, to="0004")
    schema.upgrade(database_url)
    assert schema.differences(database_url) == []
    with open_store(database_url, data_dir=tmp_path) as store:
        found(store, TinyLedger())
        assert len(store.epoch()) == 32


def _downgrade(database_url: str, *, to: str) -> None:
    schema.upgrade(database_url)
    config = Config()
    config.set_main_option("script_location", str(schema.script_location()))
    engine = make_engine(parse_url(database_url), inspecting=True)
    with writing(engine) as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, to)
    engine.dispose()
