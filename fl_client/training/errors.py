"""What training can refuse, and whose fault it is: what a user's own code raises is told with its file and line."""

import os
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fl_core.errors import DagAcflError

_PACKAGES: Final = Path(__file__).parents[2]
_NOT_THE_USERS: Final = (
    *(f"{_PACKAGES / name}{os.sep}" for name in ("fl_core", "fl_client", "fl_simulator", "dag_acfl")),
    f"{sysconfig.get_path('stdlib')}{os.sep}",
    "<frozen ",
)
_INSTALLED: Final = ("site-packages", "dist-packages")
_MAX_TEXT: Final = 300


class TrainingError(DagAcflError):
    """A local training cannot go on."""

    code = "training"


class TrainingDivergedError(TrainingError):
    """A loss or a parameter became NaN or infinite; nothing of it is returned, so nothing is published."""

    code = "training-diverged"

    def __init__(self, message: str, *, learning_rate: float) -> None:
        super().__init__(message)
        self.learning_rate = learning_rate


class TrainingDataError(TrainingError):
    """The training or test data are empty or not batches of (inputs, labels)."""

    code = "training-data"


class TorchMissingError(TrainingError):
    """torch is not installed; the message names the extra that brings it."""

    code = "torch-missing"


class OpacusMissingError(TrainingError):
    """Opacus is not installed; the message names the extra that brings it."""

    code = "opacus-missing"


class PrivacyBudgetError(TrainingError):
    """The next training would spend more privacy than there is; the message names budget and ε."""

    code = "privacy-budget"


class TrainerFailedError(TrainingError):
    """The user's own code raised something, or returned what is no result; the message says where."""

    code = "trainer-failed"


@contextmanager
def users_code(what: str, doing: Callable[[], str] = str) -> Iterator[None]:
    """In this block the user's own code runs: what it raises is told as its fault.

    Args:
        what: What is called, such as ``train()``.
        doing: How far it is, such as ``epoch 2 of 3``; may be empty.

    Raises:
        TrainerFailedError: It raised something that is no error of this project.
    """
    try:
        yield
    except DagAcflError:
        raise
    except Exception as error:
        far = doing()
        raise TrainerFailedError(f"{what} failed{far and f' ({far})'}: {told(error)}") from error


def told(error: Exception, file: Path | None = None) -> str:
    """An error of a user's code in one line: where, what, and the remedy where it is known.

    Args:
        error: As it was caught.
        file: The user's file, if it is known; its lines are then given without its name.
    """
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return "PyTorch is not installed; run: pip install torch"
    text = str(error)
    said = " ".join(f"{type(error).__name__}: {text}".split())
    places = [(each.filename, each.lineno) for each in traceback.extract_tb(error.__traceback__)]
    if "Original Traceback" in text:  # torch brings a loader's worker's error over as text
        said = text.strip().splitlines()[-1]
        places += [(name, int(line)) for name, line in re.findall(r'File "([^"]+)", line (\d+)', text)]
    if isinstance(error, SyntaxError):
        said, places = error.msg, [*places, (error.filename or "", error.lineno)]
    if isinstance(error, MemoryError) or "out of memory" in said:
        said = f"{said.partition('. ')[0].removesuffix('.')}; try a smaller batch size, or another device"
    for name, line in reversed(places):
        if _is_users(name):
            known = file is not None and name == str(file.resolve())
            return f"{'' if known else f'{_shown(name)}, '}line {line}: {said[:_MAX_TEXT]}"
    return said[:_MAX_TEXT]


def is_users(error: Exception) -> bool:
    """Whether it was raised in a user's own file, or by what that called."""
    return any(_is_users(each.filename) for each in traceback.extract_tb(error.__traceback__))


def _is_users(filename: str) -> bool:
    return not filename.startswith(_NOT_THE_USERS) and not set(_INSTALLED) & set(Path(filename).parts)


def _shown(filename: str) -> str:
    """From the current folder on, if it lies there."""
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename
