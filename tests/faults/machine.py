"""What a part of ``make faults`` needs of the machine, and what is missing here."""

import shutil
from pathlib import Path

from tests.faults.registry import Fault

_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}
"""Bits of what root needs for namespaces, devices and mounts; a container's root may lack them."""


def missing(fault: Fault) -> str | None:
    """Why a part cannot run here; None if it can."""
    absent = [need for need in fault.needs if not _is_here(need)]
    if absent:
        return f"needs {', '.join(absent)}"
    if fault.as_root and (lacking := [name for name, bit in _CAPABILITIES.items() if not _may() >> bit & 1]):
        return f"needs root with {', '.join(lacking)}"
    return None


def _is_here(need: str) -> bool:
    return Path(need).exists() if need.startswith("/") else shutil.which(need) is not None


def _may() -> int:
    """This process's effective capabilities, as a bit set."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
