"""TensorBoard: event files in ``tensorboard/`` of the state folder."""

from pathlib import Path

from tensorboard.summary import Writer

from fl_client.step_report import StepReport


class TensorBoardTracker:
    """Each run adds a file; steps are the transactions' numbers, so that curves go on.

    Args:
        folder: The participant's; ``tensorboard --logdir`` on the folder above shows all sites beside each other.
    """

    def __init__(self, folder: Path, _author: str) -> None:
        self._writer = Writer(str(folder / "tensorboard"))

    def on_step(self, report: StepReport) -> None:
        for name, value in report.figures().items():
            self._writer.add_scalar(name, value, report.sequence)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
