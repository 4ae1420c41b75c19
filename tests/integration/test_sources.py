"""A ledger is the same ledger in a database, and what somebody changes there behind the server's back is named."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dag_acfl.sources import open_source
from fl_core.dag.transaction import Kind
from fl_core.errors import GenesisError, ParameterError
from fl_core.types import ZERO_ID
from fl_core.verify import verify
from ledger_server.store import open_store
from tests.builders import CREATED_AT_MS
from tests.sources import SoundLedger, sound_ledger


def stored(folder: Path) -> SoundLedger:
    """A sound ledger of six transactions in a SQLite database."""
    ledger = sound_ledger()
    tiny = ledger.tiny
    with open_store(f"sqlite:///{folder / 'ledger.sqlite3'}", data_dir=folder) as store:
        for transaction in tiny.transactions.values():
            header = transaction.header
            model = tiny.models[header.model_digest]
            norm = tiny.norm(model)
            if header.kind is Kind.GENESIS:
                store.create(
                    transaction,
                    document=tiny.genesis.document,
                    model=model,
                    norm=norm,
                    received_at_ms=CREATED_AT_MS,
                )
                continue
            attachment = None if header.attachment_digest == ZERO_ID else tiny.attachments[header.attachment_digest]
            store.append(transaction, norm=norm, model=model, attachment=attachment, received_at_ms=CREATED_AT_MS)
    return ledger


def change(folder: Path, statement: str, *values: object) -> None:
    """Change the database with its guards taken away."""
    with closing(sqlite3.connect(folder / "ledger.sqlite3")) as connection, connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f'DROP TRIGGER "{name}"')
        assert connection.execute(statement, values).rowcount > 0


def found(folder: Path) -> set[tuple[str, str | None]]:
    with open_source(str(folder)) as source:
        return {(str(finding.kind), finding.transaction) for finding in verify(source)}


def test_a_sound_ledger_in_a_database_verifies(tmp_path: Path) -> None:
    stored(tmp_path)
    assert found(tmp_path) == set()


def header_changed(folder: Path, ledger: SoundLedger) -> None:
    header = bytearray(ledger.tiny.transactions[ledger.cat].header_bytes)
    header[80] ^= 1
    change(folder, "UPDATE transactions SET header = ? WHERE id = ?", bytes(header), bytes.fromhex(ledger.cat))


def model_changed(folder: Path, ledger: SoundLedger) -> None:
    header = ledger.tiny.transactions[ledger.cat].header
    model = bytearray(ledger.tiny.models[header.model_digest])
    model[-2] ^= 1
    change(
        folder,
        "UPDATE model_pieces SET data = ? WHERE model = (SELECT arrival FROM models WHERE digest = ?)",
        bytes(model),
        bytes.fromhex(header.model_digest),
    )


def model_piece_gone(folder: Path, ledger: SoundLedger) -> None:
    header = ledger.tiny.transactions[ledger.cat].header
    change(
        folder,
        "DELETE FROM model_pieces WHERE model = (SELECT arrival FROM models WHERE digest = ?)",
        bytes.fromhex(header.model_digest),
    )


def evidence_changed(folder: Path, ledger: SoundLedger) -> None:
    digest = ledger.tiny.transactions[ledger.cat].header.attachment_digest
    change(folder, "UPDATE attachments SET data = ? WHERE digest = ?", b"{}", bytes.fromhex(digest))


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (header_changed, "header-tampered"),
        (model_changed, "model-corrupt"),
        (model_piece_gone, "model-corrupt"),
        (evidence_changed, "attachment-corrupt"),
    ],
)
def test_what_is_changed_in_the_database_is_named(
    damage: Callable[[Path, SoundLedger], None], kind: str, tmp_path: Path
) -> None:
    ledger = stored(tmp_path)
    damage(tmp_path, ledger)
    assert found(tmp_path) == {(kind, ledger.cat)}


def test_looking_for_a_ledger_makes_none(tmp_path: Path) -> None:
    with pytest.raises(GenesisError, match="dag-acfl ledger init"), open_source(str(tmp_path)):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_is_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="no such file or folder"), open_source(str(tmp_path / "x")):
        pass
