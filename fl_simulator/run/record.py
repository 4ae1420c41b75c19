"""The values that a run's folder is made of: rounds as rows of ``rounds.csv``, the run's label as JSON.

    >>> record = RoundRecord(round=0, virtual_time_s=1.0, participants=2, up_bytes=8, down_bytes=8, accuracy=0.5)
    >>> RoundRecord.from_row(record.to_row()) == record
    True

Reading is strict: an unknown column or member, or a missing one, is refused, so that a folder of another version is
noticed where it is read. ``folder`` reads and writes the files.
"""

import dataclasses
import math
import re
import typing
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from fl_simulator.errors import ResultsError, SimulationError


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
        adjusted_rand: Adjusted Rand index of the communities: 1 for the true clusters, 0 in the mean for random ones.
        satisfaction: Mean mr (Eq. 7) over the round's selections.
        satisfaction_min: The lowest.
        cross_cluster_rate: Share of selections that took another cluster's model.
        averages_refused: Averages that honest clients have refused so far, where they may.
        tips: Transactions that nobody has approved, at the round's end.
        averaged: Mean over the round's selections of the models in the client's average, its own among them.
        own_model: Share of the round's selections by which a client kept its own model.
        updates_refused: Updates of honest clients that the ledger's rules have refused so far.
        attacks_refused: The same of attackers.
        attacked: Mean accuracy over honest clients whose true cluster has an attacker.
        backdoor: Share of triggered test samples that these clients' models call as the attackers want them called.
        cluster_mean: What ``accuracy`` would be if everybody had the mean of its true cluster's newest honest models.
        transactions: In the ledger at the round's end.
        parents: Mean number of an update's parents, over all so far: the models in the average that it began from.
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
    adjusted_rand: float | None = None
    satisfaction: float | None = None
    satisfaction_min: float | None = None
    cross_cluster_rate: float | None = None
    averages_refused: int | None = None
    tips: int | None = None
    averaged: float | None = None
    own_model: float | None = None
    updates_refused: int | None = None
    attacks_refused: int | None = None
    attacked: float | None = None
    backdoor: float | None = None
    cluster_mean: float | None = None
    transactions: int | None = None
    parents: float | None = None
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
        """What ``to_row`` made; an empty cell is None."""
        values: dict[str, Any] = {}
        seconds: dict[str, float] = {}
        for name, cell in row.items():
            if name not in ROUND_COLUMNS and not name.startswith(_SECONDS):
                raise ResultsError(f"a round has no column {name!r}")
            try:
                if cell and name in ROUND_COLUMNS:
                    values[name] = int(cell) if name in _WHOLE_NUMBERS else float(cell)
                elif cell:
                    seconds[name.removeprefix(_SECONDS)] = float(cell)
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
        experiment: Which table, such as ``dag-acfl/table_2_lr``.
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


def summarise_rounds(records: Sequence[RoundRecord]) -> dict[str, Any]:
    """What ``summary.json`` says of rounds.

    Returns:
        ``rounds``: how many; ``final``: the last evaluated one, whose accuracy is the run's result; ``best``: the
        evaluated one with the highest accuracy, of several the first; sums of bytes, and of seconds by kind of work.
    """
    evaluated = [record for record in records if record.accuracy is not None]
    if not evaluated:
        raise SimulationError("no round was evaluated; let run.evaluate_every be at most run.rounds")
    seconds: dict[str, float] = defaultdict(float)
    for record in records:
        for work, spent in record.seconds.items():
            seconds[work] += spent
    return {
        "rounds": len(records),
        "final": evaluated[-1].to_json(),
        "best": max(evaluated, key=lambda record: record.accuracy or 0.0).to_json(),  # max keeps the first of equals
        "up_bytes": sum(record.up_bytes for record in records),
        "down_bytes": sum(record.down_bytes for record in records),
        "between_servers_bytes": sum(record.between_servers_bytes for record in records),
        "seconds": seconds,
    }


def _to_json(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _to_json(each) for name, each in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
