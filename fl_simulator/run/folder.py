"""The folder of a run: what was asked, what came of each round, and where an interrupted run goes on.

    results/<name>/
      scenario.toml      what was asked, with every default written out
      run.json           which experiment, row, column and seed of a table the run belongs to
      environment.json   versions, processor, seed and commit; of each resumption, too
      rounds.csv         a row for each round, written when the round ends; columns are ``RoundRecord``'s, those that
                         the method has; cells are empty in rounds without an evaluation
      clients.csv        accuracy and loss of every client at the last evaluation of a finished run
      checkpoint.npz     all that the next round depends on
      summary.json       written last: a run that has it is finished
      edges.csv          a line for each model that went into an average (``run.trace``)
      evidence.jsonl     of a method with a ledger: a line for each selection (``run.trace``)
      trace_end.txt      the first round that the two lack, where they reached their bound
      choices.json       of a method with a ledger: what its clients were offered in the last round, and took
      ledger.dagacfl     of a method with a ledger; written by who drives the run

Rules:

* One process writes to a folder, and holds its lock. A run is not begun where another one has rounds, unless told.
* Every file is replaced whole: who reads it, or finds it after a crash, has the old or the new. Only ``rounds.csv``
  grows by lines between two checkpoints.
* A checkpoint never knows of a round that ``rounds.csv`` does not: rounds reach the disk before it.
* Resuming drops what came after the checkpoint, a torn last line too: those rounds are done again, to the same figures.

What is measured, and when a checkpoint is due, is decided by the engine.
"""

import fcntl
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from fl_simulator.errors import ResultsError, RunExistsError, SimulationError
from fl_simulator.run.environment import describe_environment
from fl_simulator.run.record import ROUND_COLUMNS, RoundRecord, RunLabel, summarise_rounds
from fl_simulator.strategies.protocol import Choice, State

SCENARIO: Final = "scenario.toml"
LABEL: Final = "run.json"
ENVIRONMENT: Final = "environment.json"
ROUNDS: Final = "rounds.csv"
CLIENTS: Final = "clients.csv"
CHECKPOINT: Final = "checkpoint.npz"
SUMMARY: Final = "summary.json"
CHOICES: Final = "choices.json"
LEDGER: Final = "ledger.dagacfl"
EDGES: Final = "edges.csv"
EVIDENCE: Final = "evidence.jsonl"
TRACE_END: Final = "trace_end.txt"
_LOCK: Final = ".lock"
RUN_FILES: Final = (
    SCENARIO,
    LABEL,
    ENVIRONMENT,
    ROUNDS,
    CLIENTS,
    CHECKPOINT,
    SUMMARY,
    CHOICES,
    LEDGER,
    EDGES,
    EVIDENCE,
    TRACE_END,
)
"""All files of a run; others in its folder are somebody else's."""

_NUM_RECORDS: Final = "rounds"
_STATE: Final = "state."
_KEPT_CHOICES: Final = 100
_MOST_BYTES: Final = 1 << 28
_SEQUENCES: Final = ("offered", "taken", "similarities", "update_similarities", "probabilities")


class RunFolder:
    """One run's folder, open for writing; ``open`` makes one.

    Use it as a context manager, or ``close`` it: the folder is locked meanwhile.

    Attributes:
        path: The folder.
        label: Where the run stands.
        records: The rounds so far.
        resumed_from: The state to go on from; None for a run at its beginning.
    """

    def __init__(
        self,
        path: Path,
        lock: IO[bytes],
        *,
        label: RunLabel,
        records: Iterable[RoundRecord] = (),
        resumed_from: State | None = None,
    ) -> None:
        self.path: Path = path
        self.label: RunLabel = label
        self.resumed_from: State | None = resumed_from
        self.records: list[RoundRecord] = list(records)
        self._lock = lock
        self._rewrite_rounds()

    @classmethod
    def open(cls, path: Path, *, scenario: str, label: RunLabel, overwrite: bool = False) -> Self:
        """Begin a run, or go on with the one in the folder: from its last checkpoint, or again where it has none.

        Args:
            path: Made, with its parents, if it is not there.
            scenario: The resolved scenario, TOML.
            label: Where the run stands.
            overwrite: Begin anew, whatever run is in the folder; files that are no run's stay.

        Raises:
            RunExistsError: The run is finished.
            ResultsError: A file is damaged, or missing.
            SimulationError: The folder has rounds of another scenario, another process writes to it, or it cannot be
                written.
        """
        with _locked(path) as lock:
            if overwrite or not _holds_a_run(path):
                with _named(path):
                    for name in RUN_FILES:
                        (path / name).unlink(missing_ok=True)
                # The scenario comes last: where it is, all the others are.
                _write_json(path / ENVIRONMENT, describe_environment(seed=label.seed))
                _write(path / ROUNDS, b"")
                _write_json(path / LABEL, asdict(label))
                _write(path / SCENARIO, scenario.encode())
                return cls(path, lock, label=label)
            if _read(path / SCENARIO) != scenario.encode():
                raise SimulationError(
                    f"{path} holds a run of another scenario than this one (its {SCENARIO} differs); "
                    "choose another folder with --out, or begin anew with --overwrite"
                )
            if is_finished(path):
                raise RunExistsError(path)
            state, num_records = _read_checkpoint(path / CHECKPOINT)
            records = read_rounds(path, most=num_records)
            if len(records) < num_records:
                raise ResultsError(
                    f"{path / ROUNDS} has {len(records)} rounds, and {CHECKPOINT} knows of {num_records}"
                )
            environment = _read_json(path / ENVIRONMENT)
            environment.setdefault("resumed", []).append(describe_environment(seed=label.seed))
            _write_json(path / ENVIRONMENT, environment)
            return cls(path, lock, label=label, records=records, resumed_from=state)

    def append(self, record: RoundRecord) -> None:
        """Add a round, later than the last one, and flush it: a killed process loses none."""
        self.records.append(record)
        row = record.to_row()
        if row.keys() <= set(self._columns):
            with _named(self.path / ROUNDS):
                self._rounds.write(_csv_line(row.get(name, "") for name in self._columns))
                self._rounds.flush()
        else:  # the first round, and the first evaluated one: they bring columns
            self._rounds.close()
            self._rewrite_rounds()

    def save_checkpoint(self, state: State) -> None:
        """Make the end of the last round the place where the run goes on.

        Raises:
            ValueError: An array holds Python objects.
            SimulationError: The folder cannot be written, for want of space perhaps.
        """
        for name, array in state.items():
            if array.dtype.hasobject:
                raise ValueError(f"{name} holds Python objects")
        self._sync_rounds()
        arrays: dict[str, Any] = {f"{_STATE}{name}": array for name, array in state.items()}
        arrays[_NUM_RECORDS] = np.array(len(self.records))
        _replace(self.path / CHECKPOINT, lambda file: np.savez(file, **arrays))

    def save_choices(self, choices: Sequence[Choice], clusters: NDArray[np.int64]) -> None:
        """Keep the first few of a round's selections, for pictures."""
        kept = [
            {"client": each.client, **{name: getattr(each, name).tolist() for name in _SEQUENCES}}
            for each in choices[:_KEPT_CHOICES]
        ]
        _write(self.path / CHOICES, json.dumps({"clusters": clusters.tolist(), "choices": kept}).encode())

    def finish(self, more: Mapping[str, Any] | None = None, *, clients: Iterable[tuple[object, ...]] = ()) -> None:
        """Write ``summary.json``, after which the run is finished, and let the checkpoint go.

        Args:
            more: What the summary tells beside the rounds, JSON.
            clients: Of every client that was evaluated last its number, accuracy and loss, and 1 if a result of it was
                ever taken, else 0.
        """
        summary = {**(more or {}), **summarise_rounds(self.records), "label": asdict(self.label)}
        self._sync_rounds()
        lines = [_csv_line(map(str, each)) for each in clients]
        _write(self.path / CLIENTS, b"".join([_csv_line(("client", "accuracy", "loss", "heard")), *lines]))
        _write_json(self.path / SUMMARY, summary)
        (self.path / CHECKPOINT).unlink(missing_ok=True)

    def close(self) -> None:
        """Let the folder go; a closed one is not used again. Closing twice is the same."""
        try:
            self._rounds.close()
        finally:
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _rewrite_rounds(self) -> None:
        """Write all rounds anew, with the columns that one of them has, and go on behind them."""
        rows = [record.to_row() for record in self.records]
        known = {name: None for row in rows for name in row}
        works = (name for name in known if name not in ROUND_COLUMNS)
        self._columns = (*(name for name in ROUND_COLUMNS if name in known), *works)
        lines = [_csv_line(row.get(name, "") for name in self._columns) for row in rows]
        _write(self.path / ROUNDS, b"".join([_csv_line(self._columns), *lines]) if rows else b"")
        with _named(self.path / ROUNDS):
            self._rounds = (self.path / ROUNDS).open("ab")

    def _sync_rounds(self) -> None:
        with _named(self.path / ROUNDS):
            os.fsync(self._rounds.fileno())


def is_finished(path: Path) -> bool:
    return (path / SUMMARY).exists()


def read_rounds(path: Path, *, most: int | None = None) -> list[RoundRecord]:
    """The rounds of the run in a folder, or the first so many; one that is being written may be read, too."""
    file = path / ROUNDS
    head, *lines = _read(file).decode(errors="replace").split("\n")
    columns, whole = head.split(","), lines[:-1]  # what follows the last line break is torn, or nothing
    records = []
    for number, line in enumerate(whole[:most], start=2):
        try:
            records.append(RoundRecord.from_row(dict(zip(columns, line.split(","), strict=True))))
        except (ValueError, ResultsError) as error:
            raise ResultsError(f"{file}, line {number}: {error}") from error
    return records


def read_summary(path: Path) -> dict[str, Any]:
    """What a finished run's summary says."""
    return _read_json(path / SUMMARY)


def read_label(path: Path) -> RunLabel:
    """Where the run in a folder stands."""
    try:
        return RunLabel(**_read_json(path / LABEL))
    except TypeError as error:
        raise ResultsError(f"{path / LABEL} is damaged: {error}") from error


def _holds_a_run(path: Path) -> bool:
    """Whether there is something to lose: a refused scenario leaves a folder without rounds."""
    rounds = path / ROUNDS
    has_rounds = (path / CHECKPOINT).exists() or (rounds.exists() and rounds.stat().st_size > 0)
    return is_finished(path) or ((path / SCENARIO).exists() and has_rounds)


@contextmanager
def _locked(path: Path) -> Iterator[IO[bytes]]:
    """The folder's lock, which is kept unless the block fails; the system lets it go when the process ends."""
    with _named(path):
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / _LOCK).open("ab")
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SimulationError(
                f"another process writes to {path}; wait until it is done, or choose another folder with --out"
            ) from None
        yield lock
    except BaseException:
        lock.close()
        raise


def _csv_line(cells: Iterable[str]) -> bytes:
    return (",".join(cells) + "\n").encode()  # names and numbers: nothing to quote


def _write_json(path: Path, value: object) -> None:
    _write(path, (json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2) + "\n").encode())


def _write(path: Path, content: bytes) -> None:
    _replace(path, lambda file: file.write(content))


def _replace(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Replace a file durably: whoever reads it finds the old content or the new one, whole."""
    draft = path.with_name(f".{path.name}.draft")
    with _named(path):
        with draft.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _read_checkpoint(file: Path) -> tuple[State | None, int]:
    """The state, and how many rounds led to it; None and 0 where there is no checkpoint."""
    if not file.exists():
        return None, 0
    try:
        with file.open("rb") as opened, np.lib.npyio.NpzFile(opened, allow_pickle=False) as saved:
            arrays = dict(saved)
        num_records = int(arrays.pop(_NUM_RECORDS))
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise ResultsError(f"{file} is damaged: {error!r}") from error
    return {name.removeprefix(_STATE): array for name, array in arrays.items()}, num_records


def _read_json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(_read(file))
    except (ValueError, RecursionError) as error:
        raise ResultsError(f"{file} is damaged: {error}") from error
    if not isinstance(value, dict):
        raise ResultsError(f"{file} is damaged: it holds no JSON object")
    return value


def _read(file: Path) -> bytes:
    try:
        # A folder of somebody else's may hold a link to a device or a pipe, which never ends.
        if (found := file.stat()).st_size > _MOST_BYTES or not (file.is_file() or file.is_dir()):
            raise ResultsError(f"{file} cannot be read: it is no file, or has {found.st_size} bytes")
        return file.read_bytes()
    except OSError as error:
        raise ResultsError(f"{file} cannot be read: {error.strerror}") from error


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SimulationError(f"{path} cannot be written: {error.strerror}") from error
