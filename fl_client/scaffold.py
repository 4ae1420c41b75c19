"""The user's own file: the one that ``dag-acfl client init`` writes, and how ``client run`` loads it.

The file brings a function ``trainer``; whatever is wrong with it is said in one line, for the person who
wrote it, with its file and line.
"""

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from fl_client.errors import UserModuleError
from fl_client.training.errors import told
from fl_client.training.protocol import Trainer
from fl_core.errors import DagAcflError
from fl_core.types import JsonScalar

TEMPLATE: Final = "client_template.txt"
_TEMPLATE_NAME: Final = "digits_client.py"


def client_source(name: str = "my_client.py") -> str:
    """The text of a client's file: a model, data, and a function that joins them."""
    text = files("fl_client").joinpath(TEMPLATE).read_text("utf-8")
    return text.replace(_TEMPLATE_NAME, name)


def load_trainer(path: Path, options: Mapping[str, JsonScalar] | None = None) -> Trainer:
    """Import a client's file, and call its ``trainer``; the file's folder is importable from then on.

    Raises:
        UserModuleError: The file is missing or does not run; it has no function ``trainer``, or that does not take an
            option, fails, or returns no trainer.
        DagAcflError: What the project itself says about the user's model or data.
    """
    return load_trainers(path, [options or {}])[0]


def load_trainers(path: Path, options: Iterable[Mapping[str, JsonScalar]]) -> list[Trainer]:
    """The trainer of each of several sites; the file is imported once. Raises as ``load_trainer`` does."""
    make_trainer = _imported(path)
    return [_made(make_trainer, path, dict(given)) for given in options]


def _made(make_trainer: Callable[..., Any], path: Path, given: dict[str, JsonScalar]) -> Trainer:
    signature = inspect.signature(make_trainer)
    try:
        signature.bind(**given)
    except TypeError as error:
        parameters = ", ".join(signature.parameters) or "none"
        raise UserModuleError(f"{path}: trainer(): {error}; its parameters: {parameters}") from error
    try:
        made = make_trainer(**given)
    except DagAcflError:
        raise
    except Exception as error:
        raise UserModuleError(f"{path}: trainer() failed: {told(error, path)}") from error
    if not isinstance(made, Trainer):
        lacking = [name for name in ("layout", "initial_arrays", "train", "evaluate") if not hasattr(made, name)]
        raise UserModuleError(
            f"{path}: trainer() returned {type(made).__name__}, which has no {', '.join(lacking)}; "
            "return a TorchTrainer, or an object with the methods of fl_client.training.Trainer"
        )
    return made


def _imported(path: Path) -> Callable[..., Any]:
    """The file's function ``trainer``."""
    if not path.is_file():
        raise UserModuleError(f"{path} is not a file; write one with: dag-acfl client init {path}")
    location = path.resolve()
    spec = importlib.util.spec_from_file_location("dag_acfl_user_client", location)
    if spec is None or spec.loader is None:
        raise UserModuleError(f"{path} is not a Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    if str(location.parent) not in sys.path:
        sys.path.insert(0, str(location.parent))
    sys.modules[spec.name] = module  # dataclasses and pickling look a class's module up here
    try:
        spec.loader.exec_module(module)
    except DagAcflError:
        raise
    except Exception as error:
        sys.modules.pop(spec.name, None)
        raise UserModuleError(f"{path}: {told(error, path)}") from error
    make_trainer: Callable[..., Any] | None = getattr(module, "trainer", None)
    if not callable(make_trainer):
        raise UserModuleError(f"{path} has no function 'trainer'; see: dag-acfl client init")
    return make_trainer
