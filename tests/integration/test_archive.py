"""Evidence that is moved to an archive: gone from the database, proven as before beside the archive, never lost."""

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from dag_acfl.__main__ import main
from fl_core.dag.transaction import Transaction
from fl_core.errors import EvidenceArchivedError, SelectionUnknownError
from fl_core.types import Digest, digest_of
from fl_core.verify import Finding, VerifyProgress, verify
from fl_core.wire import v1
from ledger_server.admin.archive import ArchiveError, ArchiveReport, archive, measure
from ledger_server.admin.bundle import Bundle, BundleError, write_bundle
from ledger_server.admin.importing import ImportRefusedError, import_bundle
from ledger_server.admin.store_source import StoreSource
from ledger_server.founding import create_ledger
from ledger_server.pruning import prune
from ledger_server.publishing import LedgerService
from ledger_server.settings import load_settings
from ledger_server.store import open_store
from ledger_server.store.journal import Store
from tests.archive_crash import KILLED, archive_until
from tests.builders import CREATED_AT_MS, ISSUER, make_genesis, model
from tests.faults.harness import forked
from tests.integration.test_pruning import grow, secret
from tests.integration.test_service import NOW_MS, publish, service_on
from tests.serving import serving

AUTHORS, ROUNDS = 3, 4
SELECTIONS = AUTHORS * ROUNDS
"""Each author publishes once, then by a selection in each round: a second apart."""
END_MS = NOW_MS + 10**9


@pytest.fixture
def journal(database_url: str, tmp_path: Path) -> Iterator[Store]:
    with open_store(database_url, data_dir=tmp_path / "site") as store:
        genesis = make_genesis(selector_params={"k": 3}, max_parents=4, freshness_s=30)
        create_ledger(store, genesis, model(1, 1, 1, 1), key=ISSUER, now_ms=CREATED_AT_MS)
        yield store


@pytest.fixture
def service(journal: Store) -> Iterator[LedgerService]:
    ticks = count(NOW_MS, 1000)
    running = service_on(journal, now_ms=lambda: next(ticks))
    grow(running, rounds=ROUNDS)
    yield running
    running.close()


def stored_at(store: Store, arrival: int) -> int:
    """When the transaction of this arrival was stored: what is older than this ends before it."""
    return store.page(after=arrival - 1, limit=1)[0].received_at_ms


def named(store: Store) -> list[Digest]:
    """The evidence that updates name, in order of arrival."""
    return [each.attachment for each in store.named(after=0, limit=1000) if each.attachment is not None]


def here(store: Store) -> list[Digest]:
    found = store.evidence_here(named(store))
    return [each for each in named(store) if each in found]


def proof(store: Store, *files: Path) -> tuple[VerifyProgress, list[Finding]]:
    """What a verification of a ledger came to, beside its archives."""
    seen: list[VerifyProgress] = []
    with ExitStack() as opened:
        archives = [opened.enter_context(Bundle(each)) for each in files]
        findings = list(verify(StoreSource(store), archives=archives, progress=seen.append))
    return seen[-1], findings


def proof_of(file: Path) -> VerifyProgress:
    """What a verification of a bundle by itself came to, in which nothing is wrong."""
    seen: list[VerifyProgress] = []
    with Bundle(file) as bundle:
        assert list(verify(bundle, progress=seen.append)) == []
    return seen[-1]


def move(store: Store, file: Path, *, before_ms: int = END_MS) -> ArchiveReport:
    return archive(store, file, before_ms=before_ms, rest=lambda _: None)


# -- what goes and what is proven -----------------------------------------------------------------------


def test_an_archived_ledger_is_proven_as_before_beside_its_archive(service: LedgerService, tmp_path: Path) -> None:
    store, file = service.store, tmp_path / "past.dagacfl"
    before, _ = proof(store)
    headers = list(store.replay())
    middle = 1 + AUTHORS + 5
    asked = measure(store, before_ms=stored_at(store, middle))
    nbytes = sum(store.evidence_here(named(store)[:5]).values())
    assert asked == ArchiveReport(transactions=middle, evidence=5, nbytes=nbytes)
    assert here(store) == named(store), "measuring changes nothing"
    assert move(store, file, before_ms=stored_at(store, middle)) == asked
    assert here(store) == named(store)[5:]
    assert list(store.replay()) == headers, "headers, signatures and figures stay"
    alone, findings = proof(store)
    assert (findings, alone.archived, alone.checked) == ([], 5, before.checked)
    assert proof(store, file) == (before, [])
    by_itself = proof_of(file)
    assert (by_itself.checked, by_itself.models, by_itself.archived) == (middle, 1, 0)


def test_a_ledger_that_was_archived_several_times_needs_all_its_archives(
    service: LedgerService, tmp_path: Path
) -> None:
    store, rng, files = service.store, random.Random(3), list[Path]()
    before, _ = proof(store)
    gone = 0
    for number, middle in enumerate(sorted(rng.sample(range(AUTHORS + 2, len(service.ledger)), k=4))):
        files.append(tmp_path / f"past-{number}.dagacfl")
        earlier, gone = gone, gone + move(store, files[-1], before_ms=stored_at(store, middle)).evidence
        assert here(store) == named(store)[gone:]
        assert proof(store, *files) == (before, [])
        assert proof(store)[0].archived == gone
        assert proof(store, files[-1])[0].archived == proof_of(files[-1]).archived == earlier


def test_pruned_models_do_not_matter_to_an_archive(service: LedgerService, tmp_path: Path) -> None:
    store, file = service.store, tmp_path / "past.dagacfl"
    prune(store, service.snapshot(keep_ms=0), now_ms=lambda: NOW_MS)
    before, _ = proof(store)
    assert move(store, file).evidence == SELECTIONS
    assert proof(store, file) == (before, [])
    assert proof_of(file).pruned == len(service.ledger) - 1, "genesis's model alone is in it"


def test_evidence_that_a_later_update_carries_stays(service: LedgerService, tmp_path: Path) -> None:
    store = service.store
    middle = stored_at(store, len(service.ledger) - 1) + 1
    again = named(store)[-1]
    publish(service, 0.9, selection=again)
    assert move(store, tmp_path / "past.dagacfl", before_ms=middle).evidence == SELECTIONS - 1
    assert here(store) == [again, again]


def test_a_server_goes_on_publishing_by_new_selections(service: LedgerService, tmp_path: Path) -> None:
    store = service.store
    move(store, tmp_path / "past.dagacfl")
    old = named(store)[0]
    newest = store.page(after=len(service.ledger) - 2, limit=1)[0].transaction.id
    with pytest.raises(EvidenceArchivedError, match="moved to an archive"):
        service.attachment(newest)
    with pytest.raises(SelectionUnknownError, match="ask for a new one"):
        service.selections.selection(old)
    selection, _ = service.selections.select_for(newest)
    made = publish(service, 0.7, selection=selection.id).transaction
    assert service.attachment(made) == selection.encoded


# -- what is refused ------------------------------------------------------------------------------------


def test_where_nothing_is_so_old_no_file_is_written(service: LedgerService, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="nothing here is so old"):
        move(service.store, tmp_path / "past.dagacfl", before_ms=stored_at(service.store, AUTHORS))
    assert not (tmp_path / "past.dagacfl").exists()


def test_a_file_that_is_no_archive_of_this_ledger_is_left_alone(service: LedgerService, tmp_path: Path) -> None:
    whole, other = tmp_path / "whole.dagacfl", tmp_path / "other"
    write_bundle(StoreSource(service.store), whole)
    with pytest.raises(ArchiveError, match="no archive of this ledger"):
        move(service.store, whole)
    other.write_bytes(b"something else")
    with pytest.raises(BundleError):
        move(service.store, other)
    assert other.read_bytes() == b"something else"
    assert here(service.store) == named(service.store)


def test_an_archive_that_was_changed_lets_nothing_go(service: LedgerService, tmp_path: Path) -> None:
    store, file = service.store, tmp_path / "past.dagacfl"
    evidence = store.attachment(named(store)[3])
    assert evidence is not None
    write = move(store, file, before_ms=stored_at(store, AUTHORS + 3))
    assert write.evidence == 2
    data = file.read_bytes()
    kept = store.attachment(named(store)[4])
    file.write_bytes(data.replace(b'"cut":', b'"cus":', 1))
    assert file.read_bytes() != data
    with pytest.raises(ArchiveError, match="nothing is archived: attachment-corrupt"):
        move(store, file)
    assert file.exists(), "it is not ours to remove"
    assert store.attachment(named(store)[4]) == kept


def test_a_ledger_with_a_fault_is_not_archived(journal: Store, tmp_path: Path) -> None:
    service = service_on(journal)
    grow(service, rounds=1)
    lost = named(journal)[0]
    service.close()

    class Damaged(Store):
        def attachment(self, digest: Digest) -> bytes | None:
            return b"{}" if digest == lost else super().attachment(digest)

    journal.__class__ = Damaged
    with pytest.raises(ArchiveError, match="attachment-corrupt"):
        move(journal, tmp_path / "past.dagacfl")
    assert not (tmp_path / "past.dagacfl").exists()
    assert here(journal) == named(journal)


def test_an_archive_of_another_ledger_or_of_a_longer_one_is_a_fault(
    service: LedgerService, journal: Store, tmp_path: Path
) -> None:
    file, short = tmp_path / "past.dagacfl", tmp_path / "short"
    move(journal, file)

    class Shorter(StoreSource):
        def transactions(self) -> Iterator[tuple[str, Transaction]]:
            return iter(list(super().transactions())[:-2])

    with Bundle(file) as bundle:
        longer = list(verify(Shorter(journal), archives=[bundle]))
    assert [each.message for each in longer] == ["an archive holds 2 transactions that are not here"]
    with open_store(f"sqlite:///{short}.sqlite3", data_dir=short) as store:
        create_ledger(store, make_genesis(name="other"), model(1, 1, 1, 1), key=ISSUER, now_ms=CREATED_AT_MS)
        _, findings = proof(store, file)
    assert [each.kind for each in findings] == ["archive-mismatch"]


def test_an_archive_is_not_imported(service: LedgerService, tmp_path: Path) -> None:
    move(service.store, tmp_path / "past.dagacfl")
    write_bundle(StoreSource(service.store), tmp_path / "rest.dagacfl")
    rest = proof_of(tmp_path / "rest.dagacfl")
    assert (rest.archived, rest.models) == (SELECTIONS, len(service.ledger)), "an export says what was archived"
    settings = load_settings(data_dir=tmp_path / "new")
    for name in ("past", "rest"):
        with Bundle(tmp_path / f"{name}.dagacfl") as bundle, pytest.raises(ImportRefusedError, match="archived"):
            import_bundle(bundle, settings, progress=lambda *_: None, now_ms=NOW_MS)


# -- killed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["before the file", "after the file", "inside a batch", "between two batches"])
def test_a_crash_loses_nothing_and_the_next_run_finishes(database_url: str, tmp_path: Path, point: str) -> None:
    site, file = tmp_path / "site", tmp_path / "past.dagacfl"
    with open_store(database_url, data_dir=site) as store:
        genesis = make_genesis(selector_params={"k": 3}, max_parents=4)
        create_ledger(store, genesis, model(1, 1, 1, 1), key=ISSUER, now_ms=CREATED_AT_MS)
        service = service_on(store)
        grow(service, rounds=ROUNDS)
        service.close()
        before, _ = proof(store)
        evidence = {each: store.attachment(each) for each in named(store)}
    log = tmp_path / "log"
    killed = forked.start(archive_until, point, database_url, site, file, END_MS, log=log)
    killed.join(60)
    assert killed.exitcode == KILLED, log.read_text()
    with open_store(database_url, data_dir=site) as store:
        begun = SELECTIONS - len(here(store))
        assert begun == (4 if point == "between two batches" else 0)
        assert file.exists() is (point != "before the file")
        assert proof(store, *([file] if file.exists() else [])) == (before, [])
        assert move(store, file).evidence == SELECTIONS - begun
        assert here(store) == []
        with Bundle(file) as bundle:
            assert {each: bundle.attachment(each) for each in evidence} == evidence
        assert proof(store, file) == (before, [])
        assert move(store, file).evidence == 0, "once more changes nothing"


# -- from outside ---------------------------------------------------------------------------------------


def test_the_command_archives_beside_a_running_server_which_says_so(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DAG_ACFL_DATABASE_URL", database_url)
    monkeypatch.setenv("COLUMNS", "200")
    site, file = tmp_path / "site", tmp_path / "past.dagacfl"
    site.mkdir()
    with serving(database_url, site, genesis=make_genesis(selector_params={"k": 3}, freshness_s=10**9)) as server:
        first = server.publish(parents=[server.ledger_id], model=model(1), secret=secret("a"))["id"]
        selection = server.select(first).json()
        update = server.publish(selection=selection["id"], model=model(2), secret=secret("a"))["id"]
        path = v1.path(v1.TRANSACTION_ATTACHMENT, transaction=update)
        evidence = server.get(path).content
        assert digest_of(evidence) == selection["id"]

        command = ["ledger", "archive", str(file), "--data-dir", str(site), "--keep-days"]
        assert main([*command, "10000"]) == 1, "the test's clock stands in 2023"
        assert "nothing here is so old" in capsys.readouterr().err
        assert main([*command, "0", "--dry-run"]) == 0
        assert f"evidence of 1 selection, {len(evidence)} bytes would go" in capsys.readouterr().out
        assert server.get(path).status_code == 200
        assert main([*command, "0", "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert (said["evidence"], said["nbytes"], said["transactions"]) == (1, len(evidence), 3)
        assert said["archive_bytes"] == file.stat().st_size

        gone = server.get(path)
        assert (gone.status_code, gone.json()["type"]) == (410, "/problems/evidence-archived")
        assert server.select(update).status_code == 201
        assert server.get(v1.COSTS).status_code == 200
        assert main(["ledger", "verify", database_url]) == 0
        assert "evidence of 1 selection in an archive that was not given" in capsys.readouterr().out
        assert main(["ledger", "verify", database_url, "--archive", str(file)]) == 0
        assert "archive" not in capsys.readouterr().out
        assert main(["ledger", "verify", str(file)]) == 0
        assert main(["ledger", "inspect", str(file)]) == 0
        assert main(["ledger", "inspect", database_url]) == 0
        capsys.readouterr()
        assert main([*command, "0", "--compact"]) == 0, "finished already, and compacted"
        assert "evidence of 0 selections" in capsys.readouterr().out
        assert server.get(v1.path(v1.TRANSACTION_ATTACHMENT, transaction=server.ledger_id)).status_code == 200
