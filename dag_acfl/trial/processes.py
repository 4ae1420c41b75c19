"""``dag-acfl …`` in processes of their own, which end when the one that started them ends, however that ends."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from fl_core.errors import DagAcflError

_STOP_TIMEOUT_S: Final = 12.0
_PR_SET_PDEATHSIG: Final = 1


class TrialError(DagAcflError):
    """A trial cannot go on; the message names the process and where its output is."""

    code = "trial"


class Command(subprocess.Popen[bytes]):
    """One running ``dag-acfl`` command.

    Args:
        name: For people, such as ``server 2``.
        arguments: Behind ``dag-acfl``.
        log: File for its output; a command that is started again goes on writing there.
        cwd: Where it runs; None: here, where a client's file may look for its data.
        niceness: How far it steps back behind others; 0 to 19.
        threads: That it computes with, unless the person's environment says how many.
    """

    def __init__(
        self,
        name: str,
        *arguments: str,
        log: Path,
        cwd: Path | None = None,
        niceness: int = 0,
        threads: int | None = None,
    ) -> None:
        self.name: str = name
        self.log: Path = log

        def before() -> None:
            os.nice(niceness)
            if sys.platform == "linux":
                # Not SIGTERM: a client that was publishing would go on trying servers that have ended as well.
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

        with log.open("ab") as output:
            super().__init__(
                [sys.executable, "-m", "dag_acfl", *arguments],
                cwd=cwd,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                # What it does is the trial's to say, whatever the person's environment says about servers.
                env={
                    **({} if threads is None else {"OMP_NUM_THREADS": str(threads)}),
                    **{name: value for name, value in os.environ.items() if not name.startswith("DAG_ACFL_")},
                },
                preexec_fn=before,  # system calls alone, no lock
                # So that Ctrl-C in a terminal reaches the trial alone. Not a session: Linux shares the processor among
                # sessions first, and a client that steps back would not step back behind the servers.
                process_group=0,
            )

    def failure(self) -> TrialError:
        """Why it ended, from its last line."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        said = lines[-1].removeprefix("error: ")[:300] if lines else "no output"
        return TrialError(f"{self.name} ended (exit code {self.returncode}): {said} (see {self.log})")


def stop(commands: Iterable[Command]) -> None:
    """End all, side by side: politely, then not."""
    ended = list(commands)
    for command in ended:
        command.terminate()
    until = time.monotonic() + _STOP_TIMEOUT_S
    for command in ended:
        try:
            command.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            command.kill()
            command.wait()
