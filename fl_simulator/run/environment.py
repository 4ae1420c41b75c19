"""What a run ran on: for whoever reads its figures later, and never for the run itself."""

import platform
import shutil
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from fl_simulator.run.processes import usable_cores

_PACKAGES: Final = ("dag-acfl", "numpy", "torch", "Rbeast", "networkx")
_SOURCE: Final = ("fl_core", "fl_client", "fl_simulator")
"""Packages whose code decides a run's figures."""


def describe_environment(*, seed: int) -> dict[str, Any]:
    """Versions, processor, seed and commit, as JSON.

    ``commit`` is there when this code lies in a git checkout; ``commit_changed`` says whether files that decide figures
    differ from it.
    """
    return {
        "began_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name)) is not None},
        "system": platform.platform(),
        "processor": _processor(),
        "cores": usable_cores(),
        **_commit(Path(__file__).parents[2]),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


@cache
def _commit(root: Path) -> dict[str, Any]:
    if not (root / ".git").exists():  # an installed package may lie inside somebody else's checkout
        return {}
    head = _git(root, "rev-parse", "HEAD")
    if head is None:
        return {}
    changed = _git(root, "status", "--porcelain", "--", *_SOURCE)
    return {"commit": head, "commit_changed": bool(changed)}


def _git(root: Path, *words: str) -> str | None:
    program = shutil.which("git")
    if program is None:
        return None
    command = [program, "-C", str(root), "--no-optional-locks", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - words of our own
    return done.stdout.strip() if done.returncode == 0 else None
