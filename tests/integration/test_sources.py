"""A ledger is the same ledger in a database, and what somebody changes there behind the server's back is named."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dag_acfl.sources import open_source
from fl_core.dag.figures import Figures
from fl_core.dag.transaction import Kind
from fl_core.errors import GenesisError, ParameterError
from fl_core.types import ZERO_ID
from fl_core.verify import verify
from ledger_server.store import open_store
from ledger_server.store.stored import StoredTransaction
from tests.builders import CREATED_AT_MS
from tests.databases import change
from tests.sources import SoundLedger, sound_ledger


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database opened by its URL has its data folder in the current one."""
    monkeypatch.chdir(tmp_path)


def stored(database_url: str, folder: Path) -> SoundLedger:
    """A sound ledger of six transactions in a database."""
    ledger = sound_ledger()
    tiny = ledger.tiny
    with open_store(database_url, data_dir=folder) as store:
        for transaction in tiny.transactions.values():
            header = transaction.header
            model = tiny.models[header.model_digest]
            figures = Figures(tiny.norm(model), None, tiny.node.shares(header.parents) if header.parents else ())
            new = StoredTransaction(store.length(), transaction, figures.encode(), CREATED_AT_MS)
            if header.kind is Kind.GENESIS:
                store.create(new, document=tiny.genesis.document, model=model)
                continue
            attachment = None if header.attachment_digest == ZERO_ID else tiny.attachments[header.attachment_digest]
            assert store.append(new, model=model, attachment=attachment)
    return ledger


def found(database_url: str) -> set[tuple[str, str | None]]:
    with open_source(database_url) as source:
        return {(str(finding.kind), finding.transaction) for finding in verify(source)}


def test_a_sound_ledger_in_a_database_verifies(database_url: str, tmp_path: Path) -> None:
    stored(database_url, tmp_path)
    assert found(database_url) == set()


def test_a_data_folder_names_the_ledger_that_is_in_it(tmp_path: Path) -> None:
    """A folder holds a SQLite file, so this is one of its tests only."""
    stored(f"sqlite:///{tmp_path / 'ledger.sqlite3'}", tmp_path)
    assert found(str(tmp_path)) == set()


def header_changed(database_url: str, ledger: SoundLedger) -> None:
    header = bytearray(ledger.tiny.transactions[ledger.cat].header_bytes)
    header[80] ^= 1
    statement = "UPDATE transactions SET header = :header WHERE id = :id"
    change(database_url, statement, header=bytes(header), id=bytes.fromhex(ledger.cat))


def model_changed(database_url: str, ledger: SoundLedger) -> None:
    header = ledger.tiny.transactions[ledger.cat].header
    model = bytearray(ledger.tiny.models[header.model_digest])
    model[-2] ^= 1
    change(
        database_url,
        "UPDATE model_pieces SET data = :data WHERE digest = :digest",
        data=bytes(model),
        digest=bytes.fromhex(header.model_digest),
    )


def model_piece_gone(database_url: str, ledger: SoundLedger) -> None:
    header = ledger.tiny.transactions[ledger.cat].header
    change(
        database_url,
        "DELETE FROM model_pieces WHERE digest = :digest",
        digest=bytes.fromhex(header.model_digest),
    )


def evidence_changed(database_url: str, ledger: SoundLedger) -> None:
    digest = ledger.tiny.transactions[ledger.cat].header.attachment_digest
    statement = "UPDATE attachments SET data = :data WHERE digest = :digest"
    change(database_url, statement, data=b"{}", digest=bytes.fromhex(digest))


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (header_changed, "header-tampered"),
        (model_changed, "model-corrupt"),
        (model_piece_gone, "model-missing"),
        (evidence_changed, "attachment-corrupt"),
    ],
)
def test_what_is_changed_in_the_database_is_named(
    damage: Callable[[str, SoundLedger], None], kind: str, database_url: str, tmp_path: Path
) -> None:
    ledger = stored(database_url, tmp_path)
    damage(database_url, ledger)
    assert found(database_url) == {(kind, ledger.cat)}


def test_looking_for_a_ledger_makes_none(tmp_path: Path) -> None:
    with pytest.raises(GenesisError, match="dag-acfl ledger init"), open_source(str(tmp_path)):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_is_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="no such file or folder"), open_source(str(tmp_path / "x")):
        pass
