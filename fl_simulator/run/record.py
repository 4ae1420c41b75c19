"""The values that a run's folder is made of: rounds as rows of ``rounds.csv``, the others as JSON.

    >>> record = RoundRecord(round=0, virtual_time_s=1.0, participants=2, up_bytes=8, down_bytes=8, accuracy=0.5)
    >>> RoundRecord.from_row(record.to_row()) == record
    True

Reading is strict: an unknown column or member, a missing one or a wrong type is refused, so that a folder of another
version is noticed where it is read. ``folder`` reads and writes the files.
"""

import dataclasses
import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from fl_simulator.errors import ResultsError, SimulationError

_ValueT = TypeVar("_ValueT")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """What came of one round. None where a method has no such figure, or where the round was not evaluated.

    Attributes:
        round: From 0.
        virtual_time_s: The virtual clock at the round's end; the number of rounds so far where there is no clock.
        participants: How many clients' results were taken.
        results: How many results, where a client may have had several.
        lost: How many trainings came to nothing, where they may.
        up_bytes: From clients.
        down_bytes: To clients.
        between_servers_bytes: Each transfer once.
        seconds: Of this machine, by kind of work: columns ``seconds_training`` and so on. Differs from run to run.
        accuracy: Mean over clients of the accuracy on their own test samples.
        worst_decile: The same over the least accurate tenth.
        worst_client: Of the least accurate client.
        best_client: Of the most accurate client.
        loss: Mean over clients of their mean cross-entropy.
        modularity: Q of Eq. 6.
        communities: Louvain's, or the groups that a method names.
        purity: Share of clients whose true cluster is the most frequent one of their community.
        misclassified: How many are not.
        satisfaction: Mean mr (Eq. 7) over the round's selections.
        satisfaction_min: The lowest.
        cross_cluster_rate: Share of selections that took another cluster's model.
        tips: Transactions that nobody has approved, at the round's end.
        transactions: In the ledger at the round's end.
        storage_bytes: What the fullest server keeps at the round's end.
        messages: Mean over nodes of the messages that each sent to others on its graph.
        sigma_an: Mean over parameters of the standard deviation over nodes, at an evaluated round (Uncoordinated
            initialisation, Sec. 3.1).
        sigma_ap: Mean over nodes of the standard deviation over a node's parameters, likewise.
        change_by_training: Mean over nodes of the length by which training changed a node's model in the round
            (Uncoordinated initialisation, Fig. 5a).
        change_by_aggregation: The same for the aggregation that the training began with.
        change_in_total: The same for both together.
        change_cosine: Mean cosine between both changes, over the nodes with two.
        peak_memory_bytes: The most that the run's process held since the run began, or was gone on with. Differs from
            run to run, as ``seconds`` does; None where the system does not tell.
    """

    round: int
    virtual_time_s: float
    participants: int
    up_bytes: int
    down_bytes: int
    between_servers_bytes: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    accuracy: float | None = None
    worst_decile: float | None = None
    worst_client: float | None = None
    best_client: float | None = None
    loss: float | None = None
    results: int | None = None
    lost: int | None = None
    modularity: float | None = None
    communities: int | None = None
    purity: float | None = None
    misclassified: int | None = None
    satisfaction: float | None = None
    satisfaction_min: float | None = None
    cross_cluster_rate: float | None = None
    tips: int | None = None
    transactions: int | None = None
    storage_bytes: int | None = None
    peak_memory_bytes: int | None = None
    messages: float | None = None
    sigma_an: float | None = None
    sigma_ap: float | None = None
    change_by_training: float | None = None
    change_by_aggregation: float | None = None
    change_in_total: float | None = None
    change_cosine: float | None = None

    def to_row(self) -> dict[str, str]:
        """Columns of ``rounds.csv``, in order, without those whose figure is None."""
        values = {name: getattr(self, name) for name in ROUND_COLUMNS} | {
            f"{_SECONDS}{work}": spent for work, spent in self.seconds.items()
        }
        return {name: str(value) for name, value in values.items() if value is not None}

    @classmethod
    def from_row(cls, row: Mapping[str, str]) -> Self:
        """What ``to_row`` made; an empty cell is None.

        Raises:
            ResultsError: Something is missing, unknown, or of another type.
        """
        values: dict[str, Any] = {}
        seconds: dict[str, float] = {}
        for name, cell in row.items():
            try:
                if cell == "":
                    continue
                if name.startswith(_SECONDS):
                    seconds[name.removeprefix(_SECONDS)] = float(cell)
                elif name in ROUND_COLUMNS:
                    values[name] = int(cell) if name in _WHOLE_NUMBERS else float(cell)
                else:
                    raise ResultsError(f"a round has no column {name!r}")
            except ValueError as error:
                raise ResultsError(f"{name} is {cell!r}, which is no number") from error
        try:
            return cls(**values, seconds=seconds)
        except TypeError as error:
            raise ResultsError(f"a round lacks something: {error}") from error

    def to_json(self) -> dict[str, Any]:
        """A JSON object without the figures that are None; NaN and the infinities, which JSON has not, as strings."""
        values = ((each.name, getattr(self, each.name)) for each in dataclasses.fields(self))
        return {name: _to_json(value) for name, value in values if value is not None}


_SECONDS: Final = "seconds_"
ROUND_COLUMNS: Final = tuple(each.name for each in dataclasses.fields(RoundRecord) if each.name != "seconds")
_WHOLE_NUMBERS: Final = frozenset(
    name for name, hint in typing.get_type_hints(RoundRecord).items() if hint in (int, int | None)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLabel:
    """Where a run stands in a table: the same row, column and seed are the same run.

    Attributes:
        experiment: Which table, such as ``dag-acfl/table_2``.
        setting: The row: data set, distribution and model, as DAG-ACFL has them, such as ``MNIST(type I)-LR``.
        participation: The row's other half: the share of clients that take part in a round.
        method: The column, as DAG-ACFL has it, such as ``FlexCFL(2)``.
        seed: The run's.
        rounds: How many it has when it is finished.
    """

    experiment: str
    setting: str
    participation: float
    method: str
    seed: int
    rounds: int

    @property
    def folder_name(self) -> str:
        """A name for the run's folder: letters, digits, dots and dashes."""
        words = f"{self.setting} {self.participation:g} {self.method} seed {self.seed}"
        return re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-")

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """What ``to_json`` made.

        Raises:
            ResultsError: Something is missing, unknown, or of another type.
        """
        return _read_fields(cls, value, what="label")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A finished run in short.

    Attributes:
        rounds: How many there were.
        final: The last evaluated round. Its accuracy is the run's result.
        best: The evaluated round with the highest mean accuracy; of several, the first.
        up_bytes: All rounds'.
        down_bytes: All rounds'.
        between_servers_bytes: All rounds'.
        seconds: All rounds', by kind of work.
    """

    rounds: int
    final: RoundRecord
    best: RoundRecord
    up_bytes: int
    down_bytes: int
    between_servers_bytes: int
    seconds: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "rounds": self.rounds,
            "final": self.final.to_json(),
            "best": self.best.to_json(),
            "up_bytes": self.up_bytes,
            "down_bytes": self.down_bytes,
            "between_servers_bytes": self.between_servers_bytes,
            "seconds": dict(self.seconds),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSummary:
    """What a run moved and kept, beside the formulas of DAG-ACFL's Tables III and IV.

    Attributes:
        communication: Table III's formula.
        formula_round_bytes: Its value for the run's sizes.
        expected_round_bytes: The same with each transfer counted once, as it is measured.
        measured_round_bytes: Mean over rounds.
        client_storage: Table IV's formula for a client.
        server_storage: The same for a server; None where there is none.
        formula_client_bytes: Its value at the run's end.
        formula_server_bytes: The same for a server.
        measured_ledger_bytes: The ledger at the run's end; None for a method without one.
    """

    communication: str
    formula_round_bytes: int
    expected_round_bytes: int
    measured_round_bytes: float
    client_storage: str
    server_storage: str | None = None
    formula_client_bytes: int
    formula_server_bytes: int | None = None
    measured_ledger_bytes: int | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON object without the members that are None."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """What ``to_json`` made.

        Raises:
            ResultsError: Something is missing, unknown, or of another type.
        """
        return _read_fields(cls, value, what="cost summary")


def summarise_run(records: Sequence[RoundRecord]) -> RunSummary:
    """The summary of these rounds.

    Raises:
        SimulationError: None of them was evaluated.
    """
    evaluated = [record for record in records if record.accuracy is not None]
    if not evaluated:
        raise SimulationError("no round was evaluated; let run.evaluate_every be at most run.rounds")
    seconds: dict[str, float] = {}
    for record in records:
        for work, spent in record.seconds.items():
            seconds[work] = seconds.get(work, 0.0) + spent
    return RunSummary(
        rounds=len(records),
        final=evaluated[-1],
        best=max(evaluated, key=_accuracy),  # max keeps the first of equals
        up_bytes=sum(record.up_bytes for record in records),
        down_bytes=sum(record.down_bytes for record in records),
        between_servers_bytes=sum(record.between_servers_bytes for record in records),
        seconds=seconds,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """Where a run goes on.

    Attributes:
        next_round: The first that is still to do.
        state: ``Strategy.state()``, and whatever else the engine must know; arrays without Python objects.
    """

    next_round: int
    state: Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class ClientFigures:
    """What each client had at one evaluation.

    Attributes:
        accuracy: Shape ``(C,)``; NaN for a client that was not evaluated.
        loss: The same shape.
    """

    accuracy: NDArray[np.float32]
    loss: NDArray[np.float32]


def _accuracy(record: RoundRecord) -> float:
    assert record.accuracy is not None
    return record.accuracy


def _to_json(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _to_json(each) for name, each in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


_HINTS: Final[Mapping[str, Mapping[str, Any]]] = {
    each.__name__: typing.get_type_hints(each) for each in (RunLabel, CostSummary)
}


def _read_fields(cls: type[_ValueT], value: object, *, what: str) -> _ValueT:
    if not isinstance(value, dict):
        raise ResultsError(f"a {what} is a JSON object, not {type(value).__name__}")
    hints = _HINTS[cls.__name__]
    if unknown := sorted(value.keys() - hints.keys()):
        raise ResultsError(f"a {what} has no {unknown[0]!r}")
    try:
        return cls(**{name: _read_value(hints[name], each, name=name) for name, each in value.items()})
    except TypeError as error:
        raise ResultsError(f"a {what} lacks something: {error}") from error


def _read_value(hint: Any, value: object, *, name: str) -> object:
    if isinstance(hint, types.UnionType):
        (hint,) = (each for each in typing.get_args(hint) if each is not type(None))
    if hint is float and type(value) in (int, float):
        return float(typing.cast("float", value))
    if type(value) is hint:
        return value
    raise ResultsError(f"{name} is {value!r}, which is no {getattr(hint, '__name__', hint)}")
