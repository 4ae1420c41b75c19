"""A fault at one exact system call of a running server, by strace: an error in place of the call, or a kill before it."""

import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

ATTACH_S: Final = 20.0
DETACH_S: Final = 3.0
DYING_S: Final = 1.0
SYNC: Final = ("fdatasync", "fsync")
_CHANGING: Final = (
    *(*SYNC, "sync", "syncfs", "sync_file_range"),
    *("write", "writev", "pwrite64", "pwritev", "pwritev2", "copy_file_range", "sendfile", "splice"),
    *("ftruncate", "truncate", "fallocate", "mkdir", "mkdirat"),
    *("rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat"),
)
"""What can change a file, or make the change durable."""


@contextmanager
def watched(pid: int) -> Iterator[Path]:
    """Inside the block, what threads of ``pid`` change on the disk is written down, for ``changes``."""
    trace = Path(f"/tmp/strace-{pid}-watched.txt")
    with _traced(pid, trace, "-y", "-e", f"trace={','.join(_CHANGING)}"):
        yield trace


def changes(trace: Path) -> Counter[str]:
    """System calls that changed or synced a file, by name; deletes the trace.

    What went to a socket or a pipe, or failed, changed none.
    """
    lines = trace.read_text(errors="replace").splitlines()
    trace.unlink()
    calls = (re.match(r"\d+\s+(\w+)\((?!\d+<(?!/))", line) for line in lines if " = -1 " not in line)
    return Counter(call[1] for call in calls if call is not None)


@contextmanager
def injected(pid: int, syscall: str, what: str, *, when: int, file: Path | None = None) -> Iterator[Path]:
    """Inside the block, the ``when``-th call of ``syscall`` by a thread of ``pid`` meets ``what``.

    Args:
        pid: The process; all its threads are traced, and each counts for itself.
        syscall: Name.
        what: ``error=EIO``, ``signal=SIGKILL`` …
        when: From 1.
        file: Count calls on this file only.

    Yields:
        The trace, in which a call that was met says so and names its file; read it after the block.

    Raises:
        AssertionError: strace could not attach.
    """
    trace = Path(f"/tmp/strace-{pid}-{syscall}-{when}.txt")
    rule = ["-y", "-e", f"trace={syscall}", "-e", f"inject={syscall}:{what}:when={when}"]
    with _traced(pid, trace, *rule, *(() if file is None else ("-P", str(file)))):
        yield trace
        if what.startswith("signal="):
            # Its client knows of a death before the kernel is through with it, and the tracer has written of it.
            until = time.monotonic() + DYING_S
            while not _is_gone(pid) and time.monotonic() < until:
                time.sleep(0.02)


@contextmanager
def _traced(pid: int, trace: Path, *rule: str) -> Iterator[None]:
    command = ["strace", "-q", "-f", "-o", str(trace), "-p", str(pid), *rule]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + ATTACH_S
        while not _is_traced(pid):
            assert tracer.poll() is None, f"strace: {tracer.stderr.read() if tracer.stderr else ''}"
            assert time.monotonic() < until, "strace did not attach"
            time.sleep(0.02)
        yield
    finally:
        # What was killed ends its tracer, once that has written of it; a tracer may wait for a child of it in vain.
        for end in (lambda: None, tracer.terminate, tracer.kill) if _is_gone(pid) else (tracer.terminate, tracer.kill):
            end()
            with suppress(subprocess.TimeoutExpired):
                tracer.wait(DETACH_S)
                break
        if tracer.stderr is not None:
            tracer.stderr.close()


def met(trace: Path) -> tuple[bool, Path | None]:
    """Whether the call that was to be met came, and the file that an error was about; deletes the trace."""
    text = trace.read_text(errors="replace") if trace.exists() else ""
    trace.unlink(missing_ok=True)
    failed = re.search(r'^\d+\s+\w+\((?:\d+<([^>]*)>|"([^"]*)").*\(INJECTED\)$', text, re.MULTILINE)
    if failed is not None:
        return True, Path(failed[1] or failed[2])
    return "INJECTED" in text or "killed by SIGKILL" in text, None


def _is_gone(pid: int) -> bool:
    """Whether a process has ended, waited for or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def _is_traced(pid: int) -> bool:
    """Whether every thread has a tracer; a process that is gone needs none."""
    tasks = list(Path(f"/proc/{pid}/task").glob("*/status"))
    try:
        return all("TracerPid:\t0" not in task.read_text() for task in tasks)
    except OSError:
        return False
