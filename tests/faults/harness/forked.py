"""Processes that begin as forks of one that has imported what they need: to import it takes each a second otherwise."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.faults.report import ROOT

_IMPORTED = (
    *("dag_acfl.__main__", "ledger_server.app", "ledger_server.http.serve"),
    *("tests.faults.harness.servers", "tests.faults.harness.client", "tests.faults.harness.planted"),
)
_ONE_BLAS_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""As ``dag-acfl serve`` sets it before it imports NumPy."""


@cache
def _context() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_IMPORTED))
    with patch.dict(os.environ, {**_ONE_BLAS_THREAD, "PYTHONPATH": str(ROOT)}):
        forkserver.ensure_running()
    return context


def start(
    target: Callable[..., int], *arguments: object, log: Path, environment: Mapping[str, str] | None = None
) -> BaseProcess:
    """Call a function in a process of its own, which leads a session and ends with what the function returns.

    Args:
        target: A function that can be found by its name.
        arguments: Its arguments.
        log: What the process says is appended here.
        environment: Beside that of this process.
    """
    whole = {**os.environ, **(environment or {})}
    process: BaseProcess = _context().Process(target=_run, args=(target, arguments, log, whole))
    process.start()
    return process


def _run(target: Callable[..., int], arguments: tuple[object, ...], log: Path, environment: dict[str, str]) -> None:
    os.setsid()
    with log.open("ab") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    os.environ.clear()
    os.environ.update(environment)
    sys.exit(target(*arguments))
