"""Where a client's figures go beside the ledger: a CSV file always, and what else it names.

    with tracking(["tensorboard"], state.folder, author=state.author) as track:
        participant.run(on_step=track)

A tracker is one small file here and one line in ``TRACKERS``. Its package is an extra, imported when it is asked for.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from fl_client.step_report import StepReport
from fl_core.errors import ParameterError, UnknownNameError
from fl_core.registry import Registry

logger: logging.Logger = logging.getLogger(__name__)


class Tracker(Protocol):
    """Takes the figures of one client, step by step; ``StepReport.figures`` has them all by name."""

    def on_step(self, report: StepReport) -> None:
        """Keep what a step has measured; ``report.sequence`` counts, over many runs of the same client."""
        ...

    def close(self) -> None:
        """The run has ended, however it did."""
        ...


TRACKERS: Final[Registry[Callable[[Path, str], Tracker]]] = Registry(
    "tracker",
    {
        "csv": "fl_client.integrations.trackers.csv_file:CsvTracker",
        "mlflow": "fl_client.integrations.trackers.mlflow:MlflowTracker",
        "tensorboard": "fl_client.integrations.trackers.tensorboard:TensorBoardTracker",
        "wandb": "fl_client.integrations.trackers.wandb:WandbTracker",
    },
)
"""Each is made from the state folder and the author's id."""


@contextmanager
def tracking(names: Iterable[str], folder: Path, *, author: str) -> Iterator[Callable[[StepReport], None]]:
    """Open trackers, ``csv`` first; yields what to give to ``Participant.run`` as ``on_step``.

    A tracker that fails while the client runs is left out from then on, and said so: no figure is worth a training.

    Args:
        names: Of ``TRACKERS``, beside ``csv``.
        folder: The participant's; local trackers keep their files there.
        author: The participant's id, by which a later run goes on where this one ended.

    Raises:
        UnknownNameError: There is no tracker of that name.
        ParameterError: Its package is not installed, or it cannot be opened.
    """
    opened: dict[str, Tracker] = {}

    def attempt(name: str, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 -- other people's software may raise anything
            del opened[name]
            logger.warning("tracker %s has failed and is left out from now on: %s", name, _one_line(error))

    def on_step(report: StepReport) -> None:
        for name, tracker in list(opened.items()):
            attempt(name, partial(tracker.on_step, report))

    try:
        for name in dict.fromkeys(("csv", *names)):
            opened[name] = _opened(name, folder, author)
        yield on_step
    finally:
        for name, tracker in list(opened.items()):
            attempt(name, tracker.close)


def _opened(name: str, folder: Path, author: str) -> Tracker:
    try:
        return TRACKERS[name](folder, author)
    except UnknownNameError:
        raise
    except ModuleNotFoundError as error:
        raise ParameterError(f"tracker {name}: {error}; run: pip install {error.name}") from error
    except Exception as error:
        raise ParameterError(f"tracker {name} cannot be opened: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
