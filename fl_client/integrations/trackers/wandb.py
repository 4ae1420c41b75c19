"""Weights & Biases: a run of the project ``dag-acfl``, offline unless ``WANDB_MODE`` says otherwise."""

import os
from pathlib import Path

import wandb

from fl_client.step_report import StepReport


class WandbTracker:
    """One run for each author, by its id; offline, each run of the client leaves a folder for ``wandb sync``.

    Args:
        folder: The participant's, and the run's name; W&B keeps its files in ``wandb/`` there.
        author: The participant's id.
    """

    def __init__(self, folder: Path, author: str) -> None:
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "dag-acfl",
            mode=os.environ.get("WANDB_MODE") or "offline",
            id=author.partition(":")[2][:32],
            resume="allow",
            name=folder.resolve().name,
            config={"author": author},
            dir=folder,
            settings=wandb.Settings(silent=True, console="off", disable_git=True, save_code=False),
        )

    def on_step(self, report: StepReport) -> None:
        self._run.log(report.figures(), step=report.sequence)

    def close(self) -> None:
        self._run.finish()
