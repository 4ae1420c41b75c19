"""MLflow: a run of the experiment ``dag-acfl``, in the store that ``MLFLOW_TRACKING_URI`` names."""

import os
import re
import time
from pathlib import Path
from typing import Final

from mlflow.entities import Metric
from mlflow.tracking import MlflowClient

from fl_client.step_report import StepReport

_AUTHOR: Final = "dag_acfl.author"
_REFUSED: Final = re.compile(r"[^\w./ -]")
"""What the name of a metric may not have there."""


class MlflowTracker:
    """One run for each author, which later runs of the client go on with.

    Args:
        folder: The participant's, and the run's name; the store is here where the environment names none.
        author: The participant's id; the run is found again by this tag.
    """

    def __init__(self, folder: Path, author: str) -> None:
        here = f"sqlite:///{(folder / 'mlflow.db').resolve()}"
        self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or here)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "dag-acfl"
        found = self._client.get_experiment_by_name(name)
        experiment = self._client.create_experiment(name) if found is None else found.experiment_id
        runs = self._client.search_runs([experiment], f"tags.`{_AUTHOR}` = '{author}'", max_results=1)
        if runs:
            self._run: str = runs[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
        else:
            run = self._client.create_run(experiment, tags={_AUTHOR: author}, run_name=folder.resolve().name)
            self._run = run.info.run_id

    def on_step(self, report: StepReport) -> None:
        now_ms = time.time_ns() // 1_000_000
        figures = report.figures().items()
        metrics = [Metric(_REFUSED.sub("_", name), value, now_ms, report.sequence) for name, value in figures]
        self._client.log_batch(self._run, metrics=metrics)

    def close(self) -> None:
        self._client.set_terminated(self._run)
