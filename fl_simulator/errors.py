"""What a simulation can refuse."""

from pathlib import Path

from fl_core.errors import DagAcflError


class SimulationError(DagAcflError):
    """A simulation cannot be run."""

    code = "simulation"


class ScenarioError(SimulationError):
    """A scenario says something that cannot be; the message names the key."""

    code = "scenario-invalid"


class PartitionError(SimulationError):
    """The samples cannot be shared out as asked; the message says what there is and what is wanted."""

    code = "partition-impossible"


class ReportExtraMissingError(SimulationError):
    """pandas or matplotlib is not installed; the message names the extra that brings it."""

    code = "report-extra-missing"


class RunExistsError(SimulationError):
    """The folder holds the run, finished."""

    code = "run-exists"

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} holds a finished run; choose another folder with --out, or begin anew with --overwrite"
        )
        self.path = path


class ResultsError(SimulationError):
    """A run's folder cannot be read; the message names the file."""

    code = "results-malformed"
