"""Whole runs of an experiment as tasks of a Ray cluster: what ``parallel`` does with processes of one machine.

A run's folder travels with its task: it goes out as it is here, so that an interrupted run goes on, and comes back when
the run ends, fails or is stopped. A run that is lost with its node is begun again from what went out. Every node needs
this package with the extras ``ray`` and ``torch``, one version of Python and Ray, and the experiment's data sets.
"""

import os
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

from fl_simulator.config.experiment import PlannedRun
from fl_simulator.errors import RunExistsError, SimulationError
from fl_simulator.run.folder import RUN_FILES, SUMMARY
from fl_simulator.run.parallel import OnEvent, RunEnd, RunEvent, RunFailed, RunFinished, follow, play_one
from fl_simulator.run.play import WriteLedger, open_folder
from fl_simulator.run.processes import interrupts_noted

_RETRIES: Final = 2

Files: TypeAlias = dict[str, bytes]
"""A run's folder: the content of each file by its name."""


class _Relay:
    """An actor between the tasks and who waits for them: events one way, the wish to stop the other."""

    def __init__(self) -> None:
        self._events: list[RunEvent] = []
        self._stops = False

    def put(self, event: RunEvent) -> None:
        """Pass an event on."""
        self._events.append(event)

    def take(self) -> list[RunEvent]:
        """All events since the last call."""
        taken, self._events = self._events, []
        return taken

    def stop(self) -> None:
        """Let every run stop after its round, and those that wait not begin."""
        self._stops = True

    def is_stopping(self) -> bool:
        return self._stops


def play_on_ray(
    runs: Sequence[PlannedRun],
    folders: Sequence[Path],
    *,
    address: str,
    jobs: int | None = None,
    overwrite: bool = False,
    write_ledger: WriteLedger | None = None,
    on_event: OnEvent = lambda _event: None,
) -> None:
    """Play runs on the nodes of a cluster. Ctrl-C stops all of them after their round, as in ``play_all``.

    Args:
        runs: What to play; one whose device is ``cuda`` takes a whole GPU of a node.
        folders: Where each goes, on this machine.
        address: ``auto``: the cluster that this machine is a node of; else ``ray://host:10001`` or ``host:6379``. A
            connection that this process has already is used instead, and left open.
        jobs: Runs at a time; each has its part of the cluster's cores, at least one. None: one for each core.
        overwrite: Begin anew, whatever is in the folders.
        write_ledger: As of ``play_all``.
        on_event: Called in this process with what happens, in order for each run.

    Raises:
        SimulationError: Ray is not installed, or no cluster answers at the address.
    """
    with ExitStack() as stack, interrupts_noted() as interrupted:
        ray = _connect(address, stack)
        cores = max(1, int(ray.cluster_resources().get("CPU", 1)) // jobs) if jobs else 1
        relay = ray.remote(_Relay).options(num_cpus=0).remote()
        task = ray.remote(_play_on_node)
        ends: dict[Future[Any], int] = {}
        for index, (planned, path) in enumerate(zip(runs, folders, strict=True)):
            try:
                stack.enter_context(open_folder(planned, path, overwrite=overwrite))  # its lock is held till the end
            except RunExistsError:
                on_event(RunFinished(index, finished=True, before=True))
            except (SimulationError, OSError) as error:
                on_event(RunFailed(index, str(error)))
            else:
                gpus = 1 if planned.scenario.training.device == "cuda" else 0
                options = task.options(num_cpus=cores, num_gpus=gpus, max_retries=_RETRIES)
                run = options.remote(relay, index, planned, read_folder(path), workers=cores, write_ledger=write_ledger)
                ends[run.future()] = index
        follow(
            ends,
            lambda: ray.get(relay.take.remote()),
            lambda future, index: _bring_back(future, index, folders[index]),
            stop=lambda: ray.get(relay.stop.remote()),
            interrupted=interrupted,
            on_event=on_event,
        )


def _connect(address: str, stack: ExitStack) -> Any:
    """The module ``ray``, connected until ``stack`` is closed; nobody else needs the package."""
    try:
        import ray  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as error:
        raise SimulationError("a Ray cluster needs Ray: pip install 'ray[client]'") from error
    if not ray.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a simulation tells nobody that it runs
        try:
            ray.init(address, log_to_driver=False, configure_logging=False)
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            why = next(iter(str(error).splitlines()), type(error).__name__)
            raise SimulationError(
                f"no Ray cluster answers at {address!r} ({why}); begin one: ray start --head"
            ) from error
        stack.callback(ray.shutdown)
    return ray


def _bring_back(future: Future[tuple[Files, RunEnd | None]], index: int, path: Path) -> RunEnd | None:
    """Write the folder of a task that has ended; None where it was not to begin any more."""
    from ray.exceptions import RayError, RayTaskError  # noqa: PLC0415 (an extra)

    try:
        files, end = future.result()
    except RayTaskError as error:
        raise error.cause from error
    except RayError as error:
        return RunFailed(index, f"lost with its node, or for want of memory: {error}")
    if files:
        write_folder(path, files)
    return end


def _play_on_node(
    relay: Any, index: int, planned: PlannedRun, files: Files, *, workers: int, write_ledger: WriteLedger | None
) -> tuple[Files, RunEnd | None]:
    """What a task does; its end is None where it was not to begin any more."""
    import ray  # noqa: PLC0415 (an extra)

    def put(event: RunEvent) -> None:
        ray.get(relay.put.remote(event))  # waits, so that the run's end overtakes no event

    def should_stop() -> bool:
        stops: bool = ray.get(relay.is_stopping.remote())
        return stops

    if should_stop():
        return {}, None
    with TemporaryDirectory(prefix="dag-acfl-run-") as folder:
        path = Path(folder)
        for name, content in files.items():
            (path / name).write_bytes(content)
        end = play_one(
            index,
            planned,
            path,
            workers=workers,
            overwrite=False,
            write_ledger=write_ledger,
            on_event=put,
            should_stop=should_stop,
        )
        return read_folder(path), end


def read_folder(path: Path) -> Files:
    """The run's own files that are in its folder."""
    return {name: (path / name).read_bytes() for name in RUN_FILES if (path / name).is_file()}


def write_folder(path: Path, files: Files) -> None:
    """Make a run's folder hold these of its files and no others; what is not the run's stays."""
    for name in sorted(files, key=lambda each: each == SUMMARY):  # the summary says that all else is there
        part = path / f"{name}.part"
        part.write_bytes(files[name])
        part.replace(path / name)
    for name in RUN_FILES:
        if name not in files:
            (path / name).unlink(missing_ok=True)  # a finished run's checkpoint
