"""``dag-acfl …`` in processes of their own, which end when the one that started them ends, however that ends."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final

from fl_core.errors import DagAcflError
from fl_simulator.run.processes import end_with_owner

_STOP_TIMEOUT_S: Final = 12.0
_PR_SET_PDEATHSIG: Final = 1
_LOADED_ONCE: Final = ("dag_acfl.__main__", "dag_acfl.commands.client", "fl_client.participant")


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
    """

    def __init__(self, name: str, *arguments: str, log: Path, cwd: Path | None = None) -> None:
        self.name: str = name
        self.log: Path = log

        def before() -> None:
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

        with log.open("ab") as output:
            super().__init__(
                [sys.executable, "-m", "dag_acfl", *arguments],
                cwd=cwd,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                # What it does is the trial's to say, whatever the person's environment says about servers.
                env={name: value for name, value in os.environ.items() if not name.startswith("DAG_ACFL_")},
                preexec_fn=before,  # a system call alone, no lock
                # So that Ctrl-C in a terminal reaches the trial alone. Not a session: Linux shares the processor among
                # sessions first, and a client that steps back would not step back behind the servers.
                process_group=0,
            )

    def failure(self) -> TrialError:
        """Why it ended, from its last line."""
        return _failure(self.name, self.log, self.returncode)


class ForkedCommand(ForkServerProcess):
    """As ``Command``, forked from a process that has loaded PyTorch: sixteen that load it take 40 s of processor time.

    Args:
        name, arguments, log: As of ``Command``.
        niceness: How far it steps back behind others; 0 to 19.
        threads: That it computes with, unless the person's environment says how many.
    """

    def __init__(self, name: str, *arguments: str, log: Path, niceness: int, threads: int) -> None:
        super().__init__(name=name)
        self.log: Path = log
        self._arguments, self._niceness, self._threads = arguments, niceness, threads
        # PyTorch where the trial itself has loaded it: a person's file may train with something else.
        forkserver.set_forkserver_preload([*_LOADED_ONCE, *({"torch"} & sys.modules.keys())])
        self.start()

    def run(self) -> None:
        """In the process itself."""
        from dag_acfl.__main__ import main  # noqa: PLC0415 (it knows every command, this one's as well)

        os.setpgid(0, 0)
        os.nice(self._niceness)
        end_with_owner()
        for name in [each for each in os.environ if each.startswith("DAG_ACFL_")]:
            del os.environ[name]
        if "OMP_NUM_THREADS" not in os.environ:
            os.environ["OMP_NUM_THREADS"] = str(self._threads)
            if torch := sys.modules.get("torch"):  # which has read it already
                torch.set_num_threads(self._threads)
        with self.log.open("ab") as output:
            os.dup2(output.fileno(), sys.stdout.fileno())
            os.dup2(output.fileno(), sys.stderr.fileno())
        sys.argv[1:] = self._arguments
        sys.exit(main(called="python -m dag_acfl"))

    def poll(self) -> int | None:
        """As of ``Popen``, as are the next two."""
        return self.exitcode

    @property
    def returncode(self) -> int | None:
        return self.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self.join(timeout)
        if self.exitcode is None:
            raise subprocess.TimeoutExpired(self.name, timeout or 0.0)
        return self.exitcode

    def failure(self) -> TrialError:
        """Why it ended, from its last line."""
        return _failure(self.name, self.log, self.exitcode)


def _failure(name: str, log: Path, code: int | None) -> TrialError:
    lines = log.read_text(errors="replace").strip().splitlines()
    said = lines[-1].removeprefix("error: ")[:300] if lines else "no output"
    return TrialError(f"{name} ended (exit code {code}): {said} (see {log})")


def stop(commands: Iterable[Command | ForkedCommand]) -> None:
    """End all, side by side, politely, then not; and what a client's file has started."""
    running = [command for command in commands if command.poll() is None]
    for command in running:
        command.terminate()
    until = time.monotonic() + _STOP_TIMEOUT_S
    for command in running:
        with suppress(subprocess.TimeoutExpired):
            command.wait(max(0.0, until - time.monotonic()))
        assert command.pid is not None, "it was started"
        with suppress(ProcessLookupError):
            os.killpg(command.pid, signal.SIGKILL)
        command.wait()
