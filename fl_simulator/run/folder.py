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
      choices.npz        of a method with a ledger: what its clients were offered in the last round, and took
      ledger.dagacfl     of a method with a ledger; written by who drives the run

Rules:

* One process writes to a folder, and holds its lock. A run is not started where another one is, unless told.
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
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from fl_simulator.errors import ResultsError, RunExistsError, SimulationError
from fl_simulator.run.environment import describe_environment
from fl_simulator.run.record import (
    ROUND_COLUMNS,
    Checkpoint,
    ClientFigures,
    CostSummary,
    RoundRecord,
    RunLabel,
    RunSummary,
    summarise_run,
)
from fl_simulator.strategies.protocol import Choice

SCENARIO: Final = "scenario.toml"
LABEL: Final = "run.json"
ENVIRONMENT: Final = "environment.json"
ROUNDS: Final = "rounds.csv"
CLIENTS: Final = "clients.csv"
CHECKPOINT: Final = "checkpoint.npz"
SUMMARY: Final = "summary.json"
CHOICES: Final = "choices.npz"
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

_CHECKPOINT_FORMAT: Final = 2
_ABOUT: Final = "about"
_KEPT_CHOICES: Final = 100
_SEQUENCES: Final = ("offered", "similarities", "update_similarities", "probabilities")
_STATE: Final = "state."
_COSTS: Final = "costs"


class RunFolder:
    """One run's folder, open for writing; ``create`` or ``resume`` makes one.

    Use it as a context manager, or ``close`` it: the folder is locked meanwhile.
    """

    def __init__(self, path: Path, lock: int, *, label: RunLabel, recovered: "_Recovered") -> None:
        self._path = path
        self._lock = lock
        self._label = label
        self._records = list(recovered.records)
        self._clients: ClientFigures | None = None
        self._resumed_from = recovered.checkpoint
        self._columns: tuple[str, ...] = ()
        self._rounds: IO[bytes] | None = None
        self._rewrite_rounds()

    @classmethod
    def create(cls, path: Path, *, scenario: str, label: RunLabel, overwrite: bool = False) -> Self:
        """Begin a run in a new or empty folder.

        Args:
            path: Made, with its parents, if it is not there.
            scenario: The resolved scenario, TOML.
            label: Where the run stands.
            overwrite: Remove the run that is in the folder, if one is; other files stay.

        Raises:
            RunExistsError: There is a run in the folder already.
            SimulationError: Another process writes to it, or it cannot be written.
        """
        with _locked(path) as lock:
            if _holds_run(path) and not overwrite:
                raise RunExistsError(path, finished=(path / SUMMARY).exists())
            with _named(path):
                for name in RUN_FILES:
                    (path / name).unlink(missing_ok=True)
            # The scenario comes last: where it is, all the others are.
            _write_json(path / ENVIRONMENT, describe_environment(seed=label.seed))
            _write(path / ROUNDS, b"")
            _write_json(path / LABEL, label.to_json())
            _write(path / SCENARIO, scenario.encode())
            return cls(path, lock, label=label, recovered=_Recovered())

    @classmethod
    def resume(cls, path: Path, *, scenario: str) -> Self:
        """Go on with the run in a folder, from its last checkpoint, or from the beginning where it has none.

        Args:
            path: The folder.
            scenario: The resolved scenario; it must be the folder's.

        Raises:
            RunExistsError: The run is finished.
            ResultsError: A file is damaged, or missing.
            SimulationError: There is no run, or one of another scenario, or another process writes to it.
        """
        if not (path / SCENARIO).is_file():
            raise SimulationError(f"{path} holds no run to resume")
        with _locked(path) as lock:
            if _read(path / SCENARIO) != scenario.encode():
                raise SimulationError(
                    f"{path} holds a run of another scenario than this one (its {SCENARIO} differs); "
                    "choose another folder with --out, or begin anew with --overwrite"
                )
            if (path / SUMMARY).exists():
                raise RunExistsError(path, finished=True)
            label = read_label(path)
            about = _read_json(path / ENVIRONMENT)
            recovered = _recover(path)
            about.setdefault("resumed", []).append(describe_environment(seed=label.seed))
            _write_json(path / ENVIRONMENT, about)
            return cls(path, lock, label=label, recovered=recovered)

    @property
    def path(self) -> Path:
        """The folder."""
        return self._path

    @property
    def label(self) -> RunLabel:
        """Where the run stands."""
        return self._label

    @property
    def records(self) -> tuple[RoundRecord, ...]:
        """The rounds so far."""
        return tuple(self._records)

    @property
    def resumed_from(self) -> Checkpoint | None:
        """The checkpoint to go on from; None for a run at its beginning."""
        return self._resumed_from

    def append(self, record: RoundRecord, *, clients: ClientFigures | None = None) -> None:
        """Add a round, and flush it: a killed process loses none.

        Args:
            record: A later round than the last one.
            clients: Every client's figures, where the round was evaluated.
        """
        if self._records and record.round <= self._records[-1].round:
            raise ValueError(f"round {record.round} comes after round {self._records[-1].round}")
        assert self._rounds is not None, "the folder is closed"
        self._records.append(record)
        self._clients = clients or self._clients
        row = record.to_row()
        if row.keys() <= set(self._columns):
            with _named(self._path / ROUNDS):
                self._rounds.write(_csv_line(row.get(name, "") for name in self._columns))
                self._rounds.flush()
        else:  # the first round, and the first evaluated one: they bring columns
            self._rewrite_rounds()

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Make this the place where the run goes on.

        Raises:
            ValueError: An array holds Python objects.
            SimulationError: The folder cannot be written, for want of space perhaps.
        """
        for name, array in checkpoint.state.items():
            if array.dtype.hasobject:
                raise ValueError(f"{name} holds Python objects")
        self._sync_rounds()
        about = {"format": _CHECKPOINT_FORMAT, "next_round": checkpoint.next_round, "records": len(self._records)}
        arrays: dict[str, Any] = {f"{_STATE}{name}": array for name, array in checkpoint.state.items()}
        arrays[_ABOUT] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        _replace(self._path / CHECKPOINT, lambda file: np.savez(file, **arrays))

    def save_choices(self, choices: Sequence[Choice], clusters: NDArray[np.int64]) -> None:
        """Keep the first few of a round's selections, for pictures.

        Args:
            choices: The round's.
            clusters: Each client's true cluster, shape ``(C,)``.
        """
        kept = choices[:_KEPT_CHOICES]
        arrays: dict[str, Any] = {
            "clusters": clusters,
            "client": np.array([each.client for each in kept], dtype=np.int64),
            "taken": np.array([len(each.taken) for each in kept], dtype=np.int64),
        }
        for name in _SEQUENCES:
            those = [getattr(each, name) for each in kept]
            arrays[name] = np.concatenate(those) if those else np.empty(0)
            arrays[f"{name}_ends"] = np.cumsum([len(each) for each in those])
        _replace(self._path / CHOICES, lambda file: np.savez_compressed(file, **arrays))

    def finish(self, extra: Mapping[str, Any] | None = None, *, costs: CostSummary | None = None) -> RunSummary:
        """Write ``summary.json``, after which the run is finished, and let the checkpoint go.

        Args:
            extra: Further members of the summary, JSON.
            costs: Beside the formulas of [DAG-ACFL] Tables III and IV, for a method that has them.

        Raises:
            SimulationError: No round was evaluated, or the folder cannot be written.
        """
        summary = summarise_run(self._records)
        self._sync_rounds()
        if self._clients is not None:
            _write(self._path / CLIENTS, _clients_csv(self._clients))
        content = {**(extra or {}), **summary.to_json(), "label": self._label.to_json()}
        if costs is not None:
            content[_COSTS] = costs.to_json()
        _write_json(self._path / SUMMARY, content)
        (self._path / CHECKPOINT).unlink(missing_ok=True)
        return summary

    def close(self) -> None:
        """Let the folder go; a closed one is not used again. Closing twice is the same."""
        rounds, self._rounds = self._rounds, None
        lock, self._lock = self._lock, -1
        try:
            if rounds is not None:
                rounds.close()
        finally:
            if lock >= 0:
                os.close(lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _rewrite_rounds(self) -> None:
        """Write all rounds anew, with the columns that one of them has, and go on behind them."""
        if self._rounds is not None:
            self._rounds.close()
        rows = [record.to_row() for record in self._records]
        known = {name: None for row in rows for name in row}
        works = (name for name in known if name not in ROUND_COLUMNS)
        self._columns = (*(name for name in ROUND_COLUMNS if name in known), *works)
        lines = [_csv_line(row.get(name, "") for name in self._columns) for row in rows]
        _write(self._path / ROUNDS, b"".join([_csv_line(self._columns), *lines]) if rows else b"")
        with _named(self._path / ROUNDS):
            self._rounds = (self._path / ROUNDS).open("ab")

    def _sync_rounds(self) -> None:
        assert self._rounds is not None, "the folder is closed"
        with _named(self._path / ROUNDS):
            os.fsync(self._rounds.fileno())


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A folder as a reader finds it, finished or not.

    Attributes:
        path: The folder.
        label: Where the run stands.
        records: The rounds so far, whole lines only.
        finished: Whether it has a summary.
        costs: The summary's, if it has any.
        gini: The summary's: how unequally labels are shared out; None of an unfinished run.
        edges_per_node: The summary's, of a method on a graph.
    """

    path: Path
    label: RunLabel
    records: tuple[RoundRecord, ...]
    finished: bool
    costs: CostSummary | None = None
    gini: float | None = None
    edges_per_node: float | None = None

    @property
    def summary(self) -> RunSummary:
        """The rounds in short.

        Raises:
            SimulationError: None of them was evaluated.
        """
        return summarise_run(self.records)

    @property
    def duration_s(self) -> float | None:
        """Virtual seconds of a run in virtual time, an unfinished one's by its first moment; None for one in rounds."""
        if not self.records or self.records[0].results is None:
            return None
        return self.records[-1].virtual_time_s if self.finished else self.label.rounds * self.records[0].virtual_time_s


def read_run(path: Path) -> Run:
    """The run in a folder; one that is being written may be read, too.

    Raises:
        ResultsError: A file is missing or damaged.
    """
    label = read_label(path)
    records = _read_rounds(path / ROUNDS)
    if not (path / SUMMARY).exists():
        return Run(path, label, records, finished=False)
    summary = _read_json(path / SUMMARY)
    costs = summary.get(_COSTS)
    return Run(
        path,
        label,
        records,
        finished=True,
        costs=None if costs is None else CostSummary.from_json(costs),
        gini=_read_number(summary, "gini", path / SUMMARY),
        edges_per_node=_read_number(summary, "edges_per_node", path / SUMMARY),
    )


def read_label(path: Path) -> RunLabel:
    """Where the run in a folder stands.

    Raises:
        ResultsError: There is none, or it is damaged.
    """
    file = path / LABEL
    try:
        return RunLabel.from_json(_read_json(file))
    except ResultsError as error:
        raise ResultsError(f"{file} cannot be read: {error}") from error


def read_choices(path: Path) -> tuple[list[Choice], NDArray[np.int64]] | None:
    """The selections of a run's last round, and each client's true cluster; None where none were kept.

    Of ``taken`` the clients are the first of ``offered``, as with every ranking.

    Raises:
        ResultsError: The file is damaged.
    """
    file = path / CHOICES
    if not file.exists():
        return None
    arrays = _read_arrays(file)
    try:
        parts = {name: np.split(arrays[name], arrays[f"{name}_ends"][:-1]) for name in _SEQUENCES}
        choices = [
            Choice(
                client=int(client),
                taken=parts["offered"][place][:taken],
                **{name: parts[name][place] for name in _SEQUENCES},
            )
            for place, (client, taken) in enumerate(zip(arrays["client"], arrays["taken"], strict=True))
        ]
        return choices, arrays["clusters"]
    except (KeyError, IndexError, ValueError) as error:
        raise ResultsError(f"{file} is damaged: {error!r}") from error


@dataclass(frozen=True, slots=True, eq=False)
class _Recovered:
    """What a folder knows of its run's past, up to the checkpoint."""

    records: tuple[RoundRecord, ...] = ()
    checkpoint: Checkpoint | None = None


def _recover(path: Path) -> _Recovered:
    """Take up what the checkpoint knows of; what came after it is left to be done again."""
    found = _read_checkpoint(path / CHECKPOINT)
    if found is None:
        return _Recovered()
    checkpoint, rounds = found
    records = _read_rounds(path / ROUNDS, most=rounds)
    if len(records) < rounds:
        raise ResultsError(f"{path / ROUNDS} has {len(records)} rounds, and {CHECKPOINT} knows of {rounds}")
    return _Recovered(records, checkpoint)


def _holds_run(path: Path) -> bool:
    rounds = path / ROUNDS
    return (path / SCENARIO).exists() or (rounds.exists() and rounds.stat().st_size > 0)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The folder's lock, which is kept unless the block fails; the system lets it go when the process ends."""
    with _named(path):
        path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SimulationError(
                f"another process writes to {path}; wait until it is done, or choose another folder with --out"
            ) from None
        yield lock
    except BaseException:
        os.close(lock)
        raise


def _csv_line(cells: Iterable[str]) -> bytes:
    return (",".join(cells) + "\n").encode()  # names and numbers: nothing to quote


def _clients_csv(clients: ClientFigures) -> bytes:
    """A line for each client that was evaluated."""
    lines = [
        _csv_line((str(client), str(accuracy), str(loss)))
        for client, (accuracy, loss) in enumerate(zip(clients.accuracy, clients.loss, strict=True))
        if np.isfinite(accuracy)
    ]
    return b"".join([_csv_line(("client", "accuracy", "loss")), *lines])


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


def _read_checkpoint(file: Path) -> tuple[Checkpoint, int] | None:
    """The checkpoint, and how many rounds it knows of; None where there is none."""
    if not file.exists():
        return None
    arrays = _read_arrays(file)
    try:
        about = json.loads(arrays.pop(_ABOUT).tobytes())
        if about["format"] != _CHECKPOINT_FORMAT:
            raise ResultsError(f"{file} has format {about['format']}, and this version reads {_CHECKPOINT_FORMAT}")
        state = {name.removeprefix(_STATE): array for name, array in arrays.items()}
        return Checkpoint(int(about["next_round"]), state), int(about["records"])
    except (KeyError, ValueError, TypeError) as error:
        raise ResultsError(f"{file} is no checkpoint: {error!r}") from error


def _read_arrays(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened, np.lib.npyio.NpzFile(opened, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ResultsError(f"{file} is damaged: {error}") from error


def _read_rounds(file: Path, *, most: int | None = None) -> tuple[RoundRecord, ...]:
    """The rounds of whole lines, or the first so many of them."""
    head, *lines = _read(file).decode(errors="replace").split("\n")
    columns, whole = head.split(","), lines[:-1]  # what follows the last line break is torn, or nothing
    records = []
    for number, line in enumerate(whole[:most], start=2):
        try:
            records.append(RoundRecord.from_row(dict(zip(columns, line.split(","), strict=True))))
        except (ValueError, ResultsError) as error:
            raise ResultsError(f"{file}, line {number}: {error}") from error
    return tuple(records)


def _read_number(content: Mapping[str, Any], name: str, file: Path) -> float | None:
    value = content.get(name)
    if value is None or type(value) in (int, float):
        return value
    raise ResultsError(f"{file} is damaged: {name} is {value!r}, which is no number")


def _read_json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(_read(file))
    except ValueError as error:
        raise ResultsError(f"{file} is damaged: {error}") from error
    if not isinstance(value, dict):
        raise ResultsError(f"{file} is damaged: it holds no JSON object")
    return value


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ResultsError(f"{file} cannot be read: {error.strerror}") from error


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SimulationError(f"{path} cannot be written: {error.strerror}") from error


__all__ = [
    "CHECKPOINT",
    "CHOICES",
    "CLIENTS",
    "EDGES",
    "ENVIRONMENT",
    "EVIDENCE",
    "LABEL",
    "LEDGER",
    "ROUNDS",
    "RUN_FILES",
    "SCENARIO",
    "SUMMARY",
    "TRACE_END",
    "Checkpoint",
    "ClientFigures",
    "CostSummary",
    "RoundRecord",
    "Run",
    "RunFolder",
    "RunLabel",
    "RunSummary",
    "read_choices",
    "read_label",
    "read_run",
    "summarise_run",
]
