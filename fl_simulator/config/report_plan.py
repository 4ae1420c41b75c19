"""What an experiment's file asks of its report beside the table that every report has.

    [report.printed]                       # numbers that a paper prints, CSV files beside the experiment's file
    source = "DecDiff+VT, Table II"
    rounds = 1000
    accuracies = "printed/table_2.csv"     # setting,participation,method,accuracy, and spread or gain; more with ","
    times = "printed/table_4.csv"          # setting,method and a share of accuracy each
    graphs = "printed/edges.csv"           # setting,method,edges_per_node,messages_per_node

    [report.nodes]                         # how nodes differ: a table, a picture of the last round, curves
    lowest = 0.85                          # where the axis of accuracy begins

    [report.gains]                         # points of accuracy above a method's (DecDiff, Table III)
    baseline = "DecHetero"

    [report.times]                         # when shares of a method's final accuracy were reached (DecDiff, Table IV)
    reference = "Centralised"

    [report.trajectories]                  # all settings in one picture of loss (Uncoordinated initialisation, Fig. 3)
    limit = "Centralised"                  # a method whose least loss is a line across
    highest = 3.0                          # where the axis of loss ends: a great gain begins with a great loss
    batches = { "1 epoch" = 5 }            # a round's batches by setting: what goes across is then their number

    [report.plateau]                       # how long loss stays where chance has it, and how that grows with nodes
    method = "He"                          # drawn over t / n^mu
    share = 0.9
    classes = 10

Each table is optional; an empty one asks for its part with defaults. What the parts hold is decided in ``report`` and
``plots``. A file without ``[report]`` has the report it always had.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite, log
from pathlib import Path
from typing import Any, Final

from fl_core.errors import ParameterError
from fl_core.parameters import parameter, read_parameters
from fl_simulator.errors import ScenarioError

_BATCHES: Final = "batches"


@dataclass(frozen=True, slots=True)
class Printed:
    """Where a paper's numbers are; a name of a file is relative to the experiment's, empty for none."""

    source: str = parameter("", doc="The paper and the table.")
    rounds: int = parameter(0, at_least=0, doc="Of the runs printed there; 0: it does not say, or rows differ.")
    accuracies: str = parameter("", doc="CSV of accuracies; several with commas between.")
    times: str = parameter("", doc="CSV of characteristic times.")
    graphs: str = parameter("", doc="CSV of edges and messages.")


@dataclass(frozen=True, slots=True)
class Nodes:
    """How nodes differ."""

    lowest: float = parameter(0.0, at_least=0.0, below=1.0, doc="Where the axis of accuracy begins.")


@dataclass(frozen=True, slots=True)
class Gains:
    """Points of accuracy above a method's."""

    baseline: str = parameter("DecHetero", doc="The method whose accuracy is 0.")


@dataclass(frozen=True, slots=True)
class Times:
    """Characteristic times."""

    reference: str = parameter("Centralised", doc="The method whose final accuracy is the whole.")


@dataclass(frozen=True, slots=True)
class Trajectories:
    """All settings in one picture."""

    limit: str = parameter("", doc="The method whose least loss is a line across; empty for none.")
    highest: float = parameter(0.0, at_least=0.0, doc="Where the axis of loss ends; 0: at the greatest.")


@dataclass(frozen=True, slots=True)
class Plateau:
    """How long loss stays where chance has it."""

    method: str = parameter("", doc="The method drawn over t / n^mu; empty: all, each in a picture of its own.")
    share: float = parameter(
        0.9, above=0.0, at_most=1.0, doc="Of ln(classes): the plateau ends where loss stays below it."
    )
    classes: int = parameter(10, at_least=2, doc="Labels of the data set.")

    @property
    def threshold(self) -> float:
        """The loss below which the plateau is over, in nats."""
        return self.share * log(self.classes)


@dataclass(frozen=True, slots=True)
class ReportPlan:
    """The parts that are asked for; None for one that is not.

    ``batches`` is a round's batches by setting, empty where rounds go across.
    """

    printed: Printed | None = None
    nodes: Nodes | None = None
    gains: Gains | None = None
    times: Times | None = None
    trajectories: Trajectories | None = None
    plateau: Plateau | None = None
    batches: Mapping[str, float] = field(default_factory=dict)

    def beside(self, file: Path, name: str) -> tuple[Path, ...]:
        """The printed files of a kind, such as ``times``, beside an experiment's file."""
        said = "" if self.printed is None else getattr(self.printed, name)
        return tuple(file.parent / each.strip() for each in said.split(",") if each.strip())


REPORT_PARTS: Final[Mapping[str, type[Any]]] = {
    "printed": Printed,
    "nodes": Nodes,
    "gains": Gains,
    "times": Times,
    "trajectories": Trajectories,
    "plateau": Plateau,
}


def read_report_plan(content: object) -> ReportPlan:
    """The plan that the table ``[report]`` says.

    Raises:
        ScenarioError: An unknown part or key, a wrong type, a value out of range; the message names it.
    """
    if not isinstance(content, Mapping):
        raise ScenarioError(f"[report] is a table, not {content!r}")
    parts: dict[str, Any] = {}
    for name, table in content.items():
        if name not in REPORT_PARTS:
            raise ScenarioError(f"[report] has no part {name!r}; there are {', '.join(REPORT_PARTS)}")
        if not isinstance(table, Mapping):
            raise ScenarioError(f"[report.{name}] is a table, not {table!r}")
        given = dict(table)
        if name == "trajectories" and _BATCHES in given:
            parts[_BATCHES] = _batches(given.pop(_BATCHES))
        try:
            parts[name] = read_parameters(REPORT_PARTS[name], given, owner=f"[report.{name}]")
        except ParameterError as error:
            raise ScenarioError(str(error)) from error
    return ReportPlan(**parts)


def _batches(value: object) -> Mapping[str, float]:
    numbers = value if isinstance(value, Mapping) else {}
    if not numbers or not all(type(each) in (int, float) and isfinite(each) and each > 0 for each in numbers.values()):
        raise ScenarioError(f"[report.trajectories]: {_BATCHES} gives each setting a number above 0, not {value!r}")
    return {str(setting): float(each) for setting, each in numbers.items()}
