"""The participant's folder: what a kill leaves behind, and what a person or a disk can do to it."""

import errno
import fcntl
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fl_client import ParticipantState, StateCorruptError, StateError, StateLockedError
from fl_client.state import Measured, Which, read_state, read_whole_model
from fl_core.dag.building import build_update
from fl_core.dag.transaction import Header, transaction_id
from fl_core.errors import WrongLedgerError
from fl_core.types import TxId, digest_of
from tests.builders import START, model

LEDGER = TxId("1" * 64)
MODEL = model(1, 2)


def header_of(state: ParticipantState, model_bytes: bytes = MODEL, *, sequence: int = 0) -> Header:
    return build_update(
        ledger=LEDGER,
        author=state.author,
        sequence=sequence,
        created_at_ms=5,
        num_examples=1,
        start=START,
        model_digest=digest_of(model_bytes),
        model_size=len(model_bytes),
        parents=(LEDGER,),
    ).header


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_the_key_is_made_once_for_the_owner_only(tmp_path: Path) -> None:
    with ParticipantState(tmp_path / "me") as state:
        author = state.author
    key = tmp_path / "me" / "key.pem"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert b"BEGIN PRIVATE KEY" in key.read_bytes()
    with ParticipantState(tmp_path / "me") as again:
        assert again.author == author


def test_a_publication_survives_a_kill_between_sending_and_the_answer(tmp_path: Path) -> None:
    with ParticipantState(tmp_path) as state:
        state.enter(LEDGER)
        header = header_of(state)
        state.begin(header, MODEL)
    with ParticipantState(tmp_path) as after:
        after.enter(LEDGER)
        assert after.pending() == (header, MODEL)
        after.finish(header)
        assert after.pending() is None
    with ParticipantState(tmp_path) as later:
        position = later.enter(LEDGER)
        assert position.transaction == transaction_id(header.encode())
        assert position.sequence == 1
        assert later.newest_model() == MODEL


def test_only_the_newest_model_is_kept(tmp_path: Path) -> None:
    with ParticipantState(tmp_path) as state:
        state.enter(LEDGER)
        for number in range(3):
            header = header_of(state, model(number), sequence=number)
            state.begin(header, model(number))
            state.finish(header)
    name = f"models/{digest_of(model(2))}.safetensors"
    assert files(tmp_path) == {"key.pem", "lock", "participant.json", name}


def test_a_publication_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    with ParticipantState(tmp_path) as state:
        state.enter(LEDGER)
        state.begin(header_of(state), MODEL)
        state.abandon()
        assert state.pending() is None
    assert files(tmp_path) == {"key.pem", "lock", "participant.json"}


def publish(state: ParticipantState, *, sequence: int = 0) -> Header:
    state.enter(LEDGER)
    header = header_of(state, sequence=sequence)
    state.begin(header, MODEL)
    state.finish(header)
    return header


def test_a_folder_serves_one_ledger_from_its_first_publication_on(tmp_path: Path) -> None:
    with ParticipantState(tmp_path) as state:
        state.enter(LEDGER)
        state.begin(header_of(state), MODEL)  # its outcome is not known
        with pytest.raises(WrongLedgerError, match="--state"):
            state.enter(TxId("2" * 64))
    with ParticipantState(tmp_path) as state, pytest.raises(WrongLedgerError, match="--state"):
        state.enter(TxId("2" * 64))


def test_asking_a_ledger_and_being_refused_binds_nothing(tmp_path: Path) -> None:
    other = TxId("2" * 64)
    with ParticipantState(tmp_path) as state:
        state.enter(other)
        state.enter(LEDGER)
        assert files(tmp_path) == {"key.pem", "lock"}
        state.begin(header_of(state), MODEL)
        state.abandon()
    with ParticipantState(tmp_path) as state:
        assert read_state(tmp_path).position is None
        position = state.enter(other)
        assert (position.ledger, position.sequence, position.author) == (other, 0, state.author)


def test_a_folder_can_be_moved(tmp_path: Path) -> None:
    with ParticipantState(tmp_path / "here") as state:
        author, published = state.author, transaction_id(publish(state).encode())
    (tmp_path / "here").rename(tmp_path / "there")
    with ParticipantState(tmp_path / "there") as state:
        position = state.enter(LEDGER)
        assert (state.author, position.transaction, position.sequence) == (author, published, 1)
        assert state.newest_model() == MODEL


# -- looking --------------------------------------------------------------------------------------


def inodes(folder: Path) -> dict[Path, tuple[int, int, int]]:
    found = {path: path.stat() for path in [folder, *folder.rglob("*")]}
    return {path: (stat.st_ino, stat.st_mtime_ns, stat.st_size) for path, stat in found.items()}


def test_a_look_at_a_folder_in_use_says_by_whom_and_changes_nothing(tmp_path: Path) -> None:
    with ParticipantState(tmp_path) as state:
        header = publish(state)
        (tmp_path / "participant.json.draft").write_text("half")
        before = inodes(tmp_path)
        seen = read_state(tmp_path)
        assert inodes(tmp_path) == before
        assert seen.author == state.author
        assert seen.process == f"process {os.getpid()}"
        assert seen.position is not None
        assert seen.position.transaction == transaction_id(header.encode())
    assert read_state(tmp_path).process is None


def test_a_look_at_what_is_no_state_folder_makes_none(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(StateError, match="no state folder"):
            read_state(folder)
    assert list(tmp_path.iterdir()) == []


def test_a_client_that_starts_while_somebody_looks_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ParticipantState(tmp_path):
        pass
    looking = os.open(tmp_path / "lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    monkeypatch.setattr(time, "sleep", lambda _: fcntl.flock(looking, fcntl.LOCK_UN))
    with ParticipantState(tmp_path):
        pass
    os.close(looking)


# -- a full disk ----------------------------------------------------------------------------------


def test_on_a_full_disk_the_folder_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with ParticipantState(tmp_path) as state:
        publish(state)
        before = (tmp_path / "participant.json").read_bytes()
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(StateError, match="No space left on device"):
                state.begin(header_of(state, model(3), sequence=1), model(3))
        assert (tmp_path / "participant.json").read_bytes() == before
        assert state.pending() is None
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)  # the note of who holds the lock
        with ParticipantState(tmp_path) as state:
            assert publish(state, sequence=1).sequence == 1


def test_a_second_process_cannot_use_the_folder(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from fl_client import ParticipantState\n"
        "with ParticipantState(Path(sys.argv[1])): print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(StateLockedError, match=f"process {other.pid}"):
            ParticipantState(tmp_path)
        other.kill()
        other.wait(10)
    with ParticipantState(tmp_path):
        pass


def test_a_draft_that_a_kill_left_does_not_matter(tmp_path: Path) -> None:
    with ParticipantState(tmp_path) as state:
        state.enter(LEDGER)
    (tmp_path / "participant.json.draft").write_text("half")
    (tmp_path / "models" / "x.safetensors.draft").write_text("half")
    with ParticipantState(tmp_path) as state:
        state.enter(LEDGER)
        state.begin(header_of(state), MODEL)
    assert not any(name.endswith(".draft") for name in files(tmp_path))


def _change(**fields: object) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / "participant.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return damage


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda folder: (folder / "participant.json").write_bytes(b""), "participant.json"),
        (lambda folder: (folder / "participant.json").write_bytes(b"\xff\x00"), "participant.json"),
        (lambda folder: (folder / "participant.json").write_bytes(b"[]"), "participant.json"),
        (lambda folder: (folder / "participant.json").write_bytes(b"[" * 100_000), "participant.json"),
        (_change(format="dag-acfl/participant/v9"), "participant.json"),
        (_change(sequence=-1), "participant.json"),
        (_change(sequence="1"), "participant.json"),
        (_change(transaction="abc"), "participant.json"),
        (_change(ledger=None), "participant.json"),
        (_change(pending="00"), "participant.json"),
        (_change(pending=7), "participant.json"),
        (_change(evidence=[]), "participant.json"),
        (_change(evidence={"document": "{}"}), "participant.json"),
        (_change(colour="blue"), "participant.json"),
        (_change(author="key:" + "3" * 64), "participant.json"),
        (lambda folder: (folder / "key.pem").write_bytes(b"no key"), "key.pem"),
        (lambda folder: (folder / "key.pem").unlink(), "key.pem"),
    ],
)
def test_a_damaged_folder_is_refused_with_the_file_and_the_remedy(
    tmp_path: Path, damage: Callable[[Path], None], named: str
) -> None:
    with ParticipantState(tmp_path) as state:
        publish(state)
    damage(tmp_path)
    for opening in (ParticipantState, read_state):
        with pytest.raises(StateCorruptError, match="restore it from a copy") as refused:
            opening(tmp_path)
        assert refused.value.path == tmp_path / named
    # The refusal let the lock go.
    descriptor = os.open(tmp_path / "lock", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


def test_a_new_key_goes_on_where_the_former_one_lies_beside_it(tmp_path: Path) -> None:
    with ParticipantState(tmp_path / "other") as other:
        pass
    with ParticipantState(tmp_path / "me") as state:
        publish(state)
        newest = state.enter(LEDGER)
        state.begin(header_of(state), MODEL)
    (tmp_path / "me" / "key.pem").rename(tmp_path / "me" / "key.old.pem")
    (tmp_path / "other" / "key.pem").rename(tmp_path / "me" / "key.pem")
    for _ in range(2):
        with ParticipantState(tmp_path / "me") as renewed:
            assert renewed.author == other.author != state.author
            position = renewed.enter(LEDGER)
            assert (position.transaction, position.sequence) == (newest.transaction, newest.sequence)
            assert renewed.pending() is None, "the former key signed it, and nobody takes that now"
            publish(renewed, sequence=newest.sequence)
            newest = renewed.enter(LEDGER)


def test_a_lock_that_is_a_link_is_refused_and_what_it_points_to_stays(tmp_path: Path) -> None:
    (tmp_path / "diary").write_text("mine")
    (tmp_path / "lock").symlink_to("diary")
    with pytest.raises(StateError, match="lock cannot be written"):
        ParticipantState(tmp_path)
    assert (tmp_path / "diary").read_text() == "mine"


def test_a_damaged_pending_model_is_refused_and_a_damaged_newest_model_is_done_without(tmp_path: Path) -> None:
    path = tmp_path / "models" / f"{digest_of(MODEL)}.safetensors"
    with ParticipantState(tmp_path) as state:
        state.enter(LEDGER)
        header = header_of(state)
        state.begin(header, MODEL)
        path.write_bytes(b"damaged")
        with pytest.raises(StateCorruptError, match="damaged") as refused:
            state.pending()
        assert refused.value.path == path
        state.begin(header, MODEL)
        state.finish(header)
        path.write_bytes(b"damaged")
        assert state.newest_model() is None


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot be made"):
        ParticipantState(tmp_path / "file" / "me")


# -- whole models ---------------------------------------------------------------------------------


def measured(value: float, *, rest: float | None = None, **metrics: float) -> Measured:
    return Measured(model(value), {} if rest is None else {"head": np.array([rest], np.float32)}, metrics)


def take_step(state: ParticipantState, given: Measured, trained: Measured) -> None:
    state.keep(given=given, trained=trained)
    header = header_of(state, bytes(trained.model), sequence=state.enter(LEDGER).sequence)
    state.begin(header, trained.model)
    state.finish(header)


def bias(folder: Path, which: Which) -> float:
    """The one value by which these models are told apart."""
    found = read_whole_model(folder, which)
    assert found is not None
    return float(found.arrays["fc.bias"][0])


def test_given_trained_and_best_are_kept_and_nothing_else(tmp_path: Path) -> None:
    with ParticipantState(tmp_path) as state:
        state.enter(LEDGER)
        take_step(state, measured(1, accuracy=0.5), measured(2, accuracy=0.7))
        take_step(state, measured(3, accuracy=0.9), measured(4, accuracy=0.6))
        take_step(state, measured(5, accuracy=0.8), measured(6, accuracy=0.8))
    assert (bias(tmp_path, "given"), bias(tmp_path, "trained"), bias(tmp_path, "best")) == (5, 6, 3)
    kept = {f"models/{digest_of(model(value))}.safetensors" for value in (3, 5, 6)}
    assert files(tmp_path) == {"key.pem", "lock", "participant.json"} | kept


@pytest.mark.parametrize(
    ("first", "second", "best"),
    [
        ({"accuracy": 0.7, "loss": 0.1}, {"accuracy": 0.8, "loss": 9.0}, 2),
        ({"accuracy": 0.8, "loss": 0.2}, {"accuracy": 0.8, "loss": 0.1}, 2),
        ({"accuracy": 0.8, "loss": 0.1}, {"accuracy": 0.8, "loss": 0.2}, 1),
        ({"accuracy": 0.8}, {"accuracy": 0.8}, 1),
        ({"loss": 0.2}, {"loss": 0.1}, 2),
        ({"loss": 0.1}, {"loss": float("nan")}, 1),
        ({"accuracy": 0.1}, {"loss": 0.0}, 1),
    ],
)
def test_the_best_has_the_highest_accuracy_then_the_lowest_loss_then_is_the_average(
    tmp_path: Path, first: dict[str, float], second: dict[str, float], best: int
) -> None:
    with ParticipantState(tmp_path) as state:
        state.enter(LEDGER)
        take_step(state, measured(1, **first), measured(2, **second))
    assert bias(tmp_path, "best") == best


def test_of_equals_the_best_is_the_newest(tmp_path: Path) -> None:
    with ParticipantState(tmp_path) as state:
        state.enter(LEDGER)
        take_step(state, measured(1, accuracy=0.8), measured(2, accuracy=0.7))
        take_step(state, measured(3, accuracy=0.8), measured(4, accuracy=0.8))
    assert bias(tmp_path, "best") == 3


def test_the_best_is_found_among_more_figures_than_are_kept(tmp_path: Path) -> None:
    others = {f"f1_{number}": 0.5 for number in range(40)}
    with ParticipantState(tmp_path) as state:
        state.enter(LEDGER)
        take_step(state, measured(1, **others, accuracy=0.9), measured(2, **others, accuracy=0.8))
    assert bias(tmp_path, "best") == 1


def test_where_nothing_is_measured_there_is_no_best(tmp_path: Path) -> None:
    with ParticipantState(tmp_path) as state:
        state.enter(LEDGER)
        take_step(state, measured(1, num_examples=4), measured(2))
        assert read_whole_model(tmp_path, "best") is None
        assert bias(tmp_path, "trained") == 2, "a folder in use is looked at all the same"


def test_what_stays_changes_together_with_what_is_published(tmp_path: Path) -> None:
    def rest(state: ParticipantState) -> float:
        state.enter(LEDGER)
        return float(state.newest_rest()["head"][0])

    with ParticipantState(tmp_path) as state:
        state.enter(LEDGER)
        take_step(state, measured(1, rest=10), measured(2, rest=20))
        state.keep(given=measured(2, rest=20), trained=measured(3, rest=30))
    with ParticipantState(tmp_path) as killed_before_it_was_written_down:
        assert rest(killed_before_it_was_written_down) == 20
        killed_before_it_was_written_down.keep(given=measured(2, rest=20), trained=measured(3, rest=30))
        header = header_of(killed_before_it_was_written_down, model(3), sequence=1)
        killed_before_it_was_written_down.begin(header, model(3))
    with ParticipantState(tmp_path) as killed_while_publishing:
        assert rest(killed_while_publishing) == 20
        killed_while_publishing.begin(header, model(3))
        killed_while_publishing.finish(header)
        assert rest(killed_while_publishing) == 30
        killed_while_publishing.keep(given=measured(3, rest=30), trained=measured(4, rest=40))
        killed_while_publishing.begin(header_of(killed_while_publishing, model(4), sequence=2), model(4))
        killed_while_publishing.abandon()
    with ParticipantState(tmp_path) as refused:
        assert rest(refused) == 30
    found = read_whole_model(tmp_path, "trained")
    assert found is not None
    assert {name: array.reshape(-1)[0] for name, array in found.arrays.items()} == {
        "fc.bias": 3,
        "fc.weight": 0,
        "head": 30,
    }


def test_a_rest_that_is_lost_is_not_begun_anew_in_silence(tmp_path: Path) -> None:
    with ParticipantState(tmp_path) as state:
        state.enter(LEDGER)
        take_step(state, measured(1, rest=10), measured(2, rest=20))
        assert state.position is not None
        assert state.position.trained is not None
        (tmp_path / "models" / f"{state.position.trained.rest}.safetensors").unlink()
        with pytest.raises(StateCorruptError, match="missing or damaged"):
            state.newest_rest()
    with pytest.raises(StateCorruptError, match="what belongs to it"):
        read_whole_model(tmp_path, "trained")
